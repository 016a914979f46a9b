//! A schema, finished: Kubernetes' own types with the keywords that their crate lacks, descriptions as long as wanted,
//! and mistakes that no server reports.
//!
//! The operator marks the schema of each Kubernetes type with its name (`x-kubewright-type`). `k8s-openapi` knows
//! fields and words; which lists are maps and which defaults there are, the published OpenAPI says
//! ([`kubewright_schema::catalog`]), and for `Condition` the markers in its Go source. They are laid over the schema: a
//! field that the crate's version does not have stays out.

use kubewright_schema::catalog;
use serde_json::{Map, Value, json};

use super::place::Sources;
use super::{Findings, Options};
use crate::codes::crds as codes;
use crate::diagnostic::{Diagnostic, Place};

/// The name of the Kubernetes type whose schema this is.
const TYPE: &str = "x-kubewright-type";

/// Types that embed a LocalObjectReference: controller-gen takes its marker `+structType=atomic` for the whole, the
/// published OpenAPI does not.
const ATOMIC: [&str; 5] = [
    "io.k8s.api.core.v1.ConfigMapEnvSource",
    "io.k8s.api.core.v1.ConfigMapProjection",
    "io.k8s.api.core.v1.ConfigMapVolumeSource",
    "io.k8s.api.core.v1.SecretEnvSource",
    "io.k8s.api.core.v1.SecretProjection",
];

/// Defaults of the published OpenAPI that name a constant of Go (`+default=ref(…)`), which controller-gen leaves to the
/// server.
const BY_CONSTANT: [(&str, &str); 3] = [
    ("io.k8s.api.batch.v1.PodFailurePolicyOnPodConditionsPattern", "status"),
    ("io.k8s.api.core.v1.AzureDiskVolumeSource", "cachingMode"),
    ("io.k8s.api.core.v1.AzureDiskVolumeSource", "kind"),
];

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const CONDITION: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Condition";

/// Words that belong to one type of value.
const RULES: &[(&str, &[&str])] = &[
    ("minLength", &["string"]),
    ("maxLength", &["string"]),
    ("pattern", &["string"]),
    ("minimum", &["integer", "number"]),
    ("maximum", &["integer", "number"]),
    ("exclusiveMinimum", &["integer", "number"]),
    ("exclusiveMaximum", &["integer", "number"]),
    ("multipleOf", &["integer", "number"]),
    ("minItems", &["array"]),
    ("maxItems", &["array"]),
    ("uniqueItems", &["array"]),
    ("x-kubernetes-list-type", &["array"]),
    ("x-kubernetes-list-map-keys", &["array"]),
    ("minProperties", &["object"]),
    ("maxProperties", &["object"]),
    ("x-kubernetes-map-type", &["object"]),
];

/// The formats that an API server checks; others it warns of on every write.
const FORMATS: &[&str] = &[
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "date-time",
    "int32",
    "int64",
    "float",
    "double",
    "k8s-short-name",
    "k8s-long-name",
];

/// Where the Rust behind a schema is.
pub(super) struct Behind<'a> {
    /// The path of the Rust type.
    pub(super) rust: &'a str,
    /// The project's sources.
    pub(super) sources: &'a Sources<'a>,
}

/// Finishes one schema.
pub(super) fn finish(schema: &mut Value, options: &Options, behind: &Behind<'_>, found: &mut Findings) {
    enrich(schema, options);
    if let Some(longest) = options.max_description {
        shorten(schema, longest);
    }
    let mut walk = Walk { options, behind, found };
    walk.node(schema, "");
}

/// Takes the marks out.
pub(super) fn strip(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.remove(TYPE);
            map.values_mut().for_each(strip);
        }
        Value::Array(list) => list.iter_mut().for_each(strip),
        _ => {}
    }
}

/// Runs `body` for each schema right below this one.
fn below(schema: &mut Value, mut body: impl FnMut(&mut Value)) {
    let Some(map) = schema.as_object_mut() else { return };
    if let Some(properties) = map.get_mut("properties").and_then(Value::as_object_mut) {
        for property in properties.values_mut() {
            body(property);
        }
    }
    for word in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(word) {
            body(inner);
        }
    }
}

