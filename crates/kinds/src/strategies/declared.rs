//! The errors of an object as Kubernetes tells them from 1.37 on, where rules are declared with their types.
//!
//! The rules of kinds are those of the oldest version. A declared rule finds the same, says less, and shows some values
//! otherwise: here the found errors are put into its words. What a declared rule finds beyond that is added.
//!
//! Not here: errors in metadata, and that an error which two rules find is told once.

use kubewright_schema::check::semantically_equal;
use kubewright_schema::error::{FieldError, Reason};
use kubewright_schema::{Minor, internal};
use serde_json::{Value, json};

use super::check::At;

/// What takes the place of what in the words of an error.
type Words = &'static [(&'static str, &'static str)];

const IMMUTABLE: &str = "field is immutable";
const LABEL: Words = &[("63 characters", "63 bytes")];
const SUBDOMAIN: Words = &[("253 characters", "253 bytes")];
/// Names of drivers, whose capitals do not matter.
const DRIVER: Words = &[
    ("253 characters", "253 bytes"),
    ("63 bytes", "63 characters"),
    (
        "a lowercase RFC 1123 subdomain must consist of lower case",
        "an RFC 1123 subdomain must consist of",
    ),
    ("'example.com'", "'Example.com'"),
];

/// The kind, if it is only one; how the path ends, without places in lists; the words.
const REWORDED: &[(&str, &str, Words)] = &[
    ("", ".opaque.driver", DRIVER),
    ("VolumeAttachment", "spec.attacher", DRIVER),
    ("RuntimeClass", "handler", LABEL),
    ("ResourceSlice", "spec.sharedCounters.name", LABEL),
    ("ResourceSlice", ".counterSet", LABEL),
    ("", ".firstAvailable.deviceClassName", SUBDOMAIN),
    ("RoleBinding", "roleRef", &[("cannot change roleRef", IMMUTABLE)]),
    ("ClusterRoleBinding", "roleRef", &[("cannot change roleRef", IMMUTABLE)]),
    ("Role", ".verbs", &[("verbs must contain at least one value", "")]),
    (
        "ClusterRole",
        ".verbs",
        &[("verbs must contain at least one value", "")],
    ),
    (
        "ValidatingAdmissionPolicyBinding",
        "spec.validationActions",
        &[("at least one validation action is required", "")],
    ),
    (
        "EndpointSlice",
        ".addresses",
        &[("must contain at least 1 address", "")],
    ),
    (
        "HorizontalPodAutoscaler",
        "spec.maxReplicas",
        &[("must be set and greater than 0", "")],
    ),
];

/// Lists whose errors show the whole item that is there twice.
const WHOLE: [&str; 4] = [
    "spec.devices.requests",
    ".firstAvailable",
    "spec.sharedCounters",
    ".consumesCounters",
];

/// Fields whose changed value is not shown.
const UNSHOWN: &[(&str, &str)] = &[
    ("EndpointSlice", "addressType"),
    ("IPAddress", "spec.parentRef"),
    ("RuntimeClass", "handler"),
    ("StorageClass", "parameters"),
    ("StorageClass", "provisioner"),
    ("StorageClass", "reclaimPolicy"),
    ("StorageClass", "volumeBindingMode"),
    ("VolumeAttachment", "spec"),
];

/// Tells the errors of a new object, or of one that was another before.
pub(crate) fn tell(group: &str, kind: &str, new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    match (kind, old) {
        ("StatefulSet", old) => stateful_set(new, old, errors),
        ("PriorityLevelConfiguration", _) => level(new, errors),
        ("DeviceClass", _) => extended_name(new, errors),
        // The rules of a new job are not asked again.
        ("Job", Some(_)) => errors.retain(|error| {
            !error.field.starts_with("spec.template.metadata.labels[")
                && error.detail != "`selector` not auto-generated"
        }),
        _ => {}
    }
    errors.retain(|error| !is_selinux_mount(error));
    let is_fixed = |error: &&FieldError| error.detail == IMMUTABLE && UNSHOWN.contains(&(kind, error.field.as_str()));
    let fixed: Vec<String> = errors
        .iter()
        .filter(is_fixed)
        .map(|error| error.field.clone())
        .collect();
    for error in errors {
        // Of a field that must not change nothing else is declared.
        let is_declared =
            error.detail == IMMUTABLE || !fixed.iter().any(|field| error.field.starts_with(field.as_str()));
        if is_declared {
            reword(kind, new, error);
        }
        show(group, kind, error);
    }
}

