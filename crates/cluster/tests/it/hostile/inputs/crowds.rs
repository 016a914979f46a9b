//! Many clients at once, and requests about much that is there. The figures of many clients are the processor time of
//! one of them and the memory that all take together.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::hostile::input::{Input, NUMBER, Request, apply, create, delete, get, input, merge_patch, post};
use crate::hostile::values::{
    CONFIG_MAPS, DEFINITION, DEFINITIONS, EVENTS, LEASES, PODS, THINGS, config_map, definition, fields, items, long,
    object, pod, scaled,
};

/// How many objects there are where much is there.
const MANY: usize = 2_000;
/// Fewer in a debug build, as everywhere.
const CLIENTS: usize = if cfg!(debug_assertions) { 8 } else { 64 };
const WATCHERS: usize = if cfg!(debug_assertions) { 20 } else { 200 };
/// The possible answers to a crowd: some clients are told to come again.
const MADE: &[u16] = &[201, 413, 429];
const READ: &[u16] = &[200, 429];

pub(crate) fn inputs() -> Vec<Input> {
    let mut inputs = writers();
    inputs.extend(readers());
    inputs.extend(walkers());
    inputs.extend(sequences());
    inputs
}

fn writers() -> Vec<Input> {
    let name = || format!("crowd-{NUMBER}");
    vec![
        input("64 clients with a ConfigMap of 1 MB each", MADE, move || {
            let data = format!("\"data\":{{\"a\":{}}}", long(1_000_000));
            create(CONFIG_MAPS, &name(), config_map(&name(), "", &data)).by_clients(CLIENTS)
        }),
        input("64 clients with 3 MB that nobody stores", &[413, 422, 429], move || {
            let data = format!("\"data\":{{\"a\":{}}}", long(3_000_000));
            create(CONFIG_MAPS, &name(), config_map(&name(), "", &data)).by_clients(CLIENTS)
        }),
        input("64 clients with 40,000 keys each", MADE, move || {
            let data = fields(40_000, |_| "\"v\"".to_owned());
            create(
                CONFIG_MAPS,
                &name(),
                config_map(&name(), "", &format!("\"data\":{data}")),
            )
            .by_clients(CLIENTS)
        }),
        input("64 clients with 50,000 unknown fields each", MADE, move || {
            let rest = fields(50_000, |_| "1".to_owned());
            create(CONFIG_MAPS, &name(), config_map(&name(), "", &rest[1..rest.len() - 1])).by_clients(CLIENTS)
        }),
        input(
            "64 clients with a body of 1,000,000 open brackets",
            &[400, 429],
            move || post(CONFIG_MAPS, "application/json", "[".repeat(1_000_000)).by_clients(CLIENTS),
        ),
        // The entries of 20 managers are as much as an object may hold: etcd's answer is 500, which the few clients of
        // a debug build do not get. Some lose against the others so often that they are to try again themselves (409).
        input(
            "64 clients that apply 5,000 fields to one object",
            &[200, 201, 409, 429, 500],
            || {
                let data = fields(5_000, |_| "\"v\"".to_owned());
                let path = format!("{CONFIG_MAPS}/crowd");
                let manager = format!("m{NUMBER}");
                let made = apply(&path, &manager, config_map("crowd", "", &format!("\"data\":{data}")));
                made.by_clients(CLIENTS)
            },
        ),
        input("64 clients that patch one object", READ, || {
            let path = format!("{CONFIG_MAPS}/crowd");
            merge_patch(&path, format!(r#"{{"data":{{"k{NUMBER}":"w"}}}}"#))
                .by_clients(CLIENTS)
                .after(create(
                    CONFIG_MAPS,
                    "crowd",
                    config_map("crowd", "", "\"data\":{\"a\":\"b\"}"),
                ))
        }),
        input("64 clients that want a generated name", MADE, || {
            let body =
                r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"g-","labels":{"crowd":"many"}}}"#;
            post(CONFIG_MAPS, "application/json", body)
                .by_clients(CLIENTS)
                .then(all(CONFIG_MAPS))
        }),
        input(
            "64 clients that try 40,000 labels without storing them",
            MADE,
            move || {
                let labels = fields(40_000, |_| "\"v\"".to_owned());
                create(
                    CONFIG_MAPS,
                    &name(),
                    config_map(&name(), &format!("\"labels\":{labels}"), ""),
                )
                .query("dryRun=All")
                .by_clients(CLIENTS)
            },
        ),
        input("64 clients with protobuf that is none", &[400, 429], || {
            let body = [&b"k8s\0"[..], &[0x0a; 1_000_000][..]].concat();
            post(CONFIG_MAPS, "application/vnd.kubernetes.protobuf", body).by_clients(CLIENTS)
        }),
    ]
}

