//! Sequences of steps out of a seed: right objects, spoilt in a few places, in every encoding, by every verb.
//!
//! Most steps act: a plot knows the objects of the steps before, asks for them, and makes new ones. Existing objects
//! are changed within their types more often than they are spoilt, because a request that is refused at once tests
//! nothing else.

use std::fmt;

use kubewright_schema::protobuf;
use serde_json::{Map, Value, json};

use super::asides;
use super::edges;
use super::objects::{self, DEFINITION, Kind, MORE_NAMES, NAMES, NAMESPACES};
use super::random::Random;

/// The most steps of a sequence.
const STEPS: usize = 14;

/// One thing that happens.
#[derive(Clone)]
pub(crate) enum Step {
    /// A client sends a request.
    Ask(Ask),
    /// A client reads an object and writes it back changed; the seed decides the change.
    Edit {
        /// The path of the object, without its subresource.
        path: String,
        subresource: &'static str,
        seed: u64,
    },
    /// Seconds pass.
    Wait(u64),
    /// The server ends and begins again with its journal.
    Restart,
}

/// A request. `@RV@` in its body or query and `@UID@` in its body stand for the values of the object at its path,
/// `@CONTINUE@` for the latest token.
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
            Step::Edit {
                path,
                subresource,
                seed,
            } => write!(f, "{path} is read, and {path}{subresource} changed (as {seed:#x} says)"),
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
    let kinds = objects::kinds();
    let mut random = Random::new(seed);
    let definitions = &kinds[kinds.len() - 3];
    // A few kinds, so that requests meet the same objects again.
    let some: Vec<&Kind> = (0..3).map(|_| &kinds[random.below(kinds.len())]).collect();
    let mut plot = Plot {
        random,
        made: Vec::new(),
    };
    let mut steps = Vec::new();
    if some.iter().any(|kind| kind.collection.contains("example.com")) {
        steps.push(plot.first(definitions, DEFINITION));
    }
    if plot.random.once_in(2) {
        let namespaces = kinds.iter().find(|kind| kind.collection == objects::NAMESPACES_PATH);
        steps.extend(namespaces.map(|kind| plot.first(kind, "a")));
    }
    for kind in &some {
        if kind.collection != objects::DEFINITIONS {
            steps.push(plot.first(kind, NAMES[0]));
        }
    }
    for _ in 0..2 + plot.random.below(STEPS) {
        let kind = some[plot.random.below(some.len())];
        steps.push(plot.step(kind));
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

/// The choices of a sequence, and the objects that its steps so far should have made: collections and names.
struct Plot {
    random: Random,
    made: Vec<(String, String)>,
}

impl Plot {
    /// Makes an object that is right, so that not everything after it is refused.
    fn first(&mut self, kind: &Kind, name: &str) -> Step {
        let mut object = kind.examples[self.random.below(kind.examples.len())].clone();
        object["metadata"]["name"] = json!(name);
        let collection = kind.collection.replace("{ns}", "default");
        self.made.push((collection.clone(), name.to_owned()));
        ask("POST", collection, "application/json", object.to_string())
    }

    /// Collection and name of an object of this kind: one that is there, mostly, or one that should not be.
    fn place(&mut self, kind: &Kind, there: bool) -> (String, String) {
        let (before, after) = kind.collection.split_once("{ns}").unwrap_or((&kind.collection, ""));
        let of_kind =
            |(collection, _): &&(String, String)| collection.starts_with(before) && collection.ends_with(after);
        let found: Vec<_> = self.made.iter().filter(of_kind).collect();
        if there && !found.is_empty() && !self.random.once_in(12) {
            return found[self.random.below(found.len())].clone();
        }
        let name = match &*kind.collection {
            objects::DEFINITIONS => DEFINITION,
            _ if there => self.random.pick(NAMES),
            _ => self.random.pick(MORE_NAMES),
        };
        let namespace = self.random.pick(NAMESPACES);
        (kind.collection.replace("{ns}", namespace), name.to_owned())
    }

    fn step(&mut self, kind: &Kind) -> Step {
        if self.random.once_in(20) {
            return Step::Ask(self.aside());
        }
        let choice = self.random.below(24);
        let (collection, name) = self.place(kind, choice > 4);
        let path = format!("{collection}/{name}");
        let random = &mut self.random;
        let mut step = match choice {
            0 => return Step::Restart,
            1 => return Step::Wait(random.pick(&[1, 30, 3600, 1 << 33])),
            2..=4 => {
                self.made.push((collection.clone(), name.clone()));
                create(random, kind, collection, &name)
            }
            5..=9 => {
                return Step::Edit {
                    path,
                    subresource: if random.once_in(if has_status(kind) { 3 } else { 60 }) {
                        "/status"
                    } else {
                        ""
                    },
                    seed: random.next(),
                };
            }
            10 => update(random, kind, path, &name),
            11 | 12 => patch(random, kind, path, &name),
            13 | 14 => apply(random, kind, path, &name),
            15 | 16 if has_status(kind) || random.once_in(8) => subresource(random, kind, path, &name),
            17 => {
                self.made.retain(|place| *place != (collection.clone(), name.clone()));
                delete(random, path)
            }
            15 | 16 => update(random, kind, path, &name),
            18 if random.once_in(3) => {
                self.made.retain(|place| place.0 != collection);
                delete(random, collection)
            }
            18 | 19 => read(random, path),
            20 | 21 => watch(random, collection),
            22 => listing(random, collection),
            _ => read(random, collection),
        };
        if let Step::Ask(ask) = &mut step {
            self.questions(ask);
        }
        step
    }

    /// A request that is not about an object of the sequence, but for its pods.
    fn aside(&mut self) -> Ask {
        let pods = self.made.iter().filter(|(collection, _)| collection.ends_with("/pods"));
        let pods: Vec<String> = pods.map(|(collection, name)| format!("{collection}/{name}")).collect();
        let pod = match pods.len() {
            0 => "/api/v1/namespaces/default/pods/a".to_owned(),
            count => pods[self.random.below(count)].clone(),
        };
        asides::aside(&mut self.random, &pod)
    }

    /// Now and then adds to the query, and chooses the form of the answer.
    fn questions(&mut self, ask: &mut Ask) {
        let random = &mut self.random;
        if random.once_in(4) {
            for _ in 0..1 + random.below(2) {
                ask.path.push(if ask.path.contains('?') { '&' } else { '?' });
                ask.path += &query(random, ask.method);
            }
        }
        let path = ask.path.split('?').next().unwrap_or_default();
        ask.accept = accept(random, matches!(ask.method, "GET" | "DELETE") && !named(path));
    }
}

/// Whether a path leads to an object, as far as this generator makes paths.
fn named(path: &str) -> bool {
    let parts = path.split('/').count();
    let namespaced = path.contains("/namespaces/");
    let group = path.starts_with("/apis/");
    parts > 4 + usize::from(group) + 2 * usize::from(namespaced)
}

/// The request that changes an object that is there, as a seed says: by a replacement or by a patch, within its types
/// or spoilt.
pub(crate) fn edited(path: &str, subresource: &str, seed: u64, present: &Value) -> Ask {
    let mut random = Random::new(seed);
    let mut object = present.clone();
    let mut texts = Vec::new();
    for _ in 0..random.pick(&[0, 1, 1, 2, 3]) {
        edges::change(&mut random, &mut object, 0);
    }
    if random.once_in(5) {
        return by_operations(&mut random, path, subresource, &object);
    }
    if random.once_in(5) {
        spoil(&mut random, &mut object, &mut texts, 0);
    }
    let (method, query, content_type) = match random.below(8) {
        0..=2 => ("PUT", "", "application/json"),
        3 | 4 => ("PATCH", "", "application/merge-patch+json"),
        5 if !path.contains("example.com") => ("PATCH", "", "application/strategic-merge-patch+json"),
        _ => ("PATCH", "?fieldManager=m&force=true", "application/apply-patch+yaml"),
    };
    if content_type.contains("apply")
        && let Some(metadata) = object["metadata"].as_object_mut()
    {
        metadata.remove("managedFields");
    }
    if random.once_in(3)
        && let Some(metadata) = object["metadata"].as_object_mut()
    {
        // Without a resourceVersion the newest object is changed, whichever client wrote it.
        metadata.remove("resourceVersion");
    }
    Ask {
        method,
        path: format!("{path}{subresource}{query}"),
        content_type,
        accept: accept(&mut random, false),
        body: text_of(&object, &texts).into_bytes(),
    }
}

/// A JSON patch of the present object, mostly with existing paths.
fn by_operations(random: &mut Random, path: &str, subresource: &str, object: &Value) -> Ask {
    let mut operations = vec![json!({"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}).to_string()];
    for _ in 0..random.size(50) {
        let at = pointer(random, object);
        let value = object.pointer(&at).cloned().unwrap_or_default();
        let keeps = json!({"op": "replace", "path": at, "value": value}).to_string();
        operations.push(match random.below(8) {
            0 => operation(random, object),
            1 => r#"{"op":"copy","from":"/metadata/labels","path":"/metadata/annotations"}"#.to_owned(),
            2 => r#"{"op":"move","from":"/metadata/labels/a","path":"/metadata/labels/c"}"#.to_owned(),
            _ => keeps,
        });
    }
    Ask {
        method: "PATCH",
        path: format!("{path}{subresource}"),
        content_type: "application/json-patch+json",
        accept: accept(random, false),
        body: format!("[{}]", operations.join(",")).into_bytes(),
    }
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

/// Parameters that most requests may carry.
const HARMLESS: &[&str] = &[
    "pretty=true",
    "dryRun=All",
    "fieldValidation=Warn",
    "fieldManager=m",
    "resourceVersion=0",
    "labelSelector=a%3Db",
    "labelSelector=a+in+(b,c),!d",
    "fieldSelector=metadata.name%3Da",
    "limit=1",
    "continue=@CONTINUE@",
    "gracePeriodSeconds=0",
    "propagationPolicy=Background",
    "propagationPolicy=Foreground",
    "propagationPolicy=Orphan",
];

fn query(random: &mut Random, method: &str) -> String {
    if random.once_in(30) {
        let terms: Vec<String> = (0..random.size(2_000)).map(|index| format!("k{index}%3Dv")).collect();
        return format!(
            "{}={}",
            random.pick(&["labelSelector", "fieldSelector"]),
            terms.join(",")
        );
    }
    let harmless = random.once_in(2) || method == "POST" && random.once_in(2);
    random.pick(if harmless { HARMLESS } else { QUERIES }).to_owned()
}

/// A watch of a collection, from the beginning or from now on, of everything or with a selector.
fn watch(random: &mut Random, collection: String) -> Step {
    let from = random.pick(&[
        "",
        "&resourceVersion=0",
        "&resourceVersion=@RV@",
        "&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan",
    ]);
    let of = random.pick(&[
        "",
        "&labelSelector=a%3Db",
        "&labelSelector=a!%3Db,!kubernetes.io/x",
        "&fieldSelector=metadata.name%3Da",
        "&fieldSelector=metadata.namespace!%3Dkube-system",
        "&timeoutSeconds=1",
    ]);
    ask("GET", format!("{collection}?watch=true{from}{of}"), "", "")
}

/// The parameters of lists and watches, with values of each.
const OF_LISTS: &[(&str, &[&str])] = &[
    ("limit", &["0", "1", "1", "2", "-1", "9223372036854775807"]),
    (
        "continue",
        &[
            "@CONTINUE@",
            "@CONTINUE@",
            // Behind `/zz`, now; behind `/default/b`, at the first revision.
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiL3p6XHUwMDAwIn0",
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIvZGVmYXVsdC9iXHUwMDAwIn0",
        ],
    ),
    (
        "fieldSelector",
        &[
            "metadata.name%3Da",
            "metadata.name%3D",
            "metadata.name%3Dzzz",
            "metadata.name%3Da,metadata.name%3Db",
            "metadata.name!%3Da",
            "metadata.namespace%3Ddefault",
            "metadata.namespace%3Dother,metadata.name%3Da",
        ],
    ),
    ("labelSelector", &["a%3Db", "a!%3Db", "!a", "a+in+(b,c),!d"]),
    ("resourceVersion", &["", "0", "1", "@RV@", "18446744073709551615"]),
    ("resourceVersionMatch", &["", "Exact", "NotOlderThan"]),
    ("timeoutSeconds", &["0", "1", "-1", "9223372036854775807"]),
    ("watch", &["true", "false", "0"]),
    ("sendInitialEvents", &["true", "false"]),
    ("allowWatchBookmarks", &["true", "false"]),
];

/// A list or watch with any of their parameters together.
fn listing(random: &mut Random, collection: String) -> Step {
    // The more of them, the more reasons to refuse the request at once.
    let rare = random.pick(&[2, 3, 5]);
    let mut path = match collection
        .split_once("/namespaces/")
        .map(|(before, rest)| (before, rest.split_once('/')))
    {
        Some((before, Some((_, plural)))) if random.once_in(3) => format!("{before}/{plural}?"),
        _ => format!("{collection}?"),
    };
    for (name, values) in OF_LISTS {
        if random.once_in(rare) {
            path += &format!("{name}={}&", random.pick(values));
        }
    }
    ask("GET", path, "", "")
}

/// The wanted form of the answer. A form of lists is refused for an object, and the other way round.
fn accept(random: &mut Random, list: bool) -> &'static str {
    let metadata = match (list, random.once_in(8)) {
        (true, false) | (false, true) => "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        _ => "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
    };
    random.pick(&[
        "application/json",
        "application/json",
        "application/json",
        "application/yaml",
        "application/vnd.kubernetes.protobuf,application/json",
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        metadata,
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
        // The server refuses these in new objects, or they keep other writes out.
        let rare = matches!(key, "resourceVersion" | "uid" | "managedFields");
        if random.once_in(if rare { 60 } else { 10 }) {
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
    let mut object = example(random, kind, name);
    object["metadata"]["resourceVersion"] = json!("@RV@");
    let (content_type, body) = encoded(random, object);
    ask("PUT", path, content_type, body)
}

/// A body: as JSON, which is YAML as well, or as protobuf, spoilt or not.
fn encoded(random: &mut Random, object: Value) -> (&'static str, Vec<u8>) {
    match random.below(8) {
        0 => ("application/yaml", spoilt(random, object)),
        1 => match protobuf::encode(&object) {
            Ok(bytes) if random.once_in(3) => ("application/vnd.kubernetes.protobuf", spoilt_bytes(random, bytes)),
            Ok(bytes) => ("application/vnd.kubernetes.protobuf", bytes),
            // Custom resources have no protobuf.
            Err(_) => ("application/json", spoilt(random, object)),
        },
        _ => ("application/json", spoilt(random, object)),
    }
}

/// The text of an object in which some values were replaced, added or taken away.
pub(crate) fn spoilt(random: &mut Random, mut object: Value) -> Vec<u8> {
    let mut texts = Vec::new();
    // Often nothing: a request that is refused at once tests nothing else.
    for _ in 0..random.pick(&[0, 1, 1, 2]) {
        edges::change(random, &mut object, 0);
    }
    for _ in 0..random.pick(&[0, 0, 0, 0, 0, 1, 1, 2, 4]) {
        spoil(random, &mut object, &mut texts, 0);
    }
    let mut bytes = text_of(&object, &texts).into_bytes();
    if random.once_in(40) {
        bytes = spoilt_bytes(random, bytes);
    }
    bytes
}

/// The text of an object with raw texts in the places that name them.
fn text_of(object: &Value, texts: &[String]) -> String {
    /// Items are repeated, and raw texts with them: a body is no longer than a few that are refused for their length.
    const LONGEST: usize = 8 * 1024 * 1024;
    let mut text = object.to_string();
    for (index, raw) in texts.iter().enumerate() {
        let place = format!("\"@{index}@\"");
        let grown = text.matches(&place).count().saturating_mul(raw.len());
        text = text.replace(&place, if grown > LONGEST { "0" } else { raw });
    }
    text
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
            if depth == 0 && matches!(key.as_str(), "apiVersion" | "kind") && !random.once_in(20) {
                // Without its type it is refused before any other check.
                return;
            }
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
    match random.below(5) {
        0 => {
            let count = random.size(if cfg!(debug_assertions) { 200 } else { 10_100 });
            let operations: Vec<String> = (0..count.min(12)).map(|_| operation(random, &object)).collect();
            let all: Vec<&str> = operations.iter().map(String::as_str).cycle().take(count).collect();
            let body = format!("[{}]", all.join(","));
            ask("PATCH", path, "application/json-patch+json", body)
        }
        1 | 2 => ask("PATCH", path, "application/merge-patch+json", part(random, object)),
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
        let keys: Vec<String> = fields
            .keys()
            .filter(|key| !matches!(key.as_str(), "apiVersion" | "kind"))
            .cloned()
            .collect();
        let keep = &keys[random.below(keys.len())];
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

fn has_status(kind: &Kind) -> bool {
    let status = [
        "pods",
        "services",
        "namespaces",
        "resourcequotas",
        "persistentvolumeclaims",
        "nodes",
        "replicationcontrollers",
        "deployments",
        "statefulsets",
        "jobs",
        "cronjobs",
        "horizontalpodautoscalers",
        "ingresses",
        "poddisruptionbudgets",
        "validatingadmissionpolicies",
        "customresourcedefinitions",
        "things",
    ];
    kind.collection
        .rsplit('/')
        .next()
        .is_some_and(|plural| status.contains(&plural))
}

fn subresource(random: &mut Random, kind: &Kind, path: String, name: &str) -> Step {
    let json = "application/json";
    // The subresources that the kind has, mostly.
    let others: &[usize] = match kind.collection.rsplit('/').next() {
        _ if random.once_in(8) => &[3, 4, 5, 6],
        Some("pods") => &[4, 5],
        Some("deployments" | "statefulsets" | "replicasets" | "replicationcontrollers" | "things") => &[3],
        Some("namespaces") => &[6],
        _ => &[],
    };
    match others
        .get(random.below(others.len() + 2))
        .copied()
        .unwrap_or(random.below(3))
    {
        0 | 1 => {
            let mut object = example(random, kind, name);
            object["metadata"]["resourceVersion"] = json!("@RV@");
            let (content_type, body) = encoded(random, object);
            ask("PUT", format!("{path}/status"), content_type, body)
        }
        2 => {
            let object = json!({"status": {"replicas": 1, "conditions": [{"type": "a", "status": "True",
                "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
            let body = spoilt(random, object);
            ask("PATCH", format!("{path}/status"), "application/merge-patch+json", body)
        }
        3 if random.once_in(2) => {
            let replicas = random.pick(&["0", "3", "2147483647", "-1", "null", "1e3"]);
            let body = format!("{{\"spec\":{{\"replicas\":{replicas}}}}}");
            ask("PATCH", format!("{path}/scale"), "application/merge-patch+json", body)
        }
        3 => {
            let object = json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
                "metadata": {"name": name, "namespace": path.split('/').rev().nth(2)}, "spec": {"replicas": 3}});
            let body = spoilt(random, object);
            ask("PUT", format!("{path}/scale"), json, body)
        }
        4 => {
            let object = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
                "deleteOptions": {"gracePeriodSeconds": 1}});
            let body = spoilt(random, object);
            ask("POST", format!("{path}/eviction"), json, body)
        }
        5 => {
            let object = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                "target": {"kind": "Node", "name": "n"}});
            let body = spoilt(random, object);
            ask("POST", format!("{path}/binding"), json, body)
        }
        _ => {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name},
                "spec": {"finalizers": ["example.com/f"]}});
            let body = spoilt(random, object);
            ask("PUT", format!("{path}/finalize"), json, body)
        }
    }
}

fn delete(random: &mut Random, path: String) -> Step {
    let other = if random.once_in(6) { "Other" } else { "Background" };
    let policy = random.pick(&["Background", "Foreground", "Orphan", other]);
    let mut object = json!({"kind": "DeleteOptions", "apiVersion": "v1",
        "gracePeriodSeconds": random.pick(&[0, 1, 30, 0, 1, 30, 0, -1, i64::MAX, i64::MIN, 1_000_000_000_000]),
        "propagationPolicy": policy});
    match random.below(6) {
        0 => object["preconditions"] = json!({"uid": "@UID@"}),
        1 => object["preconditions"] = json!({"resourceVersion": "@RV@", "uid": "@UID@"}),
        2 => object["dryRun"] = json!(["All"]),
        _ => {}
    }
    let body = match random.below(6) {
        0 | 1 => Vec::new(),
        2..=4 => object.to_string().into_bytes(),
        _ => spoilt(random, object),
    };
    ask("DELETE", path, "application/json", body)
}

fn read(random: &mut Random, path: String) -> Step {
    let path = match random.below(16) {
        0 => path + random.pick(&["/status", "/scale", "/log", "/%00", "/..", "/a/b/c", "%ff", "/"]),
        _ => path,
    };
    let method = if random.once_in(12) {
        random.pick(&["HEAD", "OPTIONS"])
    } else {
        "GET"
    };
    ask(method, path, "", "")
}
