//! The schemas of Kubernetes' built-in types, from the committed text of its published OpenAPI.
//!
//! The text is one line a definition, `name<TAB>json`, sorted by name, with an index of short lines beside it. Looking
//! a name up is a binary search over the bytes of the index; only the definition that is found is parsed, once, on
//! first use, and kept. So starting costs nothing, and an unused kind costs no memory of its own.
//!
//! Invariants, held by tests: the lines are sorted; the index fits the text; every `$ref` points at a line; every kind
//! has one definition. Where the text comes from is in `data/NOTICE.md`; `cargo xtask generate` writes it.
//!
//! Not here: custom resources. Their schemas come from [`SchemaRef::from_crd`].

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde_json::Value;

use super::{Schema, SchemaRef, parse};
use crate::budget;

/// The definitions of Kubernetes 1.36.
static TEXT: &str = include_str!("../../data/kubernetes-1.36.jsonl");

/// `name<TAB>offset length` a line, sorted: where the JSON of each definition is in the text.
static INDEX: &str = include_str!("../../data/kubernetes-1.36.index");

/// `group/version/kind<TAB>name` a line, sorted.
static KINDS: &str = include_str!("../../data/kubernetes-1.36.kinds");

/// The schema of a definition by its full name, such as `io.k8s.api.apps.v1.Deployment`.
///
/// ```
/// let deployment = kubewright_schema::catalog::definition("io.k8s.api.apps.v1.Deployment").expect("built in");
/// let containers = &deployment.properties["spec"].properties["template"].properties["spec"].properties["containers"];
/// assert_eq!(containers.patch_merge_key.as_deref(), Some("name"));
/// ```
pub fn definition(name: &str) -> Option<SchemaRef> {
    static_name(name).map(|name| SchemaRef::named(name, None))
}

/// The schema of the metadata of every object, which is asked for so often that it is looked up once only.
pub fn object_meta() -> &'static SchemaRef {
    static OBJECT_META: LazyLock<SchemaRef> = LazyLock::new(|| {
        budget::unlimited(|| {
            definition("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
                .expect("the catalog has the metadata of objects")
        })
    });
    &OBJECT_META
}

/// The schema of a kind. The core group is the empty string.
pub fn for_kind(group: &str, version: &str, kind: &str) -> Option<SchemaRef> {
    name_for_kind(group, version, kind).and_then(definition)
}

/// The name of the definition of a kind, such as `io.k8s.api.core.v1.Pod` for `("", "v1", "Pod")`.
///
/// Types that every group serves (`DeleteOptions`, `WatchEvent`) are under the core group and `v1` alone.
pub fn name_for_kind(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    let key = format!("{group}/{version}/{kind}");
    find(KINDS, &key).map(|(_, name)| name)
}

/// The JSON text of a definition as kube-apiserver publishes it in `components.schemas`, with references as
/// `#/components/schemas/NAME`.
pub fn raw(name: &str) -> Option<&'static str> {
    let (_, place) = find(INDEX, name)?;
    let (offset, length) = place.split_once(' ')?;
    let (offset, length): (usize, usize) = (offset.parse().ok()?, length.parse().ok()?);
    TEXT.get(offset..offset + length)
}

/// The names of all definitions, sorted.
pub fn names() -> impl Iterator<Item = &'static str> {
    TEXT.lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(name, _)| name)
}

/// The name as it stands in the text, which lives as long as the program.
pub(crate) fn static_name(name: &str) -> Option<&'static str> {
    find(INDEX, name).map(|(name, _)| name)
}

/// The parsed definition, kept after the first call.
pub(crate) fn schema(name: &str) -> Option<Arc<Schema>> {
    static PARSED: LazyLock<Mutex<BTreeMap<&'static str, Arc<Schema>>>> = LazyLock::new(Mutex::default);
    // The map only ever grows by whole entries: after a panic elsewhere it is as good as before.
    if let Some(found) = PARSED.lock().unwrap_or_else(PoisonError::into_inner).get(name) {
        return Some(Arc::clone(found));
    }
    let (name, json) = (static_name(name)?, raw(name)?);
    let text: Value = serde_json::from_str(json).expect("the catalog is generated JSON: its test parses every line");
    let schema = Arc::new(parse::definition(name, &text));
    // The first schema stays, so that equal names are the same schema.
    Some(Arc::clone(
        PARSED
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(name)
            .or_insert(schema),
    ))
}

