//! Volumes as folders: emptyDir, configMap, secret, downwardAPI, projected with tokens, and claims.
//!
//! Invariants: a folder with content from the API is made anew where that has changed, and programs cannot change it; a
//! path that a spec names is walked below its folder (`beneath`); a PersistentVolume is used only by a pod with the claim
//! that the volume itself names. Not here: how containers find them (`mounts`), reading the other objects (`environment::Sources`), asking for
//! tokens (`tokens`).

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use kubewright::Client;
use kubewright_objects::api::core::v1::{
    ConfigMap, Container, DownwardAPIVolumeFile, KeyToPath, PersistentVolume, PersistentVolumeClaim, Pod, Secret,
    Volume, VolumeProjection,
};
use kubewright_objects::{meta, pods};

use super::beneath::{Below, Folder};
use super::environment::{self, Sources};
use super::home::Home;
use super::users::User;

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
    /// The volume behind each claim of the pod, or why it has none.
    pub(super) claims: &'a Claims,
    /// The user of the pod's programs, if that is another than the cluster's.
    pub(super) user: Option<User>,
    /// Tokens by volume and path.
    pub(super) tokens: &'a BTreeMap<(String, String), String>,
}

/// By the names of claims.
pub(super) type Claims = BTreeMap<String, Result<Below, String>>;

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
    let uid = Below::name(meta::uid(&pod.metadata))?;
    let name = Below::name(&volume.name)?;
    let passage = given.home.pod(&uid.text()).join("volumes");
    let in_words = |error: io::Error| format!("{}: {error}", passage.join(name.text()).display());
    given.home.make_passage(&passage).map_err(in_words)?;
    let outer = Folder::open(&passage).map_err(in_words)?;
    if volume.empty_dir.is_some() {
        let folder = outer.make(&name, given.user).map_err(in_words)?;
        return Ok(folder.path().to_owned());
    }
    if let Some(claim) = pods::claim_of(pod, volume) {
        let claim = claim.name;
        let bound = given.claims.get(&claim).cloned();
        let bound = bound.unwrap_or_else(|| Err(format!("persistentvolumeclaim \"{claim}\" is not known")))?;
        let folder = given.home.make_volume(&bound, given.user);
        let folder = folder.map_err(|error| format!("the volume {}: {error}", bound.text()))?;
        return Ok(folder.path().to_owned());
    }
    let texts = texts(given, pod, volume)?;
    let texts = texts.into_iter().map(|text| Ok((Below::new(&text.path)?, text)));
    let texts = texts.collect::<Result<Vec<_>, String>>()?;
    let folder = outer.make(&name, None).map_err(in_words)?;
    write_all(&folder, &texts, given.user).map_err(in_words)?;
    Ok(folder.path().to_owned())
}

/// The volume behind each claim of a pod. Anyone who may write claims can name any volume in one: what counts is the claim
/// that the volume names, by its UID, and only the cluster's administrators write volumes (`getPVCExtractPV` and
/// `getPVSpec`).
pub(super) async fn claims(client: &Client, pod: &Pod) -> kubewright::Result<Claims> {
    let namespace = pod.metadata.namespace.as_deref();
    let mut all = Claims::new();
    for pods::PodClaim { name, is_ephemeral, .. } in pods::claims(pod) {
        let Some(found) = client.get::<PersistentVolumeClaim>(namespace, &name).await? else {
            let why = format!("persistentvolumeclaim \"{name}\" not found");
            all.insert(name, Err(why));
            continue;
        };
        let wanted = found.spec.as_ref().and_then(|spec| spec.volume_name.clone());
        let volume = match wanted.filter(|wanted| !wanted.is_empty()) {
            Some(wanted) => client.get::<PersistentVolume>(None, &wanted).await?,
            None => None,
        };
        all.insert(name, behind(pod, is_ephemeral, &found, volume.as_deref()));
    }
    Ok(all)
}

/// The first volume of a pod whose claim has none, and why.
pub(super) fn unbound(claims: &Claims, pod: &Pod) -> Option<(String, String)> {
    pods::claims(pod).find_map(|claim| Some((claim.volume.to_owned(), claims.get(&claim.name)?.clone().err()?)))
}

