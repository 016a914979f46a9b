//! Volumes as folders: emptyDir, configMap, secret, downwardAPI, projected with tokens, and claims; and how containers
//! find them.
//!
//! Invariants: a folder with content from the API is made anew where that has changed, and programs cannot change it; a
//! mount that cannot be is refused in words, never left out. Not here: reading the other objects
//! (`environment::Sources`), asking for tokens (`tokens`).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use kubewright::Client;
use kubewright::k8s_openapi::api::core::v1::{
    ConfigMap, Container, DownwardAPIVolumeFile, KeyToPath, PersistentVolumeClaim, Pod, Secret, Volume,
    VolumeProjection,
};

use super::environment::{self, Sources};
use super::home::Home;

/// A file that the API says the content of.
#[derive(Debug, PartialEq, Eq)]
struct Text {
    path: String,
    content: Vec<u8>,
    mode: u32,
}

/// The parts that are needed besides the objects.
pub(super) struct Given<'a> {
    pub(super) home: &'a Home,
    pub(super) sources: &'a Sources,
    /// The volume behind each claim of the pod.
    pub(super) claims: &'a BTreeMap<String, String>,
    /// Tokens by volume and path.
    pub(super) tokens: &'a BTreeMap<(String, String), String>,
}

/// Makes the volumes of a pod, or corrects their contents; answers where they are.
///
/// # Errors
/// In words, with the volume, when one cannot be made.
pub(super) fn make(given: &Given<'_>, pod: &Pod) -> Result<BTreeMap<String, PathBuf>, (String, String)> {
    let mut all = BTreeMap::new();
    let spec = pod.spec.iter();
    for volume in spec.flat_map(|spec| spec.volumes.iter().flatten()) {
        let made = one(given, pod, volume).map_err(|why| (volume.name.clone(), why))?;
        all.insert(volume.name.clone(), made);
    }
    Ok(all)
}

