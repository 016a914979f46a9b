//! `autoscaling/v1` of a HorizontalPodAutoscaler, and the way between it and the stored `autoscaling/v2`.
//!
//! v1 has fields for the CPU alone. The other metrics, the behavior and the conditions it carries in annotations, whose
//! texts are Go's structs of the time: a table has the names of their fields there ([`PARTS`]), and a list their order
//! in Go ([`ORDER`]).
//!
//! Invariants: a field that a client of v1 does not touch comes back as it was; an annotation that cannot be read, or
//! says nothing, is dropped when the object is read, so that no field manager owns it.

use kubewright_schema::quantity::Quantity;
use kubewright_schema::{decode, go};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

use super::super::check::{Object, absent, child, ensure, fill, get};
use super::{cpu, default_v2};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";

/// A field of a part of a metric.
struct Field {
    /// The field's name in v1.
    v1: &'static str,
    /// Where it is in v2.
    v2: &'static str,
    kind: Kind,
}

/// The type of a field's value.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Text,
    Object,
    Integer,
    Quantity,
    /// A quantity that v1 always writes, `0` when there is none.
    AnyQuantity,
    /// The same, of which a zero beside an average is none in v2.
    LoneQuantity,
}

const fn field(v1: &'static str, v2: &'static str, kind: Kind) -> Field {
    Field { v1, v2, kind }
}

/// The parts of a metric: their names, their fields as a spec has them, and as a status has them.
const PARTS: [(&str, &[Field], &[Field]); 5] = [
    (
        "object",
        &[
            field("target", "/describedObject", Kind::Object),
            field("metricName", "/metric/name", Kind::Text),
            field("targetValue", "/target/value", Kind::LoneQuantity),
            field("selector", "/metric/selector", Kind::Object),
            field("averageValue", "/target/averageValue", Kind::Quantity),
        ],
        &[
            field("target", "/describedObject", Kind::Object),
            field("metricName", "/metric/name", Kind::Text),
            field("currentValue", "/current/value", Kind::LoneQuantity),
            field("selector", "/metric/selector", Kind::Object),
            field("averageValue", "/current/averageValue", Kind::Quantity),
        ],
    ),
    (
        "pods",
        &[
            field("metricName", "/metric/name", Kind::Text),
            field("targetAverageValue", "/target/averageValue", Kind::AnyQuantity),
            field("selector", "/metric/selector", Kind::Object),
        ],
        &[
            field("metricName", "/metric/name", Kind::Text),
            field("currentAverageValue", "/current/averageValue", Kind::AnyQuantity),
            field("selector", "/metric/selector", Kind::Object),
        ],
    ),
    ("resource", OF_RESOURCE, IS_OF_RESOURCE),
    ("containerResource", OF_RESOURCE, IS_OF_RESOURCE),
    (
        "external",
        &[
            field("metricName", "/metric/name", Kind::Text),
            field("metricSelector", "/metric/selector", Kind::Object),
            field("targetValue", "/target/value", Kind::Quantity),
            field("targetAverageValue", "/target/averageValue", Kind::Quantity),
        ],
        &[
            field("metricName", "/metric/name", Kind::Text),
            field("metricSelector", "/metric/selector", Kind::Object),
            field("currentValue", "/current/value", Kind::LoneQuantity),
            field("currentAverageValue", "/current/averageValue", Kind::Quantity),
        ],
    ),
];

const OF_RESOURCE: &[Field] = &[
    field("name", "/name", Kind::Text),
    field("container", "/container", Kind::Text),
    field("targetAverageUtilization", "/target/averageUtilization", Kind::Integer),
    field("targetAverageValue", "/target/averageValue", Kind::Quantity),
];

const IS_OF_RESOURCE: &[Field] = &[
    field("name", "/name", Kind::Text),
    field("container", "/container", Kind::Text),
    field(
        "currentAverageUtilization",
        "/current/averageUtilization",
        Kind::Integer,
    ),
    field("currentAverageValue", "/current/averageValue", Kind::AnyQuantity),
];

