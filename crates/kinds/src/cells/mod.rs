//! The cells of the built-in kinds: functions of the object and the present time, in the order of the columns.

use jiff::Timestamp;
use serde_json::Value;

use kubewright_model::Cell;
use kubewright_model::age;
use kubewright_model::values::{At, get};

mod more;
mod pod;

pub(crate) use more::*;
pub(crate) use pod::POD;

pub(super) const NONE: &str = "<none>";

pub(super) fn text<'a>(object: &'a Value, keys: &[&str]) -> &'a str {
    get(object, keys).as_str().unwrap_or("")
}

pub(super) fn number(object: &Value, keys: &[&str]) -> i64 {
    get(object, keys).as_i64().unwrap_or(0)
}

/// The text, or another one when it is empty.
pub(super) fn or<'a>(text: &'a str, other: &'a str) -> &'a str {
    if text.is_empty() { other } else { text }
}

/// `a=b,c=d`, or `<none>`.
pub(super) fn labels(map: &Value) -> String {
    let pairs: Vec<String> = At::root(map)
        .entries()
        .map(|(key, value)| format!("{key}={}", value.text()))
        .collect();
    or(&pairs.join(","), NONE).to_owned()
}

fn selector(object: &Value, _: Timestamp) -> Value {
    selector_of(&At::root(object).keys(&["spec", "selector"]))
}

/// A label selector in words: `a=b,c in (d,e)`, or `<none>`.
pub(super) fn selector_of(at: &At<'_>) -> Value {
    let mut words: Vec<(&str, String)> = at
        .key("matchLabels")
        .entries()
        .map(|(key, value)| (key, format!("{key}={}", value.text())))
        .collect();
    for expression in at.key("matchExpressions").items() {
        let key = expression.key("key").text();
        let mut values: Vec<&str> = expression
            .key("values")
            .items()
            .map(|value| value.value.as_str().unwrap_or(""))
            .collect();
        values.sort_unstable();
        let values = values.join(",");
        let word = match expression.key("operator").text() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        words.push((key, word));
    }
    // In the order of the keys; of one key, labels come first.
    words.sort_by_key(|(key, _)| *key);
    let words: Vec<String> = words.into_iter().map(|(_, word)| word).collect();
    or(&words.join(","), NONE).into()
}

fn of_template(object: &Value, field: &str) -> Value {
    of_containers(&At::root(object).keys(&["spec", "template", "spec"]), field)
}

/// A field of all containers of a pod's spec.
pub(super) fn of_containers(spec: &At<'_>, field: &str) -> Value {
    spec.key("containers")
        .items()
        .map(|container| container.key(field).text())
        .collect::<Vec<_>>()
        .join(",")
        .into()
}

pub(super) fn container_names(object: &Value, _: Timestamp) -> Value {
    of_template(object, "name")
}

pub(super) fn container_images(object: &Value, _: Timestamp) -> Value {
    of_template(object, "image")
}

fn created_at(object: &Value, _: Timestamp) -> Value {
    text(object, &["metadata", "creationTimestamp"]).into()
}

/// Kinds that only have a name and a time.
pub(crate) const PLAIN: &[Cell] = &[Cell::Name, Cell::With(created_at)];
pub(crate) const NAME_AND_AGE: &[Cell] = &[Cell::Name, Cell::Age];

pub(crate) const COMPONENT: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| {
        let healthy = At::root(object)
            .key("conditions")
            .items()
            .find(|condition| condition.key("type").text() == "Healthy");
        match healthy.map(|condition| condition.key("status").text()) {
            Some("True") => "Healthy".into(),
            Some("False") => "Unhealthy".into(),
            _ => "Unknown".into(),
        }
    }),
    Cell::With(|object, _| of_health(object, "message")),
    Cell::With(|object, _| of_health(object, "error")),
];

fn of_health(object: &Value, field: &str) -> Value {
    let healthy = At::root(object)
        .key("conditions")
        .items()
        .find(|condition| condition.key("type").text() == "Healthy");
    healthy.map_or("", |condition| condition.key(field).text()).into()
}

pub(crate) const CONFIG_MAP: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| (At::root(object).key("data").len() + At::root(object).key("binaryData").len()).into()),
    Cell::Age,
];

pub(crate) const SECRET: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| text(object, &["type"]).into()),
    Cell::With(|object, _| At::root(object).key("data").len().into()),
    Cell::Age,
];

pub(crate) const NAMESPACE: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| text(object, &["status", "phase"]).into()),
    Cell::Age,
];

pub(crate) const LEASE: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| text(object, &["spec", "holderIdentity"]).into()),
    Cell::Age,
];

