//! Empty lists and maps in requests.
//!
//! Go tells `[]` from nothing while a request is worked on, and forgets the difference when it writes. So the field
//! manager that sent those that are always written owns them, plugins and rules see them, and they are stored as null
//! ([`without_empty_lists`]). Those that are omitted when they are empty are seen only by the rules of a few kinds
//! ([`Empties`]): they are taken out of the object once it is read, so that no other code meets them, and put back for
//! these rules ([`Unwritten`]).
//!
//! Invariant: no object leaves for the storage with an empty list or map in a place where Go writes none.

use std::fmt::Write as _;

use kubewright_schema::patch::json::{escape, unescape};
use kubewright_schema::structural;
use serde_json::{Map, Value, json};

use crate::admission::Session;
use crate::model::{Empties, Resource};

/// Where an object has empty lists, and empty maps if they are asked for.
fn find(value: &Value, place: &mut String, maps: bool, found: &mut Vec<String>) {
    let length = place.len();
    match value {
        Value::Array(list) if list.is_empty() => found.push(place.clone()),
        Value::Object(map) if map.is_empty() && maps => found.push(place.clone()),
        Value::Array(list) => {
            for (index, item) in list.iter().enumerate() {
                write!(place, "/{index}").expect("a string takes everything");
                find(item, place, maps, found);
                place.truncate(length);
            }
        }
        Value::Object(map) => {
            for (key, value) in map {
                place.push('/');
                place.push_str(&escape(key));
                find(value, place, maps, found);
                place.truncate(length);
            }
        }
        _ => {}
    }
}

/// The value at a place. There may be thousands of places: their parts are not copied, as `Value::pointer` does.
fn at<'v>(object: &'v Value, place: &str) -> Option<&'v Value> {
    place.split('/').skip(1).try_fold(object, |value, part| match value {
        Value::Object(map) => map.get(&*unescape(part)),
        Value::Array(list) => list.get(part.parse::<usize>().ok()?),
        _ => None,
    })
}

fn at_mut<'v>(object: &'v mut Value, place: &str) -> Option<&'v mut Value> {
    place.split('/').skip(1).try_fold(object, |value, part| match value {
        Value::Object(map) => map.get_mut(&*unescape(part)),
        Value::Array(list) => list.get_mut(part.parse::<usize>().ok()?),
        _ => None,
    })
}

/// The object around a place, and the name that the place has in it.
fn outer<'o>(object: &'o mut Value, place: &str) -> Option<(&'o mut Map<String, Value>, String)> {
    let (outer, key) = place.rsplit_once('/')?;
    let map = at_mut(object, outer)?.as_object_mut()?;
    Some((map, unescape(key).into_owned()))
}

/// Empty lists belong to the field manager that wrote them, plugins and rules see them, and they are stored as null.
/// Makes nulls of them and says where they were.
pub(super) fn without_empty_lists(resource: &Resource, object: &mut Value) -> Vec<String> {
    fn any(value: &Value) -> bool {
        match value {
            Value::Array(list) => list.is_empty() || list.iter().any(any),
            Value::Object(map) => map.values().any(any),
            _ => false,
        }
    }
    let mut found = Vec::new();
    if resource.custom.is_none() && any(object) {
        find(object, &mut String::new(), false, &mut found);
        structural::go_normalize(object, &resource.schema);
    }
    found
}

/// Puts empty lists back where they were and are null now.
pub(super) fn with_empty_lists(object: &mut Value, places: &[String]) {
    for place in places {
        if let Some(value @ Value::Null) = at_mut(object, place) {
            *value = json!([]);
        }
    }
}

/// Shows the object as the rules see it: a list that was sent empty is an empty list, and one that was not sent is
/// null.
pub(super) fn seen_with_empty_lists<T>(object: &mut Value, places: &[String], look: impl FnOnce(&mut Value) -> T) -> T {
    let is_null = |place: &&String| at(object, place).is_some_and(Value::is_null);
    let shown: Vec<&String> = places.iter().filter(is_null).collect();
    with_empty_lists(object, places);
    let seen = look(object);
    for place in shown {
        if let Some(value) = at_mut(object, place) {
            *value = Value::Null;
        }
    }
    seen
}

