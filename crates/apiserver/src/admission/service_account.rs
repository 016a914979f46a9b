//! The plugin ServiceAccount: every new pod runs as a service account that is there, and finds a token for it in its
//! containers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Admission, Admitted, Attributes, Operation, Session, subject};
use crate::Env;
use crate::env::name_suffix;
use crate::model::facts::references::{self, is_mirror};
use crate::model::object;
use crate::model::status::Status;
use crate::storage::{Storage, StoredObject};
use crate::values::{get, items};

const DEFAULT_ACCOUNT: &str = "default";
/// On an account whose pods may use only the secrets that it lists.
const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME: &str = "kube-api-access-";
/// How long the token of the volume is good: an hour, and seven seconds by which the server knows this volume.
const SECONDS: i64 = 60 * 60 + 7;
/// The pauses between the lookups of the account `default`, which a controller makes just after its namespace: within
/// milliseconds, when it has nothing else to do. In milliseconds; upstream waits as long altogether.
const PAUSES: [u64; 9] = [10, 20, 40, 80, 160, 200, 200, 300, 300];

/// Gives new pods their service account, its image pull secrets, and the volume with its token.
pub struct ServiceAccounts {
    storage: Arc<dyn Storage>,
    env: Arc<dyn Env>,
}

impl ServiceAccounts {
    /// The plugin, looking accounts up in `storage`.
    pub fn new(storage: Arc<dyn Storage>, env: Arc<dyn Env>) -> ServiceAccounts {
        ServiceAccounts { storage, env }
    }

    async fn admit(&self, attributes: &Attributes, pod: &mut Value) -> Result<(), Status> {
        if is_mirror(pod) {
            return check_mirror(pod).map_err(|why| forbidden(attributes, pod, why));
        }
        if account_name(pod).is_empty() {
            pod["spec"]["serviceAccountName"] = json!(DEFAULT_ACCOUNT);
        }
        let name = account_name(pod).to_owned();
        // The old name of the field is always shown as well.
        pod["spec"]["serviceAccount"] = json!(name);
        let account = self.account(attributes, pod).await?;
        let account = account.value();
        if wants_token(account, pod) {
            mount_token(pod, || format!("{VOLUME}{}", name_suffix(self.env.as_ref(), 5)));
        }
        let pulls = get(account, &["imagePullSecrets"]);
        let own = get(pod, &["spec", "imagePullSecrets"]).as_array();
        if own.is_none_or(Vec::is_empty) && pulls.as_array().is_some_and(|pulls| !pulls.is_empty()) {
            pod["spec"]["imagePullSecrets"] = pulls.clone();
        }
        check_secrets(account, pod).map_err(|why| forbidden(attributes, pod, why))
    }

    async fn check(&self, attributes: &Attributes, pod: &Value) -> Result<(), Status> {
        if attributes.operation == Operation::Update && attributes.subresource == "ephemeralcontainers" {
            let account = self.account(attributes, pod).await?;
            // Upstream forgets to make a 403 of it.
            return check_ephemeral(account.value(), pod).map_err(Status::untyped);
        }
        if attributes.operation != Operation::Create {
            return Ok(());
        }
        if is_mirror(pod) {
            return check_mirror(pod).map_err(|why| forbidden(attributes, pod, why));
        }
        if account_name(pod).is_empty() {
            let why = format!(
                "no service account specified for pod {}/{}",
                attributes.namespace,
                object::name(pod)
            );
            return Err(forbidden(attributes, pod, why));
        }
        let account = self.account(attributes, pod).await?;
        check_secrets(account.value(), pod).map_err(|why| forbidden(attributes, pod, why))
    }

    async fn account(&self, attributes: &Attributes, pod: &Value) -> Result<Arc<StoredObject>, Status> {
        let (namespace, name) = (&attributes.namespace, account_name(pod));
        let key = crate::model::form::key(namespace, name);
        let mut pauses = PAUSES.iter().filter(|_| name == DEFAULT_ACCOUNT);
        loop {
            if let Some(found) = self.storage.get("serviceaccounts", &key) {
                return Ok(found);
            }
            let Some(millis) = pauses.next() else { break };
            self.env.sleep(Duration::from_millis(*millis)).await;
        }
        let why = format!("error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found");
        Err(forbidden(attributes, pod, why))
    }
}

impl Admission for ServiceAccounts {
    fn mutate<'a>(
        &'a self,
        _session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a mut Value,
        _old: Option<&'a Value>,
    ) -> Admitted<'a> {
        if !is_pod(attributes) || attributes.operation != Operation::Create {
            return Admitted::YES;
        }
        Admitted::later(self.admit(attributes, object))
    }

    fn validate<'a>(
        &'a self,
        _session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a Value,
        _old: Option<&'a Value>,
    ) -> Admitted<'a> {
        if !is_pod(attributes) {
            return Admitted::YES;
        }
        Admitted::later(self.check(attributes, object))
    }
}

