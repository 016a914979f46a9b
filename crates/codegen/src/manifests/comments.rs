//! Markers of Go in comments of Rust: `+kubebuilder:validation:Minimum=1` has no effect here, and the user is told the
//! attribute that has.
//!
//! A comment is a warning, not an error: notes of a project that came over may stay as long as their author likes. One
//! warning for each marker, with all its places. Not here: the effect of the attributes.

use std::collections::BTreeMap;

use crate::codes::crds as codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::plan::Files;

/// Markers by how they begin (after the `+`), and the Rust that says the same. A longer one stands before its
/// beginning.
const WORDS: &[(&str, &str)] = &[
    (
        "kubebuilder:validation:XValidation",
        "#[x_kube(validation = Rule::new(\"self.min <= self.max\").message(\"…\"))] with `KubeSchema` derived, or #[schemars(extend(\"x-kubernetes-validations\" = [{\"rule\": \"…\"}]))]",
    ),
    (
        "kubebuilder:validation:ExactlyOneOf",
        "#[schemars(extend(\"exactlyOneOf\" = [\"a\", \"b\"]))] on the struct",
    ),
    (
        "kubebuilder:validation:AtMostOneOf",
        "#[schemars(extend(\"atMostOneOf\" = [\"a\", \"b\"]))] on the struct",
    ),
    (
        "kubebuilder:validation:AtLeastOneOf",
        "#[schemars(extend(\"atLeastOneOf\" = [\"a\", \"b\"]))] on the struct",
    ),
    (
        "kubebuilder:validation:items:",
        "#[schemars(extend(\"items:maxLength\" = 10))], with the keyword in question",
    ),
    ("kubebuilder:validation:Minimum", "#[schemars(range(min = 1))]"),
    ("kubebuilder:validation:Maximum", "#[schemars(range(max = 10))]"),
    (
        "kubebuilder:validation:ExclusiveMinimum",
        "#[schemars(extend(\"exclusiveMinimum\" = true))] beside #[schemars(range(min = 1))]",
    ),
    (
        "kubebuilder:validation:ExclusiveMaximum",
        "#[schemars(extend(\"exclusiveMaximum\" = true))] beside #[schemars(range(max = 10))]",
    ),
    (
        "kubebuilder:validation:MultipleOf",
        "#[schemars(extend(\"multipleOf\" = 5))]",
    ),
    ("kubebuilder:validation:MinLength", "#[schemars(length(min = 1))]"),
    ("kubebuilder:validation:MaxLength", "#[schemars(length(max = 10))]"),
    (
        "kubebuilder:validation:MinItems",
        "#[schemars(length(min = 1))] on the Vec",
    ),
    (
        "kubebuilder:validation:MaxItems",
        "#[schemars(length(max = 10))] on the Vec",
    ),
    (
        "kubebuilder:validation:UniqueItems",
        "a BTreeSet, or #[x_kube(merge_strategy = ListMerge::Set)]",
    ),
    (
        "kubebuilder:validation:MinProperties",
        "#[schemars(extend(\"minProperties\" = 1))]",
    ),
    (
        "kubebuilder:validation:MaxProperties",
        "#[schemars(extend(\"maxProperties\" = 10))]",
    ),
    (
        "kubebuilder:validation:Pattern",
        "#[schemars(regex(pattern = r\"^[a-z]+$\"))]",
    ),
    (
        "kubebuilder:validation:Format",
        "#[schemars(extend(\"format\" = \"date-time\"))]",
    ),
    (
        "kubebuilder:validation:Enum",
        "a Rust enum, or #[schemars(extend(\"enum\" = [\"a\", \"b\"]))]",
    ),
    (
        "kubebuilder:validation:Type",
        "#[schemars(with = \"String\")], with the type that JSON has",
    ),
    ("kubebuilder:validation:Schemaless", "a `serde_json::Value`"),
    (
        "kubebuilder:validation:EmbeddedResource",
        "#[schemars(extend(\"x-kubernetes-embedded-resource\" = true))]",
    ),
    (
        "kubebuilder:validation:XIntOrString",
        "the type `IntOrString` of k8s-openapi",
    ),
    (
        "kubebuilder:validation:XPreserveUnknownFields",
        "#[schemars(extend(\"x-kubernetes-preserve-unknown-fields\" = true))]",
    ),
    (
        "kubebuilder:pruning:PreserveUnknownFields",
        "#[schemars(extend(\"x-kubernetes-preserve-unknown-fields\" = true))]",
    ),
    ("kubebuilder:validation:Optional", "an `Option`"),
    (
        "kubebuilder:validation:Required",
        "a type that is no `Option`, without #[serde(default)]",
    ),
    ("optional", "an `Option`, or #[serde(default)]"),
    ("required", "a type that is no `Option`, without #[serde(default)]"),
    ("nullable", "#[schemars(extend(\"nullable\" = true))]"),
    ("immutable", "#[schemars(extend(\"immutable\" = true))]"),
    (
        "kubebuilder:default",
        "#[serde(default = \"…\")] with a function, or #[serde(default)] for the type's own",
    ),
    (
        "default",
        "#[serde(default = \"…\")] with a function, or #[serde(default)] for the type's own",
    ),
    ("kubebuilder:example", "#[schemars(example = &\"…\")]"),
    ("kubebuilder:title", "#[schemars(title = \"…\")]"),
    (
        "listType",
        "#[x_kube(merge_strategy = ListMerge::Set)], `ListMerge::Atomic` or `ListMerge::Map(vec![\"name\".into()])`",
    ),
    (
        "listMapKey",
        "#[x_kube(merge_strategy = ListMerge::Map(vec![\"name\".into()]))]",
    ),
    ("mapType", "#[x_kube(merge_strategy = MapMerge::Atomic)]"),
    ("structType", "#[x_kube(merge_strategy = StructMerge::Atomic)]"),
    (
        "kubebuilder:object",
        "#[derive(CustomResource)] on the spec, with #[kube(group = …, version = …, kind = …)]",
    ),
    ("kubebuilder:skip", "leave the type out of `operator()`"),
    ("kubebuilder:subresource:status", "`status = \"…Status\"` in #[kube(…)]"),
    (
        "kubebuilder:subresource:scale",
        "`scale(spec_replicas_path = \".spec.replicas\", status_replicas_path = \".status.replicas\")` in #[kube(…)]",
    ),
    (
        "kubebuilder:resource",
        "`namespaced`, `shortname = \"…\"`, `category = \"…\"`, `plural = \"…\"` in #[kube(…)]",
    ),
    (
        "kubebuilder:printcolumn",
        "`printcolumn(name = \"…\", type_ = \"string\", json_path = \".spec.…\")` in #[kube(…)]",
    ),
    (
        "kubebuilder:selectablefield",
        "`selectable = \".spec.…\"` in #[kube(…)]",
    ),
    (
        "kubebuilder:storageversion",
        "`storage = true` in #[kube(…)], and `storage = false` in the other versions",
    ),
    ("kubebuilder:unservedversion", "`served = false` in #[kube(…)]"),
    ("kubebuilder:deprecatedversion", "`deprecated = \"…\"` in #[kube(…)]"),
    (
        "kubebuilder:metadata",
        "`annotation(\"…\", \"…\")` and `label(\"…\", \"…\")` in #[kube(…)]",
    ),
    (
        "kubebuilder:rbac",
        "#[rbac(groups = \"…\", resources = \"…\", verbs = \"get;list;watch\")] on the `impl Reconciler`",
    ),
    (
        "kubebuilder:webhook",
        "`Webhook::of::<…>()` with `.mutating(|webhook| …)` and `.validating(|webhook| …)`; kubewright create webhook writes it",
    ),
    (
        "kubebuilder:scaffold",
        "nothing: the command finds its places in the code by itself",
    ),
    ("groupName", "`group = \"…\"` in #[kube(…)]"),
    ("versionName", "`version = \"…\"` in #[kube(…)]"),
    ("genclient", "nothing: clients are generic"),
    ("k8s:deepcopy-gen", "#[derive(Clone)]"),
    ("k8s:", "#[schemars(…)] on the field"),
    (
        "kubebuilder:",
        "an attribute of serde, schemars or kube; `kubewright explain KWR0321` says where they are listed",
    ),
];

