//! The folder that `ansible-runner` reads: variables, settings, inventory, the playbook; beside it are its artifacts.
//!
//! Invariants: every folder from the base on belongs to this user and to nobody else (0700), because variables are among
//! the contents of objects; what a run was given is taken away when it ends, its artifacts stay.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use kubewright::Request;
use kubewright::kube::core::GroupVersionKind;
use serde_json::{Map, Value, json};

use super::watch::Target;

/// What one run is given.
#[derive(Debug)]
pub struct Input<'a> {
    /// The folder of the object.
    pub folder: &'a Path,
    /// What is run.
    pub target: &'a Target,
    /// The variables.
    pub vars: &'a Map<String, Value>,
    /// How the role reaches the cluster.
    pub kubeconfig: &'a Path,
    /// Where events are received.
    pub socket: &'a Path,
    /// More arguments for ansible-playbook.
    pub arguments: &'a str,
    /// An inventory that takes the place of ours: a file or a folder.
    pub inventory: Option<&'a Path>,
    /// The virtual environment of Python, if there is one.
    pub virtual_environment: Option<&'a Path>,
}

/// The folder of an object below a base, with the names that ansible-operator gives it.
#[must_use]
pub fn folder_of(base: &Path, kind: &GroupVersionKind, object: &Request) -> PathBuf {
    let below = base.join(&kind.group).join(&kind.version).join(&kind.kind);
    below.join(object.namespace().unwrap_or_default()).join(object.name())
}

impl Input<'_> {
    /// Writes it.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self) -> io::Result<()> {
        for name in ["env", "project", "inventory"] {
            make(&self.folder.join(name))?;
        }
        let environment = json!({"K8S_AUTH_KUBECONFIG": self.kubeconfig, "KUBECONFIG": self.kubeconfig});
        let settings = json!({"runner_http_url": self.socket, "runner_http_path": "/events/"});
        self.file("env/envvars", environment.to_string().as_bytes())?;
        self.file("env/extravars", serde_json::to_vec(self.vars)?.as_slice())?;
        self.file("env/settings", settings.to_string().as_bytes())?;
        match unquoted(self.arguments) {
            "" => absent(fs::remove_file(self.folder.join("env/cmdline")))?,
            arguments => self.file("env/cmdline", arguments.as_bytes())?,
        }
        match self.inventory {
            None => self.file("inventory/hosts", self.hosts().as_bytes())?,
            Some(inventory) if inventory.is_dir() => copy_folder(inventory, &self.folder.join("inventory"))?,
            Some(inventory) => {
                fs::copy(inventory, self.folder.join("inventory/hosts"))?;
            }
        }
        if let Target::Playbook(path) = self.target {
            self.file("project/playbook.yaml", &fs::read(path)?)?;
        }
        Ok(())
    }

    fn hosts(&self) -> String {
        let python = match self.virtual_environment {
            Some(folder) => folder.join("bin/python3").display().to_string(),
            None => "{{ansible_playbook_python}}".to_owned(),
        };
        format!("localhost ansible_connection=local ansible_python_interpreter={python}")
    }

    fn file(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let path = self.folder.join(name);
        absent(fs::remove_file(&path))?; // so that the mode is ours
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(content)
    }
}

/// Takes away what a run was given.
///
/// # Errors
/// When it cannot be removed.
pub fn forget(folder: &Path) -> io::Result<()> {
    absent(fs::remove_dir_all(folder.join("env")))
}

/// Takes away the folder of an object that is gone, and those above it that are empty then.
///
/// # Errors
/// When it cannot be removed.
pub fn remove(base: &Path, folder: &Path) -> io::Result<()> {
    absent(fs::remove_dir_all(folder))?;
    let above = folder
        .ancestors()
        .skip(1)
        .take_while(|above| *above != base && above.starts_with(base));
    for above in above {
        if fs::remove_dir(above).is_err() {
            break; // others have something in it
        }
    }
    Ok(())
}

