//! Mistakes that people make in a project by hand: each ends with an error that has the attempt, the place, the cause
//! and the fix, and nothing is written. Mistakes in types and attributes are in `manifests.rs`, wrong flags in
//! `scaffold.rs`.

mod elsewhere;
mod files;
use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::support::KUBEWRIGHT;

const VISIT: &str = "create api --group webapp --version v1 --kind Visit --resource --controller";

const GHOST: &str = "resources:\n- {controller: true, domain: my.domain, group: webapp, kind: Ghost, version: v1}\n";
const LOST: &str = "resources:\n- {api: {crdVersion: v1}, domain: my.domain, group: webapp, kind: Lost, version: v1}\n";
const OTHER_SCOPE: &str =
    "resources:\n- {api: {crdVersion: v1}, domain: my.domain, group: webapp, kind: Guestbook, version: v2}\n";
const SAME_PLURAL: &str = "resources:\n- {api: {crdVersion: v1}, domain: my.domain, group: webapp, kind: Guest, \
                           plural: guestbooks, version: v1}\n";

/// The change of the project before the command.
enum Before {
    Nothing,
    /// In this file the first text becomes the second.
    Edit(&'static str, &'static str, &'static str),
    Append(&'static str, &'static [u8]),
    /// A new file.
    New(&'static str, &'static [u8]),
    Remove(&'static str),
    /// A file where a folder belongs.
    FileInPlaceOf(&'static str),
    FolderInPlaceOf(&'static str),
    /// A FIFO that nothing writes to.
    FifoInPlaceOf(&'static str),
    /// A symbolic link, and its target.
    LinkInPlaceOf(&'static str, &'static str),
    /// A file of 20 GiB, none of which is on the disk.
    HugeInPlaceOf(&'static str),
}

use Before::{
    Append, Edit, FifoInPlaceOf, FileInPlaceOf, FolderInPlaceOf, HugeInPlaceOf, LinkInPlaceOf, New, Nothing, Remove,
};

fn copied(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let place = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copied(&path, &place);
        } else {
            std::fs::copy(&path, place).unwrap();
        }
    }
}

/// Every file and folder, with its content.
fn tree(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.display().to_string();
        let about = path.symlink_metadata().unwrap();
        let kind = about.file_type();
        if kind.is_dir() {
            found.insert(name, Vec::new());
            found.extend(tree(&path));
        } else if kind.is_file() && about.len() < 1 << 30 {
            found.insert(name, std::fs::read(&path).unwrap());
        } else {
            found.insert(
                name,
                format!("FIFO {}, link {}, {}", kind.is_fifo(), kind.is_symlink(), about.len()).into(),
            );
        }
    }
    found
}

/// The place of a file that goes, with the folder that it is in.
fn cleared(project: &Path, path: &str) -> std::path::PathBuf {
    let place = project.join(path);
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    let _ = std::fs::remove_file(&place);
    let _ = std::fs::remove_dir_all(&place);
    place
}

/// Runs a command that must end by itself.
fn run(command: &mut Command) -> Output {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let number = child.id();
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    if let Ok(output) = ended.recv_timeout(Duration::from_secs(60)) {
        return output.unwrap();
    }
    let child = rustix::process::Pid::from_raw(number.cast_signed()).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
    panic!("{command:?} does not end");
}

impl Before {
    fn make(&self, project: &Path) {
        match self {
            Nothing => {}
            Edit(path, from, to) => {
                let text = std::fs::read_to_string(project.join(path)).unwrap();
                assert!(text.contains(from), "{path} has {from:?}");
                std::fs::write(project.join(path), text.replacen(from, to, 1)).unwrap();
            }
            Append(path, bytes) => {
                let mut text = std::fs::read(project.join(path)).unwrap();
                text.extend_from_slice(bytes);
                std::fs::write(project.join(path), text).unwrap();
            }
            New(path, bytes) => std::fs::write(cleared(project, path), bytes).unwrap(),
            Remove(path) if project.join(path).is_dir() => std::fs::remove_dir_all(project.join(path)).unwrap(),
            Remove(path) => std::fs::remove_file(project.join(path)).unwrap(),
            FifoInPlaceOf(path) => {
                let place = cleared(project, path);
                rustix::fs::mkfifoat(rustix::fs::CWD, place, rustix::fs::Mode::RWXU).unwrap();
            }
            LinkInPlaceOf(path, target) => {
                std::os::unix::fs::symlink(target, cleared(project, path)).unwrap();
            }
            HugeInPlaceOf(path) => {
                std::fs::File::create(cleared(project, path))
                    .unwrap()
                    .set_len(20 << 30)
                    .unwrap();
            }
            FileInPlaceOf(path) => {
                Remove(path).make(project);
                std::fs::write(project.join(path), "x\n").unwrap();
            }
            FolderInPlaceOf(path) => {
                let _ = std::fs::remove_file(project.join(path));
                std::fs::create_dir_all(project.join(path)).unwrap();
            }
        }
    }
}

fn check(before: &Before, command: &str, words: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let project = folder.path().join("project");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden/plain");
    copied(&golden, &project);
    before.make(&project);
    let there = tree(&project);
    let done = run(Command::new(KUBEWRIGHT)
        .args(command.split(' '))
        .current_dir(&project)
        .env("KUBECONFIG", "/nonexistent"));
    let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    assert!(!done.status.success(), "{command} should fail, and said:\n{said}");
    for part in ["error: ", "[KWR", "because: ", "fix: "].iter().chain(words) {
        assert!(said.contains(part), "{command} should say {part:?}, and said:\n{said}");
    }
    assert!(
        tree(&project) == there,
        "{command} failed, and has written something:\n{said}"
    );
}

#[test]
fn what_was_edited_by_hand_is_told_before_anything_is_written() {
    for (before, command, words) in [
        (Append("PROJECT", b"- [\n"), VISIT, &["at: PROJECT"] as &[&str]),
        (Append("PROJECT", b"\xff\xfe"), VISIT, &["at: PROJECT", "UTF-8"]),
        (
            Edit("PROJECT", "kind: Guestbook", "kind: 7"),
            VISIT,
            &["resources[0]", "expected a string"],
        ),
        (
            Edit("PROJECT", "controller: true", "controller: yep"),
            VISIT,
            &["expected a boolean"],
        ),
        (
            Edit("PROJECT", "group: webapp", "grup: webapp"),
            VISIT,
            &["resources[0].grup", "did you mean group?"],
        ),
        (
            Edit("PROJECT", "defaulting: true", "defualting: true"),
            VISIT,
            &["did you mean defaulting?"],
        ),
        (
            Edit("PROJECT", "version: \"3\"", "version: \"4\""),
            VISIT,
            &["PROJECT (version)"],
        ),
        (
            Edit("PROJECT", "rust.kubewright.dev/v1-alpha", "go.kubebuilder.io/v4"),
            VISIT,
            &["PROJECT (layout)", "kubewright migrate"],
        ),
        (
            Edit("PROJECT", "kind: Guestbook", "kind: guestbook"),
            VISIT,
            &["resources[0].kind", "`Guestbook`"],
        ),
        (Remove("PROJECT"), VISIT, &["no file named PROJECT"]),
        (
            Edit("PROJECT", "kind: Guestbook", "kind: 7"),
            "alpha generate --output-dir out",
            &["resources[0]"],
        ),
        (Append("PROJECT", b"---\nmine: 1\n"), VISIT, &["several YAML documents"]),
        (
            Edit("PROJECT", "crdVersion: v1", "crdVersion: v1beta1"),
            VISIT,
            &["resources[0].api.crdVersion", "there is only v1"],
        ),
        (
            Edit("PROJECT", "webhookVersion: v1", "webhookVersion: v1beta1"),
            VISIT,
            &["resources[0].webhooks.webhookVersion"],
        ),
        (
            Edit("PROJECT", "resources:\n", GHOST),
            VISIT,
            &["resources[0]", "`external`"],
        ),
        (
            Edit("PROJECT", "resources:\n", OTHER_SCOPE),
            VISIT,
            &["resources[1].api.namespaced", "one scope"],
        ),
        (
            Edit("PROJECT", "resources:\n", SAME_PLURAL),
            VISIT,
            &["resources[1].plural", "has the plural guestbooks already"],
        ),
        (Append("src/lib.rs", b"fn (\n"), VISIT, &["src/lib.rs:"]),
        (Append("src/lib.rs", b"\xff"), VISIT, &["at: src/lib.rs", "UTF-8"]),
        (
            Edit("src/lib.rs", "pub fn operator", "pub fn machine"),
            VISIT,
            &["no function `operator`"],
        ),
        (
            Append("config/crd/kustomization.yaml", b"- [\n"),
            VISIT,
            &["config/crd/kustomization.yaml"],
        ),
    ] {
        check(&before, command, words);
    }
}

#[test]
fn what_is_missing_or_in_the_way_is_told_before_anything_is_written() {
    for (before, command, words) in [
        (
            Remove("src/lib.rs"),
            VISIT,
            &["at: src/lib.rs", "nothing was written"] as &[&str],
        ),
        (Remove("api/src/lib.rs"), VISIT, &["at: api/src/lib.rs"]),
        (
            Remove("api/src/v1/mod.rs"),
            VISIT,
            &["at: api/src/v1/mod.rs", "declares guestbook_types.rs"],
        ),
        (Remove("src/controller/mod.rs"), VISIT, &["at: src/controller/mod.rs"]),
        (Remove("src/webhook/v1/mod.rs"), VISIT, &["at: src/webhook/v1/mod.rs"]),
        (
            Edit("PROJECT", "resources:\n", LOST),
            "create webhook --group webapp --version v1 --kind Lost --defaulting",
            &["at: api/src/v1/lost_types.rs", "a renamed kind is a new one"],
        ),
        (FileInPlaceOf("src/controller"), VISIT, &["nothing was changed"]),
        (
            FolderInPlaceOf("api/src/v1/visit_types.rs"),
            VISIT,
            &["api/src/v1/visit_types.rs", "move it away"],
        ),
        (
            Remove("config/rbac/role.yaml"),
            "edit --plugins helm",
            &["config/rbac/role.yaml", "kubewright manifests"],
        ),
        (Remove("config/default"), "build-installer", &["config/default"]),
        (
            Remove("config/manager/manager.yaml"),
            "build-installer",
            &["config/manager/manager.yaml"],
        ),
        (FileInPlaceOf("config/webhook"), "build-installer", &["config/webhook"]),
        (Nothing, "migrate src out", &["no file named PROJECT"]),
        (Nothing, "migrate . out", &["PROJECT"]),
        (
            Nothing,
            "migrate . out --module-path nowhere",
            &["at: nowhere", "--module-path names no folder"],
        ),
        (Nothing, "upgrade --from nowhere", &["at: nowhere"]),
        (Nothing, "upgrade --from .", &["at: .", "all would be lost"]),
        (
            Remove("Cargo.toml"),
            "edit --owner me",
            &["at: Cargo.toml", "no such file"],
        ),
        (Remove("api/Cargo.toml"), "edit --license none", &["at: api/Cargo.toml"]),
    ] {
        check(&before, command, words);
    }
}

/// The marks that `git merge` leaves where two people changed the same lines.
const CONFLICT: &[u8] = b"<<<<<<< HEAD\na: 1\n=======\na: 2\n>>>>>>> theirs\n";
const SAME_OBJECT: &[u8] =
    b"---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: controller-manager, namespace: system}\n";

#[test]
fn a_config_that_renders_to_nothing_usable_is_told() {
    let list = "config/default/kustomization.yaml";
    let added = |line: &'static str| Edit("config/default/kustomization.yaml", "resources:\n", line);
    for (before, command, words) in [
        (
            Append("config/rbac/role.yaml", CONFLICT),
            "build-installer",
            &["config/rbac/role.yaml:", "a merge left a conflict"] as &[&str],
        ),
        (
            Append("config/manager/manager.yaml", CONFLICT),
            "build-installer --image a:1",
            &["config/manager/manager.yaml:", "a merge left a conflict"],
        ),
        (Append(list, CONFLICT), "build-installer", &["a merge left a conflict"]),
        (
            Append("PROJECT", CONFLICT),
            VISIT,
            &["PROJECT:", "a merge left a conflict"],
        ),
        (
            Append("src/lib.rs", CONFLICT),
            VISIT,
            &["src/lib.rs:", "a merge left a conflict"],
        ),
        (
            Append("config/rbac/role.yaml", CONFLICT),
            "edit --plugins helm",
            &["a merge left a conflict"],
        ),
        (
            Append("config/rbac/role.yaml", CONFLICT),
            "bundle --version 0.1.0 --image a:1",
            &["a merge left a conflict"],
        ),
        (added("resources:\n- .\n"), "build-installer", &["a part of itself"]),
        (
            added("resources:\n- ../nowhere\n"),
            "build-installer",
            &["config/nowhere"],
        ),
        (
            Edit(list, "namespace: plain-system", "namespace: Plain System"),
            "build-installer",
            &["(namespace)", "Plain System"],
        ),
        (
            Edit(
                "config/rbac/service_account.yaml",
                "kind: ServiceAccount",
                "kid: ServiceAccount",
            ),
            "build-installer",
            &["config/rbac/service_account.yaml:1", "an object needs apiVersion, kind"],
        ),
        (
            Append("config/rbac/service_account.yaml", SAME_OBJECT),
            "build-installer",
            &["config/rbac/service_account.yaml"],
        ),
        (
            Edit(list, "- ../manager\n", ""),
            "build-installer",
            &["config/manager", "list"],
        ),
        (
            Edit(list, "namePrefix: plain-", "namePrefix: Plain_"),
            "build-installer",
            &["(namePrefix)", "\"Plain_\""],
        ),
        (
            Nothing,
            "build-installer --image Upper/case:1",
            &["it is not the name of an image"],
        ),
        (Nothing, "deploy --image a:", &["it is not the name of an image"]),
        (
            Nothing,
            "build-installer --image https://example.org/a",
            &["it is not the name of an image"],
        ),
        (
            Nothing,
            "build-installer --image a@sha256:1",
            &["it is not the name of an image"],
        ),
    ] {
        check(&before, command, words);
    }
}

#[test]
fn names_that_cannot_be_are_told_before_anything_is_written() {
    for (command, words) in [
        (
            "create api --group webapp --version v1 --kind Visit --plural guestbooks --resource --controller",
            "--plural",
        ),
        (
            "create api --group webapp --version v1 --kind Visit --plural guestbook --resource --controller",
            "has the singular guestbook already",
        ),
        (
            "create api --group webapp --version v1 --kind GuestbookList --resource --controller",
            "the list of one of",
        ),
        (
            "create api --group webapp --version v1 --kind Visit --plural 9s --resource --controller",
            "for example `s`",
        ),
        (
            "create api --group Web_App --version v1 --kind Visit --resource --controller",
            "`web-app`",
        ),
        (
            "create api --group webapp. --version v1 --kind Visit --resource --controller",
            "`webapp`",
        ),
        (
            "create api --group webapp --version 1 --kind Visit --resource --controller",
            "`v1`",
        ),
        (
            "create api --group webapp --version v1 --kind visit --resource --controller",
            "`Visit`",
        ),
        (
            "create api --group apps --version v1 --kind Deployment --resource --controller",
            "--multigroup",
        ),
        (
            "create webhook --group webapp --version v1 --kind Guestbook",
            "--defaulting",
        ),
        (
            "create webhook --group webapp --version v1 --kind Guestbook --defaulting",
            "already",
        ),
        (
            "create webhook --group webapp --version v1 --kind Guestbook --conversion --spoke v2",
            "v2",
        ),
        ("delete api --group webapp --version v1 --kind Visit", "Guestbook"),
        (
            "delete api --group webapp --version v1 --kind Guestbook",
            "delete webhook",
        ),
        ("edit --plugins helmm", "fix: kubewright edit --plugins helm\n"),
        (
            "edit --plugins grafna/v1-alpha",
            "fix: kubewright edit --plugins grafana\n",
        ),
        ("edit --plugins ansible", "fix: leave --plugins out"),
        ("bundle --version 1", "0.1.0"),
        (
            "create webhook --group core --version v1 --kind Pod --defaulting --defaulting-path /mutate-webapp-my-domain-v1-guestbook",
            "is the path of a webhook for webapp.my.domain/v1 Guestbook already",
        ),
        ("edit --plugins helm --output-dir src", "src is for something else"),
        ("edit --plugins helm --output-dir .git/x", ".git is for something else"),
        (
            "delete webhook --group webapp --version v1 --kind Guestbook --conversion",
            "it has: --defaulting, --programmatic-validation",
        ),
        (
            "create api --group webapp --version v1 --kind Cache --plugins deploy-image --image a:1 --run-as-user 2147483648",
            "--run-as-user \"2147483648\"",
        ),
        (
            "create api --group cert-manager --version v1 --kind Certificate --resource=false --controller \
             --external-api-path cert::v1 --external-api-domain io --external-api-module cert@@1",
            "is not a crate with a version",
        ),
    ] {
        check(&Nothing, command, &[words]);
    }
}

#[test]
fn the_exit_status_tells_a_slip_of_the_fingers_from_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, status) in [
        (&[][..], 0),
        (&["--version"], 0),
        (&["deploy", "--help"], 0),
        (&["deploy", "--nonsense"], 2),
        (&["nonsense"], 2),
        (&["create"], 2),
        (&["deploy", "--timeout", "soon"], 2),
        (&["deploy"], 1),
        (&["explain", "KWR9999"], 1),
    ] {
        let mut command = Command::new(KUBEWRIGHT);
        let output = command.args(arguments).current_dir(folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
    }
}
