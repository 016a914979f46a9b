//! `resource.k8s.io`: DeviceClass, ResourceClaim, ResourceClaimTemplate: the requests for devices, and the names of
//! devices.
//!
//! Not here: the offers of drivers (`slices`); the allocation, which is the scheduler's, and whose result is checked in
//! `allocation`.

mod allocation;
mod capacity;
mod selectors;
pub(crate) mod slices;
pub(crate) mod taint_rules;

use std::collections::BTreeSet;

use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use serde_json::{Value, json};

use super::check::{At, Errors, Object, child, each, ensure, fill_number, fill_text, fixed, get, keep, text};
use super::pods::resources::is_extended_name;
use super::pods::volumes::template_metadata;
use super::system::empty_status;
use kubewright_model::{Empties, GenerationRule, MetadataChecks, NameRule, PLAIN, StatusMetadata, Strategy};

const RESOURCE: Strategy = Strategy {
    delete_returns_object: true,
    metadata_checks: MetadataChecks::UPDATE_AND_CREATE,
    ..PLAIN
};
/// How long the names of a driver and a pool, a part of a name and opaque parameters may be.
const MAX_DRIVER: usize = 63;
const MAX_POOL: usize = 253;
const MAX_IDENTIFIER: usize = 32;
const MAX_PARAMETERS: usize = 10 * 1024;
/// How many requests, constraints, configurations, selectors, and alternatives of a request there may be.
const MAX_REQUESTS: usize = 32;
const MAX_ALTERNATIVES: usize = 8;
const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];
const NOT_A_REQUEST: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

/// How DeviceClasses are written.
pub(crate) const DEVICE_CLASS: Strategy = Strategy {
    names: NameRule::SubdomainInBytes,
    generation: GenerationRule::Spec,
    default: |object| {
        if let Some(object) = object.as_object_mut() {
            ensure(object, "spec");
        }
    },
    validate_create: |new| class(new, &Value::Null),
    validate_update: class,
    ..RESOURCE
};

/// `validateDeviceClassSpec`.
fn class(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    let was = |field: &str| get(old, &["spec", field]);
    // Expressions that were stored are not looked at again.
    if spec.key("selectors").value != was("selectors") {
        chosen(&mut errors, &spec.key("selectors"));
    }
    let is_stored = spec.key("config").value == was("config");
    limited(&mut errors, &spec.key("config"), MAX_REQUESTS, |errors, config| {
        opaque(errors, &config, is_stored);
    });
    let name = spec.key("extendedResourceName");
    if name.present() && !is_extended_name(name.text()) {
        errors.invalid(&name, "must be a valid extended resource name");
    }
    errors.into_vec()
}

/// Looks at each item of a list, unless there are too many.
fn limited<'a>(errors: &mut Errors, list: &At<'a>, max: usize, mut look: impl FnMut(&mut Errors, At<'a>)) -> bool {
    if list.len() > max {
        errors.push(FieldError::too_many(list.path.to_string(), list.len(), max));
        return false;
    }
    list.items().for_each(|item| look(errors, item));
    true
}

