//! Objects that were stored under another definition than the present one.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Config;
use super::tests::{Answer, World};
use crate::UserInfo;
use crate::storage::Storage;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/ts.x.io/v1/namespaces/default/things";

/// A definition whose `spec` has these fields.
fn definition(fields: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.ts.x.io"},
        "spec": {
            "group": "ts.x.io", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "Gone", "type": "string", "jsonPath": ".spec.gone"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": fields},
                    "status": {"type": "object", "properties": {"s": {"type": "string"}}}
                }}}
            }]
        }
    })
}

fn before() -> Value {
    json!({"a": {"type": "string"}, "gone": {"type": "string"}})
}

fn after() -> Value {
    json!({"a": {"type": "string"}, "new": {"type": "string", "default": "D"}})
}

fn thing(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "ts.x.io/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec})
}

/// A server with a definition that has changed since objects were stored, and its storage.
struct Changed {
    world: World,
    storage: Arc<dyn Storage>,
}

impl Changed {
    fn new(fields: [&Value; 2], objects: &[Value]) -> Changed {
        let mut storage = None;
        let world = World::of(Config::default(), |parts| storage = Some(parts.storage.clone()));
        world.must(201, &format!("POST {DEFINITIONS}"), &definition(fields[0]));
        for object in objects {
            world.must(201, &format!("POST {THINGS}?fieldManager=first"), object);
        }
        let changed = Changed {
            world,
            storage: storage.expect("every server has one"),
        };
        changed.redefine(&definition(fields[1]));
        changed
    }

    fn redefine(&self, definition: &Value) {
        let spec = json!({"spec": definition["spec"]});
        self.world
            .must(200, &format!("PATCH {DEFINITIONS}/things.ts.x.io"), &spec);
    }

    fn patch(&self, kind: &str, path: &str, patch: &Value) -> Answer {
        let line = format!("PATCH {THINGS}/{path}");
        self.world
            .send(&line, &[("content-type", kind)], patch.to_string(), UserInfo::admin())
    }

    /// The text of an object as it is stored.
    fn stored(&self, name: &str) -> String {
        let stored = self.storage.get("things.ts.x.io", &format!("default/{name}"));
        let stored = stored.expect("it is stored");
        String::from_utf8_lossy(stored.encoded()).into_owned()
    }
}

/// New defaults would make twenty times as much of an object as can be stored.
#[test]
fn what_defaults_would_make_too_large_is_shown_without_them_and_can_be_deleted() {
    let list = |item: Value| json!({"list": {"type": "array", "items": {"type": "object", "properties": item}}});
    let gains = json!({"new": {"type": "string", "default": "D".repeat(1000)}});
    let fields = [list(json!({"gone": {"type": "string"}})), list(gains)];
    let mut held = thing("held", json!({"list": vec![json!({"gone": "x"}); 20_000]}));
    let large = thing("large", held["spec"].clone());
    held["metadata"]["finalizers"] = json!(["x.io/held"]);
    let small = thing("small", json!({"list": [{}]}));
    let changed = Changed::new([&fields[0], &fields[1]], &[large, held, small]);
    let world = &changed.world;
    let check = |object: &Value| match object["metadata"]["name"].as_str() {
        Some("small") => assert_eq!(object["spec"]["list"][0]["new"].as_str().map(str::len), Some(1000)),
        _ => assert_eq!(object["spec"]["list"], json!(vec![json!({}); 20_000])),
    };
    for name in ["large", "held", "small"] {
        check(&world.must(200, &format!("GET {THINGS}/{name}"), &Value::Null));
    }
    let all = world.must(200, &format!("GET {THINGS}"), &Value::Null);
    all["items"].as_array().expect("a list").iter().for_each(check);
    for event in world.watched(&format!("{THINGS}?watch=true")) {
        check(&event["object"]);
    }
    let marked = world.must(200, &format!("DELETE {THINGS}/held"), &Value::Null);
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    for name in ["large", "small"] {
        world.must(200, &format!("DELETE {THINGS}/{name}"), &Value::Null);
    }
    let all = world.must(200, &format!("GET {THINGS}"), &Value::Null);
    assert_eq!(all["items"].as_array().map(Vec::len), Some(1), "the marked one is left");
}

