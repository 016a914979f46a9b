//! Nothing is accepted in silence: each field of the kinds that a user writes is read by something that acts, or stands
//! with its warning in `crates/cluster/src/absent/rows.rs`, or stands below with the reason why nothing has to act.
//!
//! A field counts as read when a source that acts names it as code does (`.size_limit`, `"sizeLimit"`, `/sizeLimit`) and
//! also names what the field is in: the type, or a field that holds it. That finds silence, and no proof that the effect
//! is right: the tests of the readers are for that. Statuses, and metadata, are the API server's.

#[path = "../../../crates/cluster/src/absent/rows.rs"]
#[allow(clippy::duplicate_mod, reason = "data that the cluster uses and this test reads")]
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use crate::{files, root};

/// The kinds: group, plural, and definition.
const KINDS: &[(&str, &str, &str)] = &[
    ("", "pods", "io.k8s.api.core.v1.Pod"),
    ("", "replicationcontrollers", "io.k8s.api.core.v1.ReplicationController"),
    ("", "services", "io.k8s.api.core.v1.Service"),
    ("", "persistentvolumeclaims", "io.k8s.api.core.v1.PersistentVolumeClaim"),
    ("", "persistentvolumes", "io.k8s.api.core.v1.PersistentVolume"),
    ("", "nodes", "io.k8s.api.core.v1.Node"),
    ("", "namespaces", "io.k8s.api.core.v1.Namespace"),
    ("", "resourcequotas", "io.k8s.api.core.v1.ResourceQuota"),
    ("", "limitranges", "io.k8s.api.core.v1.LimitRange"),
    ("", "serviceaccounts", "io.k8s.api.core.v1.ServiceAccount"),
    ("", "secrets", "io.k8s.api.core.v1.Secret"),
    ("", "configmaps", "io.k8s.api.core.v1.ConfigMap"),
    ("apps", "deployments", "io.k8s.api.apps.v1.Deployment"),
    ("apps", "replicasets", "io.k8s.api.apps.v1.ReplicaSet"),
    ("apps", "statefulsets", "io.k8s.api.apps.v1.StatefulSet"),
    ("apps", "daemonsets", "io.k8s.api.apps.v1.DaemonSet"),
    ("batch", "jobs", "io.k8s.api.batch.v1.Job"),
    ("batch", "cronjobs", "io.k8s.api.batch.v1.CronJob"),
    (
        "autoscaling",
        "horizontalpodautoscalers",
        "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
    ),
    (
        "policy",
        "poddisruptionbudgets",
        "io.k8s.api.policy.v1.PodDisruptionBudget",
    ),
    ("networking.k8s.io", "ingresses", "io.k8s.api.networking.v1.Ingress"),
    (
        "networking.k8s.io",
        "networkpolicies",
        "io.k8s.api.networking.v1.NetworkPolicy",
    ),
    (
        "networking.k8s.io",
        "servicecidrs",
        "io.k8s.api.networking.v1.ServiceCIDR",
    ),
    ("storage.k8s.io", "storageclasses", "io.k8s.api.storage.v1.StorageClass"),
    (
        "storage.k8s.io",
        "volumeattachments",
        "io.k8s.api.storage.v1.VolumeAttachment",
    ),
];

/// The sources that act. Validation is none of them, nor are checks that only refuse, nor the types themselves.
const ACTING: &[&str] = &[
    "crates/apiserver/src/admission",
    "crates/apiserver/src/server/special",
    "crates/apiserver/src/server/upkeep",
    "crates/cluster/src",
    "crates/controllers/src",
    "crates/model/src/quota",
    "crates/nodes/src",
    "crates/objects/src",
];
const NOT_ACTING: &[&str] = &["absent", "pod_security", "node_restriction", "crates/objects/src/api"];

