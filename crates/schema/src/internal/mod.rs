//! Values as the messages of kube-apiserver show them: by the Go structs that it works with.
//!
//! Those structs have the fields of the API in another order, under Go's names, and show absent values as `null`, `""`
//! or `0`. Which struct a value has follows from the kind and the field's path, so that a rule names the field and the
//! value alone. Kinds that no struct is known of show their values as they are.
//!
//! Not here: texts of plain values, which are the same in both forms (see [`crate::error`]).

mod diff;
mod table;

use serde_json::{Map, Value, json};

use crate::{Minor, budget, measure};
use table::{Shape, Struct, Type};

/// The value of a field as a message shows it in one line; `None` when the plain form is right: for texts, numbers, and
/// fields that the structs do not have. A scalar that is absent shows the zero of its type.
///
/// ```
/// use kubewright_schema::Minor;
/// use kubewright_schema::internal::show;
/// use serde_json::json;
///
/// let port = json!({"port": 80, "protocol": "TCP"});
/// assert_eq!(
///     show(Minor::V36, "", "Service", "spec.ports[0]", &port).as_deref(),
///     Some(r#"{"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}"#)
/// );
/// assert_eq!(show(Minor::V36, "", "Service", "spec.type", &json!("x")), None);
/// ```
pub fn show(minor: Minor, group: &str, kind: &str, path: &str, value: &Value) -> Option<String> {
    if value.is_number() || value.is_boolean() {
        return None;
    }
    let mut type_ = type_at(minor, group, kind, path)?;
    if type_.shape == Shape::List && value.is_object() {
        // A rule about a list may show one of its items, or the struct that holds it.
        let item = type_.item();
        type_ = if holds(item, value) {
            item
        } else {
            around(minor, group, kind, path)?
        };
    } else if value.is_object() && type_.shape == Shape::One && type_.known().is_none() {
        // A rule about a word may show the struct that holds it; a field of any value shows its own.
        if type_.is_any() {
            return None;
        }
        type_ = around(minor, group, kind, path).filter(|type_| holds(*type_, value))?;
    }
    match value {
        Value::String(_) => return None,
        // A scalar that is no pointer is never absent; where a struct is, the rule meant its absence.
        Value::Array(list) if list.is_empty() && type_.shape == Shape::One => return None,
        Value::Null if type_.pointer || type_.shape != Shape::One || type_.known().is_some() => return None,
        _ => {}
    }
    let mut text = String::new();
    shown(type_, value).write(&mut text);
    Some(text)
}

/// The struct that has the field of a path.
fn around(minor: Minor, group: &str, kind: &str, path: &str) -> Option<Type> {
    type_at(minor, group, kind, path.rsplit_once('.')?.0)
}

/// Whether a struct has all the fields of an object.
fn holds(type_: Type, value: &Value) -> bool {
    type_.known().is_some_and(|known| {
        let fields: Vec<&str> = known.fields().iter().map(|field| field.name).collect();
        let mut keys = value.as_object().into_iter().flat_map(Map::keys);
        keys.all(|key| fields.iter().any(|field| table::same_name(key, field)))
    })
}

/// The difference between two values of a field, as a unified diff of the output of [`show`], one field a line; empty
/// when they are alike.
///
/// ```
/// use kubewright_schema::Minor;
/// use kubewright_schema::internal::difference;
/// use serde_json::json;
///
/// let (old, new) = (json!({"scopes": ["Terminating"]}), json!({"scopes": null}));
/// let text = difference(Minor::V36, "", "ResourceQuota", "spec", &old, &new);
/// assert!(text.starts_with("@@ -1,7 +1,5 @@\n {\n  \"Hard\": null,\n- \"Scopes\": [\n"), "{text}");
/// ```
pub fn difference(minor: Minor, group: &str, kind: &str, path: &str, old: &Value, new: &Value) -> String {
    let lines = |value: &Value| {
        let mut text = String::new();
        match type_at(minor, group, kind, path) {
            Some(type_) => shown(type_, value).write_indented(&mut text, 0),
            None => plain(value).write_indented(&mut text, 0),
        }
        text
    };
    diff::unified(&lines(old), &lines(new))
}

/// The struct of a field, such as `spec.template.spec.containers[0]`.
fn type_at(minor: Minor, group: &str, kind: &str, path: &str) -> Option<Type> {
    let root = table::kind(minor, group, kind);
    // Upstream tells of the taints of a node as if they were metadata, and of where a volume is as if it had no spec.
    let moved = match (group, kind) {
        ("", "Node") => path
            .strip_prefix("metadata.taints")
            .map(|rest| format!("spec.taints{rest}")),
        ("", "PersistentVolume") if path == "nodeAffinity" => Some(format!("spec.{path}")),
        _ => None,
    };
    let mut steps = steps(moved.as_deref().unwrap_or(path)).into_iter().peekable();
    let mut at = match root {
        Some(found) => Type::one(found),
        None if steps.peek() == Some(&"metadata") => {
            steps.next();
            Type::one(table::object_meta(minor)?)
        }
        None => return None,
    };
    for step in steps {
        at = match (at.shape, step.strip_prefix('[')) {
            (Shape::List | Shape::Map, Some(_)) => at.item(),
            (Shape::One, None) => at.known()?.field_type(step)?,
            _ => return None,
        };
    }
    Some(at)
}

