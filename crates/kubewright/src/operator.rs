//! An operator, declared once: the code that runs it also knows its CRDs.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use prometheus_client::registry::Registry;
use schemars::JsonSchema;

use crate::cache::Cache;
use crate::client::Client;
use crate::controller::Controller;
use crate::crd::{self, Generated};
use crate::election::LeaderElection;
use crate::error::{Error, Result};
use crate::manager::{Manager, ManagerBuilder};
use crate::object::Object;
use crate::observe::{Listener, Observer};
use crate::rule::Rule;
use crate::runnable::Runnable;
use crate::sharding::Sharding;
use crate::webhook::{Authenticator, Conversion, ConversionDescription, Description, Parts, Webhook, WebhookServer};

/// How long a CRD may take to be established.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(30);

/// Everything that makes up an operator: its name, its controllers, the CRDs of its types. It runs nothing by itself.
///
/// ```no_run
/// use kubewright::{Controller, Operator, Result};
/// # use std::sync::Arc;
/// # use kubewright::{Action, Context, Reconciler};
/// # use kubewright::k8s_openapi::api::core::v1::ConfigMap;
/// # struct Mirror;
/// # impl Reconciler for Mirror {
/// #     type Object = ConfigMap;
/// #     async fn reconcile(&self, _: Arc<ConfigMap>, _: Context) -> Result<Action> { Ok(Action::await_change()) }
/// # }
///
/// fn operator() -> Operator {
///     Operator::new("mirror").controller(Controller::of::<ConfigMap>(Mirror))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// async fn main() -> Result<()> {
///     let config = kubewright::kube::Config::infer().await.map_err(kubewright::kube::Error::InferConfig)?;
///     let client = kubewright::connect(config)?;
///     operator().run(client, kubewright::shutdown_signal()).await
/// }
/// ```
#[must_use]
pub struct Operator {
    name: String,
    controllers: Vec<Controller>,
    runnables: Vec<(String, Box<dyn Runnable>)>,
    leader_election: Option<LeaderElection>,
    sharding: Option<Sharding>,
    crds: Vec<Generated>,
    rules: Vec<Rule>,
    observers: Vec<Arc<dyn Observer>>,
    listener: Option<Listener>,
    health: Option<String>,
    webhooks: Parts,
    webhook_server: Option<WebhookServer>,
    metrics: Vec<AddMetrics>,
    namespaces: Vec<String>,
    clusters: Vec<(String, kube::Client)>,
}

/// Adds metrics of the operator's own.
type AddMetrics = Box<dyn FnOnce(&mut Registry) + Send>;

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator")
            .field("name", &self.name)
            .field("controllers", &self.controllers)
            .finish_non_exhaustive()
    }
}

