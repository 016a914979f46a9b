//! Which type a name means in a module: the compiler's knowledge, as far as the sources of the project have it.
//!
//! Modules are known by their path, the crate's name first: `["shop_api", "v1", "cart_types"]`, from the `Cargo.toml`
//! above a file and the file's place below `src`. A path is followed through `crate`, `self`, `super`, `use` (with
//! `as`, lists and globs) and re-exports. A path that leads out of the project, or is made by a macro, is not resolved:
//! [`Scopes::resolve`] answers only certain results. Not here: the contents of a type.

use std::collections::{BTreeMap, BTreeSet};

use syn::{DeriveInput, Item, UseTree};

use crate::plan::Files;

/// How many imports are followed from one name at most: they may lead in a circle.
const MAX_STEPS: usize = 32;

/// A struct or enum, with the file and the module that it stands in.
pub(super) struct Found {
    pub(super) file: String,
    pub(super) module: Vec<String>,
    pub(super) item: DeriveInput,
}

/// The meaning of names in one module.
#[derive(Default)]
struct Scope {
    /// Structs and enums.
    types: BTreeMap<String, Found>,
    /// Other things with a name of a type: aliases, unions.
    others: BTreeSet<String>,
    /// `use path as name`.
    uses: BTreeMap<String, Vec<String>>,
    /// `use path::*`.
    globs: Vec<Vec<String>>,
}

/// Paths that were looked for in a module, in one search: a missing one is not looked for there again. Modules whose
/// globs lead to each other would be searched in every order otherwise.
type Seen = BTreeSet<(Vec<String>, Vec<String>)>;

/// The modules of a project.
#[derive(Default)]
pub(super) struct Scopes {
    modules: BTreeMap<Vec<String>, Scope>,
}

impl Scopes {
    /// Reads all Rust files. A file that cannot be read or parsed is passed over: the compiler reports its errors.
    pub(super) fn read(files: &dyn Files) -> Scopes {
        let mut scopes = Scopes::default();
        let paths = files.list("").unwrap_or_default();
        let paths = || {
            let built = |path: &&String| !path.starts_with("target/") && !path.contains("/target/");
            paths.iter().filter(built)
        };
        let mut crates = BTreeMap::new();
        for path in paths() {
            if let Some(folder) = path.strip_suffix("Cargo.toml")
                && let Ok(Some(text)) = files.read(path)
                && let Some(name) = crate_name(&text)
            {
                crates.insert(folder.to_owned(), name);
            }
        }
        for path in paths().filter(|path| path.ends_with(".rs")) {
            if let Ok(Some(text)) = files.read(path)
                && let Ok(parsed) = syn::parse_file(&text)
            {
                scopes.collect(path, module_of(path, &crates), parsed.items);
            }
        }
        scopes
    }

    /// Every struct and enum.
    pub(super) fn all(&self) -> impl Iterator<Item = &Found> {
        self.modules.values().flat_map(|scope| scope.types.values())
    }

    /// The type that a path means in a module; `None` when that is not certain or is no type of the project.
    pub(super) fn resolve(&self, path: &[String], module: &[String]) -> Option<&Found> {
        self.relative(path, module, MAX_STEPS, &mut Seen::new())
    }

    fn collect(&mut self, file: &str, module: Vec<String>, items: Vec<Item>) {
        for item in items {
            let scope = self.modules.entry(module.clone()).or_default();
            let item: DeriveInput = match item {
                Item::Struct(item) => item.into(),
                Item::Enum(item) => item.into(),
                Item::Type(alias) => {
                    scope.others.insert(alias.ident.to_string());
                    continue;
                }
                Item::Union(union) => {
                    scope.others.insert(union.ident.to_string());
                    continue;
                }
                Item::Use(used) => {
                    scope.import(&used.tree, &mut Vec::new());
                    continue;
                }
                Item::Mod(inner) => {
                    let mut path = module.clone();
                    path.push(inner.ident.to_string());
                    let items = inner.content.map(|(_, items)| items).unwrap_or_default();
                    self.collect(file, path, items);
                    continue;
                }
                _ => continue,
            };
            let found = Found {
                file: file.to_owned(),
                module: module.clone(),
                item,
            };
            scope.types.insert(found.item.ident.to_string(), found);
        }
    }

