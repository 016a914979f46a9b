//! `resource.k8s.io`: DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice. Devices that drivers offer, and who asks for them.
//!
//! Not here: the allocation, which is the scheduler's; its result is checked in `allocation`.

mod allocation;
mod selectors;

use std::collections::BTreeSet;

use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use kubewright_schema::quantity::Quantity;
use serde_json::{Value, json};

use super::check::{At, Errors, Object, child, each, ensure, fill, fill_number, fill_text, get, keep, text};
use super::pods::scheduling::node_selector;
use crate::registry::{GenerationRule, Looks, NameRule, PLAIN, StatusMetadata, Strategy, StrategyContext};

const RESOURCE: Strategy = Strategy {
    delete_returns_object: true,
    looks: Looks::CHANGED_AND_WHOLE,
    ..PLAIN
};
/// How long a driver's name, a part of a name, a value and opaque parameters may be.
const MAX_DRIVER: usize = 63;
const MAX_POOL: usize = 253;
const MAX_IDENTIFIER: usize = 32;
const MAX_VALUE: usize = 64;
const MAX_PARAMETERS: usize = 10 * 1024;
/// How many requests, constraints, configurations, selectors, alternatives, taints, counters there may be.
const MAX_REQUESTS: usize = 32;
const MAX_ALTERNATIVES: usize = 8;
const MAX_TAINTS: usize = 16;
const MAX_COUNTER_SETS: usize = 8;
const MAX_COUNTERS: usize = 32;
const MAX_CONSUMED: usize = 2;
const MAX_CONDITIONS: usize = 4;
const MAX_ATTRIBUTES: usize = 32;
const MAX_ATTRIBUTE_VALUES: usize = 48;
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
    let native = !name.text().contains('/') || name.text().contains("kubernetes.io/");
    let refused = native
        || name.text().starts_with("requests.")
        || !names::qualified_name(&format!("requests.{}", name.text())).is_empty();
    if name.present() && refused {
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

/// The same of a list whose items differ in what `name` says of them.
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

fn driver_name(errors: &mut Errors, at: &At<'_>) {
    if at.text().is_empty() {
        return errors.required(at, "");
    }
    if at.text().len() > MAX_DRIVER {
        errors.push(FieldError::too_long(at.path.to_string(), MAX_DRIVER));
    }
    errors.messages(at, names::dns1123_subdomain(&at.text().to_lowercase()));
}

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

/// Parameters that a driver understands.
fn opaque(errors: &mut Errors, config: &At<'_>, is_stored: bool) {
    let opaque = config.key("opaque");
    if !opaque.present() {
        return errors.required(&opaque, "");
    }
    driver_name(errors, &opaque.key("driver"));
    parameters(errors, &opaque.key("parameters"), is_stored);
}

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
    prepare_create: |object, _| {
        if let Some(object) = object.as_object_mut() {
            object.insert("status".to_owned(), json!({}));
        }
    },
    prepare_update: |new, old, _| keep(new, old, "status"),
    validate_create: |new| {
        let mut errors = Errors::default();
        claimed(&mut errors, &At::root(new).key("spec"));
        errors.into_vec()
    },
    validate_update: |new, old| {
        let mut errors = Errors::default();
        errors.immutable(&At::root(new).key("spec"), &At::root(old).key("spec"));
        errors.into_vec()
    },
    validate_status: allocation::status,
    ..RESOURCE
};

/// How ResourceClaimTemplates are written.
pub(crate) const CLAIM_TEMPLATE: Strategy = Strategy {
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
    validate_update: |new, old| {
        let mut errors = Errors::default();
        errors.extend(template(new));
        errors.extend((CLAIM.validate_update)(new, old));
        errors.into_vec()
    },
    ..RESOURCE
};

