//! The crates can be published: each has a name of ours, depends on nothing that no registry has, and carries the files
//! that it embeds.
//!
//! `cargo package` is asked as it is for a release, without compiling and without a network. Not here: whether the
//! packages compile by themselves.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::{metadata, root};

/// The members of the workspace that are published.
fn published() -> Vec<Value> {
    let metadata = metadata(&["--no-deps", "--offline"]);
    let all = metadata["packages"].as_array().unwrap().clone();
    all.into_iter()
        .filter(|package| package["publish"] != serde_json::json!([]))
        .collect()
}

fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap()
}

#[test]
fn names_are_ours_and_nothing_depends_on_what_is_not_published() {
    let packages = published();
    let names: BTreeSet<&str> = packages.iter().map(name).collect();
    assert!(
        names.contains("kubewright-cli") && names.contains("kubewright"),
        "{names:?}"
    );
    let mut wrong = Vec::new();
    for package in &packages {
        let this = name(package);
        if this != "kubewright" && !this.starts_with("kubewright-") {
            wrong.push(format!("{this}: a name that belongs to whoever takes it"));
        }
        for field in ["description", "license", "repository"] {
            if package[field].as_str().is_none_or(str::is_empty) {
                wrong.push(format!("{this}: no {field}"));
            }
        }
        for dependency in package["dependencies"].as_array().unwrap() {
            let other = dependency["name"].as_str().unwrap();
            // Those of tests are left out of a package when they have no version.
            if dependency["path"].is_null() || (dependency["kind"] == "dev" && dependency["req"] == "*") {
                continue;
            }
            if !names.contains(other) {
                wrong.push(format!("{this} depends on {other}, which is not published"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_package_can_be_made_and_carries_what_it_embeds() {
    let packages = published();
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        command
            .args([
                "package",
                "--no-verify",
                "--offline",
                "--allow-dirty",
                "--exclude-lockfile",
            ])
            .args(arguments)
            .current_dir(root())
            .env("CARGO_TARGET_DIR", env!("CARGO_TARGET_TMPDIR"));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "cargo package {arguments:?}:\n{said}");
        String::from_utf8(output.stdout).unwrap()
    };
    let all: Vec<&str> = packages
        .iter()
        .flat_map(|package| ["--package", name(package)])
        .collect();
    cargo(&all);
    let mut missing = Vec::new();
    for package in &packages {
        let listed = cargo(&["--list", "--package", name(package)]);
        let listed: BTreeSet<PathBuf> = listed.lines().map(PathBuf::from).collect();
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let folder = manifest.parent().unwrap();
        for source in listed
            .iter()
            .filter(|path| path.extension().is_some_and(|ending| ending == "rs"))
        {
            let text = fs::read_to_string(folder.join(source)).unwrap();
            for embedded in embedded(&text) {
                let path = plain(&source.parent().unwrap().join(&embedded));
                // A test that reads the repository around the crate is one of the repository.
                let of_tests = source.starts_with("tests")
                    || ["cfg(test)", "cfg(doctest)"].iter().any(|mark| text.contains(mark)) && path.starts_with("..");
                if !of_tests && !listed.contains(&path) {
                    missing.push(format!("{}: {} embeds {embedded}", name(package), source.display()));
                }
            }
        }
    }
    assert!(missing.is_empty(), "not in their packages:\n{}", missing.join("\n"));
}

/// The literal paths of `include_str!` and `include_bytes!`.
fn embedded(text: &str) -> Vec<String> {
    let calls = ["include_str!(\"", "include_bytes!(\""];
    let found = calls.iter().flat_map(|call| text.split(call).skip(1));
    found
        .filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()))
        .collect()
}

/// A path without `..`, as far as it stays inside.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir if plain.file_name().is_some() => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// What is written for Unix alone says so to a compiler for another system, before that says a hundred other things.
#[test]
fn other_systems_are_refused_in_words() {
    let crates = fs::read_dir(root().join("crates")).unwrap();
    let mut refusing = 0;
    for folder in crates.map(|entry| entry.unwrap().path().join("src")) {
        let mut sources = Vec::new();
        crate::files(&folder, ".rs", &mut sources);
        let for_unix = sources.iter().find(|path| {
            let text = fs::read_to_string(path).unwrap();
            text.contains("std::os::") && !text.contains("cfg(unix)")
        });
        let Some(path) = for_unix else { continue };
        let root = ["lib.rs", "main.rs"].map(|name| fs::read_to_string(folder.join(name)).unwrap_or_default());
        let refuses = root.concat().contains("#[cfg(not(unix))]\ncompile_error!(");
        assert!(refuses, "{} is for Unix, and its crate does not say so", path.display());
        refusing += 1;
    }
    assert!(refusing >= 3, "server, nodes and cli");
}

/// Workflows of the repository: what others bring is pinned, nothing runs for ever, and no name of a registry that is
/// not ours is installed.
#[test]
fn workflows_are_pinned_and_bounded() {
    let folder = root().join(".github/workflows");
    let mut seen = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let shown = path.display();
        seen += 1;
        assert!(text.contains("\npermissions:"), "{shown}: says no permissions");
        let jobs = text.matches("runs-on:").count();
        assert_eq!(
            text.matches("timeout-minutes:").count(),
            jobs,
            "{shown}: a job without an end"
        );
        for action in text
            .lines()
            .filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix("uses: "))
        {
            let version = action.split_once('@').unwrap().1.split(' ').next().unwrap();
            let pinned = version.len() == 40 && version.bytes().all(|byte| byte.is_ascii_hexdigit());
            assert!(pinned, "{shown}: {action}");
        }
        assert!(!text.contains("cargo install "), "{shown}");
    }
    assert!(seen >= 2, "CI and release");
}
