//! The changes that a Go program makes to a built-in object when it reads and writes it.
//!
//! A Go struct has fields that are always there and fields that vanish when they are empty (`omitempty`); the OpenAPI
//! tells only a part of it. A default of `{}`, `""`, `0` or `false` marks a plain value; lists and maps vanish when
//! empty; but whether `0` in an optional field is a value (a pointer) or nothing is known to the Go source alone. The
//! facts that are needed of it are in `data/go-types.txt`, one line a type.
//!
//! A type without a line keeps its zeros: losing a `0` that a client wrote would be worse than showing one.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

pub(crate) mod names;
pub(crate) mod table;

use super::catalog::json_schema_props;
use super::special::{Special, special};
use super::{Schema, SchemaRef, Type};
use crate::quantity::Quantity;
use crate::{base64, budget, measure, times};
use names::{Names, names};
use table::table;

static TABLE: &str = include_str!("../../data/go-types.txt");

/// The facts about a type that its schema does not tell.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// Optional scalars that are pointers: a zero is a value.
    pointers: Vec<&'static str>,
    /// Lists, times and pointers that are written as `null` when they are empty.
    nulls: Vec<&'static str>,
    /// Scalars that vanish when they are zero although the schema has a zero default.
    omitted: Vec<&'static str>,
    /// Quantities that are written as `"0"` when they are absent.
    quantities: Vec<&'static str>,
}

/// The table's line about a definition.
fn facts(name: &str) -> Option<&'static Facts> {
    static FACTS: LazyLock<BTreeMap<String, Facts>> =
        LazyLock::new(|| table(TABLE, read).expect("the table's test reads it"));
    FACTS.get(name)
}

fn read(groups: &mut dyn Iterator<Item = &'static str>) -> Result<Facts, String> {
    let mut facts = Facts::default();
    for group in groups {
        let (word, fields) = group
            .split_once(' ')
            .ok_or_else(|| format!("no field after {group:?}"))?;
        let fields = fields.split(' ');
        match word {
            "pointer" => facts.pointers.extend(fields),
            "null" => facts.nulls.extend(fields),
            "omit" => facts.omitted.extend(fields),
            "quantity" => facts.quantities.extend(fields),
            other => return Err(format!("unknown word {other:?}")),
        }
    }
    Ok(facts)
}

/// Brings a built-in object into the form that a Go program writes after it has read it.
///
/// Nulls and empty optional values go, plain values that are absent appear (`"status": {}`, `"rules": null`), times are
/// written in UTC and quantities in their canonical form. Unknown fields stay: [`prune`](crate::structural::prune) is
/// for them. The value should have passed [`type_check`](crate::structural::type_check); a value of the wrong type is
/// left alone.
///
/// ```
/// use kubewright_schema::{catalog, structural::go_normalize};
/// use serde_json::json;
///
/// let schema = catalog::for_kind("rbac.authorization.k8s.io", "v1", "Role").unwrap();
/// let mut role = json!({"metadata": {"name": "a", "creationTimestamp": null, "labels": {}}});
/// go_normalize(&mut role, &schema);
/// assert_eq!(role, json!({"metadata": {"name": "a"}, "rules": null}));
/// ```
pub fn go_normalize(value: &mut Value, schema: &SchemaRef) {
    normalize(value, schema, false);
}

/// The same for an object of a request under way: a list that is always written, and that a client wrote as `[]`, is
/// still a list and belongs to its field manager. Storing it makes null of it ([`go_normalize`]).
pub fn go_normalize_read(value: &mut Value, schema: &SchemaRef) {
    normalize(value, schema, true);
}

fn normalize(value: &mut Value, schema: &SchemaRef, keeps_lists: bool) {
    if let Some(special) = special(schema) {
        return special_form(value, special, keeps_lists);
    }
    match value {
        Value::Object(map) if !schema.properties.is_empty() => structure(map, schema, keeps_lists),
        Value::Object(map) => {
            if let Some(values) = &schema.additional_properties {
                map.values_mut().for_each(|value| element(value, values, keeps_lists));
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                list.iter_mut().for_each(|item| element(item, items, keeps_lists));
            }
        }
        Value::String(text) if schema.format.as_deref() == Some("byte") => canonical_bytes(text),
        _ => {}
    }
}

/// Bytes in base64, which a reader takes in more ways than they are written.
pub(crate) fn canonical_bytes(text: &mut String) {
    if let Cow::Owned(written) = base64::canonical(text) {
        *text = written;
    }
}

