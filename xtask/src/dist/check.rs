//! Each package, tried from where its user stands: an empty folder, an environment without ours, and no network.
//!
//! What this machine cannot try is left out, with the reason. The programs that are typed are in the folder `check`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use super::{output, read, temporary};

/// Where the packages are, and where they are tried.
struct Trial<'a> {
    packages: &'a Path,
    version: &'a str,
    /// Empty at first; the Python with the wheel stays here for the others.
    folder: &'a Path,
}

/// What was tried, in words; or why it was left out.
enum Outcome {
    Works(String),
    LeftOut(String),
}

use Outcome::{LeftOut, Works};

/// Tries everything.
///
/// # Errors
/// When a package does not work, with what it said.
pub(super) fn run(packages: &Path, version: &str) -> Result<(), String> {
    let folder = temporary()?;
    let trial = Trial {
        packages,
        version,
        folder: folder.path(),
    };
    type Check = fn(&Trial<'_>) -> Result<Outcome, String>;
    let all: [(&str, Check); 7] = [
        ("checksums", checksums),
        ("bill of materials", bill),
        ("archive", archive),
        ("wheel", wheel),
        ("npm", npm),
        ("image", image),
        ("deb", deb),
    ];
    let mut failed = 0;
    for (name, check) in all {
        let started = Instant::now();
        let (word, said) = match check(&trial) {
            Ok(Works(said)) => ("works", said),
            Ok(LeftOut(why)) => ("left out", why),
            Err(why) => {
                failed += 1;
                ("FAILED", why)
            }
        };
        println!("{word:>9} {:>5.1} s  {name}: {said}", started.elapsed().as_secs_f64());
    }
    if failed == 0 {
        Ok(())
    } else {
        Err(format!("{failed} packages do not work"))
    }
}

impl Trial<'_> {
    /// The package whose name ends so; none on a system that has none of the kind.
    fn package(&self, ending: &str) -> Result<Option<PathBuf>, String> {
        let listed = fs::read_dir(self.packages).map_err(|why| format!("cannot list the packages: {why}"))?;
        let mut paths = listed.filter_map(|entry| Some(entry.ok()?.path()));
        Ok(paths.find(|path| path.to_string_lossy().ends_with(ending)))
    }

    /// A new folder for one of the checks.
    fn make(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.folder.join(name);
        fs::create_dir(&path).map_err(|why| format!("cannot make {}: {why}", path.display()))?;
        Ok(path)
    }

    /// Runs a program that must print its version.
    fn says_its_version(&self, command: &mut Command) -> Result<(), String> {
        let said = output(command)?;
        let said = String::from_utf8_lossy(&said);
        if said.trim() == format!("kubewright {}", self.version) {
            Ok(())
        } else {
            Err(format!("{command:?} printed {said:?}"))
        }
    }
}

/// A command that gets nothing of this environment but one folder of programs.
fn bare(program: &Path, path: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", path)
        .env("HOME", home)
        .current_dir(home);
    command
}

fn is_here(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

const NONE: &str = "there is none for this system";

fn checksums(trial: &Trial<'_>) -> Result<Outcome, String> {
    let mut command = match is_here("sha256sum") {
        true => Command::new("sha256sum"),
        false => Command::new("shasum"),
    };
    let checked = output(command.args(["-c", "SHA256SUMS"]).current_dir(trial.packages))?;
    let checked = String::from_utf8_lossy(&checked).lines().count();
    let listed = fs::read_dir(trial.packages).map_err(|why| format!("cannot list the packages: {why}"))?;
    if checked + 1 != listed.count() {
        return Err(format!("SHA256SUMS has {checked} files"));
    }
    Ok(Works(format!("{checked} files")))
}

fn bill(trial: &Trial<'_>) -> Result<Outcome, String> {
    let path = trial.package(".cdx.json")?.ok_or(NONE)?;
    let bill: Value = serde_json::from_str(&read(&path)?).map_err(|why| format!("{}: {why}", path.display()))?;
    let crates = bill["components"].as_array().map_or(0, Vec::len);
    if crates < 50 {
        return Err(format!("{crates} crates only"));
    }
    Ok(Works(format!("{crates} crates, each with its license")))
}

fn archive(trial: &Trial<'_>) -> Result<Outcome, String> {
    let path = trial.package(".tar.gz")?.ok_or(NONE)?;
    let folder = trial.make("archive")?;
    output(Command::new("tar").arg("-xzf").arg(&path).arg("-C").arg(&folder))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let program = folder.join(name.trim_end_matches(".tar.gz")).join("kubewright");
    trial.says_its_version(bare(&program, &folder, &folder).arg("--version"))?;
    Ok(Works("unpacked by tar, and run".to_owned()))
}

fn wheel(trial: &Trial<'_>) -> Result<Outcome, String> {
    let path = trial.package(".whl")?.ok_or(NONE)?;
    if !is_here("python3") {
        return Ok(LeftOut("python3 is not on the PATH".to_owned()));
    }
    let (venv, home) = (trial.folder.join("python"), trial.make("home")?);
    output(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    let commands = venv.join("bin");
    let pip = |arguments: &[&str]| {
        let mut pip = Command::new(commands.join("pip"));
        output(
            pip.args(["install", "--quiet", "--disable-pip-version-check"])
                .args(arguments),
        )
    };
    pip(&["--no-index", &path.to_string_lossy()])?;
    let python = || bare(&commands.join("python"), &commands, &home);
    trial.says_its_version(bare(&commands.join("kubewright"), &commands, &home).arg("--version"))?;
    trial.says_its_version(python().args(["-m", "kubewright", "--version"]))?;
    // The folder of the commands is not on the PATH: the package finds its program all the same.
    output(
        python()
            .env("PATH", &home)
            .args(["-c", include_str!("check/cluster.py")]),
    )?;
    let mut said = "installed by pip without a network; the command and Cluster() work".to_owned();
    match pip(&["pytest"]) {
        Err(_) => said.push_str("; pytest cannot be had here, so the fixtures were not tried"),
        Ok(_) => {
            let test = home.join("test_fixtures.py");
            fs::write(&test, include_str!("check/test_fixtures.py")).map_err(|why| format!("{test:?}: {why}"))?;
            output(
                python()
                    .env("PATH", &home)
                    .args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]),
            )?;
            said.push_str("; so do the fixtures of pytest");
        }
    }
    output(Command::new(commands.join("pip")).args(["uninstall", "--quiet", "--yes", "kubewright"]))?;
    if commands.join("kubewright").exists() {
        return Err("pip uninstall leaves the command behind".to_owned());
    }
    pip(&["--no-index", &path.to_string_lossy()])?;
    Ok(Works(said))
}

