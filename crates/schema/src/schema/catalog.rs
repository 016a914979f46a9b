//! The schemas of Kubernetes' built-in types, from the committed text of its published OpenAPI.
//!
//! The text is one line `name<TAB>json` for each different text of a definition, sorted by name. An index of short lines
//! beside it says which versions of Kubernetes have which text ([`Minor`]): `name<TAB>since..until<TAB>offset length`, a
//! line for each run of versions in which the definition, and all that it refers to, is the same. Looking a name up is a
//! binary search over the bytes of the index; only the definition that is found is parsed, once for all versions of its
//! line, on first use, and kept. So starting costs nothing, and an unused kind costs no memory of its own.
//!
//! Invariants, held by tests: the lines are sorted; the index fits the text; every `$ref` points at a line; every kind
//! has one definition. Where the text comes from is in `data/NOTICE.md`; `cargo xtask generate` writes it.
//!
//! Not here: custom resources. Their schemas come from [`SchemaRef::from_crd`].

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use kubewright_values::Minor;
use serde_json::Value;

use super::inner_defaults::without_inner_defaults;
use super::{Schema, SchemaRef, parse};
use crate::budget;

/// The definitions of all versions.
static TEXT: &str = include_str!("../../data/kubernetes.jsonl");

/// Where the JSON of each definition is in the text.
static INDEX: &str = include_str!("../../data/kubernetes.index");

/// `group/version/kind<TAB>name` a line, sorted. A version has the kinds whose definitions it has.
static KINDS: &str = include_str!("../../data/kubernetes.kinds");

/// The definitions of one version of Kubernetes.
///
/// ```
/// use kubewright_schema::{Minor, catalog};
///
/// let migrations = |minor| catalog::of(minor).for_kind("storagemigration.k8s.io", "v1", "StorageVersionMigration");
/// assert!(migrations(Minor::V36).is_none() && migrations(Minor::V37).is_some());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Catalog(Minor);

/// The definitions of this version. The functions of this module, which have no version, are about the default one.
pub fn of(minor: Minor) -> Catalog {
    Catalog(minor)
}

impl Catalog {
    /// The schema of a definition by its full name.
    pub fn definition(self, name: &str) -> Option<SchemaRef> {
        self.entry(name)
            .map(|entry| SchemaRef::named(entry.name, entry.since, None))
    }

    /// The schema of a kind. The core group is the empty string.
    pub fn for_kind(self, group: &str, version: &str, kind: &str) -> Option<SchemaRef> {
        self.definition(self.name_for_kind(group, version, kind)?)
    }

    /// The name of the definition of a kind.
    pub fn name_for_kind(self, group: &str, version: &str, kind: &str) -> Option<&'static str> {
        let (_, name) = lines(KINDS, &format!("{group}/{version}/{kind}")).next()?;
        Some(self.entry(name)?.name)
    }

    /// The JSON text of a definition as kube-apiserver publishes it.
    pub fn raw(self, name: &str) -> Option<Cow<'static, str>> {
        let text = self.entry(name)?.text()?;
        if self.0 < Minor::V37 {
            return Some(text.into());
        }
        let value = serde_json::from_str(text).ok()?;
        Some(without_inner_defaults(value).to_string().into())
    }

    /// The names of all definitions, sorted.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let entries = INDEX.lines().filter_map(|line| line.split_once('\t'));
        let entries = entries.filter_map(|(name, rest)| Entry::of(name, rest));
        entries.filter(move |entry| entry.is_in(self.0)).map(|entry| entry.name)
    }

    /// The name as it stands in the text, which lives as long as the program.
    pub(crate) fn static_name(self, name: &str) -> Option<&'static str> {
        self.entry(name).map(|entry| entry.name)
    }

    fn entry(self, name: &str) -> Option<Entry> {
        let mut entries = lines(INDEX, name).filter_map(|(name, rest)| Entry::of(name, rest));
        entries.find(|entry| entry.is_in(self.0))
    }
}

/// A line of the index.
#[derive(Clone, Copy)]
struct Entry {
    /// As it stands in the text, which lives as long as the program.
    name: &'static str,
    /// The first version that has it, which stands for all of them.
    since: Minor,
    until: u32,
    place: &'static str,
}

impl Entry {
    fn of(name: &'static str, rest: &'static str) -> Option<Entry> {
        let (versions, place) = rest.split_once('\t')?;
        let (since, until) = versions.split_once("..")?;
        let since: u32 = since.parse().ok()?;
        Some(Entry {
            name,
            since: Minor::ALL.into_iter().find(|minor| minor.number() == since)?,
            until: until.parse().ok()?,
            place,
        })
    }

    fn is_in(&self, minor: Minor) -> bool {
        self.since <= minor && minor.number() <= self.until
    }

    fn text(&self) -> Option<&'static str> {
        let (offset, length) = self.place.split_once(' ')?;
        let (offset, length): (usize, usize) = (offset.parse().ok()?, length.parse().ok()?);
        TEXT.get(offset..offset.checked_add(length)?)
    }
}