/// The keys in the order in which Go writes them, of all structs in one.
const ORDER: [&str; 39] = [
    "type",
    "status",
    "lastTransitionTime",
    "reason",
    "message",
    "object",
    "pods",
    "resource",
    "containerResource",
    "external",
    "kind",
    "target",
    "metricName",
    "metricSelector",
    "name",
    "apiVersion",
    "targetValue",
    "targetAverageUtilization",
    "targetAverageValue",
    "currentValue",
    "currentAverageUtilization",
    "currentAverageValue",
    "selector",
    "averageValue",
    "container",
    "matchLabels",
    "matchExpressions",
    "key",
    "operator",
    "values",
    "ScaleUp",
    "ScaleDown",
    "StabilizationWindowSeconds",
    "SelectPolicy",
    "Policies",
    "Type",
    "Value",
    "PeriodSeconds",
    "Tolerance",
];

/// The JSON of a value as Go writes it.
fn text(value: &Value) -> String {
    let mut out = String::new();
    write(value, true, &mut out);
    out
}

/// `is_struct`: the keys are Go's fields, and not those of a map.
fn write(value: &Value, is_struct: bool, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut fields: Vec<(&String, &Value)> = map.iter().collect();
            if is_struct {
                let place = |key: &str| ORDER.iter().position(|known| *known == key).unwrap_or(ORDER.len());
                fields.sort_by_key(|(key, _)| place(key));
            }
            out.push('{');
            for (index, (key, value)) in fields.into_iter().enumerate() {
                let comma = if index == 0 { "" } else { "," };
                let _ = write!(out, "{comma}{}:", go::html_safe(&json!(key).to_string()));
                write(value, key != "matchLabels", out);
            }
            out.push('}');
        }
        Value::Array(list) => {
            out.push('[');
            for (index, item) in list.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { "," });
                write(item, is_struct, out);
            }
            out.push(']');
        }
        scalar => out.push_str(&go::html_safe(&scalar.to_string())),
    }
}

/// A metric, or the status of one, as v1 has it.
fn metric_to_v1(metric: &Value, of_status: bool) -> Value {
    let mut out = json!({"type": get(metric, &["type"])});
    for (part, spec, status) in PARTS {
        let Some(source) = metric.get(part).filter(|source| source.is_object()) else {
            continue;
        };
        let mut made = Map::new();
        for field in if of_status { status } else { spec } {
            match source.pointer(field.v2).filter(|value| !value.is_null()) {
                Some(value) => made.insert(field.v1.to_owned(), value.clone()),
                None if matches!(field.kind, Kind::AnyQuantity | Kind::LoneQuantity) => {
                    made.insert(field.v1.to_owned(), json!("0"))
                }
                None => None,
            };
        }
        out[part] = made.into();
    }
    out
}

/// The same backwards; nothing when Go could not read it.
fn metric_from_v1(metric: &Value, of_status: bool) -> Option<Value> {
    let metric = match metric {
        Value::Null => return Some(json!({"type": ""})),
        metric => metric.as_object()?,
    };
    let mut out = json!({"type": read(metric.get("type"), Kind::Text)?.unwrap_or_else(|| json!(""))});
    for (part, spec, status) in PARTS {
        let source = match metric.get(part) {
            None | Some(Value::Null) => continue,
            Some(source) => source.as_object()?,
        };
        let place = if of_status { "current" } else { "target" };
        let mut made = json!({ place: {} });
        for field in if of_status { status } else { spec } {
            let value = read(source.get(field.v1), field.kind)?;
            let value = match (value, field.kind) {
                (None, Kind::AnyQuantity) => Some(json!("0")),
                (Some(zero), Kind::LoneQuantity)
                    if zero == "0" && source.keys().any(|key| key.ends_with("verageValue")) =>
                {
                    None
                }
                (value, _) => value,
            };
            if let Some(value) = value {
                let mut at = &mut made;
                for key in field.v2.split('/').skip(1) {
                    at = &mut at[key];
                }
                *at = value;
            }
        }
        if !of_status {
            made["target"]["type"] = target_type(part, &made["target"]).into();
        }
        out[part] = made;
    }
    Some(out)
}

/// The `type` of a metric's target, which v1 does not have: the target's fields decide it.
fn target_type(part: &str, target: &Value) -> &'static str {
    let has = |field: &str| target.get(field).is_some();
    match part {
        "object" if !has("averageValue") => "Value",
        "external" if has("value") => "Value",
        "resource" | "containerResource" if has("averageUtilization") => "Utilization",
        _ => "AverageValue",
    }
}

