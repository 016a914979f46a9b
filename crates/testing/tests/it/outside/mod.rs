//! Operators that are programs: what is wrong with one is found from outside, and nothing where nothing is.
//!
//! The operator is in Python, of the standard library alone; where there is no Python the tests say so.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kubewright_testing::explore::{Failed, Outside, Report, Severity, Step};
use serde_json::json;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/outside")
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

fn outside(command: &str) -> Result<Outside, Failed> {
    Outside::of(command)
        .folder(folder())
        .patience(Duration::from_secs(12))
        // On a busy machine the faults of a test take longer than the usual budget.
        .budget(Duration::from_secs(600))
        .crds(folder().join("crd.yaml"))?
        .samples(folder().join("samples"))
}

fn copier(habit: &str) -> Result<Outside, Failed> {
    outside(&format!("exec python3 copier.py {habit}"))
}

/// Plays these faults alone; `found`: the severity of the gravest finding, and words of it.
async fn check(habit: &str, faults: &[&str], found: Option<(Severity, &str)>) -> Result<Report, Failed> {
    let mut explore = copier(habit)?;
    for fault in faults {
        explore = explore.replay(fault)?;
    }
    let report = explore.run().await?;
    assert_eq!((report.played, report.missed), (faults.len(), 0), "{report}");
    match (found, report.findings.first()) {
        (None, None) => {}
        (Some((severity, words)), Some(first)) if first.severity == severity && first.what.contains(words) => {}
        _ => panic!("{habit}, {faults:?}: {found:?} is not what was found: {report}"),
    }
    Ok(report)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_between_two_writes_shows_and_is_told_beside_the_undisturbed_run() -> Result<(), Failed> {
    if !python_is_there() {
        return Ok(());
    }
    let twice = "configmaps default/hello-* is there 2 times after step 1";
    let report = check("made-up-name", &["crash-after@1"], Some((Severity::High, twice))).await?;
    let finding = &report.findings[0];
    let has = |lines: &[String], words: &str| lines.iter().any(|line| line.contains(words));
    assert!(has(&finding.timeline, "the operator dies"), "{report}");
    assert!(has(&finding.timeline, "proc 2"), "{report}");
    assert!(
        has(&finding.undisturbed, "create configmaps default/hello-"),
        "{report}"
    );
    assert!(!has(&finding.undisturbed, "proc 2"), "{report}");
    let json = report.to_json();
    assert_eq!(json["findings"][0]["id"], "crash-after@1");
    assert_eq!(json["findings"][0]["class"], "crash-after");
    Ok(())
}

/// An operator that asks for nothing for eight seconds in the middle of its work is not taken for one that has done it.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_comes_back_by_itself_is_waited_for() -> Result<(), Failed> {
    if !python_is_there() {
        return Ok(());
    }
    let spec = |text: &str| json!({ "spec": { "text": text, "twice": false } });
    let mut copy = spec("one");
    copy["apiVersion"] = "example.com/v1".into();
    copy["kind"] = "Copy".into();
    copy["metadata"] = json!({ "name": "hello", "namespace": "default" });
    let explore = Outside::of("exec python3 copier.py comes-back")
        .folder(folder())
        .crds(folder().join("crd.yaml"))?
        .steps([
            Step::apply("make it", copy),
            Step::merge("change it", "example.com/v1", "Copy", "default", "hello", spec("two")),
        ])
        // It dies when the ConfigMap is gone: its successor makes it at once.
        .replay("crash-after@3")?;
    let report = explore.run().await?;
    assert_eq!((report.played, report.missed), (1, 0), "{report}");
    report.assert_none();
    let words = "it goes on by itself after";
    assert!(report.noticed.iter().any(|line| line.contains(words)), "{report}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_write_that_is_not_made_again_shows() -> Result<(), Failed> {
    if !python_is_there() {
        return Ok(());
    }
    let missing = "configmaps default/hello is missing after step 1";
    check("gives-up", &["refused@1"], Some((Severity::High, missing))).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mended_operator_is_not_flagged() -> Result<(), Failed> {
    if !python_is_there() {
        return Ok(());
    }
    let faults = [
        "crash-before@1",
        "crash-after@1",
        "crash-loop@1",
        "refused@1",
        "unsent@2",
        "unanswered@1",
        "outage@2",
        "forbidden@1",
        "slow@1",
        "touched@2",
        "next-step@1",
        "held@copies.example.com#1",
        "missed@copies.example.com#1",
        "cut@configmaps#1",
        "late@copies.example.com",
        "stale@2#0",
        "deleted@1#1",
    ];
    check("good", &faults, None).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_ends_is_started_again_as_a_kubelet_does() -> Result<(), Failed> {
    if !python_is_there() {
        return Ok(());
    }
    check("exits", &["outage@1"], None).await?;
    Ok(())
}

/// The next process waits a minute for a lock that is not given back, and finds it free at once.
#[tokio::test(flavor = "multi_thread")]
async fn locks_in_config_maps_are_elections() -> Result<(), Failed> {
    if !python_is_there() {
        return Ok(());
    }
    let report = check("elects", &["crash-after@1"], None).await?;
    // Neither taking nor renewing it is a write to be disturbed.
    assert!(!report.to_string().contains("lock"), "{report}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_in_containers_succeed() -> Result<(), Failed> {
    if !python_is_there() {
        return Ok(());
    }
    let report = check("speaks", &["crash-after@1"], None).await?;
    let noticed = |line: &String| line.starts_with("connects with a container");
    assert!(report.noticed.iter().any(noticed), "{report}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_never_rests_is_told_without_any_fault() -> Result<(), Failed> {
    if !python_is_there() {
        return Ok(());
    }
    let report = copier("hops")?.longest_rest(Duration::from_secs(3)).run().await?;
    assert_eq!(
        (report.played, report.findings[0].severity),
        (0, Severity::High),
        "{report}"
    );
    assert!(report.findings[0].what.contains("never comes to rest"), "{report}");
    Ok(())
}

/// What keeps a program from being explored: what is said, and what to do.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_command_is_said() -> Result<(), Failed> {
    async fn check(explore: Outside, words: &[&str]) {
        let failed = explore
            .start(Duration::from_millis(500))
            .run()
            .await
            .expect_err("it cannot be explored");
        let text = failed.to_string();
        for word in words {
            assert!(text.contains(word), "{word:?} is not in {text}");
        }
    }
    check(
        outside("./no-such-operator")?,
        &["no-such-operator", "there is no such program"],
    )
    .await;
    check(
        outside("echo 'no configuration' >&2; exit 3")?,
        &["ended by itself", "exit status: 3", "no configuration", "KUBECONFIG"],
    )
    .await;
    check(outside("sleep 60")?, &["watches nothing", "no request", "KUBECONFIG"]).await;
    check(
        outside("echo 'listen tcp :8081: bind: address already in use'; exit 1")?,
        &["{port}", "--jobs 1"],
    )
    .await;
    check(Outside::of("sleep 60"), &["nothing to play"]).await;
    let no_crd = outside("sleep 60")?
        .crds(folder().join("samples"))
        .unwrap_err()
        .to_string();
    assert!(no_crd.contains("there is no CRD in"), "{no_crd}");
    let no_fault = outside("sleep 60")?.replay("meteor@1").unwrap_err().to_string();
    assert!(no_fault.contains("crash-after@3"), "{no_fault}");
    if python_is_there() {
        let no_kind = Outside::of("exec python3 copier.py good")
            .folder(folder())
            .samples(folder().join("samples"))?
            .start(Duration::from_secs(5));
        let failed = no_kind.run().await.expect_err("there is no such kind").to_string();
        assert!(failed.contains("--crds"), "{failed}");
        let failed = copier("sleeps")?.run().await.expect_err("it does nothing").to_string();
        for words in ["writes nothing when the samples are applied", "it sleeps", "copies"] {
            assert!(failed.contains(words), "{words:?} is not in {failed}");
        }
    }
    Ok(())
}

/// Plays any program: `KUBEWRIGHT_COMMAND`, in the folder `KUBEWRIGHT_FOLDER` with `crds` and `samples`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures a program of yours"]
#[allow(clippy::print_stdout, reason = "the report is what it is for")]
async fn by_hand() -> Result<(), Box<dyn std::error::Error>> {
    let (command, folder) = (
        std::env::var("KUBEWRIGHT_COMMAND")?,
        PathBuf::from(std::env::var("KUBEWRIGHT_FOLDER")?),
    );
    let mut explore = Outside::of(command)
        .folder(&folder)
        .crds(folder.join("crds"))?
        .samples(folder.join("samples"))?;
    if let Ok(seconds) = std::env::var("KUBEWRIGHT_EXPLORE") {
        explore = explore.budget(Duration::from_secs(seconds.parse()?));
    }
    if let Ok(fault) = std::env::var("KUBEWRIGHT_REPLAY") {
        explore = explore.replay(&fault)?;
    }
    if let Ok(replicas) = std::env::var("KUBEWRIGHT_REPLICAS") {
        explore = explore.replicas(replicas.parse()?);
    }
    println!("{}", explore.run().await?);
    Ok(())
}
