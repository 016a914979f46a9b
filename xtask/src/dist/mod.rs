//! `cargo xtask dist`: what a release is, made on this machine into target/dist.
//!
//! One file of this module makes one kind of package, from the same program, and without a network. The same revision and
//! program give the same bytes. `--check` then tries each from where its user stands. Names and versions are those of the
//! sources: a package that says another version than Cargo.toml is not made.
//!
//! Not here: signatures and provenance, which the release workflow adds, and uploads to registries.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use tempfile::TempDir;
use toml_edit::DocumentMut;

mod archive;
mod check;
mod deb;
mod image;
mod npm;
mod program;
mod sbom;
mod wheel;

use archive::{Entry, sha256};
use program::Program;

/// What all packages are made from.
struct Release {
    root: PathBuf,
    version: String,
    /// Where the program is on this machine.
    path: PathBuf,
    program: Program,
    /// When the revision was committed: in seconds, and as RFC 3339 has it.
    time: u64,
    moment: String,
    /// For each shell, its completions.
    completions: Vec<(&'static str, Vec<u8>)>,
    /// Man pages by the names of their files.
    pages: Vec<(String, Vec<u8>)>,
    /// The licenses of the crates in the program.
    notices: String,
}

/// The name of the file with them.
const NOTICES: &str = "THIRD-PARTY.txt";

/// A file of the release.
struct File {
    name: String,
    what: &'static str,
    bytes: Vec<u8>,
}

/// Makes the release; with `--check`, also tries it.
///
/// # Errors
/// When something of it cannot be made, or does not work.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let root = root
        .canonicalize()
        .map_err(|why| format!("{}: {why}", root.display()))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let mut program = None;
    let mut checked = false;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--program" => program = Some(rest.next().ok_or("--program wants the path of a program")?),
            "--check" => checked = true,
            other => return Err(format!("dist takes --program PATH and --check, and not {other:?}")),
        }
    }
    let path = match program {
        Some(path) => fs::canonicalize(path).map_err(|why| format!("cannot find {path}: {why}"))?,
        None => {
            let (path, said) = program::build(&root, &target)?;
            println!("{said}");
            path
        }
    };
    let release = Release::gather(root, path)?;
    println!(
        "{}: {} MB, for {}",
        release.path.display(),
        megabytes(release.program.bytes.len()),
        release.program.needs()
    );

    let folder = target.join("dist");
    // Nothing of an earlier release is left.
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|why| format!("cannot empty {}: {why}", folder.display()))?;
    }
    fs::create_dir_all(&folder).map_err(|why| format!("cannot make {}: {why}", folder.display()))?;
    type Maker = fn(&Release) -> Result<Option<File>, String>;
    let makers: [Maker; 6] = [
        |release| archive(release).map(Some),
        |release| wheel::make(release).map(Some),
        |release| npm::make(release).map(Some),
        image::make,
        debian,
        |release| sbom::make(release).map(Some),
    ];
    let mut sums = Vec::new();
    for make in makers {
        let started = Instant::now();
        let Some(file) = make(&release)? else { continue };
        write(&folder, &file.name, &file.bytes)?;
        println!(
            "{:>6} MB {:>5.1} s  {}: {}",
            megabytes(file.bytes.len()),
            started.elapsed().as_secs_f64(),
            file.name,
            file.what
        );
        sums.push(format!("{}  {}\n", sha256(&file.bytes), file.name));
    }
    sums.sort_by(|a, b| a[64..].cmp(&b[64..]));
    write(&folder, "SHA256SUMS", sums.concat().as_bytes())?;
    if checked {
        check::run(&folder, &release.version)?;
    }
    Ok(())
}

impl Release {
    /// Asks the program and the repository for what packages have besides the program.
    fn gather(root: PathBuf, path: PathBuf) -> Result<Release, String> {
        let manifest: DocumentMut = read(&root.join("Cargo.toml"))?
            .parse()
            .map_err(|why| format!("Cargo.toml: {why}"))?;
        let version = manifest["workspace"]["package"]["version"].as_str();
        let version = version.ok_or("Cargo.toml has no version")?.to_owned();
        let program = Program::read(&path)?;
        let says = output(Command::new(&path).arg("--version"))?;
        if String::from_utf8_lossy(&says).trim() != format!("kubewright {version}") {
            let says = String::from_utf8_lossy(&says);
            return Err(format!("{} is {says:?} and not kubewright {version}", path.display()));
        }
        let mut completions = Vec::new();
        for shell in ["bash", "zsh", "fish"] {
            completions.push((shell, output(Command::new(&path).args(["completion", shell]))?));
        }
        let folder = temporary()?;
        output(Command::new(&path).arg("man").arg(folder.path()))?;
        let mut pages = Vec::new();
        let listed = fs::read_dir(folder.path()).map_err(|why| format!("cannot read the man pages: {why}"))?;
        for page in listed {
            let page = page.map_err(|why| format!("cannot read the man pages: {why}"))?;
            let name = page.file_name().to_string_lossy().into_owned();
            pages.push((name, read(&page.path())?.into_bytes()));
        }
        pages.sort();
        let mut git = Command::new("git");
        git.args([
            "log",
            "-1",
            "--date=format-local:%Y-%m-%dT%H:%M:%SZ",
            "--format=%ct %cd",
        ]);
        let committed = output(git.current_dir(&root).env("TZ", "UTC"))?;
        let committed = String::from_utf8_lossy(&committed);
        let times = committed.trim().split_once(' ');
        let times = times.and_then(|(time, moment)| Some((time.parse().ok()?, moment.to_owned())));
        let (time, moment) = times.ok_or_else(|| format!("git says {committed:?} and not when it was committed"))?;
        let notices = sbom::notices(&root, &program.triple())?;
        Ok(Release {
            root,
            version,
            path,
            program,
            time,
            moment,
            completions,
            pages,
            notices,
        })
    }
}

