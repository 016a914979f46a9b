//! Whether a CustomResourceDefinition may be: its names, versions, columns, subresources, selectable fields,
//! conversion, and its schemas.
//!
//! Kubernetes validates its internal type, where the fields that all versions share stand at the top: the paths in its
//! messages say `spec.validation` where the user wrote `spec.versions[0].schema`. `Spec::place` gives those paths.
//!
//! Not here: the rules for a structural schema ([`structural`]), and the mutable fields of a stored definition.

mod root;
mod selectable;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::check::{At, Errors, webhook};
use crate::error::FieldError;
use crate::names;
use crate::path::FieldPath;
use crate::structural::{self, check_crd_schema_update};
use crate::{Minor, measure};

/// The errors in a definition, as the API server reports them; `old` is the definition before the change.
///
/// The definition is complete: names, conversion and `status.storedVersions` are filled in, as the server's defaults
/// do.
///
/// ```
/// use kubewright_schema::definition::check;
/// use serde_json::json;
///
/// let errors = check(&json!({"metadata": {"name": "a.b"}, "spec": {"group": "b", "names": {"plural": "a"}}}), None);
/// assert_eq!(errors[0].to_string(), "spec.group: Invalid value: \"b\": should be a domain with at least one dot");
/// ```
pub fn check(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    check_in(Minor::OLDEST, new, old)
}

/// The same in a version of Kubernetes.
pub fn check_in(minor: Minor, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new);
    let spec = at.key("spec");
    let (plural, group) = (spec.keys(&["names", "plural"]).text(), spec.key("group").text());
    let name = at.keys(&["metadata", "name"]);
    // A changed plural is told by its own rule.
    if old.is_none() && !name.text().is_empty() && name.text() != format!("{plural}.{group}") {
        errors.invalid(&name, "must be spec.names.plural+\".\"+spec.group");
    }
    self::group(&mut errors, &at, group);
    errors.one_of(&spec.key("scope"), &["Cluster", "Namespaced"], true);
    for version in spec.key("versions").items() {
        let schema = version.keys(&["schema", "openAPIV3Schema"]);
        if !schema.present() {
            errors.required(&schema, "");
        }
    }
    let has_defaults = |version: At<'_>| mentions_default(version.key("schema").value);
    if spec.key("preserveUnknownFields").is_true() && spec.key("versions").items().any(has_defaults) {
        errors.invalid(
            &spec.key("preserveUnknownFields"),
            "must be false in order to use defaults in the schema",
        );
    }
    let compared = Spec::new(spec.clone(), minor);
    versions(&mut errors, &compared, old);
    kind_names(&mut errors, &spec.key("names"));
    if let Some(first) = spec.key("versions").items().next() {
        self::version(&mut errors, &compared, &first, Level::Top, old);
    }
    conversion(&mut errors, &spec.key("conversion"));
    stored(&mut errors, &at, old.is_some());
    approval(&mut errors, &at, group);
    if spec.key("preserveUnknownFields").is_true() {
        errors.invalid(
            &spec.key("preserveUnknownFields"),
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        );
    }
    errors.into_vec()
}

/// Whether a schema has a default; a `default` inside of values is not one of the schema.
fn mentions_default(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map.iter().any(|(word, value)| match word.as_str() {
            "default" => true,
            "enum" | "example" => false,
            "properties" => value.as_object().is_some_and(|map| map.values().any(mentions_default)),
            _ => mentions_default(value),
        }),
        Value::Array(list) => list.iter().any(mentions_default),
        _ => false,
    }
}

/// The formats in the schemas of a definition that mean nothing, which is worth a warning.
pub fn unknown_formats(definition: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for version in At::root(definition).keys(&["spec", "versions"]).items() {
        formats_in(version.keys(&["schema", "openAPIV3Schema"]).value, &mut found);
    }
    found
}

fn formats_in(schema: &Value, found: &mut BTreeSet<String>) {
    let Some(words) = schema.as_object() else { return };
    if let Some(format) = words.get("format").and_then(Value::as_str) {
        let known = match words.get("type").and_then(Value::as_str).unwrap_or("") {
            "integer" => matches!(format, "int32" | "int64"),
            "number" => matches!(format, "float" | "double"),
            "" | "string" => {
                structural::is_known_format(format) && !matches!(format, "int32" | "int64" | "float" | "double")
            }
            _ => false,
        };
        if !format.is_empty() && !known {
            found.insert(format.to_owned());
        }
    }
    for word in ["properties", "patternProperties", "definitions"] {
        let schemas = words.get(word).and_then(Value::as_object);
        schemas
            .into_iter()
            .flat_map(Map::values)
            .for_each(|schema| formats_in(schema, found));
    }
    for word in ["items", "additionalProperties", "not"] {
        if let Some(schema) = words.get(word) {
            formats_in(schema, found);
        }
    }
    for word in ["allOf", "anyOf", "oneOf", "items"] {
        let schemas = words.get(word).and_then(Value::as_array);
        schemas
            .into_iter()
            .flatten()
            .for_each(|schema| formats_in(schema, found));
    }
}

