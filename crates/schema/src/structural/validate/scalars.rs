//! Texts and numbers: their lengths, patterns, formats, ranges and factors.

use kubewright_values::{formats, go};
use serde_json::{Value, json};

use super::{Failure, Outcome, Validator};
use crate::budget;
use crate::error::Reason;
use crate::schema::{Schema, Type};
use crate::structural::Place;

/// Whether a number is so often a factor, as near as floats can tell.
fn is_multiple(number: f64, factor: f64) -> bool {
    const NEAR: f64 = 1e-9;
    let times = if factor < 1.0 {
        1.0 / factor * number
    } else {
        number / factor
    };
    let whole = times.round();
    times == whole || (times - whole).abs() / (times.abs() + whole.abs()) < NEAR
}

/// Type and format of a value as Go sees it after decoding: an integer beyond int64 is a float.
pub(in crate::structural) fn type_of(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

/// A bound of a number, which is whole beside a whole number unless its type has no such bound.
fn bound_text(bound: f64, value: &Value) -> String {
    if value.is_i64() && bound.fract() == 0.0 {
        bound.to_string()
    } else {
        go::float(bound)
    }
}

impl Validator {
    /// The format of a schema as far as its type has formats (`StripUnsupportedFormatsPostProcess`).
    pub(super) fn format<'s>(&self, schema: &'s Schema) -> &'s str {
        let format = schema.format.as_deref().unwrap_or_default();
        let of_numbers = matches!(format, "int32" | "int64" | "float" | "double");
        let is_known = match schema.type_.filter(|_| !schema.int_or_string) {
            _ if self.of_default => formats::is_known(format),
            None | Some(Type::String) => formats::is_known(format) && !of_numbers,
            Some(Type::Integer) => matches!(format, "int32" | "int64"),
            Some(Type::Number) => matches!(format, "float" | "double"),
            Some(_) => false,
        };
        if is_known { format } else { "" }
    }

    /// The first of length and pattern that fails is the only one reported; the format is apart.
    pub(super) fn text(&self, text: &str, value: &Value, schema: &Schema, path: &Place<'_>, outcome: &mut Outcome) {
        outcome.checks += 1;
        if let Some(failure) = self.text_error(text, value, schema, path) {
            outcome.fail(failure);
        }
        if let Some(format) = schema.format.as_deref()
            && schema.type_.is_none_or(|type_| type_ == Type::String)
        {
            outcome.checks += 1;
            budget::spend_on_text(4 * text.len());
            if !formats::is_valid(format, text) {
                outcome.fail(self.wrong_type(path, || format.to_owned(), text));
            }
        }
    }

    pub(super) fn text_error(&self, text: &str, value: &Value, schema: &Schema, path: &Place<'_>) -> Option<Failure> {
        // The count is only made when a bound asks for it.
        let length = || {
            budget::spend_on_text(text.len());
            i64::try_from(text.chars().count()).unwrap_or(i64::MAX)
        };
        if let Some(max) = schema.max_length
            && length() > max
        {
            let unit = if max == 1 { "byte" } else { "bytes" };
            let detail = |_: &str| format!("may not be more than {max} {unit}");
            return Some(self.error(Reason::TooLong, path, None, detail));
        }
        if let Some(min) = schema.min_length
            && length() < min
        {
            return Some(self.invalid(path, value, || format!("should be at least {min} chars long")));
        }
        let pattern = schema.pattern.as_ref()?;
        match pattern.matches(text) {
            Ok(true) => None,
            Ok(false) => Some(self.invalid(path, value, || format!("should match '{}'", pattern.as_str()))),
            Err(error) => {
                let what = || format!("should match '{}', but pattern is invalid: '{error}'", pattern.as_str());
                Some(self.invalid(path, value, what))
            }
        }
    }

    pub(super) fn number(&self, number: f64, value: &Value, schema: &Schema, path: &Place<'_>, outcome: &mut Outcome) {
        outcome.checks += 1;
        if let Some(failure) = self.range(number, value, schema, path, "Checked") {
            outcome.fail(failure);
        }
        if let Some(factor) = self.bound(schema.multiple_of, "MultipleOf", value, schema, path, outcome) {
            if factor <= 0.0 {
                let shown = serde_json::Number::from_f64(factor).map_or(Value::Null, Value::Number);
                let shown = if value.is_i64() { json!(0) } else { shown };
                let detail = |path: &str| {
                    format!(
                        "factor MultipleOf declared for {path} must be positive: {}",
                        bound_text(factor, value)
                    )
                };
                outcome.fail(self.error(Reason::Invalid, path, Some(&shown), detail));
            } else if !is_multiple(number, factor) {
                let what = || format!("should be a multiple of {}", bound_text(factor, value));
                outcome.fail(self.invalid(path, value, what));
            }
        }
        let or_equal = |exclusive: bool| if exclusive { "" } else { "or equal to " };
        if let Some(max) = self.bound(schema.maximum, "Maximum boundary", value, schema, path, outcome)
            && (number > max || (schema.exclusive_maximum && number == max))
        {
            let or_equal = or_equal(schema.exclusive_maximum);
            let what = || format!("should be less than {or_equal}{}", bound_text(max, value));
            outcome.fail(self.invalid(path, value, what));
        }
        if let Some(min) = self.bound(schema.minimum, "Minimum boundary", value, schema, path, outcome)
            && (number < min || (schema.exclusive_minimum && number == min))
        {
            let or_equal = or_equal(schema.exclusive_minimum);
            let what = || format!("should be greater than {or_equal}{}", bound_text(min, value));
            outcome.fail(self.invalid(path, value, what));
        }
    }

    /// A bound as a value is held against it. One that the type does not have is an error, and taken as it is; with
    /// others a whole number is asked with whole bounds (`numberValidator.Validate`).
    fn bound(
        &self,
        bound: Option<f64>,
        what: &str,
        value: &Value,
        schema: &Schema,
        path: &Place<'_>,
        outcome: &mut Outcome,
    ) -> Option<f64> {
        let bound = bound?;
        if let Some(failure) = self.range(bound, &Value::Null, schema, path, what) {
            outcome.fail(failure);
            return Some(bound);
        }
        Some(if value.is_i64() { bound.trunc() } else { bound })
    }

    /// Whether the number fits the width that type and format give it; `what` it is (`IsValueValidAgainstRange`).
    fn range(&self, number: f64, value: &Value, schema: &Schema, path: &Place<'_>, what: &str) -> Option<Failure> {
        let type_ = schema.type_.filter(|_| !schema.int_or_string)?;
        let format = match self.of_default {
            true => schema.format.as_deref().unwrap_or_default(),
            false => self.format(schema),
        };
        let whole = value
            .as_i64()
            .or_else(|| (number.fract() == 0.0 && number.abs() < 9.2e18).then_some(number as i64));
        let fits = match (type_, format) {
            (Type::Integer, "int32") => whole.is_some_and(|whole| i32::try_from(whole).is_ok()),
            (Type::Integer, "uint32") => whole.is_some_and(|whole| u32::try_from(whole).is_ok()),
            (Type::Integer, "uint64") => value.is_u64() || whole.is_some_and(|whole| whole >= 0),
            (Type::Integer, _) => whole.is_some(),
            (Type::Number, "float") => number.abs() <= f64::from(f32::MAX),
            _ => true,
        };
        let format = || match format {
            "" => "(default format)".to_owned(),
            format => format!("with format {format}"),
        };
        (!fits).then(|| {
            self.placeless(|| {
                let (path, format) = (path.text(), format());
                format!("{what} value must be of type {type_} {format} in {path}")
            })
        })
    }
}
