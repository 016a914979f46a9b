//! Tables for `kubectl get`: columns and cells of every kind.
//!
//! The columns of a kind are data in its row; a cell is made by the row's [`Cell`]. Built-in kinds have functions
//! (crate `kinds`), custom ones JSON paths.
//!
//! Invariants: a row has as many cells as the kind has columns; no object, however odd, makes a cell panic.
//!
//! Beside tables: objects of which only the metadata is shown, made here or cut out of their text (`cut`).
//!
//! Not here: which requests get a Table (content negotiation).

mod cut;

use std::borrow::Cow;

use kubewright_schema::budget;
use kubewright_schema::jsonpath::JsonPath;
use serde_json::{Map, Value, json};

pub(crate) use self::cut::write_partial;
pub use crate::model::age;
use crate::model::{Cell, Column, Resource};
use crate::values::get;

/// The description of the column `Age` of custom kinds without columns of their own.
pub(crate) const AGE_DESCRIPTION: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is \
    not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in \
    RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// `includeObject`: the content of the rows besides the cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// A PartialObjectMetadata (the default).
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

impl IncludeObject {
    /// Reads the query parameter; empty is the default.
    ///
    /// # Errors
    /// The message of the 400 answer.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "None" => Ok(Self::None),
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            _ => Err(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {text:?}: must be 'Metadata', 'Object', 'None', or empty"
            )),
        }
    }
}

/// How a Table is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The content of the rows besides the cells.
    pub include: IncludeObject,
    /// Present time, for ages.
    pub now: jiff::Timestamp,
    /// Whether `columnDefinitions` is filled: not in the later events of a watch.
    pub headers: bool,
}

/// The object of a row.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// The object in the version that it is shown in.
    pub object: &'a Value,
    /// As it is stored, if it is: cells and metadata are those of the stored form, whichever version the client asks
    /// for, and not every field survives the way through a version (the order of the metrics of an autoscaler).
    pub stored: Option<&'a Value>,
}

impl<'a> From<&'a Value> for Shown<'a> {
    fn from(object: &'a Value) -> Self {
        Shown { object, stored: None }
    }
}

/// A Table (meta.k8s.io/v1) of these objects. `metadata` is the list's (`resourceVersion`,
/// `continue`, `remainingItemCount`), or of a single object only its `resourceVersion`.
pub fn render<'a>(
    resource: &Resource,
    items: impl IntoIterator<Item = impl Into<Shown<'a>>>,
    metadata: Value,
    options: Options,
) -> Value {
    let rows = Rows::new(resource, options);
    let mut items: Vec<Shown<'a>> = items.into_iter().map(Into::into).collect();
    if let Some(order) = resource.strategy.table_order {
        items.sort_by_key(|shown| order(shown.object));
    }
    frame(
        resource,
        metadata,
        options,
        items.into_iter().map(|shown| rows.row(shown)).collect(),
    )
}

/// The Table with these rows.
pub(crate) fn frame(resource: &Resource, metadata: Value, options: Options, rows: Vec<Value>) -> Value {
    let headers = || resource.columns.iter().map(header).collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": if options.headers { Value::Array(headers()) } else { Value::Null },
        "rows": if rows.is_empty() && plain(resource) { Value::Null } else { Value::Array(rows) },
    })
}

/// Makes the rows of a Table.
pub(crate) struct Rows<'r> {
    resource: &'r Resource,
    paths: Vec<Option<JsonPath>>,
    options: Options,
}

