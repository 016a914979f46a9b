//! The Rust for a type that a field or another type names, and whether it has a default.

use super::go::{Decl, File, Type};
use super::kubernetes;
use super::types::{RustType, Types};
use super::words::{is_byte, optional, type_name};

/// How deep the search for a default follows types.
const DEPTH: usize = 12;

impl<'p> Types<'p> {
    pub(super) fn rust_type(&mut self, path: &str, of: &Type, file: &File, whole: &str) -> RustType {
        match of {
            Type::Pointer(inner) => self.rust_type(path, inner, file, whole),
            Type::List(inner) if is_byte(inner) => RustType {
                schemars: vec![
                    "with = \"String\"".to_owned(),
                    "extend(\"format\" = \"byte\")".to_owned(),
                ],
                ..RustType::of("k8s_openapi::ByteString")
            },
            Type::List(inner) | Type::Array(inner) => {
                let bytes = matches!(&**inner, Type::List(inner) if is_byte(inner));
                let inner = self.rust_type(path, inner, file, whole);
                if !bytes {
                    return inner.within(|ty| format!("Vec<{ty}>"));
                }
                RustType {
                    schemars: vec!["extend(\"items:format\" = \"byte\")".to_owned()],
                    ..RustType::of("Vec<String>")
                }
            }
            Type::Map(_, inner) => {
                let bytes = matches!(&**inner, Type::List(inner) if is_byte(inner));
                let inner = self.rust_type(path, inner, file, whole);
                let map = |ty: &str| format!("std::collections::BTreeMap<String, {ty}>");
                if !bytes {
                    return inner.within(map);
                }
                // Bytes have no schema of their own; this one says base64 in each value.
                let schema = "{\"type\": \"string\", \"format\": \"byte\"}";
                RustType {
                    schemars: vec![
                        format!("with = \"{}\"", map("String")),
                        format!("extend(\"additionalProperties\" = {schema})"),
                    ],
                    ..RustType::of(map(&inner.text))
                }
            }
            Type::Named { package: None, name } => self.local(path, name, whole),
            Type::Named {
                package: Some(package),
                name,
            } => match file.imports.get(package).cloned() {
                Some(import) => self.foreign(&import, name, whole),
                None => self.any(
                    whole,
                    &format!("{package}.{name}, whose package is not imported under its own name"),
                ),
            },
            Type::Struct(_) => self.any(whole, "a struct without a name in a list or map"),
            Type::Other(what) => self.any(whole, what),
        }
    }

    /// The type of a map's keys, if it is not a text.
    pub(super) fn key_that_is_no_text(&self, path: &str, of: &Type, file: &File) -> Option<String> {
        match of {
            Type::Pointer(inner) | Type::List(inner) | Type::Array(inner) => {
                self.key_that_is_no_text(path, inner, file)
            }
            Type::Map(key, value) => {
                let no_text = self.no_text(path, key, file, 0);
                no_text.or_else(|| self.key_that_is_no_text(path, value, file))
            }
            _ => None,
        }
    }

    fn no_text(&self, path: &str, of: &Type, file: &File, depth: usize) -> Option<String> {
        let Type::Named { package, name } = of else {
            return Some("a type without a name".to_owned());
        };
        match self.declared(path, of, file) {
            Some((path, decl, file)) if depth < DEPTH => self.no_text(&path, &decl.of, file, depth + 1),
            Some(_) => None,
            // A type of another module, or Go's own.
            None => (package.is_none() && name != "string").then(|| name.clone()),
        }
    }

    fn any(&mut self, whole: &str, what: &str) -> RustType {
        self.note(format!("{whole}: {what} is any value in Rust; give it a type"));
        RustType::of("serde_json::Value")
    }

    fn local(&mut self, path: &str, name: &str, whole: &str) -> RustType {
        let builtin = match name {
            "string" => "String",
            "bool" => "bool",
            "int" => "isize",
            "int8" => "i8",
            "int16" => "i16",
            "int32" | "rune" => "i32",
            "int64" => "i64",
            "uint" => "usize",
            "uint8" | "byte" => "u8",
            "uint16" => "u16",
            "uint32" => "u32",
            "uint64" => "u64",
            "float32" => "f32",
            "float64" => "f64",
            "any" => "serde_json::Value",
            _ => "",
        };
        let declared = self.packages.get(path).and_then(|package| package.types.get(name));
        match declared.map(|(decl, _)| *decl) {
            Some(decl) if decl.is_generic => return self.any(whole, &format!("{name}, which is generic,")),
            Some(Decl {
                of: Type::Other(what), ..
            }) => return self.any(whole, &format!("{name} ({what})")),
            Some(_) => return RustType::of(type_name(name)),
            None => {}
        }
        if ["complex64", "complex128", "uintptr", "error"].contains(&name) {
            return self.any(whole, &format!("{name}, which JSON does not have,"));
        }
        if builtin.is_empty() {
            // Of a package of Kubernetes, only types that its published API does not have are carried over.
            if let Some(said) = kubernetes::known(path, name) {
                return said;
            }
            return self.any(whole, &format!("{name}, which is not declared in its package"));
        }
        RustType::of(builtin)
    }

    fn foreign(&mut self, import: &str, name: &str, whole: &str) -> RustType {
        let known = kubernetes::known(import, name);
        if let Some(said) = known.filter(|_| !kubernetes::is_unpublished(import, name)) {
            return said;
        }
        if let Some(said) = self.carried(import, name) {
            return said;
        }
        if let Some(said) = kubernetes::known(import, name) {
            return said;
        }
        if !import.starts_with("k8s.io/") {
            return self.any(whole, &format!("{name} of {import}, which is no part of the project,"));
        }
        self.any(whole, &format!("{name} of {import}"))
    }

    /// A type of another package that was carried over.
    pub(super) fn carried(&self, import: &str, name: &str) -> Option<RustType> {
        let package = self.packages.get(import)?;
        let (decl, _) = package.types.get(name)?;
        let is_there = !decl.is_generic && !matches!(decl.of, Type::Other(_));
        is_there.then(|| RustType::of(format!("{}::{}", package.module, type_name(name))))
    }

    /// Whether the type that the field gets has a default.
    pub(super) fn has_default(&mut self, path: &str, of: &Type, file: &File, depth: usize) -> bool {
        if depth > DEPTH {
            return false;
        }
        match of {
            Type::Pointer(_) | Type::List(_) | Type::Array(_) | Type::Map(..) | Type::Other(_) => true,
            Type::Struct(fields) => fields.iter().all(|field| {
                let tag = field.json.as_deref().unwrap_or("");
                let omit = tag.contains(",omitempty") || tag.contains(",omitzero");
                let is_part = field.name.is_none() || tag.contains(",inline");
                tag == "-"
                    || (!is_part && optional(&field.doc.markers, &file.doc.markers, omit))
                    || self.has_default(path, &field.of, file, depth + 1)
            }),
            Type::Named { package, name } => match self.declared(path, of, file) {
                Some((path, decl, file)) => self.has_default(&path, &decl.of, file, depth + 1),
                None => {
                    let import = package.as_ref().and_then(|package| file.imports.get(package));
                    let known = import.and_then(|import| kubernetes::known(import, name));
                    known.is_none_or(|said| said.has_default)
                }
            },
        }
    }
}
