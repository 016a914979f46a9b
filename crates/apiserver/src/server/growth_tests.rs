//! The cost of a write depends on its own object only, however many others there are: counted in objects that storage
//! hands out, and in definitions that are read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use futures::FutureExt as _;
use http::Request;
use kubewright_schema::budget::{self, Limits};
use serde_json::{Value, json};

use crate::authorization::{Attributes, Authorizer as _, Rbac};
use crate::model::testing::{FakeEnv, Shared};
use crate::storage::{
    Bounds, ChangeStream, Entry, ListRequest, Listed, MemoryStorage, SizeLimit, Storage, StorageError, StoredObject,
};
use crate::{ApiServer, Config, Parts, UserInfo};

/// A storage that counts the objects that it hands out.
struct Counting {
    inner: MemoryStorage,
    handed: AtomicUsize,
    /// Whether another write comes before every update.
    is_late: AtomicBool,
}

impl Counting {
    fn handed<T>(&self, items: &[T]) {
        self.handed.fetch_add(items.len(), Ordering::Relaxed);
    }
}

impl Storage for Counting {
    fn revision(&self) -> u64 {
        self.inner.revision()
    }
    fn get(&self, store: &str, key: &str) -> Option<Arc<StoredObject>> {
        self.handed(&[()]);
        self.inner.get(store, key)
    }
    fn create_up_to(
        &self,
        store: &str,
        key: &str,
        value: Value,
        limit: &SizeLimit<'_>,
    ) -> Result<Arc<StoredObject>, StorageError> {
        self.inner.create_up_to(store, key, value, limit)
    }
    fn update_up_to(
        &self,
        store: &str,
        key: &str,
        expected: u64,
        value: Value,
        limit: &SizeLimit<'_>,
    ) -> Result<Arc<StoredObject>, StorageError> {
        if self.is_late.load(Ordering::Relaxed) {
            let (key, current) = (key.to_owned(), expected + 1);
            return Err(StorageError::Conflict { key, expected, current });
        }
        self.inner.update_up_to(store, key, expected, value, limit)
    }
    fn delete(&self, store: &str, key: &str, expected: u64) -> Result<Arc<StoredObject>, StorageError> {
        self.inner.delete(store, key, expected)
    }
    fn entries(&self, store: &str, request: &ListRequest) -> Result<Listed<Arc<Entry>>, StorageError> {
        let listed = self.inner.entries(store, request)?;
        self.handed(&listed.items);
        Ok(listed)
    }
    fn changes(&self, store: &str) -> u64 {
        self.inner.changes(store)
    }
    fn count(&self, store: &str, prefix: &str) -> usize {
        self.inner.count(store, prefix)
    }
    fn text_length(&self, store: &str, key: &str) -> usize {
        self.inner.text_length(store, key)
    }
    fn watch(&self, store: &str, prefix: &str, after: u64) -> Result<Box<dyn ChangeStream>, StorageError> {
        self.inner.watch(store, prefix, after)
    }
    fn list_and_watch(&self, store: &str, prefix: &str) -> (Listed, Box<dyn ChangeStream>) {
        let (listed, changes) = self.inner.list_and_watch(store, prefix);
        self.handed(&listed.items);
        (listed, changes)
    }
    fn close_watches(&self) {
        self.inner.close_watches();
    }
}

struct World {
    storage: Arc<Counting>,
    api: ApiServer,
}

impl World {
    fn new() -> World {
        let storage = Arc::new(Counting {
            inner: MemoryStorage::bounded(Bounds::default()),
            handed: AtomicUsize::new(0),
            is_late: AtomicBool::new(false),
        });
        // Room for more Services than there are to be.
        let config = Config {
            service_range: "10.0.0.0/16".parse().expect("a range"),
            ..Config::default()
        };
        let api = ApiServer::with(Parts {
            storage: storage.clone(),
            ..Parts::of_tests(Arc::new(Shared(FakeEnv::new())), config)
        });
        World { storage, api }
    }

