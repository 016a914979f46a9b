//! The places that ask which version of Kubernetes a cluster serves.
//!
//! They are few, and each is there because the answers of two versions differ. When the oldest version leaves, its places
//! go with it: this list says where they are.

use std::collections::BTreeMap;
use std::fs;

use crate::{files, root};

/// Each file with the number of its lines that name a version, and what differs.
const PLACES: &[(&str, usize, &str)] = &[
    (
        "crates/apiserver/src/server/apply.rs",
        1,
        "what errors call a configuration",
    ),
    (
        "crates/apiserver/src/server/patch.rs",
        1,
        "the error for a patch that is no JSON",
    ),
    (
        "crates/apiserver/src/server/special/review.rs",
        2,
        "the field of an error in an access review",
    ),
    (
        "crates/apiserver/src/server/write.rs",
        1,
        "whether an error is told twice",
    ),
    ("crates/cli/src/dropin/features.rs", 1, "the groups that are served"),
    ("crates/kinds/src/rows/access.rs", 6, "kinds and strategies"),
    ("crates/kinds/src/rows/extension.rs", 5, "kinds and strategies"),
    ("crates/kinds/src/rows/scheduling.rs", 2, "kinds and strategies"),
    ("crates/kinds/src/rows/storage.rs", 3, "kinds and strategies"),
    ("crates/kinds/src/rows/workloads.rs", 3, "strategies"),
    (
        "crates/kinds/src/strategies/pods/mod.rs",
        1,
        "projected volumes that a gate opened",
    ),
    (
        "crates/schema/src/schema/catalog.rs",
        1,
        "inner defaults of definitions",
    ),
];

/// The type itself.
const TYPE: &str = "crates/values/src/minor.rs";

fn names_a_version(line: &str) -> bool {
    let is_digit = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    !line.trim_start().starts_with("//") && line.split("Minor::V").skip(1).any(is_digit)
}

#[test]
fn the_places_that_ask_for_the_version_are_known() {
    let mut sources = Vec::new();
    files(&root().join("crates"), ".rs", &mut sources);
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for path in sources {
        let name = path.strip_prefix(root()).expect("below the root").display().to_string();
        let is_product = name.contains("/src/") && !name.ends_with("tests.rs") && name != TYPE;
        if !is_product {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source can be read");
        let product = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let count = product.lines().filter(|line| names_a_version(line)).count();
        if count > 0 {
            found.insert(name, count);
        }
    }
    let listed: BTreeMap<String, usize> = PLACES
        .iter()
        .map(|(name, count, _)| ((*name).to_owned(), *count))
        .collect();
    assert_eq!(found, listed, "say in PLACES what differs there");
}

#[test]
fn a_place_names_a_version() {
    for (line, expected) in [
        ("    if minor >= Minor::V37 {", true),
        ("        since: Minor::V37,", true),
        ("    Minor::default()", false),
        ("    // Minor::V37", false),
    ] {
        assert_eq!(names_a_version(line), expected, "{line}");
    }
}
