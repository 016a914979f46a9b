//! The parts that a sidecar takes over from the pod's own containers: their volume mounts and some of their
//! environment.

use kubewright::k8s_openapi::api::core::v1::{Container, EnvVar, Pod, VolumeMount};
use sidecarset_api::v1alpha1::{ShareVolumePolicyType, SidecarContainer, TransferEnv};

/// The variable that marks a container as injected.
pub(super) const IS_INJECTED: &str = "IS_INJECTED";

/// The pod's own containers: those that no SidecarSet has put there.
pub(super) fn own_containers(pod: &Pod) -> Vec<Container> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers
        .filter(|container| !is_injected(container))
        .cloned()
        .collect()
}

/// Whether a SidecarSet has put the container there.
pub(super) fn is_injected(container: &Container) -> bool {
    let mut env = container.env.iter().flatten();
    env.any(|env| env.name == IS_INJECTED && env.value.as_deref() == Some("true"))
}

/// The container as it goes into the pod.
pub(super) fn complete(sidecar: &SidecarContainer, pod: &Pod, own: &[Container]) -> Container {
    let mut container = sidecar.container.clone();
    let mut env = container.env.take().unwrap_or_default();
    add(
        &mut env,
        EnvVar {
            name: IS_INJECTED.to_owned(),
            value: Some("true".to_owned()),
            ..EnvVar::default()
        },
    );
    let policy = sidecar.share_volume_policy.as_ref().and_then(|policy| policy.type_);
    if policy == Some(ShareVolumePolicyType::Enabled) {
        share(&mut container, &mut env, own);
    }
    for transfer in &sidecar.transfer_env {
        for variable in transferred(transfer, pod, own) {
            add(&mut env, variable);
        }
    }
    container.env = Some(env);
    container
}

/// Adds a variable unless one of its name is there: what the sidecar itself says wins.
fn add(env: &mut Vec<EnvVar>, variable: EnvVar) {
    if !env.iter().any(|present| present.name == variable.name) {
        env.push(variable);
    }
}

/// Adds the mounts of the pod's own containers at paths that are free, with the variables that their `subPathExpr`
/// names.
fn share(container: &mut Container, env: &mut Vec<EnvVar>, own: &[Container]) {
    let mut mounts = container.volume_mounts.take().unwrap_or_default();
    for source in own {
        for mount in source.volume_mounts.iter().flatten() {
            if mounts.iter().any(|present| present.mount_path == mount.mount_path) {
                continue;
            }
            mounts.push(mount.clone());
            let named = variables(mount);
            let found = source
                .env
                .iter()
                .flatten()
                .filter(|variable| named.contains(&variable.name.as_str()));
            found.for_each(|variable| add(env, variable.clone()));
        }
    }
    container.volume_mounts = Some(mounts);
}

/// The variables in a `subPathExpr`: `$(POD_NAME)/logs`. `$$(…)` is a text and names none.
fn variables(mount: &VolumeMount) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = mount.sub_path_expr.as_deref().unwrap_or_default();
    while let Some(at) = rest.find('$') {
        let after = rest.get(at.saturating_add(1)..).unwrap_or_default();
        if let Some(text) = after.strip_prefix('$') {
            rest = text;
        } else if let Some((name, text)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            names.push(name);
            rest = text;
        } else {
            rest = after;
        }
    }
    names
}

/// The variables that are taken over, as they are in their container, `valueFrom` included. Missing ones are left out.
fn transferred(transfer: &TransferEnv, pod: &Pod, own: &[Container]) -> Vec<EnvVar> {
    let Some(source) = source_name(transfer, pod) else {
        return Vec::new();
    };
    let Some(container) = own.iter().find(|container| container.name == source) else {
        return Vec::new();
    };
    let names = transfer.env_name.iter().chain(&transfer.env_names);
    let one = |name: &String| container.env.iter().flatten().find(|env| env.name == *name).cloned();
    names.filter(|name| !name.is_empty()).filter_map(one).collect()
}

/// The name of the container that variables come from.
fn source_name(transfer: &TransferEnv, pod: &Pod) -> Option<String> {
    if let Some(name) = transfer.source_container_name.as_ref().filter(|name| !name.is_empty()) {
        return Some(name.clone());
    }
    let path = &transfer
        .source_container_name_from
        .as_ref()?
        .field_ref
        .as_ref()?
        .field_path;
    let metadata = &pod.metadata;
    let (key, values) = match key_in(path, "metadata.labels") {
        Some(key) => (key, metadata.labels.as_ref()),
        None => (key_in(path, "metadata.annotations")?, metadata.annotations.as_ref()),
    };
    values?.get(key).cloned()
}

/// The key in a path such as `metadata.labels['app']`.
pub(super) fn key_in<'a>(path: &'a str, field: &str) -> Option<&'a str> {
    path.strip_prefix(field)?.strip_prefix("['")?.strip_suffix("']")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_a_sub_path() {
        let check = |expression: &str, expected: &[&str]| {
            let mount = VolumeMount {
                sub_path_expr: Some(expression.to_owned()),
                ..VolumeMount::default()
            };
            assert_eq!(variables(&mount), expected, "{expression}");
        };
        check("", &[]);
        check("logs/$(POD)", &["POD"]);
        check("$(A)-$(B)", &["A", "B"]);
        check("$$(A)/$(B)", &["B"]);
        check("$(A", &[]);
        check("$", &[]);
    }
}