fn group(errors: &mut Errors, at: &At<'_>, group: &str) {
    let field = at.keys(&["spec", "group"]);
    if group.is_empty() {
        errors.required(&field, "");
        return;
    }
    let wrong = names::dns1123_subdomain(group);
    if wrong.is_empty() && !group.contains('.') {
        errors.invalid(&field, "should be a domain with at least one dot");
    }
    errors.messages(&field, wrong);
}

/// Definitions in groups of the Kubernetes community must name their approval.
fn approval(errors: &mut Errors, at: &At<'_>, group: &str) {
    let protected = group == "k8s.io"
        || group.ends_with(".k8s.io")
        || group == "kubernetes.io"
        || group.ends_with(".kubernetes.io");
    const APPROVAL: &str = "api-approved.kubernetes.io";
    let annotation = at.keys(&["metadata", "annotations", APPROVAL]);
    let approved = annotation.text().contains("://") || annotation.text().starts_with("unapproved");
    if protected && !annotation.text().is_empty() && !approved {
        let annotations = at.keys(&["metadata", "annotations"]);
        errors.invalid(
            &annotation.moved(annotations.path.map_key(APPROVAL)),
            "protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a URL or a reason starting with \
             \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111",
        );
    }
    if protected && annotation.text().is_empty() {
        let annotations = at.keys(&["metadata", "annotations"]);
        errors.required(
            &annotations.moved(annotations.path.map_key(APPROVAL)),
            "protected groups must have approval annotation \"api-approved.kubernetes.io\", see \
             https://github.com/kubernetes/enhancements/pull/1111",
        );
    }
}

fn kind_names(errors: &mut Errors, at: &At<'_>) {
    for field in ["plural", "singular"] {
        let field = at.key(field);
        if field.text().is_empty() {
            errors.required(&field, "");
            continue;
        }
        errors.messages(&field, names::dns1035_label(field.text()));
    }
    for field in ["kind", "listKind"] {
        let field = at.key(field);
        if field.text().is_empty() {
            errors.required(&field, "");
            continue;
        }
        for message in names::dns1035_label(&field.text().to_lowercase()) {
            errors.invalid(
                &field,
                format!("may have mixed case, but should otherwise match: {message}"),
            );
        }
    }
    if !at.key("kind").text().is_empty() && at.key("kind").text() == at.key("listKind").text() {
        errors.invalid(&at.key("listKind"), "kind and listKind may not be the same");
    }
    for list in ["shortNames", "categories"] {
        for name in at.key(list).items() {
            errors.messages(&name, names::dns1035_label(name.text()));
        }
    }
}

/// Whether the version had this very schema before.
fn had_schema(old: &Value, name: &str, schema: &Value) -> bool {
    let old = At::root(old);
    let mut versions = old.keys(&["spec", "versions"]).items();
    versions.any(|version| {
        version.key("name").text() == name && measure::same(version.keys(&["schema", "openAPIV3Schema"]).value, schema)
    })
}

