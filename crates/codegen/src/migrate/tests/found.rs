//! PROJECT as projects have it, beside what their Go text declares.

use super::*;

#[test]
fn projects_as_they_are_found() {
    let check = |from: &str, to: &str, name: Option<&str>, expected: &[&str]| {
        let mut files = project();
        assert!(PROJECT.contains(from), "{from}");
        files.0.insert("PROJECT".to_owned(), PROJECT.replace(from, to));
        let done = migrate(&files, None, name, &Dependency::Version("0.1.0".to_owned()), "0.1.0");
        let said = match done {
            Ok(done) => format!("{}\n{}", done.files.0["PROJECT"], done.notes.join("\n")),
            Err(wrong) => wrong.to_string(),
        };
        for expected in expected {
            assert!(said.contains(expected), "{to}: {expected} in {said}");
        }
    };
    let other = "resources:\n- {api: {crdVersion: v1, namespaced: true}, domain: example.org, group: port, kind: Quay, version: v1}\n";
    check(
        "resources:\n",
        other,
        None,
        &["multigroup: true", "of several groups", "kind: Quay"],
    );
    let stray = "resources:\n- {controller: true, domain: example.com, group: k8s, kind: Pod, version: v1}\n";
    check(
        "resources:\n",
        stray,
        None,
        &["neither a kind of the project's nor an external one", "kind: Captain"],
    );
    let named = "resources:\n- {controller: true, group: core, kind: Pod, path: k8s.io/api/core/v1, version: v1}\n";
    check("resources:\n", named, None, &["core: true", "kind: Captain"]);
    let long = "projectName: a-name-that-is-much-too-long-for-a-service\n";
    check("projectName: fleet\n", long, None, &["--project-name"]);
    check("projectName: fleet\n", long, Some("short"), &["projectName: short"]);
}

#[test]
fn project_is_brought_in_line_with_what_go_declares() {
    let more = "type Mate struct {\n\tmetav1.TypeMeta `json:\",inline\"`\n\tmetav1.ObjectMeta `json:\"metadata,omitempty\"`\n\tSpec MateSpec `json:\"spec\"`\n}\n\ntype MateSpec struct {\n\tName string `json:\"name\"`\n}\n";
    let check = |group: &str, marker: &str, resources: &str, expected: &[&str]| {
        let mut files = project();
        let types = format!(
            "// +groupName={group}\npackage v1\n\nimport metav1 \"k8s.io/apimachinery/pkg/apis/meta/v1\"\n\n// {marker}\n{more}"
        );
        files.0.insert("api/v1/mate_types.go".to_owned(), types);
        let listed = PROJECT.replace("resources:\n", &format!("resources:\n{resources}"));
        files.0.insert("PROJECT".to_owned(), listed);
        let done = carried(&files).unwrap();
        let said = format!("{}\n{}", done.files.0["PROJECT"], done.notes.join("\n"));
        for expected in expected {
            match expected.strip_prefix('!') {
                Some(absent) => assert!(!said.contains(absent), "{marker}: {absent} in {said}"),
                None => assert!(said.contains(expected), "{marker}: {expected} in {said}"),
            }
        }
    };
    let unlisted = "PROJECT does not list what the Go text declares; it does now: Mate v1";
    check("crew.example.com", "Mate helps.", "", &[unlisted, "kind: Mate\n"]);
    check("crew.example.com", "+kubebuilder:skipversion", "", &["!kind: Mate"]);
    let older = "- {api: {crdVersion: v1}, domain: example.com, group: crew, kind: Mate, version: v1beta1}\n";
    check("crew.example.com", "", older, &["it does now: Mate v1"]);
    let scope = "+kubebuilder:resource:path=deckhands,scope=Cluster";
    check(
        "crew.example.com",
        scope,
        "",
        &["plural: deckhands", "!namespaced: true\n  group: crew\n  kind: Mate"],
    );
    let renamed = "crew.example.com/v1 Captain: its Go package has +groupName=sea.example.org";
    check(
        "sea.example.org",
        "",
        "",
        &[renamed, "group: sea.example.org\n  kind: Captain"],
    );
    let whole = "crew.example.com/v1 Captain: its Go package has +groupName=example.com";
    check("example.com", "", "", &[whole, "!group: crew"]);
    let settings = "- {api: {crdVersion: v1}, domain: example.com, group: crew, kind: MateSpec, version: v1}\n";
    check(
        "crew.example.com",
        "",
        settings,
        &["MateSpec: its type in Go has no metadata", "!kind: MateSpec"],
    );
    check(
        "crew.example.com",
        "",
        &settings.replace("MateSpec", "Ghost"),
        &["Ghost: PROJECT lists it, and no Go file declares it", "!kind: Ghost"],
    );
    let mate = |version: &str, more: &str| {
        format!(
            "- {{api: {{crdVersion: v1{more}}}, controller: true, domain: example.com, group: crew, kind: Mate, version: {version}}}\n"
        )
    };
    check(
        "crew.example.com",
        "+kubebuilder:resource:scope=Cluster",
        &(mate("v1beta1", "") + &mate("v1", ", namespaced: true")),
        &[
            "Mate v1: its markers in Go have scope Cluster, and PROJECT has it now",
            "Mate v1: PROJECT lists its controller with another version already; it has one",
        ],
    );
}