/// All that the inputs of this group made.
fn all(collection: &str) -> Request {
    delete(collection, r#"{"gracePeriodSeconds":0}"#).query("labelSelector=crowd%3Dmany")
}

/// So many objects, which go all at once.
pub(super) fn there(request: Request, collection: &str, count: usize, one: impl Fn(usize) -> String) -> Request {
    let made = (0..scaled(count)).map(|index| post(collection, "application/json", one(index)));
    made.fold(request, Request::after).then(all(collection))
}

/// ConfigMaps of 2 KB.
fn among_many(request: Request) -> Request {
    there(request, CONFIG_MAPS, MANY, |index| {
        let labels = format!(r#""labels":{{"crowd":"many","shard":"s{}"}}"#, index % 10);
        config_map(
            &format!("many-{index}"),
            &labels,
            &format!("\"data\":{{\"a\":{}}}", long(2_000)),
        )
    })
}

fn list(query: &str) -> Request {
    get(CONFIG_MAPS).query(query)
}

fn readers() -> Vec<Input> {
    const TABLE: &str = "as=Table;v=v1;g=meta.k8s.io";
    vec![
        input("a list of 2,000 objects", READ, || among_many(get(CONFIG_MAPS))),
        input("64 lists of 2,000 objects", READ, || {
            among_many(get(CONFIG_MAPS).by_clients(CLIENTS))
        }),
        input("64 lists of 2,000 objects, chosen by a label", READ, || {
            among_many(list("labelSelector=shard%3Ds3").by_clients(CLIENTS))
        }),
        input("a list of 2,000 objects, chosen by 5,000 values", READ, || {
            let values: Vec<String> = (0..scaled(5_000)).map(|value| value.to_string()).collect();
            among_many(list(&format!("labelSelector=shard%20notin%20({})", values.join(","))))
        }),
        input("a list of 2,000 objects, chosen by 1,000 fields", READ, || {
            among_many(list(&format!(
                "fieldSelector={}metadata.name!%3Db",
                "metadata.name!%3Da,".repeat(scaled(1_000))
            )))
        }),
        input("a list of 2,000 objects as protobuf", READ, || {
            among_many(get(CONFIG_MAPS).header("Accept", "application/vnd.kubernetes.protobuf"))
        }),
        input("a list of 2,000 objects as YAML", READ, || {
            among_many(get(CONFIG_MAPS).header("Accept", "application/yaml"))
        }),
        input("a list of 2,000 objects as a Table", READ, || {
            among_many(get(CONFIG_MAPS).header("Accept", &format!("application/json;{TABLE}")))
        }),
        input("a list of 2,000 objects as a Table in protobuf", &[200, 406], || {
            let accept = format!("application/vnd.kubernetes.protobuf;{TABLE}");
            among_many(get(CONFIG_MAPS).header("Accept", &accept))
        }),
        input("a list of 2,000 objects as a Table with all of them", READ, || {
            let table = get(CONFIG_MAPS).header("Accept", &format!("application/json;{TABLE}"));
            among_many(table.query("includeObject=Object"))
        }),
        input("a list of 2,000 objects as metadata", READ, || {
            let accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
            among_many(get(CONFIG_MAPS).header("Accept", accept))
        }),
        input("a list of 2,000 objects as CBOR", &[200, 406], || {
            among_many(get(CONFIG_MAPS).header("Accept", "application/cbor"))
        }),
        input("a list of 2,000 objects, compressed", READ, || {
            among_many(get(CONFIG_MAPS).header("Accept-Encoding", "gzip"))
        }),
        input(
            "a list of all kinds of 2,000 objects at an older version",
            &[200, 410],
            || among_many(list("resourceVersion=1&resourceVersionMatch=NotOlderThan")),
        ),
        input("200 watches that begin with 2,000 objects", &[200, 429], || {
            among_many(list("watch=1&timeoutSeconds=1").by_clients(WATCHERS))
        }),
        input("200 watches that ask for 2,000 first events", &[200, 429], || {
            let query = "watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
            among_many(list(&format!("{query}&allowWatchBookmarks=true")).by_clients(WATCHERS))
        }),
        input("200 watches of Tables of 2,000 objects", &[200, 429], || {
            let watch = list("watch=1&timeoutSeconds=1").by_clients(WATCHERS);
            among_many(watch.header("Accept", &format!("application/json;{TABLE}")))
        }),
        input("a delete of 2,000 objects", READ, || {
            among_many(delete(CONFIG_MAPS, "{}").query("labelSelector=shard%3Ds3"))
        }),
        input("a delete of 1,000 objects that something holds", READ, || {
            let held = |index: usize| {
                let metadata = r#""labels":{"crowd":"many"},"finalizers":["a.io/b"]"#;
                config_map(&format!("held-{index}"), metadata, "")
            };
            let freed = |index: usize| {
                merge_patch(
                    &format!("{CONFIG_MAPS}/held-{index}"),
                    r#"{"metadata":{"finalizers":null}}"#,
                )
            };
            let request = there(all(CONFIG_MAPS), CONFIG_MAPS, 1_000, held);
            (0..scaled(1_000)).map(freed).fold(request, Request::then)
        }),
        input("64 deletes of the same 2,000 objects", READ, || {
            among_many(all(CONFIG_MAPS).by_clients(CLIENTS))
        }),
        input("a list of 1,000 objects with 100 owners each", READ, || {
            let owners = items(100, |index| {
                format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","name":"o{index}","uid":"u{index}"}}"#)
            });
            there(get(CONFIG_MAPS), CONFIG_MAPS, 1_000, move |index| {
                let metadata = format!(r#""labels":{{"crowd":"many"}},"ownerReferences":{owners}"#);
                config_map(&format!("owned-{index}"), &metadata, "")
            })
        }),
    ]
}

/// A page that goes on from this token.
fn page(text: &str) -> Request {
    list(&format!("limit=1&continue={}", URL_SAFE_NO_PAD.encode(text)))
}

fn walkers() -> Vec<Input> {
    vec![
        input("64 pages of one of 2,000 objects", READ, || {
            among_many(list("limit=1").by_clients(CLIENTS))
        }),
        input("a page of 2,000 objects without a version", READ, || {
            among_many(page(r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"many-1500\u0000"}"#))
        }),
        input("a page of 2,000 objects at the first version", &[200, 400, 410], || {
            among_many(page(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"many-1500\u0000"}"#))
        }),
        input("a page that begins at a name of NUL", &[200, 400, 410], || {
            among_many(page(r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"\u0000\u0000"}"#))
        }),
        input("a watch from the first version after 2,000 writes", &[200, 410], || {
            among_many(list("watch=1&timeoutSeconds=1&resourceVersion=1"))
        }),
        input("custom resources by a field, 2,000 of them", READ, || {
            let schema =
                r#"{"type":"object","properties":{"spec":{"type":"object","properties":{"a":{"type":"string"}}}}}"#;
            let body = definition(schema).replace(
                "\"storage\":true",
                r#""storage":true,"selectableFields":[{"jsonPath":".spec.a"}]"#,
            );
            let request = get(THINGS).query("fieldSelector=spec.a%3Dv7").by_clients(CLIENTS);
            let made = there(request, THINGS, MANY, |index| {
                let rest = format!(r#""spec":{{"a":"v{}"}}"#, index % 10);
                let version = "hostile.example.com/v1";
                object(
                    version,
                    "Thing",
                    &format!("t-{index}"),
                    r#""labels":{"crowd":"many"}"#,
                    &rest,
                )
            });
            behind(create(DEFINITIONS, DEFINITION, body), made)
        }),
        input("64 discoveries of 300 definitions", READ, || {
            let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
            among_definitions(get("/apis").header("Accept", accept).by_clients(CLIENTS))
        }),
        input("64 asks for the groups of 300 definitions", READ, || {
            among_definitions(get("/apis").by_clients(CLIENTS))
        }),
        input("64 asks for the documents of 300 definitions", READ, || {
            among_definitions(get("/openapi/v3").by_clients(CLIENTS))
        }),
        input("64 asks for one document of 300 definitions", READ, || {
            among_definitions(get("/openapi/v3/apis/g7.hostile.io/v1").by_clients(CLIENTS))
        }),
        input("the old document of 300 definitions", READ, || {
            among_definitions(get("/openapi/v2"))
        }),
    ]
}

/// The same after another request.
fn behind(first: Request, request: Request) -> Request {
    let mut before = vec![first];
    before.extend(request.before);
    Request { before, ..request }
}

fn among_definitions(request: Request) -> Request {
    let properties = fields(50, |_| r#"{"type":"string"}"#.to_owned()).replace("\"k", "\"p");
    // Scaled as other long lists are.
    let count = scaled(6_000) / 20;
    let made = (0..count).map(|index| {
        let spec = format!(
            r#""spec":{{"group":"g{index}.hostile.io","scope":"Namespaced","names":{{"plural":"ts","kind":"T"}},
            "versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{{"type":"object",
            "properties":{properties}}}}}}}]}}"#
        );
        let (version, kind) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        let labels = r#""labels":{"crowd":"many"}"#;
        let name = format!("ts.g{index}.hostile.io");
        post(
            DEFINITIONS,
            "application/json",
            object(version, kind, &name, labels, &spec),
        )
    });
    made.fold(request, Request::after).then(all(DEFINITIONS))
}

