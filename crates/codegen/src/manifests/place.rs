//! From a field of a schema to the line of Rust that says it.
//!
//! The project's sources are read when the first place is asked for: structs and enums by name, with the file they stand in. A path such as
//! `spec.rules[].port` is walked from the type behind the kind (`#[kube(kind = "…")]`) through the types of fields, by the names that serde gives
//! them. What cannot be followed (a macro, a type of another crate) ends the walk at the last place that is known. Nothing is decided here.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use proc_macro2::Span;
use syn::spanned::Spanned as _;
use syn::{
    Attribute, Data, DeriveInput, Expr, Field, Fields, GenericArgument, Item, Lit, Meta, PathArguments, Token, Type,
};

use crate::diagnostic::Place;
use crate::plan::Files;

/// How many fields a walk passes at most: types may contain themselves.
const MAX_STEPS: usize = 64;

/// The Rust sources of a project.
pub(super) struct Sources<'a> {
    files: &'a dyn Files,
    types: OnceCell<BTreeMap<String, Vec<Found>>>,
}

/// A struct or enum.
struct Found {
    file: String,
    item: DeriveInput,
}

impl<'a> Sources<'a> {
    pub(super) fn new(files: &'a dyn Files) -> Sources<'a> {
        Sources {
            files,
            types: OnceCell::new(),
        }
    }

    /// The place of a field of the kind whose Rust type is `rust` (`api::v1::guestbook_types::Guestbook`).
    pub(super) fn find(&self, rust: &str, field: &str) -> Place {
        let mut place = Place::default().field(if field.is_empty() { rust } else { field });
        self.walk(rust, field, &mut place);
        place
    }

    /// The words of `#[schemars(…)]` on a field, such as `length`; none when the field cannot be found.
    pub(super) fn words(&self, rust: &str, field: &str) -> Vec<String> {
        let found = self.walk(rust, field, &mut Place::default());
        let words = found.iter().flat_map(|field| metas(&field.attrs, "schemars"));
        words
            .filter_map(|meta| meta.path().get_ident().map(ToString::to_string))
            .collect()
    }

    /// Goes to a field as far as it can be followed, leaving the place behind; the field itself when it is reached.
    fn walk(&self, rust: &str, field: &str, place: &mut Place) -> Option<&Field> {
        let mut steps = field.split('.').filter(|step| !step.is_empty());
        let kind = rust.rsplit("::").next().unwrap_or_default();
        let spec = self.behind(kind, rust)?;
        point(place, spec, spec.item.ident.span());
        let mut at = Some(spec);
        let mut last = None;
        match steps.next().map(|step| step.trim_end_matches("[]")) {
            Some("status") => {
                at = self.named(&kube(&spec.item.attrs, "status")?, spec);
                point(place, at?, at?.item.ident.span());
            }
            Some("spec") | None => {}
            // A kind without spec has its fields at the root.
            Some(other) => (at, last) = self.step(other, spec, place)?,
        }
        for step in steps.take(MAX_STEPS) {
            // The value of a map is of the type that was found for the map.
            if step != "*" {
                (at, last) = self.step(step.trim_end_matches("[]"), at?, place)?;
            }
        }
        last
    }

    fn types(&self) -> &BTreeMap<String, Vec<Found>> {
        self.types.get_or_init(|| {
            let mut types: BTreeMap<String, Vec<Found>> = BTreeMap::new();
            // A place is help, not the matter: what cannot be read or parsed has none.
            for file in self.files.list("").unwrap_or_default() {
                if !file.ends_with(".rs") || file.starts_with("target/") || file.contains("/target/") {
                    continue;
                }
                let Ok(Some(text)) = self.files.read(&file) else {
                    continue;
                };
                if let Ok(parsed) = syn::parse_file(&text) {
                    collect(&file, parsed.items, &mut types);
                }
            }
            types
        })
    }

    /// The type with `#[kube(kind = "…")]`, in the module that the Rust path names if there are several.
    fn behind(&self, kind: &str, rust: &str) -> Option<&Found> {
        let all = self.types().values().flatten();
        let mut fitting: Vec<&Found> = all
            .filter(|found| kube(&found.item.attrs, "kind").as_deref() == Some(kind))
            .collect();
        fitting.sort_by_key(|found| std::cmp::Reverse(likeness(&found.file, rust)));
        fitting.first().copied()
    }

    /// The type of that name nearest to another.
    fn named(&self, path: &str, near: &Found) -> Option<&Found> {
        let name = path.rsplit("::").next()?.trim();
        let all = self.types().get(name)?;
        let mut all: Vec<&Found> = all.iter().collect();
        all.sort_by_key(|found| {
            let common = found
                .file
                .bytes()
                .zip(near.file.bytes())
                .take_while(|(a, b)| a == b)
                .count();
            std::cmp::Reverse((found.file == near.file, common))
        });
        all.first().copied()
    }

    /// Goes to a field, and answers it with its type, if that is in the project.
    fn step<'s>(
        &'s self,
        name: &str,
        at: &'s Found,
        place: &mut Place,
    ) -> Option<(Option<&'s Found>, Option<&'s Field>)> {
        let (file, field) = self.field(name, at, 0)?;
        let span = field
            .ident
            .as_ref()
            .map_or_else(|| field.span(), proc_macro2::Ident::span);
        point(place, file, span);
        let next = last_type(&field.ty).and_then(|name| self.named(&name, file));
        Some((next, Some(field)))
    }

