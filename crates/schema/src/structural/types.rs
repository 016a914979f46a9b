//! Whether a value can be read into the Go type behind a built-in schema, and the error of Go's decoder when it cannot.
//!
//! The texts are those of `encoding/json` as Kubernetes carries it: the struct is the innermost one, the field is the
//! whole path without indexes and map keys (`EnvVar.spec.template.spec.containers.env.value`). Types with readers of
//! their own (times, quantities, …) answer in their own words.

use std::fmt;

use jiff::SignedDuration;
use serde_json::{Number, Value};

use crate::go::TypeMismatch;
use crate::quantity::Quantity;
use crate::schema::catalog::json_schema_props;
use crate::schema::go::names::part;
use crate::schema::special::{Special, special};
use crate::schema::{SchemaRef, Type};

/// Why Go's decoder cannot read a value into a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeError {
    /// It is of another type.
    Mismatch(TypeMismatch),
    /// The type has a reader of its own, and this is its error.
    Unreadable(String),
}

impl From<TypeMismatch> for TypeError {
    fn from(mismatch: TypeMismatch) -> TypeError {
        TypeError::Mismatch(mismatch)
    }
}

impl From<String> for TypeError {
    fn from(why: String) -> TypeError {
        TypeError::Unreadable(why)
    }
}

impl From<TypeError> for String {
    fn from(error: TypeError) -> String {
        match error {
            TypeError::Mismatch(mismatch) => mismatch.to_string(),
            TypeError::Unreadable(why) => why,
        }
    }
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TypeError::Mismatch(mismatch) => mismatch.fmt(f),
            TypeError::Unreadable(why) => f.write_str(why),
        }
    }
}

/// Checks that Go could decode `value` into the type of `schema`, whose name is `kind`.
///
/// Unknown fields are no error here. Of several mistakes the first by field name is reported, where Go tells the first in
/// the body.
///
/// # Errors
/// Go's error, such as
/// `json: cannot unmarshal number into Go struct field ConfigMap.data of type string`.
///
/// ```
/// use kubewright_schema::{catalog, structural::type_check};
/// use serde_json::json;
///
/// let schema = catalog::for_kind("", "v1", "ConfigMap").unwrap();
/// assert_eq!(type_check(&json!({"data": {"a": "1"}}), &schema, "ConfigMap"), Ok(()));
/// let error = type_check(&json!({"data": {"a": 1}}), &schema, "ConfigMap").unwrap_err();
/// assert_eq!(error.to_string(), "json: cannot unmarshal number into Go struct field ConfigMap.data of type string");
/// ```
pub fn type_check(value: &Value, schema: &SchemaRef, kind: &str) -> Result<(), TypeError> {
    let mut reader = Reader {
        structs: Vec::new(),
        fields: Vec::new(),
    };
    if !value.is_object() && !value.is_null() && special(schema).is_none() {
        return Err(reader.wrong(value, go_type(schema)));
    }
    reader.structs.push(kind);
    reader.value(value, schema, None)
}

/// The name of the Go type behind a schema, as `reflect` prints it.
fn go_type(schema: &SchemaRef) -> String {
    if let Some(name) = schema.name {
        let mut parts = name.rsplit('.');
        let (type_, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        return format!("{package}.{type_}");
    }
    match (schema.type_, schema.format.as_deref()) {
        (Some(Type::Array), _) => format!("[]{}", schema.items.as_ref().map_or_else(String::new, go_type)),
        (Some(Type::Object), _) => match &schema.additional_properties {
            Some(values) => format!("map[string]{}", go_type(values)),
            None => "map[string]interface {}".into(),
        },
        (Some(Type::String), Some("byte")) => "[]uint8".into(),
        (Some(Type::String), _) => "string".into(),
        (Some(Type::Integer), format) => format.unwrap_or("int64").into(),
        (Some(Type::Number), _) => "float64".into(),
        (Some(Type::Boolean), _) => "bool".into(),
        (None, _) => "interface {}".into(),
    }
}

struct Reader<'a> {
    /// The structs around the value, outermost first.
    structs: Vec<&'a str>,
    /// The fields on the way to it.
    fields: Vec<&'a str>,
}

impl<'a> Reader<'a> {
    fn wrong(&self, value: &Value, type_: impl Into<String>) -> TypeError {
        self.in_place(TypeMismatch::new(value, type_).into())
    }

