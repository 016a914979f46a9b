//! `kubewright manifests` as its user meets it: the files and messages it writes, the output of `--check` and `--diff`,
//! and errors that lead to the Rust.
//!
//! The operator is the small one of `support::project`, whose declaration is a file. The manifests of a declaration are
//! tested in `kubewright-codegen`; that real types make the right declaration in `testdata/fixtures`.

use crate::support::project::{Project, declaration};
use serde_json::{Value, json};

/// The type behind the declared kind, for the places of errors.
const TYPES: &str = "\
#[derive(CustomResource, JsonSchema)]
#[kube(group = \"webapp.my.domain\", version = \"v1\", kind = \"Guestbook\", namespaced)]
pub struct GuestbookSpec {
    /// How many.
    pub size: i32,
}
";

/// Runs the command in the project and compares all that it says: standard output, `! ` standard error, the status when
/// it is not 0.
fn said(project: &Project, arguments: &[&str]) -> String {
    let output = project.command(&[&["manifests"], arguments].concat()).output().unwrap();
    let mut said = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    // On a busy machine a build takes long enough for a line about it.
    for line in errors.lines().filter(|line| !line.starts_with('…')) {
        said.push_str(&format!("! {line}\n"));
    }
    if !output.status.success() {
        said.push_str(&format!("? {}\n", output.status.code().unwrap()));
    }
    let home = project.path().canonicalize().unwrap();
    said.replace(&home.display().to_string(), "PROJECT")
        .replace(&project.path().display().to_string(), "PROJECT")
}

/// A declaration with a controller, so that there is a role.
fn declared(size: Value) -> String {
    let mut declared: Value = serde_json::from_str(&declaration(size)).unwrap();
    let kind = json!({"group": "webapp.my.domain", "version": "v1", "kind": "Guestbook", "plural": "guestbooks", "namespaced": true});
    declared["controllers"] =
        json!([{"name": "guestbook", "for": kind, "owns": [], "watches": [], "events": true, "rbac": []}]);
    declared.to_string()
}

#[test]
fn files_are_written_checked_and_shown() {
    let project = Project::new();
    project.write("api/src/v1/guestbook_types.rs", TYPES);
    project.write("src/declaration.json", &declared(json!({"type": "integer"})));
    insta::assert_snapshot!("first", said(&project, &[]));
    insta::assert_snapshot!("again", said(&project, &[]));
    insta::assert_snapshot!("check_current", said(&project, &["--check"]));

    project.write(
        "src/declaration.json",
        &declared(json!({"type": "integer", "maximum": 10})),
    );
    insta::assert_snapshot!("check_stale", said(&project, &["--check"]));
    insta::assert_snapshot!("diff", said(&project, &["--diff"]));
    insta::assert_snapshot!("changed", said(&project, &[]));

    // An error in a definition is found before any file is written, and leads to the field.
    project.write(
        "src/declaration.json",
        &declared(json!({"type": "integer", "default": "many"})),
    );
    insta::assert_snapshot!("wrong", said(&project, &[]));
    insta::assert_snapshot!("wrong_wrote_nothing", said(&project, &["--check"]));
}

