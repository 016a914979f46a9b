//! controller-gen's markers as data: their arguments, and the keyword of a schema that each stands for.

use serde_json::{Map, Value, json};

/// A marker: `name`, `name=value` or `name:key=value,…`.
pub(super) struct Marker<'m> {
    pub(super) name: &'m str,
    pub(super) value: &'m str,
}

impl<'m> Marker<'m> {
    /// Splits at the first `=` that is not within the arguments.
    pub(super) fn of(text: &'m str) -> Marker<'m> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        Marker {
            // `default:=` is the same as `default=`.
            name: name.trim_end().trim_end_matches(':'),
            value: value.trim_start(),
        }
    }

    /// The arguments of a marker such as `kubebuilder:printcolumn:name=…,type=…`, whose name is `prefix`.
    pub(super) fn arguments(text: &str, prefix: &str) -> Option<Map<String, Value>> {
        let rest = text.strip_prefix(prefix)?;
        let rest = match rest.chars().next() {
            None => return Some(Map::new()),
            Some(':' | '=') => &rest[1..],
            Some(_) => return None,
        };
        let mut reader = Reader { rest };
        let mut arguments = Map::new();
        while !reader.rest.is_empty() {
            let end = reader.rest.find(['=', ',']).unwrap_or(reader.rest.len());
            let (key, after) = reader.rest.split_at(end);
            reader.rest = after;
            let value = if reader.take('=') {
                reader.list()
            } else {
                Value::Bool(true)
            };
            arguments.insert(key.trim().to_owned(), value);
            if !reader.take(',') {
                break;
            }
        }
        Some(arguments)
    }
}

/// A value as markers write it: JSON, words without quotes, `a;b`, `{a,b}`, `{k: v}`.
pub(super) fn value(text: &str) -> Value {
    Reader { rest: text.trim() }.list()
}

