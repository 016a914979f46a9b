//! Warnings about a pod: fields that are allowed, but do not do what their author may expect.
//!
//! Not here: errors (see `validate` and its neighbours).

mod ports;

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use kubewright_schema::quantity::Quantity;
use kubewright_schema::{budget, names};

use serde_json::Value;

use super::annotations;
use crate::strategies::check::At;
use crate::strategies::service_warnings::address;
use kubewright_model::facts::pods::CONTAINER_LISTS;

/// Labels of nodes that have others now.
const OLD_LABELS: [(&str, &str); 8] = [
    (
        "beta.kubernetes.io/arch",
        "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
    ),
    (
        "beta.kubernetes.io/os",
        "deprecated since v1.14; use \"kubernetes.io/os\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    (
        "node-role.kubernetes.io/master",
        "use \"node-role.kubernetes.io/control-plane\" instead",
    ),
];
/// Kinds of volumes that are going or gone, the names that the warnings give them, and since when.
pub(crate) const OLD_VOLUMES: [(&str, &str, &str); 9] = [
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "gitRepo",
        "gitRepo",
        "deprecated in v1.11, and disabled by default in v1.33+",
    ),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    (
        "storageos",
        "storageOS",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    (
        "glusterfs",
        "glusterfs",
        "deprecated in v1.25, non-functional in v1.26+",
    ),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// The warnings about a new object whose pods are named after it.
pub(crate) fn names_of_pods(object: &Value) -> Option<String> {
    let messages = names::dns1123_label(kubewright_model::object::name(object));
    (!messages.is_empty()).then(|| {
        let why = "this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended";
        format!("metadata.name: {why}: [{}]", messages.join(" "))
    })
}

/// The warnings about a new pod.
pub(crate) fn of_new(pod: &Value) -> Vec<String> {
    let at = At::root(pod);
    let messages = names::dns1123_label(kubewright_model::object::name(pod));
    let hostname = (!messages.is_empty()).then(|| {
        format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
            messages.join(" ")
        )
    });
    hostname.into_iter().chain(warnings(&at)).collect()
}

/// Whether warnings about a template are given again: only after a change.
pub(crate) fn are_told(new: &Value, old: Option<&Value>) -> bool {
    old.is_none_or(|old| kubewright_model::object::generation(old) != kubewright_model::object::generation(new))
}

/// The texts of `Warning` headers about a pod, or about the template of one.
pub(crate) fn warnings(pod: &At<'_>) -> Vec<String> {
    let spec = pod.key("spec");
    let mut warn = Vec::new();
    labels(&spec, &mut warn);
    annotations::warnings(pod, &mut warn);
    for volume in spec.key("volumes").items() {
        volume_warnings(&volume, &mut warn);
    }
    twice(&spec.key("hostAliases"), "ip", &mut warn);
    twice(&spec.key("imagePullSecrets"), "name", &mut warn);
    for secret in spec.key("imagePullSecrets").items() {
        let name = secret.key("name");
        if name.text().is_empty() {
            warn.push(format!("{}: invalid empty name \"\"", name.path));
        }
    }
    fractions(&spec.key("overhead"), &["memory", "ephemeral-storage"], &mut warn);
    let lists = CONTAINER_LISTS.map(|list| spec.key(list));
    for container in lists.iter().flat_map(At::items) {
        if container.has_some("resources") {
            let resources = container.key("resources");
            for list in ["limits", "requests"].into_iter().filter(|list| resources.has(list)) {
                fractions(&resources.key(list), &["memory", "ephemeral-storage"], &mut warn);
            }
        }
        if container.has("env") {
            environment(&container, &mut warn);
        }
    }
    let with_ports = lists.iter().flat_map(|list| list.items_with("ports"));
    let all: Vec<At<'_>> = with_ports
        .flat_map(|container| container.key("ports").items())
        .collect();
    ports::ports(&all, &mut warn);
    let grace = spec.key("terminationGracePeriodSeconds");
    if grace.int().is_some_and(|seconds| seconds < 0) {
        warn.push(format!(
            "{}: must be >= 0; negative values are invalid and will be treated as 1",
            grace.path
        ));
    }
    selectors(&spec, &mut warn);
    let servers = spec.keys(&["dnsConfig", "nameservers"]);
    warn.extend(servers.items().filter_map(|server| address(&server)));
    let aliases = spec.key("hostAliases");
    warn.extend(aliases.items().filter_map(|alias| address(&alias.key("ip"))));
    warn
}

/// Why a label of nodes should not be used any more, if it should not.
pub(crate) fn old_label(key: &str) -> Option<&'static str> {
    let (_, why) = OLD_LABELS.iter().find(|(old, _)| *old == key)?;
    Some(why)
}

