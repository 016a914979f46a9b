//! The service account that an operator runs as, and its roles: the objects that a deployment of it has
//! (`config/default`).
//!
//! Not here: which rules an operator needs. Those are in its `config/rbac/role.yaml`.

use serde_json::{Value, json};

/// The account of an operator's Deployment.
pub const ACCOUNT: &str = "controller-manager";

/// The namespace of the operator of this project.
pub fn namespace(project: &str) -> String {
    format!("{project}-system")
}

/// The namespace, the account, and the roles bound to it: their names begin with `PROJECT-`, and they have these labels.
pub fn objects(project: &str, roles: &[Value], labels: &Value) -> Vec<Value> {
    let own = namespace(project);
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": own}});
    let mut made = vec![namespace(&own), account];
    for role in roles {
        let kind = role["kind"].as_str().unwrap_or("ClusterRole");
        let name = format!("{project}-{}", role["metadata"]["name"].as_str().unwrap_or_default());
        let mut metadata = json!({"name": name, "labels": labels});
        if kind == "Role" {
            // A Role without a namespace is for the operator's own; other namespaces may not be there yet.
            let of_role = role["metadata"]["namespace"].as_str().unwrap_or(&own);
            made.push(namespace(of_role));
            metadata["namespace"] = of_role.into();
        }
        let group = "rbac.authorization.k8s.io";
        let version = format!("{group}/v1");
        made.push(json!({"apiVersion": version, "kind": kind, "metadata": metadata, "rules": role["rules"]}));
        made.push(json!({
            "apiVersion": version, "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": kind, "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": own}],
        }));
    }
    made
}