/// Binary search for the line whose part before the tab is `key`.
fn find(text: &'static str, key: &str) -> Option<(&'static str, &'static str)> {
    let bytes = text.as_bytes();
    let (mut low, mut high) = (0, bytes.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let start = bytes[low..middle]
            .iter()
            .rposition(|&b| b == b'\n')
            .map_or(low, |i| low + i + 1);
        let end = bytes[middle..high]
            .iter()
            .position(|&b| b == b'\n')
            .map_or(high, |i| middle + i);
        let (name, rest) = text[start..end].split_once('\t')?;
        match name.cmp(key) {
            std::cmp::Ordering::Equal => return Some((name, rest)),
            std::cmp::Ordering::Less => low = end + 1,
            std::cmp::Ordering::Greater => high = start.saturating_sub(1).max(low),
        }
    }
    None
}

/// The definition behind the schemas in a CRD.
pub(crate) fn json_schema_props() -> SchemaRef {
    const NAME: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    definition(NAME).expect("the catalog has the kinds of apiextensions")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(target)) = map.get("$ref") {
                    found.push(target.trim_start_matches("#/components/schemas/").to_owned());
                }
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_definition_is_found_parsed_and_closed() {
        let mut count = 0;
        let (mut last, mut lines) = ("", TEXT.lines());
        for name in names() {
            assert!(last < name, "{last} comes before {name}");
            last = name;
            count += 1;
            let line = format!("{name}\t{}", raw(name).expect("found by its name"));
            assert_eq!(lines.next(), Some(line.as_str()));
            let text: Value = serde_json::from_str(raw(name).expect("found by its name")).expect("JSON");
            let mut targets = Vec::new();
            references(&text, &mut targets);
            for target in targets {
                assert!(static_name(&target).is_some(), "{name} refers to {target}");
            }
            assert_eq!(definition(name).expect("found").name, Some(name));
        }
        assert_eq!(lines.next(), None);
        assert!(count > 500, "{count} definitions");
    }

    #[test]
    fn every_kind_is_found() {
        let mut last = "";
        for line in KINDS.lines() {
            assert!(last < line, "{last} comes before {line}");
            last = line;
            let (gvk, name) = line.split_once('\t').expect("two columns");
            let parts: Vec<_> = gvk.split('/').collect();
            let [group, version, kind] = parts[..] else {
                panic!("{gvk}")
            };
            assert_eq!(name_for_kind(group, version, kind), Some(name));
            let schema = for_kind(group, version, kind).expect("found");
            assert!(
                schema.gvks.iter().any(|gvk| gvk.kind == kind && gvk.group == group),
                "{line}"
            );
        }
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        for name in [
            "",
            "a",
            "io.k8s.api.core.v1.Po",
            "io.k8s.api.core.v1.Podd",
            "zz",
            "\t",
            "\n",
        ] {
            assert!(definition(name).is_none(), "{name:?}");
        }
        assert!(for_kind("", "v1", "Nothing").is_none());
    }

    #[test]
    fn recursive_types_and_overlays_resolve() {
        let props =
            definition("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps").expect("there");
        let not = &props.properties["not"];
        assert!(not.properties["not"].same(&not.properties["not"].properties["not"]));

        let spec = definition("io.k8s.api.apps.v1.DeploymentSpec").expect("there");
        let strategy = &spec.properties["strategy"];
        assert_eq!(strategy.patch_strategy, ["retainKeys"]);
        assert_eq!(strategy.default, Some(serde_json::json!({})));
        assert!(strategy.properties.contains_key("rollingUpdate"));
        assert!(
            strategy
                .description
                .as_deref()
                .is_some_and(|text| text.starts_with("The deployment strategy"))
        );
    }
}
