//! Types of Go, said in Rust: structs, fields, markers as attributes.
//!
//! [`Types::print`] writes one declaration with its comment. Everything that a marker says about a schema becomes a
//! keyword in `#[schemars(extend(…))]`, which says it exactly; a closed set of texts becomes an enum. Invariants:
//! nothing of Go is left out without a note; a type that is not known is any value, and noted. Not here: kinds, whose
//! attributes are in [`super::kinds`]; fields ([`super::fields`]), keywords of schemas ([`super::keywords`]), and the
//! types that others name ([`super::named`]).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::checks::Wrong;
use super::circles::Circles;
use super::embedded::is_of_every_kind;
use super::go::{Decl, File, Type};
use super::keywords::add;
use super::markers::Marker;
use super::origin::Source;
use super::words::{docs, extend, type_name, variants};

/// A package of the project: its types, and where they stand in Rust.
pub(super) struct Package<'p> {
    /// The module in Rust: `crate::v1`.
    pub(super) module: String,
    /// The types, each with the file that declares it.
    pub(super) types: BTreeMap<String, (&'p Decl, &'p File)>,
    /// The types that write themselves, and whether as a text.
    pub(super) marshallers: BTreeMap<String, bool>,
    /// The texts that are constants of a type.
    pub(super) constants: BTreeMap<String, BTreeSet<String>>,
}

impl<'p> Package<'p> {
    pub(super) fn new(module: String) -> Package<'p> {
        Package {
            module,
            types: BTreeMap::new(),
            marshallers: BTreeMap::new(),
            constants: BTreeMap::new(),
        }
    }

    /// Adds the declarations of a file.
    pub(super) fn add(&mut self, source: &'p Source) {
        let types = source.file.types.iter();
        self.types
            .extend(types.map(|decl| (decl.name.clone(), (decl, &source.file))));
        self.add_values(source);
    }

    /// Which types have methods that write them, or constants.
    pub(super) fn add_values(&mut self, source: &Source) {
        for constant in &source.file.constants {
            if let Some(of) = &constant.of {
                let texts = self.constants.entry(of.clone()).or_default();
                texts.insert(constant.text.clone());
            }
        }
        for function in &source.file.functions {
            let Some(receiver) = &function.receiver else { continue };
            match function.name.as_str() {
                "MarshalJSON" => self.marshallers.insert(receiver.clone(), false),
                "MarshalText" => Some(*self.marshallers.entry(receiver.clone()).or_insert(true)),
                _ => None,
            };
        }
    }
}

/// The attributes before the type of a kind.
#[derive(Default)]
pub(super) struct Attributes {
    /// The type's name, when it is the kind itself: it has no `spec`, or more than that.
    pub(super) name: Option<String>,
    pub(super) derives: &'static str,
    pub(super) lines: String,
    /// The keywords of the kind's field of this type beside those of the type itself.
    pub(super) keywords: Vec<(String, Value)>,
}

/// All packages of a project, and the notes.
pub(super) struct Types<'p> {
    /// By the path that imports name.
    pub(super) packages: BTreeMap<String, Package<'p>>,
    pub(super) notes: BTreeSet<String>,
    /// What controller-gen or an API server would refuse.
    pub(super) wrong: BTreeSet<Wrong>,
    /// Types that contain themselves.
    pub(super) circles: Circles,
    /// The names given to structs that have none in Go: the package, and the name.
    pub(super) made: BTreeSet<(String, String)>,
}

/// A type in Rust.
pub(super) struct RustType {
    pub(super) text: String,
    /// Attributes that the field needs beside those of its markers.
    pub(super) schemars: Vec<String>,
    pub(super) has_default: bool,
}

impl RustType {
    pub(super) fn of(text: impl Into<String>) -> RustType {
        RustType {
            text: text.into(),
            schemars: Vec::new(),
            has_default: true,
        }
    }

    /// The list or map of it. Where the schema is that of another type, the schema of the whole is, too.
    pub(super) fn within(self, outer: impl Fn(&str) -> String) -> RustType {
        let other = |line: &String| Some(line.strip_prefix("with = \"")?.trim_end_matches('"').to_owned());
        let other = self.schemars.iter().find_map(other);
        let schemars = other.map(|ty| format!("with = \"{}\"", outer(&ty)));
        RustType {
            schemars: schemars.into_iter().collect(),
            ..RustType::of(outer(&self.text))
        }
    }
}

