//! The cluster of `bundle run` and `bundle cleanup`: which one, its objects of OLM, and waiting for what OLM does.
//!
//! Not here: OLM itself, which the cluster must have.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kubewright::kube::api::{Api, ApiResource, DynamicObject};
use kubewright::kube::{self};
use kubewright_codegen::{Diagnostic, codes};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::output::Format;
use crate::rollout::{Cluster, duration};
use crate::target::{Request, Target};

/// How often the cluster is asked while waiting.
const INTERVAL: Duration = Duration::from_millis(250);

/// Which cluster, and how long.
#[derive(Debug, Args)]
pub(super) struct Where {
    /// Namespace of the operator [default: the context's, else default]
    #[arg(long, short = 'n', value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// Kubeconfig to read [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME", add = clap_complete::ArgValueCandidates::new(crate::complete::contexts))]
    context: Option<String>,

    /// How long to wait, such as 90s or 5m
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = duration)]
    timeout: Duration,
}

/// A cluster with OLM.
pub(super) struct Olm {
    cluster: Cluster,
    pub(super) namespace: String,
    end: Instant,
}

impl Where {
    /// Reaches the cluster.
    ///
    /// # Errors
    /// When there is none, it is not on this machine and was not named, or it has no OLM.
    pub(super) async fn connect(&self, command: &str, output: Format) -> Result<Olm, Diagnostic> {
        let target = Target::read(self.kubeconfig.as_deref(), self.context.as_deref())?;
        let named = self.kubeconfig.is_some() || self.context.is_some();
        target.allow(&Request {
            command,
            confirmed: named.then_some(target.context.as_str()),
            harm: "it is only the current context: you did not name it",
            alternative: "",
            flag: "--context",
        })?;
        let contexts = &target.config().contexts;
        let context = contexts.iter().find(|context| context.name == target.context);
        let usual = context.and_then(|context| context.context.as_ref()?.namespace.clone());
        let cluster = Cluster::connect(&target).await?;
        output.say(&cluster.title, &json!({"event": "cluster", "cluster": cluster.title}));
        let olm = Olm {
            cluster,
            namespace: self.namespace.clone().or(usual).unwrap_or_else(|| "default".to_owned()),
            end: Instant::now() + self.timeout,
        };
        match olm
            .cluster
            .client
            .list_api_group_resources("operators.coreos.com/v1alpha1")
            .await
        {
            Ok(_) => Ok(olm),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                Err(Diagnostic::new(codes::config::NO_KIND, format!("cannot {command}"))
                    .because(
                        "the cluster has no CatalogSource and Subscription of operators.coreos.com: OLM is not there",
                    )
                    .fix("install OLM (operator-sdk olm install), or use kubewright deploy, which needs none"))
            }
            Err(why) => Err(olm.cluster.failed(format!("cannot {command}"), &why)),
        }
    }
}

/// A kind by its name in lists.
pub(super) fn resource(api_version: &str, kind: &str, plural: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// A kind of OLM.
pub(super) fn of_olm(kind: &str) -> ApiResource {
    let version = if kind == "OperatorGroup" { "v1" } else { "v1alpha1" };
    resource(
        &format!("operators.coreos.com/{version}"),
        kind,
        &format!("{}s", kind.to_lowercase()),
    )
}

impl Olm {
    pub(super) fn namespaced(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.cluster.client.clone(), &self.namespace, resource)
    }

    pub(super) fn all(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::all_with(self.cluster.client.clone(), resource)
    }

    pub(super) fn failed(&self, attempted: impl Into<String>, why: &kube::Error) -> Diagnostic {
        self.cluster.failed(attempted.into(), why)
    }

    /// Waits until an object is as it should be, and answers what `done` finds; `None` is an object that is not there.
    ///
    /// # Errors
    /// When the time is over, with `so_far`'s words about the last that was seen; or the cluster does not answer.
    pub(super) async fn wait<T>(
        &self,
        api: &Api<DynamicObject>,
        name: &str,
        what: &str,
        done: impl Fn(Option<&Value>) -> Result<Option<T>, Diagnostic>,
        so_far: impl Fn(&Value) -> String,
    ) -> Result<T, Diagnostic> {
        let _working = crate::progress::during(format!("waiting for {what}"));
        loop {
            let found = api
                .get_opt(name)
                .await
                .map_err(|why| self.failed(format!("cannot wait for {what}"), &why))?;
            let found = found.map(|object| json!(object));
            if let Some(done) = done(found.as_ref())? {
                return Ok(done);
            }
            if Instant::now() >= self.end {
                let so_far = found.as_ref().map_or_else(|| format!("{name} is not there"), so_far);
                return Err(Diagnostic::new(codes::config::NOT_READY, format!("gave up waiting for {what}"))
                    .because(so_far)
                    .fix("--timeout waits longer; everything that was created stays: kubewright bundle cleanup PACKAGE"));
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }
}
