//! Misspelt attributes in a project's Rust: each ends with an error that names the word and its line, and nothing is
//! written. The compiler reads most of them, so this runs where operators are built (see `support::operators`).

use std::path::Path;

use crate::support::operators;

const TYPES: &str = "api/src/v1/guestbook_types.rs";
const CONTROLLER: &str = "src/controller/guestbook_controller.rs";
const IMPL: &str = "impl Reconciler for GuestbookReconciler {";
const FOO: &str = "    pub foo: Option<String>,";

/// The file, the text in it, the text in its place, and the expected words.
const MISTAKES: &[(&str, &str, &str, &[&str])] = &[
    (TYPES, "    namespaced,", "    namespased,", &["namespased"]),
    (TYPES, "status = \"Gue", "statas = \"Gue", &["statas"]),
    (TYPES, "kind = \"Guestbook\"", "kind = Guestbook", &["Guestbook"]),
    (TYPES, "    version = \"v1\",", "", &["version"]),
    (
        TYPES,
        "    namespaced,",
        "    namespaced,\n    scale(spec_path = \".spec.foo\"),",
        &["spec_path"],
    ),
    (
        TYPES,
        FOO,
        "    #[schemars(lenght(max = 5))]\n    pub foo: Option<String>,",
        &["lenght"],
    ),
    (
        TYPES,
        FOO,
        "    #[schemars(extend(maximum = 5))]\n    pub foo: Option<String>,",
        &["extend"],
    ),
    (
        TYPES,
        FOO,
        "    #[schemars(extend(\"maxLenght\" = 5))]\n    pub foo: Option<String>,",
        &["`maxLenght`", "did you mean `maxLength`?", "spec.foo"],
    ),
    (
        TYPES,
        "rename_all = \"camelCase\"",
        "rename_al = \"camelCase\"",
        &["rename_al"],
    ),
    (
        CONTROLLER,
        IMPL,
        "#[rbac(group = \"\", resources = \"pods\", verbs = \"get\")]\nIMPL",
        &["no word `group`; did you mean `groups`?"],
    ),
    (
        CONTROLLER,
        IMPL,
        "#[rbac(groups = \"\", resources = \"pods\")]\nIMPL",
        &["verbs"],
    ),
    (
        CONTROLLER,
        IMPL,
        "#[rabc(groups = \"\", resources = \"pods\", verbs = \"get\")]\nIMPL",
        &["rabc"],
    ),
    (
        CONTROLLER,
        IMPL,
        "#[rbac(groups = \"\", resources = \"pods\", verbs = \"gett\")]\nIMPL",
        &["`gett`", "did you mean `get`?"],
    ),
    (
        "src/lib.rs",
        "Operator::new(\"plain\")",
        "Operator::new(\"plain\")\n        .rbac(\n            kubewright::Rule::new().groups([\"apps\"]).resources([\"deployments\"]).verbs([\"lst\"]),\n        )",
        &["`lst`", "did you mean `list`?", "a rule of the operator"],
    ),
];

#[test]
fn misspelt_attributes_are_told_with_their_line() {
    if !operators::are_built() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let project = folder.path().join("plain");
    std::fs::create_dir(&project).unwrap();
    let checkout = operators::checkout();
    let init = format!("kubewright init --domain my.domain --kubewright {}", checkout.display());
    operators::type_in(&init, &project);
    operators::type_in(
        "kubewright create api --group webapp --version v1 --kind Guestbook --resource --controller",
        &project,
    );
    operators::lock(&project);
    for (file, from, to, words) in MISTAKES {
        let there = std::fs::read_to_string(project.join(file)).unwrap();
        assert!(there.contains(from), "{file} has {from:?}:\n{there}");
        std::fs::write(project.join(file), there.replacen(from, &to.replace("IMPL", IMPL), 1)).unwrap();
        check(&project, file, to, words);
        std::fs::write(project.join(file), there).unwrap();
    }
}

fn check(project: &Path, file: &str, mistake: &str, words: &[&str]) {
    let roles = project.join("config/rbac/role.yaml");
    let done = operators::command("kubewright", project)
        .arg("manifests")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    assert!(!done.status.success(), "{mistake} should fail, and said:\n{said}");
    let is_placed = said.contains(&format!("{file}:"));
    assert!(is_placed, "{mistake} should say where, and said:\n{said}");
    for word in ["[KWR", "because: ", "fix: "].iter().chain(words) {
        assert!(said.contains(word), "{mistake} should say {word:?}, and said:\n{said}");
    }
    assert!(!roles.exists(), "{mistake} failed, and has written something:\n{said}");
}
