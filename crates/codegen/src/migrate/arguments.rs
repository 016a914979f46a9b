//! The values of markers: those that controller-gen refuses, and those whose definition an API server refuses.

use kubewright_schema::schema::Pattern;
use serde_json::Value;

use super::go::Type;
use super::markers::{Marker, keyword};

/// The kind of value that a marker takes.
enum Takes {
    Integer,
    Number,
    Flag,
    List,
    Pattern,
}

/// Why the value of a marker is invalid, if it is. `markers` are all markers of its field or declaration.
///
/// `of` is the type of the field. It is `None` for a declaration, which cannot have a default (`FieldOnlyMarkers`).
pub(super) fn wrong(marker: &str, markers: &[String], of: Option<&Type>) -> Option<String> {
    let Marker { name, value } = Marker::of(marker);
    let why = match takes(name) {
        Some(takes) => refused(&takes, value)?,
        None => unfit(name, value, wanted_beside(markers, of?)?)?,
    };
    Some(format!("+{marker}: {why}"))
}

/// What controller-gen's markers take (`ValidationMarkers` in its `pkg/crd/markers/validation.go`).
fn takes(name: &str) -> Option<Takes> {
    let rule = name.strip_prefix("kubebuilder:validation:")?;
    Some(match rule.strip_prefix("items:").unwrap_or(rule) {
        "MinLength" | "MaxLength" | "MinItems" | "MaxItems" | "MinProperties" | "MaxProperties" => Takes::Integer,
        "Minimum" | "Maximum" | "MultipleOf" => Takes::Number,
        "ExclusiveMinimum" | "ExclusiveMaximum" | "UniqueItems" => Takes::Flag,
        "Enum" | "ExactlyOneOf" | "AtMostOneOf" | "AtLeastOneOf" => Takes::List,
        "Pattern" => Takes::Pattern,
        _ => return None,
    })
}

fn refused(takes: &Takes, said: &str) -> Option<String> {
    if said.trim().is_empty() {
        return Some("it has no value, which controller-gen refuses (missing argument)".to_owned());
    }
    // A negative count is a number to controller-gen and to an API server, which compares with it.
    let expected = match takes {
        Takes::Integer => said.parse::<i64>().is_err().then_some("an integer"),
        Takes::Number => said
            .parse::<f64>()
            .map_or(true, |n| !n.is_finite())
            .then_some("a number"),
        Takes::Flag => (!["true", "false"].contains(&said.trim())).then_some("true or false"),
        Takes::List => None,
        Takes::Pattern => {
            let pattern = Pattern::new(super::markers::text(said));
            let why = pattern.check().err()?;
            return Some(format!(
                "no regular expression, so an API server refuses the definition: {why}"
            ));
        }
    };
    expected.map(|expected| format!("{said} is not {expected}, so controller-gen refuses it"))
}

/// Whether a default names a constant, which controller-gen skips (`KubernetesDefault.ParseMarker`).
pub(super) fn is_reference(name: &str, said: &str) -> bool {
    name == "default" && said.trim_start().starts_with("ref(")
}

/// A default that the type cannot hold: controller-gen writes it, and an API server refuses the definition.
fn unfit(name: &str, said: &str, wanted: &str) -> Option<String> {
    let (key, value) = keyword(name, said).filter(|_| !is_reference(name, said))?;
    let fits = match (wanted, &value) {
        ("a text", value) => value.is_string(),
        ("true or false", value) => value.is_boolean(),
        ("an integer", Value::Number(number)) => number.as_f64().is_some_and(|number| number.fract() == 0.0),
        ("a number", value) => value.is_number(),
        ("a list", value) => value.is_array(),
        ("an object", Value::Array(items)) => items.is_empty(),
        ("an object", value) => value.is_object(),
        _ => false,
    };
    let why = || format!("the default is not {wanted}, so an API server refuses the definition");
    (key == "default" && !fits).then(why)
}

/// The JSON that a field takes, by its type and the other markers.
fn wanted_beside(markers: &[String], of: &Type) -> Option<&'static str> {
    const OPEN: [&str; 4] = [
        "kubebuilder:validation:Schemaless",
        "kubebuilder:validation:XIntOrString",
        "kubebuilder:validation:XPreserveUnknownFields",
        "kubebuilder:pruning:PreserveUnknownFields",
    ];
    let mut others = markers.iter().map(|marker| Marker::of(marker));
    if others.clone().any(|other| OPEN.contains(&other.name)) {
        return None;
    }
    let Some(said) = others.rfind(|other| other.name == "kubebuilder:validation:Type") else {
        return wanted(of);
    };
    match super::markers::text(said.value).as_str() {
        "string" => Some("a text"),
        "boolean" => Some("true or false"),
        "integer" => Some("an integer"),
        "number" => Some("a number"),
        "array" => Some("a list"),
        "object" => Some("an object"),
        _ => None,
    }
}

