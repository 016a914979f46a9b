//! Kinds: the root types of Go, whose markers become `#[kube(…)]` on the type of their spec.

use serde_json::Value;

use super::go::{Decl, Field, File, Type};
use super::markers::Marker;
use super::types::Attributes;
use super::words::{docs, extend, optional, said, type_name, word, words};
use crate::project::Resource;

/// A root type: `type Guestbook struct { TypeMeta; ObjectMeta; Spec; Status }`.
pub(super) struct Root<'p> {
    pub(super) decl: &'p Decl,
    /// The type of its spec; none when it has no spec, or something beside it: then the whole is one type in Rust.
    pub(super) spec: Option<&'p str>,
    /// Whether the spec may be left out.
    is_optional: bool,
    /// Whether the metadata may be left out, as they may unless Go's tag forgets `omitempty`.
    has_optional_metadata: bool,
    pub(super) status: Option<&'p str>,
    /// The fields of spec and status, which may say something beside their types.
    pub(super) fields: [Option<&'p Field>; 2],
}

/// The root type of a declaration, if it is one that can be said in Rust.
///
/// # Errors
/// Why not, in words.
pub(super) fn root<'p>(decl: &'p Decl, file: &File) -> Result<Root<'p>, String> {
    let Type::Struct(fields) = &decl.of else {
        return Err(format!("{} is not a struct", decl.name));
    };
    let local = |field: &'p Field| match &field.of {
        Type::Named { package: None, name } => Some(name.as_str()),
        Type::Pointer(inner) => match &**inner {
            Type::Named { package: None, name } => Some(name.as_str()),
            _ => None,
        },
        _ => None,
    };
    let json = |field: &Field| {
        field
            .json
            .as_deref()
            .unwrap_or_default()
            .split(',')
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let (mut spec, mut status, mut is_optional, mut is_whole) = (None, None, false, false);
    let mut said = [None, None];
    for field in fields.iter().filter(|field| field.name.is_some()) {
        match (json(field).as_str(), local(field)) {
            ("spec", Some(name)) => {
                let tag = field.json.as_deref().unwrap_or_default();
                let omit = tag.contains(",omitempty") || tag.contains(",omitzero");
                is_optional = optional(&field.doc.markers, &file.doc.markers, omit);
                (spec, said[0]) = (Some(name), Some(field));
            }
            ("status", Some(name)) => (status, said[1]) = (Some(name), Some(field)),
            ("metadata", _) => {}
            ("status", None) => {
                return Err(format!("{} has a status of another package", decl.name));
            }
            _ => is_whole = true,
        }
    }
    let spec = spec.filter(|_| !is_whole);
    let omits = |field: &Field| {
        let tag = field.json.as_deref().unwrap_or_default();
        optional(
            &field.doc.markers,
            &file.doc.markers,
            tag.contains(",omitempty") || tag.contains(",omitzero"),
        )
    };
    let metadata = fields.iter().find(|field| json(field) == "metadata");
    Ok(Root {
        decl,
        spec,
        is_optional,
        has_optional_metadata: metadata.is_none_or(omits),
        status,
        fields: said,
    })
}

