//! From a CustomResourceDefinition to what is served: accepted names, conditions, and rows of the resource table.
//!
//! In Kubernetes three controllers do this in the background (naming, establishing, finalizing). Here [`settle`] does it at once: a write to
//! a definition is followed by a write of its status before anybody sees an answer.
//!
//! Invariants: names belong to the oldest definition that has them; only Established definitions are served; a definition that was once
//! Established stays so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use kubewright_schema::SchemaRef;
use serde_json::{Map, Value, json};

use super::{
    Cell, Column, ConversionWebhook, Custom, GenerationRule, PLAIN, Resource, ScalePaths, SelectableField, Several,
    Strategy, Subresource, Text, Verbs,
};
use crate::env::rfc3339;
use crate::kinds::check::{At, ensure, get};
use crate::object::conditions;
use crate::outbound::client::Client;
use crate::table::{AGE_DESCRIPTION, NAME_DESCRIPTION};

/// Name of the finalizer that keeps a deleted definition until its objects are gone.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The rows of the versions that a definition serves; none while it is not Established.
pub fn rows(definition: &Value) -> Vec<Resource> {
    if !has_condition(definition, "Established") {
        return Vec::new();
    }
    let at = At::root(definition).key("spec");
    let storage = at
        .key("versions")
        .items()
        .find(|version| version.key("storage").is_true())
        .map(|version| version.key("name").text().to_owned())
        .unwrap_or_default();
    let several = several(definition);
    at.key("versions")
        .items()
        .filter(|version| version.key("served").is_true())
        .map(|version| row(definition, &version, &storage, several.clone()))
        .collect()
}

fn owned(text: &str) -> Text {
    Text::Owned(text.to_owned())
}

fn list(at: &At<'_>) -> Vec<Text> {
    at.items().map(|item| owned(item.text())).collect()
}

/// Whether a schema fills in anything.
fn has_defaults(schema: &Value) -> bool {
    match schema {
        Value::Object(words) => words.contains_key("default") || words.values().any(has_defaults),
        Value::Array(items) => items.iter().any(has_defaults),
        _ => false,
    }
}

fn row(definition: &Value, version: &At<'_>, storage: &str, several: Option<Several>) -> Resource {
    let spec = At::root(definition).key("spec");
    let accepted = At::root(definition).keys(&["status", "acceptedNames"]);
    let (group, plural, kind) = (
        spec.key("group").text(),
        accepted.key("plural").text(),
        accepted.key("kind").text(),
    );
    let name = version.key("name").text();
    let schema = version.keys(&["schema", "openAPIV3Schema"]);
    let subresources = subresources(&version.key("subresources"));
    let has_status = subresources.contains(&Subresource::Status);
    let preserve_unknown = schema.key("x-kubernetes-preserve-unknown-fields").is_true();
    Resource {
        group: owned(group),
        version: owned(name),
        kind: owned(kind),
        list_kind: owned(accepted.key("listKind").text()),
        plural: owned(plural),
        singular: owned(accepted.key("singular").text()),
        short_names: list(&accepted.key("shortNames")),
        categories: list(&accepted.key("categories")),
        namespaced: spec.key("scope").text() == "Namespaced",
        verbs: Verbs::All,
        store: Text::Owned(format!("{plural}.{group}")),
        storage_version: owned(storage),
        schema: read_schema(&schema),
        schema_name: Text::Owned(schema_name(group, name, kind)),
        selectable_fields: version
            .key("selectableFields")
            .items()
            .map(|field| selectable(field.key("jsonPath").text()))
            .collect(),
        columns: columns(&version.key("additionalPrinterColumns")),
        strategy: Strategy {
            unconditional_update: false,
            any_finalizer: true,
            generation: if has_status {
                GenerationRule::AllButMetadataAndStatus
            } else {
                GenerationRule::AllButMetadata
            },
            ..PLAIN
        },
        subresources,
        custom: Some(Custom {
            crd_name: get(definition, &["metadata", "name"]).as_str().unwrap_or("").to_owned(),
            preserve_unknown,
            document: schema.value.clone(),
            revision: get(definition, &["metadata", "resourceVersion"])
                .as_str()
                .and_then(|version| version.parse().ok())
                .unwrap_or(0),
            has_defaults: has_defaults(schema.value),
            several,
            compiled_rules: Arc::default(),
            deprecation_warning: version.key("deprecated").is_true().then(|| {
                let given = version.key("deprecationWarning").text();
                if given.is_empty() {
                    let instead = newer_version(&spec, name)
                        .map_or_else(String::new, |newer| format!("; use {group}/{newer} {kind}"));
                    format!("{group}/{name} {kind} is deprecated{instead}")
                } else {
                    given.to_owned()
                }
            }),
        }),
        conversion: None,
    }
}

