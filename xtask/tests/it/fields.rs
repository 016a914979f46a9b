//! The fields that the rules of built-in kinds name exist: each literal in `crates/kinds/src/strategies` that is the
//! name of a field, and each pair of names one below the other, is held against the committed definitions.
//!
//! A rule for a field that does not exist never finds anything, and no test of it would fail. Not here: whether a rule
//! stands at the right kind; the recordings show that.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::{files, root};

/// Names that are no fields: kube-apiserver's messages have them so, or they are keys of maps.
const NOT_FIELDS: &[(&str, &str)] = &[
    ("LoadBalancerSourceRanges", "upstream's spelling in messages"),
    ("attachedRequired", "upstream's spelling in messages"),
    ("persistentvolumesource", "upstream's spelling in messages"),
    ("persistentDisk", "upstream's spelling in messages"),
    ("targetportal", "upstream's spelling in messages"),
    ("initiatorname", "upstream's spelling in messages"),
    ("Phase", "upstream's spelling in messages"),
    ("Spec", "upstream's spelling in messages"),
    ("Type", "upstream's spelling in messages"),
    ("{topologyKey, whenUnsatisfiable}", "a pair that upstream names as one"),
];

/// Pairs that are not in the definitions: upstream's messages have them so.
const NOT_BELOW: &[(&str, &str)] = &[
    ("metadata", "taints"),
    ("resource", "averageUtilization"),
    ("securityContext", "shareProcessNamespace"),
];

/// The calls whose first literal is the name of a field.
const ONE: &[&str] = &[
    ".key(",
    ".field(",
    " absent(",
    " fill(",
    " fill_text(",
    " fill_number(",
    " child(",
    " ensure(",
    " each(",
    " keep(",
];
/// The calls whose first list is a path of names.
const PATH: &[&str] = &[
    ".keys(&[",
    ".fields(&[",
    " get(",
    "fixed(&[",
    "not_negative(&[",
    " rule(&[",
    "check::rule(&[",
];

/// The definitions as they are committed, and what lies below each name of a field in any of them.
struct Catalog {
    names: BTreeSet<String>,
    below: BTreeMap<String, BTreeSet<String>>,
    /// Fields that hold maps, whose keys are free.
    maps: BTreeSet<String>,
}

fn names_below<'a>(property: &'a Value, found: &mut Vec<&'a str>) {
    if let Some(name) = property["$ref"].as_str().and_then(|link| link.rsplit('/').next()) {
        found.push(name);
    }
    for inner in [&property["items"], &property["additionalProperties"]] {
        if inner.is_object() {
            names_below(inner, found);
        }
    }
    for inner in property["allOf"].as_array().into_iter().flatten() {
        names_below(inner, found);
    }
}

fn catalog() -> Catalog {
    let path = root().join("crates/schema/data/kubernetes.jsonl");
    let text = fs::read_to_string(path).expect("the definitions are committed");
    let lines = text.lines().filter_map(|line| line.split_once('\t'));
    // A name stands once for each different text of its definition.
    let definitions: Vec<(&str, Value)> = lines
        .map(|(name, json)| (name, serde_json::from_str(json).expect("a definition is JSON")))
        .collect();
    let mut catalog = Catalog {
        names: BTreeSet::new(),
        below: BTreeMap::new(),
        maps: BTreeSet::new(),
    };
    let properties = |definition: &Value| definition["properties"].as_object().cloned().unwrap_or_default();
    for (name, property) in definitions.iter().flat_map(|(_, definition)| properties(definition)) {
        let mut types = Vec::new();
        names_below(&property, &mut types);
        let fields = definitions
            .iter()
            .filter(|(name, _)| types.contains(name))
            .flat_map(|(_, definition)| properties(definition));
        let below = catalog.below.entry(name.clone()).or_default();
        below.extend(fields.map(|(name, _)| name));
        if property["additionalProperties"].is_object() {
            catalog.maps.insert(name.clone());
        }
        catalog.names.insert(name);
    }
    assert!(catalog.names.len() > 500, "the definitions name many fields");
    catalog
}

