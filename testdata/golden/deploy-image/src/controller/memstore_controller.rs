//! The controller `memstore`: runs an image for each Memstore.
//!
//! Each has a Deployment of its name, which keeps the Pod Security Standard `restricted`. Which image
//! it is stands in a variable of the environment, which config/manager sets: another one needs no
//! other operator.

use std::collections::BTreeMap;

use kubewright::conditions;
use kubewright::k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use kubewright::k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, PodSecurityContext, PodSpec, PodTemplateSpec,
    SeccompProfile, SecurityContext,
};
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kubewright::prelude::*;

use deploy_image_api::v1alpha1;

/// The variable with the image.
const VARIABLE: &str = "MEMSTORE_IMAGE";

/// The image where the variable is not set: in tests, and in `kubewright dev`.
const IMAGE: &str = "memcached:1.6.26-alpine3.19";

/// What the container runs, instead of the image's own command.
const COMMAND: &str = "memcached,--memory-limit=64,-o,modern,-v";

/// The name of the container, and of the application in labels.
const NAME: &str = "memstore";

/// Keeps a Memstore until `cleanup` is done.
const FINALIZER: &str = "cache.my.domain/finalizer";

/// The condition: as many pods are available as are asked for.
const AVAILABLE: &str = "Available";

/// The condition: it does less than it is for, such as while it is being deleted.
const DEGRADED: &str = "Degraded";

/// Reconciles [`v1alpha1::Memstore`].
#[derive(Clone, Debug)]
pub struct MemstoreReconciler {
    image: String,
}

impl Reconciler for MemstoreReconciler {
    type Object = v1alpha1::Memstore;

    /// Called when a Memstore, or its Deployment, has changed.
    async fn reconcile(&self, object: Arc<v1alpha1::Memstore>, ctx: Context) -> Result<Action> {
        let size = object.spec.size;
        let deployment = match ctx.apply(self.deployment(&object)).await {
            Ok(deployment) => deployment,
            Err(why) => {
                let message = why.to_string();
                let seen = ctx.condition(&*object, AVAILABLE, false, "NotApplied", message);
                self.tell(&object, &ctx, seen).await?;
                return Err(why);
            }
        };
        let ready = available(&deployment);
        let is_enough = ready >= size;
        let message = format!("{ready} of {size} pods are available");
        let reason = if is_enough { "Reconciled" } else { "Waiting" };
        let seen = ctx.condition(&*object, AVAILABLE, is_enough, reason, message);
        self.tell(&object, &ctx, seen).await?;
        Ok(Action::await_change())
    }

    /// Called when a Memstore is being deleted. Its Deployment is garbage collected; delete here
    /// what was made outside of the cluster.
    async fn cleanup(&self, object: Arc<v1alpha1::Memstore>, ctx: Context) -> Result<Cleanup> {
        let seen = ctx.condition(&*object, DEGRADED, true, "Deleting", "it is being deleted");
        self.tell(&object, &ctx, seen).await?;
        ctx.event(&*object, EventType::Normal, "Deleted", "nothing is left");
        Ok(Cleanup::Done)
    }
}

impl MemstoreReconciler {
    /// The Deployment that a Memstore asks for.
    fn deployment(&self, object: &v1alpha1::Memstore) -> Deployment {
        let label = |key: &str, value: String| (format!("app.kubernetes.io/{key}"), value);
        let labels = BTreeMap::from([
            label("name", NAME.to_owned()),
            label("instance", object.name_any()),
        ]);
        let container = Container {
            name: NAME.to_owned(),
            image: Some(self.image.clone()),
            image_pull_policy: Some("IfNotPresent".to_owned()),
            command: Some(COMMAND.split(',').map(str::to_owned).collect()),
            ports: Some(vec![ContainerPort {
                name: Some("memstore".to_owned()),
                container_port: object.spec.container_port,
                ..ContainerPort::default()
            }]),
            security_context: Some(SecurityContext {
                run_as_non_root: Some(true),
                run_as_user: Some(1001),
                allow_privilege_escalation: Some(false),
                capabilities: Some(Capabilities {
                    drop: Some(vec!["ALL".to_owned()]),
                    ..Capabilities::default()
                }),
                ..SecurityContext::default()
            }),
            ..Container::default()
        };
        let pod = PodSpec {
            containers: vec![container],
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".to_owned(),
                    ..SeccompProfile::default()
                }),
                ..PodSecurityContext::default()
            }),
            ..PodSpec::default()
        };
        let template = PodTemplateSpec {
            metadata: Some(ObjectMeta {
                labels: Some(labels.clone()),
                ..ObjectMeta::default()
            }),
            spec: Some(pod),
        };
        Deployment {
            metadata: ObjectMeta {
                name: object.metadata.name.clone(),
                labels: Some(labels.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(DeploymentSpec {
                replicas: Some(object.spec.size),
                selector: LabelSelector {
                    match_labels: Some(labels),
                    ..LabelSelector::default()
                },
                template,
                ..DeploymentSpec::default()
            }),
            ..Deployment::default()
        }
    }

    /// Puts a condition into the status; nothing is sent when it says the same already.
    async fn tell(
        &self,
        object: &v1alpha1::Memstore,
        ctx: &Context,
        seen: Condition,
    ) -> Result<()> {
        ctx.patch_status(object, |object| {
            let status = object.status.get_or_insert_default();
            conditions::set(&mut status.conditions, seen);
        })
        .await?;
        Ok(())
    }
}

/// How many pods are available, once the Deployment's controller has seen what is asked for.
fn available(deployment: &Deployment) -> i32 {
    let status = deployment.status.clone().unwrap_or_default();
    if status.observed_generation < deployment.metadata.generation {
        return 0;
    }
    status.available_replicas.unwrap_or_default()
}

/// The controller: what it watches, and which image it runs.
pub fn controller() -> Controller {
    let said = std::env::var(VARIABLE).ok();
    let image = said
        .filter(|image| !image.is_empty())
        .unwrap_or_else(|| IMAGE.to_owned());
    Controller::of(MemstoreReconciler { image })
        .finalizer(FINALIZER)
        .owns::<Deployment>()
}