/// The fields that stand at the top of the internal type when all versions say the same, and their names there.
const HOISTED: [(&str, &str); 4] = [
    ("schema", "validation"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

/// A definition's `spec`, and which fields of its versions stand at the top of the internal type.
struct Spec<'a> {
    at: At<'a>,
    hoisted: Vec<(&'static str, &'static str)>,
    minor: Minor,
}

impl<'a> Spec<'a> {
    /// Compares the versions, which may be many, once.
    fn new(at: At<'a>, minor: Minor) -> Self {
        let versions = at.value.get("versions").and_then(Value::as_array);
        let is_same = |(field, _): &(&str, &str)| {
            let mut all = versions
                .into_iter()
                .flatten()
                .map(|version| version.get(field).unwrap_or(&Value::Null));
            all.next()
                .is_some_and(|first| !first.is_null() && all.all(|other| measure::same(first, other)))
        };
        let hoisted = HOISTED.into_iter().filter(is_same).collect();
        Spec { at, hoisted, minor }
    }

    /// Where a field is that stands at the top.
    fn top(&self, field: &str) -> Option<FieldPath> {
        let (_, top) = self.hoisted.iter().find(|(known, _)| *known == field)?;
        Some(self.at.path.key(top))
    }

    /// Where a field of a version is in the internal type.
    fn place(&self, version: &At<'_>, field: &str) -> FieldPath {
        self.top(field).unwrap_or_else(|| version.path.key(field))
    }
}

/// The versions as the internal type has them: without the fields at the top.
fn shown(spec: &Spec<'_>) -> Value {
    let versions = spec.at.key("versions");
    let kept = versions.items().map(|version| {
        let mut kept = version.value.clone();
        for (field, _) in &spec.hoisted {
            if let Some(map) = kept.as_object_mut() {
                map.remove(*field);
            }
        }
        kept
    });
    kept.collect()
}

fn versions(errors: &mut Errors, spec: &Spec<'_>, old: Option<&Value>) {
    let list = spec.at.key("versions");
    let mut seen = BTreeSet::new();
    let mut storage = 0;
    let mut unique = true;
    for version in list.items() {
        let name = version.key("name");
        unique &= seen.insert(name.text());
        storage += usize::from(version.key("storage").is_true());
        for message in names::dns1035_label(name.text()) {
            errors.invalid(&name, message);
        }
        self::version(errors, spec, &version, Level::Own, old);
    }
    if !unique {
        errors.invalid_value(&list, shown(spec), "must contain unique version names");
    }
    if storage != 1 {
        let shown = if list.value.is_array() {
            shown(spec)
        } else {
            Value::Null
        };
        errors.invalid_value(&list, shown, "must have exactly one version marked as storage version");
    }
    // The first version stands at the top as well.
    let first = list.items().next().map(|first| first.key("name"));
    if let Some(name) = first.filter(|name| !name.text().is_empty()) {
        errors.messages(
            &name.moved(spec.at.path.key("version")),
            names::dns1035_label(name.text()),
        );
    }
}

/// The place of a version's fields in the internal type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    /// At the top: all versions say the same, and it is checked once.
    Top,
    /// With the version.
    Own,
}

/// The fields of a version at one level.
fn version(errors: &mut Errors, spec: &Spec<'_>, version: &At<'_>, level: Level, old: Option<&Value>) {
    let is_here = |field: &str| spec.top(field).is_none() == (level == Level::Own);
    let warning = version.key("deprecationWarning");
    if level == Level::Own && warning.present() {
        deprecation_warning(errors, &warning, version.key("deprecated").is_true());
    }
    let schema = version.keys(&["schema", "openAPIV3Schema"]);
    let path = spec.place(version, "schema");
    if schema.present() && is_here("schema") {
        let unchanged = old.is_some_and(|old| had_schema(old, version.key("name").text(), schema.value));
        let at = path.key("openAPIV3Schema");
        let status = version.keys(&["subresources", "status"]).present();
        root::check(errors, &schema.moved(at.clone()), status);
        errors.extend(check_crd_schema_update(schema.value, &at, unchanged, spec.minor));
    }
    let path = spec.place(version, "subresources");
    let subresources = version.key("subresources");
    if subresources.present() && is_here("subresources") {
        let subresources = subresources.moved(path);
        if subresources.key("scale").present() {
            scale(errors, &subresources.key("scale"));
        }
    }
    let path = spec.place(version, "additionalPrinterColumns");
    if is_here("additionalPrinterColumns") {
        for column in version.key("additionalPrinterColumns").moved(path).items() {
            self::column(errors, &column);
        }
    }
    let fields = version
        .key("selectableFields")
        .moved(spec.place(version, "selectableFields"));
    if is_here("selectableFields") && !fields.is_empty() {
        // Upstream looks for the schema where the fields are: at the top, or in the version.
        let (at_top, schema_at_top) = (spec.top("selectableFields").is_some(), spec.top("schema").is_some());
        match (at_top, schema_at_top) {
            (true, false) => errors.invalid_value(&fields, "", "may only be set when validations.schema is included"),
            (false, true) => errors.invalid_value(
                &fields,
                "",
                "may only be set when `version.schema.openAPIV3Schema` is not included",
            ),
            _ => selectable::check(errors, &fields, schema.value),
        }
    }
}