pub(crate) const DEPLOYMENT: &[Cell] = &[
    Cell::Name,
    Cell::With(ready),
    Cell::With(|object, _| number(object, &["status", "updatedReplicas"]).into()),
    Cell::With(|object, _| number(object, &["status", "availableReplicas"]).into()),
    Cell::Age,
    Cell::With(container_names),
    Cell::With(container_images),
    Cell::With(selector),
];

fn ready(object: &Value, _: Timestamp) -> Value {
    format!(
        "{}/{}",
        number(object, &["status", "readyReplicas"]),
        number(object, &["spec", "replicas"])
    )
    .into()
}

pub(crate) const REPLICA_SET: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| number(object, &["spec", "replicas"]).into()),
    Cell::With(|object, _| number(object, &["status", "replicas"]).into()),
    Cell::With(|object, _| number(object, &["status", "readyReplicas"]).into()),
    Cell::Age,
    Cell::With(container_names),
    Cell::With(container_images),
    Cell::With(selector),
];

pub(crate) const STATEFUL_SET: &[Cell] = &[
    Cell::Name,
    Cell::With(ready),
    Cell::Age,
    Cell::With(container_names),
    Cell::With(container_images),
];

pub(crate) const DAEMON_SET: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| number(object, &["status", "desiredNumberScheduled"]).into()),
    Cell::With(|object, _| number(object, &["status", "currentNumberScheduled"]).into()),
    Cell::With(|object, _| number(object, &["status", "numberReady"]).into()),
    Cell::With(|object, _| number(object, &["status", "updatedNumberScheduled"]).into()),
    Cell::With(|object, _| number(object, &["status", "numberAvailable"]).into()),
    Cell::With(|object, _| labels(get(object, &["spec", "template", "spec", "nodeSelector"])).into()),
    Cell::Age,
    Cell::With(container_names),
    Cell::With(container_images),
    Cell::With(selector),
];

pub(crate) const CONTROLLER_REVISION: &[Cell] = &[
    Cell::Name,
    Cell::With(controller),
    Cell::With(|object, _| number(object, &["revision"]).into()),
    Cell::Age,
];

fn controller(object: &Value, _: Timestamp) -> Value {
    let owners = At::root(object).keys(&["metadata", "ownerReferences"]);
    let Some(owner) = owners.items().find(|owner| owner.key("controller").is_true()) else {
        return NONE.into();
    };
    let kind = match owner.key("apiVersion").text().split_once('/') {
        Some((group, _)) => format!("{}.{group}", owner.key("kind").text()),
        None => owner.key("kind").text().to_owned(),
    };
    format!("{}/{}", kind.to_lowercase(), owner.key("name").text()).into()
}

pub(crate) const JOB: &[Cell] = &[
    Cell::Name,
    Cell::With(job_status),
    Cell::With(job_completions),
    Cell::With(job_duration),
    Cell::Age,
    Cell::With(container_names),
    Cell::With(container_images),
    Cell::With(selector),
];

fn has_condition(object: &Value, kind: &str) -> bool {
    At::root(object)
        .keys(&["status", "conditions"])
        .items()
        .any(|condition| condition.key("type").text() == kind && condition.key("status").text() == "True")
}

fn job_status(object: &Value, _: Timestamp) -> Value {
    let deleted = !get(object, &["metadata", "deletionTimestamp"]).is_null();
    if has_condition(object, "Complete") {
        "Complete"
    } else if has_condition(object, "Failed") {
        "Failed"
    } else if deleted {
        "Terminating"
    } else if has_condition(object, "Suspended") {
        "Suspended"
    } else if has_condition(object, "FailureTarget") {
        "FailureTarget"
    } else if has_condition(object, "SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
    .into()
}

fn job_completions(object: &Value, _: Timestamp) -> Value {
    let done = number(object, &["status", "succeeded"]);
    match (
        get(object, &["spec", "completions"]).as_i64(),
        number(object, &["spec", "parallelism"]),
    ) {
        (Some(wanted), _) => format!("{done}/{wanted}"),
        (None, parallel) if parallel > 1 => format!("{done}/1 of {parallel}"),
        (None, _) => format!("{done}/1"),
    }
    .into()
}

fn job_duration(object: &Value, now: Timestamp) -> Value {
    let time = |field: &str| text(object, &["status", field]).parse::<Timestamp>().ok();
    match (time("startTime"), time("completionTime")) {
        (None, _) => "".into(),
        (Some(start), end) => age::duration(end.unwrap_or(now).duration_since(start).as_secs()).into(),
    }
}

pub(crate) const SERVICE: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| text(object, &["spec", "type"]).into()),
    Cell::With(|object, _| {
        or(
            get(object, &["spec", "clusterIPs"])
                .get(0)
                .and_then(Value::as_str)
                .unwrap_or(""),
            NONE,
        )
        .into()
    }),
    Cell::With(external_ip),
    Cell::With(service_ports),
    Cell::Age,
    Cell::With(|object, _| labels(get(object, &["spec", "selector"])).into()),
];