fn template(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    let metadata = spec.key("metadata");
    errors.extend(names::annotations(
        metadata.key("annotations").value,
        &metadata.key("annotations").path,
    ));
    errors.extend(names::labels(
        metadata.key("labels").value,
        &metadata.key("labels").path,
    ));
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

/// Each request has a name and one way of saying what is wanted.
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

fn label(errors: &mut Errors, at: &At<'_>) {
    for message in names::dns1123_label(at.text()) {
        errors.invalid_value(at, at.text(), message);
    }
}

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

/// A name with a domain.
fn qualified(errors: &mut Errors, at: &At<'_>) {
    name_of_driver(errors, at, at.text());
    if !at.text().contains('/') {
        errors.invalid(
            at,
            "a fully qualified name must be a domain and a name separated by a slash",
        );
    }
}

/// The name of an attribute or a capacity: of its own, or with the domain of who defines it.
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

/// How ResourceSlices are written: who drives the devices, and where they are.
pub(crate) const DEVICES: Strategy = Strategy {
    looks: Looks::CHANGED,
    default: |object| {
        let Some(spec) = object.as_object_mut().and_then(|object| ensure(object, "spec")) else {
            return;
        };
        ensure(spec, "pool");
        for device in each(spec, "devices") {
            if let Some(resources) = child(device, "nodeAllocatableResourceMappings") {
                for mapping in resources.values_mut().filter_map(Value::as_object_mut) {
                    fill(mapping, "allocationMultiplier", "1");
                }
            }
        }
    },
    prepare_create: |object, context| note_time(object, context),
    prepare_update: |new, _, context| note_time(new, context),
    validate_create: |new| slice(new, &Value::Null),
    validate_update: |new, old| {
        let mut errors = Errors::default();
        let (spec, was) = (At::root(new).key("spec"), At::root(old).key("spec"));
        for path in [&["pool", "name"][..], &["driver"], &["nodeName"]] {
            errors.immutable(&spec.keys(path), &was.keys(path));
        }
        errors.extend(slice(new, old));
        errors.into_vec()
    },
    ..DEVICE_CLASS
};

/// Taints say since when they are there.
fn note_time(slice: &mut Value, context: &StrategyContext<'_>) {
    let now = crate::env::rfc3339(context.env.now());
    let Some(spec) = slice.as_object_mut().and_then(|slice| child(slice, "spec")) else {
        return;
    };
    for device in each(spec, "devices") {
        each(device, "taints").for_each(|taint| fill_text(taint, "timeAdded", &now));
    }
}

fn slice(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    let pool = spec.key("pool");
    driver_name(&mut errors, &spec.key("driver"));
    pool_name(&mut errors, &pool.key("name"));
    let (count, generation) = (pool.key("resourceSliceCount"), pool.key("generation"));
    if count.int().is_none_or(|count| count <= 0) {
        errors.invalid_value(&count, count.int().unwrap_or(0), "must be greater than zero");
    }
    if generation.int().is_some_and(|generation| generation < 0) {
        errors.invalid(&generation, "must be greater than or equal to zero");
    }
    places(&mut errors, &spec);
    let has = |field: &str| spec.key("devices").items().any(|device| !device.key(field).is_empty());
    let max = if has("taints") || has("consumesCounters") {
        64
    } else {
        128
    };
    if spec.key("sharedCounters").present() && spec.key("devices").present() {
        errors.invalid_value(&spec, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    let per_device = spec.key("perDeviceNodeSelection").is_true();
    set(&mut errors, &spec.key("devices"), max, named, |errors, item| {
        let known = get(old, &["spec", "devices"]).as_array().into_iter().flatten();
        let before = known
            .into_iter()
            .find(|known| get(known, &["name"]) == item.key("name").value);
        device(errors, &item, before, per_device);
    });
    set(
        &mut errors,
        &spec.key("sharedCounters"),
        MAX_COUNTER_SETS,
        named,
        |errors, item| {
            counter_set(errors, &item, "name", MAX_COUNTERS);
        },
    );
    errors.into_vec()
}

/// Where the devices are: one way of saying it.
fn places(errors: &mut Errors, spec: &At<'_>) {
    let mut said: Vec<&str> = Vec::new();
    let (node, selector) = (spec.key("nodeName"), spec.key("nodeSelector"));
    if node.present() {
        if node.text().is_empty() {
            errors.invalid(&node, "must be either unset or set to a non-empty string");
        } else {
            said.push("`nodeName`");
            errors.messages(&node, names::dns1123_subdomain(node.text()));
        }
    }
    if selector.present() {
        said.push("`nodeSelector`");
        node_selector(errors, &selector);
        let terms = selector.key("nodeSelectorTerms");
        if terms.len() != 1 {
            errors.invalid(&terms, "must have exactly one node selector term");
        }
    }
    for (field, name) in [
        ("allNodes", "`allNodes`"),
        ("perDeviceNodeSelection", "`perDeviceNodeSelection`"),
    ] {
        let at = spec.key(field);
        if at.is_true() {
            said.push(name);
        } else if at.present() {
            errors.invalid(&at, "must be either unset or set to true");
        }
    }
    let rule = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    one_place(errors, spec, &said, rule, ", but multiple fields are set");
}

fn one_place(errors: &mut Errors, at: &At<'_>, said: &[&str], rule: &str, several: &str) {
    match said {
        [] => errors.required(at, rule),
        [_] => {}
        many => errors.invalid_value(at, format!("{{{}}}", many.join(", ")), format!("{rule}{several}")),
    }
}

fn counter_set(errors: &mut Errors, at: &At<'_>, name: &str, max: usize) {
    let name = at.key(name);
    if name.text().is_empty() {
        errors.required(&name, "");
    } else {
        label(errors, &name);
    }
    let counters = at.key("counters");
    if counters.is_empty() {
        errors.required(&counters, "");
    } else if counters.len() > max {
        errors.push(FieldError::too_many(counters.path.to_string(), counters.len(), max));
    } else {
        for (key, _) in counters.entries() {
            for message in names::dns1123_label(key) {
                errors.invalid_value(&counters, key, message);
            }
        }
    }
}

fn device(errors: &mut Errors, at: &At<'_>, before: Option<&Value>, per_device: bool) {
    label(errors, &at.key("name"));
    let (attributes, capacity) = (at.key("attributes"), at.key("capacity"));
    let entries = attributes.len() + capacity.len();
    if entries > MAX_ATTRIBUTES {
        let why = format!("the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES}");
        errors.invalid_value(at, entries, why);
    }
    let values = |attribute: &At<'_>| ["bools", "ints", "strings", "versions"].map(|list| attribute.key(list).len());
    let count: usize = attributes
        .entries()
        .map(|(_, one)| values(&one).iter().sum::<usize>().max(1))
        .sum();
    if count > MAX_ATTRIBUTE_VALUES {
        let why = format!("the total number of attribute values must not exceed {MAX_ATTRIBUTE_VALUES}");
        errors.invalid_value(at, count, why);
    }
    for (key, value) in attributes.entries() {
        name_of_driver(errors, &attributes, key);
        attribute(errors, &value);
    }
    for (key, value) in capacity.entries() {
        name_of_driver(errors, &capacity, key);
        let policy = value.key("requestPolicy");
        if policy.present() && !at.key("allowMultipleAllocations").is_true() {
            errors.forbidden(&policy, "allowMultipleAllocations must be true");
        }
    }
    let taints = at.key("taints");
    if before.is_none_or(|before| get(before, &["taints"]) != taints.value) {
        limited(errors, &taints, MAX_TAINTS, |errors, item| taint(errors, &item));
    }
    let consumed = |at: &At<'_>| -> Vec<FieldError> {
        let mut errors = Errors::default();
        counter_set(&mut errors, at, "counterSet", MAX_COUNTERS);
        errors.into_vec()
    };
    set(
        errors,
        &at.key("consumesCounters"),
        MAX_CONSUMED,
        |item| item.key("counterSet").text(),
        |errors, item| errors.extend(consumed(&item)),
    );
    device_place(errors, at, per_device);
    bindings(errors, at);
    mappings(errors, at);
}

fn taint(errors: &mut Errors, at: &At<'_>) {
    let (key, value) = (at.key("key"), at.key("value"));
    for message in names::qualified_name(key.text()) {
        errors.invalid_value(&key, key.text(), message);
    }
    if !value.text().is_empty() {
        errors.messages(&value, names::label_value(value.text()));
    }
    errors.one_of(&at.key("effect"), &EFFECTS, true);
}

fn attribute(errors: &mut Errors, at: &At<'_>) {
    const FIELDS: [&str; 8] = [
        "bool", "int", "string", "version", "bools", "ints", "strings", "versions",
    ];
    let version = |errors: &mut Errors, at: &At<'_>| {
        if !is_semantic_version(at.text()) {
            errors.invalid(at, "must be a string compatible with semver.org spec 2.0.0");
        }
    };
    let short = |errors: &mut Errors, at: &At<'_>| {
        if at.text().len() > MAX_VALUE {
            errors.push(FieldError::too_long(at.path.to_string(), MAX_VALUE));
        }
    };
    let given: Vec<&str> = FIELDS.into_iter().filter(|field| at.key(field).present()).collect();
    for field in &given {
        let value = at.key(field);
        if field.ends_with('s') && value.is_empty() {
            errors.invalid(&value, "must not be empty if specified");
        }
        let values: Vec<At<'_>> = if field.ends_with('s') {
            value.items().collect()
        } else {
            vec![value]
        };
        for value in values {
            if field.starts_with("version") {
                version(errors, &value);
            }
            if !field.starts_with("bool") && !field.starts_with("int") {
                short(errors, &value);
            }
        }
    }
    match given[..] {
        [] => errors.invalid_value(at, "", "exactly one value must be specified"),
        [_] => {}
        _ => errors.invalid(at, "exactly one value must be specified"),
    }
}

