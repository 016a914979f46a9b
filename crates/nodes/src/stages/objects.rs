//! Stages that are objects of the cluster, and the objects for which no controller but a stage plays.
//!
//! [`follow`] runs as long as the cluster: once the definition of Stage is there (a user's, or by [`definition`]), it
//! adds a controller of stages; for each kind that has stages, and is neither Pod nor Node, a controller that plays.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kubewright::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kubewright::kube::core::gvk::GroupVersionKind;
use kubewright::kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kubewright::kube::discovery;
use kubewright::{
    Action, Client, Context, Controller, Controllers, EventType, Reconciler, Request, Result, Stop, api_resource,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use kubewright_objects::install;

use super::player::{Place, Player, Progress};
use super::stage::Stage;

/// The name of the definition of stages.
const CRD: &str = "stages.kwok.x-k8s.io";
/// How often is looked for the kind of a definition that was just accepted.
const SOON: Duration = Duration::from_millis(200);
/// How often is looked for kinds that are not served yet, when nothing else says so.
const AGAIN: Duration = Duration::from_secs(10);

/// The resource of stages.
fn stages() -> ApiResource {
    ApiResource {
        group: "kwok.x-k8s.io".to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: "kwok.x-k8s.io/v1alpha1".to_owned(),
        kind: "Stage".to_owned(),
        plural: "stages".to_owned(),
    }
}

/// The definition of Stage, for those who want stages as objects and have not installed kwok's.
fn definition() -> Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let list = json!({"type": "array", "items": any});
    let spec = json!({
        "type": "object",
        "required": ["resourceRef"],
        "properties": {
            "resourceRef": {
                "type": "object",
                "description": "The kind of the objects that go on by this stage.",
                "required": ["kind"],
                "properties": {
                    "apiGroup": {"type": "string", "default": "v1", "description": "The group and version of the kind."},
                    "kind": {"type": "string"},
                },
            },
            "selector": {
                "type": "object",
                "description": "Which objects the stage fits. Without a selector it fits none.",
                "properties": {
                    "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "matchAnnotations": {"type": "object", "additionalProperties": {"type": "string"}},
                    "matchExpressions": list,
                },
            },
            "weight": {"type": "integer", "minimum": 0, "default": 0, "description": "Of the stages that fit, one is chosen by weight."},
            "weightFrom": any,
            "delay": any,
            "next": any,
            "immediateNextStage": {"type": "boolean"},
            "steps": list,
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CRD},
        "spec": {
            "group": "kwok.x-k8s.io",
            "names": {"kind": "Stage", "listKind": "StageList", "plural": "stages", "singular": "stage"},
            "scope": "Cluster",
            "versions": [{
                "name": "v1alpha1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": "A change that objects go through by themselves.",
                    "required": ["spec"],
                    "properties": {
                        "apiVersion": {"type": "string"},
                        "kind": {"type": "string"},
                        "metadata": {"type": "object"},
                        "spec": spec,
                        "status": any,
                    },
                }},
            }],
        },
    })
}

