//! What containers run in: simulated, or processes of this machine. A kubelet asks its runtime through the CRI; here the
//! life of a container (`container.rs`) and of its pod (`life.rs`) ask a [`Runtime`].
//!
//! Invariant: a runtime decides nothing about restarts and says nothing about pods. Pure: what is to be started or
//! stopped is noted, and its result is observed the next time.

use kubewright_objects::api::core::v1::{Container, ContainerStatus};

use super::behaviour::Role;
use super::container::{ContainerContext, Observations};

pub(super) trait Runtime: Sync {
    /// Begins the ids of containers.
    fn scheme(&self) -> &'static str;

    /// Starts a container whose turn it is, for this time. False while it does not run.
    fn start(
        &self,
        container: &Container,
        attempt: i32,
        status: &mut ContainerStatus,
        notes: &mut Observations,
    ) -> bool;

    /// Observes a container that runs as far as its status knows. True when it runs no longer.
    fn observe(
        &self,
        scene: &ContainerContext<'_>,
        container: &Container,
        role: Role,
        status: &mut ContainerStatus,
        notes: &mut Observations,
    ) -> bool;

    /// Writes down that a container has ended with its pod: with this code, unless another was observed.
    fn end(&self, scene: &ContainerContext<'_>, status: &mut ContainerStatus, code: i32);

    /// Ends a sidecar of a pod that is over, and answers how far that is; none when it ends with the pod, at once.
    fn end_sidecar(
        &self,
        scene: &ContainerContext<'_>,
        before: &ContainerStatus,
        notes: &mut Observations,
    ) -> Option<ContainerStatus>;

    /// Stops all that still runs; false when nothing does.
    fn stop_all(&self, notes: &mut Observations) -> bool;
}
