//! ResourceSlices: the devices that a driver offers, with their attributes, capacities, counters and taints, and where
//! they are.

use std::collections::{BTreeMap, BTreeSet};

use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use kubewright_schema::quantity::Quantity;
use serde_json::Value;

use super::super::check::{At, Errors, Object, check_fields, child, each, ensure, fill, fill_text, fixed, get};
use super::super::pods::scheduling::node_selector;
use super::capacity::request_policy;
use super::{DEVICE_CLASS, EFFECTS, driver_name, label, limited, name_of_driver, named, pool_name, set};
use kubewright_model::facts::amounts::is_native;
use kubewright_model::{Empties, MetadataChecks, NameRule, Strategy, UnknownField};

/// How long a value may be.
const MAX_VALUE: usize = 64;
/// How many taints, sets of counters, counters, sets that a device consumes, conditions of a binding and attributes
/// there may be.
const MAX_TAINTS: usize = 16;
const MAX_COUNTER_SETS: usize = 8;
const MAX_COUNTERS: usize = 32;
const MAX_CONSUMED: usize = 2;
const MAX_CONDITIONS: usize = 4;
const MAX_ATTRIBUTES: usize = 32;
const MAX_ATTRIBUTE_VALUES: usize = 48;

/// How ResourceSlices are written: the driver of the devices, and the nodes that reach them.
pub(crate) const DEVICES: Strategy = Strategy {
    names: NameRule::Subdomain,
    empties: Empties::Seen,
    metadata_checks: MetadataChecks::UPDATE,
    unknown_field: UnknownField::LabelOfVersion,
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
    default_time: Some(note_time),
    prepare_create: |object, _| drop_disabled(object),
    prepare_update: |new, _, _| drop_disabled(new),
    validate_create: |new| slice(new, &Value::Null),
    warnings: |new, _| {
        let driver = At::root(new).keys(&["spec", "driver"]);
        let name = driver.text();
        let capitals = name.bytes().any(|byte| byte.is_ascii_uppercase());
        let why = "driver names should be lowercase";
        capitals
            .then(|| format!("{}: {why}; {name:?} contains uppercase characters", driver.path))
            .into_iter()
            .collect()
    },
    validate_update: |new, old| {
        let mut errors = Errors::default();
        let (spec, was) = (At::root(new).key("spec"), At::root(old).key("spec"));
        let rules = [
            fixed(&["pool", "name"], "ValidateResourceSliceUpdate"),
            fixed(&["driver"], "ValidateResourceSliceUpdate"),
            fixed(&["nodeName"], "ValidateResourceSliceUpdate"),
        ];
        check_fields(&mut errors, &rules, &spec, Some(&was));
        errors.extend(slice(new, old));
        errors.into_vec()
    },
    ..DEVICE_CLASS
};

/// Drops the fields behind feature gates that are off: attributes that are lists, and the node resources that devices
/// take.
fn drop_disabled(slice: &mut Value) {
    let Some(spec) = slice.as_object_mut().and_then(|slice| child(slice, "spec")) else {
        return;
    };
    for field in ["partitionTypeAttribute", "skipNodeOperations"] {
        spec.remove(field);
    }
    for device in each(spec, "devices") {
        device.remove("nodeAllocatableResourceMappings");
        device.remove("nodeAllocatableResources");
        each(device, "consumesCounters").for_each(|counter| drop(counter.remove("compatibilityGroups")));
        let attributes = child(device, "attributes").into_iter().flat_map(Object::values_mut);
        for attribute in attributes.filter_map(Value::as_object_mut) {
            for list in ["bools", "ints", "strings", "versions"] {
                attribute.remove(list);
            }
        }
    }
}

/// Taints say since when they are there.
fn note_time(slice: &mut Value, now: &str) {
    let Some(spec) = slice.as_object_mut().and_then(|slice| child(slice, "spec")) else {
        return;
    };
    for device in each(spec, "devices") {
        each(device, "taints").for_each(|taint| fill_text(taint, "timeAdded", now));
    }
}

