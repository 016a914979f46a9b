//! The bill of materials: every crate that is linked into the program, as CycloneDX writes it.
//!
//! Which crates these are says `cargo tree`, with the features of the command alone; what they are, `cargo metadata`; what
//! their sources must hash to, Cargo.lock. Crates that only build it (build scripts, procedural macros) are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};
use toml_edit::DocumentMut;

use super::archive::sha256;
use super::{File, Release, read};

const PROGRAM: &str = "kubewright-cli";

/// The bill of materials of a release.
pub(super) fn make(release: &Release) -> Result<File, String> {
    let triple = release.program.triple();
    let components = components(&release.root, &triple)?;
    let hash = sha256(&release.program.bytes);
    let bill = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": serial(&hash),
        "version": 1,
        "metadata": {
            "timestamp": release.moment,
            "component": {
                "type": "application",
                "bom-ref": "kubewright",
                "name": "kubewright",
                "version": release.version,
                "licenses": [{"expression": "Apache-2.0"}],
                "hashes": [{"alg": "SHA-256", "content": hash}],
            },
        },
        "components": components.values().map(|component| &component.0).collect::<Vec<_>>(),
        "dependencies": dependencies(&components),
    });
    Ok(File {
        name: format!("kubewright-{}-{triple}.cdx.json", release.version),
        what: "the bill of materials",
        bytes: serde_json::to_vec_pretty(&bill).map_err(|why| why.to_string())?,
    })
}

/// A number of the bill that is the same for the same program: a UUID of version 8.
fn serial(hash: &str) -> String {
    let part = |from: usize, to: usize| &hash[from..to];
    format!(
        "urn:uuid:{}-{}-8{}-8{}-{}",
        part(0, 8),
        part(8, 12),
        part(12, 15),
        part(15, 18),
        part(18, 30)
    )
}

/// The licenses of the crates in the program, as their sources have them: each text once, after the crates that it is of.
pub(super) fn notices(root: &Path, triple: &str) -> Result<String, String> {
    const STARTS: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];
    let linked = linked(root, triple)?;
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in metadata(root, triple)?["packages"].as_array().into_iter().flatten() {
        let text = |name: &str| package[name].as_str().unwrap_or_default();
        let reference = format!("{}@{}", text("name"), text("version"));
        // Crates of this workspace are under its own license.
        if !linked.contains(&reference) || !package["source"].is_string() {
            continue;
        }
        let folder = Path::new(text("manifest_path")).parent().unwrap_or(Path::new("."));
        let listed = std::fs::read_dir(folder).map_err(|why| format!("cannot read {}: {why}", folder.display()))?;
        for file in listed.flatten() {
            let name = file.file_name().to_string_lossy().to_uppercase();
            if STARTS.iter().any(|start| name.starts_with(start)) && file.path().is_file() {
                let bytes = std::fs::read(file.path()).map_err(|why| format!("{}: {why}", file.path().display()))?;
                let text = String::from_utf8_lossy(&bytes).trim().to_owned();
                texts.entry(text).or_default().insert(reference.clone());
            }
        }
    }
    let mut all = "The program contains these crates, under the licenses below.\n".to_owned();
    for (text, crates) in texts {
        let crates: Vec<String> = crates.into_iter().collect();
        all += &format!("\n{}\n{}\n\n{text}\n", "=".repeat(80), crates.join(", "));
    }
    Ok(all)
}

/// The crates in the program by their reference, `name@version`, each with the references that it depends on.
type Components = BTreeMap<String, (Value, Vec<String>)>;

fn components(root: &Path, triple: &str) -> Result<Components, String> {
    let linked = linked(root, triple)?;
    let metadata = metadata(root, triple)?;
    let checksums = checksums(root)?;
    let mut references: BTreeMap<&str, String> = BTreeMap::new();
    let mut found = Components::new();
    let packages = metadata["packages"].as_array().into_iter().flatten();
    for package in packages {
        let text = |name: &str| package[name].as_str().unwrap_or_default();
        let reference = format!("{}@{}", text("name"), text("version"));
        if !linked.contains(&reference) {
            continue;
        }
        references.insert(text("id"), reference.clone());
        let license = text("license").replace('/', " OR ");
        if license.is_empty() {
            return Err(format!("{reference} says no license"));
        }
        let mut component = json!({
            "type": "library",
            "bom-ref": reference,
            "name": text("name"),
            "version": text("version"),
            "purl": format!("pkg:cargo/{reference}"),
            "licenses": [{"expression": license}],
        });
        // Crates of this workspace are not downloaded.
        if package["source"].is_string() {
            let checksum = checksums.get(&reference);
            let checksum = checksum.ok_or_else(|| format!("Cargo.lock has no checksum of {reference}"))?;
            component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
        }
        if let Some(url) = package["repository"].as_str() {
            component["externalReferences"] = json!([{"type": "vcs", "url": url}]);
        }
        found.insert(reference, (component, Vec::new()));
    }
    if let Some(missing) = linked.iter().find(|reference| !found.contains_key(*reference)) {
        return Err(format!("cargo metadata does not know {missing}"));
    }
    let nodes = metadata["resolve"]["nodes"].as_array().into_iter().flatten();
    for node in nodes {
        let Some(of) = node["id"].as_str().and_then(|id| references.get(id)) else {
            continue;
        };
        let needed = node["dependencies"].as_array().into_iter().flatten();
        let needed = needed.filter_map(|id| references.get(id.as_str()?).cloned());
        if let Some((_, dependencies)) = found.get_mut(of) {
            dependencies.extend(needed);
        }
    }
    Ok(found)
}

