//! Cells of the kinds around workloads: volumes, networks, policies, and the configuration of the API server.

mod metrics;
mod storage;

use jiff::Timestamp;
use serde_json::Value;

use super::{
    NONE, container_images, container_names, created_at, labels, number, of_containers, or, selector_of, text,
};
use kubewright_model::Cell;
use kubewright_model::age;
use kubewright_model::values::{At, get};
pub(crate) use metrics::{NODE_METRICS, POD_METRICS};
pub(crate) use storage::{
    ATTACHMENT, ATTRIBUTES_CLASS, CLAIM, CSI_NODE, DRIVER, STORAGE_CLASS, STORAGE_CLASS_SINCE_37, VOLUME,
    is_default_class,
};
use storage::{UNSET, deleted, plain};

/// The texts of a list, with commas.
fn joined(list: &At<'_>) -> String {
    list.items().map(|item| item.text()).collect::<Vec<_>>().join(",")
}

pub(crate) const POD_TEMPLATE: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| of_containers(&At::root(object).keys(&["template", "spec"]), "name")),
    Cell::With(|object, _| of_containers(&At::root(object).keys(&["template", "spec"]), "image")),
    Cell::With(|object, _| labels(get(object, &["template", "metadata", "labels"])).into()),
];

pub(crate) const REPLICATION_CONTROLLER: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| number(object, &["spec", "replicas"]).into()),
    Cell::With(|object, _| number(object, &["status", "replicas"]).into()),
    Cell::With(|object, _| number(object, &["status", "readyReplicas"]).into()),
    Cell::Age,
    Cell::With(container_names),
    Cell::With(container_images),
    Cell::With(|object, _| labels(get(object, &["spec", "selector"])).into()),
];

fn quota(object: &Value, limits: bool) -> Value {
    let status = At::root(object).key("status");
    let words: Vec<String> = status
        .key("hard")
        .entries()
        .filter(|(name, _)| name.starts_with("limits.") == limits)
        .map(|(name, hard)| {
            let used = plain(status.key("used").key(name).value, "0");
            format!("{name}: {}/{}", used.as_str().unwrap_or("0"), hard.text())
        })
        .collect();
    words.join(", ").into()
}

pub(crate) const QUOTA: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| quota(object, false)),
    Cell::With(|object, _| quota(object, true)),
    Cell::Age,
];

pub(crate) const CRON_JOB: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| text(object, &["spec", "schedule"]).into()),
    Cell::With(|object, _| plain(get(object, &["spec", "timeZone"]), NONE)),
    Cell::With(|object, _| match get(object, &["spec", "suspend"]) {
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        _ => UNSET.into(),
    }),
    Cell::With(|object, _| At::root(object).keys(&["status", "active"]).len().into()),
    Cell::With(
        |object, now| match get(object, &["status", "lastScheduleTime"]).as_str() {
            Some(time) => age::since(Some(time), now).into(),
            None => NONE.into(),
        },
    ),
    Cell::Age,
    Cell::With(|object, _| of_containers(&job(object), "name")),
    Cell::With(|object, _| of_containers(&job(object), "image")),
    Cell::With(|object, _| selector_of(&At::root(object).keys(&["spec", "jobTemplate", "spec", "selector"]))),
];

fn job(object: &Value) -> At<'_> {
    At::root(object).keys(&["spec", "jobTemplate", "spec", "template", "spec"])
}

pub(crate) const AUTOSCALER: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| {
        let target = At::root(object).keys(&["spec", "scaleTargetRef"]);
        format!("{}/{}", target.key("kind").text(), target.key("name").text()).into()
    }),
    Cell::With(targets),
    Cell::With(|object, _| plain(get(object, &["spec", "minReplicas"]), UNSET)),
    Cell::With(|object, _| number(object, &["spec", "maxReplicas"]).into()),
    Cell::With(|object, _| number(object, &["status", "currentReplicas"]).into()),
    Cell::Age,
];

/// At most two metrics, each with its current and its target value.
fn targets(object: &Value, _: Timestamp) -> Value {
    let current = At::root(object).keys(&["status", "currentMetrics"]);
    let all: Vec<String> = At::root(object)
        .keys(&["spec", "metrics"])
        .items()
        .enumerate()
        .map(|(index, metric)| target(&metric, current.items().nth(index).as_ref()))
        .collect();
    match all.len() {
        0 => NONE.into(),
        count if count > 2 => format!("{} + {} more...", all[..2].join(", "), count - 2).into(),
        _ => all.join(", ").into(),
    }
}