    /// How many objects storage handed out for this request, which must succeed.
    fn cost(&self, method: &str, path: &str, body: &Value) -> usize {
        let before = self.storage.handed.load(Ordering::Relaxed);
        let body = if body.is_null() {
            Bytes::new()
        } else {
            Bytes::from(body.to_string())
        };
        let content_type = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", content_type).body(body);
        let answered = self
            .api
            .handle(request.expect("a request"), UserInfo::admin())
            .now_or_never();
        let (parts, body) = answered.expect("nothing waits in these tests").into_parts();
        let body = body.whole().unwrap_or_default();
        assert!(
            parts.status.is_success(),
            "{method} {path}: {}",
            String::from_utf8_lossy(&body)
        );
        self.storage.handed.load(Ordering::Relaxed) - before
    }

    fn definitions_read(&self) -> usize {
        let definitions = self
            .api
            .inner
            .definitions
            .lock()
            .expect("no test panics under the lock");
        definitions.times_read()
    }
}

/// The client is to try again. It is not told to send less: the same write fits when no other one comes before it.
#[test]
fn a_write_that_is_always_late_is_a_conflict() {
    let world = World::new();
    let maps = "/api/v1/namespaces/default/configmaps";
    let data: Value = (0..4_000)
        .map(|index| (format!("k{index}"), json!("v")))
        .collect::<serde_json::Map<_, _>>()
        .into();
    world.cost("POST", maps, &json!({"metadata": {"name": "a"}, "data": data}));
    world.storage.is_late.store(true, Ordering::Relaxed);
    for (kind, query, body) in [
        ("merge-patch+json", "", json!({"data": {"k1": "w"}})),
        (
            "apply-patch+yaml",
            "?fieldManager=b",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k1": "v"}}),
        ),
    ] {
        let request = Request::patch(format!("{maps}/a{query}")).header("content-type", format!("application/{kind}"));
        let request = request.body(Bytes::from(body.to_string())).expect("a request");
        let limits = Limits {
            steps: Limits::REQUEST.steps / 5,
            ..Limits::REQUEST
        };
        let answered = world
            .api
            .handle_within(limits, request, UserInfo::admin())
            .now_or_never();
        let (parts, body) = answered.expect("nothing waits in these tests").into_parts();
        let body = String::from_utf8_lossy(&body.whole().unwrap_or_default()).into_owned();
        assert_eq!(parts.status, 409, "{kind}: {body}");
        assert!(body.contains("the object has been modified"), "{kind}: {body}");
    }
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn definition(index: usize) -> Value {
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": free}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("kind{index}s.ex.io")},
        "spec": {
            "group": "ex.io", "scope": "Namespaced",
            "names": {"plural": format!("kind{index}s"), "singular": format!("kind{index}"),
                "kind": format!("Kind{index}"), "listKind": format!("Kind{index}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]
        }
    })
}

/// A kind whose objects are created, changed and deleted: its path, and the object of a number.
type Kind = (&'static str, fn(usize) -> Value);

fn named(index: usize, rest: Value) -> Value {
    let mut object = rest;
    object["metadata"] = json!({"name": format!("a{index}")});
    object
}

fn workload(index: usize) -> Value {
    let labels = json!({"app": "a"});
    let containers = json!([{"name": "c", "image": "i"}]);
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
    named(
        index,
        json!({"spec": {"selector": {"matchLabels": labels}, "template": template}}),
    )
}

fn rule() -> Value {
    json!({"apiGroups": ["x.io"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["xs"]})
}

fn webhook() -> Value {
    json!({"name": "a.b.io", "clientConfig": {"url": "https://x.io"}, "rules": [rule()],
        "sideEffects": "None", "admissionReviewVersions": ["v1"]})
}

/// Writes that the configuration may concern: a change of the configuration costs them nothing either.
const CONCERNED: [Kind; 5] = [
    ("/api/v1/namespaces/default/configmaps", |index| named(index, json!({}))),
    ("/api/v1/namespaces/default/services", |index| {
        named(index, json!({"spec": {"ports": [{"port": 80}]}}))
    }),
    ("/api/v1/namespaces/default/pods", |index| {
        named(index, json!({"spec": {"containers": [{"name": "c", "image": "i"}]}}))
    }),
    ("/api/v1/namespaces/default/persistentvolumeclaims", |index| {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        named(index, json!({"spec": spec}))
    }),
    ("/apis/networking.k8s.io/v1/namespaces/default/ingresses", |index| {
        let service = json!({"name": "s", "port": {"number": 80}});
        named(index, json!({"spec": {"defaultBackend": {"service": service}}}))
    }),
];

const KINDS: [Kind; 37] = [
    ("/api/v1/namespaces/default/configmaps", |index| named(index, json!({}))),
    ("/api/v1/namespaces/default/secrets", |index| named(index, json!({}))),
    ("/api/v1/namespaces/default/serviceaccounts", |index| {
        named(index, json!({}))
    }),
    ("/api/v1/namespaces/default/services", |index| {
        named(index, json!({"spec": {"ports": [{"port": 80}]}}))
    }),
    ("/api/v1/namespaces/kube-public/services", |index| {
        named(index, json!({"spec": {"type": "NodePort", "ports": [{"port": 80}]}}))
    }),
    ("/api/v1/namespaces/default/pods", |index| {
        named(index, json!({"spec": {"containers": [{"name": "c", "image": "i"}]}}))
    }),
    ("/api/v1/namespaces/default/persistentvolumeclaims", |index| {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        named(index, json!({"spec": spec}))
    }),
    ("/api/v1/namespaces/default/events", |index| {
        let about = json!({"kind": "Pod", "namespace": "default", "name": "p"});
        named(
            index,
            json!({"involvedObject": about, "reason": "R", "message": "m", "type": "Normal"}),
        )
    }),
    ("/api/v1/namespaces/default/endpoints", |index| named(index, json!({}))),
    // All of a namespace are asked about its pods, so they are in another one than the pods here.
    ("/api/v1/namespaces/kube-system/limitranges", |index| {
        named(index, json!({"spec": {"limits": []}}))
    }),
    ("/api/v1/namespaces/kube-system/resourcequotas", |index| {
        named(index, json!({"spec": {"hard": {"pods": "1"}}}))
    }),
    ("/api/v1/namespaces", |index| named(index, json!({}))),
    ("/api/v1/nodes", |index| named(index, json!({}))),
    ("/apis/apps/v1/namespaces/default/deployments", workload),
    ("/apis/apps/v1/namespaces/default/daemonsets", workload),
    ("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", |index| {
        named(index, json!({"rules": []}))
    }),
    ("/apis/rbac.authorization.k8s.io/v1/clusterroles", |index| {
        named(index, json!({"rules": []}))
    }),
    (
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
        |index| {
            let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
            named(
                index,
                json!({"roleRef": role, "subjects": [{"kind": "User", "name": "u"}]}),
            )
        },
    ),
    ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", |index| {
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
        named(
            index,
            json!({"roleRef": role, "subjects": [{"kind": "User", "name": "u"}]}),
        )
    }),
    ("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", |index| {
        named(index, json!({"addressType": "IPv4", "endpoints": []}))
    }),
    ("/apis/networking.k8s.io/v1/ipaddresses", |index| {
        let parent = json!({"resource": "services", "namespace": "default", "name": "s"});
        let mut address = named(index, json!({"spec": {"parentRef": parent}}));
        address["metadata"]["name"] = json!(format!("10.9.{}.{}", index / 250, index % 250 + 1));
        address
    }),
    ("/apis/networking.k8s.io/v1/servicecidrs", |index| {
        let range = format!("10.{}.0.0/24", 10 + index);
        named(index, json!({"spec": {"cidrs": [range]}}))
    }),
    ("/apis/networking.k8s.io/v1/ingressclasses", |index| {
        named(index, json!({"spec": {"controller": "a.io/b"}}))
    }),
    ("/apis/node.k8s.io/v1/runtimeclasses", |index| {
        named(index, json!({"handler": "h"}))
    }),
    ("/apis/networking.k8s.io/v1/namespaces/default/ingresses", |index| {
        let service = json!({"name": "s", "port": {"number": 80}});
        named(index, json!({"spec": {"defaultBackend": {"service": service}}}))
    }),
    ("/apis/apiregistration.k8s.io/v1/apiservices", |index| {
        let mut service = named(
            index,
            json!({"spec": {"group": format!("g{index}.io"), "version": "v1",
            "groupPriorityMinimum": 10, "versionPriority": 10}}),
        );
        service["metadata"]["name"] = json!(format!("v1.g{index}.io"));
        service
    }),
    ("/apis/apiregistration.k8s.io/v1/apiservices", |index| {
        let mut service = named(
            index,
            json!({"spec": {"group": format!("o{index}.io"), "version": "v1", "groupPriorityMinimum": 10,
                "versionPriority": 10, "service": {"namespace": "kube-system", "name": "elsewhere"}}}),
        );
        service["metadata"]["name"] = json!(format!("v1.o{index}.io"));
        service
    }),
    (
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
        |index| {
            let spec =
                json!({"matchConstraints": {"resourceRules": [rule()]}, "validations": [{"expression": "true"}]});
            named(index, json!({"spec": spec}))
        },
    ),
    (
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
        |index| {
            let policy = format!("a{}", index.max(2));
            named(
                index,
                json!({"spec": {"policyName": policy, "validationActions": ["Deny"]}}),
            )
        },
    ),
    (
        "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
        |index| {
            let mutation = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: \"test\", path: \"/kind\", value: \"X\"}]"}});
            let spec = json!({"matchConstraints": {"resourceRules": [rule()]}, "mutations": [mutation],
                "reinvocationPolicy": "Never"});
            named(index, json!({"spec": spec}))
        },
    ),
    (
        "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
        |index| {
            let policy = format!("a{}", index.max(2));
            named(index, json!({"spec": {"policyName": policy}}))
        },
    ),
    (
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        |index| named(index, json!({"webhooks": [webhook()]})),
    ),
    (
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
        |index| named(index, json!({"webhooks": [webhook()]})),
    ),
    ("/apis/scheduling.k8s.io/v1/priorityclasses", |index| {
        named(index, json!({"value": 7}))
    }),
    ("/apis/storage.k8s.io/v1/storageclasses", |index| {
        named(index, json!({"provisioner": "a.io/b"}))
    }),
    ("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", |index| {
        named(
            index,
            json!({"spec": {"priorityLevelConfiguration": {"name": "exempt"}, "rules": []}}),
        )
    }),
    ("/apis/coordination.k8s.io/v1/namespaces/default/leases", |index| {
        named(index, json!({}))
    }),
];