/// The archive for whoever wants the program alone.
fn archive(release: &Release) -> Result<File, String> {
    let stem = format!("kubewright-{}-{}", release.version, release.program.triple());
    let mut entries = vec![Entry::program(
        format!("{stem}/kubewright"),
        release.program.bytes.clone(),
    )];
    for name in ["LICENSE", "README.md"] {
        entries.push(Entry::file(format!("{stem}/{name}"), read(&release.root.join(name))?));
    }
    entries.push(Entry::file(format!("{stem}/{NOTICES}"), release.notices.clone()));
    for (shell, script) in &release.completions {
        entries.push(Entry::file(
            format!("{stem}/completions/kubewright.{shell}"),
            script.clone(),
        ));
    }
    for (name, page) in &release.pages {
        entries.push(Entry::file(format!("{stem}/man/{name}"), page.clone()));
    }
    Ok(File {
        name: format!("{stem}.tar.gz"),
        what: "the command, completions, man pages",
        bytes: archive::gzip(&archive::tar(&entries, release.time)?)?,
    })
}

/// The Debian package; none for a program of another system.
fn debian(release: &Release) -> Result<Option<File>, String> {
    match release.program.system {
        program::System::MacOs => Ok(None),
        _ => deb::make(release).map(Some),
    }
}

fn megabytes(bytes: usize) -> String {
    let tenths = bytes.div_ceil(100_000);
    format!("{}.{}", tenths / 10, tenths % 10)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|why| format!("cannot read {}: {why}", path.display()))
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), String> {
    let path = folder.join(name);
    fs::write(&path, bytes).map_err(|why| format!("cannot write {}: {why}", path.display()))
}

/// What a command prints; an error when it fails.
fn output(command: &mut Command) -> Result<Vec<u8>, String> {
    let shown = format!("{command:?}");
    let output = command.output().map_err(|why| format!("cannot start {shown}: {why}"))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        return Err(format!(
            "{shown}: {}\n{}",
            output.status,
            String::from_utf8_lossy(&said)
        ));
    }
    Ok(output.stdout)
}

fn temporary() -> Result<TempDir, String> {
    tempfile::tempdir().map_err(|why| format!("cannot make a temporary folder: {why}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Stands for a program.
    pub(super) const PROGRAM: &[u8] = b"\x7fELF, not really \n";

    /// A release of it.
    pub(super) fn release() -> Release {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let manifest: DocumentMut = read(&root.join("Cargo.toml")).unwrap().parse().unwrap();
        let loader = "/lib/ld.so".to_owned();
        Release {
            version: manifest["workspace"]["package"]["version"].as_str().unwrap().to_owned(),
            root,
            path: PathBuf::new(),
            program: Program {
                bytes: PROGRAM.to_vec(),
                system: program::System::Glibc { minor: 31, loader },
                processor: program::Processor::X86_64,
            },
            time: 1_700_000_000,
            moment: "2023-11-14T22:13:20Z".to_owned(),
            completions: ["bash", "zsh", "fish"]
                .map(|shell| (shell, b"complete".to_vec()))
                .into(),
            pages: vec![("kubewright.1".to_owned(), b".TH".to_vec())],
            notices: "tokio: MIT".to_owned(),
        }
    }

    /// The files of a tar archive, which may be compressed, with their modes.
    pub(super) fn untar(bytes: &[u8]) -> BTreeMap<String, (Vec<u8>, u32)> {
        let mut plain = bytes.to_vec();
        if bytes.starts_with(&[0x1f, 0x8b]) {
            plain.clear();
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(bytes), &mut plain).unwrap();
        }
        let mut archive = tar::Archive::new(plain.as_slice());
        let files = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let header = entry.header();
            assert_eq!(header.mtime().unwrap(), 1_700_000_000);
            let mode = header.mode().unwrap();
            let path = entry.path().unwrap().to_str().unwrap().to_owned();
            let mut data = Vec::new();
            std::io::Read::read_to_end(&mut entry, &mut data).unwrap();
            (path, (data, mode))
        });
        files.collect()
    }

    #[test]
    fn packages_have_one_version() {
        let release = release();
        let python = read(&release.root.join("clients/python/src/kubewright/__init__.py")).unwrap();
        let line = format!("__version__ = \"{}\"", release.version);
        assert!(python.lines().any(|one| one == line), "clients/python says no {line}");
        npm::make(&release).unwrap();
    }

    #[test]
    fn the_archive_has_the_program_and_its_pages() {
        let release = release();
        let file = archive(&release).unwrap();
        let files = untar(&file.bytes);
        let stem = file.name.strip_suffix(".tar.gz").unwrap();
        assert!(stem.ends_with("-x86_64-unknown-linux-gnu"), "{stem}");
        assert_eq!(files[&format!("{stem}/kubewright")], (PROGRAM.to_vec(), 0o755));
        for path in [
            "LICENSE",
            "README.md",
            NOTICES,
            "man/kubewright.1",
            "completions/kubewright.zsh",
        ] {
            assert!(files.contains_key(&format!("{stem}/{path}")), "{path}");
        }
        assert_eq!(archive(&release).unwrap().bytes, file.bytes, "the same bytes each time");
    }
}
