//! Everything about a version of Kubernetes that can be generated, out of registry packages alone: `cargo xtask
//! kubernetes 1.37.2`.
//!
//! It fetches the packages with the clients of their registries (`go mod download`, `pip download`), runs the generators,
//! and prints what is left for a person, with the file that each part is read from. `docs/new-kubernetes.md` has the
//! rest. Not here: how a table is made (`generate`, `protobuf`, `internal`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Deserializer, Value};

use crate::{generate, internal, protobuf};

/// The Go modules, of which `kubernetes` has the version itself and the others have it with a 0.
const MODULES: [&str; 6] = [
    "kubernetes",
    "api",
    "apimachinery",
    "apiextensions-apiserver",
    "kube-aggregator",
    "metrics",
];

/// What no generator writes: our file, and where it is read from in the module `kubernetes`.
const BY_HAND: [(&str, &str); 9] = [
    (
        "crates/values/src/minor.rs, crates/schema/src/schema/catalog.rs, internal/table.rs",
        "the version, and its new files",
    ),
    (
        "crates/schema/data/go-types.txt, go-names.txt",
        "staging API types; the tests of crates/schema name what lacks",
    ),
    (
        "crates/apiserver/data/rbac.json",
        "plugin/pkg/auth/authorizer/rbac/bootstrappolicy/testdata",
    ),
    (
        "crates/cli/data/feature-gates.txt",
        "test/compatibility_lifecycle/reference/versioned_feature_list.yaml",
    ),
    ("crates/cli/data/unserved-flags.txt", "kube-apiserver --help"),
    (
        "crates/kinds/data/columns.json",
        "pkg/printers/internalversion/printers.go",
    ),
    (
        "crates/kinds/src/rows, crates/kinds/src/strategies",
        "pkg/registry, pkg/apis/*/validation, pkg/apis/*/v1/defaults.go",
    ),
    ("crates/controllers", "pkg/controller, pkg/scheduler"),
    ("crates/cluster/testdata", "recordings of the real server"),
];

/// Runs `cargo xtask kubernetes VERSION [--definitions FILE] [--check]`.
///
/// `--definitions` is the `_definitions.json` of kubernetes-validate, for a version that this package does not have yet.
/// `--check` writes nothing and fails when a committed file is not what would be written.
///
/// # Errors
/// What could not be fetched, and the errors of the generators.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let usage = "usage: cargo xtask kubernetes 1.37.2 [--definitions FILE] [--check]";
    let (mut version, mut definitions, mut check) = (None, None, vec![]);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--definitions" => {
                let file = args.next();
                let file = file.ok_or_else(|| format!("kubernetes: --definitions takes a file\n{usage}"))?;
                definitions = Some(PathBuf::from(file));
            }
            "--check" => check.push(arg.clone()),
            text if version.is_none() && !text.starts_with('-') => version = Some(text),
            other => return Err(format!("kubernetes: unknown argument {other:?}\n{usage}")),
        }
    }
    let version = version.ok_or_else(|| format!("kubernetes: which version?\n{usage}"))?;
    let ["1", minor, _] = version.split('.').collect::<Vec<_>>()[..] else {
        return Err(format!("kubernetes: {version:?} is no version such as 1.37.2\n{usage}"));
    };
    let folder = Path::new("target/kubernetes").join(version);
    fs::create_dir_all(&folder).map_err(|why| format!("kubernetes: cannot make {}: {why}", folder.display()))?;

    let source = modules(version)?;
    let kubernetes = source.join(format!("kubernetes@v{version}"));
    let definitions = match definitions {
        Some(file) => file,
        None => published(minor, &folder)?,
    };
    let documents = stable(&kubernetes.join("api/openapi-spec/v3"), &folder.join("documents"))?;
    let enums = kubernetes.join("pkg/generated/openapi/zz_generated.openapi.go");
    let with = |pairs: &[(&str, &Path)], text: &[&str]| {
        let pairs = pairs
            .iter()
            .flat_map(|(name, path)| [(*name).to_owned(), path.display().to_string()]);
        let text = text.iter().map(|&text| text.to_owned());
        pairs.chain(text).chain(check.clone()).collect::<Vec<String>>()
    };
    let files: [(&str, &Path); 3] = [
        ("--definitions", definitions.as_path()),
        ("--documents", documents.as_path()),
        ("--enums", enums.as_path()),
    ];
    generate::run(&with(&files, &["--minor", minor]))?;
    let module = version.replacen('1', "0", 1);
    protobuf::run(&with(&[("--source", source.as_path())], &["--version", &module]))?;
    internal::run(&with(&[("--source", source.as_path())], &["--version", version]))?;

    println!("definitions, messages and structs are those of {version}; left for a person:");
    for (ours, theirs) in BY_HAND {
        println!("  {ours}\n      from {theirs}");
    }
    println!("{} has the sources", kubernetes.display());
    Ok(())
}

/// What a program prints.
fn output(command: &mut Command) -> Result<Vec<u8>, String> {
    let shown = format!("{command:?}");
    let done = command
        .output()
        .map_err(|why| format!("kubernetes: cannot run {shown}: {why}"))?;
    match done.status.success() {
        true => Ok(done.stdout),
        false => {
            let why = [&done.stdout[..], &done.stderr].concat();
            Err(format!("kubernetes: {shown}: {}", String::from_utf8_lossy(&why).trim()))
        }
    }
}

/// Fetches the Go modules; the folder `k8s.io` of the module cache.
fn modules(version: &str) -> Result<PathBuf, String> {
    let module = |name: &str| match name {
        "kubernetes" => format!("k8s.io/{name}@v{version}"),
        _ => format!("k8s.io/{name}@v{}", version.replacen('1', "0", 1)),
    };
    let printed = output(
        Command::new("go")
            .args(["mod", "download", "-json"])
            .args(MODULES.map(module)),
    )?;
    let first = Deserializer::from_slice(&printed).into_iter::<Value>().next();
    let folder = first
        .and_then(Result::ok)
        .and_then(|one| Some(PathBuf::from(one["Dir"].as_str()?)));
    let source = folder.and_then(|folder| Some(folder.parent()?.to_owned()));
    source.ok_or_else(|| "kubernetes: go does not say where the modules are".to_owned())
}

/// Fetches the definitions that PyPI has of a minor version.
fn published(minor: &str, folder: &Path) -> Result<PathBuf, String> {
    let python = || Command::new("python3");
    let package = format!("kubernetes-validate==1.{minor}.0");
    output(
        python()
            .args(["-m", "pip", "download", "--quiet", "--no-deps", "--dest"])
            .arg(folder)
            .arg(package),
    )?;
    let wheel = folder.join(format!("kubernetes_validate-1.{minor}.0-py3-none-any.whl"));
    output(python().args(["-m", "zipfile", "-e"]).arg(wheel).arg(folder))?;
    let inside = format!("kubernetes_validate/kubernetes-json-schema/v1.{minor}.0-local/_definitions.json");
    Ok(folder.join(inside))
}

/// Copies the documents of stable versions: the others have definitions of the same names.
fn stable(from: &Path, to: &Path) -> Result<PathBuf, String> {
    let failed = |why: std::io::Error| format!("kubernetes: copying {}: {why}", from.display());
    fs::create_dir_all(to).map_err(failed)?;
    for entry in fs::read_dir(from).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let text = name.to_string_lossy();
        if !text.contains("alpha") && !text.contains("beta") {
            let text = fs::read(from.join(&name)).map_err(failed)?;
            fs::write(to.join(&name), text).map_err(failed)?;
        }
    }
    Ok(to.to_owned())
}
