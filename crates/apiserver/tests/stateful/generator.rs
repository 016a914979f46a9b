//! Sequences of steps out of a seed: right objects, spoilt in a few places, in every encoding, by every verb.

use std::fmt;

use kubewright_schema::protobuf;
use serde_json::{Map, Value, json};

use crate::edges;
use crate::objects::{self, DEFINITION, Kind, NAMES, NAMESPACES};
use crate::random::Random;

/// The most steps of a sequence.
const STEPS: usize = 14;

/// One thing that happens.
#[derive(Clone)]
pub(crate) enum Step {
    /// Somebody asks.
    Ask(Ask),
    /// Seconds pass.
    Wait(u64),
    /// The server ends and begins again with what its journal holds.
    Restart,
}

/// A request. `@RV@` in its body or query stands for the resourceVersion of the object at its path, `@CONTINUE@` for the latest token.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) content_type: &'static str,
    pub(crate) accept: &'static str,
    pub(crate) body: Vec<u8>,
}

impl Step {
    pub(crate) fn size(&self) -> usize {
        match self {
            Step::Ask(ask) => ask.path.len() + ask.body.len(),
            _ => 0,
        }
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Wait(seconds) => write!(f, "{seconds} seconds pass"),
            Step::Restart => f.write_str("a restart"),
            Step::Ask(ask) => {
                let body = String::from_utf8_lossy(&ask.body);
                let short: String = body.chars().take(1500).collect();
                let path: String = ask.path.chars().take(500).collect();
                let Ask {
                    method,
                    content_type,
                    accept,
                    body,
                    ..
                } = ask;
                write!(
                    f,
                    "{method} {path} ({content_type}; {accept}; {} bytes) {short}",
                    body.len()
                )
            }
        }
    }
}

/// The sequence of a seed. It begins with a definition, so that there are custom resources to ask for.
pub(crate) fn sequence(seed: u64) -> Vec<Step> {
    let mut random = Random::new(seed);
    let kinds = objects::kinds();
    // A few kinds, so that requests meet the same objects again.
    let some: Vec<&Kind> = (0..3).map(|_| &kinds[random.below(kinds.len())]).collect();
    let definitions = &kinds[kinds.len() - 3];
    let mut steps = Vec::new();
    if some.iter().any(|kind| kind.collection.contains("example.com")) {
        let mut definition = definitions.examples[random.below(definitions.examples.len())].clone();
        definition["metadata"]["name"] = json!(DEFINITION);
        steps.push(ask(
            "POST",
            definitions.collection.to_owned(),
            "application/json",
            definition.to_string(),
        ));
    }
    // Something is there, so that not everything is refused.
    for kind in &some {
        let mut object = kind.examples[random.below(kind.examples.len())].clone();
        let name = if kind.collection == objects::DEFINITIONS {
            DEFINITION
        } else {
            NAMES[0]
        };
        object["metadata"]["name"] = json!(name);
        steps.push(ask(
            "POST",
            kind.collection.replace("{ns}", "default"),
            "application/json",
            object.to_string(),
        ));
    }
    for _ in 0..2 + random.below(STEPS) {
        let kind = some[random.below(some.len())];
        steps.push(step(&mut random, kind));
    }
    steps
}

fn ask(method: &'static str, path: String, content_type: &'static str, body: impl Into<Vec<u8>>) -> Step {
    Step::Ask(Ask {
        method,
        path,
        content_type,
        accept: "application/json",
        body: body.into(),
    })
}

fn step(random: &mut Random, kind: &Kind) -> Step {
    let name = match kind.collection {
        objects::DEFINITIONS => DEFINITION,
        _ => random.pick(NAMES),
    };
    let collection = kind.collection.replace("{ns}", random.pick(NAMESPACES));
    let path = format!("{collection}/{name}");
    let mut step = match random.below(20) {
        0 => return Step::Restart,
        1 => return Step::Wait(random.pick(&[1, 30, 3600, 1 << 33])),
        2..=6 => create(random, kind, collection, name),
        7 | 8 => update(random, kind, path, name),
        9..=11 => patch(random, kind, path, name),
        12 | 13 => apply(random, kind, path, name),
        14 => subresource(random, kind, path, name),
        15 | 16 => delete(random, path),
        17 => delete(random, collection),
        18 => read(random, path),
        _ => read(random, collection),
    };
    if let Step::Ask(ask) = &mut step {
        for _ in 0..random.below(3) {
            if random.once_in(3) {
                ask.path.push(if ask.path.contains('?') { '&' } else { '?' });
                ask.path += &query(random);
            }
        }
        ask.accept = accept(random);
    }
    step
}