fn target(metric: &At<'_>, status: Option<&At<'_>>) -> String {
    let part = match metric.key("type").text() {
        "Object" => "object",
        "External" => "external",
        "Pods" => "pods",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let source = metric.key(part);
    let wanted = source.key("target");
    let is = |field: &str| {
        let value = status.map(|status| status.keys(&[part, "current", field]));
        value.filter(At::present).map(|value| match value.value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })
    };
    let pair = |field: &str, unit: &str| {
        let current = is(field).map_or_else(|| "<unknown>".to_owned(), |current| current + unit);
        let wanted = plain(wanted.key(field).value, "<auto>");
        let unit = if wanted == "<auto>" { "" } else { unit };
        format!("{current}/{}{unit}", wanted.as_str().unwrap_or(""))
    };
    let average = wanted.key("averageValue").present();
    match part {
        "object" | "external" if average => format!("{} (avg)", pair("averageValue", "")),
        "object" | "external" => pair("value", ""),
        "pods" => pair("averageValue", ""),
        _ if average => format!("{}: {}", source.key("name").text(), pair("averageValue", "")),
        _ => format!("{}: {}", source.key("name").text(), pair("averageUtilization", "%")),
    }
}

pub(crate) const BUDGET: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| plain(get(object, &["spec", "minAvailable"]), "N/A")),
    Cell::With(|object, _| plain(get(object, &["spec", "maxUnavailable"]), "N/A")),
    Cell::With(|object, _| number(object, &["status", "disruptionsAllowed"]).into()),
    Cell::Age,
];

pub(crate) const INGRESS: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| plain(get(object, &["spec", "ingressClassName"]), NONE)),
    Cell::With(hosts),
    Cell::With(|object, _| {
        let ingress = At::root(object).keys(&["status", "loadBalancer", "ingress"]);
        let all: Vec<&str> = ingress
            .items()
            .map(|entry| or(entry.key("ip").text(), entry.key("hostname").text()))
            .filter(|place| !place.is_empty())
            .collect();
        all.join(",").into()
    }),
    Cell::With(|object, _| {
        if At::root(object).keys(&["spec", "tls"]).is_empty() {
            "80".into()
        } else {
            "80, 443".into()
        }
    }),
    Cell::Age,
];

fn hosts(object: &Value, _: Timestamp) -> Value {
    let all: Vec<&str> = At::root(object)
        .keys(&["spec", "rules"])
        .items()
        .map(|rule| rule.key("host").text())
        .filter(|host| !host.is_empty())
        .collect();
    match all.len() {
        0 => "*".into(),
        count if count > 3 => format!("{} + {} more...", all[..3].join(","), count - 3).into(),
        _ => all.join(",").into(),
    }
}

pub(crate) const INGRESS_CLASS: &[Cell] = &[
    Cell::With(|object, _| {
        let name = text(object, &["metadata", "name"]);
        let key = "ingressclass.kubernetes.io/is-default-class";
        if text(object, &["metadata", "annotations", key]) == "true" {
            format!("{name} (default)").into()
        } else {
            name.into()
        }
    }),
    Cell::With(|object, _| text(object, &["spec", "controller"]).into()),
    Cell::With(|object, _| {
        let parameters = At::root(object).keys(&["spec", "parameters"]);
        let (kind, name) = (parameters.key("kind").text(), parameters.key("name").text());
        match parameters.key("apiGroup").text() {
            _ if !parameters.present() => NONE.into(),
            "" => format!("{kind}/{name}").into(),
            group => format!("{kind}.{group}/{name}").into(),
        }
    }),
    Cell::Age,
];

pub(crate) const IP_ADDRESS: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| {
        let parent = At::root(object).keys(&["spec", "parentRef"]);
        let resource = match parent.key("group").text() {
            "" => parent.key("resource").text().to_owned(),
            group => format!("{}.{group}", parent.key("resource").text()),
        };
        let parts = [
            resource.as_str(),
            parent.key("namespace").text(),
            parent.key("name").text(),
        ];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        or(&parts.join("/"), NONE).into()
    }),
];

pub(crate) const NETWORK_POLICY: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| selector_of(&At::root(object).keys(&["spec", "podSelector"]))),
    Cell::Age,
];

pub(crate) const SERVICE_CIDR: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| joined(&At::root(object).keys(&["spec", "cidrs"])).into()),
    Cell::Age,
];

fn flag(object: &Value, keys: &[&str]) -> Value {
    get(object, keys).as_bool().unwrap_or(false).into()
}

pub(crate) const WEBHOOKS: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| At::root(object).key("webhooks").len().into()),
    Cell::Age,
];

