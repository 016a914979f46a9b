//! What a default cluster has: the feature gates, versions and admission plugins of kube-apiserver.
//!
//! This server is that of a default cluster: a gate (`data/feature-gates.txt`) or a version at its default is silent,
//! another value is accepted with a warning, and one that does not exist is refused in the words of the original.

use kubewright_cluster::Minor;

use super::flags::{Given, truth};

const GATES: &str = include_str!("../../data/feature-gates.txt");

/// The groups and versions that every version of Kubernetes serves.
const SERVED: [&str; 22] = [
    "admissionregistration.k8s.io/v1",
    "apiextensions.k8s.io/v1",
    "apiregistration.k8s.io/v1",
    "apps/v1",
    "authentication.k8s.io/v1",
    "authorization.k8s.io/v1",
    "autoscaling/v1",
    "autoscaling/v2",
    "batch/v1",
    "certificates.k8s.io/v1",
    "coordination.k8s.io/v1",
    "discovery.k8s.io/v1",
    "events.k8s.io/v1",
    "flowcontrol.apiserver.k8s.io/v1",
    "networking.k8s.io/v1",
    "node.k8s.io/v1",
    "policy/v1",
    "rbac.authorization.k8s.io/v1",
    "resource.k8s.io/v1",
    "scheduling.k8s.io/v1",
    "storage.k8s.io/v1",
    "v1",
];
/// Those that only some serve, from this one on.
const SERVED_SINCE: [(Minor, &str); 1] = [(Minor::V37, "storagemigration.k8s.io/v1")];
/// Groups of kube-apiserver of which no version is on by default.
const UNSERVED_GROUPS: [&str; 2] = ["internal.apiserver.k8s.io", "storagemigration.k8s.io"];

/// The admission plugins of kube-apiserver that are always part of this server.
pub(super) const BUILT_IN_PLUGINS: [&str; 8] = [
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "ClusterTrustBundleAttest",
    "DefaultIngressClass",
    "DefaultStorageClass",
    "Priority",
    "RuntimeClass",
];

/// The plugins that this server does not have. None of them is on by default but the last.
pub(super) const MISSING_PLUGINS: [&str; 13] = [
    "AlwaysAdmit",
    "AlwaysDeny",
    "AlwaysPullImages",
    "DenyServiceExternalIPs",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "ImagePolicyWebhook",
    "LimitPodHardAntiAffinityTopology",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "PodNodeSelector",
    "PodTolerationRestriction",
    "NodeDeclaredFeatureValidator",
];

/// What a version serves.
fn served(minor: Minor) -> impl Iterator<Item = &'static str> {
    let later = SERVED_SINCE.iter().filter(move |(since, _)| *since <= minor);
    SERVED.into_iter().chain(later.map(|(_, served)| *served))
}

/// Whether a gate is on in a default cluster; `None`: there is no such gate.
fn gate(name: &str, minor: Minor) -> Option<bool> {
    let lines = GATES.lines().filter(|line| !line.starts_with('#'));
    let states = lines.filter_map(|line| match line.split_once(' ')? {
        (since, rest) if since.starts_with("1.") => {
            let since: Minor = since.parse().ok()?;
            Some((since, rest)).filter(|_| since <= minor)
        }
        _ => Some((Minor::OLDEST, line)),
    });
    let states = states.filter_map(|(since, line)| Some((since, line.split_once(' ')?)));
    let has = states.filter(|(_, (_, names))| names.split(' ').any(|one| one == name));
    match has.max_by_key(|(since, _)| *since)? {
        (_, ("on", _)) => Some(true),
        (_, ("off", _)) => Some(false),
        _ => None,
    }
}

