//! Rules of the repository that no compiler checks: arrows between crates, sources and paths (`tidy`), what may enter
//! the lock file (`dependencies`), what can be published (`publish`), names of fields (`fields`), what is accepted without acting (`honesty`), versions of Kubernetes (`versions`), and the book (`book`, `pieces`).

mod book;
mod dependencies;
mod fields;
mod honesty;
mod pieces;
mod publish;
mod tidy;
mod versions;
mod words;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the root")
        .to_path_buf()
}

/// What cargo says of the workspace and its dependencies.
fn metadata(options: &[&str]) -> serde_json::Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(options)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

/// All files below `dir` that end with `ending`, without build output.
fn files(dir: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a folder of the workspace can be read") {
        let path = entry.expect("an entry can be read").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                files(&path, ending, found);
            }
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
}
