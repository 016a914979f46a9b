//! How containers and pods end: the hook preStop, SIGTERM, the grace, SIGKILL; sidecars after the others, in reverse
//! order.
//!
//! As `killContainer` and `killContainersWithSyncResult` in pkg/kubelet/kuberuntime. Invariant: all processes of a pod
//! have ended when the grace is over, regardless of their behaviour.

use std::sync::Arc;
use std::time::Duration;

use kubewright::EventType;
use kubewright_objects::api::core::v1::{Pod, Probe};
use tokio::sync::watch;
use tokio::time::Instant;

use super::instance::Instance;
use super::{Processes, lock};
use kubewright_objects::meta;

/// The grace of a pod that says none.
const GRACE: i64 = 30;

impl Processes {
    /// Stops a container with the grace of its pod, or of the probe that failed. Its end is observed like any other.
    pub(crate) fn stop_container(&self, pod: &Pod, container: &str, failed: Option<&Probe>, why: &str) {
        let Some(instance) = self.instance(meta::uid(&pod.metadata), container) else {
            return;
        };
        if !instance.is_running() || instance.begin_to_stop() {
            return;
        }
        let of_probe = failed.and_then(|probe| probe.termination_grace_period_seconds);
        let of_pod = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        let seconds = of_probe.or(of_pod).unwrap_or(GRACE);
        let deadline = Instant::now() + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let of_pod = self.with(pod, |known| known.deadline.subscribe());
        let said = (!why.is_empty()).then(|| (EventType::Normal, "Killing", why.to_owned()));
        self.tell(meta::uid(&pod.metadata), "a container is stopped", said);
        let processes = self.clone();
        tokio::spawn(async move { processes.stop(&instance, deadline, of_pod, true).await });
    }

    /// Ends a pod within this time, which can be said again when it becomes shorter; true when nothing of it runs.
    pub(crate) fn stop_pod(&self, pod: &Pod, within: Duration) -> bool {
        let uid = meta::uid(&pod.metadata);
        let deadline = Instant::now() + within;
        let (is_first, all, of_pod) = self.with(pod, |known| {
            known.deadline.send_if_modified(|present| {
                let is_sooner = present.is_none_or(|present| deadline < present);
                if is_sooner {
                    *present = Some(deadline);
                }
                is_sooner
            });
            let is_first = !std::mem::replace(&mut known.is_stopping, true);
            let all: Vec<Arc<Instance>> = known.containers.values().cloned().collect();
            (is_first, all, known.deadline.subscribe())
        });
        if all.iter().all(|instance| !instance.is_running()) {
            return true;
        }
        if is_first {
            let (processes, pod, uid) = (self.clone(), pod.clone(), uid.to_owned());
            tokio::spawn(async move {
                processes.stop_all(&pod, all, deadline, of_pod).await;
                processes.tell(&uid, "all containers have ended", None);
            });
        }
        false
    }

    async fn stop_all(
        &self,
        pod: &Pod,
        all: Vec<Arc<Instance>>,
        deadline: Instant,
        of_pod: watch::Receiver<Option<Instant>>,
    ) {
        let init = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
        let sidecars: Vec<&str> = init.map(|container| container.name.as_str()).collect();
        let (mut last, first): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|instance| sidecars.contains(&instance.container.name.as_str()));
        let stop = |instance: Arc<Instance>| {
            // The hook of one that is being stopped already has begun.
            let has_hook = !instance.begin_to_stop();
            let of_pod = of_pod.clone();
            async move { self.stop(&instance, deadline, of_pod, has_hook).await }
        };
        let stopping = first.into_iter().map(&stop);
        futures::future::join_all(stopping).await;
        last.sort_by_key(|instance| sidecars.iter().position(|name| *name == instance.container.name));
        for instance in last.into_iter().rev() {
            stop(instance).await;
        }
    }

    /// Stops one container; returns when it has ended.
    async fn stop(
        &self,
        instance: &Instance,
        deadline: Instant,
        mut of_pod: watch::Receiver<Option<Instant>>,
        has_hook: bool,
    ) {
        if !instance.is_running() {
            return;
        }
        let hook = instance
            .container
            .lifecycle
            .as_ref()
            .and_then(|life| life.pre_stop.clone());
        let asked = async {
            if let Some(hook) = hook.filter(|_| has_hook)
                && let Err(error) = self.hook(instance, &hook).await
            {
                tracing::debug!(container = instance.container.name, error, "the hook preStop failed");
            }
            instance.terminate();
            std::future::pending::<()>().await;
        };
        let overdue = async {
            loop {
                let sooner = (*of_pod.borrow_and_update()).map_or(deadline, |of_pod| of_pod.min(deadline));
                tokio::select! {
                    () = tokio::time::sleep_until(sooner) => return,
                    Ok(()) = of_pod.changed() => {}
                }
            }
        };
        tokio::select! {
            () = instance.ended() => return,
            () = asked => {}
            () = overdue => {}
        }
        instance.kill();
        instance.ended().await;
    }

    /// Forgets a pod: its running processes are killed, its folders go.
    pub(crate) fn forget(&self, uid: &str) {
        let Some(known) = lock(&self.0.pods).remove(uid) else {
            return;
        };
        let home = self.0.home.clone();
        let uid = uid.to_owned();
        tokio::spawn(async move {
            for instance in known.containers.values() {
                instance.kill();
                instance.ended().await;
            }
            // It logs its own failures.
            let _ = tokio::task::spawn_blocking(move || home.forget(&uid)).await;
        });
    }
}
