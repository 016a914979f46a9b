//! Packages of the project that are no API and hold types of one: `api/common/v1`, `apis/apps/pub`.
//!
//! What the types of APIs name in them, directly or through one another, goes to `api/src/shared`, a file for each
//! package. Nothing else of them is carried over.

use std::collections::{BTreeMap, BTreeSet};

use super::go::{File, Type};
use super::origin::Source;
use super::types::{Package, Types};
use super::words::snake;
use super::{folder, types_file};
use crate::names::rust;
use crate::plan::MemoryFiles;

/// Where they are in Rust.
const FOLDER: &str = "api/src/shared";

/// A type: the import path of its package, and its name.
type Name = (String, String);

/// The packages that these refer to, each with the types that are reached.
pub(super) fn packages<'p>(
    apis: &BTreeMap<String, Package<'p>>,
    sources: &'p [Source],
    module: &str,
) -> BTreeMap<String, Package<'p>> {
    let mut pending: Vec<Name> = Vec::new();
    for (import, package) in apis {
        for (decl, file) in package.types.values() {
            named(import, &decl.of, file, &mut pending);
        }
    }
    let mut found: BTreeMap<String, Package<'p>> = BTreeMap::new();
    let mut seen: BTreeSet<Name> = BTreeSet::new();
    while let Some(name) = pending.pop() {
        let (import, ty) = &name;
        let within = import.strip_prefix(module).and_then(|rest| rest.strip_prefix('/'));
        let Some(within) = within.filter(|_| !apis.contains_key(import) && !seen.contains(&name)) else {
            continue;
        };
        let mut files = sources.iter().filter(|source| folder(&source.path) == within);
        let decl = files.find_map(|source| {
            let decl = source.file.types.iter().find(|decl| decl.name == *ty)?;
            Some((decl, &source.file))
        });
        if let Some((decl, file)) = decl {
            let package = found.entry(import.clone()).or_insert_with(|| Package {
                module: format!("crate::shared::{}", module_of(within)),
                types: BTreeMap::new(),
            });
            package.types.insert(ty.clone(), (decl, file));
            named(import, &decl.of, file, &mut pending);
        }
        seen.insert(name);
    }
    found
}

/// The types that a type names.
fn named(import: &str, of: &Type, file: &File, into: &mut Vec<Name>) {
    match of {
        Type::Pointer(inner) | Type::List(inner) => named(import, inner, file, into),
        Type::Map(key, value) => {
            named(import, key, file, into);
            named(import, value, file, into);
        }
        Type::Struct(fields) => {
            for field in fields {
                named(import, &field.of, file, into);
            }
        }
        Type::Named { package: None, name } => into.push((import.to_owned(), name.clone())),
        Type::Named {
            package: Some(package),
            name,
        } => {
            if let Some(import) = file.imports.get(package) {
                into.push((import.clone(), name.clone()));
            }
        }
        Type::Other(_) => {}
    }
}

/// `api/common/v1` is `common_v1`.
fn module_of(folder: &str) -> String {
    let parts = folder.split('/').filter(|part| !["api", "apis", "pkg"].contains(part));
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
            text.push_str(&types.print(import, decl, file, &[]));
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