/// A stored definition was validated; should its schema be unreadable all the same, everything is kept as it came.
fn read_schema(at: &At<'_>) -> SchemaRef {
    SchemaRef::from_crd(at.value).unwrap_or_else(|_| SchemaRef::any())
}

/// What it takes to tell versions of objects apart and to convert them.
fn several(definition: &Value) -> Option<Several> {
    let spec = At::root(definition).key("spec");
    // A definition that was changed may have had other versions, in which objects are stored.
    let changed = At::root(definition).keys(&["metadata", "generation"]).int() > Some(1);
    if spec.key("versions").len() < 2 && !changed {
        return None;
    }
    let stored = At::root(definition).keys(&["status", "storedVersions"]);
    let first = stored.items().next().map(|version| version.text().to_owned());
    let conversion = spec.key("conversion");
    let webhook = conversion.key("webhook");
    let schemas = spec.key("versions").items().map(|version| {
        let schema = version.keys(&["schema", "openAPIV3Schema"]);
        (version.key("name").text().to_owned(), read_schema(&schema))
    });
    Some(Several {
        first: first.unwrap_or_default(),
        schemas: Arc::new(schemas.collect()),
        webhook: (conversion.key("strategy").text() == "Webhook").then(|| {
            Arc::new(ConversionWebhook {
                client: Client::new(webhook.key("clientConfig").value),
                review_versions: webhook
                    .key("conversionReviewVersions")
                    .items()
                    .map(|version| version.text().to_owned())
                    .collect(),
            })
        }),
    })
}

/// Name of the schema in OpenAPI documents: the group reversed, then version and kind (`io.ex.v1.Foo`).
fn schema_name(group: &str, version: &str, kind: &str) -> String {
    let reversed: Vec<&str> = group.rsplit('.').collect();
    format!("{}.{version}.{kind}", reversed.join("."))
}

fn subresources(at: &At<'_>) -> Vec<Subresource> {
    let mut found = Vec::new();
    if at.key("status").present() {
        found.push(Subresource::Status);
    }
    let scale = at.key("scale");
    if scale.present() {
        let selector = scale.key("labelSelectorPath").text();
        found.push(Subresource::Scale(ScalePaths {
            spec_replicas: owned(scale.key("specReplicasPath").text()),
            status_replicas: owned(scale.key("statusReplicasPath").text()),
            selector: (!selector.is_empty()).then(|| owned(selector)),
        }));
    }
    found
}

fn selectable(path: &str) -> SelectableField {
    SelectableField {
        label: owned(path.trim_start_matches('.')),
        absent: Text::Borrowed(""),
        pointers: vec![Text::Owned(path.replace('.', "/"))],
    }
}

/// The newest served version after this one that is not deprecated.
fn newer_version<'a>(spec: &At<'a>, name: &str) -> Option<&'a str> {
    let order = |name: &str| super::version_priority(name);
    spec.key("versions")
        .items()
        .filter(|version| version.key("served").is_true() && !version.key("deprecated").is_true())
        .map(|version| version.key("name").text())
        .filter(|other| order(other) > order(name))
        .max_by_key(|other| order(other))
}

