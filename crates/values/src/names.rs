//! The forms of names, labels and keys, with apimachinery's own words.
//!
//! A check returns its messages and is content when it returns none; several messages may belong to one name, in the
//! order in which Kubernetes prints them. Checks that need a place in an object take it and return [`FieldError`]s. Not
//! here: which kind follows which rule. That is data of the kinds.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::budget;
use crate::error::FieldError;
use crate::path::FieldPath;

const LABEL_MAX: usize = 63;
/// The most bytes of an RFC 1123 subdomain (`DNS1123SubdomainMaxLength`).
pub const SUBDOMAIN_MAX: usize = 253;
const ANNOTATIONS_MAX: usize = 256 * 1024;
const PORT_NAME_MAX: usize = 15;

/// A form that a text must have: Kubernetes prints the expression and examples with the message.
struct Form {
    message: &'static str,
    expression: &'static str,
    examples: &'static [&'static str],
    compiled: Regex,
}

impl Form {
    fn new(message: &'static str, expression: &'static str, examples: &'static [&'static str]) -> Self {
        let compiled = Regex::new(&format!("^(?:{expression})$")).expect("the expressions of this file compile");
        Self {
            message,
            expression,
            examples,
            compiled,
        }
    }

    fn fits(&self, text: &str) -> bool {
        budget::spend_on_text(text.len());
        self.compiled.is_match(text)
    }

    /// The double space before `or` is Kubernetes' own.
    fn complaint(&self) -> String {
        let examples: Vec<String> = self.examples.iter().map(|example| format!("'{example}', ")).collect();
        format!(
            "{} (e.g. {}regex used for validation is '{}')",
            self.message,
            examples.join(" or "),
            self.expression
        )
    }
}

static DNS1123_LABEL: LazyLock<Form> = LazyLock::new(|| {
    Form::new(
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
        "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
        &["my-name", "123-abc"],
    )
});
static DNS1123_SUBDOMAIN: LazyLock<Form> = LazyLock::new(|| {
    Form::new(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
        r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
        &["example.com"],
    )
});
static UNDERSCORED_SUBDOMAIN: LazyLock<Form> = LazyLock::new(|| {
    Form::new(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character",
        r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*",
        &["example.com"],
    )
});
static DNS1035_LABEL: LazyLock<Form> = LazyLock::new(|| {
    Form::new(
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
        "[a-z]([-a-z0-9]*[a-z0-9])?",
        &["my-name", "abc-123"],
    )
});
static QUALIFIED_NAME: LazyLock<Form> = LazyLock::new(|| {
    Form::new(
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
        "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
        &["MyName", "my.name", "123-abc"],
    )
});
static LABEL_VALUE: LazyLock<Form> = LazyLock::new(|| {
    Form::new(
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
        "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
        &["MyValue", "my_value", "12345"],
    )
});
static CONFIG_MAP_KEY: LazyLock<Form> = LazyLock::new(|| {
    Form::new(
        "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
        "[-._a-zA-Z0-9]+",
        &["key.name", "KEY_NAME", "key-name"],
    )
});
static C_IDENTIFIER: LazyLock<Form> = LazyLock::new(|| {
    Form::new(
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'",
        "[A-Za-z_][A-Za-z0-9_]*",
        &["my_name", "MY_NAME", "MyName"],
    )
});

/// The unit that a message gives for a length. Labels and names of their form have it in bytes, other names in
/// characters. Either is measured in bytes.
#[derive(Clone, Copy)]
enum Unit {
    Bytes,
    Characters,
}

fn too_long(text: &str, max: usize, unit: Unit) -> Option<String> {
    let unit = match unit {
        Unit::Bytes => "bytes",
        Unit::Characters => "characters",
    };
    (text.len() > max).then(|| format!("must be no more than {max} {unit}"))
}

fn bounded(text: &str, max: usize, unit: Unit, form: &Form) -> Vec<String> {
    let mut messages: Vec<String> = too_long(text, max, unit).into_iter().collect();
    if !form.fits(text) {
        messages.push(form.complaint());
    }
    messages
}