    /// The error with its place; a type with a reader of its own knows only the way within itself (`addErrorContext`
    /// upstream).
    fn in_place(&self, error: TypeError) -> TypeError {
        match (error, self.structs.last()) {
            (TypeError::Mismatch(mismatch), Some(name)) if !self.fields.is_empty() => {
                let within = mismatch.field.as_ref().map(|(_, path)| path.as_str());
                let path: Vec<&str> = self.fields.iter().copied().chain(within).collect();
                let path = path.join(".");
                mismatch.in_field(name, &path).into()
            }
            (error, _) => error,
        }
    }

    /// `named` is the Go name of a type that the schema does not tell.
    fn value(&mut self, value: &'a Value, schema: &SchemaRef, named: Option<&str>) -> Result<(), TypeError> {
        // Null leaves every Go value as it is.
        if value.is_null() {
            return Ok(());
        }
        if let Some(special) = special(schema) {
            return special_check(value, special).map_err(|error| self.in_place(error));
        }
        let type_ = || named.map_or_else(|| go_type(schema), str::to_owned);
        match (schema.type_, value) {
            (Some(Type::Object), Value::Object(map)) => self.object(map, schema, named),
            (Some(Type::Array), Value::Array(list)) => {
                let Some(items) = &schema.items else { return Ok(()) };
                list.iter()
                    .try_for_each(|item| self.value(item, items, named.and_then(part)))
            }
            (Some(Type::String), Value::String(text)) => match schema.format.as_deref() {
                Some("byte") => Ok(base64_check(text)?),
                _ => Ok(()),
            },
            (Some(Type::Integer), Value::Number(number)) => self.integer(number, schema),
            (Some(Type::Number), Value::Number(_)) | (Some(Type::Boolean), Value::Bool(_)) | (None, _) => Ok(()),
            _ => Err(self.wrong(value, type_())),
        }
    }

    fn object(
        &mut self,
        map: &'a serde_json::Map<String, Value>,
        schema: &SchemaRef,
        named: Option<&str>,
    ) -> Result<(), TypeError> {
        // The root's name is the kind; a struct further in brings its own.
        let entered = schema.type_name().filter(|_| !self.fields.is_empty());
        if let Some(name) = entered {
            self.structs.push(name);
        }
        let go = schema.go();
        for (key, value) in map {
            if let Some(property) = schema.properties.get(key) {
                let outside = self.fields.len();
                self.fields.extend(go.embedding(key));
                self.fields.push(key);
                self.value(value, property, go.type_of(key))?;
                self.fields.truncate(outside);
            } else if let Some(values) = &schema.additional_properties {
                self.value(value, values, named.and_then(part))?;
            }
        }
        if entered.is_some() {
            self.structs.pop();
        }
        Ok(())
    }

    fn integer(&self, number: &Number, schema: &SchemaRef) -> Result<(), TypeError> {
        let fits = match schema.format.as_deref() {
            Some("int32") => number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
            _ => number.is_i64(),
        };
        if fits {
            Ok(())
        } else {
            // A whole number that no `i64` holds is reported with its digits.
            let shown = match number.as_f64() {
                Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() >= 9.2e18 => {
                    format!("{float:.0}")
                }
                _ => number.to_string(),
            };
            Err(self.in_place(wrong_number(shown, go_type(schema)).into()))
        }
    }
}

/// A number of the right type that does not fit.
fn wrong_number(shown: impl fmt::Display, type_: impl Into<String>) -> TypeMismatch {
    TypeMismatch {
        value: format!("number {shown}"),
        field: None,
        type_: type_.into(),
    }
}

