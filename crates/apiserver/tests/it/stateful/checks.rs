//! The rules that must hold: for every answer, for every event of a watch, and for all stored objects at the end.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use kubewright_schema::decode;
use serde_json::{Value, json};

use super::generator::Ask;
use super::world::{Answer, World, Written};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The answer to a request is well-formed, and a refusal is a Status.
pub(crate) fn answer(ask: &Ask, answer: &Answer) -> Result<(), String> {
    let fault = |what: &str| Err(format!("{what}: {}", answer.shown()));
    if !(200..600).contains(&answer.code) {
        return fault("no code");
    }
    let text = String::from_utf8_lossy(&answer.body);
    // The real server's 500s for mistakes of the client have no reason; one with a reason would be a fault of ours. So
    // is this one, of a custom resource that a patch has taken its type from (`runtime.NewMissingVersionErr`,
    // `NewMissingKindErr`).
    let untyped = text.contains("Object 'apiVersion' is missing") || text.contains("Object 'Kind' is missing");
    // And this one, of a custom resource without the field that its scale comes from (`ScaleREST.Get` of
    // apiextensions-apiserver).
    let unscaled = text.contains("the spec replicas field");
    if answer.code == 500 && text.contains("InternalError") && !untyped && !unscaled {
        return fault("an error of the server");
    }
    if answer.body.is_empty() || ask.method == "HEAD" {
        return Ok(());
    }
    let kind = answer.content_type.as_str();
    if kind.starts_with("application/json") {
        let Ok(decoded) = decode::json(&answer.body) else {
            return fault("no JSON");
        };
        let body = decoded.value;
        if answer.code >= 400 && (body["kind"] != "Status" || body["code"] != answer.code) {
            return fault("no Status");
        }
        if answer.code < 300 && body["kind"].as_str().is_none_or(str::is_empty) && !ask.path.contains("openapi") {
            return fault("an object without a kind");
        }
    } else if kind.starts_with(PROTOBUF) {
        if !answer.body.starts_with(b"k8s\0") {
            return fault("no protobuf");
        }
    } else if std::str::from_utf8(&answer.body).is_err() {
        return fault("no text");
    }
    Ok(())
}

/// An event of a watch is a line of JSON with a type and an object, or a frame.
pub(crate) fn event(event: &[u8]) -> Result<(), String> {
    if !event.starts_with(b"{\"type\"") {
        return Ok(());
    }
    let decoded = decode::json(event).map_err(|_| {
        let text: String = String::from_utf8_lossy(event).chars().take(300).collect();
        format!("an event that is no JSON: {text}")
    })?;
    let complete = decoded.value["type"].is_string() && decoded.value["object"].is_object();
    complete
        .then_some(())
        .ok_or_else(|| "an event without an object".to_owned())
}

/// Everything that holds when a sequence is over.
pub(crate) fn at_the_end(world: &mut World) -> Result<(), String> {
    neighbour(world)?;
    let paths = paths(world)?;
    readable(world, &paths)?;
    let before = shown(world, &paths)?;
    for _ in 0..2 {
        let written = world.written();
        world.restart();
        same(&written, &world.written())?;
        if shown(world, &paths)? != before {
            return Err("a restart shows something else".to_owned());
        }
    }
    readable(world, &paths)?;
    deletable(world, &paths)?;
    neighbour(world)
}

/// Another client, whose objects no sequence touches.
fn neighbour(world: &mut World) -> Result<(), String> {
    let collection = "/api/v1/namespaces/kube-system/serviceaccounts";
    let path = format!("{collection}/neighbour");
    let body = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "neighbour"}}).to_string();
    expect(
        &world.send("POST", collection, "application/json", &body)?,
        &[201],
        "the neighbour's create",
    )?;
    expect(&world.get(&path, "application/json")?, &[200], "the neighbour's read")?;
    expect(&world.send("DELETE", &path, "", "")?, &[200], "the neighbour's delete")
}

fn expect(answer: &Answer, codes: &[u16], what: &str) -> Result<(), String> {
    if codes.contains(&answer.code) {
        return Ok(());
    }
    Err(format!("{what}: {}", answer.shown()))
}

/// The objects of every cluster from its start: a start mends them.
static ORIGINAL: LazyLock<Written> = LazyLock::new(|| World::new().written());

fn same(before: &Written, after: &Written) -> Result<(), String> {
    let differs = before
        .objects
        .keys()
        .chain(after.objects.keys())
        .filter(|key| !ORIGINAL.objects.contains_key(*key))
        .find(|key| before.objects.get(*key) != after.objects.get(*key));
    differs.map_or(Ok(()), |key| Err(format!("a restart changes {key:?}")))
}

/// Where a stored object is served.
#[derive(Clone, Debug)]
struct Place {
    collection: String,
    name: String,
    /// Whether it was there from the beginning, and may have to stay.
    original: bool,
    custom: bool,
}

impl Place {
    fn path(&self) -> String {
        format!("{}/{}", self.collection, escaped(&self.name))
    }
}

/// A name as a part of a path: some kinds let nearly everything be one (`path.ValidatePathSegmentName`).
fn escaped(name: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    name.bytes().map(byte).collect()
}

