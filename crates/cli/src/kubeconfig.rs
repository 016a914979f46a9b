//! The place of an embedded cluster's kubeconfig, and the handling of a file that is already there.
//!
//! Invariants: the file appears whole or not at all, readable by its owner only; a file that is not one of ours is
//! never overwritten (`--kubeconfig ~/.kube/config` must not cost a user his clusters); a file without a given name is
//! removed when the cluster ends.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::files::temporary_folder;
use crate::output::Failure;
use crate::regular;

/// A kubeconfig on disk.
#[derive(Debug)]
pub(crate) struct KubeconfigFile {
    path: PathBuf,
    #[expect(
        dead_code,
        reason = "made for a file without a given name, and removed when it is dropped"
    )]
    folder: Option<TempDir>,
}

impl KubeconfigFile {
    /// Chooses the path and checks that it may be written, before anything is started.
    ///
    /// # Errors
    /// When `named` is a file that kubewright did not write, or no private folder can be made.
    pub(crate) fn plan(named: Option<&Path>) -> Result<KubeconfigFile, Failure> {
        if let Some(path) = named {
            match regular::text(path) {
                Ok(text) if !is_ours(&text) => Err(Failure::new(format!("will not overwrite {}", path.display()))
                    .because("it was not written by kubewright")
                    .fix("name another file with --kubeconfig, or remove that one")),
                Err(why) if why.kind() != ErrorKind::NotFound => {
                    Err(Failure::new(format!("cannot write the kubeconfig {}", path.display()))
                        .because(why)
                        .fix(ANOTHER))
                }
                Err(_) if is_folder(path) => {
                    Err(Failure::new(format!("cannot write the kubeconfig {}", path.display()))
                        .because("a path that ends with / names a folder")
                        .fix(ANOTHER))
                }
                _ => Ok(KubeconfigFile {
                    path: path.to_path_buf(),
                    folder: None,
                }),
            }
        } else {
            let folder = temporary_folder()?;
            Ok(KubeconfigFile {
                path: folder.path().join("kubeconfig"),
                folder: Some(folder),
            })
        }
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the file, and the folder that it is in.
    ///
    /// # Errors
    /// When the file system refuses.
    pub(crate) fn write(&self, text: &str) -> Result<(), Failure> {
        let missing: Vec<&Path> = self
            .path
            .ancestors()
            .skip(1)
            .take_while(|above| is_missing(above))
            .collect();
        let parent = missing.first().copied();
        let written = parent
            .map_or(Ok(()), make_folders)
            .and_then(|()| kubewright_cluster::kubeconfig::write(&self.path, text));
        written.map_err(|why| {
            for folder in missing {
                // Only the folders that were made here are empty and missing before; what else is in them stays.
                let _ = fs::remove_dir(folder);
            }
            Failure::new("cannot write the kubeconfig").because(why).fix(ANOTHER)
        })
    }
}

/// What to do when the path cannot be written.
const ANOTHER: &str = "name a file that you may write with --kubeconfig FILE, or leave the flag out";

/// Whether a path names a folder: `a/b/`.
fn is_folder(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

fn make_folders(folder: &Path) -> std::io::Result<()> {
    let named = |why: std::io::Error| std::io::Error::new(why.kind(), format!("{}: {why}", folder.display()));
    fs::create_dir_all(folder).map_err(named)
}

fn is_missing(folder: &Path) -> bool {
    !folder.as_os_str().is_empty() && fs::symlink_metadata(folder).is_err_and(|why| why.kind() == ErrorKind::NotFound)
}

/// Whether the text is a kubeconfig of an embedded cluster.
fn is_ours(text: &str) -> bool {
    text.lines()
        .any(|line| line == "current-context: kubernetes-admin@kubewright")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_file_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        fs::write(&path, "apiVersion: v1\nkind: Config\ncurrent-context: production\n").unwrap();
        let refused = KubeconfigFile::plan(Some(&path)).unwrap_err().to_string();
        assert!(refused.contains("will not overwrite"), "{refused}");

        fs::write(&path, "apiVersion: v1\ncurrent-context: kubernetes-admin@kubewright\n").unwrap();
        assert!(KubeconfigFile::plan(Some(&path)).is_ok());
    }

    #[test]
    fn a_kubeconfig_that_cannot_be_written_leaves_no_folders() {
        let folder = tempfile::tempdir().unwrap();
        // The name is longer than a file system takes, which is known only when the file is made.
        let path = folder.path().join("a/b").join("c".repeat(300));
        let file = KubeconfigFile { path, folder: None };
        let refused = file.write("apiVersion: v1\n").unwrap_err().to_string();
        assert!(refused.contains("cannot write the kubeconfig"), "{refused}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);

        let slash = KubeconfigFile::plan(Some(&folder.path().join("a/b/")))
            .unwrap_err()
            .to_string();
        assert!(slash.contains("names a folder"), "{slash}");
        let file = KubeconfigFile::plan(Some(&folder.path().join("a/b/c"))).unwrap();
        file.write("apiVersion: v1\n").unwrap();
        assert!(folder.path().join("a/b/c").is_file());
    }

    #[test]
    fn a_file_that_nobody_named_goes_with_the_cluster() {
        use std::os::unix::fs::PermissionsExt;
        let file = KubeconfigFile::plan(None).unwrap();
        file.write("apiVersion: v1\n").unwrap();
        let path = file.path().to_path_buf();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(file);
        assert!(!path.exists());
    }
}