/// The errors of types with readers of their own.
pub(super) fn special_check(value: &Value, special: Special) -> Result<(), TypeError> {
    let plain = |type_: &str| Err(TypeMismatch::new(value, type_).into());
    match (special, value) {
        (Special::Free, _) => Ok(()),
        (Special::Time, Value::String(text)) => Ok(time(text, false)?),
        (Special::MicroTime, Value::String(text)) => Ok(time(text, true)?),
        (Special::Time | Special::MicroTime, _) => plain("string"),
        (Special::Quantity, Value::String(text)) => Ok(quantity(text.trim())?),
        (Special::Quantity, other) => Ok(quantity(&other.to_string())?),
        (Special::IntOrString, Value::String(_)) => Ok(()),
        (Special::IntOrString, Value::Number(number)) => match number.as_i64().map(i32::try_from) {
            Some(Ok(_)) => Ok(()),
            _ => Err(wrong_number(number, "int32").into()),
        },
        (Special::IntOrString, _) => plain("int32"),
        (Special::SchemaOr(_), Value::Object(_)) => type_check(value, &json_schema_props(), "JSONSchemaProps"),
        (Special::SchemaOr("JSONSchemaPropsOrBool"), Value::Bool(_)) => Ok(()),
        (Special::SchemaOr("JSONSchemaPropsOrBool"), _) => Err("boolean or JSON schema expected".to_owned().into()),
        (Special::SchemaOr("JSONSchemaPropsOrArray"), Value::Array(list)) => list
            .iter()
            .try_for_each(|item| type_check(item, &json_schema_props(), "JSONSchemaProps")),
        (Special::SchemaOr(_), _) => Ok(()),
    }
}

fn quantity(text: &str) -> Result<(), String> {
    text.parse::<Quantity>().map(drop).map_err(|error| error.to_string())
}

/// Go tells the offset of the first byte that does not fit.
pub(super) fn base64_check(text: &str) -> Result<(), String> {
    let read = kubewright_values::base64::decode(text);
    read.map(drop)
        .map_err(|offset| format!("illegal base64 data at input byte {offset}"))
}

/// Reads a time as Go's `time.Parse` does with RFC 3339, only to see whether it can be read.
///
/// # Errors
/// Go's error about it.
pub fn time_check(text: &str) -> Result<(), String> {
    time(text, false)
}

/// `time.Parse` with RFC 3339, or with exactly six digits of a second.
pub(crate) fn time(text: &str, micro: bool) -> Result<(), String> {
    let layout = if micro {
        "2006-01-02T15:04:05.000000Z07:00"
    } else {
        "2006-01-02T15:04:05Z07:00"
    };
    TimeText {
        text,
        rest: text,
        layout,
    }
    .check(micro)
}

/// As Go's package `time` quotes: characters that are not printable ASCII byte by byte.
fn quote(text: &str) -> String {
    use std::fmt::Write as _;
    crate::budget::spend_on_text(text.len());
    let mut quoted = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=b'~' => quoted.push(char::from(byte)),
            _ => write!(quoted, "\\x{byte:02x}").expect("a string takes everything"),
        }
    }
    quoted.push('"');
    quoted
}