#[test]
fn a_write_looks_at_no_more_objects_when_there_are_more() {
    let world = World::new();
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1000", "count/configmaps": "1000"}}});
    world.cost("POST", "/api/v1/namespaces/default/resourcequotas", &quota);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    // The one-time work of the first write is not counted.
    let mut writes = 0;
    let mut concerned = || {
        // A claim only goes once a controller says that nothing uses it, so each has a name of its own.
        writes += 1;
        let of_kind = |(path, object): &Kind| {
            let create = world.cost("POST", path, &object(10_000 + writes));
            create + world.cost("DELETE", &format!("{path}/a{}", 10_000 + writes), &Value::Null)
        };
        CONCERNED.iter().map(of_kind).sum::<usize>()
    };
    let mut round = |index: usize, (path, object): &Kind| {
        let object = object(index);
        let one = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap_or(""));
        let create = world.cost("POST", path, &object);
        let after_create = concerned();
        let update = world.cost("PATCH", &one, &label);
        let delete = world.cost("DELETE", &one, &Value::Null);
        [create, update, delete, after_create, concerned()]
    };
    let mut grown = Vec::new();
    for kind in &KINDS {
        round(0, kind);
        let few = round(1, kind);
        for index in 2..30 {
            world.cost("POST", kind.0, &kind.1(index));
        }
        round(30, kind);
        let many = round(31, kind);
        if many != few || few[..3].iter().sum::<usize>() > 60 {
            grown.push(format!("{}: {few:?} with few, {many:?} with many", kind.0));
        }
    }
    assert!(
        grown.is_empty(),
        "create, update, delete, others after the create, others after the delete: {grown:#?}"
    );
}