/// A value in a list or a map: null is the zero of its type.
fn element(value: &mut Value, schema: &SchemaRef, keeps_lists: bool) {
    if value.is_null() && matches!(special(schema), Some(Special::Quantity)) {
        *value = json!("0");
    } else if value.is_null() && special(schema).is_none() {
        *value = match schema.type_ {
            Some(Type::Object) if !schema.properties.is_empty() => json!({}),
            Some(Type::String) => json!(""),
            Some(Type::Integer | Type::Number) => json!(0),
            Some(Type::Boolean) => json!(false),
            _ => Value::Null,
        };
    }
    normalize(value, schema, keeps_lists);
}

fn special_form(value: &mut Value, special: Special, keeps_lists: bool) {
    match (special, &mut *value) {
        (Special::Time | Special::MicroTime, Value::String(text)) => {
            if let Some(written) = times::canonical(text, matches!(special, Special::MicroTime)) {
                *value = written;
            }
        }
        (Special::Quantity, Value::String(text)) => {
            if let Ok(quantity) = text.trim().parse::<Quantity>() {
                *text = quantity.to_string();
            }
        }
        (Special::Quantity, Value::Number(number)) => {
            if let Ok(quantity) = number.to_string().parse::<Quantity>() {
                *value = json!(quantity.to_string());
            }
        }
        (Special::SchemaOr(_), Value::Object(_)) => normalize(value, &json_schema_props(), keeps_lists),
        (Special::SchemaOr(_), Value::Array(list)) => list
            .iter_mut()
            .for_each(|item| special_form(item, special, keeps_lists)),
        _ => {}
    }
}

/// The fields of a struct in Go: needed for every object, so it is worked out once a type.
#[derive(Debug)]
pub(crate) struct GoStruct {
    /// The table's facts about the type.
    facts: Option<&'static Facts>,
    /// Go's names of the fields.
    names: Option<&'static Names>,
    /// The values that are written for absent fields.
    zeros: BTreeMap<String, Zero>,
}

#[derive(Debug)]
struct Zero {
    /// As the struct holds it: `{}` for a plain struct.
    held: Value,
    /// As it is written, with the zeros of its parts.
    written: Value,
    /// Its size in the map that it is put into.
    bytes: usize,
}

impl GoStruct {
    pub(crate) fn of(schema: &Schema) -> GoStruct {
        let facts = schema.name.and_then(facts);
        let zeros = schema.properties.iter().filter_map(|(key, property)| {
            let held = plain_zero(property, key, schema, facts)?;
            let mut written = held.clone();
            // No client wrote a list into it, so it does not matter whether written ones are kept.
            normalize(&mut written, property, false);
            let bytes = measure::text_held(key.len()) + measure::held(&written);
            Some((key.clone(), Zero { held, written, bytes }))
        });
        let zeros = zeros.collect();
        let names = schema.name.and_then(names);
        GoStruct { facts, names, zeros }
    }

    /// The Go type of a field, where the schema does not tell it.
    pub(crate) fn type_of(&self, field: &str) -> Option<&'static str> {
        self.names?.type_of(field)
    }

    /// The embedded struct that a field is in.
    pub(crate) fn embedding(&self, field: &str) -> Option<&'static str> {
        self.names?.embedding(field)
    }
}

fn structure(map: &mut Map<String, Value>, schema: &Schema, keeps_lists: bool) {
    let go = schema.go();
    let mut gone: Vec<String> = Vec::new();
    for (key, value) in map.iter_mut() {
        let Some(property) = schema.properties.get(key) else {
            continue;
        };
        if !value.is_null() {
            normalize(value, property, keeps_lists);
        }
        let kept = keeps_lists
            && value.as_array().is_some_and(Vec::is_empty)
            && go.zeros.get(key).is_some_and(|zero| zero.held.is_null());
        if !kept && vanishes(value, property, key, go.facts) {
            gone.push(key.clone());
        }
    }
    for key in &gone {
        map.remove(key);
    }
    for (key, zero) in &go.zeros {
        if !map.contains_key(key) {
            // An empty struct costs two bytes on the wire.
            let node = if map.is_empty() { measure::map_held(1) } else { 0 };
            budget::produce(node + zero.bytes);
            map.insert(key.clone(), zero.written.clone());
        }
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// Whether a field with this value is left out when Go writes it, or written in another form that is put in later.
fn vanishes(value: &Value, property: &SchemaRef, key: &str, known: Option<&Facts>) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty() && special(property).is_none(),
        Value::Object(map) => map.is_empty() && property.additional_properties.is_some(),
        // Bytes are a list to Go.
        Value::String(text) if property.format.as_deref() == Some("byte") => text.is_empty(),
        scalar if is_zero(scalar) && special(property).is_none() => known.is_some_and(|facts| {
            facts.omitted.contains(&key) || (property.default.is_none() && !facts.pointers.contains(&key))
        }),
        _ => false,
    }
}

