//! Packages of other modules: their source as Go has it on this machine, in `vendor/`, in a folder that go.mod puts in
//! a module's place, or in the module cache.
//!
//! [`Modules::package`] reads one. Invariants: go.mod decides the version, nothing is fetched and no program is asked;
//! a missing package is reported with the command that brings it. Not here: the standard library, whose few types of
//! APIs are in [`super::kubernetes`].

use super::constraints::{excluded, is_source};
use super::folder;
use super::go;
use super::gomod::Row;
use super::origin::{Source, share_markers};
use crate::plan::Files;

/// The module cache of Go (`go env GOMODCACHE`).
#[derive(Clone, Copy)]
pub struct ModuleCache<'f> {
    /// Its files.
    pub files: &'f dyn Files,
    /// Where it is, for a person.
    pub place: &'f str,
}

/// Where the packages of other modules are.
pub(super) struct Modules<'f> {
    project: &'f dyn Files,
    cache: Option<ModuleCache<'f>>,
    rows: Vec<Row>,
}

impl<'f> Modules<'f> {
    /// The modules that go.mod requires.
    pub(super) fn new(project: &'f dyn Files, cache: Option<ModuleCache<'f>>, rows: Vec<Row>) -> Modules<'f> {
        Modules { project, cache, rows }
    }

    /// The files of a package, or why there are none.
    pub(super) fn package(&self, import: &str) -> Result<Vec<Source>, String> {
        let vendored = format!("vendor/{import}");
        let found = read(self.project, &vendored, import);
        if !found.is_empty() {
            return Ok(found);
        }
        let is_in = |row: &&Row| {
            let rest = import.strip_prefix(row.module.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let rows = self.rows.iter().filter(is_in);
        let row = rows
            .max_by_key(|row| row.module.len())
            .ok_or_else(|| format!("no module of go.mod has the package {import}: go mod tidy, then migrate again"))?;
        let within = &import[row.module.len()..];
        if row.actual.starts_with(['.', '/']) {
            let folder = format!("{}{within}", row.actual.trim_start_matches("./"));
            let found = read(self.project, &folder, import);
            let outside = format!(
                "go.mod replaces {} by {}, where no Go file of it is in reach",
                row.module, row.actual
            );
            return if found.is_empty() { Err(outside) } else { Ok(found) };
        }
        let Some(cache) = self.cache else {
            return Err(format!(
                "{} {} is read from Go's module cache, and there is none: name its folder (--module-path), or go mod vendor",
                row.module, row.version
            ));
        };
        let folder = format!("{}@{}{within}", escaped(&row.actual), escaped(&row.version));
        let found = read(cache.files, &folder, import);
        if found.is_empty() {
            return Err(format!(
                "{} {} is not in Go's module cache ({}): go mod download {}, then migrate again",
                row.module, row.version, cache.place, row.module
            ));
        }
        Ok(found)
    }
}

/// The Go files right in a folder. Files that cannot be read, or are not Go, do not fail the migration: their
/// declarations are then not known.
fn read(files: &dyn Files, place: &str, import: &str) -> Vec<Source> {
    let is_ours = |path: &String| {
        let name = path.rsplit('/').next().unwrap_or(path);
        folder(path) == place && is_source(name)
    };
    let paths = files.list(place).unwrap_or_default();
    let paths = paths.into_iter().filter(is_ours);
    let mut found: Vec<Source> = paths
        .filter_map(|path| {
            let text = files.read(&path).ok()??;
            if excluded(&path, &text).is_some() {
                return None;
            }
            let mut file = go::parse(&text).ok()?;
            let name = path.rsplit('/').next().unwrap_or_default();
            file.path = format!("{import}/{name}");
            Some(Source {
                path: file.path.clone(),
                import: import.to_owned(),
                text,
                file,
            })
        })
        .collect();
    share_markers(&mut found);
    found
}

/// As the cache writes a path, which must not depend on upper and lower case: `github.com/!masterminds`.
fn escaped(path: &str) -> String {
    let mut out = String::new();
    for letter in path.chars() {
        if letter.is_ascii_uppercase() {
            out.push('!');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::gomod;
    use super::*;
    use crate::plan::MemoryFiles;

    const DECLARED: &str = "module example.com/fleet\n\nrequire example.org/one v1.2.0 // indirect\nrequire (\n\texample.org/one/more v0.1.0\n\texample.org/Two v0.2.0-RC1\n\texample.org/far v1.0.0\n\texample.org/local v0.0.0\n)\nreplace example.org/local => ./local\nreplace (\n\texample.org/far v1.0.0 => example.org/near v1.0.1\n)\n";

    #[test]
    fn packages_are_found_where_go_has_them() {
        let project = MemoryFiles::from([
            ("local/api/a.go", "package api\n"),
            ("vendor/example.org/vendored/a.go", "package vendored\n"),
        ]);
        let cached = MemoryFiles::from([
            ("example.org/one@v1.2.0/api/a.go", "package api\n"),
            ("example.org/one@v1.2.0/api/deep/a.go", "package deep\n"),
            ("example.org/one@v1.2.0/api/a_test.go", "package api\n"),
            ("example.org/one/more@v0.1.0/api/a.go", "package api\n"),
            ("example.org/!two@v0.2.0-!r!c1/a.go", "package two\n"),
            ("example.org/near@v1.0.1/a.go", "package near\n"),
            ("example.org/near@v1.0.1/b.go", "no Go\n"),
        ]);
        let cache = ModuleCache {
            files: &cached,
            place: "/cache",
        };
        let check = |import: &str, cache: Option<ModuleCache<'_>>, wanted: &str| {
            let modules = Modules::new(&project, cache, gomod::read(DECLARED).unwrap().rows);
            let said = match modules.package(import) {
                Ok(found) => found
                    .into_iter()
                    .map(|source| source.path)
                    .collect::<Vec<_>>()
                    .join(" "),
                Err(why) => why,
            };
            assert!(said.contains(wanted), "{import}: {said}");
        };
        check("example.org/one/api", Some(cache), "example.org/one/api/a.go");
        check("example.org/one/more/api", Some(cache), "example.org/one/more/api/a.go");
        check("example.org/Two", Some(cache), "example.org/Two/a.go");
        check("example.org/far", Some(cache), "example.org/far/a.go");
        check("example.org/local/api", Some(cache), "example.org/local/api/a.go");
        check("example.org/vendored", None, "example.org/vendored/a.go");
        check("example.org/one/api", None, "--module-path");
        check(
            "example.org/one/gone",
            Some(cache),
            "(/cache): go mod download example.org/one",
        );
        check(
            "example.org/only",
            Some(cache),
            "no module of go.mod has the package example.org/only",
        );
        check("example.org/local/gone", Some(cache), "by ./local");
    }
}