fn param_kind(object: &Value, _: Timestamp) -> Value {
    let kind = At::root(object).keys(&["spec", "paramKind"]);
    if kind.present() {
        format!("{}/{}", kind.key("apiVersion").text(), kind.key("kind").text()).into()
    } else {
        UNSET.into()
    }
}

pub(crate) const VALIDATING_POLICY: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| At::root(object).keys(&["spec", "validations"]).len().into()),
    Cell::With(param_kind),
    Cell::Age,
];

pub(crate) const MUTATING_POLICY: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| At::root(object).keys(&["spec", "mutations"]).len().into()),
    Cell::With(param_kind),
    Cell::Age,
];

pub(crate) const POLICY_BINDING: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| text(object, &["spec", "policyName"]).into()),
    Cell::With(|object, _| {
        let parameters = At::root(object).keys(&["spec", "paramRef"]);
        let (namespace, name) = (parameters.key("namespace").text(), parameters.key("name").text());
        match (parameters.present(), name, namespace) {
            (false, ..) => UNSET.into(),
            (true, "", _) => shown_selector(&parameters.key("selector")).into(),
            (true, name, "") => format!("*/{name}").into(),
            (true, name, namespace) => format!("{namespace}/{name}").into(),
        }
    }),
    Cell::Age,
];

pub(crate) const PRIORITY_CLASS: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| number(object, &["value"]).into()),
    Cell::With(|object, _| flag(object, &["globalDefault"])),
    Cell::Age,
    Cell::With(|object, _| text(object, &["preemptionPolicy"]).into()),
];

pub(crate) const RUNTIME_CLASS: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| text(object, &["handler"]).into()),
    Cell::Age,
];

/// A label selector as its Go struct prints itself.
fn shown_selector(selector: &At<'_>) -> String {
    if !selector.present() {
        return "nil".to_owned();
    }
    let labels = selector.value.get("matchLabels").and_then(Value::as_object);
    let labels: String = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or("")))
        .collect();
    let expressions: String = selector
        .key("matchExpressions")
        .items()
        .map(|expression| {
            let values: Vec<&str> = expression.key("values").items().map(|value| value.text()).collect();
            format!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
                expression.key("key").text(),
                expression.key("operator").text(),
                values.join(" ")
            )
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

/// The condition of this type, if there is one.
fn condition<'a>(object: &'a Value, kind: &str) -> Option<At<'a>> {
    At::root(object)
        .keys(&["status", "conditions"])
        .items()
        .find(|condition| condition.key("type").text() == kind)
}

pub(crate) const API_SERVICE: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| {
        let service = At::root(object).keys(&["spec", "service"]);
        if service.present() {
            format!("{}/{}", service.key("namespace").text(), service.key("name").text()).into()
        } else {
            "Local".into()
        }
    }),
    Cell::With(|object, _| match condition(object, "Available") {
        None => "Unknown".into(),
        Some(found) => match (found.key("status").text(), found.key("reason").text()) {
            ("True", _) => "True".into(),
            (status, "") => status.into(),
            (status, reason) => format!("{status} ({reason})").into(),
        },
    }),
    Cell::Age,
];

pub(crate) const SIGNING_REQUEST: &[Cell] = &[
    Cell::Name,
    Cell::Age,
    Cell::With(|object, _| text(object, &["spec", "signerName"]).into()),
    Cell::With(|object, _| text(object, &["spec", "username"]).into()),
    Cell::With(|object, _| match get(object, &["spec", "expirationSeconds"]).as_i64() {
        Some(seconds) => age::duration(seconds).into(),
        None => NONE.into(),
    }),
    Cell::With(|object, _| {
        let has = |kind: &str| condition(object, kind).is_some();
        let mut words = match (has("Denied"), has("Approved")) {
            (true, _) => "Denied".to_owned(),
            (false, true) => "Approved".to_owned(),
            (false, false) => "Pending".to_owned(),
        };
        if has("Failed") {
            words += ",Failed";
        }
        if !text(object, &["status", "certificate"]).is_empty() {
            words += ",Issued";
        }
        words.into()
    }),
];

pub(crate) const TRUST_BUNDLE: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| or(text(object, &["spec", "signerName"]), NONE).into()),
];

