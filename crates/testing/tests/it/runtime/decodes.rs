//! How often objects are decoded for handlers and mappings that want them with their type: what they cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubewright::kube::Api;
use kubewright::kube::api::{Patch, PatchParams};
use kubewright::{Action, Context, Controller, Event, Manager, Reconciler, Stop, predicate};
use kubewright_testing::{Cluster, Controllers, Result, TestCluster};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::timeout;

static DECODED: AtomicUsize = AtomicUsize::new(0);

/// A ConfigMap, as a type that counts how often it is read from JSON.
#[derive(Clone, Debug, Serialize)]
struct Counted {
    metadata: ObjectMeta,
}

impl<'de> Deserialize<'de> for Counted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Counted, D::Error> {
        #[derive(Deserialize)]
        struct Fields {
            metadata: ObjectMeta,
        }
        DECODED.fetch_add(1, Ordering::SeqCst);
        let Fields { metadata } = Fields::deserialize(deserializer)?;
        Ok(Counted { metadata })
    }
}

impl k8s_openapi::Resource for Counted {
    const API_VERSION: &'static str = "v1";
    const GROUP: &'static str = "";
    const KIND: &'static str = "ConfigMap";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "configmaps";
    type Scope = NamespaceResourceScope;
}

impl k8s_openapi::Metadata for Counted {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

struct Idle;

impl Reconciler for Idle {
    type Object = Secret;

    async fn reconcile(&self, _: Arc<Secret>, _: Context) -> kubewright::Result<Action> {
        Ok(Action::await_change())
    }
}

/// However many handlers, mappings and predicates there are, each version of an object is decoded once.
#[tokio::test]
async fn each_version_is_decoded_once_for_all() -> Result<()> {
    const OBJECTS: usize = 20;
    const VERSIONS: usize = 3;
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let told = Arc::new(watch::Sender::new(0_usize));
    let mapping = |name: &str| {
        let told = told.clone();
        let map = move |_: &Counted| {
            told.send_modify(|told| *told += 1);
            Vec::new()
        };
        let controller = Controller::of(Idle).named(name).watches::<Counted>(map);
        controller.with_predicate::<Counted>(predicate::version_changed)
    };
    let manager = Manager::builder(cluster.kube())
        .add(mapping("one"))
        .add(mapping("two"))
        .build()?;
    let informer = manager.client().cache().informer::<Counted>();
    let handled = told.clone();
    informer.add_inline_handler(move |event: &Event<Counted>| {
        assert!(event.object().metadata.name.is_some());
        handled.send_modify(|told| *told += 1);
    });
    let (stop, token) = Stop::pair();
    let ready = manager.ready();
    let running = tokio::spawn(manager.run(async move { token.requested().await }));
    ready.await;
    let before = DECODED.load(Ordering::SeqCst);
    let api: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(cluster.kube(), "default");
    for version in 0..VERSIONS {
        for object in 0..OBJECTS {
            let name = format!("c{object}");
            let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"v": version.to_string()}});
            api.patch(&name, &PatchParams::apply("test"), &Patch::Apply(config))
                .await?;
        }
    }
    // One handler, and two mappings, which are asked about both states of a modification.
    let expected = OBJECTS * (VERSIONS + 2 * (1 + 2 * (VERSIONS - 1)));
    let mut seen = told.subscribe();
    let all = timeout(Duration::from_secs(60), seen.wait_for(|told| *told >= expected)).await;
    assert!(all.is_ok(), "{} of {expected}", *told.borrow());
    let decoded = DECODED.load(Ordering::SeqCst) - before;
    assert!(
        decoded <= OBJECTS * VERSIONS,
        "{decoded} for {} versions",
        OBJECTS * VERSIONS
    );
    stop.stop();
    running.await.expect("no panic")?;
    Ok(())
}