fn is_pod(attributes: &Attributes) -> bool {
    let subresource = attributes.subresource.as_str();
    attributes.resource.group.is_empty()
        && attributes.resource.plural == "pods"
        && matches!(subresource, "" | "ephemeralcontainers")
}

fn forbidden(attributes: &Attributes, pod: &Value, why: String) -> Status {
    Status::forbidden(&attributes.resource, subject(attributes, pod), &why)
}

fn account_name(pod: &Value) -> &str {
    get(pod, &["spec", "serviceAccountName"]).as_str().unwrap_or("")
}

/// The pod's wish counts before the account's.
fn wants_token(account: &Value, pod: &Value) -> bool {
    let wish = |value: &Value, path: &[&str]| get(value, path).as_bool();
    wish(pod, &["spec", "automountServiceAccountToken"])
        .or_else(|| wish(account, &["automountServiceAccountToken"]))
        .unwrap_or(true)
}

/// Mounts the token into every container that has nothing at its path yet.
fn mount_token(pod: &mut Value, new_name: impl FnOnce() -> String) {
    let own = items(pod, &["spec", "volumes"])
        .iter()
        .filter_map(|volume| get(volume, &["name"]).as_str())
        .find(|name| name.starts_with(VOLUME))
        .map(str::to_owned);
    let has_volume = own.is_some();
    let name = own.unwrap_or_else(new_name);
    let mount = json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH});
    let mut needed = false;
    for field in ["initContainers", "containers"] {
        let containers = pod.get_mut("spec").and_then(|spec| spec.get_mut(field));
        for container in containers.and_then(Value::as_array_mut).into_iter().flatten() {
            let taken = |mount: &Value| get(mount, &["mountPath"]) == MOUNT_PATH;
            if items(container, &["volumeMounts"]).iter().any(taken) {
                continue;
            }
            needed |= push(container, "volumeMounts", mount.clone());
        }
    }
    if needed
        && !has_volume
        && let Some(spec) = pod.get_mut("spec")
    {
        push(spec, "volumes", token_volume(&name));
    }
}

fn push(object: &mut Value, field: &str, item: Value) -> bool {
    let Some(object) = object.as_object_mut() else {
        return false;
    };
    let list = object.entry(field).or_insert(Value::Null);
    if list.is_null() {
        *list = json!([]);
    }
    list.as_array_mut().map(|list| list.push(item)).is_some()
}

/// Token, certificate and namespace, as programs in a cluster look for them.
fn token_volume(name: &str) -> Value {
    json!({"name": name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}})
}

/// A mirror pod exists already on its node; values from the API would never get there.
fn check_mirror(pod: &Value) -> Result<(), String> {
    if !account_name(pod).is_empty() {
        return Err("a mirror pod may not reference service accounts".to_owned());
    }
    if references::secrets(pod).next().is_some() {
        return Err("a mirror pod may not reference secrets".to_owned());
    }
    let mut sources = references::projected(pod);
    if sources.any(|source| get(source, &["serviceAccountToken"]).is_object()) {
        return Err("a mirror pod may not use ServiceAccountToken volume projections".to_owned());
    }
    Ok(())
}

/// The secrets that the environment of a container names, each with how a message calls the place.
fn secrets_of(container: &Value) -> impl Iterator<Item = (&str, String)> {
    let variables = items(container, &["env"]).iter().filter_map(|variable| {
        let secret = get(variable, &["valueFrom", "secretKeyRef"]);
        let name = get(variable, &["name"]).as_str().unwrap_or("");
        secret
            .is_object()
            .then(|| (get(secret, &["name"]).as_str().unwrap_or(""), format!("envVar {name}")))
    });
    let whole = items(container, &["envFrom"]).iter().filter_map(|source| {
        let secret = get(source, &["secretRef"]);
        secret
            .is_object()
            .then(|| (get(secret, &["name"]).as_str().unwrap_or(""), "envFrom".to_owned()))
    });
    variables.chain(whole)
}

fn names<'a>(account: &'a Value, field: &str) -> BTreeSet<&'a str> {
    let named = items(account, &[field]).iter();
    named.filter_map(|item| get(item, &["name"]).as_str()).collect()
}

