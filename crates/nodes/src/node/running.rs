//! Pods whose containers really run: the kubelet observes them, orders the next steps, and writes the status.
//!
//! The decisions are those of simulated pods (`life`, `live`); their orders are carried out here. Invariants: a pod
//! that is over has no process; a deleted pod goes when its last process has ended.

use std::collections::BTreeSet;
use std::time::Duration;

use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright::kube::api::DeleteParams;
use kubewright::{Action, Client, Context, EventType, Result, Stop};
use kubewright_objects::api::core::v1::{Container, Node, Pod, PodSpec, VolumeMount};
use kubewright_objects::api::node::v1::RuntimeClass;

use super::container::{ContainerContext, Observations};
use super::life::{self, Place};
use super::live::Live;
use super::{Kubelet, behaviour, ephemeral, hindrances, write};
use crate::processes::{self, Processes};
use kubewright_objects::{install, pods};
use kubewright_objects::{meta, node};

/// Nodes that run processes are this machine.
const HOST: &str = "127.0.0.1";
/// How long after a failure the missing objects of a pod are looked for again.
const AGAIN: Duration = Duration::from_secs(10);

/// Registers the RuntimeClasses by which pods say whether they are processes.
pub(crate) async fn register_classes(client: Client, stop: Stop) -> Result<()> {
    for name in [processes::CLASS, processes::SIMULATED_CLASS] {
        let class = RuntimeClass {
            metadata: kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                name: Some(name.to_owned()),
                ..Default::default()
            },
            handler: name.to_owned(),
            ..RuntimeClass::default()
        };
        install(&client, &class, &stop).await?;
    }
    Ok(())
}

impl Kubelet {
    /// Takes a pod of processes as far as it comes by now.
    pub(super) async fn run(&self, processes: &Processes, ctx: &Context, pod: &Pod, node: &Node) -> Result<Action> {
        // The uid is known when the pod is gone.
        self.with(pod, |_| ());
        if meta::is_deleting(&pod.metadata) {
            return self.end(processes, ctx, pod).await;
        }
        if pods::is_finished(pod) {
            // Whichever client set the phase: no process of the pod runs on.
            processes.stop_pod(pod, Duration::ZERO);
            return Ok(Action::await_change());
        }
        if !node::is_ready(node) {
            return Ok(Action::await_change());
        }
        let (obstacles, mut mount) = self.obstacles(ctx, pod).await?;
        let ip = self.address(ctx, pod).await?;
        let mut prepared = None;
        if mount.is_none() {
            match processes.prepare(ctx.client(), pod, &ip, ctx.now()).await? {
                Ok(ready) => prepared = Some(ready),
                Err((volume, why)) => mount = Some(format!("MountVolume.SetUp failed for volume \"{volume}\" : {why}")),
            }
        }
        let place = Place {
            ip: &ip,
            host: HOST,
            unmounted: mount.is_some(),
        };
        let mut tried = BTreeSet::new();
        let (status, mut notes) = loop {
            let mut notes = Observations::default();
            let seen = processes.seen(meta::uid(&pod.metadata));
            let scene = ContainerContext {
                runtime: &Live(&seen),
                obstacles: &obstacles,
                ..ContainerContext::clear(pod, Timestamp::now())
            };
            let status = life::go_on(&scene, &place, &mut notes);
            for (name, why) in &notes.stops {
                processes.stop_container(pod, name, None, why);
            }
            let mut is_new = false;
            for start in std::mem::take(&mut notes.starts) {
                let container = container(pod, &start.0);
                if let (Some(prepared), Some(container), true) = (&prepared, container, tried.insert(start.clone())) {
                    processes.start_container(pod, &container, start.1, prepared).await;
                    is_new = true;
                }
            }
            if !is_new {
                break (status, notes);
            }
        };
        let mark = life::mark(pod, &status);
        if self.with(pod, |of_pod| of_pod.mark.as_ref() != Some(&mark)) {
            let is_first = pod.status.as_ref().is_none_or(|status| status.start_time.is_none());
            hindrances(ctx, pod, &status, mount.as_deref());
            write(ctx, pod, status).await?;
            if is_first {
                for what in not_enforced(pod, processes.shared_user(pod)) {
                    ctx.event(pod, EventType::Warning, "NotEnforced", what);
                }
            }
            self.with(pod, |of_pod| of_pod.mark = Some(mark));
        }
        for (kind, reason, message) in processes
            .take_events(meta::uid(&pod.metadata))
            .into_iter()
            .chain(notes.events.split_off(0))
        {
            ctx.event(pod, kind, reason, message);
        }
        let due = prepared.and_then(|prepared| prepared.due);
        let due = due.map(|due| Duration::try_from(due.duration_since(ctx.now())).unwrap_or_default());
        let hindered = (mount.is_some() || !obstacles.is_empty()).then_some(AGAIN);
        let again = [notes.again, due, hindered].into_iter().flatten().min();
        Ok(again.map_or_else(Action::await_change, Action::requeue_after))
    }