fn metadata(root: &Path, triple: &str) -> Result<Value, String> {
    let asked = [
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--filter-platform",
        triple,
    ];
    serde_json::from_str(&cargo(root, &asked)?).map_err(|why| format!("cargo metadata: {why}"))
}

fn dependencies(components: &Components) -> Value {
    let own = components
        .keys()
        .filter(|name| name.starts_with(&format!("{PROGRAM}@")));
    let root = json!({"ref": "kubewright", "dependsOn": own.collect::<Vec<_>>()});
    let others = components
        .iter()
        .map(|(reference, (_, needed))| json!({"ref": reference, "dependsOn": needed}));
    [root].into_iter().chain(others).collect()
}

/// The crates that are linked into the program.
fn linked(root: &Path, triple: &str) -> Result<BTreeSet<String>, String> {
    let tree = cargo(
        root,
        &[
            "tree",
            "--package",
            PROGRAM,
            "--edges",
            "normal,no-proc-macro",
            "--target",
            triple,
            "--prefix",
            "none",
            "--format",
            "{p}",
            "--locked",
        ],
    )?;
    let lines = tree.lines().filter_map(|line| {
        let (name, rest) = line.split_once(" v")?;
        Some(format!("{name}@{}", rest.split(' ').next()?))
    });
    Ok(lines.collect())
}

/// The hashes in Cargo.lock.
fn checksums(root: &Path) -> Result<BTreeMap<String, String>, String> {
    let lock: DocumentMut = read(&root.join("Cargo.lock"))?
        .parse()
        .map_err(|why| format!("Cargo.lock: {why}"))?;
    let packages = lock["package"].as_array_of_tables().into_iter().flatten();
    let checksums = packages.filter_map(|package| {
        let text = |name: &str| package.get(name)?.as_str();
        Some((
            format!("{}@{}", text("name")?, text("version")?),
            text("checksum")?.to_owned(),
        ))
    });
    Ok(checksums.collect())
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = crate::cargo().args(arguments).current_dir(root).output();
    let output = output.map_err(|why| format!("cannot start cargo: {why}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo {}: {said}", arguments[0]));
    }
    String::from_utf8(output.stdout).map_err(|why| format!("cargo {}: {why}", arguments[0]))
}

#[cfg(test)]
mod tests {
    use super::super::tests::release;
    use super::*;

    #[test]
    fn the_bill_names_what_is_linked_with_licenses_and_checksums() {
        let release = release();
        let bill: Value = serde_json::from_slice(&make(&release).unwrap().bytes).unwrap();
        let components = bill["components"].as_array().unwrap();
        let find = |name: &str| components.iter().find(|one| one["name"] == name);
        for linked in [
            "kubewright-cli",
            "kubewright-apiserver",
            "tokio",
            "rustls",
            "clap_mangen",
        ] {
            assert!(find(linked).is_some(), "{linked}");
        }
        for other in [
            "insta",
            "proptest",
            "serde_derive",
            "tokio-postgres",
            "workspace-hack",
            "xtask",
        ] {
            assert!(find(other).is_none(), "{other} is not in the program");
        }
        let notices = notices(&release.root, "x86_64-unknown-linux-gnu").unwrap();
        for part in ["tokio@", "rustls@", "Permission is hereby granted", "Apache License"] {
            assert!(notices.contains(part), "{part}");
        }
        let tokio = find("tokio").unwrap();
        let checksum = tokio["hashes"][0]["content"].as_str().unwrap();
        assert!(read(&release.root.join("Cargo.lock")).unwrap().contains(checksum));
        let mut wrong: Vec<&Value> = Vec::new();
        wrong.extend(
            components
                .iter()
                .filter(|one| !one["licenses"][0]["expression"].is_string()),
        );
        assert!(wrong.is_empty(), "{wrong:?}");
        let names: BTreeSet<&str> = components.iter().filter_map(|one| one["bom-ref"].as_str()).collect();
        for dependency in bill["dependencies"].as_array().unwrap() {
            for needed in dependency["dependsOn"].as_array().unwrap() {
                assert!(names.contains(needed.as_str().unwrap()), "{dependency}");
            }
        }
    }
}
