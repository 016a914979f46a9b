//! One operator for many clusters, which come and go: each Secret with a kubeconfig is a cluster (a provider of
//! multicluster-runtime, which engages and disengages clusters).
//!
//! Invariants: a cluster is engaged under the name of its Secret, once; a kubeconfig that cannot be used, or a cluster
//! that cannot be reached or left, holds up no other; when a kubeconfig changes, its cluster is disengaged before it is
//! engaged anew, so that nothing works with the old credentials any more; a kubeconfig runs no program and reads no file of this one: whoever may write such a Secret may not more than
//! name a server and what to show it.
//!
//! Not here: how a manager keeps several clusters, see `manager/clusters.rs`, and what controllers do in them, see
//! `controller/engaged.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use k8s_openapi::api::core::v1::Secret;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cache::Scope;
use crate::client::{Client, connect};
use crate::error::{Error, Result};
use crate::manager::Controllers;
use crate::operator::Operator;
use crate::rule::Rule;
use crate::stop::Stop;

/// The label of Secrets with kubeconfigs, as multicluster-runtime has it.
const LABEL: (&str, &str) = ("sigs.k8s.io/multicluster-runtime-kubeconfig", "true");
/// How long until a cluster that could not be engaged is tried again.
const AGAIN: Duration = Duration::from_secs(30);
/// How long until the list of Secrets is looked at again that is not there yet.
const SOON: Duration = Duration::from_secs(1);

/// Clusters from Secrets of the home cluster: each Secret in the namespace with the label
/// `sigs.k8s.io/multicluster-runtime-kubeconfig: "true"` holds a kubeconfig under the key `kubeconfig`, and is a cluster
/// under the Secret's name. For [`Operator::fleet`]. Controllers that work
/// [in every cluster](crate::Controller::in_every_cluster) do so in each of them.
///
/// A kubeconfig holds everything itself: the server, its authority and what is shown to it, such as a token or a client
/// certificate, as data. One that names files or programs is refused, because they would be this program's.
///
/// ```
/// use std::sync::Arc;
/// use kubewright::k8s_openapi::api::core::v1::ConfigMap;
/// use kubewright::{Action, Context, Controller, KubeconfigSecrets, Operator, Reconciler, Result};
///
/// struct Census;
///
/// impl Reconciler for Census {
///     type Object = ConfigMap;
///
///     async fn reconcile(&self, config: Arc<ConfigMap>, ctx: Context) -> Result<Action> {
///         tracing::info!(cluster = ctx.request().cluster(), name = ctx.request().name(), "counted");
///         Ok(Action::await_change())
///     }
/// }
///
/// fn operator() -> Operator {
///     Operator::new("census")
///         .controller(Controller::of(Census).in_every_cluster())
///         .fleet(KubeconfigSecrets::new("census-system"))
/// }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct KubeconfigSecrets {
    namespace: String,
    label: (String, String),
    key: String,
}

impl KubeconfigSecrets {
    /// The Secrets of a namespace of the home cluster.
    pub fn new(namespace: impl Into<String>) -> KubeconfigSecrets {
        KubeconfigSecrets {
            namespace: namespace.into(),
            label: (LABEL.0.to_owned(), LABEL.1.to_owned()),
            key: "kubeconfig".to_owned(),
        }
    }

    /// Secrets with another label.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> KubeconfigSecrets {
        self.label = (key.into(), value.into());
        self
    }

    /// The key of the kubeconfig in a Secret; `value` for those of Cluster API.
    pub fn key(mut self, key: impl Into<String>) -> KubeconfigSecrets {
        self.key = key.into();
        self
    }

    /// Engages and disengages clusters until the stop.
    async fn keep(self, controllers: Controllers, client: Client, stop: Stop) -> Result<()> {
        let scope = Scope::namespace(&self.namespace).labels([self.label.clone()].into_iter().collect());
        let secrets = client.cache().informer_in::<Secret>(scope);
        let changed = Arc::new(Notify::new());
        let notify = changed.clone();
        secrets.add_key_handler(move |_| notify.notify_one());
        // With the kubeconfig of each; and what was last told of those that fail.
        let mut engaged: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut told: BTreeMap<String, String> = BTreeMap::new();
        // Those that leave as soon as their reconciles have ended, which takes the time that these take.
        let mut leaving: FuturesUnordered<BoxFuture<'_, (String, Result<bool>)>> = FuturesUnordered::new();
        let mut parting: BTreeSet<String> = BTreeSet::new();
        let mut stuck: Vec<String> = Vec::new();
        let mut again = Instant::now(); // the first look is at once
        loop {
            tokio::select! {
                biased;
                () = stop.requested() => return Ok(()),
                Some((name, left)) = leaving.next() => {
                    match left {
                        Ok(_) => {
                            tracing::info!(cluster = name, "the cluster is disengaged");
                            parting.remove(&name);
                            engaged.remove(&name);
                        }
                        // Somebody else's controller works there.
                        Err(error) => {
                            tell(&mut told, &name, "disengaged", &error);
                            stuck.push(name);
                        }
                    }
                }
                () = changed.notified() => {}
                () = tokio::time::sleep_until(again) => {
                    again = Instant::now() + AGAIN;
                    for name in stuck.drain(..) {
                        parting.remove(&name);
                    }
                }
            }
            if !secrets.is_synced() {
                // Nothing is gone only because it was not read yet.
                again = again.min(Instant::now() + SOON);
                continue;
            }
            let stored = secrets.store().list();
            let wanted: BTreeMap<String, Vec<u8>> = stored.iter().filter_map(|one| self.named(one)).collect();
            for (name, kubeconfig) in &engaged {
                if wanted.get(name) != Some(kubeconfig) && parting.insert(name.clone()) {
                    let (name, controllers) = (name.clone(), &controllers);
                    leaving.push(Box::pin(async move {
                        let left = controllers.remove_cluster(&name).await;
                        (name, left)
                    }));
                }
            }
            for (name, kubeconfig) in wanted {
                if engaged.contains_key(&name) {
                    continue;
                }
                let joined = async {
                    let client = client_of(&kubeconfig).await?;
                    controllers.add_cluster(&*name, client).await
                };
                match joined.await {
                    Ok(()) => {
                        tracing::info!(cluster = name, "the cluster is engaged");
                        told.remove(&name);
                        engaged.insert(name, kubeconfig);
                    }
                    Err(error) => tell(&mut told, &name, "engaged", &error),
                }
            }
        }
    }

    fn named(&self, secret: &Arc<Secret>) -> Option<(String, Vec<u8>)> {
        let kubeconfig = secret.data.as_ref()?.get(&self.key)?.0.clone();
        Some((secret.metadata.name.clone()?, kubeconfig))
    }
}