fn npm(trial: &Trial<'_>) -> Result<Outcome, String> {
    let path = trial.package("-npm.tgz")?.ok_or(NONE)?;
    if !is_here("npm") {
        return Ok(LeftOut("npm is not on the PATH".to_owned()));
    }
    let folder = trial.make("npm")?;
    let here = |program: &str| {
        let mut command = Command::new(program);
        command.current_dir(&folder).env_remove("KUBEWRIGHT");
        command
    };
    output(
        here("npm")
            .args(["install", "--offline", "--no-audit", "--no-fund"])
            .arg(&path),
    )?;
    trial.says_its_version(here("npx").args(["--offline", "kubewright", "--version"]))?;
    let test = folder.join("cluster.test.mjs");
    fs::write(&test, include_str!("check/cluster.test.mjs")).map_err(|why| format!("{test:?}: {why}"))?;
    output(here("node").arg("--test"))?;
    Ok(Works(
        "installed by npm without a network; npx and startCluster() work".to_owned(),
    ))
}

fn image(trial: &Trial<'_>) -> Result<Outcome, String> {
    let Some(path) = trial.package("-oci.tar")? else {
        return Ok(LeftOut(NONE.to_owned()));
    };
    let python = trial.folder.join("python/bin/python");
    // In a network of its own: the cluster listens on all addresses.
    let isolated = || {
        let mut command = Command::new("unshare");
        let is_root = output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim_ascii() == b"0");
        command.args(if is_root {
            ["--net"].as_slice()
        } else {
            &["--user", "--map-root-user", "--net"]
        });
        command
    };
    if !python.exists() || output(isolated().arg("true")).is_err() {
        return Ok(LeftOut(
            "it wants the wheel's Python, and an unshare that may make a network".to_owned(),
        ));
    }
    let folder = trial.make("image")?;
    let mut entered = isolated();
    entered
        .arg(&python)
        .args(["-c", include_str!("check/image.py")])
        .arg(&path)
        .arg(&folder);
    let said = output(&mut entered)?;
    Ok(Works(String::from_utf8_lossy(&said).trim().to_owned()))
}

fn deb(trial: &Trial<'_>) -> Result<Outcome, String> {
    let Some(path) = trial.package(".deb")? else {
        return Ok(LeftOut(NONE.to_owned()));
    };
    if !is_here("dpkg-deb") {
        return Ok(LeftOut("dpkg-deb is not on the PATH".to_owned()));
    }
    let folder = trial.make("deb")?;
    output(
        Command::new("dpkg-deb")
            .arg("--field")
            .arg(&path)
            .args(["Package", "Version", "Description"]),
    )?;
    output(Command::new("dpkg-deb").arg("--extract").arg(&path).arg(&folder))?;
    let commands = folder.join("usr/bin");
    trial.says_its_version(bare(&commands.join("kubewright"), &commands, &folder).arg("--version"))?;
    let completions = folder.join("usr/share/bash-completion/completions/kubewright");
    output(Command::new("bash").arg("-n").arg(&completions))?;
    for page in ["kubewright.1.gz", "kubewright-cluster.1.gz"] {
        output(
            Command::new("gzip")
                .arg("--test")
                .arg(folder.join("usr/share/man/man1").join(page)),
        )?;
    }
    Ok(Works(
        "unpacked by dpkg-deb, and run; completions and man pages are there".to_owned(),
    ))
}