impl<'r> Rows<'r> {
    pub(crate) fn new(resource: &'r Resource, options: Options) -> Rows<'r> {
        let path = |column: &Column| match &column.cell {
            Cell::Path(path) => JsonPath::parse(path).ok(),
            _ => None,
        };
        Rows {
            resource,
            paths: resource.columns.iter().map(path).collect(),
            options,
        }
    }

    /// The row of an object.
    pub(crate) fn row(&self, Shown { object, stored }: Shown<'_>) -> Value {
        let resource = self.resource;
        let mut row = Map::new();
        let seen = resource.conversion.map(|conversion| match stored {
            Some(stored) => Cow::Borrowed(stored),
            None => Cow::Owned((conversion.to_stored)(object.clone())),
        });
        let seen = seen.as_deref().unwrap_or(object);
        row.insert(
            "cells".to_owned(),
            cells_of(resource, &self.paths, seen, self.options.now),
        );
        if let Some(conditions) = conditions(resource, object) {
            row.insert("conditions".to_owned(), conditions);
        }
        match self.options.include {
            // Go writes the empty object of a row as null.
            IncludeObject::None => row.insert("object".to_owned(), Value::Null),
            IncludeObject::Metadata => row.insert("object".to_owned(), partial(seen)),
            IncludeObject::Object => row.insert("object".to_owned(), object.clone()),
        };
        Value::Object(row)
    }
}

/// Kinds without a printer of their own: Kubernetes writes `null` for their empty tables.
fn plain(resource: &Resource) -> bool {
    let is_it = |column: &Column| column.name == "Created At";
    resource.columns.get(1).is_some_and(is_it) || (resource.custom.is_none() && resource.columns.iter().any(is_it))
}

/// The conditions of a row beyond the cells: whether a pod has ended.
fn conditions(resource: &Resource, object: &Value) -> Option<Value> {
    if resource.kind != "Pod" || !resource.group.is_empty() {
        return None;
    }
    let (reason, message) = match object.pointer("/status/phase").and_then(Value::as_str) {
        Some(phase @ "Succeeded") => (phase, "The pod has completed successfully."),
        Some(phase @ "Failed") => (phase, "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

fn header(column: &Column) -> Value {
    json!({
        "name": column.name,
        "type": column.type_,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    })
}

/// The cells of an object in its stored form.
fn cells_of(resource: &Resource, paths: &[Option<JsonPath>], object: &Value, now: jiff::Timestamp) -> Value {
    // The cells of an object share this budget, regardless of the cost of other rows.
    const ROW: u64 = 500;
    let least = ROW / u64::try_from(paths.len().max(1)).unwrap_or(ROW);
    resource
        .columns
        .iter()
        .zip(paths)
        .map(|(column, path)| match &column.cell {
            Cell::Name => object.pointer("/metadata/name").cloned().unwrap_or_else(|| "".into()),
            Cell::Age => age::since(get(object, &["metadata", "creationTimestamp"]).as_str(), now).into(),
            Cell::Path(_) => path.as_ref().map_or(Value::Null, |path| {
                let cell = budget::share(least, || found(path, &column.type_, object, now));
                cell.unwrap_or_else(|| too_large(&column.type_))
            }),
            Cell::With(make) => budget::share(least, || make(object, now)).unwrap_or_else(|| too_large(&column.type_)),
        })
        .collect()
}

/// The value of a cell that costs more than it may: the list is answered all the same.
fn too_large(type_: &str) -> Value {
    match type_ {
        "string" => "<too large>".into(),
        _ => Value::Null,
    }
}

/// The value of a path as its column's type wants it; null when it is absent or of another type.
fn found(path: &JsonPath, type_: &str, object: &Value, now: jiff::Timestamp) -> Value {
    let results = path.find(object);
    let Some(first) = results.first() else {
        return Value::Null;
    };
    if first.is_null() {
        // A text is printed, and so prints Go a null.
        return if type_ == "string" {
            "<no value>".into()
        } else {
            Value::Null
        };
    }
    match type_ {
        // Of several values the first is shown.
        "string" if results.len() > 1 => match first {
            Value::String(text) => text.as_str().into(),
            other => other.to_string().into(),
        },
        "string" => path.render(object).into(),
        "date" => match first.as_str() {
            Some(time) => age::since(Some(time), now).into(),
            None => Value::Null,
        },
        "integer" => match (first.as_i64(), first.as_f64()) {
            (Some(number), _) => number.into(),
            // Go converts a float by cutting it.
            (None, Some(number)) => (number.trunc() as i64).into(),
            _ => Value::Null,
        },
        "number" if first.is_number() => (*first).clone(),
        "boolean" if first.is_boolean() => (*first).clone(),
        _ => Value::Null,
    }
}

/// The PartialObjectMetadata of an object: kind, apiVersion and metadata only.
pub fn partial(object: &Value) -> Value {
    let mut metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    let is = |field: &str, wanted: &str| object.get(field).is_some_and(|said| said == wanted);
    if is("kind", "DaemonSet") && is("apiVersion", "apps/v1") {
        // Made out of a field when a DaemonSet is written, which its metadata alone does not have.
        crate::model::facts::forget_template_count(&mut metadata);
    }
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    fn now() -> jiff::Timestamp {
        "2026-01-01T00:01:40Z".parse().expect("a time")
    }

    fn check(group: &str, plural: &str, mut object: Value, wanted: Value) {
        let row = Registry::new().lookup(group, "v1", plural).expect("a served kind");
        object["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
        object["metadata"]["name"] = "x".into();
        (row.strategy.default)(&mut object);
        let options = Options {
            include: IncludeObject::None,
            now: now(),
            headers: false,
        };
        let table = render(&row, [&object], json!({}), options);
        assert_eq!(table["rows"][0]["cells"], wanted, "{plural}");
    }

    #[test]
    fn only_the_daemon_sets_of_apps_forget_their_count() {
        let check = |api_version: &str, kept: bool| {
            let annotations = json!({"deprecated.daemonset.template.generation": "1"});
            let object =
                json!({"apiVersion": api_version, "kind": "DaemonSet", "metadata": {"annotations": annotations}});
            let shown = partial(&object);
            assert_eq!(shown["metadata"].get("annotations").is_some(), kept, "{api_version}");
        };
        check("apps/v1", false);
        check("example.org/v1", true);
    }

    #[test]
    fn cells_of_all_kinds() {
        let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]}});
        let selector = json!({"matchLabels": {"a": "b"}});
        check(
            "",
            "configmaps",
            json!({"data": {"a": "1"}, "binaryData": {"b": ""}}),
            json!(["x", 2, "100s"]),
        );
        check(
            "",
            "secrets",
            json!({"data": {"a": ""}}),
            json!(["x", "Opaque", 1, "100s"]),
        );
        check("", "serviceaccounts", json!({}), json!(["x", "100s"]));
        check(
            "",
            "namespaces",
            json!({"status": {"phase": "Active"}}),
            json!(["x", "Active", "100s"]),
        );
        check(
            "",
            "services",
            json!({"spec": {"type": "NodePort", "clusterIPs": ["10.0.0.9"], "selector": {"a": "b"}, "ports": [{"port": 80, "nodePort": 30001}, {"port": 53, "protocol": "UDP"}]}}),
            json!([
                "x",
                "NodePort",
                "10.0.0.9",
                "<none>",
                "80:30001/TCP,53/UDP",
                "100s",
                "a=b"
            ]),
        );
        check(
            "",
            "nodes",
            json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}, "spec": {"unschedulable": true},
                "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1.36.0"},
                    "addresses": [{"type": "InternalIP", "address": "10.1.1.1"}]}}),
            json!([
                "x",
                "Ready,SchedulingDisabled",
                "control-plane",
                "100s",
                "v1.36.0",
                "10.1.1.1",
                "<none>",
                "<unknown>",
                "<unknown>",
                "<unknown>"
            ]),
        );
        check(
            "apps",
            "deployments",
            json!({"spec": {"template": template, "selector": selector}, "status": {"readyReplicas": 1}}),
            json!(["x", "1/1", 0, 0, "100s", "c,d", "i,j", "a=b"]),
        );
        check(
            "apps",
            "replicasets",
            json!({"spec": {"replicas": 3, "template": template, "selector": selector}, "status": {"replicas": 2}}),
            json!(["x", 3, 2, 0, "100s", "c,d", "i,j", "a=b"]),
        );
        check(
            "apps",
            "statefulsets",
            json!({"spec": {"template": template}}),
            json!(["x", "0/1", "100s", "c,d", "i,j"]),
        );
        check(
            "apps",
            "daemonsets",
            json!({"spec": {"template": template, "selector": selector}, "status": {"desiredNumberScheduled": 2}}),
            json!(["x", 2, 0, 0, 0, 0, "<none>", "100s", "c,d", "i,j", "a=b"]),
        );
        check(
            "apps",
            "controllerrevisions",
            json!({"revision": 4, "metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "controller": true}]}}),
            json!(["x", "statefulset.apps/s", 4, "100s"]),
        );
        check(
            "batch",
            "jobs",
            json!({"spec": {"template": template, "completions": 3}, "status": {"succeeded": 1, "startTime": "2026-01-01T00:01:30Z"}}),
            json!(["x", "Running", "1/3", "10s", "100s", "c,d", "i,j", "<none>"]),
        );
        check(
            "coordination.k8s.io",
            "leases",
            json!({"spec": {"holderIdentity": "h"}}),
            json!(["x", "h", "100s"]),
        );
        check(
            "rbac.authorization.k8s.io",
            "roles",
            json!({}),
            json!(["x", "2026-01-01T00:00:00Z"]),
        );
        check(
            "rbac.authorization.k8s.io",
            "rolebindings",
            json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "namespace": "n", "name": "s"}]}),
            json!(["x", "Role/r", "100s", "u", "", "n/s"]),
        );
        check(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            json!({}),
            json!(["x", "2026-01-01T00:00:00Z"]),
        );
        check(
            "",
            "endpoints",
            json!({"subsets": [{"addresses": [{"ip": "10.1.1.1"}, {"ip": "10.1.1.2"}], "ports": [{"port": 80}]}]}),
            json!(["x", "10.1.1.1:80,10.1.1.2:80", "100s"]),
        );
        check(
            "discovery.k8s.io",
            "endpointslices",
            json!({"addressType": "IPv4", "ports": [{"port": 80}], "endpoints": [{"addresses": ["10.1.1.1"]}]}),
            json!(["x", "IPv4", "80", "10.1.1.1", "100s"]),
        );
        check(
            "",
            "events",
            json!({"type": "Normal", "reason": "R", "message": "m ", "involvedObject": {"kind": "Pod", "name": "p"},
                "source": {"component": "c"}, "lastTimestamp": "2026-01-01T00:01:30Z", "firstTimestamp": "2026-01-01T00:01:20Z", "count": 3}),
            json!(["10s", "Normal", "R", "pod/p", "", "c", "m", "20s", 3, "x"]),
        );
    }

    /// Objects and their rows as kube-apiserver printed them; `${age}` is the age, which is the same for all here.
    #[test]
    fn cells_are_those_of_the_recording() {
        let cases: Vec<Value> =
            serde_json::from_str(include_str!("../../testdata/cells.json")).expect("the committed recording");
        for case in cases {
            let (group_version, plural) = case["resource"]
                .as_str()
                .and_then(|path| path.rsplit_once('/'))
                .expect("a path");
            let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
            let row = Registry::new().lookup(group, version, plural).expect("a served kind");
            let options = Options {
                include: IncludeObject::None,
                now: now(),
                headers: false,
            };
            let table = render(&row, [&case["object"]], json!({}), options);
            let mut cells = table["rows"][0]["cells"].clone();
            for cell in cells.as_array_mut().expect("a list") {
                if *cell == "100s" {
                    *cell = "${age}".into();
                }
            }
            assert_eq!(cells, case["cells"], "{}", case["resource"]);
        }
    }

    #[test]
    fn custom_columns_follow_their_types() {
        let definition = json!({
            "metadata": {"name": "foos.ex.io"},
            "spec": {"group": "ex.io", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"}, "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                    {"name": "Mode", "type": "string", "jsonPath": ".spec.mode", "priority": 1},
                    {"name": "When", "type": "date", "jsonPath": ".spec.when"},
                    {"name": "Gone", "type": "string", "jsonPath": ".spec.gone"}
                ]
            }]},
            "status": {"conditions": [{"type": "Established", "status": "True"}], "acceptedNames": {"plural": "foos", "kind": "Foo"}}
        });
        let row = &crate::registry::crd::rows(&crate::storage::StoredObject::unversioned(definition))[0];
        let object =
            json!({"metadata": {"name": "a"}, "spec": {"size": 2, "mode": "m", "when": "2026-01-01T00:00:00Z"}});
        let options = Options {
            include: IncludeObject::Metadata,
            now: now(),
            headers: true,
        };
        let table = render(row, [&object], json!({"resourceVersion": "7"}), options);
        assert_eq!(table["rows"][0]["cells"], json!(["a", 2, "m", "100s", null]));
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(table["metadata"]["resourceVersion"], "7");
        assert_eq!(table["columnDefinitions"][2]["priority"], 1);
        assert_eq!(
            table["columnDefinitions"][1]["description"],
            "Custom resource definition column (in JSONPath format): .spec.size"
        );
        assert_eq!(
            IncludeObject::parse("Some").unwrap_err(),
            "Unable to convert to Table as requested: includeObject: Invalid value: \"Some\": must be 'Metadata', 'Object', 'None', or empty"
        );
    }
}
