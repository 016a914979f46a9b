//! The command in a shell: completion, color, and what it says while a step takes long.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use crate::support::KUBEWRIGHT;
use crate::support::project::{Project, REMOTE_KUBECONFIG, deployable};

/// What a shell is offered for the last word of a line.
fn offered(folder: &std::path::Path, words: &[&str]) -> String {
    let output = Command::new(KUBEWRIGHT)
        .args(["--", "kubewright"])
        .args(words)
        .current_dir(folder)
        .env("COMPLETE", "fish")
        .env("KUBECONFIG", folder.join("prod.yaml"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn values_are_completed() {
    let project = deployable(false);
    std::fs::write(project.path().join("prod.yaml"), REMOTE_KUBECONFIG).unwrap();
    let check = |words: &[&str], expected: &str| {
        let offered = offered(project.path(), words);
        assert!(
            offered.lines().any(|line| line.split('\t').next() == Some(expected)),
            "{words:?}: {offered}"
        );
    };
    check(&["explain", "KWR07"], "KWR0703");
    check(&["deploy", "--context", ""], "prod-eu");
    check(&["dev", "--context", ""], "prod-eu");
    check(&["status", ""], "Guestbook");
    check(&["create", "webhook", "--kind", ""], "Guestbook");
    check(&["delete", "api", "--group", ""], "webapp");
    check(&["delete", "api", "--version", ""], "v1");
    check(&["stat"], "status");
    check(&["cluster", "--controllers", "dep"], "deployment");
    check(&["controllers", "--controllers", "job,dep"], "job,deployment");
    // Nothing is offered where nothing is known, and nothing fails.
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(offered(empty.path(), &["deploy", "--context", "x"]), "");
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = Command::new(KUBEWRIGHT).args(["completion", shell]).output().unwrap();
        let script = String::from_utf8(script.stdout).unwrap();
        assert!(
            script.contains("COMPLETE") && script.contains("kubewright"),
            "{shell}: {script}"
        );
    }
}

#[test]
fn color_is_as_people_say() {
    let check = |arguments: &[&str], no_color: bool, colored: bool| {
        let mut command = Command::new(KUBEWRIGHT);
        command
            .args(arguments)
            .env_remove("NO_COLOR")
            .env_remove("CLICOLOR_FORCE");
        if no_color {
            command.env("NO_COLOR", "1");
        }
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let has = text.windows(2).any(|pair| pair == b"\x1b[");
        assert_eq!(has, colored, "{arguments:?}: {}", String::from_utf8_lossy(&text));
    };
    for arguments in [
        &["explain", "KWR0703"][..],
        &["explain", "nonsense"],
        &["nonsense"],
        &["--help"],
    ] {
        check(arguments, false, false);
        check(&[arguments, &["--color", "always"]].concat(), false, true);
        check(&[arguments, &["--color=always"]].concat(), true, true);
        check(&[arguments, &["--color", "never"]].concat(), false, false);
    }
}

/// A project whose cargo does not end before the file `go` is there.
fn slow() -> Project {
    use std::os::unix::fs::PermissionsExt as _;
    let project = Project::new();
    project.write(
        "bin/cargo",
        "#!/bin/sh\n[ \"$1\" = build ] || exit 0\nwhile [ ! -e go ]; do sleep 0.05; done\nexit 1\n",
    );
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(project.path().join("bin/cargo"), executable).unwrap();
    project
}

#[test]
fn a_long_step_is_told_and_not_when_it_is_to_be_quiet() {
    let project = slow();
    let path = format!(
        "{}:{}",
        project.path().join("bin").display(),
        std::env::var("PATH").unwrap()
    );
    for line in ["manifests", "doctor", "-o json manifests"] {
        let words: Vec<&str> = line.split(' ').collect();
        let mut command = project.command(&words);
        let mut process = command
            .env("PATH", &path)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        // The line comes while cargo still runs, which ends afterwards.
        let told = lines
            .by_ref()
            .map_while(Result::ok)
            .find(|line| line.contains("compiling the operator"));
        project.write("go", "");
        process.wait().unwrap();
        std::fs::remove_file(project.path().join("go")).unwrap();
        let told = told.unwrap_or_else(|| panic!("{line}: nothing was told"));
        let is_json = told.starts_with('{') && told.contains("\"event\":\"working\"");
        assert!(is_json || told.starts_with('…'), "{line}: {told}");
        drop(lines);
    }
    // Quiet: cargo ends after the first line would have come.
    project.write("bin/cargo", "#!/bin/sh\nsleep 2.5\nexit 1\n");
    let quiet = project
        .command(&["manifests", "-q"])
        .env("PATH", &path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&quiet.stderr).into_owned();
    assert!(!text.contains('…') && text.contains("KWR0391"), "{text}");
}