fn deprecation_warning(errors: &mut Errors, warning: &At<'_>, deprecated: bool) {
    const MAX: usize = 256;
    let text = warning.text();
    if !deprecated {
        errors.invalid(warning, "can only be set for deprecated versions");
        return;
    }
    if text.is_empty() {
        errors.invalid(warning, "must not be an empty string");
    }
    if text.len() > MAX {
        errors.invalid(warning, format!("must be <= {MAX} characters long"));
    }
    let odd = text.char_indices().find(|(_, c)| c.is_control());
    if let Some((place, _)) = odd {
        errors.invalid(
            warning,
            format!("must only contain printable UTF-8 characters; non-printable character found at index {place}"),
        );
    }
}

fn scale(errors: &mut Errors, at: &At<'_>) {
    const SIMPLE: &str = "must be a simple json path starting with .";
    for (field, roots, text, required) in [
        (
            "specReplicasPath",
            &[".spec."][..],
            "should be a json path under .spec",
            true,
        ),
        (
            "statusReplicasPath",
            &[".status."],
            "should be a json path under .status",
            true,
        ),
        (
            "labelSelectorPath",
            &[".spec.", ".status."],
            "should be a json path under either .spec or .status",
            false,
        ),
    ] {
        let path = at.key(field);
        if path.text().is_empty() {
            if required {
                errors.required(&path, "");
            }
        } else if !path.text().starts_with('.') {
            errors.invalid(&path, SIMPLE);
        } else if !roots.iter().any(|root| path.text().starts_with(root)) {
            errors.invalid(&path, text);
        }
    }
}

fn column(errors: &mut Errors, at: &At<'_>) {
    const FORMATS: [&str; 8] = [
        "byte",
        "date",
        "date-time",
        "double",
        "float",
        "int32",
        "int64",
        "password",
    ];
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    if at.key("name").text().is_empty() {
        errors.required(&at.key("name"), "");
    }
    let kind = at.key("type");
    if kind.text().is_empty() {
        errors.required(&kind, format!("must be one of {}", TYPES.join(",")).as_str());
    } else if !TYPES.contains(&kind.text()) {
        errors.invalid(&kind, format!("must be one of {}", TYPES.join(",")));
    }
    let format = at.key("format");
    if !format.text().is_empty() && !FORMATS.contains(&format.text()) {
        errors.invalid(&format, format!("must be one of {}", FORMATS.join(",")));
    }
    let path = at.key("jsonPath");
    // The internal type spells this field in its own way.
    let path = path.moved(at.path.key("JSONPath"));
    if path.text().is_empty() {
        errors.required(&path, "");
    } else if !path.text().starts_with('.') {
        errors.invalid(&path, "must be a simple json path starting with .");
    }
}

fn conversion(errors: &mut Errors, at: &At<'_>) {
    let config = at.key("webhook");
    let client = config.key("clientConfig").moved(at.path.key("webhookClientConfig"));
    let versions = config
        .key("conversionReviewVersions")
        .moved(at.path.key("conversionReviewVersions"));
    match at.key("strategy").text() {
        "None" => {
            const WHY: &str = "should not be set when strategy is not set to Webhook";
            if client.present() {
                errors.forbidden(&client, WHY);
            }
            if !versions.is_empty() {
                errors.forbidden(&versions, WHY);
            }
        }
        "Webhook" => {
            if client.present() {
                webhook::client_config(errors, &client);
            } else {
                errors.required(&client, "required when strategy is set to Webhook");
            }
            if versions.is_empty() {
                errors.required(&versions, "");
            } else {
                webhook::review_versions(errors, &versions);
            }
        }
        "" => errors.required(&at.key("strategy"), ""),
        _ => errors.unsupported(&at.key("strategy"), &["None", "Webhook"]),
    }
}

fn stored(errors: &mut Errors, at: &At<'_>, is_update: bool) {
    let stored = at.keys(&["status", "storedVersions"]);
    if stored.is_empty() {
        errors.invalid(&stored, "must have at least one stored version");
    }
    let known: BTreeSet<&str> = at
        .keys(&["spec", "versions"])
        .items()
        .map(|version| version.key("name").text())
        .collect();
    // Each stored version is that of one entry.
    let mut left: BTreeSet<&str> = stored.items().map(|version| version.text()).collect();
    for version in at.keys(&["spec", "versions"]).items() {
        let name = version.key("name").text();
        if !left.remove(name) && version.key("storage").is_true() && !stored.is_empty() {
            errors.invalid(&stored, format!("must have the storage version {name}"));
        }
    }
    for version in stored.items().filter(|version| !known.contains(version.text())) {
        let name = version.text();
        errors.invalid(
            &version,
            if is_update {
                format!(
                    "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage \
                     migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
                )
            } else {
                "must appear in spec.versions".to_owned()
            },
        );
    }
}