/// The value that Go writes for an absent field; none when it writes none.
fn plain_zero(property: &SchemaRef, key: &str, schema: &Schema, known: Option<&Facts>) -> Option<Value> {
    if known.is_some_and(|facts| facts.nulls.contains(&key)) {
        return Some(Value::Null);
    }
    if known.is_some_and(|facts| facts.quantities.contains(&key)) {
        return Some(json!("0"));
    }
    let required = schema.required.iter().any(|name| name == key);
    // Absent fields are many and mostly of unused types: these are not resolved just to find no default.
    match property.own_default() {
        Some(Value::Object(map)) if map.is_empty() => Some(json!({})),
        // An optional scalar with a zero default may be either: only a type that is in the table is sure.
        Some(zero) if is_zero(zero) => {
            let plain = required || known.is_some_and(|facts| !facts.omitted.contains(&key));
            (plain && known.is_none_or(|facts| !facts.pointers.contains(&key))).then(|| zero.clone())
        }
        _ if known.is_some_and(|facts| facts.omitted.contains(&key)) => None,
        _ if required && property.type_ == Some(Type::Array) => Some(Value::Null),
        _ => None,
    }
}

/// The value that a Go program sees in the field `key` of a struct when no client ever wrote it: `{}` for a plain
/// struct, null for a list that is always written, none where the field itself is absent.
pub(crate) fn absent_form<'a>(schema: &'a Schema, key: &str) -> Option<&'a Value> {
    schema.go().zeros.get(key).map(|zero| &zero.held)
}

#[cfg(test)]
mod tests {
    use super::table::check_names;
    use super::*;

    #[test]
    fn the_table_names_what_exists() {
        let table = table(TABLE, read).expect("well-formed");
        check_names(&table, |facts| {
            let fields = [&facts.pointers, &facts.nulls, &facts.omitted, &facts.quantities];
            fields.into_iter().flatten().copied().collect()
        });
    }