#[test]
fn an_eviction_looks_at_the_budget_of_its_pod() {
    const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let world = World::new();
    let pod = |name: &str| {
        let spec = json!({"containers": [{"name": "c", "image": "i"}]});
        let path = "/api/v1/namespaces/default/pods";
        let metadata = json!({"name": name, "labels": {"app": "a1"}});
        world.cost("POST", path, &json!({"metadata": metadata, "spec": spec}));
        let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        world.cost("PATCH", &format!("{path}/{name}/status"), &running);
    };
    let budget = |index: usize| {
        let selector = json!({"matchLabels": {"app": format!("a{index}")}});
        let spec = json!({"maxUnavailable": 1, "selector": selector});
        world.cost("POST", BUDGETS, &named(index, json!({"spec": spec})));
        // As the controller leaves it.
        let status = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 5, "currentHealthy": 9,
            "desiredHealthy": 1, "expectedPods": 9}});
        world.cost("PATCH", &format!("{BUDGETS}/a{index}/status"), &status);
    };
    let evict = |name: &str| {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        let path = format!("/api/v1/namespaces/default/pods/{name}/eviction");
        world.cost("POST", &path, &eviction)
    };
    (1..5).for_each(budget);
    pod("first");
    // It makes the budgets known.
    evict("first");
    pod("few");
    let few = evict("few");
    (5..60).for_each(budget);
    pod("many");
    assert_eq!(evict("many"), few, "objects with many budgets, and with few");
    let charged = world
        .storage
        .get("poddisruptionbudgets.policy", "default/a1")
        .expect("it is there");
    assert_eq!(charged.value()["status"]["disruptionsAllowed"], 2, "each was charged");
}