#[test]
fn webhooks_are_judged_as_they_will_be_written() {
    let project = Project::new();
    let declared = |patch: Value, second: &str| {
        let mut declared: Value = serde_json::from_str(&declared(json!({"type": "integer"}))).unwrap();
        let webhook = |name: &str, path: &str| {
            json!({
                "for": {"group": "webapp.my.domain", "version": "v1", "kind": "Guestbook", "plural": "guestbooks", "namespaced": true},
                "mutating": true, "name": name, "path": path, "verbs": ["create"], "failurePolicy": "Fail", "sideEffects": "None",
                "admissionReviewVersions": ["v1"], "patch": patch,
            })
        };
        declared["webhooks"] = json!([webhook("a.b.io", "/one"), webhook("b.b.io", second)]);
        declared.to_string()
    };
    let condition = |expression: &str| json!({"matchConditions": [{"name": "some", "expression": expression}]});
    let cases = [
        ("fine", condition("object.spec.size > 1"), "/two"),
        ("an expression", condition("object.spec.size >"), "/two"),
        ("a type", condition("request.name"), "/two"),
        (
            "a name",
            json!({"matchConditions": [{"name": "not a name", "expression": "true"}]}),
            "/two",
        ),
        (
            "a selector",
            json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}),
            "/two",
        ),
        (
            "policies",
            json!({"failurePolicy": "Sometimes", "sideEffects": "Some", "timeoutSeconds": 60}),
            "/two",
        ),
        (
            "operations",
            json!({"rules": [{"operations": ["*", "CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]}),
            "/two",
        ),
        ("one path", json!({}), "/one"),
    ];
    let mut all = String::new();
    for (name, patch, path) in cases {
        project.write("src/declaration.json", &declared(patch, path));
        all.push_str(&format!("# {name}\n{}\n", said(&project, &[])));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn a_kind_that_is_no_longer_declared_leaves_no_list_that_dangles_unsaid() {
    let project = Project::new();
    project.write("src/declaration.json", &declared(json!({"type": "integer"})));
    project.write(
        "config/crd/kustomization.yaml",
        "resources:\n- bases/webapp.my.domain_guestbooks.yaml\n",
    );
    said(&project, &[]);
    let nothing = json!({"declaration": 1, "name": "probe"});
    project.write("src/declaration.json", &nothing.to_string());
    insta::assert_snapshot!("gone", said(&project, &[]));
    insta::assert_snapshot!("gone_check", said(&project, &["--check"]));
}

#[test]
fn why_there_is_no_declaration_is_said() {
    let project = Project::new();
    project.source("broken", "let size: i32 = \"three\";");
    let told = said(&project, &[]);
    // The compiler's words change with the compiler.
    assert!(told.contains("! error[E0308]: mismatched types"), "{told}");
    let end = told.split("! error: cannot").last().unwrap();
    insta::assert_snapshot!("not_compiled", format!("! error: cannot{end}"));

    project.write(
        "src/main.rs",
        "fn main() {\n    None::<u8>.expect(\"the size is said in the environment\");\n}",
    );
    let panicked = said(&project, &[]);
    assert!(panicked.contains("  at: src/main.rs:2:16\n"), "{panicked}");
    assert!(
        panicked.contains("panicked: the size is said in the environment\n"),
        "{panicked}"
    );

    project.write("src/main.rs", "fn main() {}");
    insta::assert_snapshot!("undeclared", said(&project, &[]));

    project.write("src/bin/tool.rs", "fn main() {}");
    project.write("src/bin/other.rs", "fn main() {}");
    std::fs::remove_file(project.path().join("src/main.rs")).unwrap();
    insta::assert_snapshot!("several", said(&project, &[]));
}

#[test]
fn what_a_change_breaks_is_said() {
    let project = Project::new();
    let git = |arguments: &[&str]| {
        let output = std::process::Command::new("git")
            .args(["-c", "user.name=me", "-c", "user.email=me@example.com"])
            .args(arguments)
            .current_dir(project.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let compared = |earlier: &str| {
        let output = project.command(&["manifests", "--compare", earlier]).output().unwrap();
        let text = [&output.stdout[..], &output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    let written = project.command(&["manifests"]).output().unwrap();
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    git(&["init", "--quiet"]);
    git(&["add", "config"]);
    git(&["commit", "--quiet", "--message", "first"]);
    let (code, text) = compared("HEAD");
    assert!(
        code == Some(0) && text.contains("nothing breaks what HEAD had"),
        "{text}"
    );

    let size = |schema: Value| project.write("src/declaration.json", &declaration(schema));
    size(json!({"type": "integer", "maximum": 5}));
    let (code, text) = compared("HEAD");
    assert!(
        code == Some(0) && text.contains("tightens guestbooks.webapp.my.domain v1 .spec.size: maximum is 5"),
        "{text}"
    );

    size(json!({"type": "string"}));
    for earlier in [
        "HEAD",
        "config/crd/bases",
        "config/crd/bases/webapp.my.domain_guestbooks.yaml",
    ] {
        let (code, text) = compared(earlier);
        let line = "breaks guestbooks.webapp.my.domain v1 .spec.size: is string, and was integer";
        assert!(
            code == Some(1) && text.contains(line) && text.contains("KWR0322"),
            "{earlier}: {text}"
        );
    }
    for (earlier, expected) in [
        ("nowhere", "nowhere"),
        ("src", "no CustomResourceDefinition"),
        ("-x", "unexpected argument"),
    ] {
        let (code, text) = compared(earlier);
        assert!(code != Some(0) && text.contains(expected), "{earlier}: {text}");
    }
}
