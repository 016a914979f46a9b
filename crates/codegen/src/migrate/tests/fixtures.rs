//! The cases of `testdata/fixtures/go`, each as a project of its own.

use super::*;

/// Each case of `testdata/fixtures/go` as a project of its own: the kind's types in Rust.
fn fixture(name: &str) -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/fixtures");
    let go = std::fs::read_to_string(root.join(format!("go/{name}/types.go"))).unwrap();
    let after = |word: &str| {
        go.split(word)
            .nth(1)
            .and_then(|rest| rest.split_whitespace().next())
            .unwrap()
            .to_owned()
    };
    let group = after("groupName=");
    let kind = go
        .split("object:root=true")
        .nth(1)
        .unwrap()
        .split("type ")
        .nth(1)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap();
    let (short, domain) = group.split_once('.').unwrap();
    let named = if go.contains("versionName=") {
        "versionName="
    } else {
        "\npackage "
    };
    let version = after(named);
    let project = format!(
        "domain: {domain}\nlayout: [go.kubebuilder.io/v4]\nprojectName: fixture\nrepo: example.com/fixture\nresources:\n- {{api: {{crdVersion: v1, namespaced: true}}, domain: {domain}, group: {short}, kind: {kind}, version: {version}}}\nversion: \"3\"\n"
    );
    let files = MemoryFiles::from([
        ("PROJECT", project.as_str()),
        (&format!("api/{version}/types.go"), go.as_str()),
    ]);
    let done = carried(&files).unwrap_or_else(|why| panic!("{name}: {why}"));
    assert_eq!(done.kinds, 1, "{name}: {:?}", done.notes);
    let path = format!("api/src/{version}/{}_types.rs", kind.to_lowercase());
    let notes: String = done.notes.iter().map(|note| format!("// note: {note}\n")).collect();
    format!("{}{notes}", done.files.0[&path])
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a test that renews what is committed writes it"
)]
fn the_fixtures_are_carried_over_as_committed() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/fixtures");
    let mut names: Vec<String> = std::fs::read_dir(root.join("go"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(names.len() >= 15);
    for name in names {
        let made = fixture(&name);
        syn::parse_file(&made).unwrap_or_else(|why| panic!("{name}: {why}"));
        let path = root.join(format!("src/migrated/{name}.rs"));
        if std::env::var_os("KUBEWRIGHT_UPDATE_MIGRATED").is_some() {
            std::fs::write(&path, &made).unwrap();
        }
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            made == there,
            "{name}: KUBEWRIGHT_UPDATE_MIGRATED=1 writes it anew\n{}",
            similar::TextDiff::from_lines(&there, &made).unified_diff()
        );
    }
}