/// Other users may have any number of bindings: a request costs only what its user's own bindings do.
#[test]
fn a_decision_looks_at_no_bindings_of_others() {
    const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let world = World::new();
    let bind = |index: usize, user: &str| {
        let role =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:aggregate-to-view"});
        let subjects = json!([{"kind": "User", "name": user}, {"kind": "Group", "name": format!("of-{user}")}]);
        world.cost(
            "POST",
            BINDINGS,
            &named(index, json!({"roleRef": role, "subjects": subjects})),
        );
    };
    let rbac = Rbac::new(world.api.inner.policy.clone());
    let user = UserInfo::authenticated("own", ["of-own"]);
    // The number of objects that storage hands out for a decision, which is made within so many steps.
    let decided = |verb: &str| {
        let attributes = Attributes {
            verb: verb.to_owned(),
            resource: "pods".to_owned(),
            version: "v1".to_owned(),
            namespace: "default".to_owned(),
            ..Attributes::default()
        };
        let limits = Limits {
            steps: 2_000,
            bytes: 20_000,
        };
        let before = world.storage.handed.load(Ordering::Relaxed);
        let answer = budget::within(limits, || rbac.decide(&user, &attributes).known());
        let answer = answer.unwrap_or_else(|why| panic!("{verb}: {why}"));
        (answer, world.storage.handed.load(Ordering::Relaxed) - before)
    };
    bind(0, "own");
    // It makes the bindings known.
    decided("get");
    let few = ["get", "delete"].map(decided);
    assert_ne!(few[0].0, few[1].0, "the role allows one of them");
    (1..500).for_each(|index| bind(index, &format!("other{index}")));
    assert_eq!(["get", "delete"].map(decided), few);
    assert_eq!(few[0].1, 0, "objects");
}