/// The empty lists and maps of an object that are not written, in kinds whose rules see them.
#[derive(Debug, Default)]
pub(super) struct Unwritten(Vec<(String, Value)>);

impl Unwritten {
    /// Takes them out of an object that is read.
    pub(super) fn take(resource: &Resource, object: &mut Value) -> Unwritten {
        let mut found = Vec::new();
        if resource.strategy.empties == Empties::Absent {
            return Unwritten::default();
        }
        for (field, value) in object.as_object().into_iter().flatten() {
            if field != "metadata" && field != "status" {
                find(value, &mut format!("/{field}"), true, &mut found);
            }
        }
        if found.is_empty() {
            return Unwritten::default();
        }
        let taken = |place: String| Some((at(object, &place)?.clone(), place));
        let found: Vec<(Value, String)> = found.into_iter().filter_map(taken).collect();
        // An empty list of managedFields clears all ownership.
        let metadata = object.as_object_mut().and_then(|map| map.remove("metadata"));
        structural::go_normalize_read(object, &resource.schema);
        if let (Some(map), Some(metadata)) = (object.as_object_mut(), metadata) {
            map.insert("metadata".to_owned(), metadata);
        }
        let gone = found.into_iter().filter(|(_, place)| at(object, place).is_none());
        Unwritten(gone.map(|(value, place)| (place, value)).collect())
    }

    /// Puts them back into the same object.
    pub(super) fn put_back(&self, object: &mut Value) {
        for (place, value) in &self.0 {
            if let Some((map, key)) = outer(object, place) {
                map.insert(key, value.clone());
            }
        }
    }

    /// Shows the object as the rules see it: an empty list in the request is not filled in. A plugin that wrote the
    /// object anew meanwhile wrote none. Afterwards the object is as it was before: it may be large, and is not copied.
    pub(super) fn seen_in<T>(&self, object: &mut Value, session: &Session<'_>, look: impl FnOnce(&Value) -> T) -> T {
        if session.was_changed() {
            return look(object);
        }
        let mut replaced = Vec::with_capacity(self.0.len());
        for (place, value) in &self.0 {
            // A map that was filled in is that which was sent.
            if let Some((map, key)) = outer(object, place)
                && (value.is_array() || !map.contains_key(&key))
            {
                replaced.push((place, map.insert(key, value.clone())));
            }
        }
        let seen = look(object);
        // The last first: a value inside of another replaced one goes before that one.
        for (place, before) in replaced.into_iter().rev() {
            if let Some((map, key)) = outer(object, place) {
                match before {
                    Some(before) => map.insert(key, before),
                    None => map.remove(&key),
                };
            }
        }
        seen
    }