/// kube-apiserver drops the field, because its feature gate is off.
const DROPPED: &str = "dropped: behind a feature gate that is off";
/// The API server acts when the object is written.
const AT_THE_WRITE: &str = "the API server acts on it when the object is written";
/// An event of the pod names the field above.
const EVENT: &str = "an event NotEnforced of the pod names what it is part of";
/// Only drivers and operators read it, upstream as well.
const OF_DRIVERS: &str = "a matter of drivers, upstream as well";
/// Parts of something that a row has, or that a process is refused with.
const REFUSED: &str = "a process with such a volume does not start (FailedMount), and a simulated pod mounts nothing";

/// Fields that nothing reads, and why nothing has to: the type, its fields (`*`: all), the reason.
const REASONS: &[(&str, &[&str], &str)] = &[
    ("PodSpec", &["schedulingGroup", "evictionResponders"], DROPPED),
    ("Lifecycle", &["stopSignal"], DROPPED),
    (
        "HTTPGetAction",
        &["protocol"],
        "dropped (`drop_modes`): behind a feature gate that is off",
    ),
    ("GRPCAction", &["mode"], DROPPED),
    ("VolumeMount", &["bindMountOptions"], DROPPED),
    ("ConfigMapVolumeSource", &["defaultUser"], DROPPED),
    ("DownwardAPIVolumeSource", &["defaultUser"], DROPPED),
    ("ProjectedVolumeSource", &["defaultUser"], DROPPED),
    ("SecretVolumeSource", &["defaultUser"], DROPPED),
    ("NodeSpec", &["configSource", "podPreemptionPolicy"], DROPPED),
    ("JobSpec", &["scheduling"], DROPPED),
    (
        "PodAffinityTerm",
        &["matchLabelKeys", "mismatchLabelKeys"],
        "the API server adds them to labelSelector",
    ),
    ("JobSpec", &["manualSelector"], AT_THE_WRITE),
    ("Secret", &["immutable", "stringData"], AT_THE_WRITE),
    ("ConfigMap", &["immutable"], AT_THE_WRITE),
    (
        "StorageClass",
        &["allowVolumeExpansion"],
        "the API server refuses larger claims without it",
    ),
    (
        "VolumeMount",
        &["recursiveReadOnly"],
        "needs readOnly, which the event NotEnforced names",
    ),
    ("SecurityContext", &["windowsOptions"], "every node runs Linux"),
    ("PodSecurityContext", &["windowsOptions"], "every node runs Linux"),
    ("AppArmorProfile", &["*"], EVENT),
    (
        "ResourceClaim",
        &["request"],
        "no devices reach containers: the scheduler allocates none, and the pod waits with a condition that says so",
    ),
    ("Capabilities", &["drop"], "a simulated pod and a process have none"),
    ("SeccompProfile", &["*"], EVENT),
    ("SELinuxOptions", &["*"], EVENT),
    ("Sysctl", &["value"], EVENT),
    ("VolumeDevice", &["devicePath"], EVENT),
    (
        "PodSecurityContext",
        &["fsGroupChangePolicy", "seLinuxChangePolicy", "supplementalGroupsPolicy"],
        EVENT,
    ),
    ("HostPathVolumeSource", &["type"], REFUSED),
    (
        "EphemeralContainer",
        &["imagePullPolicy"],
        "read as that of a Container",
    ),
    (
        "EphemeralContainer",
        &[
            "lifecycle",
            "livenessProbe",
            "readinessProbe",
            "resizePolicy",
            "resources",
            "restartPolicy",
            "restartPolicyRules",
            "startupProbe",
        ],
        "not allowed for ephemeral containers",
    ),
    ("EphemeralContainer", &["securityContext", "volumeDevices"], EVENT),
    (
        "EphemeralContainer",
        &["targetContainerName"],
        "the processes of a pod see each other, and simulated ones have none",
    ),
    (
        "ServiceSpec",
        &["healthCheckNodePort"],
        "given with externalTrafficPolicy Local, which has a warning",
    ),
    (
        "ServiceSpec",
        &["sessionAffinityConfig"],
        "given with sessionAffinity ClientIP, which has a warning",
    ),
    ("PersistentVolumeSpec", &VOLUMES, OF_DRIVERS),
    ("CSIPersistentVolumeSource", &["*"], OF_DRIVERS),
    ("NFSVolumeSource", &["readOnly", "server"], OF_DRIVERS),
    ("LocalVolumeSource", &["fsType"], OF_DRIVERS),
    ("StorageClass", &["parameters"], OF_DRIVERS),
    (
        "NodeSpec",
        &["externalID", "podCIDR", "podCIDRs", "providerID"],
        "for network plugins and clouds, upstream as well",
    ),
    (
        "Taint",
        &["timeAdded"],
        "written here; only clients read it, upstream as well",
    ),
];