fn external_ip(object: &Value, _: Timestamp) -> Value {
    let spec = At::root(object).key("spec");
    let mut ips: Vec<&str> = spec
        .key("externalIPs")
        .items()
        .map(|ip| ip.value.as_str().unwrap_or(""))
        .collect();
    match spec.key("type").text() {
        "ExternalName" => or(spec.key("externalName").text(), NONE).into(),
        "LoadBalancer" => {
            let ingress = At::root(object).keys(&["status", "loadBalancer", "ingress"]);
            let mut all: Vec<&str> = ingress
                .items()
                .map(|entry| or(entry.key("ip").text(), entry.key("hostname").text()))
                .collect();
            all.append(&mut ips);
            or(&all.join(","), "<pending>").into()
        }
        _ => or(&ips.join(","), NONE).into(),
    }
}

fn service_ports(object: &Value, _: Timestamp) -> Value {
    let ports: Vec<String> = At::root(object)
        .keys(&["spec", "ports"])
        .items()
        .map(|port| {
            let (number, protocol) = (port.key("port").int().unwrap_or(0), port.key("protocol").text());
            match port.key("nodePort").int().filter(|node| *node > 0) {
                Some(node) => format!("{number}:{node}/{protocol}"),
                None => format!("{number}/{protocol}"),
            }
        })
        .collect();
    or(&ports.join(","), NONE).into()
}

pub(crate) const ENDPOINTS: &[Cell] = &[Cell::Name, Cell::With(endpoints), Cell::Age];

/// So many are shown of a long list.
const SHOWN: usize = 3;

/// At most three, then how many more.
fn first_three(all: &[String], none: &str) -> Value {
    first_of(all, all.len(), none)
}

/// The same of so many, when the first three are known.
fn first_of(known: &[String], count: usize, none: &str) -> Value {
    let shown = known[..known.len().min(SHOWN)].join(",");
    match count.checked_sub(SHOWN).filter(|more| *more > 0) {
        Some(more) => format!("{shown} + {more} more...").into(),
        None => or(&shown, none).into(),
    }
}

/// Each address with each port. There may be millions, of which three are shown and the others are counted.
fn endpoints(object: &Value, _: Timestamp) -> Value {
    let mut known = Vec::new();
    let mut count = 0_usize;
    for subset in At::root(object).key("subsets").items() {
        let (addresses, ports) = (subset.key("addresses"), subset.key("ports"));
        count = count.saturating_add(addresses.len().saturating_mul(ports.len().max(1)));
        let numbers = ports.items().map(|port| Some(port.key("port").int().unwrap_or(0)));
        let without = ports.is_empty().then_some(None);
        for number in numbers.chain(without).take(SHOWN) {
            let room = SHOWN - known.len();
            let ips = addresses.items().take(room).map(|address| address.key("ip"));
            known.extend(ips.map(|ip| endpoint(ip.text(), number)));
        }
    }
    first_of(&known, count, NONE)
}

fn endpoint(ip: &str, port: Option<i64>) -> String {
    match port {
        None => ip.to_owned(),
        Some(port) if ip.contains(':') => format!("[{ip}]:{port}"),
        Some(port) => format!("{ip}:{port}"),
    }
}

pub(crate) const ENDPOINT_SLICE: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| text(object, &["addressType"]).into()),
    Cell::With(|object, _| {
        let ports = At::root(object).key("ports");
        let all: Vec<String> = ports
            .items()
            .map(|port| {
                // A port that is any has a name at best.
                let name = port.key("name").value.as_str().unwrap_or("*");
                port.key("port")
                    .int()
                    .map_or_else(|| name.to_owned(), |port| port.to_string())
            })
            .collect();
        first_three(&all, "<unset>")
    }),
    Cell::With(|object, _| {
        let endpoints = At::root(object).key("endpoints");
        let all: Vec<String> = endpoints
            .items()
            .flat_map(|endpoint| {
                endpoint
                    .key("addresses")
                    .items()
                    .map(|address| address.text().to_owned())
                    .collect::<Vec<_>>()
            })
            .collect();
        first_three(&all, "<unset>")
    }),
    Cell::Age,
];

pub(crate) const BINDING: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| {
        format!(
            "{}/{}",
            text(object, &["roleRef", "kind"]),
            text(object, &["roleRef", "name"])
        )
        .into()
    }),
    Cell::Age,
    Cell::With(|object, _| subjects(object, "User")),
    Cell::With(|object, _| subjects(object, "Group")),
    Cell::With(|object, _| subjects(object, "ServiceAccount")),
];