    /// Ends a pod that is deleted, within its grace.
    async fn end(&self, processes: &Processes, ctx: &Context, pod: &Pod) -> Result<Action> {
        let uid = meta::uid(&pod.metadata);
        let is_new = self.with(pod, |of_pod| of_pod.end.replace(tokio::time::Instant::now()).is_none());
        let seen = processes.seen(uid);
        for (name, seen) in &seen {
            if is_new && matches!(seen.state, processes::State::Running { .. }) {
                let message = format!("Stopping container {name}");
                ctx.event(pod, EventType::Normal, "Killing", message);
            }
        }
        let until = pod.metadata.deletion_timestamp.as_ref();
        let left = until.map_or(Duration::ZERO, |until| {
            Duration::try_from(until.0.duration_since(ctx.now())).unwrap_or_default()
        });
        let is_over = processes.stop_pod(pod, left);
        for (kind, reason, message) in processes.take_events(uid) {
            ctx.event(pod, kind, reason, message);
        }
        if !is_over {
            return Ok(Action::await_change());
        }
        // A watch sees how it ended, and only then that it goes.
        if !pods::is_finished(pod) && pods::phase(pod) == "Running" {
            let seen = processes.seen(uid);
            let scene = ContainerContext {
                runtime: &Live(&seen),
                ..ContainerContext::clear(pod, Timestamp::now())
            };
            let place = Place::of("", HOST);
            let status = life::ended(&scene, &place);
            write(ctx, pod, status).await?;
        }
        processes.forget(uid);
        let at_once = DeleteParams {
            grace_period_seconds: Some(0),
            ..DeleteParams::default()
        };
        ctx.client().delete_with(pod, at_once).await?;
        Ok(Action::await_change())
    }
}

fn container(pod: &Pod, name: &str) -> Option<Container> {
    let spec = pod.spec.iter();
    let all = spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    let mut all = all.cloned().chain(ephemeral::of(pod));
    all.find(|container| container.name == name)
}