/// `a.b[0][x.y]` in steps: `a`, `b`, `[0`, `[x.y`.
fn steps(path: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let end = match rest.strip_prefix('[') {
            Some(key) => {
                let end = key.find(']').unwrap_or(key.len()) + 1;
                found.push(&rest[..end]);
                rest = rest.get(end + 1..).unwrap_or("");
                continue;
            }
            None => rest.find(['.', '[']).unwrap_or(rest.len()),
        };
        if end > 0 {
            found.push(&rest[..end]);
        }
        rest = &rest[end..];
        rest = rest.strip_prefix('.').unwrap_or(rest);
    }
    found
}

/// A value whose fields have an order.
enum Shown {
    Leaf(String),
    List(Vec<Shown>),
    Fields(Vec<(String, Shown)>),
}

/// The memory of a shown field beside its text.
const SHOWN: usize = 64;

fn leaf(value: &Value) -> Shown {
    let text = measure::shown(value);
    Shown::Leaf(escape(&text))
}

/// Go writes these three as escapes, so that JSON can stand in HTML.
fn escape(json: &str) -> String {
    json.replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
}

fn plain(value: &Value) -> Shown {
    match value {
        Value::Array(items) => Shown::List(items.iter().map(plain).collect()),
        Value::Object(map) => Shown::Fields(map.iter().map(|(key, value)| (key.clone(), plain(value))).collect()),
        other => leaf(other),
    }
}

fn shown(type_: Type, value: &Value) -> Shown {
    match (type_.shape, value) {
        (Shape::List, Value::Array(items)) => Shown::List(items.iter().map(|item| shown(type_.item(), item)).collect()),
        (Shape::Map, Value::Object(map)) => Shown::Fields(
            map.iter()
                .map(|(key, value)| (key.clone(), shown(type_.item(), value)))
                .collect(),
        ),
        (Shape::One, value) => match type_.known() {
            Some(_) if type_.pointer && value.is_null() => leaf(value),
            Some(known) => {
                let mut fields = Vec::new();
                show_fields(known, value, &mut fields);
                Shown::Fields(fields)
            }
            None if value.is_null() && !type_.pointer => leaf(&type_.zero()),
            None => plain(value),
        },
        (_, other) => plain(other),
    }
}

fn show_fields(known: &'static Struct, value: &Value, into: &mut Vec<(String, Shown)>) {
    let moved = as_worked_with(known, value);
    let value = moved.as_ref().unwrap_or(value);
    for field in known.fields() {
        if let (true, Some(embedded)) = (field.name.is_empty(), field.type_.known()) {
            if embedded.is_object_meta() {
                show_fields(embedded, value.get("metadata").unwrap_or(&Value::Null), into);
            } else if !embedded.is_type_meta() {
                show_fields(embedded, value, into);
            }
            continue;
        }
        let found = lookup(value, field.name);
        let empty = match found {
            Value::Null | Value::Bool(false) => true,
            Value::String(text) => text.is_empty(),
            Value::Number(number) => number.as_i64() == Some(0),
            Value::Array(items) => items.is_empty(),
            Value::Object(map) => map.is_empty(),
            Value::Bool(true) => false,
        };
        let vanishes = field.omitted && if field.type_.pointer { found.is_null() } else { empty };
        if !vanishes {
            // A struct shows all of its fields, however little of it is there.
            budget::produce(SHOWN + 2 * field.name.len());
            into.push((field.name.to_owned(), shown(field.type_, found)));
        }
    }
}

/// The field of a value that belongs to a field of a struct: names differ in their capitals.
fn lookup<'a>(value: &'a Value, name: &str) -> &'a Value {
    let found = value
        .as_object()
        .and_then(|map| map.iter().find(|(key, _)| table::same_name(key, name)));
    found.map_or(&Value::Null, |(_, value)| value)
}

/// A value whose struct in kube-apiserver has other fields than clients write.
fn as_worked_with(known: &'static Struct, value: &Value) -> Option<Value> {
    match (known.name(), value) {
        ("PodSpec", _) if !known.has("HostNetwork") => pod_as_worked_with(value),
        ("JSONSchemaPropsOrBool", Value::Bool(allows)) => Some(json!({"allows": allows})),
        ("JSONSchemaPropsOrBool", schema) => Some(json!({"allows": true, "schema": schema})),
        ("JSONSchemaPropsOrArray", schema) if schema.is_object() => Some(json!({"schema": schema})),
        _ => None,
    }
}

