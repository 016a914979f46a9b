//! The OCI image, from scratch: the program, whose entry point is the cluster, and what it needs to run.
//!
//! The archive is an OCI layout, and has the manifest of `docker save` beside it: podman, skopeo and any docker load it.
//! The cluster runs as a user without rights. It listens on all addresses of the container, with TLS and with
//! authentication as everywhere; a client copies its kubeconfig out of the container. A dynamic program brings its loader
//! and its libraries along. Not here: a shell, and the authorities of the machine: a webhook needs its caBundle.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::archive::{Entry, gzip, sha256, tar};
use super::program::{System, libraries};
use super::{File, NOTICES, Release};

/// Where the kubeconfig is, in a folder that only the cluster's user writes.
pub(super) const KUBECONFIG: &str = "/run/kubewright/kubeconfig";
/// The number of the user and the group of the cluster, which other images call nonroot.
const USER: u64 = 65532;
/// The name under which it is loaded.
const NAME: &str = "ghcr.io/kubewright/kubewright";

/// The image; none for a program of another system.
pub(super) fn make(release: &Release) -> Result<Option<File>, String> {
    let needed = match &release.program.system {
        System::MacOs => return Ok(None),
        System::Static => Vec::new(),
        System::Glibc { loader, .. } => libraries(&release.path, loader)?,
    };
    let mut entries = vec![
        Entry::folder("etc", 0o755, 0),
        Entry::file("etc/group", format!("root:x:0:\nnonroot:x:{USER}:\n")),
        Entry::file(
            "etc/passwd",
            format!("root:x:0:0:root:/:/none\nnonroot:x:{USER}:{USER}:nonroot:/run/kubewright:/none\n"),
        ),
        Entry::folder("run", 0o755, 0),
        Entry::folder("run/kubewright", 0o700, USER),
        Entry::folder("tmp", 0o1777, 0),
        Entry::folder("usr", 0o755, 0),
        Entry::folder("usr/bin", 0o755, 0),
        Entry::program("usr/bin/kubewright", release.program.bytes.clone()),
        Entry::file(NOTICES, release.notices.clone()),
    ];
    for path in needed {
        let bytes = fs::read(&path).map_err(|why| format!("cannot read {}: {why}", path.display()))?;
        entries.push(Entry::program(relative(&path)?, bytes));
    }
    let layer = tar(&entries, release.time)?;
    let compressed = gzip(&layer)?;
    let processor = release.program.processor.pick("amd64", "arm64");
    let config = json!({
        "architecture": processor,
        "os": "linux",
        "created": release.moment,
        "config": {
            "User": format!("{USER}:{USER}"),
            "Entrypoint": ["/usr/bin/kubewright", "cluster", "--listen", "0.0.0.0:6443", "--kubeconfig", KUBECONFIG],
            "Env": ["PATH=/usr/bin"],
            "ExposedPorts": {"6443/tcp": {}},
            "WorkingDir": "/run/kubewright",
            "Labels": {
                "org.opencontainers.image.source": "https://github.com/kubewright/kubewright",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", sha256(&layer))]},
        "history": [{"created": release.moment, "created_by": "cargo xtask dist"}],
    });
    let config = blob(&config)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar+gzip", &compressed)],
    });
    let manifest = blob(&manifest)?;
    let name = format!("{NAME}:{}", release.version);
    let mut found = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
    found["platform"] = json!({"architecture": processor, "os": "linux"});
    found["annotations"] = json!({
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": release.version,
    });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [found],
    });
    let saved = json!([{"Config": path(&config), "RepoTags": [name], "Layers": [path(&compressed)]}]);
    let files = [
        Entry::file("oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#),
        Entry::file("index.json", blob(&index)?),
        Entry::file("manifest.json", blob(&saved)?),
        Entry::folder("blobs", 0o755, 0),
        Entry::folder("blobs/sha256", 0o755, 0),
        Entry::file(path(&config), config),
        Entry::file(path(&manifest), manifest),
        Entry::file(path(&compressed), compressed),
    ];
    Ok(Some(File {
        name: format!("kubewright-{}-linux-{processor}-oci.tar", release.version),
        what: "a container image whose entry point is the cluster",
        bytes: tar(&files, release.time)?,
    }))
}

fn relative(path: &Path) -> Result<String, String> {
    let path = path.to_str().and_then(|path| path.strip_prefix('/'));
    path.map(str::to_owned)
        .ok_or_else(|| "a library without an absolute path".to_owned())
}

fn blob(value: &Value) -> Result<Vec<u8>, String> {
    serde_json::to_vec(value).map_err(|why| why.to_string())
}

fn path(blob: &[u8]) -> String {
    format!("blobs/sha256/{}", sha256(blob))
}

fn descriptor(kind: &str, blob: &[u8]) -> Value {
    json!({"mediaType": kind, "digest": format!("sha256:{}", sha256(blob)), "size": blob.len()})
}

#[cfg(test)]
mod tests {
    use super::super::tests::{PROGRAM, release, untar};
    use super::*;

    #[test]
    fn digests_lead_from_the_index_to_the_program() {
        let mut release = release();
        release.program.system = System::Static;
        let image = make(&release).unwrap().unwrap();
        let files = untar(&image.bytes);
        let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
            let (bytes, _) = &files[&format!("blobs/sha256/{digest}")];
            assert_eq!(
                (sha256(bytes).as_str(), &json!(bytes.len())),
                (digest, &descriptor["size"])
            );
            bytes.clone()
        };
        let manifest = json(&blob(&json(&files["index.json"].0)["manifests"][0]));
        let config = json(&blob(&manifest["config"]));
        let layer = blob(&manifest["layers"][0]);
        let mut plain = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(layer.as_slice()), &mut plain).unwrap();
        assert_eq!(
            config["rootfs"]["diff_ids"],
            json!([format!("sha256:{}", sha256(&plain))])
        );
        assert_eq!(config["config"]["User"], "65532:65532");
        let system = untar(&layer);
        let entry = config["config"]["Entrypoint"][0].as_str().unwrap();
        assert_eq!(system[&entry[1..]], (PROGRAM.to_vec(), 0o755));
        let saved = json(&files["manifest.json"].0);
        for named in [&saved[0]["Config"], &saved[0]["Layers"][0]] {
            assert!(files.contains_key(named.as_str().unwrap()), "{named}");
        }
        release.program.system = System::MacOs;
        assert!(make(&release).unwrap().is_none());
    }
}