fn columns(at: &At<'_>) -> Vec<Column> {
    let mut columns = vec![Column {
        name: Text::Borrowed("Name"),
        type_: Text::Borrowed("string"),
        format: Text::Borrowed("name"),
        description: Text::Borrowed(NAME_DESCRIPTION),
        priority: 0,
        cell: Cell::Name,
    }];
    if at.is_empty() {
        columns.push(column(
            "Age",
            "date",
            "",
            AGE_DESCRIPTION,
            0,
            ".metadata.creationTimestamp",
        ));
    }
    for given in at.items() {
        columns.push(column(
            given.key("name").text(),
            given.key("type").text(),
            given.key("format").text(),
            given.key("description").text(),
            i32::try_from(given.key("priority").int().unwrap_or(0)).unwrap_or(0),
            given.key("jsonPath").text(),
        ));
    }
    columns
}

fn column(name: &str, type_: &str, format: &str, description: &str, priority: i32, path: &str) -> Column {
    let description = if description.is_empty() {
        format!("Custom resource definition column (in JSONPath format): {path}")
    } else {
        description.to_owned()
    };
    Column {
        name: owned(name),
        type_: owned(type_),
        format: owned(format),
        description: Text::Owned(description),
        priority,
        cell: Cell::Path(path.to_owned()),
    }
}

fn has_condition(definition: &Value, kind: &str) -> bool {
    condition(definition, kind).is_some_and(|condition| condition["status"] == "True")
}

fn condition<'a>(definition: &'a Value, kind: &str) -> Option<&'a Value> {
    get(definition, &["status", "conditions"])
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == kind)
}

/// What the naming and establishing controllers do, at once: the definitions whose status (acceptedNames, conditions) must change, given all
/// stored definitions. Call it after each write to a definition, store what it returns (each is a whole object with a new status; one call
/// suffices), then call [`Registry::apply_crds`](super::Registry::apply_crds) with all.
pub fn settle<'a>(definitions: impl IntoIterator<Item = &'a Value>, now: Timestamp) -> Vec<Value> {
    let mut groups: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for definition in definitions {
        groups
            .entry(get(definition, &["spec", "group"]).as_str().unwrap_or(""))
            .or_default()
            .push(definition);
    }
    let mut changed = Vec::new();
    for group in groups.values_mut() {
        group.sort_by_key(|definition| {
            // Who holds names keeps them; then the older one wins.
            let established = has_condition(definition, "Established");
            let text = |keys: &[&str]| get(definition, keys).as_str().unwrap_or("").to_owned();
            let version = text(&["metadata", "resourceVersion"])
                .parse::<u64>()
                .unwrap_or(u64::MAX);
            (
                !established,
                text(&["metadata", "creationTimestamp"]),
                version,
                text(&["metadata", "name"]),
            )
        });
        settle_group(group, now, &mut changed);
    }
    changed
}