fn enrich(schema: &mut Value, options: &Options) {
    match schema.get(TYPE).and_then(Value::as_str) {
        Some(OBJECT_META) if !options.embedded_object_meta => {
            // As controller-gen does unless asked: an object about which nothing is said, so that everything in it is
            // dropped.
            if let Some(map) = schema.as_object_mut() {
                map.remove("properties");
            }
        }
        Some(name) => {
            let name = name.to_owned();
            if let Some(definition) = catalog::raw(&name).and_then(|text| serde_json::from_str(&text).ok()) {
                overlay(schema, &definition, &name, false, 0);
            }
            if name == OBJECT_META {
                // A template's metadata is plain: the catalog's keywords of a whole object's do not apply.
                below(schema, |property| {
                    if let Some(map) = property.as_object_mut() {
                        map.retain(|word, _| !word.starts_with("x-kubernetes-"));
                    }
                });
            }
        }
        None => {}
    }
    conditions(schema);
    below(schema, |inner| enrich(inner, options));
}

/// Adds the keywords of the published definition about lists, maps and defaults; `of` is its name, or empty for a part
/// of one.
fn overlay(schema: &mut Value, definition: &Value, of: &str, required: bool, depth: usize) {
    // Definitions such as JSONSchemaProps contain themselves; the schema does not.
    if depth > 64 {
        return;
    }
    let (mut definition, mut of) = (definition.clone(), of.to_owned());
    while let Some(target) = reference(&definition) {
        let Some(next) = catalog::raw(&target).and_then(|text| serde_json::from_str::<Value>(&text).ok()) else {
            return;
        };
        let default = definition.get("default").cloned();
        (definition, of) = (next, target);
        if let Some(default) = default {
            definition["default"] = default;
        }
    }
    if ATOMIC.contains(&of.as_str()) {
        definition["x-kubernetes-map-type"] = "atomic".into();
    }
    for (_, field) in BY_CONSTANT.iter().filter(|(name, _)| *name == of) {
        if let Some(field) = definition["properties"][*field].as_object_mut() {
            field.remove("default");
        }
    }
    let Some(map) = schema.as_object_mut() else { return };
    for word in [
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-map-type",
    ] {
        if let Some(value) = definition.get(word) {
            map.entry(word).or_insert_with(|| value.clone());
        }
    }
    // A required field has Go's zero value there, which no marker states; an empty object means an absent one.
    if let Some(default) = definition.get("default")
        && !required
        && *default != json!({})
    {
        map.entry("default").or_insert_with(|| default.clone());
    }
    // k8s-openapi has plain texts where Go leaves out empty ones; it reads them when they are absent, too.
    if let Some(Value::Array(names)) = map.get_mut("required") {
        let known = definition["required"].as_array().cloned().unwrap_or_default();
        names.retain(|name| known.contains(name));
        if names.is_empty() {
            map.remove("required");
        }
    }
    let needed: Vec<String> = map
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    if let Some(properties) = map.get_mut("properties").and_then(Value::as_object_mut) {
        for (name, property) in properties {
            if let Some(known) = definition["properties"].get(name) {
                overlay(property, known, "", needed.contains(name), depth + 1);
            }
        }
    }
    for word in ["items", "additionalProperties"] {
        if let (Some(inner), Some(known)) = (map.get_mut(word), definition.get(word)) {
            overlay(inner, known, "", true, depth + 1);
        }
    }
}

fn reference(definition: &Value) -> Option<String> {
    let target = definition.get("$ref").or_else(|| definition["allOf"][0].get("$ref"))?;
    Some(target.as_str()?.trim_start_matches("#/components/schemas/").to_owned())
}