fn sequences() -> Vec<Input> {
    vec![
        input("the 2,000th renewal of a Lease", &[200], || {
            let lease = |renewed: usize| {
                let spec =
                    format!(r#""spec":{{"holderIdentity":"a","renewTime":"2026-01-01T00:00:00.{renewed:06}Z"}}"#);
                object("coordination.k8s.io/v1", "Lease", "crowd", "", &spec)
            };
            let path = format!("{LEASES}/crowd");
            let renew = |renewed: usize| merge_patch(&path, lease(renewed));
            let first = renew(0).after(create(LEASES, "crowd", lease(0)));
            (1..scaled(2_000)).map(renew).fold(first, Request::after)
        }),
        input("64 clients with an Event each of the same", MADE, || {
            let event = format!(
                r#"{{"apiVersion":"v1","kind":"Event","metadata":{{"name":"e-{NUMBER}"}},"involvedObject":{{"kind":"Pod",
                "namespace":"default","name":"p"}},"reason":"R","message":"m","type":"Warning"}}"#
            );
            create(EVENTS, &format!("e-{NUMBER}"), event).by_clients(CLIENTS)
        }),
        input("64 lists of the Events of one of 2,000 pods", READ, || {
            let request = get(EVENTS)
                .query("fieldSelector=involvedObject.name%3Dp7")
                .by_clients(CLIENTS);
            there(request, EVENTS, MANY, |index| {
                format!(
                    r#"{{"apiVersion":"v1","kind":"Event","metadata":{{"name":"many-{index}","labels":{{"crowd":"many"}}}},
                    "involvedObject":{{"kind":"Pod","namespace":"default","name":"p{index}"}},"reason":"R",
                    "message":"m","type":"Warning","series":{{"count":7,"lastObservedTime":"2026-01-01T00:00:00.000000Z"}}}}"#
                )
            })
        }),
        input("the last of 1,000 pods under 40 quotas", &[201, 403], || {
            let quota = |index: usize| {
                let spec = r#""spec":{"hard":{"pods":"100000","requests.cpu":"100000"},"scopes":["NotTerminating"]}"#;
                let name = format!("q{index}");
                let path = "/api/v1/namespaces/default/resourcequotas";
                create(path, &name, object("v1", "ResourceQuota", &name, "", spec))
            };
            let spec = r#""terminationGracePeriodSeconds":0"#;
            let requests = |name: &str| {
                pod(name, spec).replace(r#""image":"i""#, r#""image":"i","resources":{"requests":{"cpu":"1m"}}"#)
            };
            let last = create(PODS, "last", requests("last"));
            let made = there(last, PODS, 1_000, |index| {
                let labelled = format!(r#""name":"many-{index}","labels":{{"crowd":"many"}}"#);
                requests("many").replace(r#""name":"many""#, &labelled)
            });
            (0..40).map(quota).fold(made, Request::after)
        }),
    ]
}