    /// Whether the object that is to be stored has any: those that have a default have it by now.
    pub(super) fn has_any(&self, object: &Value, session: &Session<'_>) -> bool {
        !session.was_changed() && self.0.iter().any(|(place, _)| at(object, place).is_none())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::FutureExt as _;
    use http::Request;

    use super::*;
    use crate::UserInfo;
    use crate::model::testing::{FakeEnv, Shared};
    use crate::server::{ApiServer, Config};

    const POLICIES: &str = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    const SCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
    const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
    const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

    /// Sends a request and answers its result: the generation, or the message of a refusal.
    fn send(api: &ApiServer, line: &str, body: &Value) -> (Value, String) {
        let (method, uri) = line.split_once(' ').expect("method and path");
        let kind = match (method, uri.contains("fieldManager")) {
            ("PATCH", true) => "application/apply-patch+yaml",
            ("PATCH", false) if body.is_array() => "application/json-patch+json",
            ("PATCH", false) => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder().method(method).uri(uri).header("content-type", kind);
        let request = request.body(Bytes::from(body.to_string())).expect("a request");
        let response = api.handle(request, UserInfo::admin()).now_or_never();
        let (_, body) = response.expect("nothing waits here").into_parts();
        let Ok(bytes) = body.whole() else {
            panic!("no watch was asked for")
        };
        let body: Value = serde_json::from_slice(&bytes).expect("JSON");
        let said = match body["message"].as_str() {
            Some(message) => message.to_owned(),
            None => body["metadata"]["generation"].to_string(),
        };
        (body, said)
    }

    /// As kube-apiserver 1.36 answers, one request after the other.
    #[test]
    fn what_is_sent_empty() {
        let api = ApiServer::of_tests(std::sync::Arc::new(Shared(FakeEnv::new())), Config::default());
        let check = |line: String, body: &Value, expected: &str| {
            let (answer, said) = send(&api, &line, body);
            assert_eq!(said, expected, "{line} {body}");
            let mut found = Vec::new();
            find(&answer["spec"], &mut String::new(), false, &mut found);
            assert!(found.is_empty(), "{found:?} are shown: {answer}");
        };
        let policy = |spec: &Value| {
            let mut spec = spec.clone();
            spec["podSelector"] = json!({});
            spec["policyTypes"] = json!(["Ingress"]);
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "a"}, "spec": spec})
        };
        let empty = policy(&json!({"ingress": []}));
        check(format!("POST {POLICIES}"), &empty, "1");
        check(format!("PUT {POLICIES}/a"), &empty, "2");
        check(format!("PUT {POLICIES}/a"), &policy(&json!({})), "2");
        check(format!("PUT {POLICIES}/a"), &empty, "3");
        check(format!("PATCH {POLICIES}/a"), &json!({"spec": {"ingress": []}}), "4");
        check(format!("PATCH {POLICIES}/a"), &json!({"spec": {"ingress": null}}), "4");
        let labels = json!([{"op": "add", "path": "/metadata/labels", "value": {}}]);
        check(format!("PATCH {POLICIES}/a"), &labels, "4");
        let apply = format!("PATCH {POLICIES}/a?fieldManager=x&force=true");
        check(apply.clone(), &empty, "5");
        check(apply.clone(), &empty, "6");
        check(apply, &policy(&json!({})), "6");
        check(format!("PUT {POLICIES}/a"), &policy(&json!({"ingress": [{}]})), "7");
        let inner = json!([{"op": "add", "path": "/spec/ingress/0/ports", "value": []}]);
        check(format!("PATCH {POLICIES}/a"), &inner, "8");

        let hook = json!({"name": "a.b.c", "clientConfig": {"url": "https://127.0.0.1:1/x"}, "sideEffects": "None", "admissionReviewVersions": ["v1"]});
        check(
            format!("POST {HOOKS}"),
            &json!({"metadata": {"name": "a"}, "webhooks": [hook]}),
            "1",
        );
        let mut with_rules = hook.clone();
        with_rules["rules"] = json!([]);
        check(format!("PATCH {HOOKS}/a"), &json!({"webhooks": [with_rules]}), "2");
        check(format!("PATCH {HOOKS}/a"), &json!({"webhooks": [hook]}), "2");

        let budget =
            json!({"metadata": {"name": "a"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}});
        check(format!("POST {BUDGETS}"), &budget, "1");
        let semantic = json!({"spec": {"selector": {"matchExpressions": []}}});
        check(format!("PATCH {BUDGETS}/a"), &semantic, "1");

