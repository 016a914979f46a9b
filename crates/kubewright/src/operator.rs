//! An operator, declared once: the code that runs it also knows its CRDs.

use std::any::TypeId;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use prometheus_client::registry::Registry;
use schemars::JsonSchema;

use crate::cache::{Cache, Scope};
use crate::client::Client;
use crate::clock::{Clock, Entropy};
use crate::controller::Controller;
use crate::crd::{self, Generated};
use crate::election::LeaderElection;
use crate::error::{Error, Result};
use crate::form::Form;
use crate::form::packed::Budget;
use crate::manager::options::{DeclaredRead, Options, options};
use crate::manager::{Controllers, ManagerBuilder};
use crate::object::Object;
use crate::observe::{Listener, Observer};
use crate::rule::Rule;
use crate::runnable::Runnable;
use crate::sharding::Sharding;
use crate::webhook::{Authenticator, Conversion, ConversionDescription, Description, Webhook, WebhookServer};

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
    crds: Vec<Generated>,
    rules: Vec<Rule>,
    listener: Option<Listener>,
    set_ups: Vec<SetUp>,
    pub(crate) options: Options,
}

/// A step of an operator's set-up that needs the cluster.
type SetUp = Box<dyn FnOnce(Operator, kube::Client) -> BoxFuture<'static, Result<Operator>> + Send>;

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator")
            .field("name", &self.options.name)
            .field("controllers", &self.options.controllers)
            .finish_non_exhaustive()
    }
}

impl Operator {
    /// An operator without anything in it.
    pub fn new(name: impl Into<String>) -> Operator {
        Operator {
            crds: Vec::new(),
            rules: Vec::new(),
            listener: None,
            set_ups: Vec::new(),
            options: Options::new(name.into()),
        }
    }

