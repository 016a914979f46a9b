//! `kubewright assets`: a folder with `kube-apiserver` and `etcd`, for the test environments of other languages.
//!
//! Both are links to this program, which decides by its name which program it is (`dropin`). The folder is printed as
//! `setup-envtest use -p` does.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use kubewright_cluster::Minor;
use serde_json::json;

use crate::output::{Failure, Format, shell_word};

/// Create a folder for KUBEBUILDER_ASSETS: kube-apiserver and etcd for test environments such as envtest
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What to print: words, the path alone, or a line for the shell
    #[arg(long, short, value_enum, default_value_t = Print::Overview)]
    print: Print,

    /// The folder [default: kubewright/assets in the folder for caches]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Version of Kubernetes to serve, 1.36 or 1.37: the programs are then in the folder k8s/VERSION-OS-ARCHITECTURE
    /// below, as `setup-envtest` lays it out
    #[arg(long, value_name = "VERSION")]
    kubernetes_version: Option<Minor>,

    /// The kubectl to link [default: the one on the PATH]
    #[arg(long, value_name = "PATH")]
    kubectl: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Print {
    /// The contents of the folder.
    Overview,
    /// The path of the folder.
    Path,
    /// `export KUBEBUILDER_ASSETS='…'`.
    Env,
}

impl Arguments {
    pub(crate) fn run(self, output: Format) -> Result<(), Failure> {
        let failed = || Failure::new("cannot make the folder of assets");
        let program = std::env::current_exe().map_err(|why| failed().because(why))?;
        let folder = self.dir.or_else(default_folder).ok_or_else(|| {
            failed()
                .because("neither XDG_CACHE_HOME nor HOME is set")
                .fix("name a folder with --dir")
        })?;
        let folder = match self.kubernetes_version {
            Some(minor) => folder.join("k8s").join(of_version(minor)),
            None => folder,
        };
        // Before anything is made: a link that cannot be is no reason for half a folder.
        let named = self.kubectl.map(named_kubectl).transpose()?;
        let made = || -> io::Result<PathBuf> {
            fs::create_dir_all(&folder)?;
            let folder = folder.canonicalize()?;
            link(&program, &folder.join("kube-apiserver"))?;
            link(&program, &folder.join("etcd"))?;
            Ok(folder)
        };
        let folder = made().map_err(|why| {
            let failure = failed().because(format!("{}: {why}", folder.display()));
            failure.fix("make the folder writable for you, or name another: --dir DIR")
        })?;
        let kubectl = named.or_else(|| kubectl_on_path(&folder));
        if let Some(kubectl) = &kubectl {
            link(kubectl, &folder.join("kubectl")).map_err(|why| failed().because(why))?;
        } else {
            let text = "no kubectl is on the PATH, so the folder has none: suites that call it need --kubectl PATH";
            output.warning(text, &json!({"event": "warning", "warning": text}));
        }
        self.print.say(output, &folder, kubectl.as_deref());
        Ok(())
    }
}

impl Print {
    fn say(self, output: Format, folder: &Path, kubectl: Option<&Path>) {
        let shown = folder.display().to_string();
        let line = format!("export KUBEBUILDER_ASSETS={}", shell_word(&shown));
        let text = match self {
            Print::Overview => {
                let programs = if kubectl.is_some() {
                    "kube-apiserver, etcd, kubectl"
                } else {
                    "kube-apiserver, etcd"
                };
                format!("{shown}: {programs}\n\n  {line}")
            }
            Print::Path => shown.clone(),
            Print::Env => line,
        };
        output.say(&text, &json!({"event": "assets", "path": shown, "kubectl": kubectl}));
    }
}

/// The name of a version's folder: `1.37.2-linux-amd64`, in Go's words.
fn of_version(minor: Minor) -> String {
    let system = std::env::consts::OS.replace("macos", "darwin");
    let machine = std::env::consts::ARCH
        .replace("x86_64", "amd64")
        .replace("aarch64", "arm64");
    format!("{}-{system}-{machine}", minor.version().trim_start_matches('v'))
}

/// Where caches are kept.
fn default_folder() -> Option<PathBuf> {
    let named = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let caches = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")))?;
    Some(caches.join("kubewright").join("assets"))
}

/// The kubectl that is named.
fn named_kubectl(path: PathBuf) -> Result<PathBuf, Failure> {
    let wrong = |why: String| {
        Failure::new("cannot link kubectl")
            .because(format!("{}: {why}", path.display()))
            .fix("name the program with --kubectl PATH, or leave the flag out: then the one on the PATH is taken")
    };
    let found = path.canonicalize().map_err(|why| wrong(why.to_string()))?;
    if !found.is_file() {
        return Err(wrong("it is not a file".to_owned()));
    }
    Ok(found)
}

/// The kubectl to link when none is named: the first on the PATH that is not the link itself.
fn kubectl_on_path(folder: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).filter(|place| place.canonicalize().ok().as_deref() != Some(folder));
    places.find_map(|place| {
        place
            .join("kubectl")
            .canonicalize()
            .ok()
            .filter(|found| found.is_file())
    })
}

/// Puts a link in its place at once, so that runs at the same time see the old one or the new one. A file that is not a
/// link is left alone.
fn link(target: &Path, place: &Path) -> io::Result<()> {
    match fs::symlink_metadata(place) {
        Ok(found) if !found.is_symlink() => {
            return Err(io::Error::other(format!(
                "{} is there and no link; it is left alone",
                place.display()
            )));
        }
        Ok(_) if fs::read_link(place)? == target => return Ok(()),
        _ => {}
    }
    let new = place.with_extension(format!("{}.new", std::process::id()));
    symlink(target, &new)?;
    fs::rename(&new, place)
}
