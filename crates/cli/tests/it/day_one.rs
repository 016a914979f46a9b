//! A project on its first day: its CI is green, its image can be built, and its tests prove something.
//!
//! The steps of the workflows are typed as they stand in the files. Building the operator is asked for (see
//! `support::operators`); that actions and images are pinned, and that the image's build gets its inputs, is looked at
//! always.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::KUBEWRIGHT;
use crate::support::operators::{self, checkout, command, type_in};
use kubewright_codegen::yaml;
use serde_json::Value;

const COMMANDS: [&str; 2] = [
    "kubewright init --domain my.domain",
    "kubewright create api --group webapp --version v1 --kind Guestbook --resource --controller",
];

/// A project that depends on this checkout.
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

/// A project as `init` makes it without a word about kubewright, from a checkout.
fn portable(more: &[&str]) -> (tempfile::TempDir, std::path::PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let project = place.path().join("guestbook");
    let output = Command::new(KUBEWRIGHT)
        .args(["init", "guestbook", "--domain", "my.domain"])
        .args(more)
        .current_dir(place.path())
        .env_remove("KUBEWRIGHT_PATH")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    type_in(COMMANDS[1], &project);
    (place, project)
}

/// A home of cargo's own, with the crates that are here.
fn cargo_home(place: &Path) -> std::path::PathBuf {
    let home = place.join("cargo");
    fs::create_dir(&home).unwrap();
    let user = std::env::home_dir().map(|home| home.join(".cargo"));
    let ours = std::env::var_os("CARGO_HOME")
        .map(std::path::PathBuf::from)
        .or(user)
        .unwrap();
    for part in ["registry", "config.toml"] {
        if ours.join(part).exists() {
            std::os::unix::fs::symlink(ours.join(part), home.join(part)).unwrap();
        }
    }
    home
}

fn git(arguments: &[&str], folder: &Path) -> String {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "git {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn what_is_committed_names_no_folder_of_this_machine() {
    let root = checkout().canonicalize().unwrap();
    let rev = git(&["rev-parse", "HEAD"], &root);
    for (more, source) in [
        (&[][..], format!("rev = \"{rev}\"")),
        (
            &["--kubewright", "https://example.com/kubewright@v1"],
            "git = \"https://example.com/kubewright\", rev = \"v1\"".to_owned(),
        ),
        (&["--kubewright", "0.1.0"], "kubewright = \"0.1.0\"".to_owned()),
    ] {
        let (_place, project) = portable(more);
        assert!(read(&project, "Cargo.toml").contains(&source), "{more:?}");
        let mut folders = vec![project.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = fs::read_to_string(&path).unwrap();
                for machine in [
                    root.to_str().unwrap(),
                    project.to_str().unwrap(),
                    "--path",
                    "path = \"/",
                ] {
                    assert!(!text.contains(machine), "{} has {machine}", path.display());
                }
                // The name of a crate in a registry belongs to whoever has it.
                for line in text.lines().filter(|line| line.contains("cargo install ")) {
                    assert!(line.contains(" --git https://"), "{}: {line}", path.display());
                }
            }
        }
    }
}

/// The project is cloned into another folder, and cargo finds kubewright in the repository that it names, with nothing
/// of the checkout there. Compiling it again would prove no more.
#[test]
fn a_clone_resolves_without_the_checkout() {
    let place = tempfile::tempdir().unwrap();
    let root = checkout();
    let served = place.path().join("kubewright.git");
    git(
        &[
            "clone",
            "--quiet",
            "--bare",
            root.to_str().unwrap(),
            served.to_str().unwrap(),
        ],
        place.path(),
    );
    let rev = git(&["rev-parse", "HEAD"], &root);
    let (_made, project) = portable(&["--kubewright", &format!("file://{}@{rev}", served.display())]);
    git(&["init", "--quiet"], &project);
    git(&["add", "--all"], &project);
    let me = [
        "-c",
        "user.name=me",
        "-c",
        "user.email=me@example.com",
        "commit",
        "--quiet",
        "--message",
        "first",
    ];
    git(&me, &project);
    let clone = place.path().join("elsewhere/clone");
    git(
        &["clone", "--quiet", project.to_str().unwrap(), clone.to_str().unwrap()],
        place.path(),
    );
    operators::lock(&clone);
    let output = command("cargo", &clone)
        .args(["metadata", "--format-version", "1"])
        // A repository that is served by a file needs no net, and is kept away from this user's own.
        .env("CARGO_HOME", cargo_home(place.path()))
        .env("CARGO_TARGET_DIR", place.path().join("target"))
        .env("CARGO_NET_OFFLINE", "false")
        .env_remove("KUBEWRIGHT_PATH")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let found = String::from_utf8(output.stdout).unwrap();
    let source = format!("kubewright.git?rev={rev}#kubewright@");
    assert!(found.contains(&source), "not from the repository");
    assert!(
        !found.contains(&format!("{}/crates", root.display())),
        "from the checkout"
    );
}