/// The same of a list whose items are told apart by `name`.
fn set<'a>(
    errors: &mut Errors,
    list: &At<'a>,
    max: usize,
    name: impl Fn(&At<'a>) -> &'a str,
    look: impl FnMut(&mut Errors, At<'a>),
) {
    if !limited(errors, list, max, look) {
        return;
    }
    let mut seen = BTreeSet::new();
    for item in list.items() {
        if !seen.insert(name(&item)) {
            errors.push(FieldError::duplicate(item.path.to_string(), name(&item)));
        }
    }
}

fn chosen(errors: &mut Errors, list: &At<'_>) {
    limited(errors, list, MAX_REQUESTS, |errors, selector| {
        let cel = selector.key("cel");
        if cel.present() {
            selectors::check(errors, &cel.key("expression"));
        } else {
            errors.required(&cel, "");
        }
    });
}

/// `ValidateCSIDriverName`.
fn driver_name(errors: &mut Errors, at: &At<'_>) {
    if at.text().is_empty() {
        return errors.required(at, "");
    }
    if at.text().len() > MAX_DRIVER {
        errors.push(FieldError::too_long(at.path.to_string(), MAX_DRIVER));
    }
    errors.messages(at, names::dns1123_subdomain(&at.text().to_lowercase()));
}

/// `validatePoolName`.
fn pool_name(errors: &mut Errors, at: &At<'_>) {
    if at.text().is_empty() {
        return errors.required(at, "");
    }
    if at.text().len() > MAX_POOL {
        errors.push(FieldError::too_long(at.path.to_string(), MAX_POOL));
    }
    for part in at.text().split('/') {
        for message in names::dns1123_subdomain(part) {
            errors.invalid_value(at, part, message);
        }
    }
}

/// Parameters that a driver understands (`validateOpaqueConfiguration`).
fn opaque(errors: &mut Errors, config: &At<'_>, is_stored: bool) {
    let opaque = config.key("opaque");
    if !opaque.present() {
        return errors.required(&opaque, "");
    }
    driver_name(errors, &opaque.key("driver"));
    parameters(errors, &opaque.key("parameters"), is_stored);
}

/// `validateRawExtension`.
fn parameters(errors: &mut Errors, at: &At<'_>, is_stored: bool) {
    if !at.present() {
        errors.required(at, "");
    } else if !is_stored && at.value.to_string().len() > MAX_PARAMETERS {
        errors.push(FieldError::too_long(at.path.to_string(), MAX_PARAMETERS));
    } else if !at.value.is_object() {
        errors.invalid_value(at, "<value omitted>", "must be a valid JSON object");
    }
}

/// How ResourceClaims are written.
pub(crate) const CLAIM: Strategy = Strategy {
    status_metadata: StatusMetadata::RESET,
    default: |object| {
        if let Some(object) = object.as_object_mut() {
            ensure(object, "status");
            if let Some(spec) = child(object, "spec") {
                claim_spec(spec);
            }
        }
    },
    prepare_create: |object, _| empty_status(object),
    prepare_update: |new, old, _| keep(new, old, "status"),
    validate_create: |new| {
        let mut errors = Errors::default();
        claimed(&mut errors, &At::root(new).key("spec"));
        errors.into_vec()
    },
    fields: &[fixed(&["spec"], "ValidateResourceClaimUpdate")],
    validate_status: allocation::status,
    ..RESOURCE
};

/// How ResourceClaimTemplates are written.
pub(crate) const CLAIM_TEMPLATE: Strategy = Strategy {
    empties: Empties::Seen,
    default: |object| {
        let Some(spec) = object.as_object_mut().and_then(|object| ensure(object, "spec")) else {
            return;
        };
        ensure(spec, "metadata");
        if let Some(claim) = ensure(spec, "spec") {
            claim_spec(claim);
        }
    },
    validate_create: template,
    validate_update: |new, _| template(new),
    fields: &[fixed(&["spec"], "ValidateResourceClaimTemplateUpdate")],
    ..RESOURCE
};

/// `ValidateResourceClaimTemplate`.
fn template(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    template_metadata(&mut errors, &spec.key("metadata"));
    claimed(&mut errors, &spec.key("spec"));
    errors.into_vec()
}

fn claim_spec(spec: &mut Object) {
    let Some(devices) = ensure(spec, "devices") else { return };
    for request in each(devices, "requests") {
        if let Some(exactly) = child(request, "exactly") {
            asked_defaults(exactly);
        }
        each(request, "firstAvailable").for_each(asked_defaults);
    }
}

fn asked_defaults(request: &mut Object) {
    fill_text(request, "allocationMode", "ExactCount");
    if text(request, "allocationMode") == "ExactCount" {
        fill_number(request, "count", 1);
    }
    for toleration in each(request, "tolerations") {
        fill_text(toleration, "operator", "Equal");
    }
}

/// The requests of a claim by name, with the names of their alternatives.
struct Requests<'a>(Vec<(&'a str, Vec<&'a str>)>);

impl<'a> Requests<'a> {
    fn of(devices: &At<'a>) -> Requests<'a> {
        let requests = devices.key("requests").items().map(|request| {
            let others = request.key("firstAvailable").items();
            let others = others.map(|other| other.key("name").text()).collect();
            (request.key("name").text(), others)
        });
        Requests(requests.collect())
    }

    fn has(&self, wanted: &str) -> bool {
        let (name, alternative) = match wanted.split_once('/') {
            Some((name, alternative)) => (name, Some(alternative)),
            None => (wanted, None),
        };
        // Of requests with the same name the last counts.
        let found = self.0.iter().rfind(|(known, _)| *known == name);
        found.is_some_and(|(_, others)| alternative.is_none_or(|wanted| others.contains(&wanted)))
    }

    /// Names of requests, each once.
    fn check(&self, errors: &mut Errors, list: &At<'a>) {
        set(errors, list, MAX_REQUESTS, At::text, |errors, name| {
            self.check_name(errors, &name);
        });
    }

    fn check_name(&self, errors: &mut Errors, at: &At<'_>) {
        if at.text().split('/').count() > 2 {
            return errors.invalid_value(at, at.text(), NOT_A_REQUEST);
        }
        for part in at.text().split('/') {
            for message in names::dns1123_label(part) {
                errors.invalid_value(at, part, message);
            }
        }
        if !self.has(at.text()) {
            errors.invalid_value(at, at.text(), NOT_A_REQUEST);
        }
    }
}

/// `validateDeviceClaim` and `validateDeviceConstraint`.
fn claimed(errors: &mut Errors, spec: &At<'_>) {
    let devices = spec.key("devices");
    let requests = Requests::of(&devices);
    set(errors, &devices.key("requests"), MAX_REQUESTS, named, |errors, item| {
        request(errors, &item);
    });
    limited(
        errors,
        &devices.key("constraints"),
        MAX_REQUESTS,
        |errors, constraint| {
            requests.check(errors, &constraint.key("requests"));
            let (same, other) = (constraint.key("matchAttribute"), constraint.key("distinctAttribute"));
            if same.present() {
                qualified(errors, &same);
            } else if other.present() {
                qualified(errors, &other);
            } else {
                errors.required(
                &constraint,
                "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set",
            );
            }
        },
    );
    limited(errors, &devices.key("config"), MAX_REQUESTS, |errors, config| {
        requests.check(errors, &config.key("requests"));
        opaque(errors, &config, false);
    });
}

fn named<'a>(at: &At<'a>) -> &'a str {
    at.key("name").text()
}

