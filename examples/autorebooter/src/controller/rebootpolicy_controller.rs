//! The controller `rebootpolicy`: reads the value of a policy, and restarts its targets when it has changed and rested.
//!
//! A restart has three writes: the status says that one is due, the targets are patched, the status says that it was
//! done. Each may be the last one of a process; the next process comes to the same decision, and finds the targets that
//! carry the mark of it.
//!
//! Not here: the decisions (`policy`), the way to databases (`world`), the texts of the status (`report`).

use kubewright::k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use kubewright::k8s_openapi::api::core::v1::Secret;
use kubewright::k8s_openapi::api::discovery::v1::EndpointSlice;
use kubewright::predicate;
use kubewright::prelude::*;

use autorebooter_api::v1alpha1::{RebootPolicy, TargetKind};

use super::connection::{self, Missing};
use super::report::{self, Sight};
use super::targets::{self, Order};
use crate::policy::decide::{Decision, decide};
use crate::policy::terms::{self, Terms};
use crate::policy::value;
use crate::world::{Question, Trouble, World};

/// Reconciles [`RebootPolicy`].
pub struct RebootPolicyReconciler {
    world: Arc<dyn World>,
}

#[rbac(groups = "apps", resources = "deployments;statefulsets;daemonsets", verbs = "patch")]
#[rbac(groups = "db.example.com", resources = "databases", verbs = "get")]
impl Reconciler for RebootPolicyReconciler {
    type Object = RebootPolicy;

    // ANCHOR: reconcile
    /// Called when a RebootPolicy, its Secret or a target has changed, when the database tells of a change, and at
    /// every interval.
    async fn reconcile(&self, policy: Arc<RebootPolicy>, ctx: Context) -> Result<Action> {
        if policy.metadata.deletion_timestamp.is_some() {
            self.world.leave(ctx.request());
            return Ok(Action::await_change());
        }
        if policy.spec.suspend {
            self.world.leave(ctx.request());
            report::suspended(&policy, &ctx).await?;
            return Ok(Action::await_change());
        }
        let Some(question) = terms::question(&policy.spec) else {
            return Err(Error::terminal("the policy names neither a table nor a query, or both"));
        };
        let source = match connection::find(&policy, &ctx).await? {
            Ok(source) => source,
            Err(Missing(reason, why)) => {
                self.world.leave(ctx.request());
                return report::missing(&policy, &ctx, reason, &why).await;
            }
        };
        match self.world.look(ctx.request(), &source, &question).await {
            Ok(value) => self.act(&policy, &ctx, &question, value).await,
            Err(Trouble::Unreachable(why)) => report::unreachable(&policy, &ctx, "ConnectionFailed", &why).await,
            Err(Trouble::BadQuery(why)) => report::bad_query(&policy, &ctx, &why).await,
        }
    }
    // ANCHOR_END: reconcile

    /// Called when a RebootPolicy is gone: its connection is closed, and its targets stay as they are.
    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.world.leave(&request);
        Ok(Action::await_change())
    }
}

impl RebootPolicyReconciler {
    async fn act(
        &self,
        policy: &RebootPolicy,
        ctx: &Context,
        question: &Question,
        value: crate::world::Value,
    ) -> Result<Action> {
        let terms = Terms::of(&policy.spec);
        let hash = value::hash(&value);
        let mut found = Vec::new();
        for target in &policy.spec.targets {
            found.push((target, targets::find(target, ctx).await?));
        }
        let status = policy.status.clone().unwrap_or_default();
        let decision = decide(&terms, &status, &hash, ctx.now());
        let sight = Sight {
            display: policy.spec.show_value.then(|| value::display(&value)),
            found: &found,
            hash,
            terms: &terms,
        };
        let policy = &*report::seen(policy, ctx, &sight, &decision).await?;
        if let Decision::Restart { .. } = decision {
            let changed = format!("{} changed", terms::described(&question.what));
            let order = Order {
                mark: format!("{}/{}", ctx.request().name(), sight.hash),
                message: format!("Restarted by RebootPolicy {}: {changed}", ctx.request().name()),
            };
            let mut failed = None;
            for (target, found) in &found {
                if let Some(found) = found {
                    // A restart that fails holds up no other, and is tried again.
                    failed = targets::restart(target, found, &order, ctx).await.err().or(failed);
                }
            }
            if let Some(error) = failed {
                return Err(error);
            }
            report::restarted(policy, ctx, &sight, &changed).await?;
        }
        let wait = match decision {
            Decision::Debounce { wait, .. } | Decision::Limit { wait, .. } => wait.min(terms.poll_interval),
            Decision::Rest | Decision::Record | Decision::Restart { .. } => terms.poll_interval,
        };
        Ok(Action::requeue_after(wait))
    }
}

/// The policies of a namespace that are about something.
async fn policies(
    namespace: Option<String>,
    client: Client,
    about: impl Fn(&RebootPolicy) -> bool,
) -> Result<Vec<Request>> {
    let all = client.list::<RebootPolicy>(namespace.as_deref()).await?;
    Ok(all
        .iter()
        .filter(|policy| about(policy))
        .map(|policy| Request::of(&**policy))
        .collect())
}

/// Workloads wake the policies that name them.
fn workloads<K: Object>(kind: TargetKind) -> Source {
    Watch::<K>::new().map_with(move |workload, client| {
        let name = workload.name_any();
        let names = move |policy: &RebootPolicy| {
            policy
                .spec
                .targets
                .iter()
                .any(|target| target.kind == kind && target.name == name)
        };
        policies(workload.namespace(), client, names)
    })
}

/// The controller: what it watches.
pub fn controller(world: Arc<dyn World>, waker: &Waker) -> Controller {
    // A Database's Secret and addresses are named after it or said in its status: any of the namespace may be the one.
    let of_databases = |policy: &RebootPolicy| policy.spec.source.database_ref.is_some();
    let secrets = Watch::<Secret>::new().map_with(move |secret, client| {
        let name = secret.name_any();
        let reads = move |policy: &RebootPolicy| {
            let key = policy.spec.source.connection_secret_ref.as_ref();
            of_databases(policy) || key.is_some_and(|key| key.name == name)
        };
        policies(secret.namespace(), client, reads)
    });
    let addresses = Watch::<EndpointSlice>::new()
        .map_with(move |slice: Arc<EndpointSlice>, client| policies(slice.namespace(), client, of_databases));
    Controller::of(RebootPolicyReconciler { world })
        .with_predicate::<RebootPolicy>(predicate::generation_changed)
        .source(secrets)
        .source(addresses)
        .source(workloads::<Deployment>(TargetKind::Deployment))
        .source(workloads::<StatefulSet>(TargetKind::StatefulSet))
        .source(workloads::<DaemonSet>(TargetKind::DaemonSet))
        .source(waker.source())
        .concurrency(8)
}