fn labels(spec: &At<'_>, warn: &mut Vec<String>) {
    for (key, entry) in spec.key("nodeSelector").entries() {
        warn.extend(old_label(key).map(|why| format!("{}: {why}", entry.path)));
    }
    let node = spec.keys(&["affinity", "nodeAffinity"]);
    let required = node.keys(&["requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"]);
    for term in required.items() {
        old_labels(&term, false, warn);
    }
    for term in node.key("preferredDuringSchedulingIgnoredDuringExecution").items() {
        old_labels(&term.key("preference"), true, warn);
    }
    for constraint in spec.key("topologySpreadConstraints").items() {
        let key = constraint.key("topologyKey");
        warn.extend(old_label(key.text()).map(|why| format!("{}: {} is {why}", key.path, key.text())));
        null_selector(&constraint, warn);
    }
}

/// Labels in `matchExpressions` that have others now; with `values`, their values that are none, too.
pub(crate) fn old_labels(term: &At<'_>, values: bool, warn: &mut Vec<String>) {
    for expression in term.key("matchExpressions").items() {
        let key = expression.key("key");
        warn.extend(old_label(key.text()).map(|why| format!("{}: {} is {why}", key.path, key.text())));
        for value in expression.key("values").items().filter(|_| values) {
            for message in names::label_value(value.text()) {
                warn.push(format!("{}: {} is invalid, {message}", value.path, value.text()));
            }
        }
    }
}

fn null_selector(at: &At<'_>, warn: &mut Vec<String>) {
    let selector = at.key("labelSelector");
    if !selector.present() {
        warn.push(format!(
            "{}: a null labelSelector results in matching no pod",
            selector.path
        ));
    }
}

fn selectors(spec: &At<'_>, warn: &mut Vec<String>) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let affinity = spec.keys(&["affinity", kind]);
        for term in affinity.key("requiredDuringSchedulingIgnoredDuringExecution").items() {
            null_selector(&term, warn);
        }
        for term in affinity.key("preferredDuringSchedulingIgnoredDuringExecution").items() {
            null_selector(&term.key("podAffinityTerm"), warn);
        }
    }
}

fn twice(list: &At<'_>, field: &str, warn: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for item in list.items() {
        let key = item.key(field);
        if !seen.insert(key.text()) {
            warn.push(format!("{}: duplicate {field} {:?}", key.path, key.text()));
        }
    }
}

/// Amounts of bytes that are no whole numbers.
pub(crate) fn fractions(list: &At<'_>, resources: &[&str], warn: &mut Vec<String>) {
    for (name, entry) in list.entries() {
        let Ok(amount) = Quantity::from_str(entry.text()) else {
            continue;
        };
        if resources.contains(&name) && amount.milli_value() % 1000 != 0 {
            warn.push(format!(
                "{}: fractional byte value \"{amount}\" is invalid, must be an integer",
                entry.path
            ));
        }
    }
}

fn environment(container: &At<'_>, warn: &mut Vec<String>) {
    let mut names = BTreeSet::new();
    for entry in container.key("env").items() {
        let (name, value) = (entry.text_of("name"), entry.text_of("value"));
        let reference = format!("$({name})");
        // Who builds on the earlier value means to.
        let extends = !entry.has("valueFrom") && value != reference && value.contains(&reference);
        if !names.insert(name) && !extends {
            warn.push(format!(
                "{}: hides previous definition of {name:?}, which may be dropped when using apply",
                entry.path
            ));
        }
    }
}

fn volume_warnings(volume: &At<'_>, warn: &mut Vec<String>) {
    // No warning is about these fields.
    const UNSUSPICIOUS: [&str; 4] = ["emptyDir", "hostPath", "name", "persistentVolumeClaim"];
    if !volume.has_beyond(&UNSUSPICIOUS) {
        return;
    }
    for (kind, shown, why) in OLD_VOLUMES {
        if volume.has(kind) {
            warn.push(format!("{}: {why}", volume.path.key(shown)));
        }
    }
    if volume.has("ephemeral") {
        let claim = volume.keys(&["ephemeral", "volumeClaimTemplate", "spec", "resources"]);
        for list in ["requests", "limits"] {
            fractions(&claim.key(list), &["storage"], warn);
        }
    }
    overlaps(volume, warn);
}

/// A file of a volume, and which source it comes from.
#[derive(Debug)]
struct File {
    path: String,
    source: String,
}

impl std::fmt::Display for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.path)?;
        if self.source.is_empty() {
            return Ok(());
        }
        write!(f, " ({})", self.source)
    }
}