/// Sources of PersistentVolumes.
const VOLUMES: [&str; 18] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "glusterfs",
    "iscsi",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

/// The definitions by name: their fields, and the definitions that each holds.
type Definitions = BTreeMap<String, BTreeMap<String, Vec<String>>>;

fn held(property: &Value, found: &mut Vec<String>) {
    let link = property["$ref"].as_str().and_then(|link| link.rsplit('/').next());
    found.extend(link.map(str::to_owned));
    for inner in [&property["items"], &property["additionalProperties"]] {
        if inner.is_object() {
            held(inner, found);
        }
    }
    property["allOf"]
        .as_array()
        .into_iter()
        .flatten()
        .for_each(|inner| held(inner, found));
}

fn definitions() -> Definitions {
    let path = root().join("crates/schema/data/kubernetes.jsonl");
    let text = fs::read_to_string(path).expect("the definitions are committed");
    let mut all = Definitions::new();
    // A name stands once for each different text of its definition.
    for (name, json) in text.lines().filter_map(|line| line.split_once('\t')) {
        let definition: Value = serde_json::from_str(json).expect("a definition is JSON");
        let fields = all.entry(name.to_owned()).or_default();
        for (field, property) in definition["properties"].as_object().into_iter().flatten() {
            held(property, fields.entry(field.clone()).or_default());
        }
    }
    all
}

/// The texts of the sources that act, without comments and tests.
fn sources() -> Vec<String> {
    let mut paths = Vec::new();
    ACTING
        .iter()
        .for_each(|folder| files(&root().join(folder), ".rs", &mut paths));
    let acts = |path: &String| !NOT_ACTING.iter().chain(&["test"]).any(|part| path.contains(part));
    let paths = paths
        .iter()
        .map(|path| path.strip_prefix(root()).expect("below the root").display().to_string());
    paths
        .filter(acts)
        .map(|path| {
            let text = fs::read_to_string(root().join(path)).expect("a source can be read");
            let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let code = product.lines().filter(|line| !line.trim_start().starts_with("//"));
            code.collect::<Vec<_>>().join("\n")
        })
        .collect()
}

/// The fields that strategies of kinds take out of objects.
fn dropped() -> BTreeSet<String> {
    let mut paths = Vec::new();
    files(&root().join("crates/kinds/src/strategies"), ".rs", &mut paths);
    let mut all = BTreeSet::new();
    for path in paths {
        let text = fs::read_to_string(path).expect("a source can be read");
        let calls = text.split(".remove(\"").skip(1);
        all.extend(calls.filter_map(|call| call.split('"').next()).map(str::to_owned));
    }
    all
}

/// `sizeLimit` as `size_limit`, `clusterIPs` as `cluster_ips`.
fn snake(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut snake = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let after_small = at > 0 && letters[at - 1].is_lowercase();
        let ends_capitals = at > 0 && letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        let is_plural = letters.get(at + 1..).is_some_and(|rest| rest == ['s']);
        if letter.is_uppercase() && (after_small || ends_capitals && !is_plural) {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

/// Whether a text has this word, and what stands before and after it.
fn has(text: &str, word: &str, before: &[char], after: fn(&str) -> bool) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let front = text[..at].chars().next_back();
        (before.is_empty() && front.is_none_or(|c| !c.is_alphanumeric() && c != '_')
            || front.is_some_and(|c| before.contains(&c)))
            && after(&text[at + word.len()..])
    })
}

