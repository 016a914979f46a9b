//! `init`, `create`, `edit` and `delete` as typed, in a folder with a space in its name: their output, and the files
//! that they leave behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{self, KUBEWRIGHT};

/// A folder for a project.
struct Folder {
    root: tempfile::TempDir,
}

impl Folder {
    fn new() -> Folder {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("my work")).unwrap();
        Folder { root }
    }

    fn path(&self) -> PathBuf {
        self.root.path().join("my work")
    }

    /// Types a command and records status and output. `KUBEWRIGHT_PATH` is not read, and there is no terminal.
    fn type_in(&self, line: &str) -> String {
        let done = Command::new(KUBEWRIGHT)
            .args(line.split_whitespace())
            .current_dir(self.path())
            .env_remove("KUBEWRIGHT_PATH")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = [done.stdout, done.stderr]
            .map(|text| String::from_utf8(text).unwrap())
            .concat();
        // clap prints the whole usage; only its first line matters.
        let text = text
            .split("\n\nUsage:")
            .next()
            .unwrap_or_default()
            .trim_end()
            .to_owned()
            + text
                .split_once("\nhint:")
                .map_or(String::new(), |(_, hint)| format!("\nhint:{}", hint.trim_end()))
                .as_str();
        let status = done.status.code().map_or("killed".to_owned(), |code| code.to_string());
        format!("$ kubewright {line}\n{text}\n[{status}]\n")
    }

    fn files(&self) -> Vec<(PathBuf, String)> {
        let mut found = Vec::new();
        let mut folders = vec![self.path()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    found.push((path.clone(), fs::read_to_string(&path).unwrap()));
                }
            }
        }
        found.sort();
        found
    }
}

const INIT: &str = "init --project-name guestbook --domain my.domain --repo example.com/guestbook --kubewright 0.1.0";
const GUESTBOOK: &str = "create api --group webapp --version v1 --kind Guestbook --resource --controller";
const WEBHOOK: &str =
    "create webhook --group webapp --version v1 --kind Guestbook --defaulting --programmatic-validation";

#[test]
fn a_project_grows() {
    let folder = Folder::new();
    let mut told = String::new();
    for line in [
        INIT,
        &format!("{GUESTBOOK} --dry-run"),
        GUESTBOOK,
        WEBHOOK,
        "create api --group apps --version v1 --kind Deployment --resource=false --controller --output json",
        "edit --multigroup",
        "edit --multigroup",
    ] {
        told += &folder.type_in(line);
    }
    insta::assert_snapshot!("grows", told);
}

#[test]
fn a_project_shrinks() {
    let folder = Folder::new();
    let mut told = String::new();
    for line in [INIT, GUESTBOOK, WEBHOOK] {
        folder.type_in(line);
    }
    for line in [
        "delete webhook --group webapp --version v1 --kind Guestbook",
        "delete api --group webapp --version v1 --kind Guestbook --diff",
        "delete api --group webapp --version v1 --kind Guestbook",
    ] {
        let mut recorded = folder.type_in(line);
        if line.ends_with("--diff") {
            recorded = recorded
                .lines()
                .filter(|line| line.starts_with(['$', '[']) || line.starts_with("--- "))
                .collect::<Vec<_>>()
                .join("\n")
                + "\n";
        }
        told += &recorded;
    }
    insta::assert_snapshot!("shrinks", told);
}

#[test]
fn what_is_wrong_is_said_and_changes_nothing() {
    let folder = Folder::new();
    let mut told = folder.type_in("create api --group g --version v1 --kind K --resource --controller");
    told += &folder.type_in("init --kubewright 0.1.0");
    assert!(folder.files().is_empty());
    folder.type_in(INIT);
    folder.type_in(GUESTBOOK);
    let before = folder.files();
    for line in [
        INIT,
        GUESTBOOK,
        "create api --group webapp --version v1 --kind Other",
        "create api --group webapp --version v1 --kind Other --namespace=false",
        "create webhook --group webapp --version v1 --kind Guestbook --type=mutating",
        "alpha webhook --group webapp --version v1 --kind Guestbook --type=mutating --operations=create",
        "create controller --kind K",
        "init --domian other",
        "init --license gpl other",
        "init --kubewright ./nowhere other",
        "edit",
    ] {
        told += &folder.type_in(line);
    }
    assert_eq!(folder.files(), before);
    insta::assert_snapshot!("what-is-wrong", told);
}

#[test]
fn without_a_command_there_is_help() {
    let told = Folder::new().type_in("");
    assert!(told.contains("Write Kubernetes operators in Rust"), "{told}");
    assert!(told.ends_with("[0]\n"), "{told}");
}

