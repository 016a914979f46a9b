//! How a program asks the API server as its pod's service account: a kubeconfig for each container, which `KUBECONFIG`
//! names.
//!
//! A container finds its token in `/var/run/secrets/kubernetes.io/serviceaccount`. A process sees this machine's
//! `/var`, and clients have that path compiled in; all of them look at `KUBECONFIG` first, though, and read the token's
//! file again when it changes.
//!
//! Invariant: the variable is set for every program, also one that has no token. Otherwise a program would find the
//! kubeconfig of the user who started the cluster, and act on another cluster with that user's rights. Not here: the
//! token itself (`tokens`, `volumes`).

use std::io;
use std::path::Path;

use kubewright_objects::api::core::v1::Container;
use serde_json::{Value, json};

use super::home::Home;
use super::paths::Paths;
use super::users::User;

/// Where the admission of service accounts mounts a token (`DefaultAPITokenMountPath`).
const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The kubeconfig of a container. Without a token, or without an API server, there is no cluster in it. JSON is YAML.
pub(super) fn kubeconfig(api: Option<&(String, u16)>, namespace: &str, container: &Container, paths: &Paths) -> String {
    let mut mounts = container.volume_mounts.iter().flatten();
    let has_token = mounts.any(|mount| mount.mount_path.trim_end_matches('/') == MOUNT);
    let mut config = json!({ "apiVersion": "v1", "kind": "Config" });
    if let Some((host, port)) = api.filter(|_| has_token) {
        let host = match host.contains(':') {
            true => format!("[{host}]"),
            false => host.clone(),
        };
        let file = |name: &str| paths.rewrite(&format!("{MOUNT}/{name}"));
        let list = |content: &str, value: Value| json!([{ "name": "pod", content: value }]);
        config["clusters"] = list(
            "cluster",
            json!({ "server": format!("https://{host}:{port}"), "certificate-authority": file("ca.crt") }),
        );
        config["users"] = list("user", json!({ "tokenFile": file("token") }));
        config["contexts"] = list(
            "context",
            json!({ "cluster": "pod", "user": "pod", "namespace": namespace }),
        );
        config["current-context"] = "pod".into();
    }
    config.to_string()
}

/// Writes it where the program may read it.
pub(super) fn write(home: &Home, path: &Path, kubeconfig: &str, user: Option<User>) -> io::Result<()> {
    std::fs::write(path, kubeconfig)?;
    home.show(path, 0o600, user)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mounts: &[&str], host: Option<&str>, expected: &str) {
        let mounts: Vec<Value> = mounts
            .iter()
            .map(|path| json!({ "name": "v", "mountPath": path }))
            .collect();
        let container: Container =
            serde_json::from_value(json!({ "name": "c", "volumeMounts": mounts })).expect("a container");
        let owned = container.volume_mounts.iter().flatten();
        let owned = owned.map(|mount| mount.mount_path.clone());
        let paths = Paths::new(Path::new("/home"), Path::new("/home/root"), owned);
        let api = host.map(|host| (host.to_owned(), 6443));
        let said: Value =
            serde_json::from_str(&kubeconfig(api.as_ref(), "shop", &container, &paths)).expect("it is JSON");
        let text = |pointer: &str| said.pointer(pointer).and_then(Value::as_str).unwrap_or("-").to_owned();
        let found = [
            "/clusters/0/cluster/server",
            "/users/0/user/tokenFile",
            "/contexts/0/context/namespace",
        ]
        .map(text);
        assert_eq!(found.join(" "), expected, "{mounts:?} {host:?}");
    }

    #[test]
    fn what_a_program_finds() {
        check(
            &["/data", MOUNT],
            Some("127.0.0.1"),
            "https://127.0.0.1:6443 /home/root/var/run/secrets/kubernetes.io/serviceaccount/token shop",
        );
        check(
            &[MOUNT],
            Some("::1"),
            "https://[::1]:6443 /home/root/var/run/secrets/kubernetes.io/serviceaccount/token shop",
        );
        check(&["/data"], Some("127.0.0.1"), "- - -");
        check(&[MOUNT], None, "- - -");
    }
}
