//! How the command ends: its exit status, and errors that a machine reads.

use std::process::{Command, Output};

use serde_json::Value;

fn typed(line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubewright"));
    let folder = tempfile::tempdir().unwrap();
    command.args(line.split_whitespace()).current_dir(folder.path());
    command.output().unwrap()
}

#[test]
fn every_error_is_one_line_of_json_when_that_is_asked_for() {
    let check = |line: &str, status: i32, error: &str, fix: &str| {
        let output = typed(line);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{line}: {text}");
        let told: Value = serde_json::from_str(text.trim()).unwrap_or_else(|why| panic!("{line}: {why}: {text}"));
        assert_eq!(told["event"], "error");
        for field in ["code", "places", "because"] {
            assert!(told.get(field).is_some(), "{line}: {told}");
        }
        let holds = |field: &str, part: &str| told[field].as_str().unwrap_or_default().contains(part);
        assert!(holds("error", error) && holds("fix", fix), "{line}: {told}");
    };
    check(
        "-o json nonsense",
        2,
        "unrecognized subcommand 'nonsense'",
        "Usage: kubewright",
    );
    check(
        "init --output=json --dep x",
        2,
        "unexpected argument '--dep'",
        "leave it out",
    );
    check("manifests --output json", 1, "", "");
    check("explain KWR9999 -o json", 1, "KWR9999", "");
}

#[test]
fn help_is_a_command() {
    for line in ["help", "help init", "help create api", "create help webhook"] {
        let output = typed(line);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains("Usage: "), "{line}: {text}");
    }
}

#[test]
fn each_command_that_the_help_lists_has_a_man_page() {
    let folder = tempfile::tempdir().unwrap();
    let output = typed(&format!("man {}", folder.path().display()));
    assert!(output.status.success(), "{output:?}");
    let listed = String::from_utf8(typed("--help").stdout).unwrap();
    let page = |name: &str| std::fs::read_to_string(folder.path().join(format!("{name}.1")));
    assert!(page("kubewright").unwrap().contains(".SH SYNOPSIS"));
    let (_, listed) = listed.split_once("\nProject:\n").unwrap();
    let (listed, _) = listed.split_once("\nOptions:\n").unwrap();
    let commands: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(commands.len() > 20, "{commands:?}");
    for command in commands {
        assert!(page(&format!("kubewright-{command}")).is_ok(), "{command}");
    }
    assert!(page("kubewright-create-api").is_ok() && page("kubewright-man").is_err());
}
