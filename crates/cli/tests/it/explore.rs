//! `kubewright explore` with an operator in Python: what it prints, its exit status, accepted findings, and what is said
//! when it cannot be used. Which faults are found is tested in `kubewright-testing`.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::KUBEWRIGHT;

fn copier() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/tests/it/outside")
}

/// Types the command in this folder.
fn explore(folder: &Path, arguments: &[&str]) -> (Output, String) {
    let output = Command::new(KUBEWRIGHT)
        .arg("explore")
        .args(arguments)
        .current_dir(folder)
        .env("COPIER", copier())
        .output()
        .expect("the program starts");
    let text = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    (output, text.concat())
}

#[allow(clippy::print_stderr, reason = "what did not run is told aloud")]
fn python_is_there() -> bool {
    let tried = Command::new("python3").args(["-c", "import ssl, http.client"]).output();
    let is_there = tried.is_ok_and(|output| output.status.success());
    if !is_there {
        let insisted = std::env::var_os("KUBEWRIGHT_REQUIRE_PYTHON").is_some();
        assert!(!insisted, "there is no python3 with ssl");
        eprintln!("NOT RUN: there is no python3 with ssl");
    }
    is_there
}

#[test]
fn a_finding_is_printed_accepted_and_played_again() {
    if !python_is_there() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let folder = copier();
    let (samples, crds) = (folder.join("samples"), folder.join("crd.yaml"));
    let mut arguments = vec![
        "--command",
        "exec python3 $COPIER/copier.py made-up-name",
        "--samples",
        samples.to_str().unwrap(),
        "--crds",
        crds.to_str().unwrap(),
        "--patience",
        "8s",
        "--replay",
        // The first step alone.
        "crash-after@1/1",
    ];
    let (output, text) = explore(place.path(), &arguments);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for words in [
        "is there 2 times after step 1",
        "the operator dies",
        "and without the fault:",
        "kubewright explore --command 'exec python3 $COPIER/copier.py made-up-name'",
        "--replay crash-after@1/1",
        "the operator has all permissions",
    ] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }

    arguments.extend(["--log", "runs.log", "--output", "json"]);
    let (output, text) = explore(place.path(), &arguments);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let report: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!((&report["event"], &report["version"]), (&"report".into(), &1.into()));
    assert_eq!(report["findings"][0]["severity"], "high", "{report}");
    std::fs::write(place.path().join("report.json"), &lines).unwrap();
    let told = |run: &str| {
        let mut log = Command::new(KUBEWRIGHT);
        log.args(["log", "runs.log", "--run", run, "--only", "writes"]);
        let output = log.current_dir(place.path()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(told("undisturbed").contains("create configmaps default/"));
    assert!(told("crash-after@1").contains("→ carried out, no answer"));

    let at = arguments.iter().position(|word| *word == "crash-after@1/1").unwrap();
    arguments[at] = "report.json";
    let accepting = [&arguments[..], &["--accept", "a job removes them"]].concat();
    let (output, text) = explore(place.path(), &accepting);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let (output, text) = explore(place.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("a job removes them"), "{text}");
}

#[test]
fn what_cannot_be_explored_is_no_verdict() {
    let place = tempfile::tempdir().unwrap();
    let samples = copier().join("samples");
    let samples = samples.to_str().unwrap();
    let check = |arguments: &[&str], words: &[&str]| {
        let (output, text) = explore(place.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{text}");
        for words in words {
            assert!(text.contains(words), "{words:?} is not in {text}");
        }
    };
    check(&[], &["cannot find the project", "--command"]);
    check(&["--command", "./x"], &["config/samples", "cannot read the samples"]);
    check(
        &["--command", "./x", "--samples", samples],
        &["there is no such program"],
    );
    check(
        &["--command", "./x", "--samples", samples, "--crds", samples],
        &["there is no CRD in"],
    );
    check(
        &["--command", "./x", "--samples", samples, "--replay", "meteor@1"],
        &["meteor@1", "crash-after@3"],
    );
    check(
        &["--command", "./x", "--samples", samples, "--replay", "crash-after@1/99"],
        &["crash-after@1/99 names step 99, and the workload has"],
    );
    check(&["--budget", "soon"], &["such as 90s"]);
    check(&["--jobs", "0"], &["--jobs"]);
    std::fs::write(place.path().join("faults.lock"), "[[accepted]]\nfinding = \"x\"\n").unwrap();
    check(&["--command", "./x", "--samples", samples], &["faults.lock", "reason"]);
}