/// Reads `--feature-gates` (`MutableFeatureGate.Set` of component-base).
///
/// # Errors
/// Gates that do not exist or have no value.
pub(super) fn gates(given: &Given, minor: Minor, warnings: &mut Vec<String>) -> Result<(), String> {
    for entry in given.list("feature-gates") {
        let entry = match entry.split_once(':') {
            Some(("kube", entry)) => entry,
            Some((other, _)) => return Err(format!("component not registered: {other}")),
            None => entry,
        };
        let (name, value) = entry
            .split_once('=')
            .ok_or_else(|| format!("missing bool value for {entry}"))?;
        let (name, value) = (name.trim(), value.trim());
        let wanted = truth(value).ok_or_else(|| {
            format!("invalid value of {name}={value}, err: strconv.ParseBool: parsing {value:?}: invalid syntax")
        })?;
        let default = gate(name, minor).ok_or_else(|| format!("unrecognized feature gate: {name}"))?;
        if default != wanted {
            let state = if default { "on" } else { "off" };
            warnings.push(format!(
                "--feature-gates={name}={wanted} changes nothing: the feature stays {state}, as in a default cluster"
            ));
        }
    }
    Ok(())
}

/// Reads `--runtime-config` (`APIEnablementOptions`).
///
/// # Errors
/// Keys that name no API, and values that are none.
pub(super) fn runtime_config(given: &Given, minor: Minor, warnings: &mut Vec<String>) -> Result<(), String> {
    if given.list("runtime-config") == ["api/all=false"] {
        return Err("invalid runtime-config with only api/all=false".to_owned());
    }
    for entry in given.list("runtime-config") {
        let (key, value) = entry.split_once('=').unwrap_or((entry, "true"));
        let wanted = truth(value);
        let warning = match key {
            "api/all" | "api/ga" | "api/beta" | "api/alpha" | "api/legacy" => {
                let wanted = wanted.ok_or_else(|| format!("invalid value {entry}"))?;
                many(key, wanted)
            }
            "v1" => one(key, wanted, value, minor)?,
            key if key.contains('/') => one(key, wanted, value, minor)?,
            other => return Err(format!("runtime-config invalid key {other}")),
        };
        if let Some(why) = warning {
            warnings.push(format!("--runtime-config={key}={value} changes nothing: {why}"));
        }
    }
    Ok(())
}

/// The missing part for a kind of versions.
fn many(key: &str, wanted: bool) -> Option<&'static str> {
    match (key, wanted) {
        ("api/ga" | "api/legacy", true) | ("api/beta" | "api/alpha", false) => None,
        (_, true) => Some("versions that are off in a default cluster are not served"),
        (_, false) => Some("versions that are on in a default cluster stay served"),
    }
}