/// An RFC 1123 label: names of namespaces and containers (`IsDNS1123Label`).
///
/// ```
/// use kubewright_values::names;
/// assert!(names::dns1123_label("web-1").is_empty());
/// assert_eq!(names::dns1123_label("a.b"), ["must not contain dots"]);
/// ```
pub fn dns1123_label(name: &str) -> Vec<String> {
    let mut messages: Vec<String> = too_long(name, LABEL_MAX, Unit::Characters).into_iter().collect();
    if !DNS1123_LABEL.fits(name) {
        // A name that is fine but for its dots is told so.
        let complaint = if DNS1123_SUBDOMAIN.fits(name) {
            "must not contain dots".to_owned()
        } else {
            DNS1123_LABEL.complaint()
        };
        messages.push(complaint);
    }
    messages
}

/// An RFC 1123 subdomain: names of most objects (`IsDNS1123Subdomain`).
pub fn dns1123_subdomain(name: &str) -> Vec<String> {
    bounded(name, SUBDOMAIN_MAX, Unit::Characters, &DNS1123_SUBDOMAIN)
}

/// The same, where the message about a long text counts bytes.
pub fn dns1123_subdomain_in_bytes(name: &str) -> Vec<String> {
    bounded(name, SUBDOMAIN_MAX, Unit::Bytes, &DNS1123_SUBDOMAIN)
}

/// An RFC 1123 subdomain with underscores, as the DNS has them: where a pod looks for names
/// (`IsDNS1123SubdomainWithUnderscore`).
///
/// ```
/// use kubewright_values::names;
/// assert!(names::underscored_subdomain("_tcp.example.com").is_empty());
/// assert!(!names::underscored_subdomain("a b").is_empty());
/// ```
pub fn underscored_subdomain(name: &str) -> Vec<String> {
    bounded(name, SUBDOMAIN_MAX, Unit::Characters, &UNDERSCORED_SUBDOMAIN)
}

/// A DNS-1035 label: names of Services before 1.34 and of kinds in CRDs (`IsDNS1035Label`).
pub fn dns1035_label(name: &str) -> Vec<String> {
    bounded(name, LABEL_MAX, Unit::Characters, &DNS1035_LABEL)
}

/// A label key and other names of its form, such as `app` or `example.com/app` (`IsQualifiedName`).
///
/// ```
/// use kubewright_values::names;
/// assert!(names::qualified_name("example.com/app").is_empty());
/// assert_eq!(names::qualified_name("/app"), ["prefix part must be non-empty"]);
/// ```
pub fn qualified_name(text: &str) -> Vec<String> {
    let mut messages = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                messages.push("prefix part must be non-empty".to_owned());
            } else {
                messages.extend(
                    dns1123_subdomain_in_bytes(prefix)
                        .into_iter()
                        .map(|message| format!("prefix part {message}")),
                );
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                QUALIFIED_NAME.complaint()
            )];
        }
    };
    if name.is_empty() {
        messages.push("name part must be non-empty".to_owned());
    }
    messages.extend(
        bounded(name, LABEL_MAX, Unit::Bytes, &QUALIFIED_NAME)
            .into_iter()
            .map(|message| format!("name part {message}")),
    );
    messages
}

/// The value of a label; may be empty (`IsValidLabelValue`).
pub fn label_value(value: &str) -> Vec<String> {
    bounded(value, LABEL_MAX, Unit::Bytes, &LABEL_VALUE)
}

/// A name that can stand in a URL path: names of RBAC objects (`IsValidPathSegmentName`).
pub fn path_segment_name(name: &str) -> Vec<String> {
    if matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|part| name.contains(**part))
        .map(|part| format!("may not contain '{part}'"))
        .collect()
}

/// A key in the data of a ConfigMap or Secret (`IsConfigMapKey`).
pub fn config_map_key(key: &str) -> Vec<String> {
    let mut messages = bounded(key, SUBDOMAIN_MAX, Unit::Characters, &CONFIG_MAP_KEY);
    // Keys become file names in volumes: none may lead out of the directory.
    match key {
        "." | ".." => messages.push(format!("must not be '{key}'")),
        _ if key.starts_with("..") => messages.push("must not start with '..'".to_owned()),
        _ => {}
    }
    messages
}