impl Root<'_> {
    /// The attributes of the type of the spec, or of the whole. `is_stored`: whether this version is the stored one.
    pub(super) fn attributes(&self, resource: &Resource, is_stored: bool) -> Attributes {
        let kind = &resource.kind;
        let mut lines = vec![
            format!("group = {:?}", resource.full_group()),
            format!("version = {:?}", resource.version),
            format!("kind = {kind:?}"),
        ];
        if type_name(kind) != *kind {
            lines.push(format!("root = {:?}", type_name(kind)));
        }
        let mut plural = resource.plural();
        let mut is_namespaced = true;
        let mut more = Vec::new();
        for marker in &self.decl.doc.markers {
            let of = |name: &str| Marker::arguments(marker, &format!("kubebuilder:{name}"));
            if let Some(said) = of("resource") {
                plural = word(&said, "path").unwrap_or(plural);
                is_namespaced = word(&said, "scope").is_none_or(|scope| scope != "Cluster");
                more.extend(
                    words(&said, "shortName")
                        .iter()
                        .map(|name| format!("shortname = {name:?}")),
                );
                more.extend(
                    words(&said, "categories")
                        .iter()
                        .map(|name| format!("category = {name:?}")),
                );
                more.extend(word(&said, "singular").map(|name| format!("singular = {name:?}")));
            } else if let Some(said) = of("printcolumn") {
                let mut parts = Vec::new();
                for (key, name) in [
                    ("name", "name"),
                    ("type", "type_"),
                    ("JSONPath", "json_path"),
                    ("description", "description"),
                    ("format", "format"),
                ] {
                    // controller-gen leaves out empty values.
                    let text = word(&said, key).filter(|text| !text.is_empty());
                    parts.extend(text.map(|text| format!("{name} = {text:?}")));
                }
                parts.extend(
                    word(&said, "priority")
                        .filter(|at| at != "0")
                        .map(|at| format!("priority = {at}")),
                );
                more.push(format!("printcolumn({})", parts.join(", ")));
            } else if let Some(said) = of("subresource:scale") {
                let mut parts = Vec::new();
                for (key, name) in [
                    ("specpath", "spec_replicas_path"),
                    ("statuspath", "status_replicas_path"),
                    ("selectorpath", "label_selector_path"),
                ] {
                    parts.extend(word(&said, key).map(|text| format!("{name} = {text:?}")));
                }
                // Of several, the last one holds.
                more.retain(|line: &String| !line.starts_with("scale("));
                more.push(format!("scale({})", parts.join(", ")));
            } else if let Some(said) = of("selectablefield") {
                more.extend(word(&said, "JSONPath").map(|path| format!("selectable = {path:?}")));
            } else if of("unservedversion").is_some() {
                more.push("served = false".to_owned());
            } else if let Some(said) = of("deprecatedversion") {
                more.push(
                    word(&said, "warning").map_or("deprecated".to_owned(), |text| format!("deprecated = {text:?}")),
                );
            } else if let Some(said) = of("metadata") {
                for (key, name) in [("annotations", "annotation"), ("labels", "label")] {
                    let pairs = words(&said, key);
                    let pairs = pairs.iter().filter_map(|pair| pair.split_once('='));
                    more.extend(pairs.map(|(key, value)| format!("{name}({key:?}, {value:?})")));
                }
            }
        }
        lines.push(format!("plural = {plural:?}"));
        if is_namespaced {
            lines.push("namespaced".to_owned());
        }
        if let Some(status) = self.status.filter(|_| self.has_marker("subresource:status")) {
            lines.push(format!("status = {:?}", type_name(status)));
        }
        if !is_stored {
            lines.push("storage = false".to_owned());
        }
        lines.extend(more);
        lines.push("derive = \"PartialEq\"".to_owned());
        let doc = docs(&self.decl.doc, "");
        let doc: Vec<&str> = doc.lines().map(|line| line.trim_start_matches("///").trim()).collect();
        if !doc.is_empty() {
            lines.push(format!("doc = {:?}", doc.join("\n")));
        }
        if self.spec.is_none() {
            lines.push("no_spec".to_owned());
        }
        let mut attributes = Attributes {
            name: self.spec.is_none().then(|| format!("{}Fields", type_name(kind))),
            derives: "#[derive(CustomResource)]\n",
            lines: format!("#[kube(\n    {}\n)]\n", lines.join(",\n    ")),
            keywords: Vec::new(),
        };
        if self.spec.is_none() {
            return attributes;
        }
        let mut words = Vec::new();
        if self.is_optional || !self.has_optional_metadata {
            let metadata = (!self.has_optional_metadata).then_some("metadata");
            let required = metadata.into_iter().chain((!self.is_optional).then_some("spec"));
            words.push(("root:required".to_owned(), required.map(Value::from).collect()));
        }
        let of = |name: &str| {
            let markers = self.decl.doc.markers.iter();
            let found: Vec<Value> = markers
                .filter_map(|marker| Marker::arguments(marker, name))
                .map(Value::from)
                .collect();
            found
        };
        let rules = of("kubebuilder:validation:XValidation");
        if !rules.is_empty() {
            words.push(("root:x-kubernetes-validations".to_owned(), rules.into()));
        }
        words.extend(
            of("kubebuilder:externalDocs")
                .pop()
                .map(|docs| ("root:externalDocs".to_owned(), docs)),
        );
        if !words.is_empty() {
            attributes.lines.push_str(&format!("#[schemars({})]\n", extend(&words)));
        }
        attributes
    }

    /// Whether it has a marker, with or without a value.
    pub(super) fn has_marker(&self, name: &str) -> bool {
        let has = |marker: &String| {
            Marker::of(marker).name.strip_prefix("kubebuilder:") == Some(name) && said(marker) != "false"
        };
        self.decl.doc.markers.iter().any(has)
    }

    /// Whether the status has no subresource, which kube cannot say.
    pub(super) fn has_plain_status(&self) -> bool {
        self.status.is_some() && !self.has_marker("subresource:status")
    }
}