/// The places of all stored objects, in every version that is served.
fn paths(world: &mut World) -> Result<Vec<Place>, String> {
    let served = served(world)?;
    let mut places = Vec::new();
    for (store, key) in world.written().objects.keys() {
        let (namespace, name) = key
            .split_once('/')
            .map_or((None, key.as_str()), |(ns, name)| (Some(ns), name));
        let (plural, group) = store.split_once('.').unwrap_or((store, ""));
        for version in served.get(&(group.to_owned(), plural.to_owned())).into_iter().flatten() {
            let collection = match namespace {
                Some(namespace) => format!("{version}/namespaces/{namespace}/{plural}"),
                None => format!("{version}/{plural}"),
            };
            places.push(Place {
                collection,
                name: name.to_owned(),
                // APIServices are the server's own, and it makes them again.
                original: plural == "apiservices" || ORIGINAL.objects.contains_key(&(store.clone(), key.clone())),
                custom: group == "example.com",
            });
        }
    }
    // Objects that may refuse deletes go first, and definitions last, because they would take their objects along.
    places.sort_by_key(|place| {
        let last = ["customresourcedefinitions", "namespaces"]
            .iter()
            .any(|end| place.collection.ends_with(end));
        (!place.collection.contains("admissionregistration"), last)
    });
    Ok(places)
}

/// Group and plural of every resource, with the paths of its versions.
fn served(world: &mut World) -> Result<BTreeMap<(String, String), Vec<String>>, String> {
    let mut versions = vec![(String::new(), "/api/v1".to_owned())];
    let groups = world.get("/apis", "application/json")?.json();
    for group in list(&groups["groups"]) {
        for version in list(&group["versions"]) {
            let path = format!("/apis/{}", version["groupVersion"].as_str().unwrap_or_default());
            versions.push((group["name"].as_str().unwrap_or_default().to_owned(), path));
        }
    }
    let mut served: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for (group, path) in versions {
        let resources = world.get(&path, "application/json")?;
        expect(&resources, &[200], "discovery")?;
        for resource in list(&resources.json()["resources"]) {
            let name = resource["name"].as_str().unwrap_or_default().to_owned();
            served.entry((group.clone(), name)).or_default().push(path.clone());
        }
    }
    Ok(served)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Everything that the sequence made can be got, listed and watched, in every form.
fn readable(world: &mut World, places: &[Place]) -> Result<(), String> {
    for place in places.iter().filter(|place| !place.original) {
        let path = place.path();
        for path in [&path, &place.collection] {
            for accept in ["application/json", "application/yaml", TABLE, PROTOBUF] {
                let answer = world.get(path, accept)?;
                let codes: &[u16] = if accept == PROTOBUF && place.custom {
                    &[200, 406]
                } else {
                    &[200]
                };
                expect(&answer, codes, &format!("{path} as {accept}"))?;
            }
        }
        // A name may hold characters with a meaning in a selector.
        let name = place.name.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
        let selector = format!("fieldSelector=metadata.name%3D{}", escaped(&name));
        let watch = format!("{}?watch=1&{selector}", place.collection);
        let first = world
            .first_event(&watch)
            .map_err(|problem| format!("{watch}: {problem}"))?;
        event(&first)?;
        if !first.starts_with(b"{\"type\":\"ADDED\"") {
            return Err(format!(
                "{watch}: the first event is {:?}",
                String::from_utf8_lossy(&first)
            ));
        }
    }
    Ok(())
}

/// All objects as clients see them.
fn shown(world: &mut World, places: &[Place]) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for place in places {
        let answer = world.get(&place.path(), "application/json")?;
        expect(&answer, &[200], &place.path())?;
        all.push(String::from_utf8_lossy(&answer.body).into_owned());
    }
    Ok(all)
}

/// Everything that the sequence made can be deleted, and is gone then.
fn deletable(world: &mut World, places: &[Place]) -> Result<(), String> {
    for place in places.iter().filter(|place| !place.original) {
        let path = place.path();
        let now = r#"{"gracePeriodSeconds":0,"propagationPolicy":"Background"}"#;
        expect(
            &world.send("DELETE", &path, "application/json", now)?,
            &[200, 202, 404],
            &format!("delete {path}"),
        )?;
        // Every holder lets go once.
        for _ in 0..3 {
            let left = world.get(&path, "application/json")?;
            if left.code == 404 {
                break;
            }
            release(world, &path, &left.json())?;
        }
        expect(
            &world.get(&path, "application/json")?,
            &[404],
            &format!("after the delete of {path}"),
        )?;
    }
    Ok(())
}

/// Takes finalizers away, and ends a namespace as its controller would.
fn release(world: &mut World, path: &str, object: &Value) -> Result<(), String> {
    if object["kind"] == "CustomResourceDefinition" {
        // The status takes any stored versions, as upstream; a definition is changed again when it has those that it
        // stored.
        let stored = object["spec"]["versions"].as_array().into_iter().flatten();
        let stored = stored
            .filter(|version| version["storage"] == true)
            .map(|version| &version["name"]);
        let patch = json!({"status": {"storedVersions": stored.collect::<Vec<_>>()}}).to_string();
        let answer = world.send(
            "PATCH",
            &format!("{path}/status"),
            "application/merge-patch+json",
            &patch,
        )?;
        expect(&answer, &[200, 404], &format!("the stored versions of {path}"))?;
    }
    if !object["metadata"]["finalizers"].is_null() {
        let patch = r#"{"metadata":{"finalizers":null}}"#;
        let answer = world.send("PATCH", path, "application/merge-patch+json", patch)?;
        expect(&answer, &[200, 404], &format!("finalizers of {path}"))?;
    }
    if object["kind"] == "Namespace" {
        let mut end = object.clone();
        end["spec"]["finalizers"] = json!([]);
        end["metadata"]["finalizers"] = Value::Null;
        end["metadata"]["resourceVersion"] = Value::Null;
        let answer = world.send("PUT", &format!("{path}/finalize"), "application/json", &end.to_string())?;
        expect(&answer, &[200, 404, 409], &format!("the end of {path}"))?;
    }
    Ok(())
}