/// The fields of a pod's spec that kube-apiserver keeps in the security context, at their place there.
fn pod_as_worked_with(value: &Value) -> Option<Value> {
    const MOVED: [&str; 5] = [
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "shareProcessNamespace",
        "hostUsers",
    ];
    budget::produce(measure::held(value));
    let mut spec = value.as_object()?.clone();
    let moved: Map<String, Value> = MOVED
        .iter()
        .filter_map(|name| spec.remove(*name).map(|value| ((*name).to_owned(), value)))
        .collect();
    if !moved.is_empty() || spec.contains_key("securityContext") {
        let context = spec
            .entry("securityContext")
            .or_insert_with(|| Value::Object(Map::new()));
        if let Some(context) = context.as_object_mut() {
            context.extend(moved);
        }
    }
    Some(Value::Object(spec))
}

impl Shown {
    fn write(&self, text: &mut String) {
        match self {
            Shown::Leaf(leaf) => text.push_str(leaf),
            Shown::List(items) => {
                text.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        text.push(',');
                    }
                    item.write(text);
                }
                text.push(']');
            }
            Shown::Fields(fields) => {
                text.push('{');
                for (index, (name, value)) in fields.iter().enumerate() {
                    if index > 0 {
                        text.push(',');
                    }
                    write_name(name, text);
                    text.push(':');
                    value.write(text);
                }
                text.push('}');
            }
        }
    }

    /// One field a line, one blank for each level.
    fn write_indented(&self, text: &mut String, level: usize) {
        let line = |text: &mut String, level: usize| {
            text.push('\n');
            text.extend(std::iter::repeat_n(' ', level));
        };
        match self {
            Shown::List(items) if !items.is_empty() => {
                text.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        text.push(',');
                    }
                    line(text, level + 1);
                    item.write_indented(text, level + 1);
                }
                line(text, level);
                text.push(']');
            }
            Shown::Fields(fields) if !fields.is_empty() => {
                text.push('{');
                for (index, (name, value)) in fields.iter().enumerate() {
                    if index > 0 {
                        text.push(',');
                    }
                    line(text, level + 1);
                    write_name(name, text);
                    text.push_str(": ");
                    value.write_indented(text, level + 1);
                }
                line(text, level);
                text.push('}');
            }
            other => other.write(text),
        }
    }
}

fn write_name(name: &str, text: &mut String) {
    text.push_str(&escape(&Value::from(name).to_string()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_shown_by_their_structs() {
        let check = |group: &str, kind: &str, path: &str, value: Value, want: Option<&str>| {
            assert_eq!(
                show(Minor::V36, group, kind, path, &value).as_deref(),
                want,
                "{kind} {path}"
            );
        };
        let owner = json!([{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1", "controller": true}]);
        let owners = r#"[{"apiVersion":"v1","kind":"A","name":"a","uid":"1","controller":true}]"#;
        check("", "ConfigMap", "metadata.ownerReferences", owner.clone(), Some(owners));
        check("ex.io", "Foo", "metadata.ownerReferences", owner, Some(owners));
        check(
            "storage.k8s.io",
            "StorageClass",
            "provisioner",
            Value::Null,
            Some(r#""""#),
        );
        check("", "Pod", "spec.priority", Value::Null, None);
        check(
            "certificates.k8s.io",
            "CertificateSigningRequest",
            "spec.request",
            json!(null),
            Some("null"),
        );
        check("ex.io", "Foo", "spec.list[0]", json!({"b": 1, "a": 2}), None);
        check(
            "policy",
            "PodDisruptionBudget",
            "spec",
            json!({"minAvailable": 1, "maxUnavailable": "x%"}),
            Some(r#"{"MinAvailable":1,"Selector":null,"MaxUnavailable":"x%","UnhealthyPodEvictionPolicy":null}"#),
        );
        check(
            "apps",
            "Deployment",
            "spec.selector",
            json!({"matchLabels": {"a": "<b>"}}),
            Some(r#"{"matchLabels":{"a":"\u003cb\u003e"}}"#),
        );
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"hostNetwork": true, "containers": []}});
        let text = show(Minor::V36, "batch", "Job", "spec.template", &template).expect("a template is shown");
        assert!(
            text.starts_with(r#"{"labels":{"a":"b"},"Spec":{"Volumes":null,"InitContainers":null,"Containers":[],"#)
        );
        assert!(
            text.contains(r#""SecurityContext":{"HostNetwork":true,"HostPID":false,"#),
            "{text}"
        );
    }

    #[test]
    fn a_field_of_any_value_shows_its_own() {
        let path = "spec.validation.openAPIV3Schema.properties[a].default";
        let show = |value| {
            show(
                Minor::V37,
                "apiextensions.k8s.io",
                "CustomResourceDefinition",
                path,
                &value,
            )
        };
        assert_eq!(show(serde_json::json!({"items": {"p": 1}})), None);
    }

    #[test]
    fn paths_have_steps() {
        assert_eq!(steps("a.b[0].c"), ["a", "b", "[0", "c"]);
        assert_eq!(steps("spec.limits[a/b.c].d"), ["spec", "limits", "[a/b.c", "d"]);
        assert!(steps("").is_empty());
        assert_eq!(steps("a["), ["a", "["]);
    }
}
