//! Upgrades of whole projects, and properties of the merge.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;
use crate::scaffold::again;

fn below(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && name != "target" {
                folders.push(path);
            } else if path.is_file() && name != "Cargo.lock" {
                let relative = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                found.insert(relative, std::fs::read_to_string(path).unwrap());
            }
        }
    }
    found
}

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn golden(name: &str) -> MemoryFiles {
    MemoryFiles(below(&checkout().join("testdata/golden").join(name)))
}

#[test]
fn a_project_scaffolded_again_is_itself() {
    for name in ["plain", "multigroup", "conversion", "core", "external", "deploy-image"] {
        let there = golden(name);
        let version = Project::load(&there).unwrap().cli_version.unwrap();
        let made = again(&there, &version).unwrap();
        let missing: Vec<&String> = there
            .0
            .keys()
            .filter(|path| !made.0.contains_key(*path) && !is_made_of_code(path))
            .collect();
        assert!(missing.is_empty(), "{name}: {missing:?}");
        let differ: Vec<&String> = made
            .0
            .keys()
            .filter(|path| there.0.get(*path) != Some(&made.0[*path]))
            .collect();
        // The files that the table of the golden projects edits by hand.
        let edited: &[&str] = match name {
            "plain" | "deploy-image" => &[],
            "multigroup" => &[
                "api/src/crew/v1/mod.rs",
                "api/src/crew/v1/sailor_types.rs",
                "config/samples/crew_v1_sailor.yaml",
                "src/controller/crew/sailor_controller.rs",
                "src/webhook/crew/v1/sailor_webhook.rs",
                "tests/it/crew_sailor_controller.rs",
                "tests/it/crew_sailor_webhook.rs",
            ],
            "conversion" => &[
                "api/src/v2/book_conversion.rs",
                "api/src/v2/book_types.rs",
                "config/default/kustomization.yaml",
            ],
            "core" => &[
                "src/controller/pod_controller.rs",
                "src/webhook/v1/pod_webhook.rs",
                "tests/it/pod_webhook.rs",
            ],
            _ => &[
                "api/src/external/gateway_networking/v1/httproute_types.rs",
                "src/controller/httproute_controller.rs",
                "src/webhook/v1/httproute_webhook.rs",
                "tests/it/httproute_webhook.rs",
            ],
        };
        assert_eq!(differ, edited.iter().collect::<Vec<_>>(), "{name}");
    }
}

/// A scaffold of the past: today's golden project with the files that were others then, and a program for each test.
fn past(number: &str, name: &str) -> MemoryFiles {
    let mut files = again(&golden(name), "0.1.0").unwrap();
    files.0.remove(TESTS);
    files.0 = files
        .0
        .into_iter()
        .map(|(path, text)| (earlier_test(&path), text))
        .collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata/upgrade")
        .join(number);
    for (path, text) in below(&folder) {
        files.0.insert(path, text);
    }
    files
}

/// Where a test of the past is now.
fn moved(path: &str) -> String {
    path.replacen("tests/", "tests/it/", 1)
}

/// A user's addition to a file: lines of his own, at its end.
fn edited(path: &str, text: &str) -> Option<String> {
    let mine = match Path::new(path).extension().and_then(|end| end.to_str()) {
        Some("rs") => "\n// Mine: a function of my own.\npub fn mine() {}\n",
        Some("yaml" | "yml" | "toml") => "# Mine: a remark of my own.\n",
        Some("md") => "\nMine: a paragraph of my own.\n",
        _ => return None,
    };
    Some(format!("{text}{mine}"))
}

#[test]
fn three_changes_of_the_scaffold_reach_a_project_and_nothing_of_its_users_is_lost() {
    for (number, name) in [("1", "plain"), ("2", "plain"), ("3", "conversion")] {
        let new = again(&golden(name), "0.2.0").unwrap();
        let base = past(number, name);
        let mut ours = base.clone();
        let changed: Vec<&String> = base
            .0
            .keys()
            .filter(|path| base.0.get(*path) != new.0.get(*path) && *path != "PROJECT")
            .collect();
        assert!(changed.len() >= 3, "{number}: the scaffold did change: {changed:?}");
        let mut touched = Vec::new();
        for path in base.0.keys() {
            if let Some(text) = edited(path, &base.0[path]).filter(|_| path != "PROJECT") {
                ours.0.insert(path.clone(), text);
                touched.push(path.clone());
            }
        }
        ours.0.insert("src/own.rs".into(), "//! Mine.\n".into());
        let before = ours.clone();
        let plan = upgrade(&before, &base, &new, "0.2.0", true).unwrap();
        ours.apply(&plan);
        for path in &touched {
            let text = ours.0.get(path).or_else(|| ours.0.get(&moved(path))).unwrap();
            assert!(
                text.contains("Mine"),
                "{number}: {path} lost what its users wrote:\n{text}"
            );
        }
        for path in changed.iter().filter(|path| new.0.contains_key(**path)) {
            for line in new.0[*path].lines() {
                assert!(ours.0[*path].contains(line), "{number}: {path} did not get {line:?}");
            }
        }
        let of_tests = |files: &MemoryFiles| -> Vec<String> {
            let tests = files.0.keys().filter(|path| path.starts_with("tests/"));
            tests.cloned().collect()
        };
        assert_eq!(of_tests(&ours), of_tests(&new), "{number}: tests are where they belong");
        assert_eq!(ours.0["src/own.rs"], "//! Mine.\n");
        assert!(ours.0["PROJECT"].contains("cliVersion: 0.2.0"));
        // Without conflicts, a second upgrade has nothing to do.
        if !ours.0.values().any(|text| text.contains("<<<<<<<")) {
            let done = ours.clone();
            let again = upgrade(&done, &new, &new, "0.2.0", false).unwrap();
            assert!(again.is_empty(), "{}", again.diff());
        }
    }
}