/// Adds the controllers that stages need, when they need them; with `defines`, the definition of stages first.
///
/// # Errors
/// When the manager has ended.
pub(crate) async fn follow(
    player: Arc<Player>,
    controllers: Controllers,
    client: Client,
    stop: Stop,
    defines: bool,
) -> Result<()> {
    if defines {
        let definition: CustomResourceDefinition = serde_json::from_value(definition())?;
        install(&client, &definition, &stop).await?;
    }
    let changed = Arc::new(Notify::new());
    let mut added = BTreeSet::from([core("Pod"), core("Node")]);
    let mut is_followed = false;
    // The definition may come at any time.
    let is_there = Arc::new(IsThere::default());
    let definition = Definition(is_there.clone());
    let definitions = api_resource::<CustomResourceDefinition>();
    controllers
        .add(Controller::dynamic(&definitions, false, definition).named("stage-definition"))
        .await?;
    loop {
        // A definition is served a moment after it was accepted.
        let mut missing = false;
        if !is_followed && is_there.yes.load(Ordering::Relaxed) {
            missing = discovery::pinned_kind(
                client.kube(),
                &GroupVersionKind::gvk("kwok.x-k8s.io", "v1alpha1", "Stage"),
            )
            .await
            .is_err();
            if !missing {
                let objects = Objects {
                    player: player.clone(),
                    changed: changed.clone(),
                };
                controllers
                    .add(Controller::dynamic(&stages(), false, objects).named("stage"))
                    .await?;
                is_followed = true;
            }
        }
        let again = if missing { SOON } else { AGAIN };
        for kind in player.kinds() {
            if added.contains(&kind) {
                continue;
            }
            let (group, version) = kind.0.split_once('/').unwrap_or(("", &kind.0));
            let wanted = GroupVersionKind::gvk(group, version, &kind.1);
            match discovery::pinned_kind(client.kube(), &wanted).await {
                Ok((resource, capabilities)) => {
                    let is_namespaced = capabilities.scope == discovery::Scope::Namespaced;
                    let changed = player.waker(&kind.0, &kind.1);
                    let name = format!("stages-of-{}", resource.plural);
                    let name = match group {
                        "" => name,
                        group => format!("{name}.{group}"),
                    };
                    let others = Others {
                        player: player.clone(),
                        resource: resource.clone(),
                    };
                    let controller = Controller::dynamic(&resource, is_namespaced, others)
                        .named(name)
                        .source(changed.source());
                    controllers.add(controller).await?;
                    added.insert(kind);
                }
                Err(why) => {
                    missing = true;
                    tracing::debug!(kind = kind.1, api_version = kind.0, error = %why, "a kind with stages is not served yet");
                }
            }
        }
        let later = async {
            match missing {
                true => tokio::time::sleep(again).await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = stop.requested() => return Ok(()),
            () = changed.notified() => {}
            () = is_there.told.notified() => {}
            () = later => {}
        }
    }
}

fn core(kind: &str) -> (String, String) {
    ("v1".to_owned(), kind.to_owned())
}

/// Waits for the definition of stages.
struct Definition(Arc<IsThere>);

/// Whether the definition of stages is there, and who is told.
#[derive(Default)]
struct IsThere {
    yes: AtomicBool,
    told: Notify,
}

impl Reconciler for Definition {
    type Object = PartialObjectMeta<DynamicObject>;

    async fn reconcile(&self, definition: Arc<PartialObjectMeta<DynamicObject>>, _: Context) -> Result<Action> {
        if definition.metadata.name.as_deref() == Some(CRD) {
            self.0.yes.store(true, Ordering::Relaxed);
            self.0.told.notify_one();
        }
        Ok(Action::await_change())
    }
}

/// Reads stages that are objects.
struct Objects {
    player: Arc<Player>,
    changed: Arc<Notify>,
}

impl Reconciler for Objects {
    type Object = DynamicObject;

    async fn reconcile(&self, object: Arc<DynamicObject>, ctx: Context) -> Result<Action> {
        let name = object.metadata.name.clone().unwrap_or_default();
        let document = serde_json::to_value(&*object)?;
        let stage = match Stage::of(document) {
            Ok(stage) => stage,
            Err(why) => {
                ctx.event_dynamic(&stages(), &object.metadata, EventType::Warning, "Invalid", why);
                None
            }
        };
        self.player.set(&name, stage).await;
        self.changed.notify_one();
        Ok(Action::await_change())
    }

    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.player.set(request.name(), None).await;
        self.changed.notify_one();
        Ok(Action::await_change())
    }
}

/// Plays for the objects of a kind for which nothing else does.
struct Others {
    player: Arc<Player>,
    resource: ApiResource,
}

impl Reconciler for Others {
    type Object = DynamicObject;

    async fn reconcile(&self, object: Arc<DynamicObject>, ctx: Context) -> Result<Action> {
        let mut seen = serde_json::to_value(&*object)?;
        seen["apiVersion"] = self.resource.api_version.clone().into();
        seen["kind"] = self.resource.kind.clone().into();
        let place = Place {
            node: None,
            node_ip: &self.player.node_ip,
            pod_ip: &String::new,
        };
        match self.player.advance(&ctx, &self.resource, &seen, &place).await? {
            Progress::Wait(wait) => Ok(Action::requeue_after(wait)),
            Progress::Free { .. } | Progress::Done => Ok(Action::await_change()),
        }
    }

    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.player.forget(&self.resource.kind, &request);
        Ok(Action::await_change())
    }
}
