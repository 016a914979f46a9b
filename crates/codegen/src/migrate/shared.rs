//! Packages that are no API and hold types of one: of the project (`api/common/v1`, `apis/apps/pub`), and of other
//! modules.
//!
//! Types that the APIs' types use, directly or through one another, go to `api/src/shared`, a file for each package.
//! Nothing else of them is carried over.

use std::collections::{BTreeMap, BTreeSet};

use super::embedded::is_inline;
use super::go::{Decl, File, Type};
use super::kubernetes;
use super::modules::Modules;
use super::origin::Source;
use super::types::{Attributes, Package, Types};
use super::words::snake;
use super::{folder, types_file};
use crate::names::rust;
use crate::plan::MemoryFiles;

/// Where they are in Rust.
const FOLDER: &str = "api/src/shared";

/// A type: the import path of its package, its name, and whether its fields belong to the struct around it.
type Name = (String, String, bool);

/// The types that packages name.
fn pending(packages: &BTreeMap<String, Package<'_>>) -> Vec<Name> {
    let mut pending = Vec::new();
    for (import, package) in packages {
        for (decl, file) in package.types.values() {
            named(import, &decl.of, file, &mut pending);
        }
    }
    pending
}

/// The packages of other modules that hold types which these name, directly or through one another. A missing package
/// is noted, a line for each.
pub(super) fn foreign(
    apis: &BTreeMap<String, Package<'_>>,
    sources: &[Source],
    modules: &Modules<'_>,
    notes: &mut Vec<String>,
) -> Vec<Source> {
    let mut pending = pending(apis);
    let mut seen: BTreeSet<Name> = BTreeSet::new();
    let mut asked: BTreeSet<String> = sources.iter().map(|source| source.import.clone()).collect();
    let mut found: Vec<Source> = Vec::new();
    while let Some(name) = pending.pop() {
        let (import, ty, is_embedded) = &name;
        if apis.contains_key(import) || seen.contains(&name) || is_known(import, ty, *is_embedded) {
            continue;
        }
        if !kubernetes::is_standard(import) && asked.insert(import.clone()) {
            match modules.package(import) {
                Ok(files) => found.extend(files),
                // Rust has the type, or it is a text in all likelihood: the user need not fetch the package for it.
                Err(_) if kubernetes::known(import, ty).is_some() => {}
                Err(why) => notes.push(format!("types of {import} are any value in Rust: {why}")),
            }
        }
        let of_package = sources.iter().chain(&found).filter(|source| source.import == *import);
        for source in of_package {
            for decl in source.file.types.iter().filter(|decl| decl.name == *ty) {
                named(import, &decl.of, &source.file, &mut pending);
            }
        }
        seen.insert(name);
    }
    found
}

/// The packages that these refer to, each with the types that are reached.
pub(super) fn packages<'p>(
    apis: &BTreeMap<String, Package<'p>>,
    sources: impl Iterator<Item = &'p Source> + Clone,
) -> BTreeMap<String, Package<'p>> {
    let mut pending = pending(apis);
    let mut found: BTreeMap<String, Package<'p>> = BTreeMap::new();
    let mut seen: BTreeSet<Name> = BTreeSet::new();
    while let Some(name) = pending.pop() {
        let (import, ty, is_embedded) = &name;
        if apis.contains_key(import) || seen.contains(&name) || is_known(import, ty, *is_embedded) {
            continue;
        }
        let of_package = sources.clone().filter(|source| source.import == *import);
        let decl = of_package.clone().find_map(|source| {
            let decl = source.file.types.iter().find(|decl| decl.name == *ty)?;
            Some((decl, &source.file))
        });
        let is_text = |decl: &Decl| kubernetes::is_unpublished(import, ty) && !matches!(decl.of, Type::Struct(_));
        if let Some((decl, file)) = decl.filter(|(decl, _)| !is_text(decl)) {
            let package = found.entry(import.clone()).or_insert_with(|| {
                let mut package = Package::new(format!("crate::shared::{}", module_of(import, sources.clone())));
                of_package.for_each(|source| package.add_values(source));
                package
            });
            package.types.insert(ty.clone(), (decl, file));
            named(import, &decl.of, file, &mut pending);
        }
        seen.insert(name);
    }
    found
}