/// The name of an environment variable of a container (`IsRelaxedEnvVarName`): printable ASCII without `=`.
pub fn env_var_name(name: &str) -> Vec<String> {
    if name.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    if name
        .chars()
        .all(|character| matches!(character, ' '..='~') && character != '=')
    {
        return Vec::new();
    }
    vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned()]
}

/// An identifier of the C language (`IsCIdentifier`).
pub fn c_identifier(name: &str) -> Vec<String> {
    if C_IDENTIFIER.fits(name) {
        Vec::new()
    } else {
        vec![C_IDENTIFIER.complaint()]
    }
}

/// The name of a port of a container or service: at most 15 of `a-z0-9-`, one of them a letter (`IsValidPortName`).
pub fn port_name(name: &str) -> Vec<String> {
    let mut messages: Vec<String> = too_long(name, PORT_NAME_MAX, Unit::Characters).into_iter().collect();
    let mut check = |fine: bool, message: &str| {
        if !fine {
            messages.push(message.to_owned());
        }
    };
    check(
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-')),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    check(
        name.bytes().any(|byte| byte.is_ascii_lowercase()),
        "must contain at least one letter (a-z)",
    );
    check(!name.contains("--"), "must not contain consecutive hyphens");
    check(
        !name.starts_with('-') && !name.ends_with('-'),
        "must not begin or end with a hyphen",
    );
    messages
}

/// The name of a finalizer: a qualified name (`ValidateFinalizerName`).
pub fn finalizer_name(name: &str, at: &FieldPath) -> Vec<FieldError> {
    qualified_name(name)
        .into_iter()
        .map(|message| FieldError::invalid(at, name, message))
        .collect()
}

/// A domain, a slash and a path, such as `acme.io/foo` (`IsDomainPrefixedPath`).
pub fn domain_prefixed_path(at: &FieldPath, text: &str) -> Vec<FieldError> {
    let parts = text
        .split_once('/')
        .filter(|(host, path)| !host.is_empty() && !path.is_empty());
    let Some((host, path)) = parts else {
        let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        return vec![FieldError::invalid(at, text, why)];
    };
    let mut errors: Vec<FieldError> = dns1123_subdomain(host)
        .into_iter()
        .map(|why| FieldError::invalid(at, host, why))
        .collect();
    let known = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c);
    if !path.chars().all(known) {
        let why = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
        errors.push(FieldError::invalid(at, path, why));
    }
    errors
}

/// A map of labels (`ValidateLabels`); `null` is no labels.
pub fn labels(labels: &Value, at: &FieldPath) -> Vec<FieldError> {
    let Some(entries) = entries(labels) else {
        return vec![not_a_map(labels, at)];
    };
    let mut errors = Vec::new();
    for (key, value) in entries {
        errors.extend(
            qualified_name(key)
                .into_iter()
                .map(|message| FieldError::invalid(at, key, message)),
        );
        match value {
            Value::Null => {}
            Value::String(value) => {
                errors.extend(
                    label_value(value)
                        .into_iter()
                        .map(|message| FieldError::invalid(at, value.as_str(), message)),
                );
            }
            other => errors.push(FieldError::type_invalid(
                at.map_key(key),
                other.clone(),
                "must be a string",
            )),
        }
    }
    errors
}

/// A map of annotations (`ValidateAnnotations`): keys are qualified names in any case, and all of it together has at
/// most 256 KiB.
pub fn annotations(annotations: &Value, at: &FieldPath) -> Vec<FieldError> {
    let Some(entries) = entries(annotations) else {
        return vec![not_a_map(annotations, at)];
    };
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in entries {
        errors.extend(
            qualified_name(&key.to_lowercase())
                .into_iter()
                .map(|message| FieldError::invalid(at, key, message)),
        );
        match value {
            Value::Null => size += key.len(),
            Value::String(value) => size += key.len() + value.len(),
            other => errors.push(FieldError::type_invalid(
                at.map_key(key),
                other.clone(),
                "must be a string",
            )),
        }
    }
    if size > ANNOTATIONS_MAX {
        errors.push(FieldError::too_long(at, ANNOTATIONS_MAX));
    }
    errors
}

