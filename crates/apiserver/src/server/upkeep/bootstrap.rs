//! The objects of every cluster from its first moment on: the system's namespaces and priority classes, the Service of
//! the API server itself, the APIServices of the served versions, and the roles and bindings of RBAC.
//!
//! Each is created as a client would create it, or brought up to date. They are many, and the same in every new cluster
//! but for a few words: so [`fresh`] has the texts that come of it, and an empty storage is filled with those.

mod announce;
mod fresh;

pub(crate) use announce::Identity;
pub use announce::Place;

use futures::FutureExt as _;
use serde_json::{Value, json};

use super::api_services;
use crate::authorization::bootstrap::{self as rbac, Step};
use crate::env::rfc3339;
use crate::model::Minor;
use crate::model::facts::{FLOW_CONTROL, SYSTEM_CLASSES};
use crate::model::form::full;
use crate::model::form::key;
use crate::model::object;
use crate::model::user::UserInfo;
use crate::server::Inner;
use crate::server::managed::Tracking;
use crate::server::write::{Part, Writer};

const FLOW_CONTROL_GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// The field manager of the server's own writes.
const MANAGER: &str = "kube-apiserver";
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// Creates missing objects. Objects of an earlier run stay as they are.
pub(crate) fn fill(server: &Inner) {
    if server.storage.revision() == fresh::EMPTY {
        // The texts are those of the oldest version; what a later one has otherwise is made after them.
        let changed = match server.config.minor > Minor::OLDEST {
            true => rbac::changed(server.config.minor),
            false => Vec::new(),
        };
        let is_same = |store: &str, name: &str| {
            let is_it = |(kind, changed): &(String, String)| {
                changed == name && store.strip_suffix(".rbac.authorization.k8s.io") == Some(&*rbac::plural(kind))
            };
            !changed.iter().any(is_it)
        };
        fresh::fill(
            server.storage.as_ref(),
            server.env.as_ref(),
            server.config.service_range,
            is_same,
        );
        if !changed.is_empty() {
            complete(server);
        }
    } else {
        complete(server);
    }
}

/// Looks at each object, and creates missing ones by the ordinary way.
fn complete(server: &Inner) {
    for namespace in NAMESPACES {
        create(
            server,
            "",
            "namespaces",
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        );
    }
    track_legacy_tokens(server);
    flow_control(server);
    let range = server.config.service_range.to_string();
    create(
        server,
        "networking.k8s.io",
        "servicecidrs",
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"},
            "spec": {"cidrs": [range]}}),
    );
    server.settle_service_range();
    create(server, "", "services", kubernetes_service(server.config.service_range));
    server.release_orphans();
    server.complete_addresses();
    for (name, value, description) in SYSTEM_CLASSES {
        create(
            server,
            "scheduling.k8s.io",
            "priorityclasses",
            json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
                "value": value, "description": description}),
        );
    }
    for object in api_services::of_built_in_kinds(&server.registry.snapshot()) {
        create(server, "apiregistration.k8s.io", "apiservices", object);
    }
    for object in rbac::objects(server.config.minor) {
        reconcile(server, object);
    }
}

/// Creates a role or binding, or adds the missing parts to the stored one.
fn reconcile(server: &Inner, expected: Value) {
    let plural = rbac::plural(expected.get("kind").and_then(Value::as_str).unwrap_or(""));
    let Some(resource) = server.registry.lookup(crate::authorization::GROUP, "v1", &plural) else {
        return tracing::error!(plural, "the resource table has no such kind, so its rules are missing");
    };
    let (namespace, name) = (
        object::namespace(&expected).to_owned(),
        object::name(&expected).to_owned(),
    );
    let Some(present) = server.storage.get(&resource.store, &key(&namespace, &name)) else {
        return create(server, crate::authorization::GROUP, &plural, expected);
    };
    let user = UserInfo::admin();
    let mut writer = Writer {
        tracking: Tracking::Update(MANAGER.to_owned()),
        ..Writer::new(server, resource.clone(), &user)
    };
    match rbac::reconcile(&expected, &full(&resource, present.value())) {
        Step::Keep => {}
        Step::Recreate => {
            writer.delete_now(&namespace, &name);
            create(server, crate::authorization::GROUP, &plural, expected);
        }
        Step::Update(_) => {
            let next = |old: &mut Value, _: &mut Vec<String>| {
                Ok(match rbac::reconcile(&expected, old) {
                    Step::Update(next) => next,
                    Step::Keep | Step::Recreate => old.clone(),
                })
            };
            match writer.update(&namespace, &name, Part::Main, next).now_or_never() {
                Some(Ok(_)) => {}
                Some(Err(status)) => {
                    tracing::error!(plural, name, %status, "a stored role or binding could not be brought up to date");
                }
                None => tracing::error!(plural, name, "an update of what every cluster has waits for something"),
            }
        }
    }
}

/// Since when it is known which tokens in Secrets are used (`legacytokentracking` upstream).
fn track_legacy_tokens(server: &Inner) {
    let now = rfc3339(server.env.now());
    let (day, _) = now.split_once('T').unwrap_or((&now, ""));
    let metadata = json!({"name": "kube-apiserver-legacy-service-account-token-tracking", "namespace": "kube-system"});
    let since = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"since": day}});
    create(server, "", "configmaps", since);
}

fn flow_control(server: &Inner) {
    let objects: Vec<Value> =
        serde_json::from_str(FLOW_CONTROL).expect("the committed data is well formed: every start reads it");
    for object in objects {
        let plural = if object["kind"] == "FlowSchema" {
            "flowschemas"
        } else {
            "prioritylevelconfigurations"
        };
        let metadata = json!({"name": object["name"], "annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}});
        let object = json!({"apiVersion": format!("{FLOW_CONTROL_GROUP}/v1"), "kind": object["kind"], "metadata": metadata,
            "spec": object["spec"]});
        let manager = "api-priority-and-fairness-config-producer-v1";
        create_as(server, manager, FLOW_CONTROL_GROUP, plural, object);
    }
}

fn create(server: &Inner, group: &str, plural: &str, object: Value) {
    create_as(server, MANAGER, group, plural, object);
}

fn create_as(server: &Inner, manager: &str, group: &str, plural: &str, object: Value) {
    let Some(resource) = server.registry.lookup(group, "v1", plural) else {
        tracing::error!(
            plural,
            "the resource table has no such kind, so the cluster starts without it"
        );
        return;
    };
    // An object of an earlier run is not written again: a stored webhook would be called, and this code cannot wait for
    // it.
    let at = key(object::namespace(&object), object::name(&object));
    if server.storage.get(&resource.store, &at).is_some() {
        return;
    }
    let user = UserInfo::admin();
    let mut writer = Writer {
        tracking: Tracking::Update(manager.to_owned()),
        ..Writer::new(server, resource, &user)
    };
    // Nothing waits here: a new cluster has no webhooks.
    match writer.create(object).now_or_never() {
        Some(Ok(_)) => {}
        Some(Err(status)) if status.reason == "AlreadyExists" => {}
        Some(Err(status)) => tracing::error!(plural, %status, "an object that every cluster has could not be created"),
        None => tracing::error!(
            plural,
            "the creation of an object that every cluster has waits for something"
        ),
    }
}

/// The Service `default/kubernetes` that every cluster has, before it is stored.
fn kubernetes_service(range: crate::ServiceRange) -> Value {
    let address = range.first().to_string();
    json!({
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}],
            "clusterIP": address,
            "type": "ClusterIP",
            "sessionAffinity": "None",
            "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster"
        },
        "status": {"loadBalancer": {}}
    })
}
