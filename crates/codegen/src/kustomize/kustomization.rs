//! A kustomization file as data, with a place for everything that may be wrong with it.

use kubewright_schema::decode;
use kubewright_schema::names::{dns1123_label, dns1123_subdomain};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::codes;
use crate::conflict;
use crate::diagnostic::{Diagnostic, Place};
use crate::outline::Outline;

/// The names that the file may have.
pub(super) const FILES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// The fields that are understood.
const KNOWN: [&str; 13] = [
    "apiVersion",
    "kind",
    "metadata",
    "namespace",
    "namePrefix",
    "resources",
    "components",
    "configurations",
    "patches",
    "labels",
    "images",
    "replacements",
    "sortOptions",
];

/// A kustomization.
#[derive(Debug, Default)]
pub(super) struct Kustomization {
    pub(super) is_component: bool,
    pub(super) namespace: String,
    pub(super) name_prefix: String,
    pub(super) resources: Vec<Entry<String>>,
    pub(super) components: Vec<Entry<String>>,
    pub(super) configurations: Vec<Entry<String>>,
    pub(super) patches: Vec<Entry<Patch>>,
    pub(super) labels: Vec<Entry<Labels>>,
    pub(super) images: Vec<Entry<Image>>,
    pub(super) replacements: Vec<Entry<Replacement>>,
}

/// An item of a list, and where it stands.
#[derive(Debug)]
pub(super) struct Entry<T> {
    pub(super) value: T,
    pub(super) place: Place,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Patch {
    pub(super) path: Option<String>,
    pub(super) patch: Option<String>,
    pub(super) target: Option<Selector>,
}

/// The target of a patch or replacement; an empty field is any. Names, kinds and namespaces of patches are regular
/// expressions.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Selector {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) label_selector: String,
    pub(super) annotation_selector: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Labels {
    #[serde(default)]
    pub(super) pairs: Map<String, Value>,
    #[serde(default)]
    pub(super) include_selectors: bool,
    #[serde(default)]
    pub(super) include_templates: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Image {
    pub(super) name: String,
    #[serde(default)]
    pub(super) new_name: Option<String>,
    #[serde(default)]
    pub(super) new_tag: Option<Value>,
    #[serde(default)]
    pub(super) digest: Option<String>,
}

/// Either a path to a file with replacements, or one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Replacement {
    pub(super) path: Option<String>,
    pub(super) source: Option<Source>,
    #[serde(default)]
    pub(super) targets: Vec<Target>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Source {
    #[serde(default)]
    pub(super) group: String,
    #[serde(default)]
    pub(super) version: String,
    #[serde(default)]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) namespace: String,
    #[serde(default)]
    pub(super) name: String,
    #[serde(default = "name_field")]
    pub(super) field_path: String,
    #[serde(default)]
    pub(super) options: Option<Options>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Target {
    pub(super) select: Selector,
    #[serde(default)]
    pub(super) reject: Vec<Selector>,
    #[serde(default)]
    pub(super) field_paths: Vec<String>,
    #[serde(default)]
    pub(super) options: Option<Options>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Options {
    pub(super) delimiter: String,
    pub(super) index: i64,
    pub(super) create: bool,
}

/// A file of configurations: where names and namespaces stand in kinds that kustomize does not know.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Configuration {
    pub(super) name_reference: Vec<NameReference>,
    pub(super) namespace: Vec<Field>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct NameReference {
    #[serde(default)]
    pub(super) group: String,
    #[serde(default)]
    pub(super) version: String,
    #[serde(default)]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) field_specs: Vec<Field>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Field {
    #[serde(default)]
    pub(super) group: String,
    #[serde(default)]
    pub(super) version: String,
    #[serde(default)]
    pub(super) kind: String,
    pub(super) path: String,
    #[serde(default)]
    pub(super) create: bool,
}

fn name_field() -> String {
    "metadata.name".to_owned()
}

pub(super) fn broken(place: Place, why: impl std::fmt::Display) -> Diagnostic {
    Diagnostic::new(codes::config::KUSTOMIZATION, "cannot render the kustomization")
        .at(place)
        .because(why)
        .fix("correct it, or take the file back from version control; nothing was written")
}

pub(super) fn unsupported(place: Place, what: impl std::fmt::Display) -> Diagnostic {
    Diagnostic::new(
        codes::config::UNSUPPORTED,
        "cannot render the kustomization without kustomize",
    )
    .at(place)
    .because(what)
    .fix("install kustomize 5, which is then asked, or say it with the fields that `kubewright explain KWR0600` lists")
}

/// Reads a YAML file of one document into `T`.
pub(super) fn read<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, Diagnostic> {
    let value = document(file, text)?;
    serde_json::from_value(value).map_err(|why| {
        let place = Place::file(file);
        if why.to_string().contains("unknown field") {
            unsupported(place, why)
        } else {
            broken(place, why)
        }
    })
}

fn document(file: &str, text: &str) -> Result<Value, Diagnostic> {
    let unread = |why| conflict::instead(broken(Place::file(file), why), file, text);
    let decoded = decode::yaml(text.as_bytes()).map_err(unread)?;
    match decoded.duplicates.first() {
        Some(twice) => Err(broken(Place::file(file), twice)),
        None => Ok(decoded.value),
    }
}

/// Reads a file while it knows the lines.
struct Reader<'a> {
    file: &'a str,
    outline: Option<Outline>,
    fields: Map<String, Value>,
}

impl Reader<'_> {
    fn place(&self, path: &[&str]) -> Place {
        let place = Place::file(self.file).field(path.join("."));
        match &self.outline {
            Some(outline) => place.line(outline.line_of(path)),
            None => place,
        }
    }

    fn namespace(&mut self) -> Result<String, Diagnostic> {
        let name = self.word("namespace")?;
        let why = (!name.is_empty())
            .then(|| dns1123_label(&name).into_iter().next())
            .flatten();
        match why {
            Some(why) => Err(broken(self.place(&["namespace"]), format!("{name:?}: {why}"))),
            None => Ok(name),
        }
    }

    /// A prefix of names, which must be one that a name may begin with.
    fn name_prefix(&mut self) -> Result<String, Diagnostic> {
        let prefix = self.word("namePrefix")?;
        match dns1123_subdomain(&format!("{prefix}x")).into_iter().next() {
            Some(why) => Err(broken(self.place(&["namePrefix"]), format!("{prefix:?}: {why}"))),
            None => Ok(prefix),
        }
    }

    fn word(&mut self, field: &str) -> Result<String, Diagnostic> {
        match self.fields.remove(field) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(word)) => Ok(word),
            Some(other) => Err(broken(self.place(&[field]), format!("{other} is not a text"))),
        }
    }

