//! The codes that the runtime writes into its messages are codes of the command: `kubewright explain` tells their
//! stories.
//!
//! The runtime names no crate of the command, so nothing but this test ties the two together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use kubewright_codegen::codes;

/// Where a code stands, by code.
type Found = BTreeMap<String, BTreeSet<String>>;

/// Collects the codes in files below a folder whose name ends so.
fn collect(folder: &Path, ending: &str, found: &mut Found) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, ending, found);
        } else if path.to_string_lossy().ends_with(ending) {
            let text = fs::read_to_string(&path).unwrap();
            for (at, _) in text.match_indices("KWR") {
                let code: String = text[at..].chars().take(7).collect();
                if code.len() == 7 && code[3..].chars().all(|digit| digit.is_ascii_digit()) {
                    found.entry(code).or_default().insert(path.display().to_string());
                }
            }
        }
    }
}

fn crates(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

#[test]
fn every_code_of_the_runtime_has_a_story_and_a_message() {
    let mut written = Found::new();
    collect(&crates("kubewright/src"), ".rs", &mut written);
    for (code, places) in &written {
        assert!(
            codes::find(code).is_some(),
            "{code} has no story; it is written in {places:?}"
        );
    }
    let runtime = codes::all().filter(|story| (550..600).contains(&story.code.0));
    for story in runtime {
        let code = story.code.to_string();
        assert!(
            written.contains_key(&code),
            "no message of the runtime has {code}: {}",
            story.title
        );
    }
}

/// Each message for a person is recorded somewhere with its code, so that it cannot lose the code unnoticed.
#[test]
fn every_message_with_a_code_of_the_runtime_is_recorded() {
    let mut recorded = Found::new();
    for (name, ending) in [
        ("kubewright/src", ".snap"),
        ("kubewright/tests", ".rs"),
        ("testing/tests", ".rs"),
    ] {
        collect(&crates(name), ending, &mut recorded);
    }
    for story in codes::all().filter(|story| (550..600).contains(&story.code.0)) {
        assert!(
            recorded.contains_key(&story.code.to_string()),
            "no test sees {}: {}",
            story.code,
            story.title
        );
    }
}