fn ends_word(rest: &str) -> bool {
    rest.chars().next().is_none_or(|c| !c.is_alphanumeric() && c != '_')
}

/// The same, and not an assignment.
fn is_read(rest: &str) -> bool {
    let rest = rest.strip_prefix('_').unwrap_or(rest);
    ends_word(rest) && !(rest.starts_with(" = ") || rest.starts_with("("))
}

/// Whether a source reads a field of a type that these fields hold.
fn reads(source: &str, type_: &str, field: &str, holders: &BTreeSet<String>) -> bool {
    let named = has(source, &snake(field), &['.'], is_read) || has(source, field, &['"', '/'], ends_word);
    let word = |name: &str| has(source, name, &[], ends_word);
    named && (word(type_) || holders.iter().any(|holder| word(holder) || word(&snake(holder))))
}

/// The fields that are silent, and rows and reasons that are about no field, or about one that is read.
struct Found {
    fields: usize,
    silent: Vec<String>,
    stale: Vec<String>,
}

fn look(definitions: &Definitions, sources: &[String], reasons: &[(&str, &[&str], &str)]) -> Found {
    let mut holders: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (field, held) in definitions.values().flatten() {
        for definition in held {
            holders.entry(definition).or_default().insert(field.clone());
        }
    }
    let mut found = Found {
        fields: 0,
        silent: Vec::new(),
        stale: Vec::new(),
    };
    // What rows are about, by the names of types.
    let mut warned = BTreeSet::new();
    for row in rows::ROWS {
        let kind = KINDS
            .iter()
            .find(|(group, plural, _)| (*group, *plural) == (row.group, row.plural));
        let mut at: Vec<String> = kind.iter().map(|(_, _, definition)| (*definition).to_owned()).collect();
        if row.path.is_empty() {
            warned.insert((at.first().cloned().unwrap_or_default(), String::new()));
        }
        for name in row.path.iter().filter(|name| **name != "*") {
            let mut next = Vec::new();
            for (definition, name) in at.iter().flat_map(|at| name.split('|').map(move |name| (at, name))) {
                match definitions.get(definition).and_then(|fields| fields.get(name)) {
                    Some(held) => next.extend(held.clone()),
                    None => found.stale.push(format!("a row: {definition} has no field {name}")),
                }
                if row
                    .path
                    .last()
                    .is_some_and(|last| last.split('|').any(|last| last == name))
                {
                    warned.insert((definition.clone(), name.to_owned()));
                }
            }
            next.sort();
            next.dedup();
            at = next;
        }
        // A `Warning` is one line of ASCII, and not cut.
        if !row
            .values
            .iter()
            .chain([&row.text])
            .all(|text| text.is_ascii() && text.len() <= 256)
        {
            found
                .stale
                .push(format!("a row: {:?} is no text for a header", row.text));
        }
        if kind.is_none() {
            found
                .stale
                .push(format!("a row: {} is no kind of this test", row.plural));
        }
    }
    let drops = dropped();
    let mut used = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut open: Vec<String> = KINDS
        .iter()
        .map(|(_, _, definition)| (*definition).to_owned())
        .collect();
    let kinds: BTreeSet<String> = open.iter().cloned().collect();
    while let Some(definition) = open.pop() {
        let is_warned = warned.contains(&(definition.clone(), String::new()));
        if definition.ends_with("ObjectMeta") || is_warned || !seen.insert(definition.clone()) {
            continue;
        }
        let type_ = definition.rsplit('.').next().unwrap_or_default();
        let none = BTreeSet::new();
        let holders = holders.get(definition.as_str()).unwrap_or(&none);
        for (field, held) in definitions.get(&definition).into_iter().flatten() {
            if kinds.contains(&definition) && ["apiVersion", "kind", "metadata", "status"].contains(&field.as_str()) {
                continue;
            }
            found.fields += 1;
            let reason = reasons
                .iter()
                .position(|(of, fields, _)| *of == type_ && fields.iter().any(|name| name == field || *name == "*"));
            if warned.contains(&(definition.clone(), field.clone())) {
                continue;
            }
            let is_read = sources.iter().any(|source| reads(source, type_, field, holders));
            match (reason, is_read) {
                (Some(reason), _) => {
                    let is_all = reasons[reason].1.contains(&"*");
                    used.insert((reason, if is_all { "*" } else { field.as_str() }.to_owned()));
                    let is_dropped = reasons[reason].2 == DROPPED;
                    if is_dropped && !drops.contains(field) {
                        found.stale.push(format!("{type_}.{field}: no strategy drops it"));
                    }
                    if is_read && !is_all && !is_dropped {
                        found.stale.push(format!("{type_}.{field} is read: it needs no reason"));
                    }
                }
                (None, true) => open.extend(held.clone()),
                (None, false) => found.silent.push(format!("{type_}.{field}")),
            }
        }
    }
    for (at, (type_, fields, _)) in reasons.iter().enumerate() {
        let unused = fields
            .iter()
            .filter(|field| !used.contains(&(at, (**field).to_owned())));
        found
            .stale
            .extend(unused.map(|field| format!("nothing is at {type_}.{field}, which has a reason")));
    }
    found
}

