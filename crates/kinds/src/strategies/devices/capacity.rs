//! How much of a device's capacity one request may take, where several share the device.

use kubewright_schema::error::FieldError;
use kubewright_schema::quantity::Quantity;

use crate::strategies::check::{At, Errors};

const MAX_VALUES: usize = 10;

/// The `requestPolicy` of one capacity: values to choose from, or a range, and a default that is one of them.
pub(super) fn request_policy(errors: &mut Errors, capacity: &At<'_>) {
    let policy = capacity.key("requestPolicy");
    let (values, range) = (policy.key("validValues"), policy.key("validRange"));
    if !values.is_empty() && range.present() {
        let why =
            "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time";
        errors.forbidden(&policy, why);
        return;
    }
    let (rule, what) = match (values.is_empty(), range.present()) {
        (false, _) => (&values, "validValues"),
        (true, true) => (&range, "validRange"),
        (true, false) => return,
    };
    let Some(all) = quantity(&capacity.key("value")) else {
        return;
    };
    let Some(default) = quantity(&policy.key("default")) else {
        errors.required(&policy.key("default"), &format!("required when {what} is defined"));
        return;
    };
    if rule.value.is_array() {
        valid_values(errors, rule, &default, &all);
    } else {
        valid_range(errors, rule, &default, &all);
    }
}

fn quantity(at: &At<'_>) -> Option<Quantity> {
    at.text().parse().ok()
}

/// `validateRequestPolicyValidValues`.
fn valid_values(errors: &mut Errors, at: &At<'_>, default: &Quantity, all: &Quantity) {
    let values: Vec<(At<'_>, Quantity)> = at
        .items()
        .filter_map(|item| Some((item.clone(), quantity(&item)?)))
        .collect();
    for pair in values.windows(2) {
        if let [(_, before), (item, value)] = pair
            && before > value
        {
            errors.invalid_value(item, value.to_string(), "values must be sorted in ascending order");
        }
    }
    if values.len() > MAX_VALUES {
        errors.push(FieldError::too_many(at.path.to_string(), values.len(), MAX_VALUES));
    } else {
        for (item, value) in values.iter().filter(|(_, value)| value > all) {
            errors.invalid_value(
                item,
                value.to_string(),
                format!("option is larger than capacity value: {all}"),
            );
        }
        for (index, (item, value)) in values.iter().enumerate() {
            if values[..index].iter().any(|(_, other)| other.value() == value.value()) {
                errors.push(FieldError::duplicate(item.path.to_string(), value.value().to_string()));
            }
        }
    }
    if !values.iter().take(MAX_VALUES).any(|(_, value)| value == default) {
        let why = "default value is not valid according to the requestPolicy";
        errors.invalid_value(at, default.to_string(), why);
    }
}

/// `validateRequestPolicyRange`.
fn valid_range(errors: &mut Errors, at: &At<'_>, default: &Quantity, all: &Quantity) {
    let (min, max, step) = (at.key("min"), at.key("max"), at.key("step"));
    let Some(least) = quantity(&min) else {
        errors.required(&min, "required when validRange is defined");
        return;
    };
    if least > *all {
        errors.invalid_value(
            &min,
            least.to_string(),
            format!("min is larger than capacity value: {all}"),
        );
    }
    if *default < least {
        errors.invalid_value(&min, default.to_string(), format!("default is less than min: {least}"));
    }
    let most = quantity(&max);
    if let Some(most) = &most {
        for (wrong, shown, why) in [
            (least > *most, &least, format!("min is larger than max: {most}")),
            (most > all, most, format!("max is larger than capacity value: {all}")),
            (default > most, default, format!("default is more than max: {most}")),
        ] {
            if wrong {
                errors.invalid_value(&max, shown.to_string(), why);
            }
        }
    }
    let Some(width) = quantity(&step) else { return };
    let first = least.clone() + width.clone();
    if first > *all {
        let why = format!("one step {first} is larger than capacity value: {all}");
        errors.invalid_value(&step, width.to_string(), why);
    }
    for value in [Some(default), most.as_ref()].into_iter().flatten() {
        // A step of nothing reaches nothing; kube-apiserver divides by it.
        let rest = (value.value() - least.value()).checked_rem(width.value());
        if rest != Some(0) {
            let why = format!("value is not a multiple of a given step ({width}) from ({least})");
            errors.invalid_value(&step, value.to_string(), why);
        }
    }
}