/// Names in use in a group: of resources (plural, singular, short names) and of kinds.
#[derive(Default)]
struct Used {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

fn settle_group(group: &[&Value], now: Timestamp, changed: &mut Vec<Value>) {
    // First what others already hold, so that a newcomer never takes it.
    let held: Vec<Used> = group.iter().map(|definition| names_held(definition)).collect();
    let mut settled: Vec<Used> = Vec::new();
    for (index, definition) in group.iter().enumerate() {
        let mut others = Used::default();
        for used in settled.iter().chain(&held[index + 1..]) {
            others.resources.extend(used.resources.iter().cloned());
            others.kinds.extend(used.kinds.iter().cloned());
        }
        let (accepted, conflict) = accept(definition, &others);
        let next = with_status(definition, &accepted, conflict, now);
        let current = next.as_ref().unwrap_or(definition);
        settled.push(names_held(current));
        changed.extend(next);
    }
}

fn names_held(definition: &Value) -> Used {
    let accepted = At::root(definition).keys(&["status", "acceptedNames"]);
    let mut used = Used::default();
    for field in ["plural", "singular"] {
        let name = accepted.key(field).text();
        if !name.is_empty() {
            used.resources.insert(name.to_owned());
        }
    }
    used.resources
        .extend(accepted.key("shortNames").items().map(|name| name.text().to_owned()));
    for field in ["kind", "listKind"] {
        let name = accepted.key(field).text();
        if !name.is_empty() {
            used.kinds.insert(name.to_owned());
        }
    }
    used
}

/// The names that this definition may have, and the last conflict: reason and message.
fn accept(definition: &Value, others: &Used) -> (Value, Option<(&'static str, String)>) {
    let wanted = At::root(definition).keys(&["spec", "names"]);
    let mut accepted = get(definition, &["status", "acceptedNames"])
        .as_object()
        .cloned()
        .unwrap_or_default();
    let mut conflict = None;
    let taken = |name: &str| format!("{name:?} is already in use");
    for (field, used, reason) in [
        ("plural", &others.resources, "PluralConflict"),
        ("singular", &others.resources, "SingularConflict"),
        ("shortNames", &others.resources, "ShortNamesConflict"),
        ("kind", &others.kinds, "KindConflict"),
        ("listKind", &others.kinds, "ListKindConflict"),
    ] {
        let name = wanted.key(field);
        let clash = name
            .items()
            .map(|name| name.text())
            .chain([name.text()])
            .find(|name| used.contains(*name));
        match clash {
            Some(name) => conflict = Some((reason, taken(name))),
            None => set(&mut accepted, field, name.value),
        }
    }
    set(&mut accepted, "categories", wanted.key("categories").value);
    (Value::Object(accepted), conflict)
}

fn set(names: &mut Map<String, Value>, field: &str, value: &Value) {
    let empty = value.is_null() || value == "" || value.as_array().is_some_and(Vec::is_empty);
    if empty {
        names.remove(field);
    } else {
        names.insert(field.to_owned(), value.clone());
    }
}

/// The definition with the new status, or none when nothing changes.
fn with_status(
    definition: &Value,
    accepted: &Value,
    conflict: Option<(&str, String)>,
    now: Timestamp,
) -> Option<Value> {
    let mut next = definition.clone();
    let status = ensure(next.as_object_mut()?, "status")?;
    let mut accepted = accepted.clone();
    if let Some(names) = accepted.as_object_mut() {
        // Go writes these two even when they are empty.
        for field in ["plural", "kind"] {
            names.entry(field).or_insert_with(|| "".into());
        }
    }
    status.insert("acceptedNames".to_owned(), accepted);
    let names = match &conflict {
        Some((reason, message)) => ("False", *reason, message.as_str()),
        None => ("True", "NoConflicts", "no conflicts found"),
    };
    set_condition(status, "NamesAccepted", names, now);
    if conflict.is_none() {
        set_condition(
            status,
            "Established",
            ("True", "InitialNamesAccepted", "the initial names have been accepted"),
            now,
        );
    } else if !has_condition(definition, "Established") {
        set_condition(
            status,
            "Established",
            ("False", "NotAccepted", "not all names are accepted"),
            now,
        );
    }
    (next != *definition).then_some(next)
}

fn set_condition(
    status: &mut Map<String, Value>,
    kind: &str,
    (value, reason, message): (&str, &str, &str),
    now: Timestamp,
) {
    let condition = json!({
        "type": kind, "status": value, "lastTransitionTime": rfc3339(now), "reason": reason, "message": message
    });
    conditions::set(status, condition);
}

/// Marks a definition that is being deleted: adds [`CLEANUP_FINALIZER`] and the condition `Terminating`. The pipeline calls it on the first
/// DELETE (besides setting deletionTimestamp), deletes the objects of `store`, and removes the finalizer when none is left.
pub fn terminate(definition: &mut Value, now: Timestamp) {
    let Some(object) = definition.as_object_mut() else {
        return;
    };
    if let Some(metadata) = ensure(object, "metadata") {
        let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
        if let Some(finalizers) = finalizers.as_array_mut()
            && !finalizers.iter().any(|finalizer| finalizer == CLEANUP_FINALIZER)
        {
            finalizers.push(CLEANUP_FINALIZER.into());
        }
    }
    set_terminating(definition, Ending::Pending, now);
}

/// How far the deletion of the objects of a definition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It will begin.
    Pending,
    /// Something holds some of them.
    InProgress,
    /// None is left.
    Completed,
}

/// Sets the condition `Terminating` of a definition; whether that changed it.
pub fn set_terminating(definition: &mut Value, ending: Ending, now: Timestamp) -> bool {
    let to = match ending {
        Ending::Pending => (
            "True",
            "InstanceDeletionPending",
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        ),
        Ending::InProgress => (
            "True",
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
        ),
        Ending::Completed => ("False", "InstanceDeletionCompleted", "removed all instances"),
    };
    let before = definition.get("status").cloned();
    if let Some(status) = definition.as_object_mut().and_then(|object| ensure(object, "status")) {
        let conditions = status.get("conditions").and_then(Value::as_array).into_iter().flatten();
        let same = |condition: &Value| condition["type"] == "Terminating" && condition["reason"] == to.1;
        if conditions.into_iter().any(same) {
            return false;
        }
        set_condition(status, "Terminating", to, now);
    }
    before.as_ref() != definition.get("status")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_790_000_000).expect("a time in range")
    }

    fn definition(plural: &str, kind: &str, created: u32) -> Value {
        json!({
            "metadata": {"name": format!("{plural}.ex.io"), "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z")},
            "spec": {
                "group": "ex.io",
                "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List"), "shortNames": ["fo"], "categories": ["all"]},
                "scope": "Namespaced",
                "versions": [
                    {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
                     "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.replicas"}}},
                    {"name": "v1beta1", "served": true, "storage": false, "deprecated": true, "schema": {"openAPIV3Schema": {"type": "object"}}},
                    {"name": "v1alpha1", "served": false, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}}
                ]
            },
            "status": {"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]}
        })
    }

    #[test]
    fn a_definition_is_established_and_stays_so() {
        let given = definition("foos", "Foo", 0);
        assert!(rows(&given).is_empty(), "not served before it is Established");
        let settled = settle([&given], now());
        assert_eq!(settled.len(), 1);
        let conditions: Vec<_> = settled[0]["status"]["conditions"]
            .as_array()
            .expect("conditions")
            .iter()
            .map(|c| (c["type"].as_str(), c["status"].as_str(), c["reason"].as_str()))
            .collect();
        assert_eq!(
            conditions,
            [
                (Some("NamesAccepted"), Some("True"), Some("NoConflicts")),
                (Some("Established"), Some("True"), Some("InitialNamesAccepted"))
            ]
        );
        assert_eq!(settled[0]["status"]["acceptedNames"], given["spec"]["names"]);
        assert!(
            settle([&settled[0]], now()).is_empty(),
            "settling twice changes nothing"
        );
        let rows = rows(&settled[0]);
        let versions: Vec<_> = rows
            .iter()
            .map(|row| (row.version.as_ref(), row.subresources.len(), row.schema_name.as_ref()))
            .collect();
        assert_eq!(
            versions,
            [("v1", 2, "io.ex.v1.Foo"), ("v1beta1", 0, "io.ex.v1beta1.Foo")]
        );
        assert_eq!(
            rows[1]
                .custom
                .as_ref()
                .and_then(|custom| custom.deprecation_warning.clone())
                .as_deref(),
            Some("ex.io/v1beta1 Foo is deprecated; use ex.io/v1 Foo")
        );
        assert_eq!(rows[0].store, "foos.ex.io");
    }

    #[test]
    fn names_belong_to_who_came_first() {
        let first = settle([&definition("foos", "Foo", 0)], now()).remove(0);
        let mut second = definition("foos2", "Foo", 1);
        second["spec"]["names"]["shortNames"] = json!([]);
        let settled = settle([&second, &first], now());
        assert_eq!(settled.len(), 1, "the first is left alone");
        let status = &settled[0]["status"];
        assert_eq!(status["conditions"][0]["reason"], "ListKindConflict");
        assert_eq!(status["conditions"][0]["message"], "\"FooList\" is already in use");
        assert_eq!(status["conditions"][1]["reason"], "NotAccepted");
        assert_eq!(
            status["acceptedNames"],
            json!({"plural": "foos2", "kind": "", "categories": ["all"]})
        );
        assert!(rows(&settled[0]).is_empty());
        // When the first goes, the second gets the names.
        assert_eq!(
            settle([&settled[0]], now())[0]["status"]["conditions"][1]["status"],
            "True"
        );
    }
}