#[test]
fn a_controller_of_a_kind_of_kubernetes_is_recognized() {
    let mut files = project();
    let stray = "resources:\n- {controller: true, domain: example.com, group: k8s, kind: Job, version: v2}\n";
    files
        .0
        .insert("PROJECT".to_owned(), PROJECT.replace("resources:\n", stray));
    let controller = "package controller\n\nimport batchv1 \"k8s.io/api/batch/v1\"\n\nfunc (r *JobReconciler) Reconcile() {}\n\nfunc (r *JobReconciler) SetupWithManager(mgr ctrl.Manager) error {\n\treturn ctrl.NewControllerManagedBy(mgr).For(&batchv1.Job{}).Complete(r)\n}\n";
    files.0.insert(
        "internal/controller/job_controller.go".to_owned(),
        controller.to_owned(),
    );
    let done = carried(&files).unwrap();
    assert!(
        done.files.0.contains_key("src/controller/job_controller.rs"),
        "{:?}",
        done.notes
    );
    let project = &done.files.0["PROJECT"];
    assert!(
        project.contains("core: true") && project.contains("group: batch\n"),
        "{project}"
    );
}

#[test]
fn a_kind_that_project_only_names_gets_its_type_from_go() {
    let mut files = project();
    let bare = "domain: example.com\nprojectName: fleet\nresources:\n- {group: crew, domain: example.com, kind: Captain, version: v1}\nversion: \"3\"\n";
    let group = "// +groupName=crew.example.com\npackage v1\n";
    files
        .0
        .extend([("PROJECT", bare), ("api/v1/doc.go", group)].map(|(path, text)| (path.to_owned(), text.to_owned())));
    let done = carried(&files).unwrap();
    assert!(done.files.0["api/src/v1/captain_types.rs"].contains("pub struct CaptainSpec"));
    let told = "Captain v1: PROJECT did not list";
    assert!(done.notes.iter().any(|note| note.starts_with(told)));
}

#[test]
fn kinds_may_share_a_spec_and_ask_for_metadata() {
    let mut files = project();
    let listed = "resources:\n- {api: {crdVersion: v1, namespaced: true}, domain: example.com, group: crew, kind: Mate, version: v1}\n";
    files
        .0
        .insert("PROJECT".to_owned(), PROJECT.replace("resources:\n", listed));
    let mate = "package v1\n\nimport metav1 \"k8s.io/apimachinery/pkg/apis/meta/v1\"\n\ntype Mate struct {\n\tmetav1.TypeMeta `json:\",inline\"`\n\tmetav1.ObjectMeta `json:\"metadata\"`\n\tSpec CaptainSpec `json:\"spec\"`\n}\n";
    files.0.insert("api/v1/mate_types.go".to_owned(), mate.to_owned());
    let done = carried(&files).unwrap();
    assert_eq!(done.kinds, 2);
    let types: Vec<&str> = done
        .files
        .0
        .iter()
        .filter(|(path, _)| path.starts_with("api/src/v1/"))
        .map(|(_, text)| text.as_str())
        .collect();
    let types = types.concat();
    for said in [
        "kind = \"Mate\"",
        "kind = \"Captain\"",
        "pub struct CaptainFields",
        "pub spec: Option<CaptainSpec>",
        "\"root:required\" = [\"metadata\", \"spec\"]",
    ] {
        assert!(types.contains(said), "{said} in {types}");
    }
}

#[test]
fn a_project_of_version_2() {
    let mut files = project();
    let old = "domain: example.com\nrepo: example.com/Fleet/v3\nresources:\n- {group: crew, kind: Captain, version: v1}\nversion: \"2\"\n";
    files.0.insert("PROJECT".to_owned(), old.to_owned());
    let done = carried(&files).unwrap();
    assert_eq!(done.kinds, 1);
    assert!(
        done.files.0["PROJECT"].contains("projectName: fleet\n"),
        "{}",
        done.files.0["PROJECT"]
    );
    assert!(done.files.0.contains_key("src/controller/captain_controller.rs"));
}