impl<'p> Types<'p> {
    pub(super) fn new(packages: BTreeMap<String, Package<'p>>) -> Types<'p> {
        let circles = Circles::of(&packages);
        let endless = circles.endless.iter().map(|((path, line), name)| {
            let why = format!("{name} contains itself, and Go refuses it (invalid recursive type)");
            (path.clone(), *line, why)
        });
        Types {
            wrong: endless.collect(),
            packages,
            notes: BTreeSet::new(),
            circles,
            made: BTreeSet::new(),
        }
    }

    pub(super) fn note(&mut self, note: String) {
        self.notes.insert(note);
    }

    /// A declaration as Rust. `kind` has the attributes of a kind before the item, and its name when it is the kind
    /// itself, without the fields that every kind has.
    pub(super) fn print(&mut self, path: &str, decl: &'p Decl, file: &'p File, kind: &Attributes) -> String {
        let name = kind.name.clone().unwrap_or_else(|| type_name(&decl.name));
        let mut out = docs(&decl.doc, "");
        if decl.is_generic {
            self.note(format!(
                "{}: generic types cannot be part of an API; write it by hand",
                decl.name
            ));
            return format!("// The generic type {} of Go was not carried over.\n\n", decl.name);
        }
        self.check(&decl.doc, None, file, decl.line);
        let mut keywords = self.of_declaration(decl);
        if decl
            .doc
            .markers
            .iter()
            .any(|marker| Marker::of(marker).name == "k8s:enum")
            && let Some(texts) = self
                .packages
                .get(path)
                .and_then(|package| package.constants.get(&decl.name))
        {
            keywords.push(("enum".to_owned(), texts.iter().cloned().collect::<Vec<_>>().into()));
        }
        let mut keywords = self.with_inherited(path, keywords, &decl.of, file);
        add(&mut keywords, kind.keywords.clone());
        if let (
            Type::Named {
                package: None,
                name: base,
            },
            [(key, Value::Array(values))],
        ) = (&decl.of, keywords.as_slice())
            && base == "string"
            && key == "enum"
            && let Some(variants) = variants(values)
        {
            let derives = "#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, \
                           Serialize, JsonSchema)]";
            out.push_str(&format!("{derives}\npub enum {name} {{\n"));
            for (at, (variant, text)) in variants.iter().enumerate() {
                let default = if at == 0 { "    #[default]\n" } else { "" };
                let rename = if variant == text {
                    String::new()
                } else {
                    format!("    #[serde(rename = {text:?})]\n")
                };
                out.push_str(&format!("{default}{rename}    {variant},\n"));
            }
            return out + "}\n\n";
        }
        let derives = ["Clone", "Debug", "PartialEq", "Deserialize", "Serialize", "JsonSchema"];
        let default = if self.has_default(path, &decl.of, file, 0) {
            "Default, "
        } else {
            ""
        };
        out.push_str(kind.derives);
        out.push_str(&format!("#[derive({default}{})]\n", derives.join(", ")));
        out.push_str(&kind.lines);
        if let Some(of) = self.marshalled(path, &decl.name, &keywords) {
            out.truncate(out.trim_end_matches('\n').len());
            let attribute = if keywords.is_empty() {
                String::new()
            } else {
                format!("#[schemars({})] ", extend(&keywords))
            };
            return out + &format!("\npub struct {name}({attribute}pub {of});\n\n");
        }
        match &decl.of {
            Type::Struct(fields) => {
                out.push_str("#[serde(rename_all = \"camelCase\")]\n");
                if !keywords.is_empty() {
                    out.push_str(&format!("#[schemars({})]\n", extend(&keywords)));
                }
                let mut nested = String::new();
                let mut around = self.around(path, &decl.of, file);
                out.push_str(&format!("pub struct {name} {{\n"));
                for field in fields
                    .iter()
                    .filter(|field| kind.name.is_none() || !is_of_every_kind(field))
                {
                    out.push_str(&self.field(path, &name, field, file, &mut nested, &mut around));
                }
                out + "}\n\n" + &nested
            }
            of => {
                let whole = format!("{} ({}:{})", decl.name, file.path, decl.line);
                let said = self.rust_type(path, of, file, &whole);
                let mut attributes = said.schemars;
                if self.closes(file, decl.line, &whole) {
                    attributes = vec!["with = \"serde_json::Value\"".to_owned()];
                }
                if !keywords.is_empty() {
                    attributes.push(extend(&keywords));
                }
                let attribute = if attributes.is_empty() {
                    String::new()
                } else {
                    format!("#[schemars({})] ", attributes.join(", "))
                };
                out + &format!("pub struct {name}({attribute}pub {});\n\n", said.text)
            }
        }
    }
}
