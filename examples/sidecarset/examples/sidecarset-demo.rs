//! Sidecars that are injected into the pods of a Deployment: `cargo run -p sidecarset --example sidecarset-demo`.

use std::process::ExitCode;

use kubewright_demo::{Demo, Error, shop};
use serde_json::json;

/// What is shown.
///
/// # Errors
/// When the role cannot be read.
pub fn demo() -> Result<Demo, Error> {
    let set = json!({
        "apiVersion": "apps.kruise.io/v1alpha1", "kind": "SidecarSet", "metadata": {"name": "log-agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "shop"}},
            "containers": [{"name": "agent", "image": "agent:1", "volumeMounts": [{"name": "log", "mountPath": "/var/log"}]}],
            "volumes": [{"name": "log", "emptyDir": {}}],
        },
    });
    // Its ControllerRevisions are in the operator's namespace.
    let own = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sidecarset-system"}});
    let demo = Demo::new("SidecarSet", "in three pods", |set| set["status"]["updatedReadyPods"] == 3)
        .object(own)
        .object(set)
        .object(shop(3, None))
        .commands(
            r#"kubectl get sidecarsets -w
kubectl get pods -o custom-columns=NAME:.metadata.name,CONTAINERS:.spec.containers[*].image
kubectl patch sidecarset log-agent --type=json -p '[{"op":"replace","path":"/spec/containers/0/image","value":"agent:2"}]'"#,
        );
    demo.operator(sidecarset::operator(), sidecarset::ROLE)
}

fn main() -> ExitCode {
    kubewright_demo::main(demo)
}