/// The schema of a definition by its full name, such as `io.k8s.api.apps.v1.Deployment`.
///
/// ```
/// let deployment = kubewright_schema::catalog::definition("io.k8s.api.apps.v1.Deployment").expect("built in");
/// let containers = &deployment.properties["spec"].properties["template"].properties["spec"].properties["containers"];
/// assert_eq!(containers.patch_merge_key.as_deref(), Some("name"));
/// ```
pub fn definition(name: &str) -> Option<SchemaRef> {
    of(Minor::default()).definition(name)
}

/// The schema of the metadata of every object, which is asked for so often that it is looked up once only. It is the
/// same in all versions.
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
    of(Minor::default()).for_kind(group, version, kind)
}

/// The name of the definition of a kind, such as `io.k8s.api.core.v1.Pod` for `("", "v1", "Pod")`.
///
/// Types that every group serves (`DeleteOptions`, `WatchEvent`) are under the core group and `v1` alone.
pub fn name_for_kind(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    of(Minor::default()).name_for_kind(group, version, kind)
}

/// The JSON text of a definition as kube-apiserver publishes it in `components.schemas`, with references as
/// `#/components/schemas/NAME`.
pub fn raw(name: &str) -> Option<Cow<'static, str>> {
    of(Minor::default()).raw(name)
}

/// The names of all definitions, sorted.
pub fn names() -> impl Iterator<Item = &'static str> {
    of(Minor::default()).names()
}

/// The parsed definition, kept after the first call.
pub(crate) fn schema(name: &str, minor: Minor) -> Option<Arc<Schema>> {
    /// By name and first version.
    type Parsed = BTreeMap<(&'static str, Minor), Arc<Schema>>;
    static PARSED: LazyLock<Mutex<Parsed>> = LazyLock::new(Mutex::default);
    let entry = of(minor).entry(name)?;
    let key = (entry.name, entry.since);
    // The map only ever grows by whole entries: after a panic elsewhere it is as good as before.
    if let Some(found) = PARSED.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return Some(Arc::clone(found));
    }
    let text: Value =
        serde_json::from_str(entry.text()?).expect("the catalog is generated JSON: its test parses every line");
    let schema = Arc::new(parse::definition(entry.name, entry.since, &text));
    // The first schema stays, so that equal names are the same schema.
    Some(Arc::clone(
        PARSED
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(key)
            .or_insert(schema),
    ))
}

/// The lines whose part before the first tab is `key`, both parts of each.
fn lines(text: &'static str, key: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = text.get(first(text, key)..).unwrap_or_default().lines();
    let lines = lines.filter_map(|line| line.split_once('\t'));
    lines.take_while(move |(name, _)| *name == key)
}

/// Binary search for the first line whose part before the tab is not below `key`.
fn first(text: &str, key: &str) -> usize {
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
        match text[start..end].split('\t').next().unwrap_or_default() < key {
            true => low = end + 1,
            false => high = start,
        }
    }
    low
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
        let mut last = "";
        for line in TEXT.lines() {
            let (name, _) = line.split_once('\t').expect("two columns");
            assert!(last <= name, "{last} comes before {name}");
            last = name;
        }
        for minor in Minor::ALL {
            let (mut count, mut last) = (0, "");
            for name in of(minor).names() {
                assert!(last < name, "{last} comes before {name}");
                last = name;
                count += 1;
                let raw = of(minor).raw(name).expect("found by its name");
                let entry = of(minor).entry(name).expect("found by its name");
                let line = format!("{name}\t{}", entry.text().expect("in the text"));
                assert!(TEXT.lines().any(|one| one == line), "{name}");
                let text: Value = serde_json::from_str(&raw).expect("JSON");
                let mut targets = Vec::new();
                references(&text, &mut targets);
                for target in targets {
                    let target = of(minor)
                        .entry(&target)
                        .unwrap_or_else(|| panic!("{name} refers to {target}"));
                    // Who follows a reference from the first version of a line gets to what the others refer to.
                    assert!(target.is_in(entry.since) && target.until >= entry.until, "{name}");
                }
                assert_eq!(of(minor).definition(name).expect("found").name, Some(name));
            }
            assert!(count > 500, "{count} definitions");
        }
    }

    #[test]
    fn some_definitions_are_the_same_in_all_versions() {
        let props = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
        for name in ["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", props] {
            let schemas = Minor::ALL.map(|minor| of(minor).definition(name).expect("there"));
            assert!(schemas.iter().all(|one| one.same(&schemas[0])), "{name}");
        }
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
            let has = |minor: &Minor| of(*minor).name_for_kind(group, version, kind) == Some(name);
            assert!(Minor::ALL.iter().any(has), "{line}");
            for minor in Minor::ALL.into_iter().filter(has) {
                let schema = of(minor).for_kind(group, version, kind).expect("found");
                assert!(
                    schema.gvks.iter().any(|gvk| gvk.kind == kind && gvk.group == group),
                    "{line}"
                );
            }
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
            assert!(
                Minor::ALL.iter().all(|minor| of(*minor).definition(name).is_none()),
                "{name:?}"
            );
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