/// The JSON of one of Go's own types. A declared type has none here, since it may have a `MarshalJSON`.
fn wanted(of: &Type) -> Option<&'static str> {
    Some(match of {
        Type::Pointer(inner) => return wanted(inner),
        Type::List(inner) if super::words::is_byte(inner) => "a text",
        Type::List(_) | Type::Array(_) => "a list",
        Type::Map(..) | Type::Struct(_) => "an object",
        Type::Named { package: None, name } => match name.as_str() {
            "string" => "a text",
            "bool" => "true or false",
            "float32" | "float64" => "a number",
            "int" | "int8" | "int16" | "int32" | "int64" | "uint" | "uint8" | "uint16" | "uint32" | "uint64" => {
                "an integer"
            }
            _ => return None,
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> Type {
        Type::Named {
            package: None,
            name: name.to_owned(),
        }
    }

    #[test]
    fn invalid_values_are_refused_with_the_reason() {
        let check = |marker: &str, ty: &str, why: &str| {
            let found = wrong(marker, &[marker.to_owned()], Some(&of(ty))).unwrap_or_default();
            let is_as_wanted = if why.is_empty() {
                found.is_empty()
            } else {
                found.contains(why)
            };
            assert!(is_as_wanted, "{marker}: {found}");
        };
        for (rule, ty, why) in [
            ("Maximum=abc", "int", "abc is not a number"),
            ("Maximum=1.5", "float64", ""),
            ("Minimum=", "int", "missing argument"),
            ("Minimum=inf", "int", "inf is not a number"),
            ("MinLength=1.5", "string", "1.5 is not an integer"),
            ("MinLength=3 letters", "string", "3 letters is not an integer"),
            ("MinLength=-1", "string", ""),
            ("MaxLength", "string", "missing argument"),
            ("items:MaxLength=x", "string", "x is not an integer"),
            ("UniqueItems=true", "string", ""),
            ("UniqueItems=yes", "string", "yes is not true or false"),
            ("UniqueItems=True", "string", "True is not true or false"),
            ("UniqueItems=1", "string", "1 is not true or false"),
            ("Enum=", "string", "missing argument"),
            ("Enum=a;b", "string", ""),
            ("Pattern=`[a-`", "string", "no regular expression"),
            ("Pattern=`^[^[]+$`", "string", ""),
        ] {
            check(&format!("kubebuilder:validation:{rule}"), ty, why);
        }
        for (marker, ty, why) in [
            ("kubebuilder:default=word", "int32", "not an integer"),
            ("kubebuilder:default=1.5", "int", "not an integer"),
            ("kubebuilder:default=3", "string", "not a text"),
            ("kubebuilder:default=\"3\"", "string", ""),
            ("kubebuilder:default=no", "bool", "not true or false"),
            ("kubebuilder:default:=true", "bool", ""),
            ("kubebuilder:default=3", "Level", ""),
            ("kubebuilder:example=word", "int", ""),
            ("optional", "int", ""),
            ("default=ref(Most)", "string", ""),
            ("default=ref(Most)", "int", ""),
        ] {
            check(marker, ty, why);
        }
    }

    #[test]
    fn a_default_fits_what_the_other_markers_say() {
        for (other, default, ty, is_fit) in [
            ("kubebuilder:validation:Type=string", "\"5\"", "int64", true),
            ("kubebuilder:validation:Type=string", "5", "int64", false),
            ("kubebuilder:validation:Type=boolean", "true", "string", true),
            ("kubebuilder:validation:Type=integer", "word", "Level", false),
            ("kubebuilder:validation:XIntOrString", "\"5\"", "int", true),
            ("kubebuilder:validation:Schemaless", "{a: b}", "string", true),
            (
                "kubebuilder:validation:XPreserveUnknownFields",
                "{a: b}",
                "string",
                true,
            ),
            ("kubebuilder:pruning:PreserveUnknownFields", "{a: b}", "string", true),
            ("kubebuilder:validation:Minimum=1", "\"5\"", "int", false),
        ] {
            let markers = [format!("kubebuilder:default={default}"), other.to_owned()];
            let found = wrong(&markers[0], &markers, Some(&of(ty)));
            assert_eq!(found.is_none(), is_fit, "{other} {default} {ty}: {found:?}");
            assert_eq!(wrong(&markers[0], &markers, None), None);
        }
    }
}
