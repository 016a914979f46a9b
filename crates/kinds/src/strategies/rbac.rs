//! RBAC kinds: Role, ClusterRole, RoleBinding, ClusterRoleBinding.

use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use serde_json::Value;

use super::check::{At, Errors, each, ensure, fill_text, get, text};
use super::pods::scheduling::label_selector;
use kubewright_model::{MetadataChecks, NameRule, PLAIN, Strategy};

const GROUP: &str = "rbac.authorization.k8s.io";

const RBAC: Strategy = Strategy {
    create_on_update: true,
    names: NameRule::PathSegment,
    metadata_checks: MetadataChecks::UPDATE_AND_CREATE,
    ..PLAIN
};

/// How Roles are written.
pub(crate) const ROLE: Strategy = Strategy {
    default: default_rules,
    validate_create: |new| rules(new, true),
    validate_update: |new, _| rules(new, true),
    ..RBAC
};

/// How ClusterRoles are written.
pub(crate) const CLUSTER_ROLE: Strategy = Strategy {
    default: default_rules,
    validate_create: |new| rules(new, false),
    validate_update: |new, _| rules(new, false),
    ..RBAC
};

/// How RoleBindings are written.
pub(crate) const ROLE_BINDING: Strategy = Strategy {
    default: default_binding,
    validate_create: |new| binding(new, true),
    validate_update: |new, old| update_binding(new, old, true),
    ..RBAC
};

/// How ClusterRoleBindings are written.
pub(crate) const CLUSTER_ROLE_BINDING: Strategy = Strategy {
    default: default_binding,
    validate_create: |new| binding(new, false),
    validate_update: |new, old| update_binding(new, old, false),
    ..RBAC
};

/// `rules` is always there, `null` when there are none, as Go writes an empty list that is not optional.
fn default_rules(object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    // A list that a client wrote stays as it is until it is stored.
    if object.get("rules").is_none_or(|rules| !rules.is_array()) {
        object.insert("rules".to_owned(), Value::Null);
    }
    for rule in each(object, "rules") {
        if rule.get("verbs").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            rule.insert("verbs".to_owned(), Value::Null);
        }
    }
}

fn default_binding(object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    if let Some(reference) = ensure(object, "roleRef") {
        fill_text(reference, "apiGroup", GROUP);
    }
    for subject in each(object, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            fill_text(subject, "apiGroup", GROUP);
        }
    }
}

/// `ValidatePolicyRule`.
fn rules(new: &Value, namespaced: bool) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new);
    for rule in at.key("rules").items() {
        if rule.key("verbs").is_empty() {
            errors.required(&rule.key("verbs"), "verbs must contain at least one value");
        }
        let urls = rule.key("nonResourceURLs");
        if !urls.is_empty() {
            if namespaced {
                errors.invalid(&urls, "namespaced rules cannot apply to non-resource URLs");
            }
            if ["apiGroups", "resources", "resourceNames"]
                .iter()
                .any(|field| !rule.key(field).is_empty())
            {
                errors.invalid(
                    &urls,
                    "rules cannot apply to both regular resources and non-resource URLs",
                );
            }
            continue;
        }
        if rule.key("apiGroups").is_empty() {
            errors.required(
                &rule.key("apiGroups"),
                "resource rules must supply at least one api group",
            );
        }
        if rule.key("resources").is_empty() {
            errors.required(
                &rule.key("resources"),
                "resource rules must supply at least one resource",
            );
        }
    }
    let aggregation = at.key("aggregationRule");
    if aggregation.present() {
        let selectors = aggregation.key("clusterRoleSelectors");
        if selectors.is_empty() {
            errors.required(
                &selectors,
                "at least one clusterRoleSelector required if aggregationRule is non-nil",
            );
        }
        for selector in selectors.items() {
            let before = errors.len();
            label_selector(&mut errors, &selector);
            if errors.len() > before {
                errors.invalid_value(&selector, Value::Null, "invalid label selector.");
            }
        }
    }
    errors.into_vec()
}

/// `ValidateRoleBinding`.
fn binding(new: &Value, namespaced: bool) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let reference = At::root(new).key("roleRef");
    if reference.key("apiGroup").text() != GROUP {
        errors.unsupported(&reference.key("apiGroup"), &[GROUP]);
    }
    let kinds: &[&str] = if namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    if !kinds.contains(&reference.key("kind").text()) {
        errors.unsupported(&reference.key("kind"), kinds);
    }
    let name = reference.key("name");
    if name.text().is_empty() {
        errors.required(&name, "");
    } else {
        errors.messages(&name, names::path_segment_name(name.text()));
    }
    for subject in At::root(new).key("subjects").items() {
        self::subject(&mut errors, &subject, namespaced);
    }
    errors.into_vec()
}

/// `ValidateRoleBindingSubject`.
fn subject(errors: &mut Errors, at: &At<'_>, namespaced: bool) {
    let name = at.key("name");
    if name.text().is_empty() {
        errors.required(&name, "");
    }
    let group = at.key("apiGroup");
    match at.key("kind").text() {
        "ServiceAccount" => {
            if !name.text().is_empty() {
                errors.messages(&name, names::dns1123_subdomain(name.text()));
            }
            if !group.text().is_empty() {
                errors.unsupported(&group, &[""]);
            }
            if !namespaced && at.key("namespace").text().is_empty() {
                errors.required(&at.key("namespace"), "");
            }
        }
        "User" | "Group" => {
            if group.text() != GROUP {
                errors.unsupported(&group, &[GROUP]);
            }
        }
        _ => errors.unsupported(&at.key("kind"), &["ServiceAccount", "User", "Group"]),
    }
}

/// `ValidateRoleBindingUpdate`.
fn update_binding(new: &Value, old: &Value, namespaced: bool) -> Vec<FieldError> {
    let mut errors = Errors::default();
    errors.extend(binding(new, namespaced));
    let (after, before) = (get(new, &["roleRef"]), get(old, &["roleRef"]));
    if after != before {
        // By the names of Go's internal struct, as Kubernetes prints it.
        let field = |name: &str| after.get(name).cloned().unwrap_or_default();
        let shown = serde_json::json!({"APIGroup": field("apiGroup"), "Kind": field("kind"), "Name": field("name")});
        errors.invalid_value(&At::root(new).key("roleRef"), shown, "cannot change roleRef");
    }
    errors.into_vec()
}