pub(crate) const POD_CERTIFICATE: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| text(object, &["spec", "podName"]).into()),
    Cell::With(|object, _| text(object, &["spec", "serviceAccountName"]).into()),
    Cell::With(|object, _| text(object, &["spec", "nodeName"]).into()),
    Cell::With(|object, _| text(object, &["spec", "signerName"]).into()),
    Cell::With(|object, _| {
        let mut last_first = ["Failed", "Denied", "Issued"].into_iter();
        let state = last_first.find(|kind| condition(object, kind).is_some());
        state.unwrap_or("Pending").into()
    }),
    Cell::With(|object, _| labels(get(object, &["spec", "unverifiedUserAnnotations"])).into()),
];

pub(crate) const TAINT_RULE: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| text(object, &["spec", "taint", "key"]).into()),
    Cell::With(|object, _| text(object, &["spec", "taint", "value"]).into()),
    Cell::With(|object, _| text(object, &["spec", "taint", "effect"]).into()),
    Cell::With(|object, now| match text(object, &["spec", "taint", "timeAdded"]) {
        "" => "".into(),
        since => age::since(Some(since), now).into(),
    }),
    Cell::Age,
];

pub(crate) const MIGRATION: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| {
        let resource = At::root(object).keys(&["spec", "resource"]);
        match resource.key("group").text() {
            "" => resource.key("resource").text().into(),
            group => format!("{}.{group}", resource.key("resource").text()).into(),
        }
    }),
    Cell::With(|object, _| {
        let conditions = At::root(object).keys(&["status", "conditions"]).items();
        let is_state = |one: &At<'_>| {
            one.key("status").text() == "True" && ["Running", "Failed", "Succeeded"].contains(&one.key("type").text())
        };
        conditions
            .filter(is_state)
            .last()
            .map_or("Unknown", |one| one.key("type").text())
            .into()
    }),
];

/// CustomResourceDefinitions, from Kubernetes 1.37 on.
pub(crate) const DEFINITION: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| text(object, &["spec", "scope"]).into()),
    Cell::With(|object, _| {
        let versions = At::root(object).keys(&["spec", "versions"]).items();
        let served = versions.filter(|version| version.key("served").is_true());
        let mut served: Vec<String> = served
            .map(|version| match version.key("storage").is_true() {
                true => format!("{}(storage)", version.key("name").text()),
                false => version.key("name").text().to_owned(),
            })
            .collect();
        served.sort();
        served.join(",").into()
    }),
    Cell::With(created_at),
    Cell::With(|object, _| text(object, &["spec", "group"]).into()),
    Cell::With(|object, _| text(object, &["spec", "names", "kind"]).into()),
    Cell::With(|object, _| joined(&At::root(object).keys(&["spec", "names", "shortNames"])).into()),
    Cell::With(|object, _| {
        let established = condition(object, "Established");
        established.is_some_and(|one| one.key("status").text() == "True").into()
    }),
];

pub(crate) const FLOW_SCHEMA: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| or(text(object, &["spec", "priorityLevelConfiguration", "name"]), NONE).into()),
    Cell::With(|object, _| number(object, &["spec", "matchingPrecedence"]).into()),
    Cell::With(|object, _| or(text(object, &["spec", "distinguisherMethod", "type"]), NONE).into()),
    Cell::Age,
    Cell::With(|object, _| match condition(object, "Dangling") {
        Some(found) => found.key("status").text().into(),
        None => "?".into(),
    }),
];

/// A number of a limited level, or `<none>`.
fn level(object: &Value, keys: &[&str]) -> Value {
    match get(get(object, &["spec", "limited"]), keys) {
        Value::Null => NONE.into(),
        found => found.clone(),
    }
}

pub(crate) const PRIORITY_LEVEL: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| text(object, &["spec", "type"]).into()),
    Cell::With(|object, _| level(object, &["nominalConcurrencyShares"])),
    Cell::With(|object, _| level(object, &["limitResponse", "queuing", "queues"])),
    Cell::With(|object, _| level(object, &["limitResponse", "queuing", "handSize"])),
    Cell::With(|object, _| level(object, &["limitResponse", "queuing", "queueLengthLimit"])),
    Cell::Age,
];

pub(crate) const RESOURCE_CLAIM: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| {
        let status = At::root(object).key("status");
        let mut states = Vec::new();
        if deleted(object) {
            states.push("deleted");
        }
        if status.key("allocation").present() {
            states.push("allocated");
        }
        if !status.key("reservedFor").is_empty() {
            states.push("reserved");
        }
        or(&states.join(","), "pending").into()
    }),
    Cell::Age,
];

pub(crate) const RESOURCE_SLICE: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| text(object, &["spec", "nodeName"]).into()),
    Cell::With(|object, _| text(object, &["spec", "driver"]).into()),
    Cell::With(|object, _| text(object, &["spec", "pool", "name"]).into()),
    Cell::Age,
];