/// A value as Go reads it: nothing in it when it is absent, none at all when it is of another type.
fn read(value: Option<&Value>, kind: Kind) -> Option<Option<Value>> {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Some(None);
    };
    let read = match kind {
        Kind::Text => value.is_string().then(|| value.clone()),
        Kind::Object => value.is_object().then(|| value.clone()),
        Kind::Integer => value
            .as_i64()
            .filter(|number| i32::try_from(*number).is_ok())
            .map(Value::from),
        Kind::Quantity | Kind::AnyQuantity | Kind::LoneQuantity => {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => return None,
            };
            text.parse::<Quantity>()
                .ok()
                .map(|quantity| json!(quantity.to_string()))
        }
    };
    read.map(Some)
}

/// Rules in the annotation have the names of Go's fields.
fn rules_to_v1(rules: &Value) -> Value {
    if !rules.is_object() {
        return Value::Null;
    }
    let field = |name: &str| get(rules, &[name]).clone();
    let policy = |policy: &Value| json!({"Type": get(policy, &["type"]), "Value": get(policy, &["value"]), "PeriodSeconds": get(policy, &["periodSeconds"])});
    let policies = rules.get("policies").and_then(Value::as_array);
    json!({
        "StabilizationWindowSeconds": field("stabilizationWindowSeconds"),
        "SelectPolicy": field("selectPolicy"),
        "Policies": policies.map(|policies| policies.iter().map(policy).collect::<Vec<Value>>()),
        "Tolerance": field("tolerance"),
    })
}

/// The value of a key, however its letters are written: Go does not mind.
fn loose<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let named = |(known, _): &(&String, &Value)| known.eq_ignore_ascii_case(key);
    let found = map.get(key).or_else(|| map.iter().find(named).map(|(_, value)| value));
    found.filter(|value| !value.is_null())
}

/// The fields of a struct that has no names of its own in JSON, by those of v2; none when one is of another type.
fn struct_from_v1(value: &Value, fields: &[(&str, Kind)]) -> Option<Map<String, Value>> {
    let value = value.as_object()?;
    let mut out = Map::new();
    for (name, kind) in fields {
        if let Some(value) = read(loose(value, name), *kind)? {
            out.insert((*name).to_owned(), value);
        }
    }
    Some(out)
}

/// The behavior in the annotation; none when Go could not read it, or when it says nothing.
fn behavior_from_v1(behavior: &Value) -> Option<Value> {
    let behavior = behavior.as_object()?;
    let mut out = Map::new();
    for name in ["scaleUp", "scaleDown"] {
        let Some(rules) = loose(behavior, name) else { continue };
        let fields = [
            ("stabilizationWindowSeconds", Kind::Integer),
            ("selectPolicy", Kind::Text),
            ("tolerance", Kind::Quantity),
        ];
        let mut made = struct_from_v1(rules, &fields)?;
        if let Some(policies) = loose(rules.as_object()?, "policies") {
            let fields = [
                ("type", Kind::Text),
                ("value", Kind::Integer),
                ("periodSeconds", Kind::Integer),
            ];
            let policy = |policy: &Value| {
                let mut policy = struct_from_v1(policy, &fields)?;
                fill(&mut policy, "type", "");
                fill(&mut policy, "value", 0);
                fill(&mut policy, "periodSeconds", 0);
                Some(Value::Object(policy))
            };
            let policies: Option<Vec<Value>> = policies.as_array()?.iter().map(policy).collect();
            made.insert("policies".to_owned(), policies?.into());
        }
        out.insert(name.to_owned(), made.into());
    }
    (!out.is_empty()).then(|| out.into())
}

fn conditions_to_v1(conditions: &Value) -> Value {
    let one = |condition: &Value| {
        let mut out = json!({"type": "", "status": "", "lastTransitionTime": null});
        for name in ["type", "status", "lastTransitionTime", "reason", "message"] {
            if let Some(value) = condition.get(name).filter(|value| !value.is_null() && *value != "") {
                out[name] = value.clone();
            }
        }
        out
    };
    conditions.as_array().into_iter().flatten().map(one).collect()
}

fn conditions_from_v1(conditions: &Value) -> Option<Value> {
    let one = |condition: &Value| {
        let fields = ["type", "status", "lastTransitionTime", "reason", "message"].map(|name| (name, Kind::Text));
        let mut condition = struct_from_v1(condition, &fields)?;
        fill(&mut condition, "type", "");
        fill(&mut condition, "status", "");
        condition.entry("lastTransitionTime").or_insert(Value::Null);
        Some(Value::Object(condition))
    };
    let all: Option<Vec<Value>> = conditions.as_array()?.iter().map(one).collect();
    all.map(Value::from)
}