/// The crates as a registry serves them: each unpacked from its package, with nothing of the checkout around it.
#[test]
fn a_project_passes_its_tests_against_the_packaged_crates() {
    if !operators::are_built() {
        return;
    }
    let (place, project) = portable(&["--kubewright", env!("CARGO_PKG_VERSION")]);
    let crates = place.path().join("crates");
    let cargo = |arguments: &[&str]| {
        let mut command = command("cargo", &checkout());
        let output = command
            .args(arguments)
            .env("CARGO_TARGET_DIR", &crates)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let metadata: Value = serde_json::from_slice(&cargo(&["metadata", "--format-version", "1", "--no-deps"])).unwrap();
    let published = metadata["packages"].as_array().unwrap().iter();
    let published = published.filter(|package| package["publish"].is_null());
    let names: Vec<&str> = published.map(|package| package["name"].as_str().unwrap()).collect();
    let mut arguments = vec!["package", "--no-verify", "--allow-dirty", "--exclude-lockfile"];
    arguments.extend(names.iter().flat_map(|name| ["--package", name]));
    cargo(&arguments);

    let manifest = project.join("Cargo.toml");
    let mut text = read(&project, "Cargo.toml") + "\n[patch.crates-io]\n";
    for name in names {
        let stem = format!("{name}-{}", env!("CARGO_PKG_VERSION"));
        let unpacked = Command::new("tar")
            .args(["-xzf", &format!("package/{stem}.crate")])
            .current_dir(&crates)
            .status();
        assert!(unpacked.unwrap().success(), "{stem}");
        text += &format!("{name} = {{ path = {:?} }}\n", crates.join(stem));
    }
    fs::write(manifest, text).unwrap();
    operators::lock(&project);
    type_in("cargo test", &project);
}

#[test]
fn an_image_is_handed_a_checkout_that_was_named() {
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
fn the_end_to_end_test_deploys_the_image_that_kind_has_loaded() {
    let (_place, project) = project();
    operators::lock(&project);
    // All programs are ones that print what they were asked.
    let output = command("make", &project)
        .args([
            "test-e2e",
            "CONTAINER_TOOL=echo docker",
            "KIND=echo kind",
            "KUBEWRIGHT=echo kubewright",
        ])
        .arg("CARGO=echo cargo")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let typed = String::from_utf8(output.stdout).unwrap();
    let image = "example.com/guestbook:v0.0.1";
    for line in [
        "-t IMAGE .",
        "kind load docker-image IMAGE --name guestbook-test-e2e",
        "kubewright deploy --image IMAGE",
        "cargo test --test e2e -- --ignored",
    ] {
        assert!(typed.contains(&line.replace("IMAGE", image)), "{line}:\n{typed}");
    }
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
                type_in(line, &project);
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
        .args(["test", "--quiet", "--locked", "--test", "it"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && said.contains("is Ready"), "{said}");
}

/// A unit of cargo's build, with all that it is made of: two equal ones are compiled once.
fn unit(units: &[Value], at: usize, known: &mut [Option<u64>]) -> u64 {
    use std::hash::{Hash as _, Hasher as _};
    if let Some(known) = known[at] {
        return known;
    }
    let unit_at = &units[at];
    let mut profile = unit_at["profile"].clone();
    // Tests have a profile of their own name, with the same settings.
    profile["name"] = Value::Null;
    let mut below: Vec<u64> = unit_at["dependencies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|dependency| {
            unit(
                units,
                usize::try_from(dependency["index"].as_u64().unwrap()).unwrap(),
                known,
            )
        })
        .collect();
    below.sort_unstable();
    let mut hasher = std::hash::DefaultHasher::new();
    for field in ["pkg_id", "target", "mode", "platform", "features"] {
        unit_at[field].to_string().hash(&mut hasher);
    }
    profile.to_string().hash(&mut hasher);
    below.hash(&mut hasher);
    let found = hasher.finish();
    known[at] = Some(found);
    found
}

/// What cargo would compile for a command line.
fn compiled(line: &str, project: &Path) -> std::collections::BTreeSet<u64> {
    let mut cargo = command("cargo", project);
    // The graph is for tools that are built with a nightly; nothing is compiled here.
    let output = cargo
        .args(line.split_whitespace())
        .args(["-Z", "unstable-options", "--unit-graph"])
        .env("RUSTC_BOOTSTRAP", "1")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{line}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let graph: Value = serde_json::from_slice(&output.stdout).unwrap();
    let units = graph["units"].as_array().unwrap();
    let mut known = vec![None; units.len()];
    (0..units.len()).map(|at| unit(units, at, &mut known)).collect()
}

#[test]
fn the_first_build_happens_once() {
    let (_place, project) = project();
    operators::lock(&project);
    let (built, tested) = (compiled("build", &project), compiled("test --workspace", &project));
    let twice = built.difference(&tested).count();
    assert!(built.len() > 100, "{} units", built.len());
    // `kubewright manifests` and `dev` build what `cargo test` builds, too.
    assert_eq!(
        twice, 0,
        "units that `cargo test` compiles once more, with other features"
    );
}