    /// The field that serde gives this name, also in flattened types and in the variants of enums.
    fn field<'f>(&'f self, name: &str, at: &'f Found, depth: usize) -> Option<(&'f Found, &'f Field)> {
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
            return Some((at, field));
        }
        let flattened = fields
            .iter()
            .filter(|(field, called)| called.is_none() || has_serde(&field.attrs, "flatten"));
        for (field, _) in flattened {
            let inner = last_type(&field.ty).and_then(|inner| self.named(&inner, at));
            if let Some(found) = inner.and_then(|inner| self.field(name, inner, depth + 1)) {
                return Some(found);
            }
        }
        None
    }
}

fn point(place: &mut Place, found: &Found, span: Span) {
    let start = span.start();
    place.file.clone_from(&found.file);
    place.line = Some(start.line);
    place.column = Some(start.column + 1);
}

fn collect(file: &str, items: Vec<Item>, types: &mut BTreeMap<String, Vec<Found>>) {
    for item in items {
        let item: DeriveInput = match item {
            Item::Struct(item) => item.into(),
            Item::Enum(item) => item.into(),
            Item::Mod(module) => {
                collect(file, module.content.map(|(_, items)| items).unwrap_or_default(), types);
                continue;
            }
            _ => continue,
        };
        let found = Found {
            file: file.to_owned(),
            item,
        };
        types.entry(found.item.ident.to_string()).or_default().push(found);
    }
}

/// How many modules of a Rust path are in a file's path.
fn likeness(file: &str, rust: &str) -> usize {
    let parts: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
    rust.split("::").filter(|part| parts.contains(part)).count()
}

/// Fields with the names that serde gives them; none for a flattened one, and the variant's for the one field of a tuple variant.
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

/// The innermost type: `Option<Vec<Box<Port>>>` is `Port`, a map is what its values are.
fn last_type(ty: &Type) -> Option<String> {
    match ty {
        Type::Path(path) => {
            let last = path.path.segments.last()?;
            if let PathArguments::AngleBracketed(arguments) = &last.arguments {
                let inner = arguments.args.iter().rev().find_map(|argument| match argument {
                    GenericArgument::Type(ty) => Some(ty),
                    _ => None,
                });
                if let Some(inner) = inner {
                    return last_type(inner);
                }
            }
            Some(last.ident.to_string())
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