struct TimeText<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl TimeText<'_> {
    fn error(&self, element: &str) -> String {
        let (text, rest) = (quote(self.text), quote(self.rest));
        format!(
            "parsing time {text} as {:?}: cannot parse {rest} as {element:?}",
            self.layout
        )
    }

    fn range(&self, what: &str) -> String {
        format!("parsing time {}: {what} out of range", quote(self.text))
    }

    /// The next `width` digits.
    fn number(&mut self, width: usize, element: &str) -> Result<u16, String> {
        let digits = self
            .rest
            .get(..width)
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
        let Some(number) = digits.and_then(|digits| digits.parse().ok()) else {
            return Err(self.error(element));
        };
        self.rest = &self.rest[width..];
        Ok(number)
    }

    fn literal(&mut self, literal: &str) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(literal).ok_or_else(|| self.error(literal))?;
        Ok(())
    }

    fn part(
        &mut self,
        before: &str,
        element: &str,
        range: std::ops::RangeInclusive<u16>,
        what: &str,
    ) -> Result<u16, String> {
        self.literal(before)?;
        let number = self.number(2, element)?;
        if range.contains(&number) {
            Ok(number)
        } else {
            Err(self.range(what))
        }
    }

    fn check(&mut self, micro: bool) -> Result<(), String> {
        let year = self.number(4, "2006")?;
        let month = self.part("-", "01", 1..=12, "month")?;
        let day = self.part("-", "02", 0..=99, "day")?;
        let hour = self.part("T", "15", 0..=23, "hour")?;
        let minute = self.part(":", "04", 0..=59, "minute")?;
        self.part(":", "05", 0..=59, "second")?;
        self.fraction(micro)?;
        let east = self.zone()?;
        if !self.rest.is_empty() {
            let (text, rest) = (quote(self.text), quote(self.rest));
            return Err(format!("parsing time {text}: extra text: {rest}"));
        }
        let parts = (i16::try_from(year), i8::try_from(month), i8::try_from(day));
        let day = match parts {
            (Ok(year), Ok(month), Ok(day)) => jiff::civil::Date::new(year, month, day).ok(),
            _ => None,
        };
        let day = day.ok_or_else(|| self.range("day"))?;
        // As it is stored, in UTC. Go stores a time before the year 0 or after 9999, and then no client can read the
        // object.
        let minute = i64::from(hour).saturating_mul(60).saturating_add(i64::from(minute));
        day.to_datetime(jiff::civil::Time::midnight())
            .checked_add(SignedDuration::from_mins(minute.saturating_sub(east)))
            .ok()
            .filter(|utc| utc.year() >= 0)
            .map(drop)
            .ok_or_else(|| self.range("year"))
    }

    fn fraction(&mut self, micro: bool) -> Result<(), String> {
        let digits = self
            .rest
            .strip_prefix(['.', ','])
            .map_or(0, |rest| rest.bytes().take_while(u8::is_ascii_digit).count());
        if micro {
            if digits < 6 {
                return Err(self.error(".000000"));
            }
            self.rest = &self.rest[7..];
        } else if digits > 0 {
            self.rest = &self.rest[digits + 1..];
        }
        Ok(())
    }

    /// The zone: minutes east of Greenwich.
    fn zone(&mut self) -> Result<i64, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let error = self.error("Z07:00");
        let west = self.rest.starts_with('-');
        let rest = self.rest.strip_prefix(['+', '-']).ok_or_else(|| error.clone())?;
        let two = |from: usize| {
            rest.get(from..from + 2)
                .filter(|d| d.bytes().all(|b| b.is_ascii_digit()))
        };
        match (two(0), rest.get(2..3), two(3)) {
            (Some(hours), Some(":"), Some(minutes)) if hours <= "24" && minutes <= "60" => {
                let number = |digits: &str| digits.parse::<i64>().unwrap_or_default();
                let away = number(hours).saturating_mul(60).saturating_add(number(minutes));
                self.rest = &rest[5..];
                Ok(if west { away.saturating_neg() } else { away })
            }
            _ => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check((group, kind): (&str, &str), value: &Value, expected: Result<(), &str>) {
        let schema = crate::schema::catalog::for_kind(group, "v1", kind).expect("built in");
        assert_eq!(
            type_check(value, &schema, kind).map_err(String::from),
            expected.map_err(str::to_owned),
            "{value}"
        );
    }

    #[test]
    fn go_says() {
        let map = ("", "ConfigMap");
        let deployment = ("apps", "Deployment");
        check(
            map,
            &json!({"data": {"a": "b", "n": null}, "binaryData": {"a": "YQ=="}, "metadata": null, "zz": 1}),
            Ok(()),
        );
        check(
            map,
            &json!([]),
            Err("json: cannot unmarshal array into Go value of type v1.ConfigMap"),
        );
        check(
            map,
            &json!({"data": {"a": 1}}),
            Err("json: cannot unmarshal number into Go struct field ConfigMap.data of type string"),
        );
        check(
            map,
            &json!({"data": {"a": true}}),
            Err("json: cannot unmarshal bool into Go struct field ConfigMap.data of type string"),
        );
        check(
            map,
            &json!({"metadata": []}),
            Err("json: cannot unmarshal array into Go struct field ConfigMap.metadata of type v1.ObjectMeta"),
        );
        check(
            map,
            &json!({"binaryData": {"a": "*"}}),
            Err("illegal base64 data at input byte 0"),
        );
        check(map, &json!({"binaryData": {"a": "YR=="}}), Ok(()));
        check(
            map,
            &json!({"data": []}),
            Err("json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string"),
        );
        check(
            deployment,
            &json!({"spec": {"replicas": "3"}}),
            Err("json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"),
        );
        check(
            deployment,
            &json!({"spec": {"replicas": 1.5}}),
            Err("json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32"),
        );
        check(
            deployment,
            &json!({"spec": {"template": {"spec": {"containers": [{"env": [{"name": "a", "value": 1}]}]}}}}),
            Err(
                "json: cannot unmarshal number into Go struct field EnvVar.spec.template.spec.containers.env.value of type string",
            ),
        );
        check(
            deployment,
            &json!({"spec": {"template": {"spec": {"containers": {}}}}}),
            Err(
                "json: cannot unmarshal object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
            ),
        );
        check(
            deployment,
            &json!({"spec": {"template": {"spec": {"restartPolicy": 1}}}}),
            Err(
                "json: cannot unmarshal number into Go struct field PodSpec.spec.template.spec.restartPolicy of type v1.RestartPolicy",
            ),
        );
        let surge = |value: Value| json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": value}}}});
        check(deployment, &surge(json!("25%")), Ok(()));
        check(deployment, &surge(json!(1)), Ok(()));
        check(
            deployment,
            &surge(json!(true)),
            Err(
                "json: cannot unmarshal bool into Go struct field RollingUpdateDeployment.spec.strategy.rollingUpdate.maxSurge of type int32",
            ),
        );
        let limits = |value: Value| json!({"spec": {"containers": [{"resources": {"limits": {"cpu": value}}}]}});
        check(("", "Pod"), &limits(json!("100m")), Ok(()));
        check(("", "Pod"), &limits(json!(2)), Ok(()));
        let lease = |value: &str| json!({"spec": {"renewTime": value}});
        check(
            ("coordination.k8s.io", "Lease"),
            &lease("2026-01-02T03:04:05.000000Z"),
            Ok(()),
        );
        check(
            ("coordination.k8s.io", "Lease"),
            &lease("2026-01-02T03:04:05,000000Z"),
            Ok(()),
        );
        check(
            ("coordination.k8s.io", "Lease"),
            &lease("2026-01-02T03:04:06.5Z"),
            Err(
                r#"parsing time "2026-01-02T03:04:06.5Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse ".5Z" as ".000000""#,
            ),
        );
        let crd = ("apiextensions.k8s.io", "CustomResourceDefinition");
        let schema = |value: Value| json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": {"properties": {"a": value}}}}]}});
        check(
            crd,
            &schema(json!({"default": [1], "items": {"type": "string"}, "additionalProperties": true})),
            Ok(()),
        );
        check(
            crd,
            &schema(json!({"additionalProperties": 1})),
            Err("boolean or JSON schema expected"),
        );
        check(
            crd,
            &schema(json!({"type": 1})),
            Err(
                "json: cannot unmarshal number into Go struct field JSONSchemaProps.spec.versions.schema.openAPIV3Schema.properties.type of type string",
            ),
        );
    }

    #[test]
    fn times() {
        let layout = "2006-01-02T15:04:05Z07:00";
        for good in [
            "2026-01-02T03:04:05Z",
            "2026-01-02T03:04:05.5+02:00",
            "2024-02-29T00:00:00Z",
        ] {
            assert_eq!(time(good, false), Ok(()), "{good}");
        }
        // A stored time has four digits for the year, in UTC.
        for (text, good) in [
            ("0000-01-01T00:00:00Z", true),
            ("0000-01-01T01:00:00+01:00", true),
            ("0000-01-01T00:59:59+01:00", false),
            ("0000-01-02T00:30:00+24:60", false),
            ("9999-12-31T23:59:59Z", true),
            ("9999-12-31T22:59:59-01:00", true),
            ("9999-12-31T23:00:00-01:00", false),
        ] {
            let beyond = || format!("parsing time {text:?}: year out of range");
            assert_eq!(time(text, false), if good { Ok(()) } else { Err(beyond()) });
        }
        for (text, rest, element) in [
            ("x", "x", "2006"),
            ("2026", "", "-"),
            ("2026-01-02 03:04:05Z", " 03:04:05Z", "T"),
            ("2026-01-02T03:04:05", "", "Z07:00"),
            ("2026-01-02T03:04:5Z", "5Z", "05"),
        ] {
            let expected = format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {element:?}");
            assert_eq!(time(text, false), Err(expected));
        }
        assert_eq!(
            time("2026-02-30T00:00:00Z", false),
            Err(r#"parsing time "2026-02-30T00:00:00Z": day out of range"#.into())
        );
        assert_eq!(
            time("2026-13-01T00:00:00Z", false),
            Err(r#"parsing time "2026-13-01T00:00:00Z": month out of range"#.into())
        );
        assert_eq!(
            time("2026-01-01T00:00:00Zx", false),
            Err(r#"parsing time "2026-01-01T00:00:00Zx": extra text: "x""#.into())
        );
    }
}