/// Says why a cluster cannot be engaged or disengaged: once for each reason. It is tried again.
fn tell(told: &mut BTreeMap<String, String>, cluster: &str, what: &str, error: &Error) {
    let text = error.to_string();
    if told.get(cluster) != Some(&text) {
        tracing::warn!(cluster, error = text, "the cluster cannot be {what}; it is tried again");
        told.insert(cluster.to_owned(), text);
    }
}

/// A client for a kubeconfig that someone else wrote.
async fn client_of(kubeconfig: &[u8]) -> Result<kube::Client> {
    let wrong = |why: &dyn fmt::Display| Error::Configuration(format!("its kubeconfig cannot be used: {why}"));
    let text = std::str::from_utf8(kubeconfig).map_err(|error| wrong(&error))?;
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|error| wrong(&error))?;
    if let Some(field) = reaches_out(&kubeconfig) {
        return Err(wrong(&format!(
            "{field} names a file or a program, which would be this operator's; put the data itself into the kubeconfig"
        )));
    }
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    connect(config.map_err(|error| wrong(&error))?)
}

/// The first field that would read a file or run a program.
fn reaches_out(kubeconfig: &Kubeconfig) -> Option<&'static str> {
    let users = kubeconfig.auth_infos.iter().filter_map(|user| user.auth_info.as_ref());
    for user in users {
        let fields = [
            ("exec", user.exec.is_some()),
            ("auth-provider", user.auth_provider.is_some()),
            ("tokenFile", user.token_file.is_some()),
            ("client-certificate", user.client_certificate.is_some()),
            ("client-key", user.client_key.is_some()),
        ];
        if let Some((field, _)) = fields.iter().find(|(_, is_set)| *is_set) {
            return Some(field);
        }
    }
    let clusters = kubeconfig
        .clusters
        .iter()
        .filter_map(|cluster| cluster.cluster.as_ref());
    let mut clusters = clusters.filter(|cluster| cluster.certificate_authority.is_some());
    clusters.next().map(|_| "certificate-authority")
}

impl Operator {
    /// Has the clusters of a list of kubeconfigs, which may change while the operator runs: a cluster joins when its
    /// kubeconfig is there, leaves when that is gone, and leaves and joins anew when it changes. Controllers
    /// [in every cluster](crate::Controller::in_every_cluster) work there meanwhile. All replicas have the clusters;
    /// leader election and sharding decide, as for other controllers, which of them reconciles.
    ///
    /// The role gets the right to read Secrets in that namespace. What the controllers may do elsewhere is a matter of
    /// the kubeconfigs.
    pub fn fleet(self, clusters: KubeconfigSecrets) -> Operator {
        let controllers = self.controllers_handle();
        let name = format!("clusters of {}", clusters.namespace);
        let right = Rule::of::<Secret>()
            .namespace(&clusters.namespace)
            .verbs(["get", "list", "watch"]);
        self.rbac(right)
            .runnable_on_every_replica(name, move |client: Client, stop: Stop| {
                clusters.clone().keep(controllers.clone(), client, stop)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever writes the Secret gets nothing of the operator's own machine.
    #[tokio::test]
    async fn a_kubeconfig_runs_nothing_and_reads_nothing() {
        let check = async |user: &str, cluster: &str, refused: Option<&str>| {
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
                 clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1', {cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
            );
            let made = client_of(text.as_bytes()).await.err().map(|error| error.to_string());
            match refused {
                None => assert_eq!(made, None, "{text}"),
                Some(field) => assert!(
                    made.is_some_and(|why| why.contains(&format!("{field} names a file or a program"))),
                    "{text}"
                ),
            }
        };
        check("token: secret", "", None).await;
        check(
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: id}",
            "",
            Some("exec"),
        )
        .await;
        check(
            "auth-provider: {name: gcp, config: {cmd-path: id}}",
            "",
            Some("auth-provider"),
        )
        .await;
        check("tokenFile: /var/run/secrets/token", "", Some("tokenFile")).await;
        check("client-certificate: /etc/passwd", "", Some("client-certificate")).await;
        check("client-key: /etc/passwd", "", Some("client-key")).await;
        check(
            "token: secret",
            "certificate-authority: /etc/passwd",
            Some("certificate-authority"),
        )
        .await;
    }
}