const QUERIES: &[&str] = &[
    "dryRun=All",
    "fieldValidation=Strict",
    "fieldValidation=Warn",
    "fieldManager=m",
    "pretty=true",
    "limit=1",
    "limit=9223372036854775807",
    "limit=-1",
    "continue=@CONTINUE@",
    "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTg0NDY3NDQwNzM3MDk1NTE2MTUsInN0YXJ0IjoiYVx1MDAwMCJ9",
    "resourceVersion=0",
    "resourceVersion=1",
    "resourceVersion=18446744073709551615",
    "resourceVersion=18446744073709551616",
    "resourceVersion=@RV@",
    "resourceVersionMatch=Exact",
    "resourceVersionMatch=NotOlderThan",
    "labelSelector=a%3Db",
    "labelSelector=a+in+(b,c),!d",
    "labelSelector=((((((",
    "labelSelector=a%3D%00",
    "fieldSelector=metadata.name%3Da",
    "fieldSelector=spec.nodeName%3Dn,status.phase!%3DRunning",
    "fieldSelector=%5C%5C%5C,%3D",
    "watch=true",
    "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan",
    "watch=true&timeoutSeconds=9223372036854775807",
    "timeoutSeconds=-1",
    "gracePeriodSeconds=9223372036854775807",
    "gracePeriodSeconds=-9223372036854775808",
    "propagationPolicy=Foreground",
    "orphanDependents=true&propagationPolicy=Orphan",
    "force=true",
    "includeObject=Object",
    "x=%ff%fe",
];

fn query(random: &mut Random) -> String {
    if random.once_in(30) {
        let terms: Vec<String> = (0..random.size(2_000)).map(|index| format!("k{index}%3Dv")).collect();
        return format!(
            "{}={}",
            random.pick(&["labelSelector", "fieldSelector"]),
            terms.join(",")
        );
    }
    random.pick(QUERIES).to_owned()
}

fn accept(random: &mut Random) -> &'static str {
    random.pick(&[
        "application/json",
        "application/json",
        "application/json",
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    ])
}

/// An object of this kind and name that is right.
fn example(random: &mut Random, kind: &Kind, name: &str) -> Value {
    let mut object = kind.examples[random.below(kind.examples.len())].clone();
    object["metadata"]["name"] = json!(name);
    let more = [
        ("labels", json!({"a": "b"})),
        ("annotations", json!({"a": "b"})),
        ("finalizers", json!(["example.com/f"])),
        (
            "ownerReferences",
            json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]),
        ),
        (
            "managedFields",
            json!([{"manager": "m", "operation": "Update", "apiVersion": object["apiVersion"],
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:a": {}, "k:{\"name\":\"a\"}": {}}}}]),
        ),
        ("generation", json!(7)),
        ("creationTimestamp", json!("2026-01-01T00:00:00Z")),
        ("deletionTimestamp", json!("2026-01-01T00:00:00Z")),
        ("resourceVersion", json!("@RV@")),
        ("uid", json!("u")),
    ];
    for (key, value) in more {
        if random.once_in(10) {
            object["metadata"][key] = value;
        }
    }
    object
}

fn create(random: &mut Random, kind: &Kind, collection: String, name: &str) -> Step {
    let object = example(random, kind, name);
    let (content_type, body) = encoded(random, object);
    ask("POST", collection, content_type, body)
}

fn update(random: &mut Random, kind: &Kind, path: String, name: &str) -> Step {
    let object = example(random, kind, name);
    let (content_type, body) = encoded(random, object);
    ask("PUT", path, content_type, body)
}

/// A body: as JSON, which is YAML as well, or as protobuf, spoilt or not.
fn encoded(random: &mut Random, object: Value) -> (&'static str, Vec<u8>) {
    match random.below(8) {
        0 => ("application/yaml", spoilt(random, object)),
        1 => match protobuf::encode(&object) {
            Ok(bytes) => ("application/vnd.kubernetes.protobuf", spoilt_bytes(random, bytes)),
            // Custom resources have no protobuf.
            Err(_) => ("application/json", spoilt(random, object)),
        },
        _ => ("application/json", spoilt(random, object)),
    }
}