/// The markers in the Go source of `metav1.Condition`, which no published text has.
fn conditions(schema: &mut Value) {
    if schema.get(TYPE).and_then(Value::as_str) != Some(CONDITION) {
        return;
    }
    let told = json!({
        "message": {"maxLength": 32768},
        "observedGeneration": {"minimum": 0},
        "reason": {"maxLength": 1024, "minLength": 1, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
        "status": {"enum": ["True", "False", "Unknown"]},
        "type": {
            "maxLength": 316,
            "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
        },
    });
    let rules = told.as_object().into_iter().flatten();
    for (name, words) in rules {
        let Some(property) = schema["properties"].get_mut(name).and_then(Value::as_object_mut) else {
            continue;
        };
        for (word, value) in words.as_object().into_iter().flatten() {
            property.insert(word.clone(), value.clone());
        }
    }
}

/// Descriptions of at most so many bytes; none at all for 0. A long one ends with a sentence if it can, or with `...`.
fn shorten(schema: &mut Value, longest: usize) {
    if let Some(map) = schema.as_object_mut()
        && let Some(words) = map.get("description").and_then(Value::as_str)
    {
        if longest == 0 {
            map.remove("description");
        } else if words.len() > longest {
            let mut end = longest;
            while !words.is_char_boundary(end) {
                end -= 1;
            }
            let cut = &words[..end];
            let short = match cut.rfind(". ").or_else(|| cut.rfind(".\n")) {
                Some(stop) => cut[..=stop].to_owned(),
                None => format!("{}...", cut[..cut.rfind(char::is_whitespace).unwrap_or(end)].trim_end()),
            };
            map.insert("description".to_owned(), json!(short));
        }
    }
    below(schema, |inner| shorten(inner, longest));
}

/// Leaves descriptions out: those inside Kubernetes' own types, or all.
pub(super) fn drop_descriptions(schema: &mut Value, only_known: bool) {
    fn all(schema: &mut Value) {
        if let Some(map) = schema.as_object_mut() {
            map.remove("description");
        }
        below(schema, all);
    }
    if !only_known {
        all(schema);
        return;
    }
    let known = schema.get(TYPE).is_some();
    below(schema, |inner| {
        if known {
            all(inner);
        } else {
            drop_descriptions(inner, true);
        }
    });
}

/// Looks for schemas that an API server takes without an error, but that cannot be meant.
struct Walk<'a> {
    options: &'a Options,
    behind: &'a Behind<'a>,
    found: &'a mut Findings,
}