/// `validateResourceSliceSpec`.
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
    let mut known = BTreeMap::new();
    for device in get(old, &["spec", "devices"]).as_array().into_iter().flatten() {
        known.entry(get(device, &["name"]).as_str()).or_insert(device);
    }
    set(&mut errors, &spec.key("devices"), max, named, |errors, item| {
        let before = known.get(&item.key("name").value.as_str()).copied();
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

/// Where the devices are: one way of saying it (`validateResourceSliceSpec`).
fn places(errors: &mut Errors, spec: &At<'_>) {
    let mut said: Vec<&str> = Vec::new();
    let (node, selector) = (spec.key("nodeName"), spec.key("nodeSelector"));
    node_name(
        errors,
        &node,
        &mut said,
        "must be either unset or set to a non-empty string",
    );
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

/// One node, as a place (`validateNodeName`).
fn node_name(errors: &mut Errors, node: &At<'_>, said: &mut Vec<&str>, why_not_empty: &str) {
    if node.present() && node.text().is_empty() {
        errors.invalid(node, why_not_empty);
    } else if node.present() {
        said.push("`nodeName`");
        errors.messages(node, names::dns1123_subdomain(node.text()));
    }
}

fn one_place(errors: &mut Errors, at: &At<'_>, said: &[&str], rule: &str, several: &str) {
    match said {
        [] => errors.required(at, rule),
        [_] => {}
        many => errors.invalid_value(at, format!("{{{}}}", many.join(", ")), format!("{rule}{several}")),
    }
}

/// `validateCounterSet`.
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

/// `validateDevice`.
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
        if at.key("allowMultipleAllocations").is_true() {
            request_policy(errors, &value);
        } else if policy.present() {
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

/// `validateDeviceTaint`.
pub(super) fn taint(errors: &mut Errors, at: &At<'_>) {
    let (key, value) = (at.key("key"), at.key("value"));
    for message in names::qualified_name(key.text()) {
        errors.invalid_value(&key, key.text(), message);
    }
    if !value.text().is_empty() {
        errors.messages(&value, names::label_value(value.text()));
    }
    errors.one_of(&at.key("effect"), &EFFECTS, true);
}

/// `validateDeviceAttribute`.
fn attribute(errors: &mut Errors, at: &At<'_>) {
    const FIELDS: [&str; 8] = [
        "bool", "int", "string", "version", "bools", "ints", "strings", "versions",
    ];
    let version = |errors: &mut Errors, at: &At<'_>| {
        if semver::Version::parse(at.text()).is_err() {
            errors.invalid(at, "must be a string compatible with semver.org spec 2.0.0");
        }
    };
    let short = |errors: &mut Errors, at: &At<'_>| {
        if at.text().len() > MAX_VALUE {
            errors.push(FieldError::too_long(at.path.to_string(), MAX_VALUE));
        }
    };
    // An empty list is dropped as every list is: the gate is shut.
    let given: Vec<&str> = FIELDS
        .into_iter()
        .filter(|field| at.key(field).present() && !at.key(field).value.as_array().is_some_and(Vec::is_empty))
        .collect();
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

/// `validateDevice`.
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
    node_name(errors, &node, &mut said, "must not be empty");
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

/// `validateDeviceBindingParameters`.
pub(super) fn bindings(errors: &mut Errors, at: &At<'_>) {
    let (wanted, failing) = (at.key("bindingConditions"), at.key("bindingFailureConditions"));
    for list in [&wanted, &failing] {
        limited(errors, list, MAX_CONDITIONS, |errors, item| {
            for message in names::qualified_name(item.text()) {
                errors.invalid_value(&item, item.text(), message);
            }
        });
    }
    let all_wanted: BTreeSet<&str> = wanted.items().map(|item| item.text()).collect();
    for list in [&wanted, &failing] {
        let mut seen = BTreeSet::new();
        for item in list.items() {
            if !seen.insert(item.text()) {
                errors.push(FieldError::duplicate(item.path.to_string(), item.text()));
            }
            if list.path == failing.path && all_wanted.contains(item.text()) {
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

/// The node's own resources that a device stands for (`validateNodeAllocatableResourceMappings`).
fn mappings(errors: &mut Errors, device: &At<'_>) {
    for (resource, at) in device.key("nodeAllocatableResourceMappings").entries() {
        if !is_native(resource) {
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
            ("18446744073709551616.0.0", false),
        ] {
            let value = serde_json::json!({ "version": text });
            let mut errors = Errors::default();
            attribute(&mut errors, &At::root(&value));
            assert_eq!(errors.into_vec().is_empty(), expected, "{text}");
        }
    }
}
