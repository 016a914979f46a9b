//! `kubewright test`: samples and tests of a project whose operator is built in a second.

use std::process::Output;

use crate::support::project::Project;

/// A project of the command's own, as `kubewright init` and `create api` declare it.
const PROJECT: &str = "\
domain: my.domain
layout:
- rust.kubewright.dev/v1-alpha
projectName: guestbook
resources:
- api:
    crdVersion: v1
    namespaced: true
  controller: true
  domain: my.domain
  group: webapp
  kind: Guestbook
  version: v1
version: \"3\"
";

fn tested(project: &Project, arguments: &[&str]) -> (Output, String) {
    let output = project.command(&[&["test"], arguments].concat()).output().unwrap();
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (output, text)
}

fn project() -> Project {
    let project = Project::new();
    project.write("PROJECT", PROJECT);
    project.write(
        "tests/one.rs",
        "#[test]\nfn passes() {}\n#[test]\nfn fails() {\n    assert!(std::env::var_os(\"FAIL\").is_none());\n}\n",
    );
    project
}

#[test]
fn samples_are_reconciled_and_tests_run() {
    let project = project();
    let (output, text) = tested(&project, &[]);
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("1 sample reconciled as system:serviceaccount:guestbook-system:controller-manager"),
        "{text}"
    );
    assert!(text.contains("all tests passed"), "{text}");
    assert!(
        project
            .path()
            .join("config/crd/bases/webapp.my.domain_guestbooks.yaml")
            .is_file()
    );

    let (output, text) = tested(&project, &["--no-samples", "passes"]);
    assert!(output.status.success() && !text.contains("sample"), "{text}");
    let failing = project
        .command(&["test", "--no-samples"])
        .env("FAIL", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&failing.stderr).into_owned();
    assert!(
        failing.status.code() == Some(1) && text.contains("the tests failed"),
        "{text}"
    );
}

#[test]
fn a_sample_that_is_wrong_is_an_error() {
    let project = project();
    let sample = "apiVersion: webapp.my.domain/v1\nkind: Guestbook\nmetadata: {name: hello}\nspec: {sise: 2}\n";
    project.write("config/samples/webapp_v1_guestbook.yaml", sample);
    let (output, text) = tested(&project, &[]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("KWR0705") && text.contains("sise"), "{text}");
    assert!(!text.contains("all tests passed"), "{text}");
}

#[test]
fn an_operator_that_ends_is_an_error() {
    let project = project();
    project.source("one", "panic!(\"the operator has a fault\");");
    let (output, text) = tested(&project, &[]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("the operator has a fault"), "{text}");
}
