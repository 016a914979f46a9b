//! A foreign client: the official Python package `kubernetes` does its ordinary work against `kubewright cluster`.
//!
//! Needs a Python that has the package: `KUBEWRIGHT_PYTHON` names it, else `python3` is tried. The test says aloud when
//! there is none, and fails then when `KUBEWRIGHT_REQUIRE_PYTHON` is set.

use std::process::Command;

use crate::support::RunningCluster;

fn python() -> Option<String> {
    let python = std::env::var("KUBEWRIGHT_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let tried = Command::new(&python).args(["-c", "import kubernetes"]).output();
    if tried.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    assert!(
        std::env::var_os("KUBEWRIGHT_REQUIRE_PYTHON").is_none(),
        "{python} has no package `kubernetes`: install it, or unset KUBEWRIGHT_REQUIRE_PYTHON"
    );
    eprintln!("skipped: {python} has no package `kubernetes` (pip install kubernetes)");
    None
}

#[test]
fn the_python_client_does_its_ordinary_work() {
    let Some(python) = python() else { return };
    let cluster = RunningCluster::start(&[]);
    let output = Command::new(python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/python/ordinary_work.py"))
        .env("KUBECONFIG", cluster.kubeconfig())
        .output()
        .expect("python starts");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{out}{err}");
    assert!(out.ends_with("gone\n"), "{out}");
}
