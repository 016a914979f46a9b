//! What may enter the lock file: licenses, sources and doubled versions as `deny.toml` allows them, and no crate that
//! needs a newer Rust than this workspace promises.
//!
//! `cargo deny check` reads the same file. This test needs no other program and no network. Not here: advisories.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;
use toml_edit::DocumentMut;

use crate::{metadata, root};

fn toml(file: &str) -> DocumentMut {
    fs::read_to_string(root().join(file)).unwrap().parse().unwrap()
}

/// All packages that the lock file names, also those of other systems and of features that are off.
fn packages() -> Vec<Value> {
    let metadata = metadata(&["--all-features"]);
    metadata["packages"].as_array().unwrap().clone()
}

/// Whether an SPDX expression can be met with the allowed licenses. `/` is how old crates write OR.
fn is_met(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let expression = expression.trim().replace(" / ", " OR ").replace('/', " OR ");
    for (word, all) in [(" AND ", true), (" OR ", false)] {
        let mut parts = vec![String::new()];
        let mut depth = 0;
        let mut rest = expression.as_str();
        while let Some(next) = rest.chars().next() {
            if depth == 0 && rest.starts_with(word) {
                parts.push(String::new());
                rest = &rest[word.len()..];
                continue;
            }
            depth += i32::from(next == '(') - i32::from(next == ')');
            parts.last_mut().unwrap().push(next);
            rest = &rest[next.len_utf8()..];
        }
        if parts.len() > 1 {
            let mut met = parts.iter().map(|part| is_met(part, allowed));
            return if all { met.all(|met| met) } else { met.any(|met| met) };
        }
    }
    match expression.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) {
        Some(inner) => is_met(inner, allowed),
        None => allowed.contains(&expression),
    }
}

#[test]
fn expressions_of_licenses_are_read() {
    let allowed = BTreeSet::from(["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned));
    for (expression, met) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("GPL-3.0 / MIT", true),
        ("GPL-3.0 AND MIT", false),
        ("(GPL-3.0 OR MIT) AND ISC", true),
        ("(GPL-3.0 OR MIT) AND BSD-3-Clause", false),
        ("Apache-2.0 WITH LLVM-exception OR Apache-2.0", true),
        ("", false),
    ] {
        assert_eq!(is_met(expression, &allowed), met, "{expression}");
    }
}

#[test]
fn licenses_are_allowed() {
    let deny = toml("deny.toml");
    let allowed = deny["licenses"]["allow"].as_array().unwrap();
    let allowed: BTreeSet<String> = allowed.iter().map(|name| name.as_str().unwrap().to_owned()).collect();
    let wrong: Vec<String> = packages()
        .iter()
        .filter(|package| !is_met(package["license"].as_str().unwrap_or_default(), &allowed))
        .map(|package| format!("{} {}: {}", package["name"], package["version"], package["license"]))
        .collect();
    assert!(wrong.is_empty(), "licenses that deny.toml does not allow: {wrong:#?}");
}

#[test]
fn sources_are_the_registry_and_this_workspace() {
    let wrong: BTreeSet<String> = packages()
        .iter()
        .filter_map(|package| Some(format!("{}: {}", package["name"], package["source"].as_str()?)))
        .filter(|from| !from.ends_with("registry+https://github.com/rust-lang/crates.io-index"))
        .collect();
    assert!(wrong.is_empty(), "crates that are not from the registry: {wrong:#?}");
}

#[test]
fn doubled_versions_are_known() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages() {
        let (name, version) = (&package["name"], &package["version"]);
        let all = versions.entry(name.as_str().unwrap().to_owned()).or_default();
        all.insert(version.as_str().unwrap().to_owned());
    }
    versions.retain(|_, all| all.len() > 1);
    let deny = toml("deny.toml");
    let skipped = deny["bans"]["skip"].as_array().unwrap().iter();
    let skipped: BTreeSet<String> = skipped
        .map(|skip| skip.as_inline_table().unwrap()["crate"].as_str().unwrap().to_owned())
        .collect();
    let mut wrong = Vec::new();
    for (name, all) in &versions {
        let unknown: Vec<_> = all
            .iter()
            .filter(|version| !skipped.contains(&format!("{name}@{version}")))
            .collect();
        if unknown.len() > 1 {
            wrong.push(format!("{name}: {all:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "crates in several versions: use the version that is there, or add the older one to `skip` in deny.toml with \
         who asks for it: {wrong:#?}"
    );
    let gone: Vec<_> = skipped
        .iter()
        .filter(|skip| {
            let (name, version) = skip.split_once('@').unwrap_or((skip, ""));
            !versions.get(name).is_some_and(|all| all.contains(version))
        })
        .collect();
    assert!(
        gone.is_empty(),
        "no longer doubled, so `skip` in deny.toml need not name them: {gone:#?}"
    );
}

#[test]
fn no_crate_needs_a_newer_rust_than_is_promised() {
    let number = |version: &str| -> Vec<u32> { version.split('.').map(|part| part.parse().unwrap()).collect() };
    let manifest = toml("Cargo.toml");
    let promised = manifest["workspace"]["package"]["rust-version"].as_str().unwrap();
    let wrong: Vec<String> = packages()
        .iter()
        .filter_map(|package| {
            let needed = package["rust_version"].as_str()?;
            let is_newer = number(needed) > [number(promised), vec![0]].concat();
            is_newer.then(|| format!("{} {} needs Rust {needed}", package["name"], package["version"]))
        })
        .collect();
    assert!(wrong.is_empty(), "rust-version is {promised}: {wrong:#?}");
}