    /// The generated table of messages knows the pointers, too: a field of a new version that is missing here would lose
    /// its zero.
    #[test]
    fn pointers_are_those_of_the_messages() {
        const SCALARS: [&str; 8] = [
            "*string", "*int32", "*int64", "*bool", "*bytes", "*double", "*uint32", "*uint64",
        ];
        fn fields(messages: &BTreeMap<String, &'static str>, name: &str) -> Vec<&'static str> {
            let (package, _) = name.rsplit_once('.').expect("a full name");
            let of = |field: &'static str| -> Vec<&'static str> {
                let [_, name, kind] = field.splitn(3, ':').collect::<Vec<_>>()[..] else {
                    panic!("no field: {field}");
                };
                match name {
                    "" if kind.contains('.') => fields(messages, kind),
                    "" => fields(messages, &format!("{package}.{kind}")),
                    _ if SCALARS.contains(&kind) => vec![name],
                    _ => vec![],
                }
            };
            let found = messages
                .get(name)
                .into_iter()
                .flat_map(|line| line.split_terminator(' '));
            found.flat_map(of).collect()
        }
        let (mut messages, mut package) = (BTreeMap::new(), "");
        for line in include_str!("../../data/kubernetes.protobuf").lines() {
            match line.split_once(' ') {
                Some((head, _)) if head.starts_with('[') => package = &head[1..],
                Some((name, fields)) if name != "#" => drop(messages.insert(format!("{package}.{name}"), fields)),
                _ => {}
            }
        }
        for (name, facts) in table(TABLE, read).expect("well-formed") {
            let (mut ours, mut theirs) = (facts.pointers, fields(&messages, &name));
            ours.sort_unstable();
            theirs.sort_unstable();
            assert_eq!(ours, theirs, "{name}");
        }
    }

    fn check((group, kind): (&str, &str), value: Value, expected: &Value) {
        let schema = crate::schema::catalog::for_kind(group, "v1", kind).expect("built in");
        let mut normal = value.clone();
        go_normalize(&mut normal, &schema);
        assert_eq!(&normal, expected, "{value}");
        go_normalize(&mut normal, &schema);
        assert_eq!(&normal, expected, "not idempotent: {value}");
    }

    /// As recorded from kube-apiserver 1.36, before the defaults that its strategies add.
    #[test]
    fn go_writes() {
        let meta = json!({});
        check(
            ("", "ConfigMap"),
            json!({"metadata": {"labels": {}, "creationTimestamp": null}, "data": {"n": ""}, "immutable": false}),
            &json!({"metadata": meta, "data": {"n": ""}, "immutable": false}),
        );
        check(
            ("", "ConfigMap"),
            json!({"data": {}, "binaryData": {"a": ""}}),
            &json!({"metadata": meta, "binaryData": {"a": ""}}),
        );
        // Reading skips line ends, and writing makes none.
        check(
            ("", "Secret"),
            json!({"data": {"a": "YW\nFh\r\n"}}),
            &json!({"metadata": meta, "data": {"a": "YWFh"}}),
        );
        check(
            ("rbac.authorization.k8s.io", "ClusterRole"),
            json!({"rules": []}),
            &json!({"metadata": meta, "rules": null}),
        );
        check(
            ("", "Namespace"),
            json!({}),
            &json!({"metadata": meta, "spec": {}, "status": {}}),
        );
        check(
            ("", "Service"),
            json!({"spec": {"ports": [{"port": 1, "nodePort": 0}], "publishNotReadyAddresses": false}}),
            &json!({"metadata": meta, "spec": {"ports": [{"port": 1}]}, "status": {"loadBalancer": {}}}),
        );
        check(
            ("apps", "Deployment"),
            json!({"spec": {"replicas": 0, "paused": false, "minReadySeconds": 0, "template": {"spec": {
                "hostNetwork": false, "terminationGracePeriodSeconds": 0, "imagePullSecrets": [{"name": ""}], "nodeSelector": {},
                "containers": [{"name": "c", "env": [{"name": "a", "value": ""}], "args": [], "tty": false,
                    "resources": {"limits": {"cpu": "1000m", "memory": 1024}}, "securityContext": {"privileged": false}}]}}}}),
            &json!({"metadata": meta, "status": {}, "spec": {"replicas": 0, "selector": null, "strategy": {}, "template": {
                "metadata": {}, "spec": {"terminationGracePeriodSeconds": 0, "imagePullSecrets": [{}],
                "containers": [{"name": "c", "env": [{"name": "a"}], "resources": {"limits": {"cpu": "1", "memory": "1024"}},
                    "securityContext": {"privileged": false}}]}}}}),
        );
        check(
            ("", "Event"),
            json!({"lastTimestamp": "2026-01-02T05:04:05.5+02:00", "count": 0}),
            &json!({"metadata": meta, "involvedObject": {}, "source": {}, "firstTimestamp": null, "eventTime": null,
                "lastTimestamp": "2026-01-02T03:04:05Z", "reportingComponent": "", "reportingInstance": ""}),
        );
        // Go drops decimals beyond nanoseconds, and reads times to the end of 9999, later than jiff's `Timestamp` ends.
        check(
            ("", "Event"),
            json!({"firstTimestamp": "2026-01-02T03:04:05,12345678901Z", "lastTimestamp": "9999-12-31T23:59:59.5Z"}),
            &json!({"metadata": meta, "involvedObject": {}, "source": {}, "firstTimestamp": "2026-01-02T03:04:05Z",
                "eventTime": null, "lastTimestamp": "9999-12-31T23:59:59Z", "reportingComponent": "",
                "reportingInstance": ""}),
        );
        check(
            ("", "Event"),
            json!({"firstTimestamp": "0001-01-01T01:00:00+01:00"}),
            &json!({"metadata": meta, "involvedObject": {}, "source": {}, "firstTimestamp": null, "eventTime": null,
                "lastTimestamp": null, "reportingComponent": "", "reportingInstance": ""}),
        );
        check(
            ("coordination.k8s.io", "Lease"),
            json!({"spec": {"renewTime": "2026-01-02T03:04:05.000001Z", "leaseTransitions": 0}}),
            &json!({"metadata": meta, "spec": {"renewTime": "2026-01-02T03:04:05.000001Z", "leaseTransitions": 0}}),
        );
        let field = |value: Value| json!({"valueFrom": {"resourceFieldRef": value}, "name": "a"});
        let pod = |env: Value| json!({"spec": {"containers": [{"name": "c", "env": [env]}]}});
        let mut expected = pod(field(json!({"resource": "limits.cpu", "divisor": "0"})));
        expected["metadata"] = meta.clone();
        expected["status"] = json!({});
        expected["spec"]["containers"][0]["resources"] = json!({});
        check(("", "Pod"), pod(field(json!({"resource": "limits.cpu"}))), &expected);
        let crd = |schema: Value| {
            json!({"metadata": {}, "spec": {"group": "g", "scope": "s", "names": {"kind": "", "plural": ""}, "versions": [
                {"name": "v1", "served": true, "storage": false, "schema": {"openAPIV3Schema": schema}}]},
                "status": {"acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": null}})
        };
        let mut status = crd(
            json!({"type": "object", "properties": {"a": {"minimum": 0, "items": {"type": "string"}, "enum": [null, 1]}}}),
        );
        check(
            ("apiextensions.k8s.io", "CustomResourceDefinition"),
            json!({"spec": {"group": "g", "scope": "s", "versions": [{"name": "v1", "served": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"a": {"minimum": 0, "nullable": false, "default": null, "required": [],
                "items": {"type": "string", "uniqueItems": false}, "enum": [null, 1]}}}}}]}}),
            {
                // Conditions and versions are lists without omitempty.
                status["status"]["conditions"] = Value::Null;
                &status
            },
        );
    }
}