/// The missing part for one version, or one resource of it.
fn one(key: &str, wanted: Option<bool>, value: &str, minor: Minor) -> Result<Option<&'static str>, String> {
    let invalid =
        || format!("invalid value of {key}: {value}, err: strconv.ParseBool: parsing {value:?}: invalid syntax");
    let wanted = wanted.ok_or_else(invalid)?;
    let group = key.split('/').next().unwrap_or(key);
    let of_group = |served: &str| served.split('/').next() == Some(group);
    if !SERVED.iter().any(|served| of_group(served)) && !UNSERVED_GROUPS.contains(&group) {
        return Err(format!("unknown api groups {key}"));
    }
    let is_served =
        served(minor).any(|served| key == served || key.strip_prefix(served).is_some_and(|rest| rest.starts_with('/')));
    Ok(match (is_served, wanted) {
        (true, true) | (false, false) => None,
        (true, false) => Some("it stays served, as in a default cluster"),
        (false, true) => Some("it is not served by kubewright"),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::{flags, table::APISERVER};
    use super::*;

    /// The warnings about a flag, by their ends, or the error.
    #[track_caller]
    fn check(flag: &str, expected: Result<&[&str], &str>) {
        check_in(Minor::V36, flag, expected);
    }

    #[track_caller]
    fn check_in(minor: Minor, flag: &str, expected: Result<&[&str], &str>) {
        let given = flags::parse(APISERVER, &[flag.to_owned()]).unwrap();
        let mut warnings = Vec::new();
        let read = gates(&given, minor, &mut warnings).and_then(|()| runtime_config(&given, minor, &mut warnings));
        match expected {
            Err(why) => assert_eq!(read.unwrap_err(), why, "{flag}"),
            Ok(ends) => {
                assert_eq!(read, Ok(()), "{flag}");
                assert_eq!(warnings.len(), ends.len(), "{flag}: {warnings:?}");
                for (warning, end) in warnings.iter().zip(ends) {
                    assert!(warning.ends_with(end), "{flag}: {warning}");
                }
            }
        }
    }

    /// The words are those of kube-apiserver 1.36.3.
    #[test]
    fn gates_are_known_and_their_defaults_say_nothing() {
        check(
            "--feature-gates=WatchList=true,kube:APIResponseCompression=true",
            Ok(&[]),
        );
        let off = "the feature stays on, as in a default cluster";
        check("--feature-gates=WatchList=false", Ok(&[off]));
        let on = "the feature stays off, as in a default cluster";
        check("--feature-gates=AllAlpha=true", Ok(&[on]));
        check(
            "--feature-gates=other:WatchList=true",
            Err("component not registered: other"),
        );
        check(
            "--feature-gates=Nonsense=true",
            Err("unrecognized feature gate: Nonsense"),
        );
        check(
            "--feature-gates=APIListChunking",
            Err("missing bool value for APIListChunking"),
        );
        check(
            "--feature-gates=WatchList=maybe",
            Err("invalid value of WatchList=maybe, err: strconv.ParseBool: parsing \"maybe\": invalid syntax"),
        );
        check("--feature-gates=ConsistentListFromCache=false", Ok(&[off]));
    }

    /// As `versioned_feature_list.yaml` of 1.37.2 has them.
    #[test]
    fn gates_are_those_of_the_version() {
        let on = "the feature stays on, as in a default cluster";
        check_in(
            Minor::V37,
            "--feature-gates=HPAScaleToZero=true,WatchList=true",
            Ok(&[]),
        );
        check_in(Minor::V37, "--feature-gates=WatchListCompression=false", Ok(&[on]));
        let unknown = |name: &str| format!("unrecognized feature gate: {name}");
        check_in(
            Minor::V37,
            "--feature-gates=SidecarContainers=true",
            Err(&unknown("SidecarContainers")),
        );
        check("--feature-gates=SidecarContainers=true", Ok(&[]));
        check(
            "--feature-gates=WatchListCompression=true",
            Err(&unknown("WatchListCompression")),
        );
        check_in(Minor::V37, "--runtime-config=storagemigration.k8s.io/v1=true", Ok(&[]));
        check(
            "--runtime-config=storagemigration.k8s.io/v1=true",
            Ok(&["not served by kubewright"]),
        );
    }

    #[test]
    fn versions_are_known_and_what_is_served_says_nothing() {
        check(
            "--runtime-config=batch/v1=true,v1,apps/v1/deployments=true,api/beta=false",
            Ok(&[]),
        );
        check("--runtime-config=api/all=true", Ok(&["are not served"]));
        check("--runtime-config=batch/v1=false", Ok(&["as in a default cluster"]));
        check(
            "--runtime-config=resource.k8s.io/v1beta1=true",
            Ok(&["not served by kubewright"]),
        );
        check(
            "--runtime-config=storagemigration.k8s.io/v1beta1=true",
            Ok(&["not served by kubewright"]),
        );
        check(
            "--runtime-config=nonsense=true",
            Err("runtime-config invalid key nonsense"),
        );
        check(
            "--runtime-config=nonsense/v1=true",
            Err("unknown api groups nonsense/v1"),
        );
        check(
            "--runtime-config=api/all=false",
            Err("invalid runtime-config with only api/all=false"),
        );
        check("--runtime-config=api/all=x", Err("invalid value api/all=x"));
        check(
            "--runtime-config=batch/v1=maybe",
            Err("invalid value of batch/v1: maybe, err: strconv.ParseBool: parsing \"maybe\": invalid syntax"),
        );
    }

    #[tokio::test]
    async fn what_is_said_to_be_served_is() {
        for minor in Minor::ALL {
            let cluster = kubewright_cluster::Cluster::builder()
                .controllers(kubewright_cluster::Controllers::None)
                .kubernetes_version(minor)
                .start()
                .await
                .unwrap();
            let rows = cluster.api().kinds().resources();
            let found: BTreeSet<String> = rows.iter().map(|row| row.api_version()).collect();
            let expected: BTreeSet<String> = served(minor).map(str::to_owned).collect();
            assert_eq!(found, expected);
        }
    }
}