/// Shows the value by the structs of this version.
fn show(group: &str, kind: &str, error: &mut FieldError) {
    let shown = error.bad_value.as_ref();
    let shown = shown.and_then(|value| internal::show(Minor::V37, group, kind, &error.field, value));
    if let Some(shown) = shown {
        error.bad_value = None;
        error.detail = match error.detail.as_str() {
            "" => shown,
            detail => format!("{shown}: {detail}"),
        };
    }
}

fn is_selinux_mount(error: &FieldError) -> bool {
    error.field.ends_with("securityContext.seLinuxChangePolicy") && error.bad_value == Some(json!("MountOption"))
}

fn reword(kind: &str, new: &Value, error: &mut FieldError) {
    let field = without_places(&error.field);
    for (of, end, words) in REWORDED {
        let is_there = field == *end || (end.starts_with('.') && field.ends_with(end));
        if is_there && (of.is_empty() || *of == kind) {
            for (old, new) in *words {
                error.detail = error.detail.replace(old, new);
            }
        }
    }
    let is_changed = error.detail == IMMUTABLE && UNSHOWN.contains(&(kind, field.as_str()));
    match (kind, error.detail.as_str()) {
        _ if is_changed => unshown(error, IMMUTABLE),
        ("Node", "node updates may not change providerID except from \"\" to valid") => {
            let is_gone = at_path(new, "spec.providerID").as_str().is_none_or(str::is_empty);
            let what = if is_gone { "cleared" } else { "modified" };
            error.reason = Reason::Invalid;
            unshown(error, &format!("field cannot be {what} once set"));
        }
        ("NetworkPolicy", "must be greater than or equal to `port`") => {
            error.bad_value = Some(at_path(new, &error.field).clone());
        }
        ("CertificateSigningRequest", "Approved and Denied conditions are mutually exclusive") => {
            let either = [
                r#"conditions[{"type": "Approved"}]"#,
                r#"conditions[{"type": "Denied"}]"#,
            ];
            error.bad_value = Some(json!(format!("{{{}}}", either.join(", "))));
            error.detail = format!("must specify at most one of: `{}`", either.join("`, `"));
        }
        _ if error.reason == Reason::Duplicate && WHOLE.iter().any(|end| field.ends_with(end)) => {
            let mut whole = String::new();
            in_order(at_path(new, &error.field), &mut whole);
            error.bad_value = None;
            error.detail = whole;
        }
        ("ResourceSlice", "exactly one value must be specified") => union(at_path(new, &error.field), error),
        (_, r#"supported values: "Recursive""#) if field.ends_with("seLinuxChangePolicy") => {
            r#"supported values: "MountOption", "Recursive""#.clone_into(&mut error.detail);
        }
        _ if error.detail.starts_with("default is ") && field.contains(".validRange.") => {
            let end = error.field.rfind('.').map_or(0, |dot| dot.saturating_add(1));
            error.field.replace_range(end.., "default");
        }
        // The field is the pod's, not its security context's.
        _ if field.ends_with("securityContext.shareProcessNamespace") => {
            error.field = error.field.replace("securityContext.", "");
        }
        _ => {}
    }
}

/// An item as JSON, with its fields in the order of the type.
fn in_order(value: &Value, text: &mut String) {
    const FIRST: [&str; 16] = [
        "name",
        "counterSet",
        "exactly",
        "firstAvailable",
        "deviceClassName",
        "selectors",
        "allocationMode",
        "count",
        "adminAccess",
        "tolerations",
        "capacity",
        "key",
        "operator",
        "value",
        "effect",
        "tolerationSeconds",
    ];
    let rank = |key: &str| FIRST.iter().position(|first| *first == key).unwrap_or(FIRST.len());
    match value {
        Value::Object(map) => {
            let mut fields: Vec<(&String, &Value)> = map.iter().collect();
            fields.sort_by_key(|(key, _)| rank(key));
            for (place, (key, value)) in fields.into_iter().enumerate() {
                text.push_str(if place == 0 { "{" } else { "," });
                text.push_str(&json!(key).to_string());
                text.push(':');
                in_order(value, text);
            }
            text.push_str(if map.is_empty() { "{}" } else { "}" });
        }
        Value::Array(list) => {
            text.push('[');
            for (place, item) in list.iter().enumerate() {
                text.push_str(if place == 0 { "" } else { "," });
                in_order(item, text);
            }
            text.push(']');
        }
        plain => text.push_str(&plain.to_string()),
    }
}

/// The value is nothing at all, which the struct of the kind does not show.
fn unshown(error: &mut FieldError, why: &str) {
    error.bad_value = None;
    error.detail = format!("null: {why}");
}