fn absent(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Makes a folder below a base, which are both for this user alone.
///
/// # Errors
/// When a folder belongs to somebody else or is none.
pub fn private_folder(base: &Path, folder: &Path) -> io::Result<()> {
    make(base)?;
    let mut here = base.to_owned();
    check(&here)?;
    for part in folder.strip_prefix(base).map_err(io::Error::other)?.components() {
        here.push(part);
        make(&here)?;
        check(&here)?;
    }
    Ok(())
}

fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn check(folder: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(folder)?;
    let refuse = |why: &str| Err(io::Error::other(format!("{} {why}", folder.display())));
    if !meta.is_dir() {
        return refuse("is not a folder");
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return refuse("belongs to another user; the variables of runs must not be readable by others");
    }
    if meta.mode() & 0o077 != 0 {
        fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    make(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        match path.is_dir() {
            true => copy_folder(&path, &target)?,
            false => {
                fs::copy(&path, &target)?;
            }
        }
    }
    Ok(())
}

/// Without single quotes around it, which a manifest may have brought.
fn unquoted(arguments: &str) -> &str {
    let inside = arguments.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    inside.unwrap_or(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").mode() & 0o777
    }

    #[test]
    fn a_run_is_given_its_files_and_nobody_else_reads_them() {
        let top = tempfile::tempdir().expect("a folder");
        let base = top.path().join("runner");
        let kind = GroupVersionKind::gvk("g.io", "v1", "A");
        let folder = folder_of(&base, &kind, &Request::new(Some("ns"), "a"));
        assert_eq!(folder, base.join("g.io/v1/A/ns/a"));
        private_folder(&base, &folder).expect("a folder");
        let playbook = top.path().join("play.yml");
        fs::write(&playbook, "- hosts: all\n").expect("a file");
        let inventory = top.path().join("inventory");
        fs::create_dir_all(inventory.join("group_vars")).expect("a folder");
        fs::write(inventory.join("group_vars/all"), "a: 1").expect("a file");
        let vars = json!({"password": "secret"}).as_object().cloned().unwrap_or_default();
        let target = Target::Playbook(playbook);
        let mut input = Input {
            folder: &folder,
            target: &target,
            vars: &vars,
            kubeconfig: Path::new("/k"),
            socket: Path::new("/s"),
            arguments: "'--tags x'",
            inventory: None,
            virtual_environment: None,
        };
        input.write().expect("it is written");
        let read = |name: &str| fs::read_to_string(folder.join(name)).expect("it is there");
        assert_eq!(read("env/extravars"), r#"{"password":"secret"}"#);
        assert_eq!(read("env/envvars"), r#"{"K8S_AUTH_KUBECONFIG":"/k","KUBECONFIG":"/k"}"#);
        assert_eq!(
            read("env/settings"),
            r#"{"runner_http_path":"/events/","runner_http_url":"/s"}"#
        );
        assert_eq!(read("env/cmdline"), "--tags x");
        assert_eq!(read("project/playbook.yaml"), "- hosts: all\n");
        assert!(read("inventory/hosts").starts_with("localhost ansible_connection=local"));
        assert_eq!(mode(&folder.join("env/extravars")), 0o600);
        assert!(
            folder
                .ancestors()
                .take_while(|path| *path != top.path())
                .all(|path| mode(path) == 0o700)
        );
        (input.inventory, input.arguments) = (Some(inventory.as_path()), "");
        input.write().expect("it is written again");
        assert_eq!(read("inventory/group_vars/all"), "a: 1");
        assert!(!folder.join("env/cmdline").exists());
        forget(&folder).expect("it is taken away");
        assert!(!folder.join("env").exists());
        remove(&base, &folder).expect("it is removed");
        assert!(base.exists() && !base.join("g.io").exists());
    }

    #[test]
    fn a_folder_that_others_may_enter_is_closed_and_a_link_is_refused() {
        let top = tempfile::tempdir().expect("a folder");
        let base = top.path().join("runner");
        fs::create_dir(&base).expect("a folder");
        fs::set_permissions(&base, Permissions::from_mode(0o777)).expect("a mode");
        private_folder(&base, &base.join("a")).expect("a folder");
        assert_eq!(mode(&base), 0o700);
        std::os::unix::fs::symlink(top.path(), base.join("link")).expect("a link");
        let refused = private_folder(&base, &base.join("link/b")).expect_err("a link");
        assert!(refused.to_string().ends_with("link is not a folder"), "{refused}");
    }
}