/// The utilization of the CPU that a metric asks for or a status tells, at `place`.
fn cpu_utilization<'a>(metric: &'a Value, place: &str) -> Option<&'a Value> {
    let is_cpu = get(metric, &["type"]) == "Resource" && get(metric, &["resource", "name"]) == "cpu";
    let utilization = get(metric, &["resource", place, "averageUtilization"]);
    (is_cpu && !utilization.is_null()).then_some(utilization)
}

fn list<'a>(map: &'a Object, name: &str) -> &'a [Value] {
    map.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Fills in the defaults of v1, after the annotations were read.
pub(super) fn default(object: &mut Value) {
    let read = to_bare_v2(object.clone());
    let metrics = get(&read, &["spec", "metrics"]).as_array().into_iter().flatten();
    // Two for the CPU, one of them in the annotation, cannot be reported in v1.
    if metrics
        .filter(|metric| cpu_utilization(metric, "target").is_some())
        .count()
        < 2
    {
        *object = from_whole_v2(read);
    }
    let measured = !get(object, &["metadata", "annotations", METRICS]).is_null();
    let Some(object) = object.as_object_mut() else { return };
    if let Some(status) = ensure(object, "status") {
        fill(status, "currentReplicas", 0);
        fill(status, "desiredReplicas", 0);
    }
    let Some(spec) = ensure(object, "spec") else { return };
    fill(spec, "minReplicas", 1);
    if !measured {
        fill(spec, "targetCPUUtilizationPercentage", 80);
    }
}

/// Makes the status that of another object, or none: it is in the annotations as well.
pub(super) fn keep_status(object: &mut Value, old: &Value) {
    super::super::check::keep(object, old, "status");
    for name in [CONDITIONS, CURRENT_METRICS] {
        let before = get(old, &["metadata", "annotations", name]).clone();
        let metadata = kubewright_model::object::metadata_mut(object);
        if before.is_null() {
            take_annotation(metadata, name);
        } else if let Some(annotations) = ensure(metadata, "annotations") {
            annotations.insert(name.to_owned(), before);
        }
    }
}

fn take_annotation(metadata: &mut Object, name: &str) -> Option<Value> {
    let annotations = child(metadata, "annotations")?;
    let text = annotations.remove(name);
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    text
}

pub(super) fn from_v2(mut object: Value) -> Value {
    default_v2(&mut object);
    from_whole_v2(object)
}

/// The same without the defaults of v2.
pub(super) fn from_whole_v2(mut object: Value) -> Value {
    let mut notes: Vec<(&str, Value)> = Vec::new();
    if let Some(map) = object.as_object_mut() {
        map.insert("apiVersion".to_owned(), "autoscaling/v1".into());
        if let Some(spec) = child(map, "spec") {
            spec_from_v2(spec, &mut notes);
        }
        if let Some(status) = child(map, "status") {
            status_from_v2(status, &mut notes);
        }
    }
    if !notes.is_empty() {
        let metadata = kubewright_model::object::metadata_mut(&mut object);
        if let Some(annotations) = ensure(metadata, "annotations") {
            for (name, value) in notes {
                annotations.insert(name.to_owned(), text(&value).into());
            }
        }
    }
    object
}

fn spec_from_v2(spec: &mut Object, notes: &mut Vec<(&str, Value)>) {
    let metrics = spec.remove("metrics").unwrap_or_default();
    let metrics = metrics.as_array().map_or(&[][..], Vec::as_slice);
    if let Some(utilization) = metrics.iter().find_map(|metric| cpu_utilization(metric, "target")) {
        spec.insert("targetCPUUtilizationPercentage".to_owned(), utilization.clone());
    }
    let others = metrics
        .iter()
        .filter(|metric| cpu_utilization(metric, "target").is_none());
    let others: Vec<Value> = others.map(|metric| metric_to_v1(metric, false)).collect();
    if !others.is_empty() {
        notes.push((METRICS, others.into()));
    }
    if let Some(behavior) = spec.remove("behavior") {
        let rules = |name: &str| rules_to_v1(get(&behavior, &[name]));
        notes.push((
            BEHAVIOR,
            json!({"ScaleUp": rules("scaleUp"), "ScaleDown": rules("scaleDown")}),
        ));
    }
}