/// An attribute of a device, which has one value.
fn union(attribute: &Value, error: &mut FieldError) {
    const MEMBERS: [&str; 8] = [
        "int", "bool", "string", "version", "ints", "bools", "strings", "versions",
    ];
    let is_given = |member: &&str| {
        attribute
            .get(member)
            .is_some_and(|value| *value != json!([]) && !value.is_null())
    };
    let given: Vec<&str> = MEMBERS.into_iter().filter(is_given).collect();
    let (shown, how) = match given[..] {
        [] => (String::new(), "one of"),
        _ => (format!("{{{}}}", given.join(", ")), "exactly one of"),
    };
    error.bad_value = Some(json!(shown));
    error.detail = format!("must specify {how}: `{}`", MEMBERS.join("`, `"));
}

/// A set's fixed fields are told one by one (`ValidateStatefulSetUpdate`).
fn stateful_set(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let before = errors.len();
    errors.retain(|error| error.field != "spec" || error.reason != Reason::Forbidden);
    if let Some(old) = old.filter(|_| errors.len() < before) {
        for name in ["selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy"] {
            let [now, was] = [new, old].map(|object| At::root(object).keys(&["spec", name]));
            if !semantically_equal(now.value, was.value) {
                let shown = match name {
                    "serviceName" => json!(now.text()),
                    _ => now.value.clone(),
                };
                errors.push(FieldError::invalid(now.path.to_string(), shown, IMMUTABLE));
            }
        }
    }
}

/// What a level has goes with its type (`spec.limited`, `spec.exempt` and `queuing` are members of unions).
fn level(new: &Value, errors: &mut Vec<FieldError>) {
    let spec = At::root(new).key("spec");
    let (limited, response) = (spec.key("limited"), spec.keys(&["limited", "limitResponse"]));
    let members = [
        (&spec, limited.clone(), "Limited", true),
        (&spec, spec.key("exempt"), "Exempt", false),
        (&response, response.key("queuing"), "Queue", limited.present()),
    ];
    for (owner, member, kind, is_needed) in members {
        let path = member.path.to_string();
        errors.retain(|error| error.field != path || !matches!(error.reason, Reason::Required | Reason::Forbidden));
        match (member.present(), owner.key("type").text() == kind) {
            (true, false) => errors.push(FieldError::forbidden(path, "")),
            (false, true) if is_needed => errors.push(FieldError::required(path, "")),
            _ => {}
        }
    }
    if limited.present() && response.key("type").text().is_empty() && spec.key("type").text() != "Limited" {
        errors.push(FieldError::required(response.key("type").path.to_string(), ""));
    }
}