/// The literals at the start of a call's arguments: the first, or those of a list.
fn literals(arguments: &str, is_path: bool) -> Vec<&str> {
    let end = if is_path { ']' } else { ')' };
    let arguments = arguments.split(end).next().unwrap_or_default();
    let all = arguments.split('"').skip(1).step_by(2).filter(|name| !name.is_empty());
    if is_path { all.collect() } else { all.take(1).collect() }
}

/// The paths of fields that a source names: one name, or several, each below the one before.
fn paths(source: &str) -> Vec<Vec<&str>> {
    let mut found = Vec::new();
    for (markers, is_path) in [(ONE, false), (PATH, true)] {
        for marker in markers {
            let calls = source.split(marker).skip(1);
            found.extend(
                calls
                    .map(|after| literals(after, is_path))
                    .filter(|path| !path.is_empty()),
            );
        }
    }
    // Paths of errors, such as `spec.template.metadata`.
    for text in source.split('"').skip(1).step_by(2) {
        let is_path = ["spec.", "status.", "metadata."]
            .iter()
            .any(|start| text.starts_with(start))
            && text.chars().all(|c| c.is_alphanumeric() || c == '.')
            && !text.ends_with('.');
        if is_path {
            found.push(text.split('.').collect());
        }
    }
    found
}

/// The error in a path, in words.
fn wrong(path: &[&str], catalog: &Catalog) -> Option<String> {
    let mut above: Option<&str> = None;
    // A name with a domain is that of a label or an annotation.
    for name in path.iter().filter(|name| !name.contains('/')) {
        if let Some(above) = above {
            if catalog.maps.contains(above) {
                return None;
            }
            let known = catalog.below.get(above).is_some_and(|below| below.contains(*name));
            if !known && !NOT_BELOW.contains(&(above, name)) {
                return Some(format!("nothing has `{name}` below `{above}`"));
            }
        }
        if !catalog.names.contains(*name) && !NOT_FIELDS.iter().any(|(known, _)| known == name) {
            return Some(format!("no definition has a field `{name}`"));
        }
        above = Some(name);
    }
    None
}

#[test]
fn fields_in_rules_exist() {
    let catalog = catalog();
    let kinds = root().join("crates/kinds/src/strategies");
    let mut sources = Vec::new();
    files(&kinds, ".rs", &mut sources);
    let is_of_tests = |file: &Path| {
        file.strip_prefix(&kinds)
            .is_ok_and(|below| below.to_string_lossy().contains("test"))
    };
    sources.retain(|file| !is_of_tests(file));
    let (mut checked, mut mistakes, mut seen) = (0, Vec::new(), BTreeSet::new());
    for file in sources {
        let content = fs::read_to_string(&file).expect("a source can be read");
        let product = content.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let is_code = |line: &&str| !line.trim_start().starts_with("//");
        let code: Vec<&str> = product.lines().filter(is_code).collect();
        for path in paths(&code.join("\n")) {
            checked += 1;
            seen.extend(path.iter().map(|name| (*name).to_owned()));
            mistakes.extend(wrong(&path, &catalog).map(|why| format!("{}: {why}", file.display())));
        }
    }
    assert!(checked > 1500, "the rules name many fields; found {checked}");
    assert!(mistakes.is_empty(), "{mistakes:#?}");
    let unused: Vec<_> = NOT_FIELDS.iter().filter(|(name, _)| !seen.contains(*name)).collect();
    assert!(unused.is_empty(), "no rule names these any more: {unused:?}");
}

#[test]
fn mistakes_are_found() {
    let catalog = catalog();
    for (source, mistaken) in [
        (r#"at.key("replicas")"#, false),
        (r#"at.key("replica")"#, true),
        (r#"at.keys(&["template", "spec"])"#, false),
        (r#"at.keys(&["template", "replicas"])"#, true),
        (r#" get(new, &["metadata", "labels", "a-key"])"#, false),
        (r#" fill(spec, "progresDeadlineSeconds", 600)"#, true),
        (r#"error("spec.strategy.rollingUpdate")"#, false),
        (r#"error("spec.strategy.rolingUpdate")"#, true),
    ] {
        let found = paths(source);
        assert_eq!(found.len(), 1, "{source}");
        assert_eq!(wrong(&found[0], &catalog).is_some(), mistaken, "{source}");
    }
}
