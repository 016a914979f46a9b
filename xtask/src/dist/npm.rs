//! The npm package: clients/javascript with the program inside, for one system and processor.
//!
//! `npx kubewright` runs the program itself, without Node between. Not here: packages for a registry, where one name has
//! programs for several systems, each in a package of its own.

use std::path::Path;

use serde_json::{Value, json};

use super::archive::{Entry, gzip, tar};
use super::program::System;
use super::{File, NOTICES, Release, read};

/// The package, as `npm pack` would write it.
pub(super) fn make(release: &Release) -> Result<File, String> {
    let source = release.root.join("clients/javascript");
    let mut manifest = manifest(&source)?;
    if manifest["version"] != release.version.as_str() {
        return Err(format!(
            "clients/javascript/package.json is not of version {}",
            release.version
        ));
    }
    let mut entries = Vec::new();
    let files = manifest["files"].as_array().cloned().unwrap_or_default();
    for file in files.iter().filter_map(Value::as_str).chain(["README.md"]) {
        entries.push(Entry::file(format!("package/{file}"), read(&source.join(file))?));
    }
    entries.push(Entry::file("package/LICENSE", read(&release.root.join("LICENSE"))?));
    entries.push(Entry::file(format!("package/{NOTICES}"), release.notices.clone()));
    entries.push(Entry::program("package/bin/kubewright", release.program.bytes.clone()));
    let system = if release.program.system == System::MacOs {
        "darwin"
    } else {
        "linux"
    };
    let processor = release.program.processor.pick("x64", "arm64");
    manifest["bin"] = json!({"kubewright": "bin/kubewright"});
    manifest["os"] = json!([system]);
    manifest["cpu"] = json!([processor]);
    if let System::Glibc { .. } = release.program.system {
        manifest["libc"] = json!(["glibc"]);
    }
    if let Some(fields) = manifest.as_object_mut() {
        fields.remove("scripts");
        fields.remove("files");
    }
    let text = serde_json::to_string_pretty(&manifest).map_err(|why| why.to_string())?;
    entries.insert(0, Entry::file("package/package.json", text));
    Ok(File {
        name: format!("kubewright-{}-{system}-{processor}-npm.tgz", release.version),
        what: "the command, startCluster() for JavaScript and TypeScript",
        bytes: gzip(&tar(&entries, release.time)?)?,
    })
}

fn manifest(source: &Path) -> Result<Value, String> {
    let text = read(&source.join("package.json"))?;
    serde_json::from_str(&text).map_err(|why| format!("clients/javascript/package.json: {why}"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{PROGRAM, release, untar};
    use super::*;

    #[test]
    fn the_package_has_what_its_manifest_names() {
        let release = release();
        let package = make(&release).unwrap();
        assert_eq!(
            package.name,
            format!("kubewright-{}-linux-x64-npm.tgz", release.version)
        );
        let files = untar(&package.bytes);
        let manifest: Value = serde_json::from_slice(&files["package/package.json"].0).unwrap();
        for named in [&manifest["main"], &manifest["types"], &manifest["bin"]["kubewright"]] {
            let path = format!("package/{}", named.as_str().unwrap());
            assert!(files.contains_key(&path), "{path}");
        }
        assert_eq!(files["package/bin/kubewright"], (PROGRAM.to_vec(), 0o755));
        assert_eq!(
            (&manifest["os"][0], &manifest["libc"][0]),
            (&json!("linux"), &json!("glibc"))
        );
        assert!(manifest.get("dependencies").is_none() && manifest.get("scripts").is_none());
    }
}