fn status_from_v2(status: &mut Object, notes: &mut Vec<(&str, Value)>) {
    let conditions = status.remove("conditions").unwrap_or_default();
    if conditions.as_array().is_some_and(|conditions| !conditions.is_empty()) {
        notes.push((CONDITIONS, conditions_to_v1(&conditions)));
    }
    let current = list(status, "currentMetrics");
    let utilization = current
        .iter()
        .filter_map(|metric| cpu_utilization(metric, "current"))
        .next_back();
    let utilization = utilization.cloned();
    if !current.is_empty() {
        let current = current.iter().map(|metric| metric_to_v1(metric, true));
        notes.push((CURRENT_METRICS, current.collect::<Vec<Value>>().into()));
    }
    status.remove("currentMetrics");
    if let Some(utilization) = utilization {
        status.insert("currentCPUUtilizationPercentage".to_owned(), utilization);
    }
    fill(status, "currentReplicas", 0);
}

pub(super) fn to_v2(object: Value) -> Value {
    let mut object = to_bare_v2(object);
    default_v2(&mut object);
    object
}

/// The same without the defaults of v2.
pub(super) fn to_bare_v2(mut object: Value) -> Value {
    let mut note = |name: &str| -> Option<Value> {
        let text = take_annotation(kubewright_model::object::metadata_mut(&mut object), name)?;
        Some(decode::json(text.as_str()?.as_bytes()).ok()?.value)
    };
    let metrics = |note: Option<Value>, of_status: bool| -> Option<Vec<Value>> {
        let all = note?
            .as_array()?
            .iter()
            .map(|metric| metric_from_v1(metric, of_status))
            .collect::<Option<Vec<_>>>();
        all.filter(|all| !all.is_empty())
    };
    let spec_metrics = metrics(note(METRICS), false);
    let current = metrics(note(CURRENT_METRICS), true);
    let behavior = note(BEHAVIOR).and_then(|behavior| behavior_from_v1(&behavior));
    let conditions = note(CONDITIONS).and_then(|conditions| conditions_from_v1(&conditions));
    let Some(map) = object.as_object_mut() else {
        return object;
    };
    map.insert("apiVersion".to_owned(), "autoscaling/v2".into());
    if let Some(spec) = child(map, "spec") {
        let mut all = spec_metrics.unwrap_or_default();
        all.extend(spec.remove("targetCPUUtilizationPercentage").map(cpu));
        if !all.is_empty() {
            spec.insert("metrics".to_owned(), Value::Array(all));
        }
        if let Some(behavior) = behavior {
            spec.insert("behavior".to_owned(), behavior);
        }
    }
    // The annotations may be all that there is of a status.
    let has_status = map.get("status").is_some() || current.is_some() || conditions.is_some();
    if let (true, Some(status)) = (has_status, ensure(map, "status")) {
        status_to_v2(status, conditions, current);
    }
    object
}

