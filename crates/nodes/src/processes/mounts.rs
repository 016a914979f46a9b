//! How containers find their volumes: a root folder with a link for each mount.
//!
//! Invariants: a mount that cannot be is refused in words, never left out, and before anything is made; the cluster
//! itself never follows these links, whose targets it knows ([`Mounts::locate`]). Not here: the volumes (`volumes`), how
//! the paths of containers become those of this machine (`paths`).

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use kubewright_objects::api::core::v1::Container;

use super::beneath::{Below, Folder};
use super::home::Home;
use super::users::User;

/// What a container finds in its root folder.
#[derive(Clone, Debug)]
pub(super) struct Mounts {
    root: PathBuf,
    all: Vec<Mount>,
}

/// A volume, or the part of it with this path.
#[derive(Clone, Debug)]
struct Mount {
    at: Below,
    volume: PathBuf,
    within: Option<Below>,
}

impl Mounts {
    /// The folder in which a path of the container lies, and its path there; none when it is that of a volume's own
    /// folder.
    fn locate(&self, path: &Below) -> Option<(&Path, Below)> {
        let mounted = self.all.iter().find_map(|mount| Some((mount, path.from(&mount.at)?)));
        let Some((mount, rest)) = mounted else {
            return Some((&self.root, path.clone()));
        };
        let rest = Below::of(rest);
        let path = match (&mount.within, rest) {
            (Some(within), Some(rest)) => rest.after(within),
            (Some(within), None) => within.clone(),
            (None, rest) => rest?,
        };
        Some((&mount.volume, path))
    }

    /// The first bytes of a file of the container's that its program has made.
    pub(super) fn read(&self, path: &Below, most: u64, owner: Option<User>) -> io::Result<Vec<u8>> {
        let place = self.locate(path);
        let (folder, path) = place.ok_or_else(|| io::Error::other(format!("{} is a volume", path.text())))?;
        Folder::open(folder)?.read(&path, most, owner)
    }
}

/// Makes the root folder of a container: a link for each of its mounts, a folder for each that its image would have.
///
/// # Errors
/// In words, when a mount cannot be; what only the spec says is looked at before anything is made.
pub(super) fn mount(
    home: &Home,
    root: &Path,
    container: &Container,
    volumes: &BTreeMap<String, PathBuf>,
    owned: &[Below],
    user: Option<User>,
    expand: impl Fn(&str) -> String,
) -> Result<Mounts, String> {
    let in_words = |error: io::Error| format!("{}: {error}", root.display());
    let mounts = Mounts {
        root: root.to_owned(),
        all: mounts_of(container, volumes, expand)?,
    };
    home.make_passage(root).map_err(in_words)?;
    let folder = Folder::open(root).map_err(in_words)?;
    for mount in &mounts.all {
        let mut target = mount.volume.clone();
        if let Some(within) = &mount.within {
            let in_words = |error: io::Error| format!("subPath {}: {error}", within.text());
            let volume = Folder::open(&mount.volume).map_err(in_words)?;
            if !volume.has(within).map_err(in_words)? {
                volume.make(within, user).map_err(in_words)?;
            }
            target.push(within.text());
        }
        folder.link(&mount.at, &target, user).map_err(in_words)?;
    }
    for path in owned {
        let Some((outer, path)) = mounts.locate(path) else {
            continue;
        };
        let outer = Folder::open(outer).map_err(in_words)?;
        if !outer.has(&path).map_err(in_words)? {
            outer.make(&path, user).map_err(in_words)?;
        }
    }
    folder.give(user).map_err(in_words)?;
    Ok(mounts)
}

fn mounts_of(
    container: &Container,
    volumes: &BTreeMap<String, PathBuf>,
    expand: impl Fn(&str) -> String,
) -> Result<Vec<Mount>, String> {
    let mut all: Vec<Mount> = Vec::new();
    let mut mounts: Vec<_> = container.volume_mounts.iter().flatten().collect();
    mounts.sort_by_key(|mount| mount.mount_path.len());
    for mount in mounts {
        let at = Below::of_container(&mount.mount_path).map_err(|why| format!("mountPath: {why}"))?;
        if let Some(outer) = all.iter().find(|outer| at.from(&outer.at).is_some()) {
            let (path, outer) = (at.text(), outer.at.text());
            return Err(format!(
                "/{path} is inside of the mount /{outer}: processes have no mounts inside of others"
            ));
        }
        let volume = volumes.get(&mount.name);
        let volume = volume.ok_or_else(|| format!("there is no volume {:?}", mount.name))?;
        let (field, within) = match &mount.sub_path_expr {
            Some(text) if !text.is_empty() => ("subPathExpr", Some(expand(text))),
            _ => ("subPath", mount.sub_path.clone().filter(|within| !within.is_empty())),
        };
        let within = within.as_deref().map(Below::new).transpose();
        let within = within.map_err(|why| format!("{field} of {}: {why}", mount.mount_path))?;
        if let Some(within) = &within {
            // A link that lies there already is found before anything is made for another mount.
            let found = Folder::open(volume).and_then(|volume| volume.has(within));
            found.map_err(|why| format!("{field} of {}: {why}", mount.mount_path))?;
        }
        all.push(Mount {
            at,
            volume: volume.clone(),
            within,
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn how_containers_find_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::make(Some(folder.path())).expect("folders");
        let volume = home.make_volume(&Below::own(&["v"]), None).expect("a folder");
        let volume = volume.path().to_owned();
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
                &[Below::own(&["var", "lib", "db"])],
                None,
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
            "subPath of /a: the path \"out\" leads through a link, which is not followed",
        );
        check(
            3,
            json!([{ "name": "v", "mountPath": "/a", "subPath": "../x" }]),
            "subPath of /a: the path \"../x\" leads up with \"..\"",
        );
        check(
            4,
            json!([{ "name": "w", "mountPath": "/a" }]),
            "there is no volume \"w\"",
        );
        check(
            5,
            json!([{ "name": "v", "mountPath": "/../a" }]),
            "mountPath: the path \"/../a\" leads up with \"..\"",
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