    fn list<T: DeserializeOwned>(&mut self, field: &str) -> Result<Vec<Entry<T>>, Diagnostic> {
        let items = match self.fields.remove(field) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => items,
            Some(_) => return Err(broken(self.place(&[field]), "the field is not a list")),
        };
        let entry = |(at, item): (usize, Value)| {
            let place = self.place(&[field, &at.to_string()]);
            match serde_json::from_value(item) {
                Ok(value) => Ok(Entry { value, place }),
                Err(why) if why.to_string().starts_with("unknown field") => Err(unsupported(place, why)),
                Err(why) => Err(broken(place, why)),
            }
        };
        items.into_iter().enumerate().map(entry).collect()
    }
}

impl Kustomization {
    /// Reads a kustomization.
    pub(super) fn parse(file: &str, text: &str) -> Result<Kustomization, Diagnostic> {
        let fields = match document(file, text)? {
            Value::Object(fields) if !fields.is_empty() => fields,
            Value::Object(_) | Value::Null => return Err(broken(Place::file(file), "the file is empty")),
            _ => return Err(broken(Place::file(file), "the file is not a YAML mapping")),
        };
        let mut reader = Reader {
            file,
            outline: Outline::of(text),
            fields,
        };
        if let Some(field) = reader.fields.keys().find(|field| !KNOWN.contains(&field.as_str())) {
            let place = reader.place(&[field]);
            return Err(unsupported(place, format!("the built-in renderer has no {field}")));
        }
        let is_component = match reader.word("kind")?.as_str() {
            "" | "Kustomization" => false,
            "Component" => true,
            other => return Err(broken(reader.place(&["kind"]), format!("the kind is {other}"))),
        };
        if let Some(options) = reader.fields.remove("sortOptions")
            && (options["order"] != "legacy" || !options["legacySortOptions"].is_null())
        {
            return Err(unsupported(
                reader.place(&["sortOptions"]),
                "the built-in renderer knows the order `legacy` only",
            ));
        }
        Ok(Kustomization {
            is_component,
            namespace: reader.namespace()?,
            name_prefix: reader.name_prefix()?,
            resources: reader.list("resources")?,
            components: reader.list("components")?,
            configurations: reader.list("configurations")?,
            patches: reader.list("patches")?,
            labels: reader.list("labels")?,
            images: reader.list("images")?,
            replacements: reader.list("replacements")?,
        })
    }
}
