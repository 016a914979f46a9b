//! From a field of a schema to the line of Rust that says it.
//!
//! The project's sources are read when the first place is asked for: structs and enums by name, with the file they
//! stand in. A path such as `spec.rules[].port` is walked from the type behind the kind (`#[kube(kind = "…")]`) through
//! the types of fields, by the names that serde gives them. A type that cannot be followed (a macro, a type of another
//! crate) ends the walk at the last known place. A place may be a good guess (the nearest type of that name); rules of
//! fields ([`Sources::words`]) are answered only when `scope.rs` is certain of every type on the way.

use std::cell::OnceCell;

use proc_macro2::Span;
use syn::spanned::Spanned as _;
use syn::{Attribute, Data, Expr, Field, Fields, GenericArgument, Lit, Meta, PathArguments, Token, Type};

use crate::diagnostic::Place;
use crate::plan::Files;

use super::scope::{Found, Scopes};

/// How many fields a walk passes at most: types may contain themselves.
const MAX_STEPS: usize = 64;

/// The Rust sources of a project.
pub(super) struct Sources<'a> {
    files: &'a dyn Files,
    scopes: OnceCell<Scopes>,
}

/// How far a walk came: the type that it stands at, the field that led there, and whether every type on the way is
/// certain.
struct Walk<'s> {
    at: Option<&'s Found>,
    field: Option<&'s Field>,
    is_certain: bool,
    /// Whether the type that it stands at is a guess.
    is_guess: bool,
}

impl<'a> Sources<'a> {
    pub(super) fn new(files: &'a dyn Files) -> Sources<'a> {
        Sources {
            files,
            scopes: OnceCell::new(),
        }
    }

    /// The place of a field of the kind whose Rust type is `rust` (`api::v1::guestbook_types::Guestbook`).
    pub(super) fn find(&self, rust: &str, field: &str) -> Place {
        let mut place = Place::default().field(if field.is_empty() { rust } else { field });
        self.walk(rust, field, &mut place);
        place
    }

    /// The words of `#[schemars(…)]` on a field, such as `length`; none when the field cannot be found, or not for
    /// certain.
    pub(super) fn words(&self, rust: &str, field: &str) -> Vec<String> {
        let walk = self.walk(rust, field, &mut Place::default());
        let found = walk.filter(|walk| walk.is_certain).and_then(|walk| walk.field);
        let words = found.iter().flat_map(|field| metas(&field.attrs, "schemars"));
        words
            .filter_map(|meta| meta.path().get_ident().map(ToString::to_string))
            .collect()
    }

    /// The path of a field's type, as it is written; none when the field cannot be found, or not for certain.
    pub(super) fn written_type(&self, rust: &str, field: &str) -> Vec<String> {
        let walk = self.walk(rust, field, &mut Place::default());
        let found = walk.filter(|walk| walk.is_certain).and_then(|walk| walk.field);
        found.and_then(|field| last_type(&field.ty)).unwrap_or_default()
    }

    /// Goes to a field as far as it can be followed, leaving the place behind; the field itself when it is reached.
    fn walk(&self, rust: &str, field: &str, place: &mut Place) -> Option<Walk<'_>> {
        let mut steps = field.split('.').filter(|step| !step.is_empty());
        let (spec, is_certain) = self.behind(rust)?;
        point(place, spec, spec.item.ident.span());
        let mut walk = Walk {
            at: Some(spec),
            field: None,
            is_certain,
            is_guess: false,
        };
        match steps.next().map(|step| step.trim_end_matches("[]")) {
            Some("status") => {
                let status = kube(&spec.item.attrs, "status")?;
                let status: Vec<String> = status.split("::").map(|part| part.trim().to_owned()).collect();
                walk.go_to(self.named(&status, spec));
                point(place, walk.at?, walk.at?.item.ident.span());
            }
            Some("spec") | None => {}
            // A kind without spec has its fields at the root.
            Some(other) => self.step(other, &mut walk, place)?,
        }
        for step in steps.take(MAX_STEPS) {
            // The value of a map is of the type that was found for the map.
            if step != "*" {
                self.step(step.trim_end_matches("[]"), &mut walk, place)?;
            }
        }
        Some(walk)
    }

    fn scopes(&self) -> &Scopes {
        self.scopes.get_or_init(|| Scopes::read(self.files))
    }