fn one(given: &Given<'_>, pod: &Pod, volume: &Volume) -> Result<PathBuf, String> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let folder = given.home.pod(uid).join("volumes").join(&volume.name);
    let in_words = |error: io::Error| format!("{}: {error}", folder.display());
    let passage = folder.parent().unwrap_or(&folder);
    given.home.make_passage(passage).map_err(in_words)?;
    if volume.empty_dir.is_some() {
        given.home.make_own(&folder).map_err(in_words)?;
        return Ok(folder);
    }
    let claim = volume
        .persistent_volume_claim
        .as_ref()
        .map(|source| source.claim_name.clone());
    let claim = claim.or_else(|| volume.ephemeral.as_ref().map(|_| claim_of(pod, volume)));
    if let Some(claim) = claim {
        let name = given.claims.get(&claim);
        let name = name.ok_or_else(|| format!("persistentvolumeclaim \"{claim}\" is not bound"))?;
        let folder = given.home.volume(name);
        given
            .home
            .make_own(&folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        return Ok(folder);
    }
    let texts = texts(given, pod, volume)?;
    write_all(given.home, &folder, &texts).map_err(in_words)?;
    Ok(folder)
}

/// The claim that is made for an ephemeral volume.
pub(super) fn claim_of(pod: &Pod, volume: &Volume) -> String {
    format!("{}-{}", pod.metadata.name.as_deref().unwrap_or_default(), volume.name)
}

/// The volume behind each claim of a pod.
pub(super) async fn claims(client: &Client, pod: &Pod) -> kubewright::Result<BTreeMap<String, String>> {
    let of_volume = |volume: &Volume| match &volume.persistent_volume_claim {
        Some(source) => Some(source.claim_name.clone()),
        None => volume.ephemeral.as_ref().map(|_| claim_of(pod, volume)),
    };
    let spec = pod.spec.iter();
    let names: Vec<String> = spec
        .flat_map(|spec| spec.volumes.iter().flatten())
        .filter_map(of_volume)
        .collect();
    let mut all = BTreeMap::new();
    for name in names {
        let claim = client
            .get::<PersistentVolumeClaim>(pod.metadata.namespace.as_deref(), &name)
            .await?;
        let volume = claim.and_then(|claim| claim.spec.as_ref()?.volume_name.clone());
        all.extend(volume.map(|volume| (name, volume)));
    }
    Ok(all)
}

/// The files of a volume whose content is in the API.
fn texts(given: &Given<'_>, pod: &Pod, volume: &Volume) -> Result<Vec<Text>, String> {
    let default = |mode: Option<i32>| mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(0o644);
    if let Some(source) = &volume.config_map {
        let found = given.sources.maps.get(&source.name);
        return of_map(
            found,
            &source.name,
            source.items.as_deref(),
            default(source.default_mode),
            source.optional,
        );
    }
    if let Some(source) = &volume.secret {
        let name = source.secret_name.as_deref().unwrap_or_default();
        let found = given.sources.secrets.get(name);
        return of_secret(
            found,
            name,
            source.items.as_deref(),
            default(source.default_mode),
            source.optional,
        );
    }
    if let Some(source) = &volume.downward_api {
        return of_pod(
            given,
            pod,
            source.items.as_deref().unwrap_or_default(),
            default(source.default_mode),
        );
    }
    if let Some(source) = &volume.projected {
        let mut all = Vec::new();
        for part in source.sources.iter().flatten() {
            all.extend(projected(given, pod, &volume.name, part, default(source.default_mode))?);
        }
        return Ok(all);
    }
    if volume.host_path.is_some() {
        return Err(
            "hostPath is refused: a process sees the files of this machine as they are; say a claim or emptyDir"
                .to_owned(),
        );
    }
    Err("processes have no volumes of this kind; they have emptyDir, configMap, secret, downwardAPI, projected and claims".to_owned())
}

fn projected(
    given: &Given<'_>,
    pod: &Pod,
    volume: &str,
    part: &VolumeProjection,
    mode: u32,
) -> Result<Vec<Text>, String> {
    let mut all = Vec::new();
    if let Some(source) = &part.config_map {
        let found = given.sources.maps.get(&source.name);
        all.extend(of_map(
            found,
            &source.name,
            source.items.as_deref(),
            mode,
            source.optional,
        )?);
    }
    if let Some(source) = &part.secret {
        let found = given.sources.secrets.get(&source.name);
        all.extend(of_secret(
            found,
            &source.name,
            source.items.as_deref(),
            mode,
            source.optional,
        )?);
    }
    if let Some(source) = &part.downward_api {
        all.extend(of_pod(given, pod, source.items.as_deref().unwrap_or_default(), mode)?);
    }
    if let Some(source) = &part.service_account_token {
        let token = given.tokens.get(&(volume.to_owned(), source.path.clone()));
        let token = token.ok_or_else(|| "there is no token for the service account".to_owned())?;
        all.push(Text {
            path: source.path.clone(),
            content: token.clone().into_bytes(),
            mode: 0o600,
        });
    }
    if part.cluster_trust_bundle.is_some() || part.pod_certificate.is_some() {
        return Err("processes have no clusterTrustBundle and no podCertificate".to_owned());
    }
    Ok(all)
}

fn of_map(
    found: Option<&ConfigMap>,
    name: &str,
    items: Option<&[KeyToPath]>,
    mode: u32,
    optional: Option<bool>,
) -> Result<Vec<Text>, String> {
    let Some(map) = found else {
        return missing("configmap", name, optional);
    };
    let mut data: BTreeMap<&str, &[u8]> = BTreeMap::new();
    data.extend(
        map.data
            .iter()
            .flatten()
            .map(|(key, text)| (key.as_str(), text.as_bytes())),
    );
    data.extend(
        map.binary_data
            .iter()
            .flatten()
            .map(|(key, bytes)| (key.as_str(), bytes.0.as_slice())),
    );
    chosen(&data, items, mode, optional)
}

fn of_secret(
    found: Option<&Secret>,
    name: &str,
    items: Option<&[KeyToPath]>,
    mode: u32,
    optional: Option<bool>,
) -> Result<Vec<Text>, String> {
    let Some(secret) = found else {
        return missing("secret", name, optional);
    };
    let data = secret.data.iter().flatten();
    let data = data.map(|(key, bytes)| (key.as_str(), bytes.0.as_slice())).collect();
    chosen(&data, items, mode, optional)
}

fn missing(kind: &str, name: &str, optional: Option<bool>) -> Result<Vec<Text>, String> {
    match optional {
        Some(true) => Ok(Vec::new()),
        _ => Err(format!("{kind} \"{name}\" not found")),
    }
}

/// All keys as files, or those that are named (`MakePayload`).
fn chosen(
    data: &BTreeMap<&str, &[u8]>,
    items: Option<&[KeyToPath]>,
    mode: u32,
    optional: Option<bool>,
) -> Result<Vec<Text>, String> {
    let text = |path: &str, content: &[u8], mode| Text {
        path: path.to_owned(),
        content: content.to_owned(),
        mode,
    };
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        return Ok(data.iter().map(|(key, content)| text(key, content, mode)).collect());
    };
    let mut all = Vec::new();
    for item in items {
        let mode = item.mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(mode);
        match data.get(item.key.as_str()) {
            Some(content) => all.push(text(&item.path, content, mode)),
            None if optional == Some(true) => {}
            None => return Err(format!("references non-existent config key: {}", item.key)),
        }
    }
    Ok(all)
}