/// No user can make a folder below a file, not even root, who ignores modes.
#[test]
fn where_nothing_can_be_written_nothing_is() {
    let folder = Folder::new();
    fs::write(folder.path().join("config"), "in the way").unwrap();
    let told = folder.type_in(INIT);
    assert!(told.contains("KWR0003") && told.ends_with("[1]\n"), "{told}");
    let left: Vec<String> = folder.files().iter().map(|(path, _)| name(path)).collect();
    assert_eq!(left, ["config"]);
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn optional_plugins_are_run_by_edit_and_twice_is_once() {
    let folder = Folder::new();
    let mut told = String::new();
    for line in [INIT, GUESTBOOK, WEBHOOK] {
        folder.type_in(line);
    }
    // The files that `manifests` writes from the code, which is not compiled here.
    for file in [
        "rbac/role.yaml",
        "webhook/manifests.yaml",
        "crd/bases/webapp.my.domain_guestbooks.yaml",
    ] {
        let golden = support::operators::checkout()
            .join("testdata/golden/plain/config")
            .join(file);
        let path = folder.path().join("config").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(golden, path).unwrap();
    }
    for line in [
        "edit --plugins helm/v2-alpha --dry-run",
        "edit --plugins helm/v2-alpha,grafana",
        "edit --plugins helm,grafana.kubebuilder.io/v1-alpha",
        "edit --plugins helm --output-dir ../outside",
        "edit --plugins deploy-image/v1-alpha",
        "edit --plugins autoupdate",
        "edit --plugins autoupdate/v1-alpha",
        "edit --plugins autopilot",
        "init --plugins helm",
    ] {
        told += &folder.type_in(line);
    }
    insta::assert_snapshot!("plugins", told);
}

#[test]
fn a_project_is_scaffolded_again_and_upgraded() {
    let folder = Folder::new();
    for line in [INIT, GUESTBOOK] {
        folder.type_in(line);
    }
    let mut told = folder.type_in("upgrade");
    let program = format!("upgrade --from-program {KUBEWRIGHT}");
    told += &folder.type_in(&program).replace(KUBEWRIGHT, "OLD");
    told += &folder.type_in("alpha generate");
    let old = folder.type_in("alpha generate --output-dir ../old");
    assert!(old.contains("create src/lib.rs") && old.ends_with("[0]\n"), "{old}");
    // The old version said something else in two files, and a person changed one of them in the same place.
    let root = folder.path().parent().unwrap().join("old");
    let replace = |path: PathBuf, from: &str, to: &str| {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{}", path.display());
        fs::write(path, text.replace(from, to)).unwrap();
    };
    for at in [&root, &folder.path()] {
        replace(at.join("src/lib.rs"), "declared once", "declared one time");
        replace(at.join("config/manager/manager.yaml"), "memory: 64Mi", "memory: 32Mi");
        replace(at.join("PROJECT"), "cliVersion: 0.1.0", "cliVersion: 0.0.9");
    }
    replace(
        folder.path().join("config/manager/manager.yaml"),
        "memory: 32Mi",
        "memory: 48Mi",
    );
    replace(folder.path().join("src/main.rs"), "use ", "// Mine.\nuse ");
    let before = folder.files();
    told += &folder.type_in("upgrade");
    told += &folder.type_in("upgrade --from ../old");
    told += &folder.type_in("upgrade --from ../old --force --diff");
    assert_eq!(folder.files(), before, "nothing is written until it is said");
    told += &folder.type_in("upgrade --from ../old --force");
    told += &folder.type_in(&program).replace(KUBEWRIGHT, "OLD");
    insta::assert_snapshot!("upgrade", told);
}

#[test]
fn a_project_in_go_is_carried_over_whole_or_not_at_all() {
    let folder = Folder::new();
    let go = folder.path().join("go");
    fs::create_dir_all(go.join("api/v1")).unwrap();
    let project = "domain: my.domain\nlayout: [go.kubebuilder.io/v4]\nprojectName: shop\nrepo: example.com/shop\nresources:\n\
                   - {api: {crdVersion: v1, namespaced: true}, domain: my.domain, group: web, kind: Page, version: v1}\nversion: \"3\"\n";
    let types = "package v1\n\ntype PageSpec struct {\n\t// +kubebuilder:validation:MinLength=1\n\tTitle string `json:\"title\"`\n}\n\n\
                 // +kubebuilder:object:root=true\ntype Page struct {\n\tmetav1.TypeMeta
                 // `json:\",inline\"`\n\tmetav1.ObjectMeta `json:\"metadata\"`\n\tSpec PageSpec `json:\"spec\"`\n}\n";
    fs::write(go.join("PROJECT"), project).unwrap();
    fs::write(go.join("api/v1/page_types.go"), types).unwrap();
    let before = folder.files();
    let mut told = folder.type_in("migrate go rust --kubewright 0.1.0 --dry-run");
    fs::write(go.join("api/v1/more.go"), "package v1\n\ntype A struct\n").unwrap();
    told += &folder.type_in("migrate go rust --kubewright 0.1.0");
    fs::remove_file(go.join("api/v1/more.go")).unwrap();
    told += &folder.type_in("migrate nowhere rust --kubewright 0.1.0");
    assert_eq!(folder.files(), before, "nothing is written");
    told += &folder.type_in("migrate go rust --kubewright 0.1.0");
    told += &folder.type_in("migrate go rust --kubewright 0.1.0");
    insta::assert_snapshot!("migrate", told);
}