        let slice = |devices: &Value, counters: &Value| {
            json!({"metadata": {"name": "a"}, "spec": {"driver": "x.io", "allNodes": true, "devices": devices,
                "sharedCounters": counters, "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}})
        };
        let refused = "ResourceSlice.resource.k8s.io \"a\" is invalid: spec: Invalid value: \"\": only one of `sharedCounters` or `devices` is allowed";
        check(format!("POST {SLICES}"), &slice(&json!([]), &json!([])), refused);
        check(format!("POST {SLICES}"), &slice(&json!([]), &Value::Null), "1");
        check(
            format!("PUT {SLICES}/a"),
            &slice(&json!([{"name": "a", "taints": []}]), &Value::Null),
            "2",
        );
        let taints = slice(
            &json!([{"name": "a", "taints": [], "bindingConditions": []}]),
            &Value::Null,
        );
        check(format!("PUT {SLICES}/a"), &taints, "2");
        check(
            format!("PATCH {SLICES}/a"),
            &json!({"spec": {"sharedCounters": []}}),
            refused,
        );

        let scaler = |policies: &Value| {
            json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "behavior": {"scaleUp": {"policies": policies}},
                "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}})
        };
        let refused = "HorizontalPodAutoscaler.autoscaling \"a\" is invalid: spec.behavior.scaleUp.policies: Required value: must specify at least one Policy";
        check(format!("POST {SCALERS}"), &scaler(&json!([])), refused);
        check(format!("POST {SCALERS}"), &scaler(&Value::Null), "null");
        check(format!("PUT {SCALERS}/a"), &scaler(&json!([])), refused);

        let claim = json!({"metadata": {"name": "a"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        check(format!("POST {CLAIMS}"), &claim, "null");
        // The immutable spec did not change.
        check(
            format!("PATCH {CLAIMS}/a"),
            &json!({"spec": {"resources": {"limits": {}}}}),
            "null",
        );

        let deployment = |labels: &Value| {
            let template =
                json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
            json!({"metadata": {"name": "a"},
                "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}})
        };
        for (labels, shown) in [(json!({}), "{}"), (Value::Null, "null")] {
            let refused = format!(
                "Deployment.apps \"a\" is invalid: spec.template.metadata.labels: Invalid value: {shown}: `selector` does not match template `labels`"
            );
            check(format!("POST {DEPLOYMENTS}"), &deployment(&labels), &refused);
        }
        let job = json!({"metadata": {"name": "a"}, "spec": {"template": {"metadata": {"labels": {}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
        // The labels that the server adds are added to those that were sent.
        check("POST /apis/batch/v1/namespaces/default/jobs".to_owned(), &job, "1");

        let ingress = json!({"metadata": {"name": "a"}, "spec": {"rules": []}});
        let refused = "Ingress.networking.k8s.io \"a\" is invalid: spec: Invalid value: []: either `defaultBackend` or `rules` must be specified";
        check(format!("POST {INGRESSES}"), &ingress, refused);
    }

    /// As kube-apiserver 1.36.3 answers: messages tell `[]` from nothing where Go writes an empty list.
    #[test]
    fn messages_tell_an_empty_list_from_none() {
        const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let api = ApiServer::of_tests(std::sync::Arc::new(Shared(FakeEnv::new())), Config::default());
        let definition = |name: &str, versions: &Value| {
            let mut object = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("{name}.x.io")}, "spec": {"group": "x.io", "scope": "Namespaced",
                "names": {"plural": name, "kind": name.to_uppercase()}, "versions": versions}});
            if *versions == json!("none") {
                object["spec"].as_object_mut().expect("a spec").remove("versions");
            }
            object
        };
        let version =
            json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}});
        let (_, said) = send(
            &api,
            &format!("POST {DEFINITIONS}"),
            &definition("os", &json!([version])),
        );
        assert_eq!(said, "1");
        let check = |line: &str, body: &Value, shown: &str| {
            let (_, said) = send(&api, line, body);
            let wanted = format!("spec.versions: Invalid value: {shown}: must have exactly one version");
            assert!(said.contains(&wanted), "{line} {body}: {said}");
        };
        for (versions, shown) in [(json!([]), "[]"), (Value::Null, "null"), (json!("none"), "null")] {
            let apply = format!("PATCH {DEFINITIONS}/ns.x.io?fieldManager=x");
            check(&format!("POST {DEFINITIONS}"), &definition("ns", &versions), shown);
            check(&apply, &definition("ns", &versions), shown);
            let mut changed = definition("os", &versions);
            changed["metadata"]["resourceVersion"] = stored_version(&api, &format!("{DEFINITIONS}/os.x.io"));
            check(&format!("PUT {DEFINITIONS}/os.x.io"), &changed, shown);
        }
        for (versions, shown) in [(json!([]), "[]"), (Value::Null, "null")] {
            let patch = json!({"spec": {"versions": versions}});
            check(&format!("PATCH {DEFINITIONS}/os.x.io"), &patch, shown);
        }
    }

    fn stored_version(api: &ApiServer, path: &str) -> Value {
        let (found, _) = send(api, &format!("GET {path}"), &Value::Null);
        found["metadata"]["resourceVersion"].clone()
    }
}