    /// The type with `#[kube(kind = "…")]` behind a kind, and whether it is in the very module of the kind
    /// (`api::v1::guestbook_types::Guestbook`).
    fn behind(&self, rust: &str) -> Option<(&Found, bool)> {
        let (module, kind) = rust.rsplit_once("::").unwrap_or(("", rust));
        let mut fitting: Vec<&Found> = self
            .scopes()
            .all()
            .filter(|found| kube(&found.item.attrs, "kind").as_deref() == Some(kind))
            .collect();
        fitting.sort_by_key(|found| std::cmp::Reverse(likeness(&found.file, rust)));
        let exact = fitting.iter().find(|found| found.module.join("::") == module);
        exact
            .map(|found| (*found, true))
            .or_else(|| fitting.first().map(|found| (*found, false)))
    }

    /// The type that a path means near another type, and whether that is certain; else the nearest one that is called
    /// so.
    fn named(&self, path: &[String], near: &Found) -> Option<(&Found, bool)> {
        if let Some(found) = self.scopes().resolve(path, &near.module) {
            return Some((found, true));
        }
        let name = path.last()?;
        let called = self.scopes().all().filter(|found| found.item.ident == name);
        let nearness = |found: &&Found| {
            let pairs = found.file.bytes().zip(near.file.bytes());
            (found.file == near.file, pairs.take_while(|(a, b)| a == b).count())
        };
        called.max_by_key(nearness).map(|found| (found, false))
    }

    /// Goes on to a field, and to its type, if that is in the project.
    fn step<'s>(&'s self, name: &str, walk: &mut Walk<'s>, place: &mut Place) -> Option<()> {
        let (file, field, is_certain) = self.field(name, walk.at?, 0)?;
        let span = field
            .ident
            .as_ref()
            .map_or_else(|| field.span(), proc_macro2::Ident::span);
        point(place, file, span);
        walk.is_certain &= is_certain && !walk.is_guess;
        walk.field = Some(field);
        walk.go_to(last_type(&field.ty).and_then(|path| self.named(&path, file)));
        Some(())
    }

    /// The field that serde gives this name, also in flattened types and in the variants of enums.
    fn field<'f>(&'f self, name: &str, at: &'f Found, depth: usize) -> Option<(&'f Found, &'f Field, bool)> {
        if depth > 8 {
            return None;
        }
        let rule = serde(&at.item.attrs, "rename_all");
        let fields: Vec<(&Field, Option<String>)> = match &at.item.data {
            Data::Struct(data) => fields(&data.fields, rule.as_deref(), None),
            Data::Enum(data) => {
                let inner = serde(&at.item.attrs, "rename_all_fields");
                let variants = data.variants.iter().flat_map(|variant| {
                    let own = serde(&variant.attrs, "rename_all").or_else(|| inner.clone());
                    let called = serde(&variant.attrs, "rename")
                        .unwrap_or_else(|| rename(&variant.ident.to_string(), rule.as_deref(), true));
                    fields(&variant.fields, own.as_deref(), Some(called))
                });
                variants.collect()
            }
            Data::Union(_) => Vec::new(),
        };
        if let Some((field, _)) = fields.iter().find(|(_, called)| called.as_deref() == Some(name)) {
            return Some((at, field, true));
        }
        let flattened = fields
            .iter()
            .filter(|(field, called)| called.is_none() || has_serde(&field.attrs, "flatten"));
        for (field, _) in flattened {
            let Some((inner, is_certain)) = last_type(&field.ty).and_then(|inner| self.named(&inner, at)) else {
                continue;
            };
            if let Some((found, field, is_sure)) = self.field(name, inner, depth + 1) {
                return Some((found, field, is_certain && is_sure));
            }
        }
        None
    }
}

impl<'s> Walk<'s> {
    /// Stands at another type. A guessed type makes the rest of the walk a guess; the field before it is not.
    fn go_to(&mut self, next: Option<(&'s Found, bool)>) {
        self.at = next.map(|(found, _)| found);
        self.is_guess |= next.is_some_and(|(_, is_certain)| !is_certain);
    }
}

fn point(place: &mut Place, found: &Found, span: Span) {
    let start = span.start();
    place.file.clone_from(&found.file);
    place.line = Some(start.line);
    place.column = Some(start.column + 1);
}

/// How many modules of a Rust path are in a file's path.
fn likeness(file: &str, rust: &str) -> usize {
    let parts: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
    rust.split("::").filter(|part| parts.contains(part)).count()
}

/// Fields with the names that serde gives them; none for a flattened one, and the variant's for the one field of a
/// tuple variant.
fn fields<'f>(fields: &'f Fields, rule: Option<&str>, variant: Option<String>) -> Vec<(&'f Field, Option<String>)> {
    fields
        .iter()
        .map(|field| {
            let called = match &field.ident {
                _ if has_serde(&field.attrs, "flatten") => None,
                Some(ident) => Some(
                    serde(&field.attrs, "rename")
                        .unwrap_or_else(|| rename(ident.to_string().trim_start_matches("r#"), rule, false)),
                ),
                None => variant.clone(),
            };
            (field, called)
        })
        .collect()
}

