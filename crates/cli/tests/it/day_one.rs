//! A project on its first day: its CI is green, its image can be built, and its tests prove something.
//!
//! The steps of the workflows are typed as they stand in the files. Building the operator is asked for (see
//! `support::operators`); that actions and images are pinned, and that the image's build gets its inputs, is looked at
//! always.

use std::fs;
use std::path::Path;

use crate::support::operators::{self, checkout, command, type_in};
use kubewright_codegen::yaml;
use serde_json::Value;

const COMMANDS: [&str; 2] = [
    "kubewright init --domain my.domain",
    "kubewright create api --group webapp --version v1 --kind Guestbook --resource --controller",
];

/// A project with the default dependency of `init`.
fn project() -> (tempfile::TempDir, std::path::PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let project = place.path().join("guestbook");
    fs::create_dir(&project).unwrap();
    for line in COMMANDS {
        type_in(line, &project);
    }
    (place, project)
}

fn read(project: &Path, file: &str) -> String {
    fs::read_to_string(project.join(file)).unwrap()
}

/// The jobs of a workflow.
fn jobs(project: &Path, workflow: &str) -> Vec<Value> {
    let workflow = yaml::parse(&read(project, &format!(".github/workflows/{workflow}.yml"))).unwrap();
    workflow["jobs"].as_object().unwrap().values().cloned().collect()
}

fn steps(job: &Value) -> Vec<Value> {
    job["steps"].as_array().unwrap().clone()
}

#[test]
fn what_others_bring_is_pinned_and_nothing_runs_for_ever() {
    let (_place, project) = project();
    for workflow in ["lint", "test", "test-e2e"] {
        for job in jobs(&project, workflow) {
            assert!(job["timeout-minutes"].is_u64(), "{workflow}: {job}");
            for step in steps(&job) {
                let Some(action) = step["uses"].as_str() else { continue };
                let (_, version) = action.split_once('@').unwrap();
                let is_commit = version.len() == 40 && version.bytes().all(|byte| byte.is_ascii_hexdigit());
                assert!(is_commit, "{workflow}: {action}");
            }
        }
    }
    let dockerfile = read(&project, "Dockerfile");
    let images: Vec<&str> = dockerfile.lines().filter(|line| line.contains("_IMAGE=")).collect();
    assert_eq!(images.len(), 2, "{dockerfile}");
    assert!(images.iter().all(|image| image.contains("@sha256:")), "{images:?}");
    assert!(dockerfile.contains("cargo build --release --locked"), "{dockerfile}");
}

#[test]
fn an_image_is_handed_the_default_dependency() {
    let (_place, project) = project();
    operators::lock(&project);
    let root = checkout().canonicalize().unwrap();
    let typed = type_in("make --dry-run docker-build IMG=example.com/guestbook:v1", &project);
    let context = format!("--build-context \"kubewright={}\"", root.display());
    assert!(typed.contains(&context), "{typed}");
    // The build finds the checkout under the name that Cargo.toml has for it.
    let copied = format!("--from=kubewright . {}\n", root.display());
    assert!(read(&project, "Dockerfile").contains(&copied));
    assert!(read(&project, "Cargo.toml").contains(&format!("{}/crates/kubewright\"", root.display())));
}

#[test]
fn ci_is_green_and_a_test_fails_when_the_controller_does_nothing() {
    if !operators::are_built() {
        return;
    }
    let (_place, project) = project();
    operators::lock(&project);
    type_in("kubewright manifests", &project);
    for workflow in ["lint", "test"] {
        for job in jobs(&project, workflow) {
            for step in steps(&job) {
                let Some(line) = step["run"].as_str() else { continue };
                // The toolchain and the program are those of this test.
                if line.starts_with("rustup ") || line.starts_with("cargo install kubewright-cli ") {
                    continue;
                }
                // The checkout that the project depends on is not formatted with it.
                let line = line.replace(
                    "cargo fmt --all",
                    "cargo fmt --package guestbook --package guestbook-api",
                );
                type_in(&line, &project);
            }
        }
    }
    let controller = project.join("src/controller/guestbook_controller.rs");
    let text = fs::read_to_string(&controller).unwrap();
    let deed = "conditions::set(&mut status.conditions, seen);";
    assert!(text.contains(deed), "{text}");
    fs::write(
        &controller,
        text.replace(deed, "let _ = (status, &seen, conditions::is_true);"),
    )
    .unwrap();
    let output = command("cargo", &project)
        .args(["test", "--quiet", "--locked", "--test", "guestbook_controller"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && said.contains("is Available"), "{said}");
}