/// What a pod asks for and processes do not enforce, in words.
fn not_enforced(pod: &Pod, shared_user: Option<&str>) -> Vec<String> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let mut all: Vec<String> = shared_user.map(str::to_owned).into_iter().collect();
    let mut say = |is_said: bool, what: &str| {
        if is_said {
            all.push(format!("{what}: a process of this machine, no container"));
        }
    };
    let annotations = pod.metadata.annotations.iter().flatten();
    let mut annotations = annotations.map(|(key, _)| key);
    let is_simulated = annotations.any(|key| key.starts_with(behaviour::PREFIX));
    say(
        is_simulated,
        "annotations of the simulation say nothing of a pod that really runs",
    );
    let fields = security_fields(spec);
    let named = fields.into_iter().collect::<Vec<_>>().join(", ");
    say(!named.is_empty(), &format!("securityContext is not enforced ({named})"));
    let containers = || spec.init_containers.iter().flatten().chain(&spec.containers);
    let has_limit = |container: &Container, name: &str| {
        let resources = container.resources.as_ref();
        let limits = resources.and_then(|resources| resources.limits.as_ref());
        limits.is_some_and(|limits| limits.contains_key(name))
    };
    let is_limited = |name: &str| containers().any(|container| has_limit(container, name));
    say(is_limited("cpu"), "limits of cpu are not enforced");
    say(
        is_limited("ephemeral-storage"),
        "limits of ephemeral-storage are not enforced",
    );
    let has_host_port = |container: &Container| container.ports.iter().flatten().any(|port| port.host_port.is_some());
    say(containers().any(has_host_port), "hostPort is not published");
    let is_read_only = |container: &Container| {
        container
            .volume_mounts
            .iter()
            .flatten()
            .any(|mount| mount.read_only == Some(true) && !mount.mount_path.starts_with("/var/run/secrets/"))
    };
    say(
        containers().any(is_read_only),
        "readOnly of volumeMounts is not enforced",
    );
    let claims = || {
        spec.volumes
            .iter()
            .flatten()
            .filter_map(|volume| volume.persistent_volume_claim.as_ref())
    };
    say(
        claims().any(|claim| claim.read_only == Some(true)),
        "readOnly of persistentVolumeClaim is not enforced",
    );
    let has_mount = |is_odd: &dyn Fn(&VolumeMount) -> bool| {
        let mut mounts = containers().flat_map(|container| container.volume_mounts.iter().flatten());
        mounts.any(is_odd)
    };
    let propagates = |mount: &VolumeMount| mount.mount_propagation.as_deref().is_some_and(|how| how != "None");
    say(has_mount(&propagates), "mountPropagation of volumeMounts has no effect");
    let has_devices = |container: &Container| container.volume_devices.iter().flatten().next().is_some();
    say(containers().any(has_devices), "volumeDevices are not there");
    let empty = || {
        spec.volumes
            .iter()
            .flatten()
            .filter_map(|volume| volume.empty_dir.as_ref())
    };
    let is_medium = |medium: Option<&str>| medium.is_some_and(|medium| !medium.is_empty());
    say(
        empty().any(|empty| is_medium(empty.medium.as_deref())),
        "medium of emptyDir is not honored: it is a folder on the disk",
    );
    say(
        empty().any(|empty| empty.size_limit.is_some()),
        "sizeLimit of emptyDir is not enforced",
    );
    let of_pod = [
        (spec.share_process_namespace, true, "shareProcessNamespace"),
        (spec.host_pid, true, "hostPID"),
        (spec.host_ipc, true, "hostIPC"),
        (spec.host_users, false, "hostUsers: false"),
        (spec.set_hostname_as_fqdn, true, "setHostnameAsFQDN"),
        (spec.hostname_override.as_ref().map(|_| true), true, "hostnameOverride"),
    ];
    for (found, value, name) in of_pod {
        say(found == Some(value), &format!("{name} has no effect"));
    }
    all
}