impl Walk<'_> {
    fn node(&mut self, schema: &Value, path: &str) {
        let Some(map) = schema.as_object() else { return };
        self.check(map, path.trim_start_matches('.'));
        // Kubernetes' own types are as they are.
        if map.contains_key(TYPE) {
            return;
        }
        for (name, property) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
            self.node(property, &format!("{path}.{name}"));
        }
        for (word, part) in [("items", "[]"), ("additionalProperties", ".*")] {
            if let Some(inner) = map.get(word) {
                self.node(inner, &format!("{path}{part}"));
            }
        }
    }

    fn place(&self, path: &str) -> Place {
        self.behind.sources.find(self.behind.rust, path)
    }

    fn error(&mut self, path: &str, attempted: &str, why: String, fix: &str) {
        let told = Diagnostic::new(codes::RULE, attempted)
            .at(self.place(path))
            .because(why)
            .fix(fix);
        self.found.errors.push(told);
    }

    fn check(&mut self, map: &Map<String, Value>, path: &str) {
        let kind = map.get("type").and_then(Value::as_str);
        let int_or_string = map.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true));
        if let Some(kind) = kind {
            for (word, types) in RULES {
                if map.contains_key(*word) && !types.contains(&kind) {
                    self.error(
                        path,
                        &format!("cannot use `{word}` here"),
                        format!(
                            "it is a rule for {}, and the value is of type {kind}: it would never be checked",
                            types.join(" or ")
                        ),
                        "take the rule away, or change the type of the field",
                    );
                }
            }
        }
        self.values(map, kind, int_or_string, path);
        self.numbers(map, path);
        self.lost(map, path);
        self.duration(map, path);
        if let Some(format) = map.get("format").and_then(Value::as_str)
            && !FORMATS.contains(&format)
        {
            let told = Diagnostic::new(codes::FORMAT, format!("the format {format:?} means nothing to an API server"))
                .at(self.place(path))
                .because("it checks nothing, and the server warns of it (\"unrecognized format\") each time the definition is written")
                .fix("use a format that is known (date-time, ipv4, uri, …) or a pattern");
            self.found.warnings.push(told);
        }
        if kind == Some("number") && !self.options.allow_dangerous_types {
            let told = Diagnostic::new(codes::FLOAT, "a floating point number is in the API")
                .at(self.place(path))
                .because("languages write and round them differently, so what is read back may differ from what was written")
                .fix("use an integer with a unit (milliseconds, percent), a Quantity, or a string; --allow-dangerous-types silences this");
            self.found.warnings.push(told);
        }
    }

    /// The values of an enum are of the field's type.
    fn values(&mut self, map: &Map<String, Value>, kind: Option<&str>, int_or_string: bool, path: &str) {
        let values = map.get("enum").and_then(Value::as_array).into_iter().flatten();
        for value in values {
            let fits = match kind {
                Some("string") => value.is_string(),
                Some("integer") => value.is_i64() || value.is_u64(),
                Some("number") => value.is_number(),
                Some("boolean") => value.is_boolean(),
                Some("array") => value.is_array(),
                Some("object") => value.is_object(),
                _ => !int_or_string || value.is_string() || value.is_i64(),
            };
            if !fits && !value.is_null() {
                self.error(
                    path,
                    "cannot use this enum",
                    format!(
                        "{value} is not of type {}, so it can never be chosen",
                        kind.unwrap_or("integer or string")
                    ),
                    "write values of the field's type",
                );
            }
        }
    }

    /// Bounds are numbers, patterns are texts.
    fn numbers(&mut self, map: &Map<String, Value>, path: &str) {
        for (word, value) in map {
            let (fits, what): (bool, &str) = match word.as_str() {
                "minimum" | "maximum" | "multipleOf" => (value.is_number(), "a number"),
                "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
                    (value.as_u64().is_some(), "a whole number")
                }
                "exclusiveMinimum" | "exclusiveMaximum" | "nullable" | "uniqueItems" => {
                    (value.is_boolean(), "true or false")
                }
                "pattern" | "format" | "title" | "description" => (value.is_string(), "a text"),
                "enum" | "required" | "x-kubernetes-list-map-keys" | "x-kubernetes-validations" => {
                    (value.is_array(), "a list")
                }
                _ => continue,
            };
            if !fits {
                self.error(
                    path,
                    &format!("cannot use `{word}` here"),
                    format!("it is {value}, and takes {what}"),
                    "correct the value in #[schemars(extend(…))]",
                );
            }
        }
    }

    /// kube's length of time is any string to an API server, and what is none cannot be read as one.
    fn duration(&mut self, map: &Map<String, Value>, path: &str) {
        let is_any = map.get("type") == Some(&json!("string"))
            && ["pattern", "format", "enum", "x-kubernetes-validations"]
                .iter()
                .all(|word| !map.contains_key(*word));
        if !is_any || path.is_empty() {
            return;
        }
        let written = self
            .behind
            .sources
            .written_type(self.behind.rust, path.trim_end_matches("[]"));
        let written: Vec<&str> = written.iter().map(String::as_str).collect();
        if matches!(written[..], ["Duration"] | [.., "core", "Duration"]) {
            let told = Diagnostic::new(codes::DOUBT, "any string is a length of time here")
                .at(self.place(path))
                .because("the schema of kube::core::Duration has no pattern: an API server stores \"soon\", and the operator cannot read it")
                .fix(r#"give the field #[schemars(regex(pattern = r"^([0-9]{1,9}(h|m|s|ms))+$"))]; in a list or a map `inner(regex(…))`"#);
            self.found.warnings.push(told);
        }
    }

    /// A rule that stands in the source and is not in the schema: schemars passes over those that do not fit the type.
    fn lost(&mut self, map: &Map<String, Value>, path: &str) {
        if path.is_empty() || path.ends_with("[]") || path.ends_with(".*") {
            return;
        }
        for word in self.behind.sources.words(self.behind.rust, path) {
            let keywords: &[&str] = match word.as_str() {
                "length" => &["minLength", "maxLength", "minItems", "maxItems"],
                "range" => &["minimum", "maximum"],
                "regex" | "contains" => &["pattern"],
                _ => continue,
            };
            let all = map
                .get("allOf")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_object);
            let there = all
                .chain([map])
                .any(|schema| keywords.iter().any(|keyword| schema.contains_key(*keyword)));
            if !there {
                let kind = map.get("type").and_then(Value::as_str).unwrap_or("another");
                self.error(
                    path,
                    &format!("the rule `{word}` has no effect here"),
                    format!("schemars leaves it out: it does not fit a value of type {kind}, or the type of the field has a schema of its own"),
                    "put the rule on that type, or say it in full: #[schemars(extend(\"maxLength\" = 10))]; for maps \"maxProperties\"",
                );
            }
        }
    }
}