/// Each request has a name and one way of describing the wanted devices (`validateDeviceRequest`).
fn request(errors: &mut Errors, request: &At<'_>) {
    label(errors, &request.key("name"));
    let (exactly, any) = (request.key("exactly"), request.key("firstAvailable"));
    match (exactly.present(), !any.is_empty()) {
        (false, false) => errors.required(request, "exactly one of `exactly` or `firstAvailable` is required"),
        (true, true) => errors.invalid_value(
            request,
            Value::Null,
            "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
        ),
        (true, false) => asked(errors, &exactly),
        (false, true) => set(errors, &any, MAX_ALTERNATIVES, named, |errors, item| {
            label(errors, &item.key("name"));
            asked(errors, &item);
        }),
    }
}

/// `validateDeviceToleration`.
fn label(errors: &mut Errors, at: &At<'_>) {
    for message in names::dns1123_label(at.text()) {
        errors.invalid_value(at, at.text(), message);
    }
}

/// `validateExactDeviceRequest` and `validateDeviceAllocationMode`.
fn asked(errors: &mut Errors, at: &At<'_>) {
    let class = at.key("deviceClassName");
    if class.text().is_empty() {
        errors.required(&class, "");
    } else {
        errors.messages(&class, names::dns1123_subdomain(class.text()));
    }
    chosen(errors, &at.key("selectors"));
    let (mode, count) = (at.key("allocationMode"), at.key("count"));
    let number = count.int().unwrap_or(0);
    match mode.text() {
        "All" if number != 0 => errors.invalid(&count, "must not be specified when allocationMode is 'All'"),
        "ExactCount" if number <= 0 => errors.invalid_value(&count, number, "must be greater than zero"),
        "All" | "ExactCount" => {}
        _ => errors.unsupported(&mode, &["All", "ExactCount"]),
    }
    for toleration in at.key("tolerations").items() {
        let (key, value) = (toleration.key("key"), toleration.key("value"));
        if !key.text().is_empty() {
            errors.messages(&key, names::qualified_name(key.text()));
        }
        match toleration.key("operator").text() {
            "Exists" if !value.text().is_empty() => errors.invalid(&value, "must be empty for operator `Exists`"),
            "Exists" => {}
            "Equal" => errors.messages(&value, names::label_value(value.text())),
            _ => errors.one_of(&toleration.key("operator"), &["Equal", "Exists"], true),
        }
        errors.one_of(&toleration.key("effect"), &EFFECTS, false);
    }
}

/// A name with a domain (`validateFullyQualifiedName`).
fn qualified(errors: &mut Errors, at: &At<'_>) {
    name_of_driver(errors, at, at.text());
    if !at.text().contains('/') {
        errors.invalid(
            at,
            "a fully qualified name must be a domain and a name separated by a slash",
        );
    }
}

/// The name of an attribute or a capacity: a plain identifier, or one qualified by the domain of its author.
fn name_of_driver(errors: &mut Errors, at: &At<'_>, name: &str) {
    let identifier = |errors: &mut Errors, text: &str| {
        if text.len() > MAX_IDENTIFIER {
            errors.push(FieldError::too_long(at.path.to_string(), MAX_IDENTIFIER));
        }
        for message in names::c_identifier(text) {
            errors.invalid_value(at, text, message);
        }
    };
    match name.split('/').collect::<Vec<_>>()[..] {
        [name] => identifier(errors, name),
        [domain, name] => {
            if domain.is_empty() {
                errors.invalid_value(at, "", "the domain must not be empty");
            } else {
                let value = json!(domain);
                driver_name(
                    errors,
                    &At {
                        value: &value,
                        path: at.path.clone(),
                    },
                );
            }
            if name.is_empty() {
                errors.invalid_value(at, "", "the name must not be empty");
            } else {
                identifier(errors, name);
            }
        }
        _ => {}
    }
}
