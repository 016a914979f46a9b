//! From a CustomResourceDefinition to the served kind: accepted names, conditions, and rows of the resource table.
//!
//! In Kubernetes three controllers do this in the background (naming, establishing, finalizing). Here `settle` does it
//! at once: a write to a definition is followed by a write of its status before a client sees an answer. Which
//! definition is looked at next, and which names the others have, is for `super::definitions` to say.
//!
//! Invariants: a name that one definition has is given to no other; only Established definitions are served; a
//! definition that was once Established stays so.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use kubewright_schema::SchemaRef;
use serde_json::{Map, Value, json};

use super::{
    Cell, Column, ConversionWebhook, Custom, GenerationRule, PLAIN, Resource, ScalePaths, SelectableField, Source,
    Strategy, Subresource, Text, Verbs, Versions,
};
use crate::model::NAME_DESCRIPTION;
use crate::model::facts::definitions::set_condition;
pub use crate::model::facts::definitions::{
    CLEANUP_FINALIZER, DeletionProgress, is_ending, set_terminating, waits_for_its_end,
};
use crate::outbound::client::Client;
use crate::storage::StoredObject;
use crate::table::AGE_DESCRIPTION;
use crate::values::{At, get};

/// The rows of the versions that a definition serves; none while it is not Established.
///
/// A row keeps the text of the definition, which storage keeps as well, and reads its schema out of it when it is first
/// asked for.
pub fn rows(definition: &StoredObject) -> Vec<Resource> {
    let text = definition.encoded();
    let definition = definition.value();
    if !is_established(definition) {
        return Vec::new();
    }
    let at = At::root(definition).key("spec");
    let storage = at
        .key("versions")
        .items()
        .find(|version| version.key("storage").is_true())
        .map(|version| version.key("name").text().to_owned())
        .unwrap_or_default();
    let source = |version: usize| Source {
        text: text.clone(),
        version,
    };
    let versions = versions(definition, &source);
    let each = at.key("versions");
    let each = each.items().enumerate();
    each.filter(|(_, version)| version.key("served").is_true())
        .map(|(index, version)| row(definition, &version, source(index), &storage, versions.clone()))
        .collect()
}

fn owned(text: &str) -> Text {
    Text::Owned(text.to_owned())
}

fn list(at: &At<'_>) -> Vec<Text> {
    at.items().map(|item| owned(item.text())).collect()
}

fn row(definition: &Value, version: &At<'_>, source: Source, storage: &str, versions: Versions) -> Resource {
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
        schema: (versions.schemas.get(name).cloned()).unwrap_or_else(|| lazy(source.clone())),
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
            fingerprint: fingerprint(definition),
            source,
            revision: get(definition, &["metadata", "resourceVersion"])
                .as_str()
                .and_then(|version| version.parse().ok())
                .unwrap_or(0),
            versions,
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
        etcd_name: None,
        deprecation: None,
    }
}

/// A stored definition was validated; should its schema be unreadable all the same, everything is kept as it came.
fn lazy(source: Source) -> SchemaRef {
    SchemaRef::lazy(move || SchemaRef::from_crd(&source.document()).unwrap_or_else(|_| SchemaRef::any()))
}

/// A short key of the source of the kind's documents: a definition's generation grows with its spec.
fn fingerprint(definition: &Value) -> String {
    let metadata = get(definition, &["metadata"]);
    let words = ["name", "uid", "generation"].map(|field| get(metadata, &[field]));
    let accepted = get(definition, &["status", "acceptedNames"]);
    super::hash(json!([words, accepted]).to_string().as_bytes())
}

/// The data that tells versions of objects apart and converts them.
fn versions(definition: &Value, source: &dyn Fn(usize) -> Source) -> Versions {
    let spec = At::root(definition).key("spec");
    let stored = At::root(definition).keys(&["status", "storedVersions"]);
    let first = stored.items().next().map(|version| version.text().to_owned());
    let conversion = spec.key("conversion");
    let webhook = conversion.key("webhook");
    let versions = spec.key("versions");
    let versions = versions.items().enumerate();
    let schemas = versions.map(|(index, version)| (version.key("name").text().to_owned(), lazy(source(index))));
    Versions {
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
    }
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

/// Whether all its names were accepted once.
pub(crate) fn is_established(definition: &Value) -> bool {
    let conditions = get(definition, &["status", "conditions"]).as_array();
    let condition = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "Established");
    condition.is_some_and(|condition| condition["status"] == "True")
}

/// Names are of resources (plural, singular, short names) or of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sort {
    /// The names in paths and for `kubectl`.
    Resource,
    /// The kinds of objects and of their lists.
    Kind,
}

/// Names that a definition wants or has.
pub(crate) type Names = BTreeSet<(Sort, Text)>;

const FIELDS: [(&str, Sort, &str); 5] = [
    ("plural", Sort::Resource, "PluralConflict"),
    ("singular", Sort::Resource, "SingularConflict"),
    ("shortNames", Sort::Resource, "ShortNamesConflict"),
    ("kind", Sort::Kind, "KindConflict"),
    ("listKind", Sort::Kind, "ListKindConflict"),
];

