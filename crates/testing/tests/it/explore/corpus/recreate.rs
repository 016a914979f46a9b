//! A cluster is deleted with its volumes and created again under the same name. Operators that go by names cannot tell
//! the two apart.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kubewright::kube::api::{DeleteParams, ListParams};
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::kit::{self, SOON, VERSION, Volumes, key};
use super::{Case, Ends, Expected, Step};

const EXPECTED: &[Expected] = &[
    ("StatefulSet/db", "/status/readyReplicas", "2"),
    ("PersistentVolumeClaim/data-db-0", "/status/phase", "\"Bound\""),
    ("PersistentVolumeClaim/data-db-0", "/metadata/deletionTimestamp", "gone"),
    ("PersistentVolumeClaim/data-db-1", "/metadata/deletionTimestamp", "gone"),
];

/// The same of cassandra-operator, casskop, the operators of Percona and K8ssandra.
pub(super) const ZOOKEEPER: Case = Case {
    name: "zookeeper-312",
    bug: "The volumes of a new cluster are deleted if the operator restarts and sees its namesake being deleted.",
    undisturbed: Ends::Same,
    operator: |fixed| operator(fixed, Cleanup::EachByName),
    steps,
    always: &[],
    expected: EXPECTED,
};

pub(super) const PSMDB: Case = Case {
    name: "psmdb-430",
    bug: "All volumes with the label of a new cluster are deleted if the operator restarts and sees its namesake being deleted.",
    undisturbed: Ends::Same,
    operator: |fixed| operator(fixed, Cleanup::AllOfLabel),
    steps,
    always: &[],
    expected: EXPECTED,
};

/// After its set was deleted, the claims are looked for only as long as the set is seen.
pub(super) const PXC: Case = Case {
    name: "pxc-979",
    bug: "The volumes of a deleted cluster are left for ever if the operator dies after it deleted the StatefulSet.",
    undisturbed: Ends::Same,
    operator: |fixed| operator(fixed, Cleanup::WithTheSet),
    steps: || steps().into_iter().take(2).collect(),
    always: &[],
    expected: &[
        ("StatefulSet/db", "", "gone"),
        ("PersistentVolumeClaim/data-db-0", "", "gone"),
        ("PersistentVolumeClaim/data-db-1", "", "gone"),
    ],
};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Store", namespaced)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct StoreSpec {
    image: String,
}

fn operator(fixed: bool, cleanup: Cleanup) -> Operator {
    let controller = Controller::of(Stores { fixed, cleanup })
        .owns::<StatefulSet>()
        .reads::<Pod>(kubewright::Scope::all())
        .reads::<PersistentVolumeClaim>(kubewright::Scope::all());
    Operator::new("store").crd::<Store>().controller(controller)
}

fn steps() -> Vec<Step> {
    let store = json!({ "apiVersion": VERSION, "kind": "Store", "metadata": { "name": "db", "namespace": "default" },
        "spec": { "image": "db:1" } });
    vec![
        Step::apply("create the cluster", store.clone()),
        Step::delete("delete it", VERSION, "Store", "default", "db"),
        Step::apply("create it again", store),
    ]
}

/// How the operators with the bug delete the claims.
#[derive(Clone, Copy)]
enum Cleanup {
    EachByName,
    AllOfLabel,
    WithTheSet,
}

struct Stores {
    fixed: bool,
    cleanup: Cleanup,
}

impl Stores {
    /// Whether nothing is left.
    async fn clean_up(&self, store: &Store, client: &Client) -> Result<bool> {
        if self.fixed {
            // The mend: the claims of this cluster are deleted, by their uids, until there are none.
            return kit::tear_down(client, store).await;
        }
        let (namespace, name) = key(store);
        let set = client.get::<StatefulSet>(namespace, name).await?;
        if let Some(set) = &set {
            client.delete(&**set).await?;
        }
        match self.cleanup {
            Cleanup::WithTheSet => {
                if set.is_some() {
                    for claim in kit::cached::<PersistentVolumeClaim>(client, store).await? {
                        client.delete(&*claim).await?;
                    }
                }
            }
            _ if set.is_some() || !kit::cached::<Pod>(client, store).await?.is_empty() => return Ok(false),
            Cleanup::EachByName => {
                for claim in kit::cached::<PersistentVolumeClaim>(client, store).await? {
                    let (_, name) = key(&*claim);
                    let by_name = DeleteParams::default();
                    client
                        .delete_named::<PersistentVolumeClaim>(namespace, name, by_name)
                        .await?;
                }
            }
            Cleanup::AllOfLabel => {
                let label = ListParams::default().labels(&format!("app={name}"));
                let all = DeleteParams::default();
                client
                    .delete_collection::<PersistentVolumeClaim>(namespace, &label, all)
                    .await?;
            }
        }
        Ok(true)
    }
}

impl Reconciler for Stores {
    type Object = Store;

    async fn reconcile(&self, store: Arc<Store>, ctx: Context) -> Result<Action> {
        let client = ctx.client();
        if kit::is_going(&*store) {
            if kit::is_held(&*store) {
                if !self.clean_up(&store, client).await? {
                    return Ok(Action::requeue_after(SOON));
                }
                kit::release(client, &*store).await?;
            }
            return Ok(Action::await_change());
        }
        if !kit::is_held(&*store) {
            kit::hold(client, &*store).await?;
        }
        // Members that start for a cluster that is gone would leave volumes for which nobody cares.
        let (namespace, name) = key(&*store);
        let is_new = client.get::<StatefulSet>(namespace, name).await?.is_none();
        if is_new && !kit::is_current(client, &*store).await? {
            return Ok(Action::await_change());
        }
        kit::ensure(client, kit::set(&*store, "", 2, &store.spec.image, Volumes::Kept)).await?;
        Ok(Action::await_change())
    }
}
