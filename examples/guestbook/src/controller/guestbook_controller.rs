//! Keeps a Deployment and a Service for each Guestbook, and its status.
//!
//! The children are functions of the Guestbook and nothing else; the status is a function of the Guestbook and its
//! Deployment. Not here: deleting the children. They are owned by the Guestbook and the garbage collector takes them
//! with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvVar, PodSpec, PodTemplateSpec, Service, ServicePort, ServiceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kubewright::kube::api::ObjectMeta;
use kubewright::predicate;
use kubewright::prelude::*;

use guestbook_api::v1::{Guestbook, GuestbookStatus};

/// Reconciles Guestbooks.
#[derive(Clone, Copy, Debug, Default)]
pub struct GuestbookReconciler;

// ANCHOR: reconcile
impl Reconciler for GuestbookReconciler {
    type Object = Guestbook;

    async fn reconcile(&self, guestbook: Arc<Guestbook>, ctx: Context) -> Result<Action> {
        if guestbook.metadata.deletion_timestamp.is_some() {
            return Ok(Action::await_change());
        }
        ctx.apply(service(&guestbook)).await?;
        let deployment = ctx.apply(deployment(&guestbook)).await?;
        let status = status(&guestbook, &deployment, Time(ctx.now()));
        ctx.patch_status(&*guestbook, |guestbook| guestbook.status = Some(status))
            .await?;
        Ok(Action::await_change())
    }
}
// ANCHOR_END: reconcile

// ANCHOR: controller
/// The controller: what it watches.
pub fn controller() -> Controller {
    Controller::of(GuestbookReconciler)
        // Its own status writes are no reason to look again.
        .with_predicate::<Guestbook>(predicate::generation_changed)
        .owns::<Deployment>()
        .owns::<Service>()
}
// ANCHOR_END: controller

/// Labels of everything that belongs to the guestbook, and the selector of its pods.
fn labels(guestbook: &Guestbook) -> BTreeMap<String, String> {
    [
        ("app.kubernetes.io/name", "guestbook"),
        ("app.kubernetes.io/instance", &guestbook.name_any()),
    ]
    .map(|(key, value)| (key.to_string(), value.to_string()))
    .into()
}

fn metadata(guestbook: &Guestbook) -> ObjectMeta {
    ObjectMeta {
        name: guestbook.metadata.name.clone(),
        namespace: guestbook.metadata.namespace.clone(),
        labels: Some(labels(guestbook)),
        ..ObjectMeta::default()
    }
}

fn deployment(guestbook: &Guestbook) -> Deployment {
    let greeting = guestbook.spec.greeting.clone().map(|value| EnvVar {
        name: "GREETING".to_string(),
        value: Some(value),
        ..EnvVar::default()
    });
    let container = Container {
        name: "guestbook".to_string(),
        image: Some(guestbook.spec.image.clone()),
        ports: Some(vec![ContainerPort {
            name: Some("http".to_string()),
            container_port: 3000,
            ..ContainerPort::default()
        }]),
        env: Some(greeting.into_iter().collect()),
        ..Container::default()
    };
    Deployment {
        metadata: metadata(guestbook),
        spec: Some(DeploymentSpec {
            replicas: Some(guestbook.spec.size),
            selector: LabelSelector {
                match_labels: Some(labels(guestbook)),
                ..LabelSelector::default()
            },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels(guestbook)),
                    ..ObjectMeta::default()
                }),
                spec: Some(PodSpec {
                    containers: vec![container],
                    ..PodSpec::default()
                }),
            },
            ..DeploymentSpec::default()
        }),
        status: None,
    }
}

// ANCHOR: service
fn service(guestbook: &Guestbook) -> Service {
    Service {
        metadata: metadata(guestbook),
        spec: Some(ServiceSpec {
            selector: Some(labels(guestbook)),
            ports: Some(vec![ServicePort {
                name: Some("http".to_string()),
                port: 80,
                target_port: Some(IntOrString::String("http".to_string())),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}
// ANCHOR_END: service

fn status(guestbook: &Guestbook, deployment: &Deployment, now: Time) -> GuestbookStatus {
    let seen = deployment.status.clone().unwrap_or_default();
    let wanted = guestbook.spec.size;
    // The counters describe the Deployment of an earlier generation until its controller has caught up.
    let current = seen.observed_generation == deployment.metadata.generation;
    let (replicas, ready) = (seen.replicas.unwrap_or(0), seen.ready_replicas.unwrap_or(0));
    let updated = seen.updated_replicas.unwrap_or(0);
    let is_ready = current && ready == wanted && updated == wanted && replicas == wanted;
    let (state, reason) = if is_ready {
        ("True", "AllPodsReady")
    } else {
        ("False", "PodsNotReady")
    };
    let condition = Condition {
        type_: "Ready".to_string(),
        status: state.to_string(),
        reason: reason.to_string(),
        message: format!("{ready} of {wanted} pods are ready"),
        observed_generation: guestbook.metadata.generation,
        last_transition_time: match guestbook.ready() {
            Some(before) if before.status == state => before.last_transition_time.clone(),
            _ => now,
        },
    };
    let selector = labels(guestbook)
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect::<Vec<_>>()
        .join(",");
    GuestbookStatus {
        observed_generation: guestbook.metadata.generation,
        replicas,
        ready_replicas: ready,
        selector: Some(selector),
        conditions: vec![condition],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::DeploymentStatus;

    fn check(size: i32, seen: DeploymentStatus, ready: &str, message: &str) {
        let mut guestbook = Guestbook::new(
            "hello",
            guestbook_api::v1::GuestbookSpec {
                size,
                ..Default::default()
            },
        );
        guestbook.metadata.generation = Some(4);
        let deployment = Deployment {
            metadata: ObjectMeta {
                generation: Some(2),
                ..ObjectMeta::default()
            },
            status: Some(seen),
            spec: None,
        };
        let status = status(&guestbook, &deployment, Time(kubewright::jiff::Timestamp::UNIX_EPOCH));
        let condition = &status.conditions[0];
        assert_eq!(
            (condition.status.as_str(), condition.message.as_str()),
            (ready, message)
        );
        assert_eq!(condition.observed_generation, Some(4));
    }

    #[test]
    fn ready_means_all_pods_of_the_present_generation() {
        let seen = |observed, replicas, updated, ready| DeploymentStatus {
            observed_generation: Some(observed),
            replicas: Some(replicas),
            updated_replicas: Some(updated),
            ready_replicas: Some(ready),
            ..DeploymentStatus::default()
        };
        check(2, seen(2, 2, 2, 2), "True", "2 of 2 pods are ready");
        check(2, seen(2, 2, 2, 1), "False", "1 of 2 pods are ready");
        check(2, seen(1, 2, 2, 2), "False", "2 of 2 pods are ready");
        check(2, seen(2, 3, 2, 2), "False", "2 of 2 pods are ready");
        check(
            0,
            DeploymentStatus {
                observed_generation: Some(2),
                ..Default::default()
            },
            "True",
            "0 of 0 pods are ready",
        );
    }
}