#[test]
fn nothing_is_accepted_in_silence() {
    let found = look(&definitions(), &sources(), REASONS);
    assert!(found.fields > 400, "the kinds have many fields; found {}", found.fields);
    let advice = "have a controller, node or the scheduler act on each, or add a row to crates/cluster/src/absent/rows.rs, or its reason here";
    assert!(
        found.silent.is_empty(),
        "accepted in silence: {:#?}\n{advice}",
        found.silent
    );
    assert!(found.stale.is_empty(), "{:#?}", found.stale);
}

#[test]
fn silence_is_found() {
    let mut definitions = definitions();
    let sources = sources();
    let spec = definitions
        .get_mut("io.k8s.api.core.v1.EmptyDirVolumeSource")
        .expect("a definition");
    spec.insert("colorOfDisk".to_owned(), Vec::new());
    let found = look(&definitions, &sources, REASONS);
    assert_eq!(found.silent, ["EmptyDirVolumeSource.colorOfDisk"]);
    // Without its reader, a field is silent; without a reason, too; and a reason for what is read is stale.
    let without: Vec<String> = sources
        .iter()
        .map(|source| {
            source
                .replace(".set_hostname_as_fqdn", "")
                .replace("setHostnameAsFQDN", "")
        })
        .collect();
    let found = look(&definitions, &without, REASONS);
    assert!(
        found.silent.contains(&"PodSpec.setHostnameAsFQDN".to_owned()),
        "{:?}",
        found.silent
    );
    let found = look(&definitions, &sources, &REASONS[1..]);
    assert!(
        found.silent.contains(&"PodSpec.schedulingGroup".to_owned()),
        "{:?}",
        found.silent
    );
    let read: &[(&str, &[&str], &str)] = &[("PodSpec", &["nodeName"], "for no reason")];
    let found = look(&definitions, &sources, read);
    assert!(
        found
            .stale
            .contains(&"PodSpec.nodeName is read: it needs no reason".to_owned())
    );
}

#[test]
fn names_in_rust() {
    for (name, expected) in [
        ("sizeLimit", "size_limit"),
        ("clusterIPs", "cluster_ips"),
        ("setHostnameAsFQDN", "set_hostname_as_fqdn"),
        ("hostIPC", "host_ipc"),
        ("podCIDRs", "pod_cidrs"),
        ("externalTrafficPolicy", "external_traffic_policy"),
        ("targetWWNs", "target_wwns"),
        ("volumeID", "volume_id"),
    ] {
        assert_eq!(snake(name), expected);
    }
}
