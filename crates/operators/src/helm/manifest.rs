//! The objects of a release, read from its manifest.

use kubewright::kube::core::GroupVersionKind;
use serde_json::{Map, Value};

/// The annotation by which a chart says that an object stays when its release goes.
const POLICY: &str = "helm.sh/resource-policy";

/// An object that a chart makes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part(pub(super) Map<String, Value>);

impl Part {
    fn text(&self, pointer: &[&str]) -> Option<&str> {
        let (first, rest) = pointer.split_first()?;
        let mut value = self.0.get(*first)?;
        for name in rest {
            value = value.get(name)?;
        }
        value.as_str().filter(|text| !text.is_empty())
    }

    pub(super) fn kind(&self) -> GroupVersionKind {
        let version = self.text(&["apiVersion"]).unwrap_or_default();
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        GroupVersionKind::gvk(group, version, self.text(&["kind"]).unwrap_or_default())
    }

    pub(super) fn name(&self) -> &str {
        self.text(&["metadata", "name"]).unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> Option<&str> {
        self.text(&["metadata", "namespace"])
    }

    /// Whether it stays when its release goes.
    pub(super) fn is_kept(&self) -> bool {
        let policy = self.text(&["metadata", "annotations", POLICY]);
        policy.is_some_and(|policy| policy.trim().eq_ignore_ascii_case("keep"))
    }

    /// In words.
    pub(super) fn shown(&self) -> String {
        match self.namespace() {
            Some(namespace) => format!("{} {namespace}/{}", self.kind().kind, self.name()),
            None => format!("{} {}", self.kind().kind, self.name()),
        }
    }

    pub(super) fn metadata(&mut self) -> &mut Map<String, Value> {
        object(&mut self.0, "metadata")
    }
}

/// The map in a field, which is made where there is none.
pub(super) fn object<'a>(of: &'a mut Map<String, Value>, field: &str) -> &'a mut Map<String, Value> {
    let value = of.entry(field.to_owned()).or_insert(Value::Null);
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("it was made an object above"),
    }
}

/// The objects of a manifest; those of a `List` one by one.
///
/// # Errors
/// When a document is not YAML or is no object.
pub(super) fn parts(manifest: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    for document in documents(manifest) {
        let read = kubewright_schema::decode::yaml(document.as_bytes()).map_err(|why| why.to_string())?;
        match read.value {
            Value::Null => {}
            Value::Object(fields) => add(Part(fields), &mut parts)?,
            _ => return Err("a document of the manifest is no object".to_owned()),
        }
    }
    Ok(parts)
}

fn add(part: Part, parts: &mut Vec<Part>) -> Result<(), String> {
    let kind = part.kind();
    if kind.kind.is_empty() || kind.version.is_empty() {
        return Err("an object of the manifest says no apiVersion and kind".to_owned());
    }
    if !kind.kind.ends_with("List") || !part.0.get("items").is_some_and(Value::is_array) {
        parts.push(part);
        return Ok(());
    }
    let Some(Value::Array(items)) = part.0.get("items").cloned() else {
        return Ok(());
    };
    for item in items {
        match item {
            Value::Object(fields) => add(Part(fields), parts)?,
            _ => return Err(format!("an item of a {} is no object", kind.kind)),
        }
    }
    Ok(())
}

/// The documents of a text. A line that begins with `---` is a border, as Helm's `SplitManifests` has it.
fn documents(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("---") {
            documents.push(String::new());
            // Content may follow the border.
            if !rest.trim().is_empty() && !rest.trim_start().starts_with('#') {
                documents.push(format!("{rest}\n"));
            }
            continue;
        }
        if let Some(last) = documents.last_mut() {
            last.push_str(line);
            last.push('\n');
        }
    }
    documents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_a_manifest() {
        let text = "---\n# Source: a\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, namespace: ns}\n---\n---\n# nothing\n\
                    ---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: s, annotations: {helm.sh/resource-policy: ' Keep'}}}\n\
                    - {apiVersion: v1, kind: ConfigMap, metadata: {name: c}}\n";
        let parts = parts(text).expect("it is a manifest");
        let shown: Vec<String> = parts.iter().map(Part::shown).collect();
        assert_eq!(shown, ["Deployment ns/d", "Secret s", "ConfigMap c"]);
        assert_eq!(parts[0].kind(), GroupVersionKind::gvk("apps", "v1", "Deployment"));
        assert_eq!([parts[0].is_kept(), parts[1].is_kept()], [false, true]);
    }

    #[test]
    fn what_is_no_manifest() {
        let check = |text: &str, why: &str| {
            let told = parts(text).expect_err(text);
            assert!(told.contains(why), "{text}: {told}");
        };
        check("a: [", "yaml: ");
        check("- a\n", "no object");
        check("a: b\n", "no apiVersion and kind");
        assert_eq!(parts("").map(|parts| parts.len()), Ok(0));
    }
}
