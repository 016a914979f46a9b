//! external-secrets/external-secrets#6677 (July 2026): a ClusterExternalSecret chooses namespaces by their labels,
//! makes an object in each, and puts a finalizer on the namespace. When the labels of a namespace changed, the
//! operator took the object away and left the finalizer. Nobody removed it, and the namespace could not be deleted any
//! more. Here rooms of a tier stand for the namespaces.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::corpus::kit::{self, key};
use super::{Pair, Workload, newest};

pub(super) const PAIR: Pair = Pair {
    name: "external-secrets-6677",
    operator,
    workload: Workload::Samples(&[ROOM, SHARE]),
};

const ROOM: &str = "apiVersion: example.com/v1
kind: Room
metadata: {name: blue}
spec: {tier: basic}
";
const SHARE: &str = "apiVersion: example.com/v1
kind: Share
metadata: {name: token}
spec: {tier: basic}
";

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Room", namespaced)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct RoomSpec {
    tier: Tier,
}

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Share", namespaced)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct ShareSpec {
    /// Which rooms get it.
    tier: Tier,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Tier {
    Basic,
    Gold,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Shares { fixed })
        .owns::<ConfigMap>()
        .watches_all_of::<Room>();
    Operator::new("shares")
        .crd::<Room>()
        .crd::<Share>()
        .controller(controller)
}

struct Shares {
    fixed: bool,
}

impl Reconciler for Shares {
    type Object = Share;

    async fn reconcile(&self, share: Arc<Share>, ctx: Context) -> Result<Action> {
        let (client, (namespace, name)) = (ctx.client(), key(&*share));
        let going = kit::is_going(&*share);
        if !kit::is_held(&*share) {
            if !going {
                kit::hold(client, &*share).await?;
            }
            return Ok(Action::await_change());
        }
        newest(client, &*share).await?;
        let finalizer = format!("example.com/share-{name}");
        let gets_it = |room: &Room| !going && !kit::is_going(room) && room.spec.tier == share.spec.tier;
        // A copy goes before the room that it is for.
        for copy in kit::cached::<ConfigMap>(client, &*share).await? {
            let labels = copy.metadata.labels.as_ref();
            let room = match labels.and_then(|labels| labels.get("room")) {
                Some(room) => client.live::<Room>(namespace, room).await?,
                None => None,
            };
            let is_wanted = room.is_some_and(|room| gets_it(&room));
            if !is_wanted && !kit::is_going(&*copy) {
                client.delete(&copy).await?;
            }
        }
        for room in client.list::<Room>(namespace).await? {
            if gets_it(&room) {
                hold(client, &room, &finalizer, true).await?;
                let (_, of) = key(&*room);
                let body = json!({ "metadata": { "labels": { "room": of } }, "data": { "token": name } });
                kit::ensure(client, kit::child::<ConfigMap>(&*share, &format!("{name}-{of}"), body)).await?;
            } else if going || kit::is_going(&*room) || self.fixed {
                // The mend: a room is let go, too, when it gets nothing any more.
                hold(client, &room, &finalizer, false).await?;
            }
        }
        if going {
            kit::release(client, &*share).await?;
        }
        Ok(Action::await_change())
    }
}

/// Puts our finalizer on a room, or takes it away.
async fn hold(client: &Client, room: &Room, finalizer: &str, held: bool) -> Result<()> {
    let mut finalizers: BTreeSet<String> = room.metadata.finalizers.iter().flatten().cloned().collect();
    let is_changed = match held {
        true => finalizers.insert(finalizer.to_owned()),
        false => finalizers.remove(finalizer),
    };
    if is_changed {
        let mut room = room.clone();
        room.metadata.finalizers = Some(finalizers.into_iter().collect());
        client.update(&room).await?;
    }
    Ok(())
}