/// The name of a class among the resources of a container (`validate.ExtendedResourceName`).
fn extended_name(new: &Value, errors: &mut Vec<FieldError>) {
    const FIELD: &str = "spec.extendedResourceName";
    let before = errors.len();
    errors.retain(|error| error.field != FIELD);
    if errors.len() == before {
        return;
    }
    let name = at_path(new, FIELD).as_str().unwrap_or_default();
    let mut refuse = |why: String| errors.push(FieldError::invalid(FIELD, name, why));
    if !name.contains('/') {
        refuse("a name must be a domain-prefixed path, such as 'example.com/my-prop'".to_owned());
    } else if name.contains("kubernetes.io/") {
        refuse(r#"must not have "kubernetes.io/" domain"#.to_owned());
    }
    if name.starts_with("requests.") {
        refuse(r#"must not have "requests." prefix"#.to_owned());
    }
    for why in kubewright_schema::names::qualified_name(&format!("requests.{name}")) {
        refuse(why.replace("63 characters", "63 bytes"));
    }
}

/// A path such as `a[0].b[k]` as `a.b`.
fn without_places(path: &str) -> String {
    let mut depth = 0_usize;
    let keeps = |letter: &char| {
        match letter {
            '[' => depth = depth.saturating_add(1),
            ']' => depth = depth.saturating_sub(1),
            _ => return depth == 0,
        }
        false
    };
    path.chars().filter(keeps).collect()
}

/// The value at a path such as `a[0].b[k]`.
fn at_path<'a>(object: &'a Value, path: &str) -> &'a Value {
    const NOTHING: &Value = &Value::Null;
    let mut at = object;
    let mut rest = path;
    while !rest.is_empty() {
        let step;
        (step, rest) = match rest.strip_prefix('[') {
            Some(inner) => inner.split_once(']').unwrap_or((inner, "")),
            None => rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len())),
        };
        rest = rest.strip_prefix('.').unwrap_or(rest);
        let found = match at {
            Value::Array(list) => step.parse().ok().and_then(|index: usize| list.get(index)),
            _ => at.get(step),
        };
        at = found.unwrap_or(NOTHING);
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As kube-apiserver 1.37.2 answers.
    #[test]
    fn errors_are_told_in_the_words_of_declared_rules() {
        let check = |kind: &str, new: Value, old: Option<Value>, found: FieldError, expected: &[&str]| {
            let rows = crate::rows::rows(Minor::V37);
            let row = rows.iter().find(|row| row.kind == kind).expect("a built-in kind");
            let group = &row.group;
            let mut errors = vec![found];
            tell(group, kind, &new, old.as_ref(), &mut errors);
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(errors, expected, "{kind}");
        };
        let invalid = |field: &str, value: Value, why: &str| FieldError::invalid(field, value, why);
        check(
            "RoleBinding",
            json!({}),
            None,
            invalid("roleRef", json!({"kind": "Role", "name": "b"}), "cannot change roleRef"),
            &["roleRef: Invalid value: {\"APIGroup\":\"\",\"Kind\":\"Role\",\"Name\":\"b\"}: field is immutable"],
        );
        let why = "verbs must contain at least one value";
        let verbs = FieldError::required("rules[0].verbs", why);
        check("Role", json!({}), None, verbs, &["rules[0].verbs: Required value"]);
        check(
            "StorageClass",
            json!({}),
            Some(json!({})),
            invalid("provisioner", json!("p"), IMMUTABLE),
            &["provisioner: Invalid value: null: field is immutable"],
        );
        let why = "node updates may not change providerID except from \"\" to valid";
        for (id, what) in [("", "cleared"), ("b", "modified")] {
            check(
                "Node",
                json!({"spec": {"providerID": id}}),
                Some(json!({})),
                FieldError::forbidden("spec.providerID", why),
                &[&format!(
                    "spec.providerID: Invalid value: null: field cannot be {what} once set"
                )],
            );
        }
        check(
            "StatefulSet",
            json!({"spec": {"selector": {"matchLabels": {"a": "c"}}, "serviceName": "s"}}),
            Some(
                json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "serviceName": "s", "podManagementPolicy": "Parallel"}}),
            ),
            FieldError::forbidden("spec", "updates to statefulset spec for other fields are forbidden"),
            &[
                "spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"c\"}}: field is immutable",
                "spec.podManagementPolicy: Invalid value: \"\": field is immutable",
            ],
        );
        let request = json!({"name": "a", "exactly": {"count": 1, "deviceClassName": "x.y", "selectors": [{}]}});
        check(
            "ResourceClaim",
            json!({"spec": {"devices": {"requests": [request, request]}}}),
            None,
            FieldError::duplicate("spec.devices.requests[1]", "a"),
            &["spec.devices.requests[1]: Duplicate value: \
               {\"name\":\"a\",\"exactly\":{\"deviceClassName\":\"x.y\",\"selectors\":[{}],\"count\":1}}"],
        );
        check(
            "RuntimeClass",
            json!({}),
            Some(json!({})),
            invalid("handler", json!("b"), "must be no more than 63 characters"),
            &["handler: Invalid value: \"b\": must be no more than 63 bytes"],
        );
        check(
            "ResourceSlice",
            json!({"spec": {"devices": [{"attributes": {"x.io/n": {"int": 0, "version": "1.0.0", "strings": []}}}]}}),
            None,
            invalid(
                "spec.devices[0].attributes[x.io/n]",
                json!({}),
                "exactly one value must be specified",
            ),
            &[
                "spec.devices[0].attributes[x.io/n]: Invalid value: \"{int, version}\": must specify exactly one of: `int`, `bool`, \
                 `string`, `version`, `ints`, `bools`, `strings`, `versions`",
            ],
        );
        check(
            "PriorityLevelConfiguration",
            json!({"spec": {"type": "Limited", "exempt": {}, "limited": {"limitResponse": {"type": "Reject", "queuing": {}}}}}),
            None,
            FieldError::forbidden("spec.exempt", "must be nil if the type is Limited"),
            &[
                "spec.exempt: Forbidden",
                "spec.limited.limitResponse.queuing: Forbidden",
            ],
        );
        check(
            "DeviceClass",
            json!({"spec": {"extendedResourceName": "other"}}),
            None,
            invalid("spec.extendedResourceName", json!("other"), "must be valid"),
            &[
                "spec.extendedResourceName: Invalid value: \"other\": a name must be a domain-prefixed path, such as 'example.com/my-prop'",
            ],
        );
        let policy = "spec.template.spec.securityContext.seLinuxChangePolicy";
        let recursive = |value: &str| FieldError::not_supported(policy, value, &["Recursive"]);
        check("Deployment", json!({}), None, recursive("MountOption"), &[]);
        check(
            "Deployment",
            json!({}),
            None,
            recursive("X"),
            &[&format!(
                "{policy}: Unsupported value: \"X\": supported values: \"MountOption\", \"Recursive\""
            )],
        );
    }
}