#[test]
fn fields_that_a_schema_has_lost_are_gone() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let objects: Vec<Value> = names
        .iter()
        .map(|name| thing(name, json!({"a": "1", "gone": "x"})))
        .collect();
    let changed = Changed::new([&before(), &after()], &objects);
    let world = &changed.world;
    let want = json!({"a": "1", "new": "D"});
    // Reads.
    let got = world.must(200, &format!("GET {THINGS}/a"), &Value::Null);
    assert_eq!(got["spec"], want);
    let list = world.must(200, &format!("GET {THINGS}"), &Value::Null);
    let specs: Vec<&Value> = list["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|item| &item["spec"])
        .collect();
    assert_eq!(specs, [&want; 6]);
    for from in ["", "&resourceVersion=0", "&resourceVersion=1"] {
        let seen = world.watched(&format!("{THINGS}?watch=true{from}"));
        assert!(seen.len() >= 6, "{from}: {seen:?}");
        for event in seen {
            assert_eq!(event["object"]["spec"], want, "{from}: {event}");
        }
    }
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = world.send(&format!("GET {THINGS}"), &accept, "", UserInfo::admin());
    let cells: Vec<&Value> = table.body["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| &row["cells"][1])
        .collect();
    assert_eq!(cells, [&Value::Null; 6]);
    // Writes: none of these changes the spec.
    let check = |answer: Answer, what: &str| {
        assert_eq!(
            (answer.code, &answer.body["spec"]),
            (200, &want),
            "{what}: {}",
            answer.body
        );
        assert_eq!(answer.body["metadata"]["generation"], 1, "{what}");
        let name = answer.body["metadata"]["name"].as_str().unwrap_or_default();
        let text = changed.stored(name);
        assert!(!text.contains("\"gone\":\"x\""), "{what}: {text}");
    };
    let merge = "application/merge-patch+json";
    check(
        changed.patch(merge, "a", &json!({"metadata": {"labels": {"l": "1"}}})),
        "a label",
    );
    check(changed.patch(merge, "b", &json!({})), "nothing");
    let same = world.must(200, &format!("GET {THINGS}/c"), &Value::Null);
    check(world.call(&format!("PUT {THINGS}/c"), &same), "the same");
    check(
        changed.patch(merge, "d/status", &json!({"status": {"s": "1"}})),
        "the status",
    );
    let tested = json!([{"op": "test", "path": "/spec/gone", "value": "x"}]);
    assert_eq!(changed.patch("application/json-patch+json", "e", &tested).code, 422);
    // The entry of a manager stays as it is until its manager writes.
    let entries = world.must(200, &format!("GET {THINGS}/a"), &Value::Null)["metadata"]["managedFields"].clone();
    let first = entries
        .as_array()
        .and_then(|entries| entries.iter().find(|entry| entry["manager"] == "first"));
    assert_eq!(
        first.expect("its entry")["fieldsV1"]["f:spec"]["f:gone"],
        json!({}),
        "{entries}"
    );
    world.must(200, &format!("DELETE {THINGS}/e"), &Value::Null);
    let seen = world.watched(&format!("{THINGS}?watch=true&resourceVersion=1"));
    let last = seen.last().expect("the delete");
    assert_eq!((&last["type"], &last["object"]["spec"]), (&json!("DELETED"), &want));
    assert_eq!(
        last["object"]["metadata"]["resourceVersion"],
        world.api.resource_version().to_string()
    );
    // A delete shows what was there, and stores nothing else.
    let held = json!({"metadata": {"finalizers": ["x.io/f"]}});
    check(changed.patch(merge, "f", &held), "a finalizer");
    let ending = world.must(200, &format!("DELETE {THINGS}/f"), &Value::Null);
    assert_eq!(ending["spec"], want);
}

#[test]
fn an_object_that_ends_loses_them_as_well() {
    let mut held = thing("a", json!({"a": "1", "gone": "x"}));
    held["metadata"]["finalizers"] = json!(["x.io/f"]);
    let changed = Changed::new([&before(), &after()], &[held]);
    for query in ["?dryRun=All", ""] {
        let ending = changed
            .world
            .must(200, &format!("DELETE {THINGS}/a{query}"), &Value::Null);
        assert_eq!(ending["spec"], json!({"a": "1", "new": "D"}), "{query}");
    }
    assert!(
        !changed.stored("a").contains("\"gone\":\"x\""),
        "{}",
        changed.stored("a")
    );
}

#[test]
fn a_server_that_starts_with_these_objects_knows_as_much() {
    let changed = Changed::new([&before(), &after()], &[thing("a", json!({"a": "1", "gone": "x"}))]);
    let storage = changed.storage.clone();
    let restarted = World::of(Config::default(), move |parts| parts.storage = storage);
    let got = restarted.must(200, &format!("GET {THINGS}/a"), &Value::Null);
    assert_eq!(got["spec"], json!({"a": "1", "new": "D"}));
}

#[test]
fn policies_see_the_old_object_without_them() {
    let changed = Changed::new([&before(), &after()], &[thing("a", json!({"a": "1", "gone": "x"}))]);
    let world = &changed.world;
    let group = "/apis/admissionregistration.k8s.io/v1";
    let metadata = json!({"name": "p"});
    let policy = json!({"metadata": metadata, "spec": {"failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{"apiGroups": ["ts.x.io"], "apiVersions": ["*"], "resources": ["*"], "operations": ["UPDATE"]}]},
        "validations": [{"expression": "dyn(oldObject.spec) == dyn({'a': '1', 'new': 'D'})"}]}});
    let binding = json!({"metadata": metadata, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    world.must(201, &format!("POST {group}/validatingadmissionpolicies"), &policy);
    world.must(
        201,
        &format!("POST {group}/validatingadmissionpolicybindings"),
        &binding,
    );
    let patch = json!({"spec": {"a": "2"}});
    world.must(200, &format!("PATCH {THINGS}/a"), &patch);
    // The policy is there.
    world.must(422, &format!("PATCH {THINGS}/a"), &json!({"spec": {"a": "3"}}));
}

/// Objects within objects get the form of objects when the schema says that they are some.
#[test]
fn metadata_that_is_none_is_dropped() {
    let free = json!({"in": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let mut embedded = free.clone();
    embedded["in"]["x-kubernetes-embedded-resource"] = json!(true);
    for (stored, want) in [
        (
            json!({"apiVersion": 1, "kind": "K", "metadata": {"name": "n", "labels": 5, "odd": 1}, "x": 1}),
            json!({"kind": "K", "metadata": {"name": "n"}, "x": 1}),
        ),
        (
            json!({"apiVersion": "v1", "kind": "K", "x": 1}),
            json!({"apiVersion": "v1", "kind": "K", "x": 1}),
        ),
        (json!({"metadata": 5}), json!({"metadata": 5})),
    ] {
        let changed = Changed::new([&free, &embedded], &[thing("a", json!({"in": stored}))]);
        let got = changed.world.must(200, &format!("GET {THINGS}/a"), &Value::Null);
        assert_eq!(got["spec"]["in"], want, "{stored}");
    }
}

/// A definition that changed in nothing but its metadata or status changes no object, so that these are not looked at
/// again; and what is written under a definition is sent as it is stored.
#[test]
fn objects_of_the_present_definition_are_shown_as_they_are_stored() {
    let changed = Changed::new([&before(), &before()], &[thing("a", json!({"a": "1"}))]);
    let world = &changed.world;
    let is_current = || {
        let row = world
            .api
            .inner
            .registry
            .lookup("ts.x.io", "v1", "things")
            .expect("it is served");
        let stored = changed
            .storage
            .get("things.ts.x.io", "default/a")
            .expect("it is stored");
        super::convert::is_current(&row, stored.revision(), stored.encoded())
    };
    assert!(is_current(), "the definition did not change");
    let annotated = json!({"metadata": {"annotations": {"a": "1"}}});
    world.must(200, &format!("PATCH {DEFINITIONS}/things.ts.x.io"), &annotated);
    assert!(is_current());
    changed.redefine(&definition(&after()));
    assert!(!is_current());
    world.must(200, &format!("PATCH {THINGS}/a"), &json!({"spec": {"a": "2"}}));
    assert!(is_current());
    assert!(
        changed
            .stored("a")
            .starts_with("{\"apiVersion\":\"ts.x.io/v1\",\"metadata\":{")
    );
}

/// kubewright stored objects without their version once, while their kind had one.
#[test]
fn objects_of_an_old_folder_are_of_the_first_version() {
    let changed = Changed::new([&before(), &before()], &[]);
    let world = &changed.world;
    let old =
        json!({"metadata": {"name": "a", "namespace": "default", "generation": 1, "uid": "u"}, "spec": {"a": "1"}});
    changed
        .storage
        .create("things.ts.x.io", "default/a", old)
        .expect("it is new");
    let path = format!("{THINGS}/a");
    let got = world.must(200, &format!("GET {path}"), &Value::Null);
    assert_eq!(
        (&got["apiVersion"], &got["spec"]),
        (&json!("ts.x.io/v1"), &json!({"a": "1"}))
    );
    // As a storage migration does: a write of the same says the version.
    world.must(200, &format!("PUT {path}"), &got);
    assert!(changed.stored("a").starts_with("{\"apiVersion\":\"ts.x.io/v1\","));
}
