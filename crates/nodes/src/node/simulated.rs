//! Containers that exist in the API only: they run, end and fail as the annotations of their pod say ([`Behaviour`]).

use std::time::Duration;

use kubewright::EventType;
use kubewright_objects::api::core::v1::{Container, ContainerStatus};

use super::behaviour::{self, Behaviour, KILLED, Role, Which};
use super::container::{ContainerContext, Observations, end, fall, restarts, since};
use super::resize;
use super::runtime::Runtime;

/// Begins the ids of containers, as the node says that its runtime is called.
const SCHEME: &str = "simulated://";

/// The runtime of simulated nodes.
pub(super) struct Simulated<'a> {
    /// Whether the node has an image already.
    pub(super) has_image: &'a (dyn Fn(&str) -> bool + Sync),
}

impl Simulated<'_> {
    /// Says how the image came to the node.
    fn pull(&self, container: &Container, image: &str, notes: &mut Observations) {
        let always = container.image_pull_policy.as_deref() == Some("Always");
        let is_there = (self.has_image)(image) || notes.pulled.iter().any(|pulled| pulled == image);
        // The simulated nodes have every image that a pod forbids to pull.
        let never = container.image_pull_policy.as_deref() == Some("Never");
        if never || (is_there && !always) {
            let message =
                format!("Container image \"{image}\" already present on machine and can be accessed by the pod");
            return notes.say(EventType::Normal, "Pulled", message);
        }
        notes.say(EventType::Normal, "Pulling", format!("Pulling image \"{image}\""));
        let message =
            format!("Successfully pulled image \"{image}\" in 0s (0s including waiting). Image size: 0 bytes.");
        notes.say(EventType::Normal, "Pulled", message);
        notes.pulled.push(image.to_owned());
    }
}

impl Runtime for Simulated<'_> {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn start(
        &self,
        container: &Container,
        attempt: i32,
        status: &mut ContainerStatus,
        notes: &mut Observations,
    ) -> bool {
        let image = container.image.as_deref().unwrap_or_default();
        status.restart_count = attempt;
        self.pull(container, image, notes);
        status.image_id = image_id(image);
        resize::give(container, status);
        true
    }

    /// It ends, is killed, or its probes say how it is.
    fn observe(
        &self,
        scene: &ContainerContext<'_>,
        container: &Container,
        role: Role,
        status: &mut ContainerStatus,
        notes: &mut Observations,
    ) -> bool {
        let behaviour = Behaviour::of(scene.pod, container, role);
        let running = status.state.as_ref().and_then(|state| state.running.as_ref());
        let started = running.and_then(|running| running.started_at.as_ref());
        let up = started.map_or(Duration::ZERO, |time| since(scene.now, time.0));
        let name = &container.name;
        let is_ours = status.container_id.as_deref().is_some_and(|id| id.starts_with(SCHEME));
        // A container that was changed is killed and started anew (`computePodActions`).
        if is_ours && role != Role::Init && container.image.as_deref().unwrap_or_default() != status.image {
            let message = format!("Container {name} definition changed, will be restarted");
            notes.say(EventType::Normal, "Killing", message);
            end(scene, status, behaviour.stops.1, None);
            // A change is no crash: nothing holds the next start up.
            fall(status, "ContainerCreating", "");
            return true;
        }
        if behaviour.hook_fails
            && container
                .lifecycle
                .as_ref()
                .is_some_and(|life| life.post_start.is_some())
        {
            notes.say(EventType::Warning, "FailedPostStartHook", "PostStartHook failed");
            notes.say(EventType::Normal, "Killing", "FailedPostStartHook");
            end(scene, status, KILLED, None);
            return true;
        }
        if let Some(code) = behaviour.ends(status.restart_count) {
            match behaviour.runs.saturating_sub(up) {
                Duration::ZERO => {
                    end(scene, status, code, behaviour.reason.as_deref());
                    return true;
                }
                left => notes.wake(left),
            }
        }
        let found = behaviour::probe(container, &behaviour, up);
        if let Some(which) = found.kill {
            notes.say(EventType::Warning, "Unhealthy", behaviour::failure(container, which));
            let probe = if which == Which::Startup { "startup" } else { "liveness" };
            let then = if restarts(scene.pod, container, role, KILLED) {
                ", will be restarted"
            } else {
                ""
            };
            notes.say(
                EventType::Normal,
                "Killing",
                format!("Container {name} failed {probe} probe{then}"),
            );
            end(scene, status, KILLED, None);
            return true;
        }
        if let Some(which) = found.failing {
            notes.failing.push((name.clone(), behaviour::failure(container, which)));
        }
        if let Some(next) = found.next {
            notes.wake(next.saturating_sub(up));
        }
        status.started = Some(found.started);
        status.ready = found.ready && role != Role::Init;
        false
    }

    fn end(&self, scene: &ContainerContext<'_>, status: &mut ContainerStatus, code: i32) {
        end(scene, status, code, None);
    }

    /// It ends with its pod.
    fn end_sidecar(
        &self,
        _: &ContainerContext<'_>,
        _: &ContainerStatus,
        _: &mut Observations,
    ) -> Option<ContainerStatus> {
        None
    }

    fn stop_all(&self, _: &mut Observations) -> bool {
        false
    }
}

/// The id of an image, as a runtime says it: its repository and a digest, which is that of its name.
fn image_id(image: &str) -> String {
    if image.contains("@sha256:") {
        return image.to_owned();
    }
    let (folder, last) = image
        .rsplit_once('/')
        .map_or(("", image), |(folder, last)| (folder, last));
    let name = last.split(':').next().unwrap_or_default();
    let repository = if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
    };
    let digest = ring::digest::digest(&ring::digest::SHA256, image.as_bytes());
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{repository}@sha256:{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_ids() {
        let check = |image: &str, begins: &str| {
            let id = image_id(image);
            assert!(id.starts_with(begins), "{id}");
            assert_eq!(id.split_once("@sha256:").expect("a digest").1.len(), 64, "{id}");
        };
        check("nginx:1", "nginx@sha256:");
        check("localhost:5000/shop/app:1", "localhost:5000/shop/app@sha256:");
        let digest = "0".repeat(64);
        check(&format!("app@sha256:{digest}"), &format!("app@sha256:{digest}"));
    }
}