/// Whether a text is a version by semver.org 2.0.0.
fn is_semantic_version(text: &str) -> bool {
    let number = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) && (part == "0" || !part.starts_with('0'))
    };
    let word = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let (rest, build) = text
        .split_once('+')
        .map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (core, before) = rest
        .split_once('-')
        .map_or((rest, None), |(core, before)| (core, Some(before)));
    let core: Vec<&str> = core.split('.').collect();
    core.len() == 3
        && core.into_iter().all(number)
        && before.is_none_or(|parts| {
            parts
                .split('.')
                .all(|part| word(part) && (number(part) || !part.bytes().all(|b| b.is_ascii_digit())))
        })
        && build.is_none_or(|parts| parts.split('.').all(word))
}

fn device_place(errors: &mut Errors, at: &At<'_>, per_device: bool) {
    let (node, selector, all) = (at.key("nodeName"), at.key("nodeSelector"), at.key("allNodes"));
    if !per_device {
        if node.present() || selector.present() || all.present() {
            errors.invalid_value(
                at,
                Value::Null,
                "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the \
                 ResourceSlice spec",
            );
        }
        return;
    }
    let mut said: Vec<&str> = Vec::new();
    if node.present() {
        if node.text().is_empty() {
            errors.invalid(&node, "must not be empty");
        } else {
            said.push("`nodeName`");
            errors.messages(&node, names::dns1123_subdomain(node.text()));
        }
    }
    if selector.present() {
        said.push("`nodeSelector`");
        node_selector(errors, &selector);
    }
    if all.is_true() {
        said.push("`allNodes`");
    } else if all.present() {
        errors.invalid(&all, "must be either unset or set to true");
    }
    let rule = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in \
                the ResourceSlice spec";
    one_place(errors, at, &said, rule, "");
}