fn subjects(object: &Value, kind: &str) -> Value {
    let subjects = At::root(object).key("subjects");
    let names: Vec<String> = subjects
        .items()
        .filter(|subject| subject.key("kind").text() == kind)
        .map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", subject.key("namespace").text(), subject.key("name").text()),
            _ => subject.key("name").text().to_owned(),
        })
        .collect();
    names.join(", ").into()
}

pub(crate) const NODE: &[Cell] = &[
    Cell::Name,
    Cell::With(node_status),
    Cell::With(node_roles),
    Cell::Age,
    Cell::With(|object, _| text(object, &["status", "nodeInfo", "kubeletVersion"]).into()),
    Cell::With(|object, _| node_address(object, "InternalIP")),
    Cell::With(|object, _| node_address(object, "ExternalIP")),
    Cell::With(|object, _| or(text(object, &["status", "nodeInfo", "osImage"]), "<unknown>").into()),
    Cell::With(kernel),
    Cell::With(|object, _| {
        or(
            text(object, &["status", "nodeInfo", "containerRuntimeVersion"]),
            "<unknown>",
        )
        .into()
    }),
];

fn node_status(object: &Value, _: Timestamp) -> Value {
    let conditions = At::root(object).keys(&["status", "conditions"]);
    let ready = conditions
        .items()
        .find(|condition| condition.key("type").text() == "Ready");
    let mut words = vec![match ready {
        Some(condition) if condition.key("status").text() == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }];
    if get(object, &["spec", "unschedulable"]) == &Value::Bool(true) {
        words.push("SchedulingDisabled");
    }
    words.join(",").into()
}

fn node_roles(object: &Value, _: Timestamp) -> Value {
    let labels = At::root(object).keys(&["metadata", "labels"]);
    let mut roles: Vec<&str> = labels
        .entries()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None => (key == "kubernetes.io/role").then(|| value.value.as_str().unwrap_or("")),
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    or(&roles.join(","), NONE).into()
}

/// The kernel of a node, and for which processor it is.
fn kernel(node: &Value, _: Timestamp) -> Value {
    let info = |field: &str| text(node, &["status", "nodeInfo", field]);
    match (info("kernelVersion"), info("architecture")) {
        ("", _) => "<unknown>".into(),
        (version, "") => version.into(),
        (version, architecture) => format!("{version} ({architecture})").into(),
    }
}

fn node_address(object: &Value, kind: &str) -> Value {
    let addresses = At::root(object).keys(&["status", "addresses"]);
    addresses
        .items()
        .find(|address| address.key("type").text() == kind)
        .map_or_else(|| NONE.into(), |address| address.key("address").text().into())
}

pub(crate) const EVENT: &[Cell] = &[
    Cell::With(last_seen),
    Cell::With(|object, _| text(object, &["type"]).into()),
    Cell::With(|object, _| text(object, &["reason"]).into()),
    Cell::With(event_object),
    Cell::With(|object, _| text(object, &["involvedObject", "fieldPath"]).into()),
    Cell::With(event_source),
    Cell::With(|object, _| text(object, &["message"]).trim().into()),
    Cell::With(first_seen),
    Cell::With(event_count),
    Cell::Name,
];

fn time<'a>(object: &'a Value, keys: &[&str]) -> Option<&'a str> {
    get(object, keys).as_str()
}

fn first_seen(object: &Value, now: Timestamp) -> Value {
    age::since(
        time(object, &["firstTimestamp"]).or_else(|| time(object, &["eventTime"])),
        now,
    )
    .into()
}

fn last_seen(object: &Value, now: Timestamp) -> Value {
    let series = get(object, &["series"]);
    if series.is_object() {
        return age::since(time(series, &["lastObservedTime"]), now).into();
    }
    match time(object, &["lastTimestamp"]) {
        Some(last) => age::since(Some(last), now).into(),
        None => first_seen(object, now),
    }
}

fn event_count(object: &Value, _: Timestamp) -> Value {
    match get(object, &["series", "count"]).as_i64() {
        Some(count) => count.into(),
        // An event without a count happened once.
        None => match number(object, &["count"]) {
            0 => 1.into(),
            count => count.into(),
        },
    }
}

fn event_object(object: &Value, _: Timestamp) -> Value {
    let kind = text(object, &["involvedObject", "kind"]).to_lowercase();
    match text(object, &["involvedObject", "name"]) {
        "" => kind.into(),
        name => format!("{kind}/{name}").into(),
    }
}

fn event_source(object: &Value, _: Timestamp) -> Value {
    let component = or(
        text(object, &["source", "component"]),
        text(object, &["reportingComponent"]),
    );
    match or(text(object, &["source", "host"]), text(object, &["reportingInstance"])) {
        "" => component.into(),
        instance => format!("{component}, {instance}").into(),
    }
}
