//! What every cluster has from its first moment on: the system's namespaces and priority classes, and the Service of the API
//! server itself.

use futures::FutureExt as _;
use serde_json::{Value, json};

use super::Inner;
use super::managed::Tracking;
use super::write::Writer;
use crate::kinds::{policy, services};
use crate::user::UserInfo;

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// Creates what is missing. A storage that kept it from an earlier run keeps it as it is.
pub(super) fn fill(server: &Inner) {
    for namespace in NAMESPACES {
        create(
            server,
            "",
            "namespaces",
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        );
    }
    create(server, "", "services", services::kubernetes_service());
    for (name, value, description) in policy::SYSTEM_CLASSES {
        create(
            server,
            "scheduling.k8s.io",
            "priorityclasses",
            json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
                "value": value, "description": description}),
        );
    }
}

fn create(server: &Inner, group: &str, plural: &str, object: Value) {
    let Some(resource) = server.registry.lookup(group, "v1", plural) else {
        tracing::error!(
            plural,
            "the resource table has no such kind, so the cluster starts without it"
        );
        return;
    };
    // What is stored stays as it is; another create would ask for what the stored one holds, such as an address.
    let present = super::write::key(crate::object::namespace(&object), crate::object::name(&object));
    if server.storage.get(&resource.store, &present).is_some() {
        return;
    }
    let user = UserInfo::admin();
    let mut writer = Writer {
        server,
        resource,
        user: &user,
        dry_run: false,
        tracking: Tracking::Update("kube-apiserver".to_owned()),
        warnings: Vec::new(),
    };
    // Nothing waits here: no webhook exists yet.
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