/// The fields of security contexts that have no effect. Programs have no capabilities and gain none, and do not run as
/// root, whatever their pods say of that.
fn security_fields(spec: &PodSpec) -> BTreeSet<&'static str> {
    let mut fields = BTreeSet::new();
    let mut say = |is_said: bool, name: &'static str| {
        if is_said {
            fields.insert(name);
        }
    };
    if let Some(context) = &spec.security_context {
        say(context.run_as_user.is_some(), "runAsUser");
        say(context.run_as_group.is_some(), "runAsGroup");
        say(context.fs_group.is_some(), "fsGroup");
        say(context.supplemental_groups.is_some(), "supplementalGroups");
        say(context.sysctls.is_some(), "sysctls");
        say(context.seccomp_profile.is_some(), "seccompProfile");
        say(context.app_armor_profile.is_some(), "appArmorProfile");
        say(context.se_linux_options.is_some(), "seLinuxOptions");
    }
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        let Some(context) = &container.security_context else {
            continue;
        };
        say(context.run_as_user.is_some(), "runAsUser");
        say(context.run_as_group.is_some(), "runAsGroup");
        say(context.privileged == Some(true), "privileged");
        say(context.proc_mount.as_deref() == Some("Unmasked"), "procMount");
        say(
            context.allow_privilege_escalation == Some(true),
            "allowPrivilegeEscalation",
        );
        say(
            context.read_only_root_filesystem == Some(true),
            "readOnlyRootFilesystem",
        );
        say(context.seccomp_profile.is_some(), "seccompProfile");
        say(context.app_armor_profile.is_some(), "appArmorProfile");
        say(context.se_linux_options.is_some(), "seLinuxOptions");
        let added = context.capabilities.as_ref().and_then(|all| all.add.as_ref());
        say(added.is_some_and(|added| !added.is_empty()), "capabilities.add");
    }
    fields
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(spec: Value, expected: &[&str]) {
        let mut whole = json!({ "containers": [{ "name": "c" }] });
        for (key, value) in spec.as_object().expect("an object") {
            whole[key] = value.clone();
        }
        let pod: Pod = serde_json::from_value(json!({ "spec": whole })).expect("a pod");
        let said: Vec<String> = not_enforced(&pod, None)
            .iter()
            .map(|said| said.replace(": a process of this machine, no container", ""))
            .collect();
        assert_eq!(said, expected, "{spec}");
    }

    /// What is accepted acts, or an event says that it does not.
    #[test]
    fn what_is_told() {
        let of = |container: Value| {
            let mut whole = json!({ "name": "c" });
            for (key, value) in container.as_object().expect("an object") {
                whole[key] = value.clone();
            }
            json!({ "containers": [whole] })
        };
        check(json!({}), &[]);
        check(json!({ "securityContext": { "runAsNonRoot": true } }), &[]);
        check(
            json!({ "securityContext": { "runAsUser": 0, "fsGroup": 5, "supplementalGroups": [0] } }),
            &["securityContext is not enforced (fsGroup, runAsUser, supplementalGroups)"],
        );
        check(
            json!({ "setHostnameAsFQDN": true, "hostnameOverride": "db" }),
            &["setHostnameAsFQDN has no effect", "hostnameOverride has no effect"],
        );
        let claim = json!({ "name": "v", "persistentVolumeClaim": { "claimName": "c", "readOnly": true } });
        check(
            json!({ "volumes": [claim] }),
            &["readOnly of persistentVolumeClaim is not enforced"],
        );
        let mount = |how: &str| json!({ "name": "v", "mountPath": "/v", "mountPropagation": how });
        check(of(json!({ "volumeMounts": [mount("None")] })), &[]);
        check(
            of(json!({ "volumeMounts": [mount("Bidirectional")] })),
            &["mountPropagation of volumeMounts has no effect"],
        );
        let dropped = json!({ "capabilities": { "drop": ["ALL"] }, "allowPrivilegeEscalation": false });
        check(of(json!({ "securityContext": dropped })), &[]);
        check(
            of(
                json!({ "securityContext": { "capabilities": { "add": ["SYS_ADMIN"] }, "privileged": true,
                "seccompProfile": { "type": "RuntimeDefault" } } }),
            ),
            &["securityContext is not enforced (capabilities.add, privileged, seccompProfile)"],
        );
        check(
            of(json!({ "resources": { "limits": { "cpu": "1", "memory": "1Mi", "ephemeral-storage": "1Mi" } } })),
            &[
                "limits of cpu are not enforced",
                "limits of ephemeral-storage are not enforced",
            ],
        );
        check(
            json!({ "volumes": [{ "name": "v", "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } }] }),
            &[
                "medium of emptyDir is not honored: it is a folder on the disk",
                "sizeLimit of emptyDir is not enforced",
            ],
        );
        check(
            json!({ "shareProcessNamespace": true, "hostPID": true, "hostUsers": false }),
            &[
                "shareProcessNamespace has no effect",
                "hostPID has no effect",
                "hostUsers: false has no effect",
            ],
        );
        let pod: Pod = serde_json::from_value(json!({ "spec": { "containers": [] } })).expect("a pod");
        assert_eq!(not_enforced(&pod, Some("shared")), ["shared"]);
    }
}