/// The names that stand in a `CustomResourceDefinitionNames`.
pub(crate) fn names(at: &Value) -> Names {
    let mut names = Names::new();
    for (field, sort, _) in FIELDS {
        let at = At::root(at).key(field);
        let texts = at.items().map(|name| name.text().to_owned());
        let texts = texts.chain([at.text().to_owned()]);
        names.extend(
            texts
                .filter(|name| !name.is_empty())
                .map(|name| (sort, Text::Owned(name))),
        );
    }
    names
}

/// The work of the naming and establishing controllers, at once: the status (acceptedNames, conditions) that the
/// definition shall have, or none when it has it. `is_taken` says which names other definitions of the group
/// have.
pub(crate) fn settle(definition: &Value, is_taken: &dyn Fn(Sort, &str) -> bool, now: Timestamp) -> Option<Value> {
    let (accepted, conflict) = accept(definition, is_taken);
    status(definition, accepted, conflict, now)
}

/// The names that this definition may have, and the last conflict: reason and message.
fn accept(
    definition: &Value,
    is_taken: &dyn Fn(Sort, &str) -> bool,
) -> (Map<String, Value>, Option<(&'static str, String)>) {
    let wanted = At::root(definition).keys(&["spec", "names"]);
    let mut accepted = get(definition, &["status", "acceptedNames"])
        .as_object()
        .cloned()
        .unwrap_or_default();
    let mut conflict = None;
    for (field, sort, reason) in FIELDS {
        let name = wanted.key(field);
        let clash = name
            .items()
            .map(|name| name.text())
            .chain([name.text()])
            .find(|name| is_taken(sort, name));
        match clash {
            Some(name) => conflict = Some((reason, format!("{name:?} is already in use"))),
            None => set(&mut accepted, field, name.value),
        }
    }
    set(&mut accepted, "categories", wanted.key("categories").value);
    (accepted, conflict)
}

fn set(names: &mut Map<String, Value>, field: &str, value: &Value) {
    let empty = value.is_null() || value == "" || value.as_array().is_some_and(Vec::is_empty);
    if empty {
        names.remove(field);
    } else {
        names.insert(field.to_owned(), value.clone());
    }
}

/// The new status, or none when nothing changes.
fn status(
    definition: &Value,
    mut accepted: Map<String, Value>,
    conflict: Option<(&str, String)>,
    now: Timestamp,
) -> Option<Value> {
    let before = get(definition, &["status"]);
    let mut status = before.as_object().cloned().unwrap_or_default();
    // Go writes these two even when they are empty.
    for field in ["plural", "kind"] {
        accepted.entry(field).or_insert_with(|| "".into());
    }
    status.insert("acceptedNames".to_owned(), accepted.into());
    let names = match &conflict {
        Some((reason, message)) => ("False", *reason, message.as_str()),
        None => ("True", "NoConflicts", "no conflicts found"),
    };
    set_condition(&mut status, "NamesAccepted", names, now);
    if conflict.is_none() {
        set_condition(
            &mut status,
            "Established",
            ("True", "InitialNamesAccepted", "the initial names have been accepted"),
            now,
        );
    } else if !is_established(definition) {
        set_condition(
            &mut status,
            "Established",
            ("False", "NotAccepted", "not all names are accepted"),
            now,
        );
    }
    let status = Value::Object(status);
    (status != *before).then_some(status)
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

    /// The definition with the status that it shall have.
    fn settled(definition: &Value, is_taken: &dyn Fn(Sort, &str) -> bool) -> Option<Value> {
        let status = settle(definition, is_taken, now())?;
        let mut next = definition.clone();
        next["status"] = status;
        Some(next)
    }

    #[test]
    fn a_definition_is_established_and_stays_so() {
        let given = definition("foos", "Foo", 0);
        let rows = |definition: &Value| rows(&StoredObject::unversioned(definition.clone()));
        assert!(rows(&given).is_empty(), "not served before it is Established");
        let settle = |definition: &Value| settled(definition, &|_, _| false);
        let settled = settle(&given).expect("it is new");
        let conditions: Vec<_> = settled["status"]["conditions"]
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
        assert_eq!(settled["status"]["acceptedNames"], given["spec"]["names"]);
        assert!(settle(&settled).is_none(), "settling twice changes nothing");
        let rows = rows(&settled);
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
    fn names_belong_to_their_first_definition() {
        let mut second = definition("foos2", "Foo", 1);
        second["spec"]["names"]["shortNames"] = json!([]);
        let others = names(&definition("foos", "Foo", 0)["spec"]["names"]);
        let is_taken = |sort: Sort, name: &str| others.contains(&(sort, Text::Owned(name.to_owned())));
        let next = settled(&second, &is_taken).expect("it is new");
        let status = &next["status"];
        assert_eq!(status["conditions"][0]["reason"], "ListKindConflict");
        assert_eq!(status["conditions"][0]["message"], "\"FooList\" is already in use");
        assert_eq!(status["conditions"][1]["reason"], "NotAccepted");
        assert_eq!(
            status["acceptedNames"],
            json!({"plural": "foos2", "kind": "", "categories": ["all"]})
        );
        assert!(settled(&next, &is_taken).is_none(), "settling twice changes nothing");
        assert!(rows(&StoredObject::unversioned(next.clone())).is_empty());
        // When the first goes, the second gets the names.
        let next = settled(&next, &|_, _| false).expect("its names are free");
        assert_eq!(next["status"]["conditions"][1]["status"], "True");
    }
}