/// Whether Rust has the type. An embedded type is read from its source all the same: schemas have Kubernetes'
/// description of a field's type, not of fields that stand among others.
fn is_known(import: &str, ty: &str, is_embedded: bool) -> bool {
    kubernetes::known(import, ty).is_some()
        && !kubernetes::is_unpublished(import, ty)
        && !(is_embedded && kubernetes::is_struct(import, ty))
}

/// The types that a type names.
fn named(import: &str, of: &Type, file: &File, into: &mut Vec<Name>) {
    match of {
        Type::Pointer(inner) | Type::List(inner) | Type::Array(inner) => named(import, inner, file, into),
        Type::Map(key, value) => {
            named(import, key, file, into);
            named(import, value, file, into);
        }
        Type::Struct(fields) => {
            for field in fields {
                let first = into.len();
                named(import, &field.of, file, into);
                for (_, _, is_embedded) in into.iter_mut().skip(first).filter(|_| is_inline(field)) {
                    *is_embedded = true;
                }
            }
        }
        Type::Named { package: None, name } => into.push((import.to_owned(), name.clone(), false)),
        // Every kind has it, and no field names it.
        Type::Named { name, .. } if name == "TypeMeta" => {}
        Type::Named {
            package: Some(package),
            name,
        } => {
            if let Some(import) = file.imports.get(package) {
                into.push((import.clone(), name.clone(), false));
            }
        }
        Type::Other(_) => {}
    }
}

/// The types of a package that other types of it name.
pub(super) fn used(import: &str, types: &BTreeMap<String, (&Decl, &File)>) -> BTreeSet<String> {
    let mut found = Vec::new();
    for (decl, file) in types.values() {
        named(import, &decl.of, file, &mut found);
    }
    let own = found.into_iter().filter(|(package, ..)| package == import);
    own.map(|(_, name, _)| name).collect()
}

/// `api/common/v1` is `common_v1`; a package of another module has the names of its module, too.
fn module_of<'p>(import: &str, mut sources: impl Iterator<Item = &'p Source>) -> String {
    let path = sources
        .find(|source| source.import == import)
        .map(|source| folder(&source.path));
    let is_host = |(at, part): &(usize, &str)| *at == 0 && part.contains('.');
    let parts = path
        .unwrap_or(import)
        .split('/')
        .enumerate()
        .filter(|part| !is_host(part));
    let parts = parts
        .map(|(_, part)| part)
        .filter(|part| !["api", "apis", "pkg"].contains(part));
    let name = parts.collect::<Vec<_>>().join("_").replace(['-', '.'], "_");
    rust::module(&snake(&name))
}

/// Writes a file for each of these packages, import path and module, and the module that holds them.
pub(super) fn write(packages: &[(String, String)], types: &mut Types<'_>, made: &mut MemoryFiles) {
    if packages.is_empty() {
        return;
    }
    let mut modules = String::from("//! Types that several kinds share.\n\n");
    for (import, module) in packages {
        let name = module.rsplit("::").next().unwrap_or(module);
        let mut text = String::new();
        let declared = types.packages.get(import).map(|package| package.types.clone());
        for (decl, file) in declared.unwrap_or_default().into_values() {
            text.push_str(&types.print(import, decl, file, &Attributes::default()));
        }
        let about = format!("//! Types of `shared::{name}`");
        let path = format!("{FOLDER}/{}.rs", name.trim_start_matches("r#"));
        made.0.insert(path, types_file(&about, import, &text, ""));
        modules.push_str(&format!("pub mod {name};\n"));
    }
    made.0.insert(format!("{FOLDER}/mod.rs"), modules);
    let library = made.0.entry("api/src/lib.rs".to_owned()).or_default();
    library.push_str("pub mod shared;\n");
}