fn of_pod(given: &Given<'_>, pod: &Pod, items: &[DownwardAPIVolumeFile], mode: u32) -> Result<Vec<Text>, String> {
    let mut all = Vec::new();
    let nothing = Container::default();
    for item in items {
        let content = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => given.sources.field(pod, field)?,
            (None, Some(resource)) => environment::resource_field(pod, &nothing, resource)?,
            (None, None) => String::new(),
        };
        all.push(Text {
            path: item.path.clone(),
            content: content.into_bytes(),
            mode: item.mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(mode),
        });
    }
    Ok(all)
}

/// Makes a folder hold these files and no others.
fn write_all(home: &Home, folder: &Path, texts: &[Text]) -> io::Result<()> {
    home.make_passage(folder)?;
    home.show(folder, 0o700)?;
    for text in texts {
        let path = folder.join(&text.path);
        if let Some(parent) = path.parent().filter(|parent| *parent != folder) {
            home.make_passage(parent)?;
            home.show(parent, 0o700)?;
        }
        if fs::read(&path).is_ok_and(|present| present == text.content) {
            continue;
        }
        // A reader gets all of the old text or all of the new one.
        let new = path.with_extension("kubewright-new");
        fs::write(&new, &text.content)?;
        home.show(&new, text.mode)?;
        fs::rename(&new, &path)?;
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_wanted = |text: &Text| text.path.split('/').next() == Some(&*name);
        if !texts.iter().any(is_wanted) && entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Makes the root folder of a container: a link for each of its mounts, a folder for each that its image would have.
///
/// # Errors
/// In words, when a mount cannot be.
pub(super) fn mount(
    home: &Home,
    root: &Path,
    container: &Container,
    volumes: &BTreeMap<String, PathBuf>,
    owned: &[String],
    expand: impl Fn(&str) -> String,
) -> Result<(), String> {
    let in_words = |error: io::Error| format!("{}: {error}", root.display());
    let below = |path: &str| root.join(path.trim_matches('/'));
    home.make_passage(root).map_err(in_words)?;
    let mut mounts: Vec<_> = container.volume_mounts.iter().flatten().collect();
    mounts.sort_by_key(|mount| mount.mount_path.len());
    for (at, mount) in mounts.iter().enumerate() {
        let path = mount.mount_path.trim_end_matches('/');
        let is_inside = |outer: &str| {
            path.strip_prefix(outer.trim_end_matches('/'))
                .is_some_and(|rest| rest.starts_with('/'))
        };
        if let Some(outer) = mounts[..at].iter().find(|outer| is_inside(&outer.mount_path)) {
            let outer = &outer.mount_path;
            return Err(format!(
                "{path} is inside of the mount {outer}: processes have no mounts inside of others"
            ));
        }
        if path.is_empty() || Path::new(path).components().any(|part| part.as_os_str() == "..") {
            return Err(format!("{:?} is no path for a mount", mount.mount_path));
        }
        let volume = volumes
            .get(&mount.name)
            .ok_or_else(|| format!("there is no volume {:?}", mount.name))?;
        let within = mount
            .sub_path_expr
            .as_deref()
            .map(&expand)
            .or_else(|| mount.sub_path.clone());
        let target = match within.filter(|within| !within.is_empty()) {
            Some(within) => sub_path(home, volume, &within)?,
            None => volume.clone(),
        };
        let link = below(path);
        if let Some(parent) = link.parent() {
            own_folders(home, root, parent).map_err(in_words)?;
        }
        std::os::unix::fs::symlink(target, &link).map_err(in_words)?;
    }
    for path in owned {
        if !below(path).exists() {
            own_folders(home, root, &below(path)).map_err(in_words)?;
        }
    }
    home.give(root).map_err(in_words)
}

/// Makes a folder below a root, and all on the way to it, the programs' own.
fn own_folders(home: &Home, root: &Path, folder: &Path) -> io::Result<()> {
    let mut all: Vec<&Path> = folder.ancestors().take_while(|path| *path != root).collect();
    all.reverse();
    all.into_iter()
        .filter(|path| !path.exists())
        .try_for_each(|path| home.make_own(path))
}

/// A folder or file of a volume, which a program may have changed: a path that leads out of it is refused.
fn sub_path(home: &Home, volume: &Path, within: &str) -> Result<PathBuf, String> {
    let path = volume.join(within);
    let in_words = |error: io::Error| format!("subPath {within}: {error}");
    let leads_up = Path::new(within)
        .components()
        .any(|part| !matches!(part, std::path::Component::Normal(_)));
    if leads_up {
        return Err(format!("subPath {within} leads out of its volume"));
    }
    if !path.exists() {
        own_folders(home, volume, &path).map_err(in_words)?;
    }
    let (found, outer) = (
        path.canonicalize().map_err(in_words)?,
        volume.canonicalize().map_err(in_words)?,
    );
    match found.starts_with(outer) {
        true => Ok(path),
        false => Err(format!("subPath {within} leads out of its volume")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(volume: Value, expected: &[(&str, &str)]) {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::make(Some(folder.path())).expect("folders");
        let mut sources = Sources::default();
        let map = json!({ "data": { "a": "map-a", "b": "map-b" }, "binaryData": { "c": "Yw==" } });
        sources
            .maps
            .insert("m".to_owned(), serde_json::from_value(map).expect("a map"));
        let secret = json!({ "data": { "p": "c2VjcmV0" } });
        sources
            .secrets
            .insert("s".to_owned(), serde_json::from_value(secret).expect("a secret"));
        let given = Given {
            home: &home,
            sources: &sources,
            claims: &[("bound".to_owned(), "pv-1".to_owned())].into(),
            tokens: &[(("v".to_owned(), "token".to_owned()), "T".to_owned())].into(),
        };
        let mut whole = json!({ "name": "v" });
        whole
            .as_object_mut()
            .expect("an object")
            .extend(volume.as_object().expect("an object").clone());
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "p", "uid": "0a1b2c3d", "labels": { "app": "db" } },
            "spec": { "containers": [], "volumes": [whole] },
        }))
        .expect("a pod");
        // Twice: the second time there is nothing to do.
        for _ in 0..2 {
            let found = match make(&given, &pod) {
                Err((name, why)) => vec![(name, why)],
                Ok(made) => {
                    let entries = fs::read_dir(&made["v"])
                        .expect("a folder")
                        .map(|entry| entry.expect("an entry").path());
                    let mut files: Vec<_> = entries.filter(|path| path.is_file()).collect();
                    files.sort();
                    let read = |path: &PathBuf| {
                        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
                        (name, fs::read_to_string(path).expect("a text"))
                    };
                    files.iter().map(read).collect()
                }
            };
            let expected: Vec<_> = expected
                .iter()
                .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
                .collect();
            assert_eq!(found, expected, "{volume}");
        }
        home.clear();
    }

    #[test]
    fn what_is_in_volumes() {
        check(json!({ "emptyDir": {} }), &[]);
        check(json!({ "persistentVolumeClaim": { "claimName": "bound" } }), &[]);
        check(
            json!({ "persistentVolumeClaim": { "claimName": "other" } }),
            &[("v", "persistentvolumeclaim \"other\" is not bound")],
        );
        check(
            json!({ "configMap": { "name": "m" } }),
            &[("a", "map-a"), ("b", "map-b"), ("c", "c")],
        );
        check(
            json!({ "configMap": { "name": "m", "items": [{ "key": "a", "path": "x" }] } }),
            &[("x", "map-a")],
        );
        check(
            json!({ "configMap": { "name": "m", "items": [{ "key": "q", "path": "x" }] } }),
            &[("v", "references non-existent config key: q")],
        );
        check(json!({ "secret": { "secretName": "s" } }), &[("p", "secret")]);
        check(
            json!({ "secret": { "secretName": "t" } }),
            &[("v", "secret \"t\" not found")],
        );
        check(json!({ "secret": { "secretName": "t", "optional": true } }), &[]);
        check(
            json!({ "downwardAPI": { "items": [{ "path": "l", "fieldRef": { "fieldPath": "metadata.labels" } }] } }),
            &[("l", "app=\"db\"")],
        );
        check(
            json!({ "projected": { "sources": [
                { "serviceAccountToken": { "path": "token" } },
                { "configMap": { "name": "m", "items": [{ "key": "a", "path": "ca.crt" }] } },
            ] } }),
            &[("ca.crt", "map-a"), ("token", "T")],
        );
        let refused =
            "hostPath is refused: a process sees the files of this machine as they are; say a claim or emptyDir";
        check(json!({ "hostPath": { "path": "/etc" } }), &[("v", refused)]);
        let unknown = "processes have no volumes of this kind; they have emptyDir, configMap, secret, downwardAPI, projected and claims";
        check(json!({ "nfs": { "server": "s", "path": "/" } }), &[("v", unknown)]);
    }

    #[test]
    fn how_containers_find_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::make(Some(folder.path())).expect("folders");
        let volume = home.volume("v");
        home.make_own(&volume).expect("a folder");
        std::os::unix::fs::symlink("/etc", volume.join("out")).expect("a link");
        let check = |number: u32, mounts: Value, expected: &str| {
            let root = home.pod("0a").join(format!("root-{number}"));
            let container = json!({ "name": "c", "volumeMounts": mounts });
            let container = serde_json::from_value(container).expect("a container");
            let volumes = [("v".to_owned(), volume.clone())].into();
            let done = mount(
                &home,
                &root,
                &container,
                &volumes,
                &["/var/lib/db".to_owned()],
                |text| text.replace("$(POD)", "p"),
            );
            assert_eq!(done.err().unwrap_or_default(), expected, "{mounts}");
            root
        };
        let root = check(0, json!([{ "name": "v", "mountPath": "/a/b/" }]), "");
        assert_eq!(fs::read_link(root.join("a/b")).expect("a link"), volume);
        assert!(root.join("var/lib/db").is_dir());
        let root = check(
            1,
            json!([{ "name": "v", "mountPath": "/var/lib/db", "subPathExpr": "x/$(POD)" }]),
            "",
        );
        assert_eq!(
            fs::read_link(root.join("var/lib/db")).expect("a link"),
            volume.join("x/p")
        );
        check(
            2,
            json!([{ "name": "v", "mountPath": "/a", "subPath": "out" }]),
            "subPath out leads out of its volume",
        );
        check(
            3,
            json!([{ "name": "v", "mountPath": "/a", "subPath": "../x" }]),
            "subPath ../x leads out of its volume",
        );
        check(
            4,
            json!([{ "name": "w", "mountPath": "/a" }]),
            "there is no volume \"w\"",
        );
        check(
            5,
            json!([{ "name": "v", "mountPath": "/../a" }]),
            "\"/../a\" is no path for a mount",
        );
        let inside = "/a/b is inside of the mount /a: processes have no mounts inside of others";
        check(
            6,
            json!([{ "name": "v", "mountPath": "/a" }, { "name": "v", "mountPath": "/a/b" }]),
            inside,
        );
        home.clear();
    }
}
