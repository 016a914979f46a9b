//! LimitRanges: how they are written.
//!
//! Not here: applying them to pods and claims (the plugin LimitRanger).

use std::collections::BTreeSet;
use std::str::FromStr as _;

use kubewright_schema::budget;
use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use kubewright_schema::quantity::Quantity;
use serde_json::Value;

use super::check::{At, Errors, Object, child, each, ensure, get};
use super::pods::defaults::canonical_quantities;
use super::pods::resources::{Of, is_extended_name, overcommit_allowed, resource_name};
use kubewright_model::{MetadataChecks, PLAIN, Strategy};

/// How LimitRanges are written.
pub(crate) const LIMITS: Strategy = Strategy {
    create_on_update: true,
    metadata_checks: MetadataChecks::CREATE,
    default: default_limits,
    // One without a name is called by its uid.
    prepare_create: |object, _| {
        let uid = kubewright_model::object::uid(object).to_owned();
        if kubewright_model::object::name(object).is_empty() {
            kubewright_model::object::metadata_mut(object).insert("name".to_owned(), uid.into());
        }
    },
    validate_create: limits,
    validate_update: |new, _| limits(new),
    ..PLAIN
};

/// Containers without a default get the maximum, those without a default request the default, else the minimum.
fn default_limits(object: &mut Value) {
    let Some(spec) = object.as_object_mut().and_then(|object| ensure(object, "spec")) else {
        return;
    };
    for item in each(spec, "limits") {
        for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            if let Some(list) = child(item, list) {
                canonical_quantities(list);
            }
        }
        if item.get("type").and_then(Value::as_str) != Some("Container") {
            continue;
        }
        for (target, source) in [
            ("default", "max"),
            ("defaultRequest", "default"),
            ("defaultRequest", "min"),
        ] {
            fill_amounts(item, target, source);
        }
    }
}

/// Adds the amounts of another list that a list does not have.
fn fill_amounts(item: &mut Object, target: &str, source: &str) {
    let Some(Value::Object(more)) = item.get(source) else {
        return;
    };
    let missing: Object = match item.get(target) {
        Some(Value::Object(present)) => {
            let is_missing = |(name, _): &(&String, &Value)| !present.contains_key(*name);
            let missing = more.iter().filter(is_missing);
            missing.map(|(name, amount)| (name.clone(), amount.clone())).collect()
        }
        _ => more.clone(),
    };
    match item.get_mut(target) {
        _ if missing.is_empty() => {}
        Some(Value::Object(present)) => present.extend(missing),
        _ => {
            item.insert(target.to_owned(), Value::Object(missing));
        }
    }
}

/// The lists of amounts that a limit has.
const AMOUNTS: [&str; 5] = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];

/// `ValidateLimitRange`.
fn limits(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let mut seen = BTreeSet::new();
    for item in At::root(new).keys(&["spec", "limits"]).items() {
        let kind = item.key("type");
        for message in names::qualified_name(kind.text()) {
            errors.invalid_value(&kind, kind.text(), message);
        }
        let qualified = names::qualified_name(kind.text()).is_empty();
        let standard = ["Pod", "Container", "PersistentVolumeClaim"].contains(&kind.text());
        if qualified && !kind.text().contains('/') && !standard {
            errors.invalid(&kind, "must be a standard limit type or fully qualified");
        }
        if !seen.insert(kind.text()) {
            errors.duplicate(&kind);
        }
        // `validateLimitRangeResourceName`
        let of = match kind.text() {
            "Pod" | "Container" => Of::Container,
            _ => Of::Other,
        };
        let lists = AMOUNTS.map(|list| item.value.get(list).and_then(Value::as_object));
        let keys = lists.iter().flatten().flat_map(|list| list.keys());
        let resources: BTreeSet<&str> = keys.map(String::as_str).collect();
        limited_names(&mut errors, of, &item, &resources);
        if kind.text() == "Pod" {
            for field in ["default", "defaultRequest"] {
                if !item.key(field).is_empty() {
                    errors.forbidden(&item.key(field), "may not be specified when `type` is 'Pod'");
                }
            }
        }
        let has = |bound: &str| item.keys(&[bound, "storage"]).present();
        if kind.text() == "PersistentVolumeClaim" && !has("min") && !has("max") {
            errors.required(
                &item.key("limits"),
                "either minimum or maximum storage value is required, but neither was provided",
            );
        }
        for resource in resources {
            bounds(&mut errors, &item, lists, resource);
        }
    }
    errors.into_vec()
}