#[test]
fn what_each_side_did_to_a_file_decides() {
    let project = "version: \"3\"\nprojectName: a\nlayout:\n- rust.kubewright.dev/v1-alpha\n";
    let with = |files: &[(&str, &str)]| {
        let mut files: BTreeMap<String, String> = files
            .iter()
            .map(|(path, text)| ((*path).into(), (*text).into()))
            .collect();
        files.insert("PROJECT".into(), project.into());
        MemoryFiles(files)
    };
    let base = with(&[
        ("same", "1\n"),
        ("theirs", "1\n"),
        ("gone", "1\n"),
        ("kept", "1\n"),
        ("deleted", "1\n"),
        ("both", "1\n"),
    ]);
    let ours = with(&[
        ("same", "mine\n"),
        ("theirs", "1\n"),
        ("gone", "1\n"),
        ("kept", "mine\n"),
        ("both", "mine\n"),
        ("added", "mine\n"),
    ]);
    let new = with(&[
        ("same", "1\n"),
        ("theirs", "2\n"),
        ("deleted", "2\n"),
        ("both", "2\n"),
        ("new", "2\n"),
        ("added", "2\n"),
    ]);
    let refused = upgrade(&ours, &base, &new, "9.9.9", false).err().unwrap().to_string();
    assert!(
        refused.contains("both:1") && refused.contains("added:1") && refused.contains("KWR0112"),
        "{refused}"
    );
    let plan = upgrade(&ours, &base, &new, "9.9.9", true).unwrap();
    let mut after = ours.clone();
    after.apply(&plan);
    let marked = "<<<<<<< yours\nmine\n=======\n2\n>>>>>>> kubewright 9.9.9\n";
    let wanted = [
        ("added", marked),
        ("both", marked),
        ("kept", "mine\n"),
        ("new", "2\n"),
        ("same", "mine\n"),
        ("theirs", "2\n"),
    ];
    let mut wanted = with(&wanted);
    wanted.0.insert("PROJECT".into(), after.0["PROJECT"].clone());
    assert_eq!(after, wanted);
}

#[test]
fn a_deleted_test_stays_deleted_when_the_others_move() {
    let new = again(&golden("plain"), "0.2.0").unwrap();
    let base = past("1", "plain");
    let mut ours = base.clone();
    ours.0.remove("tests/guestbook_controller.rs");
    let before = ours.clone();
    let plan = upgrade(&before, &base, &new, "0.2.0", false).unwrap();
    ours.apply(&plan);
    assert!(!ours.0.contains_key("tests/it/guestbook_controller.rs"));
    assert!(ours.0.contains_key("tests/it/guestbook_webhook.rs"));
    assert_eq!(ours.0[TESTS], new.0[TESTS].replace("mod guestbook_controller;\n", ""));
    assert!(
        plan.notes.iter().any(|note| note.contains("stays deleted")),
        "{:?}",
        plan.notes
    );
}

fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(prop::sample::select(vec!["a\n", "b\n", "c\n", "d\n"]), 0..8)
        .prop_map(|lines| lines.concat())
}

proptest! {
    #[test]
    fn a_merge_with_one_side_is_that_side(base in text(), side in text()) {
        let clean = |text: &str| Merged { text: text.to_owned(), conflicts: Vec::new() };
        prop_assert_eq!(merge(&base, &side, &base, "a", "b"), clean(&side));
        prop_assert_eq!(merge(&base, &base, &side, "a", "b"), clean(&side));
        prop_assert_eq!(merge(&base, &side, &side, "a", "b"), clean(&side));
    }

    #[test]
    fn what_a_side_added_is_in_the_merge(base in text(), ours in text(), theirs in text(), at in 0usize..8) {
        // A line that occurs only once cannot be lost, with any change of the other side.
        let mut lines: Vec<&str> = ours.split_inclusive('\n').collect();
        lines.insert(at.min(lines.len()), "unique\n");
        let merged = merge(&base, &lines.concat(), &theirs, "a", "b");
        prop_assert_eq!(merged.text.matches("unique\n").count(), 1);
        let marks = merged.text.matches("<<<<<<< a\n").count();
        prop_assert_eq!(marks, merged.conflicts.len());
    }
}
