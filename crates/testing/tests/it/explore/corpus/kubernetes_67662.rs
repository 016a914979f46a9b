//! A request that takes too long may have been carried out. The controller takes it for carried out, and waits for the
//! event of the pod.

use k8s_openapi::api::core::v1::Pod;
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::kit::{self, VERSION, key};
use super::{Case, Ends, Step};

pub(super) const CASE: Case = Case {
    name: "kubernetes-67662",
    bug: "Pods are missing for ever if the requests that were to create them timed out.",
    undisturbed: Ends::Same,
    operator,
    steps,
    always: &[],
    expected: &[
        ("Pod/web-0", "/status/phase", "\"Running\""),
        ("Pod/web-1", "/status/phase", "\"Running\""),
        ("Pod/web-2", "/status/phase", "\"Running\""),
    ],
};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Group", namespaced)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct GroupSpec {
    #[schemars(range(min = 0, max = 3))]
    size: i32,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Groups { fixed }).owns::<Pod>();
    Operator::new("group").crd::<Group>().controller(controller)
}

fn steps() -> Vec<Step> {
    let group = json!({ "apiVersion": VERSION, "kind": "Group", "metadata": { "name": "web", "namespace": "default" },
        "spec": { "size": 1 } });
    vec![
        Step::apply("create the group", group),
        Step::merge(
            "let it grow",
            VERSION,
            "Group",
            "default",
            "web",
            json!({ "spec": { "size": 3 } }),
        ),
    ]
}

struct Groups {
    fixed: bool,
}

impl Reconciler for Groups {
    type Object = Group;

    async fn reconcile(&self, group: Arc<Group>, ctx: Context) -> Result<Action> {
        let (client, (_, name)) = (ctx.client(), key(&*group));
        if kit::is_going(&*group) {
            return Ok(Action::await_change());
        }
        let pods = kit::cached::<Pod>(client, &*group).await?;
        let in_excess = |pod: &Pod| kit::ordinal(pod) >= group.spec.size || kit::is_over(pod);
        for pod in pods.iter().filter(|pod| in_excess(pod) && !kit::is_going(&***pod)) {
            client.delete(&**pod).await?;
        }
        for ordinal in 0..group.spec.size {
            let spec = json!({ "containers": [{ "name": "web", "image": "web:1" }] });
            let wanted: Pod = kit::child(&*group, &format!("{name}-{ordinal}"), json!({ "spec": spec }));
            match kit::ensure(client, wanted).await {
                // The mend: it is tried again.
                Err(error) if !self.fixed && is_timeout(&error) => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        Ok(Action::await_change())
    }
}

/// Nobody answered in time: neither the API server nor, in its name, something in between.
fn is_timeout(error: &Error) -> bool {
    match error.status() {
        Some(status) => status.code == 504 || ["Timeout", "ServerTimeout"].contains(&&*status.reason),
        None => matches!(error, Error::Api(_)),
    }
}