fn files(items: &At<'_>, source: &str) -> Vec<File> {
    let paths = items.items().map(|item| File {
        path: item.text_of("path").trim_end_matches('/').to_owned(),
        source: source.to_owned(),
    });
    paths.collect()
}

/// Files of a volume of which one hides or holds another.
fn overlaps(volume: &At<'_>, warn: &mut Vec<String>) {
    let name = volume.text_of("name");
    for (kind, field, shown) in [
        ("configMap", "name", "ConfigMap"),
        ("secret", "secretName", "Secret"),
        ("downwardAPI", "", "DownwardAPI"),
    ] {
        if !volume.has(kind) {
            continue;
        }
        let source = volume.key(kind);
        if source.key("items").is_empty() {
            continue;
        }
        let description = match field {
            "" => shown.to_owned(),
            field => format!("{shown} {:?}", source.text_of(field)),
        };
        collisions(name, &description, files(&source.key("items"), ""), warn);
    }
    if !volume.has("projected") {
        return;
    }
    let mut all = Vec::new();
    for source in volume.keys(&["projected", "sources"]).items() {
        if source
            .value
            .as_object()
            .is_none_or(|map| map.values().all(serde_json::Value::is_null))
        {
            warn.push(format!("volume {name:?} (Projected) has no sources provided"));
        }
        all.extend(projected(&source));
    }
    collisions(name, "Projected", all, warn);
}

fn projected(source: &At<'_>) -> Vec<File> {
    let one = |path: &At<'_>, source: String| File {
        path: path.text().trim_end_matches('/').to_owned(),
        source,
    };
    let named = |at: &At<'_>, shown: &str| files(&at.key("items"), &format!("{shown} {:?}", at.text_of("name")));
    let (token, bundle, certificate) = (
        source.key("serviceAccountToken"),
        source.key("clusterTrustBundle"),
        source.key("podCertificate"),
    );
    if source.keys(&["configMap", "items"]).present() {
        named(&source.key("configMap"), "ConfigMap")
    } else if source.keys(&["secret", "items"]).present() {
        named(&source.key("secret"), "Secret")
    } else if source.keys(&["downwardAPI", "items"]).present() {
        files(&source.keys(&["downwardAPI", "items"]), "DownwardAPI")
    } else if token.present() {
        vec![one(&token.key("path"), "ServiceAccountToken".to_owned())]
    } else if bundle.present() {
        let name = [bundle.key("name"), bundle.key("signerName")]
            .into_iter()
            .find(At::present);
        let name = name.map_or("", |name| name.text());
        vec![one(&bundle.key("path"), format!("ClusterTrustBundle {name:?}"))]
    } else {
        [
            ("certificateChainPath", "PodCertificate chain"),
            ("keyPath", "PodCertificate key"),
            ("credentialBundlePath", "PodCertificate credential bundle"),
        ]
        .into_iter()
        .map(|(field, source)| one(&certificate.key(field), source.to_owned()))
        .filter(|file| !file.path.is_empty())
        .collect()
    }
}

/// Says which files are one, or lie in one another (`warningsForOverlappingVirtualPaths`).
///
/// Upstream compares each with all that were before. Here the earlier paths are sorted: paths below a file follow it,
/// and its parents are the prefixes of its own path. No warning is repeated, and there are never more than an answer
/// has room for.
fn collisions(volume: &str, description: &str, files: Vec<File>, warn: &mut Vec<String>) {
    /// More than fit into the 4 KiB of warnings of an answer.
    const MOST: usize = 128;
    // By the path with a slash behind it, then by the source: the first file that has both.
    let mut before: BTreeMap<(String, &str), usize> = BTreeMap::new();
    let mut warned = BTreeSet::new();
    for (index, file) in files.iter().enumerate().filter(|(_, file)| !file.path.is_empty()) {
        let mut others = overlapped(&file.path, &before);
        others.sort_unstable();
        for other in others.into_iter().filter_map(|other| files.get(other)) {
            budget::spend_on_text(file.path.len().saturating_add(other.path.len()));
            let text = format!("volume {volume:?} ({description}): overlapping paths: {file} with {other}");
            if !warned.contains(&text) {
                warn.push(text.clone());
                warned.insert(text);
            }
            if warned.len() >= MOST {
                return;
            }
        }
        before.entry((format!("{}/", file.path), &file.source)).or_insert(index);
    }
}