    /// A path as it is written in a module.
    fn relative(&self, path: &[String], module: &[String], steps: usize, seen: &mut Seen) -> Option<&Found> {
        let steps = steps.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        let below = |prefix: &[String]| [prefix, rest].concat();
        match first.as_str() {
            "crate" => return self.absolute(&below(&module[..1.min(module.len())]), steps, seen),
            "self" => return self.absolute(&below(module), steps, seen),
            "super" => {
                let (_, parent) = module.split_last()?;
                // `super::super::…` is as `super::…` in the parent.
                return if rest.first().is_some_and(|next| next == "super") {
                    self.relative(rest, parent, steps, seen)
                } else {
                    self.absolute(&below(parent), steps, seen)
                };
            }
            _ => {}
        }
        let scope = self.modules.get(module)?;
        if !seen.insert((module.to_vec(), path.to_vec())) {
            return None;
        }
        if rest.is_empty() && scope.others.contains(first) {
            return None;
        }
        if rest.is_empty()
            && let Some(found) = scope.types.get(first)
        {
            return Some(found);
        }
        if let Some(used) = scope.uses.get(first) {
            return self.relative(&below(used), module, steps, seen);
        }
        let child = [module, &path[..1]].concat();
        if self.modules.contains_key(&child) {
            return self.absolute(&below(&child), steps, seen);
        }
        if !rest.is_empty() && self.modules.keys().any(|known| known.first() == Some(first)) {
            return self.absolute(path, steps, seen);
        }
        let mut globs = scope.globs.iter();
        globs.find_map(|glob| self.relative(&[glob.as_slice(), path].concat(), module, steps, seen))
    }

    /// A path from the root of a crate.
    fn absolute(&self, path: &[String], steps: usize, seen: &mut Seen) -> Option<&Found> {
        let steps = steps.checked_sub(1)?;
        // The longest part that is a module; the rest is looked up in there.
        let (at, _) = (1..path.len())
            .rev()
            .map(|at| (at, &path[..at]))
            .find(|(_, module)| self.modules.contains_key(*module))?;
        let (module, rest) = path.split_at(at);
        self.relative(rest, module, steps, seen)
    }
}

impl Scope {
    fn import(&mut self, tree: &UseTree, prefix: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.import(&path.tree, prefix);
                prefix.pop();
            }
            UseTree::Name(name) if name.ident == "self" => {
                if let Some(last) = prefix.last() {
                    self.uses.insert(last.clone(), prefix.clone());
                }
            }
            UseTree::Name(name) => self.bring(&name.ident.to_string(), &name.ident.to_string(), prefix),
            UseTree::Rename(rename) => self.bring(&rename.rename.to_string(), &rename.ident.to_string(), prefix),
            UseTree::Glob(_) => self.globs.push(prefix.clone()),
            UseTree::Group(group) => group.items.iter().for_each(|item| self.import(item, prefix)),
        }
    }

    fn bring(&mut self, called: &str, name: &str, prefix: &[String]) {
        let path = [prefix, &[name.to_owned()]].concat();
        // `use serde;` names a crate, which is no way to a type of the project.
        if path.len() > 1 {
            self.uses.insert(called.to_owned(), path);
        }
    }
}

/// The name by which other crates call the package of a manifest.
fn crate_name(manifest: &str) -> Option<String> {
    let manifest: toml_edit::DocumentMut = manifest.parse().ok()?;
    let of = |table: &str| manifest.get(table)?.get("name")?.as_str().map(str::to_owned);
    of("lib").or_else(|| of("package")).map(|name| name.replace('-', "_"))
}

/// The module that a file is. Programs and tests are crates of their own.
fn module_of(file: &str, crates: &BTreeMap<String, String>) -> Vec<String> {
    let folders = crates.iter().filter(|(folder, _)| file.starts_with(folder.as_str()));
    let (folder, name) = folders
        .max_by_key(|(folder, _)| folder.len())
        .map_or(("", ""), |(folder, name)| (folder.as_str(), name.as_str()));
    let path = file[folder.len()..].trim_end_matches(".rs");
    let Some(path) = path.strip_prefix("src/") else {
        return vec![path.to_owned()];
    };
    let mut module = vec![name.to_owned()];
    module.extend(path.split('/').map(str::to_owned));
    match module.last().map(String::as_str) {
        Some("mod") => drop(module.pop()),
        Some("lib" | "main") if module.len() == 2 => drop(module.pop()),
        _ => {}
    }
    module
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryFiles;

    /// Forty modules that see each other through their parent, as types carried over from Go do: each order of them was
    /// tried once.
    #[test]
    fn globs_that_lead_in_circles() {
        let mut files = MemoryFiles::default();
        let mut add = |path: &str, text: String| files.0.insert(path.to_owned(), text);
        add("Cargo.toml", "[package]\nname = \"many\"\n".to_owned());
        let names: Vec<String> = (0..40).map(|number| format!("part_{number}")).collect();
        let module: String = names
            .iter()
            .map(|name| format!("mod {name};\npub use {name}::*;\n"))
            .collect();
        add("src/lib.rs", module);
        for name in &names {
            let kind = format!("Of{}", name.replace("part_", ""));
            add(
                &format!("src/{name}.rs"),
                format!("use super::*;\npub struct {kind};\n"),
            );
        }
        let scopes = Scopes::read(&files);
        let module = ["many".to_owned(), "part_0".to_owned()];
        let check = |name: &str, expected: Option<&str>| {
            let found = scopes.resolve(&[name.to_owned()], &module);
            assert_eq!(found.map(|found| found.file.as_str()), expected, "{name}");
        };
        check("Of39", Some("src/part_39.rs"));
        check("Of0", Some("src/part_0.rs"));
        check("Missing", None);
    }
}