    /// Adds a step of the set-up that asks the cluster or anything else: it is called with the operator as it is by then
    /// and the client, before anything runs, and answers the operator with more in it. An error ends the program.
    /// `kubewright manifests` and other readers of the declaration do not run it, so that kinds, webhooks and rights are
    /// declared outside of it.
    ///
    /// ```
    /// use kubewright::k8s_openapi::api::core::v1::Namespace;
    /// use kubewright::{Operator, Result, kube};
    ///
    /// async fn set_up(operator: Operator, client: kube::Client) -> Result<Operator> {
    ///     let tenants = kube::Api::<Namespace>::all(client).list(&Default::default()).await?;
    ///     let names = tenants.items.into_iter().filter_map(|tenant| tenant.metadata.name);
    ///     Ok(operator.namespaces(names))
    /// }
    ///
    /// let operator = Operator::new("shop").set_up(set_up);
    /// # drop(operator);
    /// ```
    pub fn set_up<F>(mut self, step: impl FnOnce(Operator, kube::Client) -> F + Send + 'static) -> Operator
    where
        F: Future<Output = Result<Operator>> + Send + 'static,
    {
        self.set_ups
            .push(Box::new(move |operator, client| Box::pin(step(operator, client))));
        self
    }

    /// The operator after the steps of [`Operator::set_up`], in their order. [`Operator::run`], [`run`](crate::run()) and
    /// test clusters call it; who builds a manager by hand calls it before [`Operator::manager`].
    ///
    /// # Errors
    /// Those of the steps.
    pub async fn prepared(mut self, client: &kube::Client) -> Result<Operator> {
        while !self.set_ups.is_empty() {
            let step = self.set_ups.remove(0);
            self = step(self, client.clone())
                .await
                .map_err(|error| error.in_part("set-up"))?;
        }
        Ok(self)
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// Adds a controller.
    pub fn controller(mut self, controller: Controller) -> Operator {
        self.options.controllers.push(controller);
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
    pub(crate) fn rules(&self) -> Vec<Rule> {
        let reads = self.options.reads.iter().map(|read| read.rule.clone());
        self.rules.iter().cloned().chain(reads).collect()
    }

    /// Adds the webhooks of a kind. They are served over HTTPS when [`Operator::webhook_server`] says where, which
    /// [`run`](crate::run()) does.
    pub fn webhook<K: Object>(mut self, webhook: Webhook<K>) -> Operator {
        self.options.webhooks.webhooks.extend(webhook.into_registered());
        self
    }

    /// Adds the conversions between the versions of a kind. They are served like webhooks.
    pub fn conversion<H: Object>(mut self, conversion: Conversion<H>) -> Operator {
        self.options.webhooks.conversions.push(Box::new(conversion));
        self
    }

    /// Answers whose tokens are, under this path. It is served like webhooks; the API server is told of it by its flag
    /// `--authentication-token-webhook-config-file`.
    pub fn authenticator(mut self, path: impl Into<String>, authenticator: impl Authenticator) -> Operator {
        self.options
            .webhooks
            .authenticators
            .push((path.into(), Box::new(authenticator)));
        self
    }

    /// The webhooks as the API server is told about them, in the order in which they were added.
    pub fn webhooks(&self) -> Vec<Description> {
        self.options.webhooks.descriptions()
    }

    /// The versions that are converted between.
    pub fn conversions(&self) -> Vec<ConversionDescription> {
        self.options.webhooks.conversions()
    }

    /// With `--leader-elect`: a Lease of the operator's name, unless it says another.
    pub(crate) fn elect_leader(self) -> Operator {
        match self.options.leader_election {
            Some(_) => self,
            None => {
                let lease = LeaderElection::new(&self.options.name);
                self.leader_election(lease)
            }
        }
    }

    /// With `--shards`: so many shards, by Leases of the operator's name unless it says another.
    pub(crate) fn share_out(self, shards: usize) -> Operator {
        let sharding = match self.options.sharding.clone() {
            Some(sharding) => sharding.into_shards(shards),
            None => Sharding::new(&self.options.name, shards),
        };
        self.sharding(sharding)
    }

    /// Sends observations to the program that started this process, if it asked: `kubewright dev` names a socket in
    /// [`OBSERVE_SOCKET`], and shows them. Without the variable nothing is observed. The operator never waits for the
    /// reader; observations that it cannot take are counted.
    ///
    /// [`OBSERVE_SOCKET`]: crate::OBSERVE_SOCKET
    pub fn observe_from_environment(mut self) -> Operator {
        if let Some((observer, listener)) =
            crate::observe::from_environment(&self.options.name, self.controller_names())
        {
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

    /// The controllers.
    pub fn controllers(&self) -> &[Controller] {
        &self.options.controllers
    }

    /// The names of the controllers, in the order in which they were added.
    pub fn controller_names(&self) -> Vec<String> {
        self.options.controllers.iter().map(Controller::name).collect()
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
        let client = Client::new(client.clone(), Cache::new(client)).of_manager(&self.options.name);
        for crd in self.crds()? {
            let name = crd.metadata.name.clone().unwrap_or_default();
            client.apply(crd).await?;
            established(&client, &name).await?;
        }
        Ok(())
    }

    /// The manager that runs this operator. Steps of [`Operator::set_up`] that were not run are not run by it; see
    /// [`Operator::prepared`].
    pub fn manager(self, client: kube::Client) -> ManagerBuilder {
        if !self.set_ups.is_empty() {
            tracing::warn!(
                operator = self.options.name,
                "the steps of its set-up are not run; call Operator::prepared before Operator::manager"
            );
        }
        ManagerBuilder::of(client, self.options)
    }

    /// Runs the operator until `shutdown` resolves or something fails.
    ///
    /// # Errors
    /// As [`Manager::run`](crate::Manager::run).
    pub async fn run(self, client: kube::Client, shutdown: impl Future<Output = ()> + Send) -> Result<()> {
        let mut operator = self.prepared(&client).await?.observe_from_environment();
        let orphaned = operator.orphaned();
        let shutdown = async {
            tokio::select! {
                biased;
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

options!(Operator);