/// Types that hold a value without being seen in JSON, or hold several of one type.
const TRANSPARENT: &[&str] = &[
    "Option", "Vec", "VecDeque", "Box", "Arc", "Rc", "Cow", "BTreeMap", "HashMap", "IndexMap", "BTreeSet", "HashSet",
    "IndexSet",
];

/// The path of the innermost type: `Option<Vec<Box<net::Port>>>` is `net::Port`, a map is the type of its values.
fn last_type(ty: &Type) -> Option<Vec<String>> {
    match ty {
        Type::Path(path) => {
            let last = path.path.segments.last()?;
            if let PathArguments::AngleBracketed(arguments) = &last.arguments
                && TRANSPARENT.iter().any(|name| last.ident == name)
            {
                let mut inner = arguments.args.iter().rev();
                return inner.find_map(|argument| match argument {
                    GenericArgument::Type(ty) => Some(last_type(ty)),
                    _ => None,
                })?;
            }
            Some(path.path.segments.iter().map(|part| part.ident.to_string()).collect())
        }
        Type::Array(array) => last_type(&array.elem),
        Type::Group(group) => last_type(&group.elem),
        Type::Paren(paren) => last_type(&paren.elem),
        _ => None,
    }
}

/// `#[kube(name = "value")]`.
fn kube(attributes: &[Attribute], name: &str) -> Option<String> {
    value(attributes, "kube", name)
}

/// `#[serde(name = "value")]`.
fn serde(attributes: &[Attribute], name: &str) -> Option<String> {
    value(attributes, "serde", name)
}

fn has_serde(attributes: &[Attribute], name: &str) -> bool {
    metas(attributes, "serde").iter().any(|meta| meta.path().is_ident(name))
}

fn value(attributes: &[Attribute], of: &str, name: &str) -> Option<String> {
    metas(attributes, of).into_iter().find_map(|meta| match meta {
        Meta::NameValue(pair) if pair.path.is_ident(name) => match pair.value {
            Expr::Lit(literal) => match literal.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    })
}

fn metas(attributes: &[Attribute], of: &str) -> Vec<Meta> {
    let of = attributes.iter().filter(|attribute| attribute.path().is_ident(of));
    of.filter_map(|attribute| {
        let list = attribute.meta.require_list().ok()?;
        list.parse_args_with(syn::punctuated::Punctuated::<Meta, Token![,]>::parse_terminated)
            .ok()
    })
    .flatten()
    .collect()
}

/// serde's `rename_all`.
fn rename(name: &str, rule: Option<&str>, variant: bool) -> String {
    let words: Vec<String> = if variant {
        let mut words: Vec<String> = Vec::new();
        for letter in name.chars() {
            match words.last_mut() {
                Some(word) if !letter.is_uppercase() => word.push(letter),
                _ => words.push(letter.to_string()),
            }
        }
        words
    } else {
        name.split('_').map(str::to_owned).collect()
    };
    let capital = |word: &String| {
        let mut letters = word.chars();
        letters
            .next()
            .map(|first| {
                first
                    .to_uppercase()
                    .chain(letters.flat_map(char::to_lowercase))
                    .collect::<String>()
            })
            .unwrap_or_default()
    };
    let lower = |separator: &str| {
        words
            .iter()
            .map(|word| word.to_lowercase())
            .collect::<Vec<_>>()
            .join(separator)
    };
    match rule {
        Some("camelCase") => {
            let mut words = words.iter();
            let first = words.next().map(|word| word.to_lowercase()).unwrap_or_default();
            first + &words.map(capital).collect::<String>()
        }
        Some("PascalCase") => words.iter().map(capital).collect(),
        Some("snake_case") => lower("_"),
        Some("kebab-case") => lower("-"),
        Some("lowercase") => lower(""),
        Some("UPPERCASE") => lower("").to_uppercase(),
        Some("SCREAMING_SNAKE_CASE") => lower("_").to_uppercase(),
        Some("SCREAMING-KEBAB-CASE") => lower("-").to_uppercase(),
        _ => name.to_owned(),
    }
}
