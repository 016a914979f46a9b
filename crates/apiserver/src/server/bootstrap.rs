//! What every cluster has from its first moment on: the system's namespaces and priority classes, and the Service of the API
//! server itself.

use futures::FutureExt as _;
use serde_json::{Value, json};

use super::Inner;
use super::managed::Tracking;
use super::write::Writer;
use crate::kinds::{policy, services};
use crate::user::UserInfo;

/// The levels of priority and the rules that every kube-apiserver has: kind, name and spec of each.
static FLOW_CONTROL: &str = include_str!("../../data/flowcontrol.json");
const FLOW_CONTROL_GROUP: &str = "flowcontrol.apiserver.k8s.io";

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
    flow_control(server);
    let range = server.config.service_range.to_string();
    create(
        server,
        "networking.k8s.io",
        "servicecidrs",
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"},
            "spec": {"cidrs": [range]}}),
    );
    create(
        server,
        "",
        "services",
        services::kubernetes_service(server.config.service_range),
    );
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
    create_as(server, "kube-apiserver", group, plural, object);
}

fn create_as(server: &Inner, manager: &str, group: &str, plural: &str, object: Value) {
    let Some(resource) = server.registry.lookup(group, "v1", plural) else {
        tracing::error!(
            plural,
            "the resource table has no such kind, so the cluster starts without it"
        );
        return;
    };
    let user = UserInfo::admin();
    let mut writer = Writer {
        server,
        resource,
        user: &user,
        dry_run: false,
        tracking: Tracking::Update(manager.to_owned()),
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
