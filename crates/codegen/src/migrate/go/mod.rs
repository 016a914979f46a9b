//! Declarations of Go: packages, imports, types, constants and functions, with their comments. Bodies of functions are
//! skipped.
//!
//! [`parse`] reads one file by the grammar of the language's specification, as far as declarations go. Invariants: each
//! declaration has its line; a text that is not Go is an error with its line, never a guess; nesting is bounded by
//! [`DEPTH`]. Inside: `lexer`, `parser`, `tags`. Not here: the meaning of the types ([`super::types`]).

use std::collections::BTreeMap;

mod lexer;
mod parser;
mod tags;

#[cfg(test)]
mod tests;

pub(super) use parser::parse;

/// How deep types may nest; far more than any API has.
const DEPTH: usize = 64;

/// A file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct File {
    /// Where it is; set by its reader.
    pub(super) path: String,
    /// The line of `package`.
    pub(super) line: usize,
    pub(super) package: String,
    /// The comment before `package`.
    pub(super) doc: Doc,
    /// Name in the file, and path.
    pub(super) imports: BTreeMap<String, String>,
    /// All comment lines that begin with `+`, wherever they stand: markers of the package.
    pub(super) markers: Vec<String>,
    pub(super) types: Vec<Decl>,
    pub(super) constants: Vec<Constant>,
    /// The number of constants of each type, with any values.
    pub(super) counted: BTreeMap<String, usize>,
    pub(super) functions: Vec<Function>,
    /// Struct tags in which Go finds no `json`, although they have the word: the line and the reason.
    pub(super) wrong_tags: Vec<(usize, String)>,
}

/// The comment before a declaration.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Doc {
    /// The comment's lines that are no markers, as `go doc` shows them.
    pub(super) text: Vec<String>,
    /// The markers, without their `+`.
    pub(super) markers: Vec<String>,
}

impl Doc {
    /// Whether a marker empties the schema.
    pub(super) fn is_schemaless(&self) -> bool {
        self.markers
            .iter()
            .any(|marker| marker.contains("validation:Schemaless"))
    }
}

/// `type Name …`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Decl {
    pub(super) name: String,
    pub(super) of: Type,
    pub(super) is_generic: bool,
    pub(super) doc: Doc,
    pub(super) line: usize,
}

/// A constant with a type and a text: `const Low Level = "low"`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Constant {
    pub(super) name: String,
    pub(super) of: Option<String>,
    pub(super) text: String,
}

/// A function or method.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Function {
    pub(super) name: String,
    /// The type that it is a method of.
    pub(super) receiver: Option<String>,
    pub(super) doc: Doc,
    /// The bytes from `func` to the closing brace.
    pub(super) span: std::ops::Range<usize>,
}

/// A type, as written.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    Named {
        package: Option<String>,
        name: String,
    },
    Pointer(Box<Type>),
    List(Box<Type>),
    /// With a length, which no schema expresses.
    Array(Box<Type>),
    Map(Box<Type>, Box<Type>),
    Struct(Vec<Field>),
    /// Functions, channels, interfaces, generic types: no API has them.
    Other(&'static str),
}

impl Type {
    /// The type behind all pointers.
    pub(super) fn pointee(&self) -> &Type {
        match self {
            Type::Pointer(inner) => inner.pointee(),
            of => of,
        }
    }
}

/// A field of a struct.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    /// None for an embedded type.
    pub(super) name: Option<String>,
    pub(super) of: Type,
    /// The tag `json`.
    pub(super) json: Option<String>,
    pub(super) doc: Doc,
    pub(super) line: usize,
}

impl Field {
    /// The name in the tag `json`, which is empty where the tag has only options.
    pub(super) fn json_name(&self) -> Option<&str> {
        self.json.as_deref()?.split(',').next()
    }
}