fn enforces(account: &Value) -> bool {
    let word = get(account, &["metadata", "annotations", ENFORCE])
        .as_str()
        .unwrap_or("");
    // The words that Go takes for true.
    matches!(word, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

/// The pod of an account that says so uses only secrets that the account lists.
fn check_secrets(account: &Value, pod: &Value) -> Result<(), String> {
    if !enforces(account) {
        return Ok(());
    }
    let (name, mountable) = (object::name(account), names(account, "secrets"));
    for volume in items(pod, &["spec", "volumes"]) {
        if let Some(secret) = get(volume, &["secret", "secretName"]).as_str()
            && !mountable.contains(secret)
        {
            return Err(format!(
                "volume with secret.secretName=\"{secret}\" is not allowed because service account {name} does not reference that secret"
            ));
        }
    }
    check_environment(account, pod, "initContainers", "init container")?;
    check_environment(account, pod, "containers", "container")?;
    let pulls = names(account, "imagePullSecrets");
    for (index, pull) in items(pod, &["spec", "imagePullSecrets"]).iter().enumerate() {
        let pull = get(pull, &["name"]).as_str().unwrap_or("");
        if !pulls.contains(pull) {
            return Err(format!(
                "imagePullSecrets[{index}].name=\"{pull}\" is not allowed because service account {name} does not reference that \
                 imagePullSecret"
            ));
        }
    }
    Ok(())
}

fn check_ephemeral(account: &Value, pod: &Value) -> Result<(), String> {
    if !enforces(account) {
        return Ok(());
    }
    check_environment(account, pod, "ephemeralContainers", "ephemeral container")
}

fn check_environment(account: &Value, pod: &Value, field: &str, what: &str) -> Result<(), String> {
    let (name, mountable) = (object::name(account), names(account, "secrets"));
    for container in items(pod, &["spec", field]) {
        let refused = secrets_of(container).find(|(secret, _)| !mountable.contains(secret));
        if let Some((secret, place)) = refused {
            let container_name = get(container, &["name"]).as_str().unwrap_or("");
            return Err(format!(
                "{what} {container_name} with {place} referencing secret.secretName=\"{secret}\" is not allowed because service account \
                 {name} does not reference that secret"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_mounted_where_nothing_is() {
        let check = |spec: Value, want: Value| {
            let mut pod = json!({ "spec": spec });
            mount_token(&mut pod, || "kube-api-access-x".to_owned());
            assert_eq!(pod["spec"], want);
        };
        let mount = |name: &str| json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH});
        check(
            json!({"containers": [{"name": "a"}], "initContainers": [{"name": "b", "volumeMounts": null}]}),
            json!({
                "containers": [{"name": "a", "volumeMounts": [mount("kube-api-access-x")]}],
                "initContainers": [{"name": "b", "volumeMounts": [mount("kube-api-access-x")]}],
                "volumes": [token_volume("kube-api-access-x")],
            }),
        );
        let taken = json!({"containers": [{"name": "a", "volumeMounts": [{"name": "v", "mountPath": MOUNT_PATH}]}]});
        check(taken.clone(), taken);
        check(
            json!({"containers": [{"name": "a"}], "volumes": [{"name": "kube-api-access-mine"}]}),
            json!({
                "containers": [{"name": "a", "volumeMounts": [mount("kube-api-access-mine")]}],
                "volumes": [{"name": "kube-api-access-mine"}],
            }),
        );
    }

    #[test]
    fn secrets_that_an_account_does_not_list() {
        let account = json!({
            "metadata": {"name": "e", "annotations": {ENFORCE: "true"}},
            "secrets": [{"name": "ok"}], "imagePullSecrets": [{"name": "pull"}],
        });
        let check = |spec: Value, want: &str| {
            let result = check_secrets(&account, &json!({ "spec": spec }));
            assert_eq!(result.err().unwrap_or_default(), want);
        };
        let env = |secret: &str| json!([{"name": "c", "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": secret}}}]}]);
        check(
            json!({"containers": env("ok"), "imagePullSecrets": [{"name": "pull"}]}),
            "",
        );
        let tail = "is not allowed because service account e does not reference that secret";
        check(
            json!({"containers": env("no")}),
            &format!("container c with envVar A referencing secret.secretName=\"no\" {tail}"),
        );
        check(
            json!({"initContainers": [{"name": "d", "envFrom": [{"secretRef": {"name": "no"}}]}]}),
            &format!("init container d with envFrom referencing secret.secretName=\"no\" {tail}"),
        );
        check(
            json!({"volumes": [{"name": "v", "secret": {"secretName": "no"}}]}),
            &format!("volume with secret.secretName=\"no\" {tail}"),
        );
        check(
            json!({"imagePullSecrets": [{"name": "pull"}, {"name": "no"}]}),
            "imagePullSecrets[1].name=\"no\" is not allowed because service account e does not reference that imagePullSecret",
        );
        let free = json!({"metadata": {"name": "e"}});
        assert_eq!(
            check_secrets(&free, &json!({"spec": {"containers": env("no")}})),
            Ok(())
        );
    }
}