fn entries(map: &Value) -> Option<Vec<(&str, &Value)>> {
    match map {
        Value::Null => Some(Vec::new()),
        Value::Object(map) => Some(map.iter().map(|(key, value)| (key.as_str(), value)).collect()),
        _ => None,
    }
}

fn not_a_map(value: &Value, at: &FieldPath) -> FieldError {
    FieldError::type_invalid(at, value.clone(), "must be a map of strings")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NAME_FORM: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

    #[test]
    fn messages_are_those_of_kubernetes() {
        type Check = fn(&str) -> Vec<String>;
        let long = "n".repeat(64);
        let check = |check: Check, text: &str, expected: &[&str]| assert_eq!(check(text), expected, "{text:?}");
        check(dns1123_label, "a-1", &[]);
        check(
            dns1123_label,
            "A b",
            &[
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
            ],
        );
        check(dns1123_label, "a.b", &["must not contain dots"]);
        check(dns1123_label, &long, &["must be no more than 63 characters"]);
        check(
            dns1123_subdomain,
            "Bad_Name",
            &[
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            ],
        );
        check(
            dns1123_subdomain,
            &"n".repeat(254),
            &["must be no more than 253 characters"],
        );
        check(dns1035_label, "web", &[]);
        assert_eq!(dns1035_label("1web").len(), 1);
        check(qualified_name, "example.com/App_1", &[]);
        check(qualified_name, "a b", &[&format!("name part {NAME_FORM}")]);
        check(
            qualified_name,
            "",
            &["name part must be non-empty", &format!("name part {NAME_FORM}")],
        );
        check(qualified_name, "/a", &["prefix part must be non-empty"]);
        check(
            qualified_name,
            "a/b/c",
            &[&format!(
                "a valid label key {NAME_FORM} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )],
        );
        check(label_value, "", &[]);
        check(label_value, "a.B_1", &[]);
        assert_eq!(label_value("-").len(), 1);
        check(path_segment_name, "..", &["may not be '..'"]);
        check(
            path_segment_name,
            "system:a/b%",
            &["may not contain '/'", "may not contain '%'"],
        );
        check(config_map_key, "a_b.C-d", &[]);
        check(config_map_key, "..", &["must not be '..'"]);
        check(config_map_key, "..a", &["must not start with '..'"]);
        check(env_var_name, "my var:1", &[]);
        check(
            env_var_name,
            "A=B",
            &["a valid environment variable name must consist only of printable ASCII characters other than '='"],
        );
        check(c_identifier, "_a1", &[]);
        check(
            port_name,
            "UPPER",
            &[
                "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
                "must contain at least one letter (a-z)",
            ],
        );
        check(
            port_name,
            "-a--1-",
            &[
                "must not contain consecutive hyphens",
                "must not begin or end with a hyphen",
            ],
        );
    }

    #[test]
    fn maps_are_checked_entry_by_entry() {
        let at = FieldPath::new("metadata.labels");
        let check = |errors: Vec<FieldError>, fields: &[&str]| {
            assert_eq!(
                errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(),
                fields,
                "{errors:?}"
            );
        };
        check(labels(&Value::Null, &at), &[]);
        check(labels(&json!({"app": "a", "example.com/b": ""}), &at), &[]);
        check(
            labels(&json!({"a b": "x y"}), &at),
            &["metadata.labels", "metadata.labels"],
        );
        check(labels(&json!([]), &at), &["metadata.labels"]);
        let at = FieldPath::new("metadata.annotations");
        check(annotations(&json!({"Example.COM/b": "anything at all"}), &at), &[]);
        check(annotations(&json!({"a": "x".repeat(ANNOTATIONS_MAX - 1)}), &at), &[]);
        let errors = annotations(&json!({"a": "x".repeat(ANNOTATIONS_MAX)}), &at);
        assert_eq!(
            errors[0].to_string(),
            "metadata.annotations: Too long: may not be more than 262144 bytes"
        );
    }
}