/// The files that are at a path, above it or below it.
fn overlapped(path: &str, before: &BTreeMap<(String, &str), usize>) -> Vec<usize> {
    let whole = format!("{path}/");
    let from = |path: &str| before.range((path.to_owned(), "")..);
    let mut found = Vec::new();
    for (end, _) in whole.match_indices('/') {
        let above = &whole[..=end];
        budget::spend_on_text(above.len());
        let same = from(above).take_while(|((other, _), _)| other == above);
        found.extend(same.map(|(_, index)| *index));
    }
    let below = from(&whole).skip_while(|((other, _), _)| *other == whole);
    found.extend(
        below
            .take_while(|((other, _), _)| other.starts_with(&whole))
            .map(|(_, index)| *index),
    );
    budget::spend(found.len());
    found
}

#[cfg(test)]
mod tests {
    use kubewright_schema::budget::Limits;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// As upstream, which compares each with each.
    fn in_pairs(files: &[File]) -> Vec<String> {
        let below = |path: &str, other: &str| format!("{path}/").starts_with(&format!("{other}/"));
        let mut warnings = Vec::new();
        for (index, file) in files.iter().enumerate().filter(|(_, file)| !file.path.is_empty()) {
            for other in files[..index].iter().filter(|other| !other.path.is_empty()) {
                let text = format!("volume \"v\" (P): overlapping paths: {file} with {other}");
                if (below(&file.path, &other.path) || below(&other.path, &file.path)) && !warnings.contains(&text) {
                    warnings.push(text);
                }
            }
        }
        warnings
    }

    fn some_file() -> impl Strategy<Value = File> {
        let path = prop::sample::select(&["", "a", "a/b", "a/b/c", "a.b", "ab", "/", "a//b", "b/a"][..]);
        (path, prop::sample::select(&["", "x", "y"][..])).prop_map(|(path, source)| File {
            path: path.to_owned(),
            source: source.to_owned(),
        })
    }

    proptest! {
        #[test]
        fn files_collide_as_in_pairs(files in prop::collection::vec(some_file(), 0..9)) {
            let expected = in_pairs(&files);
            let mut warnings = Vec::new();
            collisions("v", "P", files, &mut warnings);
            prop_assert_eq!(warnings, expected);
        }
    }

    #[test]
    fn many_files_take_few_steps() {
        let check = |path: fn(usize) -> String, expected: usize| {
            let files: Vec<File> = (0..5_000)
                .map(|index| File {
                    path: path(index),
                    source: String::new(),
                })
                .collect();
            let mut warnings = Vec::new();
            let limits = Limits {
                steps: 20 * 5_000,
                ..Limits::REQUEST
            };
            let done = budget::within(limits, || collisions("v", "P", files, &mut warnings));
            assert_eq!((done, warnings.len()), (Ok(()), expected));
        };
        check(|index| format!("f{index}"), 0);
        check(|_| "same".to_owned(), 1);
        check(
            |index| {
                if index == 0 {
                    "d".to_owned()
                } else {
                    format!("d/{index}")
                }
            },
            128,
        );
    }

    fn check(spec: &Value, want: &[&str]) {
        let pod = json!({"metadata": {}, "spec": spec});
        assert_eq!(warnings(&At::root(&pod)), want, "{spec}");
    }

    #[test]
    fn what_may_be_meant_otherwise_is_told() {
        let port =
            |name: &str, host: i64| json!({"containerPort": 80, "protocol": "TCP", "hostPort": host, "name": name});
        check(
            &json!({"containers": [{"ports": [port("a", 0)]}, {"ports": [port("a", 8080)]}]}),
            &[
                "spec.containers[1].ports[0]: overlapping port definition with spec.containers[0].ports[0]",
                "spec.containers[1].ports[0]: duplicate port name \"a\" with spec.containers[0].ports[0], services and probes that select ports by name will use spec.containers[0].ports[0]",
            ],
        );
        check(
            &json!({"containers": [{"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}, {"name": "A", "value": "3"}]}]}),
            &["spec.containers[0].env[2]: hides previous definition of \"A\", which may be dropped when using apply"],
        );
        check(
            &json!({"volumes": [{"name": "v", "configMap": {"name": "m", "items": [{"path": "a"}, {"path": "a/b"}, {"path": "ab"}]}}]}),
            &["volume \"v\" (ConfigMap \"m\"): overlapping paths: \"a/b\" with \"a\""],
        );
        check(
            &json!({"hostAliases": [{"ip": "1.2.3.4"}, {"ip": "1.2.3.4"}], "topologySpreadConstraints": [{"topologyKey": "beta.kubernetes.io/os"}]}),
            &[
                "spec.topologySpreadConstraints[0].topologyKey: beta.kubernetes.io/os is deprecated since v1.14; use \"kubernetes.io/os\" instead",
                "spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
                "spec.hostAliases[1].ip: duplicate ip \"1.2.3.4\"",
            ],
        );
    }
}