/// The same where one text is meant, with any signs in it.
pub(super) fn text(text: &str) -> String {
    let trimmed = text.trim();
    let quoted = ['"', '`', '\'']
        .iter()
        .any(|quote| trimmed.starts_with(*quote) && trimmed.len() > 1 && trimmed.ends_with(*quote));
    if !quoted {
        return trimmed.to_owned();
    }
    match (Reader { rest: trimmed }).one(",;") {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

struct Reader<'r> {
    rest: &'r str,
}

impl Reader<'_> {
    fn take(&mut self, sign: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// `a;b;c`, or one value.
    fn list(&mut self) -> Value {
        let first = self.one(",;");
        if !self.rest.trim_start().starts_with(';') {
            return first;
        }
        let mut items = vec![first];
        while self.take(';') {
            // A trailing separator has no item behind it.
            if !self.rest.trim_start().is_empty() {
                items.push(self.one(",;"));
            }
        }
        Value::Array(items)
    }

    fn one(&mut self, ends: &str) -> Value {
        self.rest = self.rest.trim_start();
        let Some(first) = self.rest.chars().next() else {
            return Value::String(String::new());
        };
        match first {
            '"' | '\'' => self.quoted(first),
            '`' => {
                let inner = &self.rest[1..];
                let end = inner.find('`').unwrap_or(inner.len());
                let text = inner[..end].to_owned();
                self.rest = inner.get(end + 1..).unwrap_or_default();
                text.into()
            }
            '{' | '[' => self.braces(),
            _ => {
                let end = self.rest.find(|c| ends.contains(c)).unwrap_or(self.rest.len());
                let (word, rest) = self.rest.split_at(end);
                self.rest = rest;
                let word = word.trim();
                match serde_json::from_str::<Value>(word) {
                    // `null` is a word of four letters to controller-gen.
                    Ok(value) if value.is_number() || value.is_boolean() => value,
                    _ => word.into(),
                }
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Value {
        let inner = &self.rest[1..];
        let mut text = String::new();
        let mut letters = inner.char_indices();
        while let Some((at, letter)) = letters.next() {
            if letter == quote {
                self.rest = &inner[at + 1..];
                return text.into();
            }
            match letter {
                '\\' => match letters.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    Some((_, other)) if other == quote || other == '\\' => text.push(other),
                    Some((_, other)) => text.extend(['\\', other]),
                    None => {}
                },
                letter => text.push(letter),
            }
        }
        self.rest = "";
        text.into()
    }

    /// A map when its first item has a colon behind it, else a list.
    fn braces(&mut self) -> Value {
        self.rest = &self.rest[1..];
        let mut items = Vec::new();
        let mut map = Map::new();
        loop {
            if self.take('}') || self.take(']') || self.rest.is_empty() {
                return if map.is_empty() { items.into() } else { map.into() };
            }
            let item = self.one(",;:}]");
            if self.take(':') {
                let key = item.as_str().map_or_else(|| item.to_string(), str::to_owned);
                map.insert(key, self.one(",;}]"));
            } else {
                items.push(item);
            }
            if !self.take(',') {
                self.take(';');
            }
        }
    }
}

/// The marker without `kubebuilder:`, where controller-gen knows it with that word, or without: of
/// `+kubebuilder:MaxLength` it has never heard.
fn known(name: &str) -> Option<&str> {
    match name.strip_prefix("kubebuilder:") {
        // What comes behind `validation:` begins with a capital letter, but for `items`: of
        // `+kubebuilder:validation:default` controller-gen has never heard, either.
        Some(rest) if rest.starts_with("pruning:") => Some(rest),
        Some(rest) => match rest.strip_prefix("validation:") {
            Some(rule) if rule.starts_with("items:") || rule.starts_with(|first: char| first.is_ascii_uppercase()) => {
                Some(rest)
            }
            Some(_) => None,
            None => ["default", "example", "title"].contains(&rest).then_some(rest),
        },
        None if name.starts_with("k8s:") => Some(name),
        None if ["default", "nullable", "listType", "mapType", "structType"].contains(&name) => Some(name),
        _ => None,
    }
}

/// The schema keyword of a validation marker; `None` for an unknown one.
pub(super) fn keyword(name: &str, said: &str) -> Option<(String, Value)> {
    let name = known(name)?;
    if let Some(inner) = name.strip_prefix("validation:items:") {
        let (key, value) = keyword(&format!("kubebuilder:validation:{inner}"), said)?;
        return Some((format!("items:{key}"), value));
    }
    // Kubernetes' own markers may have a remark behind them.
    let said = if name.starts_with("k8s:") {
        said.split('#').next().unwrap_or_default().trim()
    } else {
        said
    };
    let bare = name.strip_prefix("validation:").unwrap_or(name);
    let flag = || Value::Bool(said != "false");
    let (key, value) = match bare {
        "Minimum" | "k8s:minimum" => ("minimum", value(said)),
        "Maximum" | "k8s:maximum" => ("maximum", value(said)),
        "ExclusiveMinimum" => ("exclusiveMinimum", flag()),
        "ExclusiveMaximum" => ("exclusiveMaximum", flag()),
        "MultipleOf" => ("multipleOf", value(said)),
        "MinLength" => ("minLength", value(said)),
        "MaxLength" => ("maxLength", value(said)),
        "MinItems" => ("minItems", value(said)),
        "MaxItems" | "k8s:maxItems" => ("maxItems", value(said)),
        "UniqueItems" => ("uniqueItems", flag()),
        "MinProperties" => ("minProperties", value(said)),
        "MaxProperties" => ("maxProperties", value(said)),
        "Pattern" => ("pattern", text(said).into()),
        "Format" => ("format", text(said).into()),
        "Type" => ("type", text(said).into()),
        "title" => ("title", text(said).into()),
        "Enum" => match value(said) {
            Value::Array(values) => ("enum", values.into()),
            one => ("enum", json!([one])),
        },
        "EmbeddedResource" | "XEmbeddedResource" => ("x-kubernetes-embedded-resource", true.into()),
        "XPreserveUnknownFields" | "pruning:PreserveUnknownFields" => {
            ("x-kubernetes-preserve-unknown-fields", true.into())
        }
        "XIntOrString" => ("x-kubernetes-int-or-string", true.into()),
        "example" => ("example", value(said)),
        "default" => ("default", value(said)),
        "nullable" => ("nullable", true.into()),
        "immutable" | "k8s:immutable" => ("immutable", true.into()),
        "listType" | "k8s:listType" => ("x-kubernetes-list-type", text(said).into()),
        "mapType" | "structType" | "k8s:mapType" | "k8s:structType" => ("x-kubernetes-map-type", text(said).into()),
        "ExactlyOneOf" => ("exactlyOneOf", value(said)),
        "AtMostOneOf" => ("atMostOneOf", value(said)),
        "AtLeastOneOf" => ("atLeastOneOf", value(said)),
        _ => return None,
    };
    Some((key.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_controller_gen_reads_them() {
        for (said, wanted) in [
            ("7", json!(7)),
            ("-2.5", json!(-2.5)),
            ("true", json!(true)),
            ("plain words", json!("plain words")),
            ("\"a\\\"b\"", json!("a\"b")),
            ("`^[a-z]+$`", json!("^[a-z]+$")),
            ("low;mid;\"high er\"", json!(["low", "mid", "high er"])),
            ("low;mid;", json!(["low", "mid"])),
            ("low;\"\"", json!(["low", ""])),
            ("{a,b}", json!(["a", "b"])),
            ("{x: 1, \"y\": {z: t}}", json!({"x": 1, "y": {"z": "t"}})),
            ("{{s: 1},{s: 2}}", json!([{"s": 1}, {"s": 2}])),
            ("[1,2]", json!([1, 2])),
            ("{", json!([])),
            ("\"open", json!("open")),
        ] {
            assert_eq!(value(said), wanted, "{said}");
        }
    }

    #[test]
    fn only_markers_that_controller_gen_knows_say_something() {
        for (name, wanted) in [
            ("kubebuilder:validation:MaxLength", Some("maxLength")),
            ("kubebuilder:validation:items:MaxLength", Some("items:maxLength")),
            ("kubebuilder:validation:default", None),
            ("kubebuilder:validation:example", None),
            ("kubebuilder:validation:nullable", None),
            ("kubebuilder:validation:listType", None),
            ("kubebuilder:validation:Nullable", None),
            ("kubebuilder:validation:Title", None),
            ("kubebuilder:validation:items:default", None),
            ("kubebuilder:validation:items:Title", None),
            ("kubebuilder:title", Some("title")),
            ("kubebuilder:MaxLength", None),
            ("MaxLength", None),
            ("kubebuilder:default", Some("default")),
            ("default", Some("default")),
            (
                "kubebuilder:pruning:PreserveUnknownFields",
                Some("x-kubernetes-preserve-unknown-fields"),
            ),
            ("listType", Some("x-kubernetes-list-type")),
            ("kubebuilder:listType", None),
            ("k8s:maxItems", Some("maxItems")),
        ] {
            let found = keyword(name, "7").map(|(key, _)| key);
            assert_eq!(found.as_deref(), wanted, "{name}");
        }
    }

    #[test]
    fn arguments_are_read() {
        let said = "kubebuilder:printcolumn:name=\"Age, in all\",type=date,JSONPath=`.m[?(@.a==\"b\")].x`,priority=1";
        let read = Marker::arguments(said, "kubebuilder:printcolumn").unwrap();
        assert_eq!(
            Value::from(read),
            json!({"name": "Age, in all", "type": "date", "JSONPath": ".m[?(@.a==\"b\")].x", "priority": 1})
        );
        let read = Marker::arguments(
            "kubebuilder:rbac:groups=\"\";apps,resources=pods,verbs=get;list",
            "kubebuilder:rbac",
        )
        .unwrap();
        assert_eq!(
            Value::from(read),
            json!({"groups": ["", "apps"], "resources": "pods", "verbs": ["get", "list"]})
        );
        assert!(Marker::arguments("kubebuilder:resources:x=1", "kubebuilder:resource").is_none());
        assert_eq!(
            Marker::arguments("kubebuilder:storageversion", "kubebuilder:storageversion"),
            Some(Map::new())
        );
    }
}