/// The text of an object in which some values were replaced, added or taken away.
fn spoilt(random: &mut Random, mut object: Value) -> Vec<u8> {
    let mut texts = Vec::new();
    // Often nothing: what is refused at once tries nothing else.
    for _ in 0..random.pick(&[0, 0, 1, 1, 2, 4]) {
        spoil(random, &mut object, &mut texts, 0);
    }
    let mut text = object.to_string();
    for (index, raw) in texts.iter().enumerate() {
        text = text.replace(&format!("\"@{index}@\""), raw);
    }
    let mut bytes = text.into_bytes();
    if random.once_in(40) {
        bytes = spoilt_bytes(random, bytes);
    }
    bytes
}

/// Spoils one value somewhere below. Raw texts go into `texts`: they may be no JSON.
fn spoil(random: &mut Random, value: &mut Value, texts: &mut Vec<String>, depth: usize) {
    let count = match value {
        Value::Object(fields) => fields.len(),
        Value::Array(items) => items.len(),
        _ => 0,
    };
    if depth > 0 && (count == 0 || random.once_in(4)) {
        let raw = edges::value(random);
        texts.push(raw);
        *value = json!(format!("@{}@", texts.len() - 1));
        return;
    }
    match value {
        Value::Object(fields) => {
            let at = random.below(count.max(1));
            let key = fields.keys().nth(at).cloned().unwrap_or_default();
            match random.below(12) {
                0 if depth > 0 => drop(fields.remove(&key)),
                1 => add_field(random, fields, texts),
                _ => {
                    if let Some(inner) = fields.get_mut(&key) {
                        spoil(random, inner, texts, depth + 1);
                    }
                }
            }
        }
        Value::Array(items) if count > 0 => {
            let at = random.below(count);
            if random.once_in(6) {
                let times = random.size(if cfg!(debug_assertions) { 300 } else { 20_000 });
                let item = items[at].clone();
                items.extend((0..times).map(|_| item.clone()));
            } else {
                spoil(random, &mut items[at], texts, depth + 1);
            }
        }
        _ => {}
    }
}

fn add_field(random: &mut Random, fields: &mut Map<String, Value>, texts: &mut Vec<String>) {
    texts.push(edges::value(random));
    let key = random.pick(&[
        "a", "a/b", "a~b", "a.b", "", "$patch", "metadata", "spec", "status", "\u{0}", "@",
    ]);
    fields.insert(key.to_owned(), json!(format!("@{}@", texts.len() - 1)));
}

