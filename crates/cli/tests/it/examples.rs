//! Each example consists of the command's files and its own code: `scaffold.sh` of each is run with the program under
//! test, and the files are compared one by one. A scaffold that changes changes the examples, or this fails.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{KUBEWRIGHT, RunningCluster};

const EXAMPLES: &[&str] = &["autorebooter", "database", "guestbook", "sidecarset"];

/// The files that the command writes for a repository of its own, which the examples are not: manifests of cargo, the
/// sources of an image, GitHub's workflows.
const OF_THE_REPOSITORY: &[&str] = &[
    "Cargo.toml",
    "api/Cargo.toml",
    "Dockerfile",
    ".gitignore",
    ".github/",
    ".cargo/",
    ".devcontainer/",
    "deny.toml",
    "rust-toolchain.toml",
];

/// The author's own files: these differ, or are other files, and they are the content of the example.
const OF_THE_AUTHOR: &[&str] = &["README.md", "api/src/v", "src/", "config/samples/", "tests/it/"];

/// Files of the command that must stand as they were written, though they lie where an author writes.
const UNTOUCHED: &[&str] = &["src/main.rs", "config/samples/kustomization.yaml"];

/// The files that `kubewright manifests` writes later, out of the code.
const GENERATED: &[&str] = &[
    "config/crd/bases/",
    "config/rbac/role.yaml",
    "config/webhook/manifests.yaml",
];

/// Asks for the command's files to be written anew, as those of the golden projects are.
const UPDATE: &str = "KUBEWRIGHT_UPDATE_GOLDEN";

fn folder(example: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .join(example)
}

fn is_of(path: &str, list: &[&str]) -> bool {
    list.iter().any(|entry| {
        let rest = path.strip_prefix(entry);
        rest.is_some_and(|rest| rest.is_empty() || entry.ends_with('/') || *entry == "api/src/v")
    })
}

/// All files below a folder, by their paths in it.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                folders.extend((name != "target").then_some(path));
            } else {
                found.insert(name, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

/// The files that the commands of an example's `scaffold.sh` write.
fn scaffolded(example: &str) -> BTreeMap<String, String> {
    let made = tempfile::tempdir().unwrap();
    let programs = Path::new(KUBEWRIGHT).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let done = Command::new("sh")
        .arg(folder(example).join("scaffold.sh").canonicalize().unwrap())
        .current_dir(made.path())
        .env("PATH", path)
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{example}/scaffold.sh: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    files(made.path())
}

/// The Makefile of a member of this repository's workspace: images are built from the whole, whose versions Cargo.lock
/// holds.
fn as_member(makefile: &str) -> String {
    let mut lines = Vec::new();
    let mut skipped = false;
    for line in makefile.lines() {
        skipped = line.starts_with("# The image is built with the versions") || (skipped && !line.is_empty());
        if skipped || (line.is_empty() && lines.last().is_some_and(String::is_empty)) {
            continue;
        }
        let line = line.replace(": Cargo.lock ##", ": ##");
        lines.push(match line.split_once("--build-context ") {
            Some((before, after)) => {
                let after = after.splitn(3, '"').nth(2).unwrap().trim_start();
                format!(
                    "{before}{}",
                    after.replace("\"$(IMG)\" .", "\"$(IMG)\" -f Dockerfile ../..")
                )
            }
            None => line,
        });
    }
    lines.join("\n") + "\n"
}

#[test]
fn each_example_is_what_the_command_writes_and_its_own_code() {
    for example in EXAMPLES {
        let (made, there) = (scaffolded(example), files(&folder(example)));
        let mut wrong = Vec::new();
        for (path, text) in &made {
            if is_of(path, OF_THE_REPOSITORY) {
                continue;
            }
            let wanted = if path == "Makefile" {
                as_member(text)
            } else {
                text.clone()
            };
            let is_own = is_of(path, OF_THE_AUTHOR) && !is_of(path, UNTOUCHED);
            match there.get(path) {
                // Scaffolded tests make way for better ones; the one for a real cluster stays.
                None if path.starts_with("tests/") && path != "tests/e2e.rs" => {}
                None => wrong.push(format!("{path}: the command writes it, and the example lacks it")),
                Some(text) if *text == wanted && is_own && path.ends_with("_controller.rs") => {
                    wrong.push(format!("{path}: nothing of its own in it"));
                }
                Some(text) if *text != wanted && !is_own && std::env::var_os(UPDATE).is_some() => {
                    std::fs::write(folder(example).join(path), wanted).unwrap();
                }
                Some(text) if *text != wanted && !is_own => {
                    wrong.push(format!("{path}: not what the command writes"));
                }
                Some(_) => {}
            }
        }
        let of_config = there.keys().filter(|path| path.starts_with("config/"));
        for path in of_config.filter(|path| !made.contains_key(*path) && !is_of(path, GENERATED)) {
            wrong.push(format!("{path}: the command does not write it"));
        }
        assert!(
            wrong.is_empty(),
            "examples/{example}:\n{}\n{UPDATE}=1 writes the command's files anew",
            wrong.join("\n")
        );
    }
}

#[test]
fn each_example_can_be_deployed() {
    let run = |example: &str, kubeconfig: &Path, arguments: &[&str]| {
        let done = Command::new(KUBEWRIGHT)
            .args(arguments)
            .args(["--image", "example.com/operator:1"])
            .current_dir(folder(example))
            .env("KUBECONFIG", kubeconfig)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
        assert!(done.status.success(), "{example}: {arguments:?} said:\n{said}");
        said
    };
    // Those with webhooks want cert-manager's kinds, which no embedded cluster has; the objects that they would apply
    // are complete.
    for example in EXAMPLES {
        let said = run(example, Path::new("/nonexistent"), &["build-installer", "--dry-run"]);
        assert!(
            said.contains("would create dist/install.yaml"),
            "{example} said:\n{said}"
        );
    }
    let cluster = RunningCluster::start(&[]);
    let said = run("guestbook", &cluster.kubeconfig(), &["deploy"]);
    assert!(said.contains("deployed: 15 objects"), "{said}");
}