/// The warnings about the markers in the comments of a project.
pub(super) fn warnings(files: &dyn Files) -> Vec<Diagnostic> {
    let mut found: BTreeMap<String, (&'static str, Vec<Place>)> = BTreeMap::new();
    // A file that cannot be read is reported by the code that needs it.
    for file in files.list("").unwrap_or_default() {
        if !file.ends_with(".rs") || file.starts_with("target/") || file.contains("/target/") {
            continue;
        }
        let text = files.read(&file).ok().flatten().unwrap_or_default();
        for (number, line) in text.lines().enumerate() {
            if let Some((marker, words)) = marker(line) {
                let (_, places) = found.entry(marker.to_owned()).or_insert((words, Vec::new()));
                places.push(Place::file(&file).line(number.saturating_add(1)));
            }
        }
    }
    let told = |(marker, (words, places)): (String, (&'static str, Vec<Place>))| {
        let mut told = Diagnostic::new(codes::COMMENT, format!("the comment `+{marker}` has no effect in Rust"));
        told.places = places;
        told.because("markers are attributes here, which the compiler checks")
            .fix(format!("in Rust: {words}; remove the comment"))
    };
    found.into_iter().map(told).collect()
}

/// The marker on a line, without its value, and how it is said in Rust.
fn marker(line: &str) -> Option<(&str, &'static str)> {
    let comment = line.trim_start().strip_prefix("//")?;
    let comment = comment.trim_start_matches(['/', '!']).trim_start();
    let marker = comment.strip_prefix('+')?;
    let end = marker.find(|letter: char| !(letter.is_ascii_alphanumeric() || matches!(letter, ':' | '-' | '_')));
    let name = &marker[..end.unwrap_or(marker.len())];
    let is_it = |(begin, _): &&(&str, &str)| {
        let whole = begin.contains(':') || name.len() == begin.len();
        name.starts_with(begin) && whole
    };
    let (_, words) = WORDS.iter().find(is_it)?;
    // `rbac:groups=…` ends with its first argument's name.
    let arguments = marker[name.len()..].starts_with('=') && name.matches(':').count() > 1;
    let told = match name.rsplit_once(':') {
        Some((marker, argument)) if arguments && argument.starts_with(char::is_lowercase) => marker,
        _ => name,
    };
    Some((told, words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::MemoryFiles;

    #[test]
    fn the_book_has_all_of_them() {
        let row =
            |(go, rust): &(&str, &str)| format!("| `+{go}` | {} |\n", rust.replace('|', "\\|").replace("#[", "\\#["));
        // What catches all other markers is no row of its own.
        let rows: String = WORDS
            .iter()
            .filter(|(go, _)| !matches!(*go, "kubebuilder:" | "k8s:"))
            .map(row)
            .collect();
        // Read when it runs: the published package has no book, and compiles its tests all the same.
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/markers.md");
        let page = std::fs::read_to_string(page).unwrap();
        assert!(page.contains(&rows), "docs/src/markers.md should hold\n{rows}");
    }

    #[test]
    fn markers_are_told_with_their_rust() {
        let text = "\
/// How many.
/// +kubebuilder:validation:Minimum=1
// +kubebuilder:validation:XValidation:rule=\"self > 1\",message=\"+x\"
    // +optional
//+kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list
// +kubebuilder:printcolumn:name=\"A\",type=string
// +kubebuilder:object:root=true
// +listType=map
// +1 for this idea
// an optional thing, 1 + optional
// +kubebuilder:something:new=1
let text = \"// +optional\";
";
        let files = MemoryFiles::from([
            ("src/a.rs", text),
            ("src/b.rs", "// +optional\n"),
            ("README.md", "// +optional\n"),
        ]);
        let told: Vec<String> = warnings(&files).iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(told.join("\n\n"));
    }
}