/// What a decision costs follows from the user's own rules in its namespace, whatever others write in theirs; and a rule
/// with very many names is a set.
#[test]
fn a_decision_costs_what_it_looks_at() {
    const NAMES: usize = 110_000;
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces";
    let world = World::new();
    let bind = |namespace: &str, user: &str, index: usize, names: usize| {
        let names: Vec<String> = (0..names).map(|index| format!("n{}", index * 7919 % NAMES)).collect();
        let rule = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": names});
        let (role, key) = (named(index, json!({"rules": [rule]})), format!("{namespace}/a{index}"));
        let stored = world.storage.create("roles.rbac.authorization.k8s.io", &key, role);
        stored.expect("a new role");
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": format!("a{index}")});
        let subjects = json!([{"kind": "User", "name": user}]);
        let binding = named(index, json!({"roleRef": role, "subjects": subjects}));
        world.cost("POST", &format!("{RBAC}/{namespace}/rolebindings"), &binding);
    };
    let rbac = Rbac::new(world.api.inner.policy.clone());
    // Whether it is allowed, and the steps that it costs.
    let decided = |user: &str, namespace: &str, name: &str| {
        let user = UserInfo::authenticated(user, []);
        let attributes = Attributes {
            verb: "get".to_owned(),
            resource: "pods".to_owned(),
            version: "v1".to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        };
        let decide = || {
            let answer = rbac.decide(&user, &attributes).known();
            (answer.is_allowed(), Limits::REQUEST.steps - budget::left().steps)
        };
        budget::within(Limits::REQUEST, decide).expect("it costs little")
    };
    bind("default", "neighbor", 0, 1);
    // It reads the roles.
    decided("neighbor", "default", "n0");
    let alone = decided("neighbor", "default", "n0");
    assert!(alone.0);
    for index in 1..=40 {
        bind("kube-public", "attacker", index, NAMES);
        assert_eq!(
            decided("neighbor", "default", "n0"),
            alone,
            "with {index} roles of another user"
        );
    }
    let (allowed, first) = decided("attacker", "kube-public", "nothing");
    assert!(
        !allowed && first > 1_000_000,
        "who is bound to a role reads it, and pays: {first}"
    );
    for (name, allowed) in [("n0", true), ("n109999", true), ("nothing", false)] {
        let (is_allowed, steps) = decided("attacker", "kube-public", name);
        assert_eq!(is_allowed, allowed, "{name}");
        assert!(steps < 2_000, "{steps} steps");
    }
}

/// A write of a binding is in force when it is answered, at the cost of its writer: nothing is left for the next
/// request of another user.
#[test]
fn a_binding_is_in_force_when_it_is_answered() {
    const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let world = World::new();
    let policy = &world.api.inner.policy;
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
    let bind = |user: &str| {
        named(
            0,
            json!({"roleRef": role, "subjects": [{"kind": "User", "name": user}]}),
        )
    };
    policy.rules_for(&UserInfo::admin(), "");
    assert_eq!(policy.published_bindings("default"), 0);
    world.cost("POST", BINDINGS, &bind("a"));
    assert_eq!(policy.published_bindings("default"), 1);
    world.cost("DELETE", &format!("{BINDINGS}/a0"), &Value::Null);
    assert_eq!(policy.published_bindings("default"), 0);
    world.cost("POST", BINDINGS, &bind("a"));
    world.cost("DELETE", BINDINGS, &Value::Null);
    assert_eq!(policy.published_bindings("default"), 0);
}

