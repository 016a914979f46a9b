//! A long life of an operator whose children have names that the server chooses, so that nothing but what the operator
//! knows keeps it from making one twice: not the old leader's last write, which the new one has yet to hear of, nor an own
//! one. The examples have lives of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kubewright::kube::api::{Patch, PatchParams};
use kubewright::kube::{Api, Resource as _};
use kubewright::{Action, Context, Controller, Operator, Reconciler, Scope};
use kubewright_testing::soak::CYCLE;
use kubewright_testing::{Cluster, Controllers as BuiltIn, Result, TestCluster};
use serde_json::json;

const PARENTS: usize = 5;

/// Gives each parent as many children as it says.
struct Children {
    created: Arc<AtomicUsize>,
}

impl Reconciler for Children {
    type Object = ConfigMap;

    async fn reconcile(&self, parent: Arc<ConfigMap>, ctx: Context) -> kubewright::Result<Action> {
        let said = parent.data.as_ref().and_then(|data| data.get("children"));
        let wanted: usize = said.and_then(|said| said.parse().ok()).unwrap_or_default();
        let uid = parent.metadata.uid.as_deref().unwrap_or_default();
        let children = ctx.client().owned_by::<Secret>(ctx.request().namespace(), uid).await?;
        for child in children.iter().skip(wanted) {
            ctx.client().delete(&**child).await?;
        }
        for _ in children.len()..wanted {
            let mut child = Secret::default();
            child.metadata.namespace = parent.metadata.namespace.clone();
            child.metadata.generate_name = Some(format!("{}-", ctx.request().name()));
            child.metadata.owner_references = parent.controller_owner_ref(&()).map(|owner| vec![owner]);
            ctx.client().create(&child).await?;
            self.created.fetch_add(1, Ordering::SeqCst);
        }
        Ok(Action::await_change())
    }
}

async fn soak(time: Duration) -> Result<()> {
    let start = "2026-01-01T00:00:00Z".parse().expect("a time");
    let cluster = TestCluster::in_virtual_time(start, Cluster::builder().controllers(BuiltIn::None)).await?;
    let parents: Api<ConfigMap> = Api::namespaced(cluster.kube(), "default");
    let created = Arc::new(AtomicUsize::new(0));
    let operator = || {
        let children = Children {
            created: created.clone(),
        };
        let parents = Scope::all().labels([("role", "parent")].into_iter().collect());
        Operator::new("soak").controller(Controller::of(children).within(parents).owns::<Secret>())
    };
    let (mut said, mut expected) = ([0; PARENTS], 0);
    let change = async |round: usize| {
        for (at, before) in said.iter_mut().enumerate() {
            let now = (round + at) % CYCLE;
            expected += now.saturating_sub(*before);
            *before = now;
            let name = format!("parent-{at}");
            let parent = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"children": now.to_string()},
                "metadata": {"name": name, "labels": {"role": "parent"}}});
            let apply = PatchParams::apply("test");
            parents.patch(&name, &apply, &Patch::Apply(parent)).await?;
        }
        let there: usize = said.iter().sum();
        let children = |children: &[Secret]| children.len() == there && created.load(Ordering::SeqCst) >= expected;
        cluster
            .wait_for_all("default", "as many as the parents say", children)
            .await?;
        assert_eq!(created.load(Ordering::SeqCst), expected, "a child was made twice");
        Result::Ok(())
    };
    cluster.soak(operator).await?.live(time, change).await
}

#[tokio::test]
async fn an_operator_whose_leader_goes_every_minute_makes_nothing_twice() -> Result<()> {
    soak(Duration::from_secs(20 * 60)).await
}

#[tokio::test]
#[ignore = "takes minutes: .ci/night soaks"]
async fn a_day_of_leaders_that_go_makes_nothing_twice() -> Result<()> {
    soak(Duration::from_secs(24 * 60 * 60)).await
}