/// The folder's name of the volume behind a claim.
fn behind(
    pod: &Pod,
    is_ephemeral: bool,
    claim: &PersistentVolumeClaim,
    volume: Option<&PersistentVolume>,
) -> Result<Below, String> {
    let name = meta::name(&claim.metadata);
    let uid = meta::uid(&claim.metadata);
    if let Some(why) = pods::not_made_for(pod, claim).filter(|_| is_ephemeral) {
        return Err(why);
    }
    if meta::is_deleting(&claim.metadata) {
        return Err(format!("persistentvolumeclaim \"{name}\" is being deleted"));
    }
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    let (Some("Bound"), Some(volume)) = (phase, volume) else {
        return Err(format!("persistentvolumeclaim \"{name}\" is not bound"));
    };
    let of_volume = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let names_it = of_volume.is_some_and(|of_volume| of_volume.uid.as_deref() == Some(uid));
    let volume = meta::name(&volume.metadata);
    if uid.is_empty() || !names_it {
        return Err(format!(
            "persistentvolume \"{volume}\" is not bound to persistentvolumeclaim \"{name}\""
        ));
    }
    Below::name(volume)
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

/// Makes a folder of the cluster's hold these files and no others.
fn write_all(folder: &Folder, texts: &[(Below, Text)], user: Option<User>) -> io::Result<()> {
    folder.show(user)?;
    for (path, text) in texts {
        if let (Some(parent), _) = path.split() {
            folder.make(&parent, None)?.show(user)?;
        }
        let most = u64::try_from(text.content.len()).unwrap_or(u64::MAX).saturating_add(1);
        if folder
            .read(path, most, None)
            .is_ok_and(|present| present == text.content)
        {
            continue;
        }
        folder.write(path, &text.content, text.mode, user)?;
    }
    for (name, is_file) in folder.entries()? {
        if is_file && !texts.iter().any(|(path, _)| path.first() == name) {
            folder.remove_file(&name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

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
            claims: &[("bound".to_owned(), Below::name("pv-1"))].into(),
            user: None,
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
            &[("v", "persistentvolumeclaim \"other\" is not known")],
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

    /// A claim is a thing of a namespace; the volume says which one it is for.
    #[test]
    fn which_volume_is_behind_a_claim() {
        let check = |claim: Value, volume: Value, expected: &str| {
            let mut whole = json!({ "metadata": { "name": "c", "uid": "1" }, "status": { "phase": "Bound" } });
            for (key, value) in claim.as_object().expect("an object") {
                whole[key] = value.clone();
            }
            let pod: Pod = serde_json::from_value(json!({ "metadata": { "name": "p", "uid": "0a" } })).expect("a pod");
            let claim_object = serde_json::from_value(whole).expect("a claim");
            let object: Option<PersistentVolume> = serde_json::from_value(volume.clone()).expect("a volume");
            let is_ephemeral = claim.get("ephemeral").is_some();
            let (Ok(said) | Err(said)) =
                behind(&pod, is_ephemeral, &claim_object, object.as_ref()).map(|below| below.text());
            assert_eq!(said, expected, "{claim} {volume}");
        };
        let volume = |uid: &str| json!({ "metadata": { "name": "v" }, "spec": { "claimRef": { "uid": uid } } });
        check(json!({}), volume("1"), "v");
        let not_bound = "persistentvolumeclaim \"c\" is not bound";
        check(json!({ "status": { "phase": "Pending" } }), volume("1"), not_bound);
        check(json!({ "status": null }), volume("1"), not_bound);
        check(json!({}), json!(null), not_bound);
        let not_this = "persistentvolume \"v\" is not bound to persistentvolumeclaim \"c\"";
        check(json!({}), volume("2"), not_this);
        check(json!({}), volume(""), not_this);
        check(json!({}), json!({ "metadata": { "name": "v" }, "spec": {} }), not_this);
        check(
            json!({ "metadata": { "name": "c" } }),
            volume(""),
            "persistentvolume \"v\" is not bound to persistentvolumeclaim \"c\"",
        );
        let path = json!({ "metadata": { "name": "../../etc" }, "spec": { "claimRef": { "uid": "1" } } });
        check(json!({}), path, "\"../../etc\" is a path, no name");
        let deleted = json!({ "metadata": { "name": "c", "uid": "1", "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        check(deleted, volume("1"), "persistentvolumeclaim \"c\" is being deleted");
        let foreign = "PVC /c was not created for pod /p (pod is not owner)";
        check(json!({ "ephemeral": {} }), volume("1"), foreign);
        let owner = json!([{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "0a", "controller": true }]);
        let own = json!({ "name": "c", "uid": "1", "ownerReferences": owner });
        check(json!({ "ephemeral": {}, "metadata": own }), volume("1"), "v");
    }
}