/// With versions of other servers, discovery is made once for each state of the APIServices; a write of a slice that
/// another server is reached through looks at no other slice.
#[test]
fn other_servers_cost_nothing_but_their_own() {
    const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
    const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let world = World::new();
    let spec = json!({"group": "m.io", "version": "v1", "groupPriorityMinimum": 9, "versionPriority": 9,
        "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "a0", "port": 443}});
    let remote = |name: &str| json!({"metadata": {"name": name}, "spec": spec});
    world.cost("POST", API_SERVICES, &remote("v1.m.io"));
    world.cost(
        "POST",
        "/api/v1/namespaces/default/services",
        &named(0, json!({"spec": {"ports": [{"port": 443}]}})),
    );
    for path in ["/apis", "/apis/m.io", "/apis/apps"] {
        world.cost("GET", path, &Value::Null);
        assert_eq!(world.cost("GET", path, &Value::Null), 0, "{path}");
    }
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    world.cost("PATCH", &format!("{API_SERVICES}/v1.m.io"), &label);
    assert!(world.cost("GET", "/apis", &Value::Null) > 0, "one of them has changed");
    assert_eq!(world.cost("GET", "/apis", &Value::Null), 0);
    let slice = |index: usize| {
        let labels = json!({"kubernetes.io/service-name": "a0"});
        let endpoints = json!([{"addresses": ["10.1.2.3"], "conditions": {"ready": false}}]);
        let slice = named(
            index,
            json!({"addressType": "IPv4", "endpoints": endpoints, "ports": [{"port": 443}]}),
        );
        let mut slice = slice;
        slice["metadata"]["labels"] = labels;
        slice
    };
    let mut cost = |index: usize| world.cost("POST", SLICES, &slice(index));
    // The first changes what is said of the APIService.
    let costs: Vec<usize> = (0..40).map(&mut cost).collect();
    assert_eq!(costs[39], costs[1], "{costs:?}");
}

/// A page copies its own objects; those behind it are only counted.
#[test]
fn a_page_looks_at_no_more_objects_when_there_are_more() {
    let world = World::new();
    let maps = "/api/v1/namespaces/default/configmaps";
    let create = |range: std::ops::Range<usize>| {
        for index in range {
            world.cost("POST", maps, &named(index, json!({})));
        }
    };
    let pages = || {
        [
            "limit=5",
            "limit=5&fieldSelector=metadata.name%3Da1",
            "fieldSelector=metadata.name%3Da2",
        ]
        .map(|query| world.cost("GET", &format!("{maps}?{query}"), &Value::Null))
    };
    create(0..10);
    let few = pages();
    // No other name begins with that of one of these.
    create(30..80);
    assert_eq!(pages(), few);
    assert!(few[0] <= 6, "{few:?}");
}

#[test]
fn a_definition_is_read_when_it_changes() {
    let world = World::new();
    let check = |method: &str, path: &str, body: &Value, reads: usize| {
        let before = world.definitions_read();
        world.cost(method, path, body);
        assert_eq!(world.definitions_read() - before, reads, "{method} {path}");
    };
    for index in 0..30 {
        // As it came, and with its status.
        check("POST", DEFINITIONS, &definition(index), 2);
    }
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    check("PATCH", &format!("{DEFINITIONS}/kind3s.ex.io"), &label, 1);
    let objects = "/apis/ex.io/v1/namespaces/default/kind4s";
    let object = json!({"apiVersion": "ex.io/v1", "kind": "Kind4", "metadata": {"name": "a"}});
    check("POST", objects, &object, 0);
    check("PATCH", &format!("{objects}/a"), &label, 0);
    check("DELETE", &format!("{objects}/a"), &Value::Null, 0);
    // Its mark is a change; then it is gone.
    check("DELETE", &format!("{DEFINITIONS}/kind5s.ex.io"), &Value::Null, 1);
    check(
        "DELETE",
        "/apis/apiregistration.k8s.io/v1/apiservices/v1.ex.io",
        &Value::Null,
        0,
    );
}

#[test]
fn schemas_are_read_on_demand() {
    let world = World::new();
    world.cost("POST", DEFINITIONS, &definition(0));
    let schema = || {
        let row = world.api.inner.registry.lookup("ex.io", "v1", "kind0s");
        format!("{:?}", row.expect("it is served").schema)
    };
    assert_eq!(schema(), "(not read yet)");
    world.cost("GET", "/apis/ex.io/v1", &Value::Null);
    world.cost("GET", "/openapi/v3", &Value::Null);
    assert_eq!(schema(), "(not read yet)");
    let object = json!({"apiVersion": "ex.io/v1", "kind": "Kind0", "metadata": {"name": "a"}});
    world.cost("POST", "/apis/ex.io/v1/namespaces/default/kind0s", &object);
    assert_ne!(schema(), "(not read yet)");
}

#[test]
fn a_definition_goes_with_many_objects() {
    const OBJECTS: usize = 3000;
    let world = World::new();
    world.cost("POST", DEFINITIONS, &definition(0));
    for index in 0..OBJECTS {
        let object = json!({"apiVersion": "ex.io/v1", "kind": "Kind0", "metadata": {"name": format!("a{index}")}});
        world.cost("POST", "/apis/ex.io/v1/namespaces/default/kind0s", &object);
    }
    let cost = world.cost("DELETE", &format!("{DEFINITIONS}/kind0s.ex.io"), &Value::Null);
    assert!(cost < 10 * OBJECTS, "{cost}");
    let store = world.storage.entries("kind0s.ex.io", &ListRequest::default());
    assert!(store.expect("now").items.is_empty());
}
