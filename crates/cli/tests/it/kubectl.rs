//! Real kubectl against `kubewright cluster`: the output for a person at a terminal, as snapshots.
//!
//! Each file of `kubectl` is a script of commands; its transcript is compared with `snapshots`. Values that differ from
//! run to run (ages, uids, versions, addresses, generated suffixes) are replaced before. The tests run when kubectl is on
//! the PATH and say so when it is not. kubectl's own words change from version to version: a version other than the one
//! that the snapshots were taken with must run the same commands to the same exit statuses, and its words are not
//! compared.

use crate::support::{RunningCluster, kubectl_is_there, kubectl_version, record};

/// The version of kubectl whose words the snapshots hold.
const RECORDED_WITH: &str = "v1.32.";

/// The shapes that differ in every run, and their replacements. Order matters: longer shapes first.
const VARYING: &[(&str, &str)] = &[
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "[uid]"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "[time]"),
    (
        r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d \+0000",
        "[date]",
    ),
    (r#"resourceVersion: "\d+""#, r#"resourceVersion: "[rv]""#),
    (r#""resourceVersion": ?"\d+""#, r#""resourceVersion": "[rv]""#),
    (r"127\.0\.0\.1:\d+", "[server]"),
    (r"\b10\.\d+\.\d+\.\d+\b", "[ip]"),
    (r"\b(web|hello)-[a-z0-9]{8,10}-[a-z0-9]{5}\b", "$1-[hash]-[suffix]"),
    (r"\b(web|hello)-[a-z0-9]{8,10}\b", "$1-[hash]"),
    (r"pod-template-hash([=:]) ?[a-z0-9]{8,10}", "pod-template-hash$1[hash]"),
    (r"gen-[a-z0-9]{5}", "gen-[suffix]"),
    (r"(?m)(\s)(\d+m)?\d+s(\s|$)", "$1[age]$3"),
    (r"edit-\d+\.yaml", "edit-[n].yaml"),
    // Column widths follow the lengths of the replaced texts.
    (r"[ \t]{2,}", "  "),
];

fn check(name: &str, script: &str, controllers: &str) {
    if !kubectl_is_there() {
        return;
    }
    let cluster = RunningCluster::start(&["--controllers", controllers]);
    let transcript = record(script, cluster.folder.path(), &cluster.kubeconfig());
    let version = kubectl_version();
    if !version.starts_with(RECORDED_WITH) {
        eprintln!("kubectl {version}: the snapshots are of {RECORDED_WITH}x, so only exit statuses are compared");
        let path = format!("{}/tests/it/snapshots/{name}.snap", env!("CARGO_MANIFEST_DIR"));
        let recorded = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            statuses(&transcript),
            statuses(&recorded),
            "the whole transcript:\n{transcript}"
        );
        return;
    }
    let mut settings = insta::Settings::clone_current();
    for (varying, stands) in VARYING {
        settings.add_filter(varying, *stands);
    }
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, transcript));
}

/// The exit status of each command of a transcript, with the number of the command.
fn statuses(transcript: &str) -> Vec<(usize, String)> {
    let mut command = 0;
    let mut statuses = Vec::new();
    for line in transcript.lines() {
        if line.starts_with("$ ") {
            command += 1;
        } else if let Some(status) = line.strip_prefix("? ") {
            statuses.push((command, status.to_string()));
        }
    }
    statuses
}

#[test]
fn api_resources_and_explain() {
    check(
        "api-resources-and-explain",
        include_str!("kubectl/api-resources-and-explain.sh"),
        "none",
    );
}

#[test]
fn get_in_all_formats() {
    check(
        "get-in-all-formats",
        include_str!("kubectl/get-in-all-formats.sh"),
        "none",
    );
}

#[test]
fn apply_create_edit_patch() {
    check(
        "apply-create-edit-patch",
        include_str!("kubectl/apply-create-edit-patch.sh"),
        "none",
    );
}

#[test]
fn custom_resources() {
    check("custom-resources", include_str!("kubectl/custom-resources.sh"), "none");
}

#[test]
fn workloads_that_run() {
    check(
        "workloads-that-run",
        include_str!("kubectl/workloads-that-run.sh"),
        "all",
    );
}

#[test]
fn what_goes_wrong() {
    check("what-goes-wrong", include_str!("kubectl/what-goes-wrong.sh"), "none");
}