fn spoilt_bytes(random: &mut Random, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..random.pick(&[0, 1, 1, 3, 10]) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len());
        match random.below(4) {
            0 => bytes[at] = random.pick(&[0, 0xff, 0x80, 0x7f, 0xc0, b'"', b'{', b'\\', 1]),
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes.truncate(at),
            _ => {
                let piece: Vec<u8> = bytes[at..(at + 30).min(bytes.len())].to_vec();
                let piece = piece.repeat(random.size(200));
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

fn patch(random: &mut Random, kind: &Kind, path: String, name: &str) -> Step {
    let object = example(random, kind, name);
    match random.below(3) {
        0 => {
            let count = random.size(if cfg!(debug_assertions) { 200 } else { 10_100 });
            let operations: Vec<String> = (0..count.min(12)).map(|_| operation(random, &object)).collect();
            let all: Vec<&str> = operations.iter().map(String::as_str).cycle().take(count).collect();
            let body = format!("[{}]", all.join(","));
            ask("PATCH", path, "application/json-patch+json", body)
        }
        1 => ask("PATCH", path, "application/merge-patch+json", part(random, object)),
        _ => {
            let body = part(random, object);
            let body = match random.below(4) {
                0 => with_directive(random, body),
                _ => body,
            };
            ask("PATCH", path, "application/strategic-merge-patch+json", body)
        }
    }
}

/// A part of an object, as a merge patch has it.
fn part(random: &mut Random, mut object: Value) -> Vec<u8> {
    if let Some(fields) = object.as_object_mut() {
        let keep = random.pick(&["metadata", "spec", "data", "status"]);
        fields.retain(|key, _| key == keep);
    }
    spoilt(random, object)
}

/// Puts a directive of strategic merge patches into the first object of a text.
fn with_directive(random: &mut Random, body: Vec<u8>) -> Vec<u8> {
    let directive = random.pick(&[
        r#"{"$patch":"replace","#,
        r#"{"$patch":"delete","#,
        r#"{"$retainKeys":["a","spec"],"#,
        r#"{"$setElementOrder/containers":[{"name":"c"},{"name":"d"}],"#,
        r#"{"$deleteFromPrimitiveList/finalizers":["example.com/f"],"#,
    ]);
    let text = String::from_utf8_lossy(&body).into_owned();
    let at = text.rfind('{').unwrap_or(0);
    let (head, tail) = text.split_at(at);
    format!("{head}{directive}{}", tail.strip_prefix('{').unwrap_or(tail)).into_bytes()
}

fn operation(random: &mut Random, object: &Value) -> String {
    let op = random.pick(&["add", "remove", "replace", "move", "copy", "test", "other"]);
    let (from, path) = (pointer(random, object), pointer(random, object));
    let value = edges::value(random);
    let value = if value.len() > 2_000 { "1".to_owned() } else { value };
    format!(r#"{{"op":"{op}","from":"{from}","path":"{path}","value":{value}}}"#)
}

fn pointer(random: &mut Random, object: &Value) -> String {
    let mut pointer = String::new();
    let mut at = object;
    loop {
        let key = match at {
            Value::Object(fields) if !fields.is_empty() => fields
                .keys()
                .nth(random.below(fields.len()))
                .cloned()
                .unwrap_or_default(),
            Value::Array(items) if !items.is_empty() => random.below(items.len()).to_string(),
            _ => return pointer,
        };
        pointer += &format!("/{}", key.replace('~', "~0").replace('/', "~1"));
        if random.once_in(12) {
            return pointer + random.pick(&["/-", "/0", "/01", "/-1", "/18446744073709551616", "/~2", "/", "/a/b"]);
        }
        if random.once_in(3) {
            return pointer;
        }
        at = match at {
            Value::Object(fields) => &fields[&key],
            other => &other[key.parse::<usize>().unwrap_or(0)],
        };
    }
}

fn apply(random: &mut Random, kind: &Kind, path: String, name: &str) -> Step {
    let mut object = example(random, kind, name);
    if !random.once_in(8)
        && let Some(metadata) = object["metadata"].as_object_mut()
    {
        metadata.remove("managedFields");
    }
    let manager = random.pick(&["m", "n", "o"]);
    let force = random.pick(&["true", "false"]);
    let body = spoilt(random, object);
    ask(
        "PATCH",
        format!("{path}?fieldManager={manager}&force={force}"),
        "application/apply-patch+yaml",
        body,
    )
}

fn subresource(random: &mut Random, kind: &Kind, path: String, name: &str) -> Step {
    let json = "application/json";
    match random.below(6) {
        0 | 1 => {
            let object = example(random, kind, name);
            let (content_type, body) = encoded(random, object);
            ask("PUT", format!("{path}/status"), content_type, body)
        }
        2 => {
            let object = json!({"status": {"replicas": 1, "conditions": [{"type": "a", "status": "True"}]}});
            let body = spoilt(random, object);
            ask("PATCH", format!("{path}/status"), "application/merge-patch+json", body)
        }
        3 => {
            let object = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name},
                "spec": {"replicas": 3}});
            let body = spoilt(random, object);
            ask("PUT", format!("{path}/scale"), json, body)
        }
        4 => {
            let object = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
                "deleteOptions": {"gracePeriodSeconds": 1}});
            let body = spoilt(random, object);
            ask("POST", format!("{path}/eviction"), json, body)
        }
        _ => {
            let object = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                "target": {"kind": "Node", "name": "n"}});
            let body = spoilt(random, object);
            ask("POST", format!("{path}/binding"), json, body)
        }
    }
}

fn delete(random: &mut Random, path: String) -> Step {
    let object = json!({"kind": "DeleteOptions", "apiVersion": "v1",
        "gracePeriodSeconds": random.pick(&[0, 1, 30, -1, i64::MAX, i64::MIN, 1_000_000_000_000]),
        "propagationPolicy": random.pick(&["Background", "Foreground", "Orphan", "Other"])});
    let body = match random.below(3) {
        0 => Vec::new(),
        1 => object.to_string().into_bytes(),
        _ => spoilt(random, object),
    };
    ask("DELETE", path, "application/json", body)
}

fn read(random: &mut Random, path: String) -> Step {
    let path = match random.below(8) {
        0 => path + random.pick(&["/status", "/scale", "/log", "/%00", "/..", "/a/b/c", "%ff", "/"]),
        _ => path,
    };
    ask(random.pick(&["GET", "GET", "GET", "HEAD", "OPTIONS"]), path, "", "")
}