fn bindings(errors: &mut Errors, at: &At<'_>) {
    let (wanted, failing) = (at.key("bindingConditions"), at.key("bindingFailureConditions"));
    for list in [&wanted, &failing] {
        limited(errors, list, MAX_CONDITIONS, |errors, item| {
            for message in names::qualified_name(item.text()) {
                errors.invalid_value(&item, item.text(), message);
            }
        });
    }
    for list in [&wanted, &failing] {
        let mut seen = BTreeSet::new();
        for item in list.items() {
            if !seen.insert(item.text()) {
                errors.push(FieldError::duplicate(item.path.to_string(), item.text()));
            }
            if list.path == failing.path && wanted.items().any(|other| other.text() == item.text()) {
                errors.invalid(
                    &item,
                    "bindingFailureConditions must not overlap with bindingConditions",
                );
            }
        }
    }
    if wanted.is_empty() && !failing.is_empty() {
        errors.invalid(
            &wanted,
            "bindingConditions are required to use bindingFailureConditions",
        );
    }
    if failing.is_empty() && !wanted.is_empty() {
        errors.invalid(
            &failing,
            "bindingFailureConditions are required to use bindingConditions",
        );
    }
}

/// What of the node itself a device stands for.
fn mappings(errors: &mut Errors, device: &At<'_>) {
    for (resource, at) in device.key("nodeAllocatableResourceMappings").entries() {
        if resource.contains('/') && !resource.contains("kubernetes.io/") {
            errors.invalid_value(&at, resource, "must be a node allocatable resource name");
        }
        let (times, key) = (at.key("allocationMultiplier"), at.key("capacityKey"));
        if !times.present() && !key.present() {
            errors.invalid_value(
                &at,
                "",
                "at least one of allocationMultiplier or capacityKey must be set",
            );
            continue;
        }
        if times.text().parse::<Quantity>().is_ok_and(|times| times.sign() <= 0) {
            errors.invalid(&times, "must be positive");
        }
        if key.present() && key.text().is_empty() {
            errors.invalid(&key, "capacityKey must not be an empty string");
        } else if key.present() && device.key("capacity").entries().all(|(known, _)| known != key.text()) {
            errors.not_found(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_semantic() {
        for (text, expected) in [
            ("1.2.3", true),
            ("1.2.3-alpha.1+build.5", true),
            ("1.2.3--", true),
            ("0.0.0", true),
            ("1.2", false),
            ("01.2.3", false),
            ("1.2.3-01", false),
            ("1.2.3-0a", true),
            ("1.2.3-", false),
            ("1.2.3+", false),
            ("", false),
        ] {
            assert_eq!(is_semantic_version(text), expected, "{text}");
        }
    }
}