impl Operator {
    /// An operator without anything in it.
    pub fn new(name: impl Into<String>) -> Operator {
        Operator {
            name: name.into(),
            controllers: Vec::new(),
            runnables: Vec::new(),
            leader_election: None,
            sharding: None,
            crds: Vec::new(),
            rules: Vec::new(),
            observers: Vec::new(),
            listener: None,
            health: None,
            webhooks: Parts::default(),
            webhook_server: None,
            metrics: Vec::new(),
            namespaces: Vec::new(),
            clusters: Vec::new(),
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a controller.
    pub fn controller(mut self, controller: Controller) -> Operator {
        self.controllers.push(controller);
        self
    }

    /// Adds the CRD of a type (`#[derive(CustomResource)]`). Several versions of one kind become one CRD. The stored
    /// version is the only one without `#[kube(storage = false)]`, or the hub of the kind's [`Operator::conversion`].
    pub fn crd<K: CustomResourceExt + JsonSchema>(mut self) -> Operator {
        self.crds.push(Generated::of::<K>());
        self
    }

    /// Allows the operator something that no controller says (a runnable's needs). See [`Controller::rbac`].
    pub fn rbac(mut self, rule: Rule) -> Operator {
        self.rules.push(rule);
        self
    }

    /// The CRDs as they were generated, one for each version.
    pub(crate) fn generated(&self) -> &[Generated] {
        &self.crds
    }

    /// The rules of [`Operator::rbac`].
    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Adds the webhooks of a kind. They are served over HTTPS when [`Operator::webhook_server`] says where, which
    /// [`run`](crate::run()) does.
    pub fn webhook<K: Object>(mut self, webhook: Webhook<K>) -> Operator {
        self.webhooks.webhooks.extend(webhook.into_registered());
        self
    }

    /// Adds the conversions between the versions of a kind. They are served like webhooks.
    pub fn conversion<H: Object>(mut self, conversion: Conversion<H>) -> Operator {
        self.webhooks.conversions.push(Box::new(conversion));
        self
    }

    /// Answers whose tokens are, under this path. It is served like webhooks; the API server is told of it by its flag
    /// `--authentication-token-webhook-config-file`.
    pub fn authenticator(mut self, path: impl Into<String>, authenticator: impl Authenticator) -> Operator {
        self.webhooks
            .authenticators
            .push((path.into(), Box::new(authenticator)));
        self
    }

    /// Serves webhooks and conversions here. Off by default: tests call them without a socket.
    pub fn webhook_server(mut self, server: WebhookServer) -> Operator {
        self.webhook_server = Some(server);
        self
    }

    /// The webhooks as the API server is told about them, in the order in which they were added.
    pub fn webhooks(&self) -> Vec<Description> {
        self.webhooks.descriptions()
    }

    /// The versions that are converted between.
    pub fn conversions(&self) -> Vec<ConversionDescription> {
        self.webhooks.conversions()
    }

    /// Adds something that runs beside the controllers.
    pub fn runnable(mut self, name: impl Into<String>, runnable: impl Runnable) -> Operator {
        self.runnables.push((name.into(), Box::new(runnable)));
        self
    }

    /// Lets one of several replicas act; see [`LeaderElection`]. In a program the flag `--leader-elect` does so too,
    /// with a Lease of the operator's name.
    pub fn leader_election(mut self, election: LeaderElection) -> Operator {
        self.leader_election = Some(election);
        self
    }

    /// With `--leader-elect`: a Lease of the operator's name, unless it says another.
    pub(crate) fn elect_leader(self) -> Operator {
        match self.leader_election {
            Some(_) => self,
            None => {
                let lease = LeaderElection::new(&self.name);
                self.leader_election(lease)
            }
        }
    }

    /// Lets several replicas share the objects of all controllers out; see [`Sharding`]. In a program the flag
    /// `--shards` does so too, with Leases of the operator's name.
    pub fn sharding(mut self, sharding: Sharding) -> Operator {
        self.sharding = Some(sharding);
        self
    }

    /// With `--shards`: so many shards, by Leases of the operator's name unless it says another.
    pub(crate) fn share_out(self, shards: usize) -> Operator {
        let sharding = match self.sharding.clone() {
            Some(sharding) => sharding.into_shards(shards),
            None => Sharding::new(&self.name, shards),
        };
        self.sharding(sharding)
    }

    /// Tells an observer everything that happens.
    pub fn observe(mut self, observer: Arc<dyn Observer>) -> Operator {
        self.observers.push(observer);
        self
    }

    /// Sends observations to the program that started this process, if it asked: `kubewright dev` names a socket in
    /// [`OBSERVE_SOCKET`], and shows them. Without the variable nothing is observed. The operator never waits for the
    /// reader; observations that it cannot take are counted.
    ///
    /// [`OBSERVE_SOCKET`]: crate::OBSERVE_SOCKET
    pub fn observe_from_environment(mut self) -> Operator {
        if let Some((observer, listener)) = crate::observe::from_environment(&self.name, self.controller_names()) {
            self.listener = Some(listener);
            return self.observe(observer);
        }
        self
    }

    /// Waits until the program that started this process to observe it is gone, because then nothing else would stop
    /// the operator. Without one it waits for ever.
    pub(crate) fn orphaned(&mut self) -> impl Future<Output = ()> + Send + 'static {
        let listener = self.listener.take();
        async move {
            match listener {
                Some(listener) => listener.gone().await,
                None => std::future::pending().await,
            }
            tracing::warn!("nobody listens any more to what this operator does; it ends");
        }
    }

    /// Adds metrics of the operator's own; see [`Metrics`](crate::Metrics).
    pub fn metrics(mut self, add: impl FnOnce(&mut Registry) + Send + 'static) -> Operator {
        self.metrics.push(Box::new(add));
        self
    }

    /// Restricts the operator to these namespaces; see [`ManagerBuilder::namespaces`]. In a program `WATCH_NAMESPACE`
    /// and the flag `--namespaces` say so too, and count more.
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Operator {
        self.namespaces = namespaces.into_iter().map(Into::into).collect();
        self
    }

    /// Adds another cluster, under a name; see [`ManagerBuilder::cluster`].
    pub fn cluster(mut self, name: impl Into<String>, client: kube::Client) -> Operator {
        self.clusters.push((name.into(), client));
        self
    }

    /// Answers health probes on this address.
    pub fn health(mut self, address: impl Into<String>) -> Operator {
        self.health = Some(address.into());
        self
    }

    /// The controllers.
    pub fn controllers(&self) -> &[Controller] {
        &self.controllers
    }

    /// The names of the controllers, in the order in which they were added.
    pub fn controller_names(&self) -> Vec<String> {
        self.controllers.iter().map(Controller::name).collect()
    }

    /// The CRDs of the operator's types, one for each kind.
    ///
    /// # Errors
    /// [`Error::Configuration`] when a type has no CRD (`kubewright manifests` tells more), two versions of one kind do
    /// not fit together, or nothing says which one is stored.
    pub fn crds(&self) -> Result<Vec<CustomResourceDefinition>> {
        let mut kinds: Vec<Vec<CustomResourceDefinition>> = Vec::new();
        for generated in &self.crds {
            let crd = crd::finished(generated)?;
            match kinds
                .iter_mut()
                .find(|versions| versions[0].metadata.name == crd.metadata.name)
            {
                Some(versions) => versions.push(crd),
                None => kinds.push(vec![crd]),
            }
        }
        let merge = |versions: Vec<CustomResourceDefinition>| {
            let name = versions[0].metadata.name.clone().unwrap_or_default();
            let stored = stored_version(&name, &versions, &self.conversions())?;
            kube::core::crd::merge_crds(versions, &stored)
                .map_err(|error| Error::Configuration(format!("the versions of {name} do not make one CRD: {error}")))
        };
        kinds.into_iter().map(merge).collect()
    }

    /// Creates or updates the CRDs in a cluster and waits until they are established.
    ///
    /// # Errors
    /// [`Error::Api`] when the server refuses one; [`Error::NotSynced`] when one is not established within 30 seconds.
    pub async fn install_crds(&self, client: kube::Client) -> Result<()> {
        let client = Client::new(client.clone(), Cache::new(client)).with_field_manager(&self.name);
        for crd in self.crds()? {
            let name = crd.metadata.name.clone().unwrap_or_default();
            client.apply(crd).await?;
            established(&client, &name).await?;
        }
        Ok(())
    }

    /// The manager that runs this operator.
    pub fn manager(self, client: kube::Client) -> ManagerBuilder {
        let mut builder = Manager::builder(client).name(self.name).namespaces(self.namespaces);
        for (name, client) in self.clusters {
            builder = builder.cluster(name, client);
        }
        for observer in self.observers {
            builder = builder.observe(observer);
        }
        for controller in self.controllers {
            builder = builder.add(controller);
        }
        for (name, runnable) in self.runnables {
            builder = builder.runnable(name, Boxed(runnable));
        }
        if let Some(election) = self.leader_election {
            builder = builder.leader_election(election);
        }
        if let Some(sharding) = self.sharding {
            builder = builder.sharding(sharding);
        }
        for add in self.metrics {
            builder = builder.metrics(add);
        }
        builder = builder.webhook_parts(self.webhooks);
        if let Some(server) = self.webhook_server {
            builder = builder.webhook_server(server);
        }
        match self.health {
            Some(address) => builder.health(address),
            None => builder,
        }
    }

    /// Runs the operator until `shutdown` resolves or something fails.
    ///
    /// # Errors
    /// As [`Manager::run`].
    pub async fn run(self, client: kube::Client, shutdown: impl Future<Output = ()> + Send) -> Result<()> {
        let mut operator = self.observe_from_environment();
        let orphaned = operator.orphaned();
        let shutdown = async {
            tokio::select! {
                () = shutdown => {}
                () = orphaned => {}
            }
        };
        operator.manager(client).build()?.run(shutdown).await
    }
}

/// The only version that claims to be stored, or the hub of its kind: `#[derive(CustomResource)]` says `storage = true`
/// unless told otherwise. The rule of `kubewright manifests`.
fn stored_version(
    name: &str,
    versions: &[CustomResourceDefinition],
    conversions: &[ConversionDescription],
) -> Result<String> {
    let all = || versions.iter().flat_map(|crd| &crd.spec.versions);
    let claims: Vec<&str> = all()
        .filter(|version| version.storage)
        .map(|version| version.name.as_str())
        .collect();
    if let [only] = claims[..] {
        return Ok(only.to_owned());
    }
    let spec = &versions[0].spec;
    let hub = conversions
        .iter()
        .map(|conversion| &conversion.hub)
        .find(|hub| hub.group == spec.group && hub.kind == spec.names.kind);
    hub.map(|hub| hub.version.clone()).ok_or_else(|| {
        let claims = match claims[..] {
            [] => "no version says storage = true".to_owned(),
            _ => format!("{} all claim it", claims.join(", ")),
        };
        Error::Configuration(format!(
            "cannot say which version of {name} is stored: {claims}, and there is no conversion hub; say #[kube(storage = false)] on all \
             versions but one, or declare Operator::conversion (KWR0310)"
        ))
    })
}

/// A boxed runnable is a runnable.
struct Boxed(Box<dyn Runnable>);

impl Runnable for Boxed {
    fn run(&self, client: Client, stop: crate::stop::Stop) -> futures::future::BoxFuture<'static, Result<()>> {
        self.0.run(client, stop)
    }
}

/// Waits until the CRD says that it is served.
async fn established(client: &Client, name: &str) -> Result<()> {
    let deadline = tokio::time::Instant::now() + ESTABLISHED_WITHIN;
    let mut pause = Duration::from_millis(5);
    loop {
        let crd = client.live::<CustomResourceDefinition>(None, name).await?;
        let conditions = crd
            .and_then(|crd| crd.status)
            .and_then(|status| status.conditions)
            .unwrap_or_default();
        if conditions
            .iter()
            .any(|condition| condition.type_ == "Established" && condition.status == "True")
        {
            return Ok(());
        }
        if tokio::time::Instant::now() >= deadline {
            let reasons = conditions
                .iter()
                .filter_map(|condition| condition.message.clone())
                .collect::<Vec<_>>()
                .join("; ");
            let reason = if reasons.is_empty() {
                "the API server has not established it".to_owned()
            } else {
                reasons
            };
            return Err(Error::NotSynced {
                what: format!("CustomResourceDefinition {name}"),
                waited: ESTABLISHED_WITHIN,
                reason,
            });
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}
