//! Files that cannot be read, and folders that cannot be written to.

use super::*;

#[test]
fn what_is_no_regular_file_is_told() {
    const NO_FILE: &[&str] = &["not a regular file"];
    for (before, command, words) in [
        (FifoInPlaceOf("PROJECT"), VISIT, NO_FILE),
        (FifoInPlaceOf("PROJECT"), "edit --plugins grafana", NO_FILE),
        (FifoInPlaceOf("src/lib.rs"), VISIT, NO_FILE),
        (FifoInPlaceOf("src/lib.rs"), "manifests", NO_FILE),
        (FifoInPlaceOf("api/src/v1/mod.rs"), VISIT, NO_FILE),
        (FifoInPlaceOf("Cargo.toml"), "edit --owner me", NO_FILE),
        (FifoInPlaceOf("Cargo.lock"), "manifests", NO_FILE),
        (FifoInPlaceOf("kubewright.toml"), "manifests", NO_FILE),
        (FifoInPlaceOf("config/rbac/role.yaml"), "build-installer", NO_FILE),
        (
            FifoInPlaceOf("config/default/kustomization.yaml"),
            "build-installer",
            NO_FILE,
        ),
        (
            FifoInPlaceOf("config/manager/manager.yaml"),
            "edit --plugins helm",
            NO_FILE,
        ),
        (FifoInPlaceOf("kubeconfig"), "install --kubeconfig kubeconfig", NO_FILE),
        (Nothing, "uninstall --kubeconfig /dev/zero", NO_FILE),
        (Nothing, "edit --license-file /dev/zero", NO_FILE),
        (
            LinkInPlaceOf("PROJECT", "PROJECT"),
            VISIT,
            &["at: PROJECT", "symbolic link"],
        ),
        (LinkInPlaceOf("config", "/tmp"), VISIT, &["at: config", "symbolic link"]),
        (
            LinkInPlaceOf("config/rbac/role.yaml", "role.yaml"),
            "build-installer",
            &["config/rbac/role.yaml", "symbolic link"],
        ),
        (
            LinkInPlaceOf(".kubewright-write", "/tmp"),
            VISIT,
            &["at: .kubewright-write", "move it away"],
        ),
        (
            New(".kubewright-write", b"x"),
            VISIT,
            &["at: .kubewright-write", "move it away"],
        ),
        (
            New(
                ".kubewright-write/journal",
                br#"[{"path": "../x", "before": false, "after": true}]"#,
            ),
            VISIT,
            &["at: .kubewright-write/journal", "leads out of the project"],
        ),
        (HugeInPlaceOf("PROJECT"), VISIT, &["larger than 64 MiB"]),
        (HugeInPlaceOf("src/lib.rs"), VISIT, &["larger than 64 MiB"]),
        (
            HugeInPlaceOf("config/rbac/role.yaml"),
            "build-installer",
            &["larger than 64 MiB"],
        ),
    ] {
        check(&before, command, words);
    }
}

/// The command in a read-only folder. `root` writes regardless of modes, so the folder is mounted read-only for the
/// command alone; false where this machine does not allow that.
fn read_only(folder: &Path, arguments: &[&str]) -> Option<std::process::Output> {
    const MOUNT: &str = "mount --bind . . && mount -o remount,ro,bind . && cd \"$PWD\"";
    let within = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--map-root-user", "sh", "-c", script, "sh"]);
        command.current_dir(folder).env("KUBECONFIG", "/nonexistent");
        command
    };
    let tried = within(&format!("{MOUNT} && ! touch touched")).output().ok()?;
    if !tried.status.success() {
        return None;
    }
    let mut command = within(&format!("{MOUNT} && exec \"$@\""));
    command.args([KUBEWRIGHT]).args(arguments);
    Some(command.output().unwrap())
}

#[test]
#[allow(clippy::print_stderr, reason = "what did not run is told aloud")]
fn a_folder_that_nobody_can_write_to_is_told() {
    let golden = |name: &str| {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../testdata/golden")
            .join(name)
    };
    let outside = tempfile::tempdir().unwrap();
    let go = outside.path().join("go");
    std::fs::create_dir(&go).unwrap();
    std::fs::write(go.join("main.go"), "package main\n").unwrap();
    let project = "domain: a.b\nlayout: [go.kubebuilder.io/v4]\nprojectName: c\nrepo: a.b/c\nversion: \"3\"\n";
    std::fs::write(go.join("PROJECT"), project).unwrap();
    let from = |command: &str| command.replace("GO", &go.display().to_string());
    for (command, is_empty) in [
        (VISIT, false),
        (
            "create webhook --group core --version v1 --kind Pod --defaulting",
            false,
        ),
        (
            "delete webhook --group webapp --version v1 --kind Guestbook --defaulting",
            false,
        ),
        ("edit --multigroup=true", false),
        ("edit --plugins grafana", false),
        ("alpha generate --output-dir out", false),
        ("build-installer", false),
        ("bundle --version 0.1.0 --image example.org/a:1", false),
        ("migrate GO out", true),
        ("migrate GO .", true),
        ("init --domain a.b --project-name c", true),
        ("cluster --data-dir state", true),
        ("assets --dir made", true),
    ] {
        let folder = tempfile::tempdir().unwrap();
        if !is_empty {
            copied(&golden("plain"), folder.path());
        }
        let there = tree(folder.path());
        let command = from(command);
        let words: Vec<&str> = command.split(' ').collect();
        let Some(done) = read_only(folder.path(), &words) else {
            eprintln!("left out: this machine lets nobody mount a folder read-only (unshare --mount --map-root-user)");
            return;
        };
        let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
        assert!(!done.status.success(), "{command} should fail, and said:\n{said}");
        for part in ["error: ", "because: ", "Read-only file system"] {
            assert!(said.contains(part), "{command} should say {part:?}, and said:\n{said}");
        }
        let is_helped = ["fix: ", "hint: "].iter().any(|part| said.contains(part));
        assert!(is_helped, "{command} should say what to do, and said:\n{said}");
        assert!(
            tree(folder.path()) == there,
            "{command} failed, and has written something:\n{said}"
        );
    }
}