/// Refuses names in the lists of a limit. Most stand in several lists, and nothing is wrong with any: these are looked
/// at once, and without their paths.
fn limited_names(errors: &mut Errors, of: Of, item: &At<'_>, resources: &BTreeSet<&str>) {
    let is_right = |name: &str| {
        budget::spend_on_text(name.len());
        is_extended_name(name)
    };
    let doubtful: BTreeSet<&str> = resources.iter().copied().filter(|name| !is_right(name)).collect();
    if doubtful.is_empty() {
        return;
    }
    for list in AMOUNTS {
        for (name, entry) in item.key(list).entries() {
            if doubtful.contains(name) {
                resource_name(errors, name, &entry, of);
            }
        }
    }
}

/// The order `min <= defaultRequest <= default <= max` of one resource, in the words of Kubernetes (which shows another
/// value than the one at fault here and there) (`ValidateLimitRange`).
fn bounds(errors: &mut Errors, item: &At<'_>, lists: [Option<&Object>; 5], resource: &str) {
    budget::spend(lists.len());
    let at = |list: &str| At {
        value: get(item.value, &[list, resource]),
        path: item.key(list).path.map_key(resource),
    };
    let amount = |list: Option<&Object>| Quantity::from_str(list?.get(resource)?.as_str()?).ok();
    let [most, least, usual, request, ratio] = lists.map(amount);
    // Pods have no defaults, which is reported, and theirs are not compared.
    let is_pod = item.value.get("type").and_then(Value::as_str) == Some("Pod");
    let [usual, request] = [usual, request].map(|amount| amount.filter(|_| !is_pod));
    let mut refuse = |path: &str, shown: &str, low: (&str, &Option<Quantity>), high: (&str, &Option<Quantity>)| {
        if let (Some(below), Some(above)) = (low.1, high.1)
            && below > above
        {
            let detail = format!("{} value {below} is greater than {} value {above}", low.0, high.0);
            errors.invalid_value(&at(path), at(shown).text(), detail);
        }
    };
    refuse("min", "min", ("min", &least), ("max", &most));
    refuse(
        "defaultRequest",
        "defaultRequest",
        ("min", &least),
        ("default request", &request),
    );
    refuse(
        "defaultRequest",
        "defaultRequest",
        ("default request", &request),
        ("max", &most),
    );
    refuse(
        "defaultRequest",
        "defaultRequest",
        ("default request", &request),
        ("default limit", &usual),
    );
    refuse("default", "min", ("min", &least), ("default", &usual));
    refuse("default", "max", ("default", &usual), ("max", &most));
    if ratio
        .as_ref()
        .is_some_and(|ratio| *ratio < Quantity::new(1, 0, ratio.format()))
    {
        let ratio = at("maxLimitRequestRatio");
        errors.invalid(&ratio, format!("ratio {} is less than 1", ratio.text()));
    }
    if let (Some(ratio), Some(least), Some(most)) = (&ratio, &least, &most) {
        let (widest, asked) = (most.approximate() / least.approximate(), ratio.approximate());
        if asked > widest {
            let detail = format!("ratio {ratio} is greater than max/min = {widest:.6}");
            errors.invalid(&at("maxLimitRequestRatio"), detail);
        }
    }
    // A resource that cannot be overcommitted has a limit equal to its request.
    if let (Some(usual), Some(request), false) = (&usual, &request, overcommit_allowed(resource))
        && usual != request
    {
        let detail = format!("default value {usual} must equal to defaultRequest value {request} in {resource}");
        errors.invalid(&at("defaultRequest"), detail);
    }
}