fn status_to_v2(status: &mut Object, conditions: Option<Value>, current: Option<Vec<Value>>) {
    if let Some(conditions) = conditions.filter(|conditions| conditions.as_array().is_some_and(|all| !all.is_empty())) {
        status.insert("conditions".to_owned(), conditions);
    }
    let utilization = status.remove("currentCPUUtilizationPercentage");
    let cpu = utilization.map(|utilization| {
        vec![json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": utilization}}})]
    });
    if let Some(current) = current.or(cpu) {
        status.insert("currentMetrics".to_owned(), current.into());
    }
    if status.get("currentReplicas").is_some_and(|count| count == 0) {
        status.remove("currentReplicas");
    }
    if absent(status, "conditions") {
        status.remove("conditions");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text that kube-apiserver 1.36 writes into the annotation for a metric, or for its status.
    #[test]
    fn metrics_in_annotations() {
        let check = |metric: Value, of_status: bool, expected: &str| {
            let written = metric_to_v1(&metric, of_status);
            assert_eq!(text(&written), expected);
            assert_eq!(metric_from_v1(&written, of_status), Some(metric), "{expected}");
        };
        let named = |name: &str| json!({"name": name});
        let ingress = json!({"kind": "Ingress", "name": "i", "apiVersion": "networking.k8s.io/v1"});
        let value = json!({"type": "Value", "value": "2k"});
        let average = json!({"type": "AverageValue", "averageValue": "1k"});
        check(
            json!({"type": "Object", "object": {"describedObject": ingress, "metric": named("rps"), "target": value}}),
            false,
            r#"{"type":"Object","object":{"target":{"kind":"Ingress","name":"i","apiVersion":"networking.k8s.io/v1"},"metricName":"rps","targetValue":"2k"}}"#,
        );
        check(
            json!({"type": "Object", "object": {"describedObject": ingress, "metric": named("a<b"), "target": average}}),
            false,
            r#"{"type":"Object","object":{"target":{"kind":"Ingress","name":"i","apiVersion":"networking.k8s.io/v1"},"metricName":"a\u003cb","targetValue":"0","averageValue":"1k"}}"#,
        );
        check(
            json!({"type": "Pods", "pods": {"metric": {"name": "pps", "selector": {"matchLabels": {"type": "x", "name": "y"}}}, "target": average}}),
            false,
            r#"{"type":"Pods","pods":{"metricName":"pps","targetAverageValue":"1k","selector":{"matchLabels":{"name":"y","type":"x"}}}}"#,
        );
        check(
            json!({"type": "External", "external": {"metric": {"name": "q", "selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}, "target": average}}),
            false,
            r#"{"type":"External","external":{"metricName":"q","metricSelector":{"matchExpressions":[{"key":"a","operator":"Exists"}]},"targetAverageValue":"1k"}}"#,
        );
        check(
            json!({"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c", "target": {"type": "Utilization", "averageUtilization": 70}}}),
            false,
            r#"{"type":"ContainerResource","containerResource":{"name":"cpu","targetAverageUtilization":70,"container":"c"}}"#,
        );
        check(
            json!({"type": "External", "external": {"metric": named("q"), "current": {"averageValue": "9"}}}),
            true,
            r#"{"type":"External","external":{"metricName":"q","currentValue":"0","currentAverageValue":"9"}}"#,
        );
        check(
            json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 10, "averageValue": "100m"}}}),
            true,
            r#"{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":10,"currentAverageValue":"100m"}}"#,
        );
    }

    /// Annotations that say nothing are gone when the object is read, and the CPU gets its default.
    #[test]
    fn what_an_annotation_says() {
        let check = |name: &str, note: &str, expected: Option<&str>| {
            let mut object = json!({"metadata": {"annotations": {name: note}}, "spec": {"maxReplicas": 3}});
            default(&mut object);
            assert_eq!(
                get(&object, &["metadata", "annotations", name]).as_str(),
                expected,
                "{note}"
            );
            let default = get(&object, &["spec", "targetCPUUtilizationPercentage"]) == 80;
            assert_eq!(default, name != METRICS || expected.is_none(), "{note}");
        };
        let pods = r#"[{"type":"Pods","pods":{"metricName":"a","targetAverageValue":"1"}}]"#;
        check(
            METRICS,
            r#"[{"pods":{"targetAverageValue":"1000m","metricName":"a"},"type":"Pods"}]"#,
            Some(pods),
        );
        check(
            METRICS,
            r#"[{"type":"Pods","pods":{"metricName":1,"targetAverageValue":"1"}}]"#,
            None,
        );
        check(METRICS, "[]", None);
        check(METRICS, "x", None);
        check(METRICS, "[3]", None);
        check(BEHAVIOR, "{}", None);
        check(BEHAVIOR, r#"{"ScaleDown":3}"#, None);
        check(BEHAVIOR, r#"{"ScaleUp":{"Policies":[{"Value":"3"}]}}"#, None);
        check(
            BEHAVIOR,
            r#"{"SCALEUP":{"policies":[{"type":"Pods","value":3,"periodseconds":4}],"tolerance":"0.10"}}"#,
            Some(
                r#"{"ScaleUp":{"StabilizationWindowSeconds":null,"SelectPolicy":null,"Policies":[{"Type":"Pods","Value":3,"PeriodSeconds":4}],"Tolerance":"100m"},"ScaleDown":null}"#,
            ),
        );
        check(CONDITIONS, "[]", None);
        check(
            CONDITIONS,
            r#"[{"status":"True","type":"AbleToScale"}]"#,
            Some(r#"[{"type":"AbleToScale","status":"True","lastTransitionTime":null}]"#),
        );
    }
}
