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
        "crates/apiserver/src/admission/webhook/config.rs",
        1,
        "reviews that webhooks do not see",
    ),
    (
        "crates/apiserver/src/authorization/mod.rs",
        1,
        "whether the reasons of authorizers name these",
    ),
    (
        "crates/apiserver/src/authorization/node/mod.rs",
        2,
        "whether nodes request certificates for pods, and why they may not write of CSI nodes",
    ),
    (
        "crates/apiserver/src/admission/node_restriction/tokens.rs",
        1,
        "why there is no token for an audience",
    ),
    ("crates/apiserver/src/discovery.rs", 1, "the hashes of storage versions"),
    (
        "crates/apiserver/src/server/apply.rs",
        2,
        "what errors call a configuration, and what the audit log cannot take",
    ),
    (
        "crates/apiserver/src/server/compress.rs",
        1,
        "whether watches that begin with a list are compressed",
    ),
    (
        "crates/apiserver/src/server/delete/preconditions.rs",
        1,
        "the message for a definition that is another one",
    ),
    (
        "crates/apiserver/src/server/options.rs",
        2,
        "whether only what cannot be read is to be deleted",
    ),
    (
        "crates/apiserver/src/server/patch.rs",
        1,
        "the error for a patch that is no JSON",
    ),
    (
        "crates/apiserver/src/server/special/binding.rs",
        1,
        "whether the name of a node is checked",
    ),
    (
        "crates/apiserver/src/server/special/eviction.rs",
        1,
        "the cause if a budget is below zero",
    ),
    (
        "crates/apiserver/src/server/special/proxy.rs",
        1,
        "where a service's addresses are looked up",
    ),
    (
        "crates/apiserver/src/server/special/review.rs",
        2,
        "the field of an error in an access review",
    ),
    (
        "crates/apiserver/src/server/special/scale/mod.rs",
        1,
        "whether the metadata of a scale are checked",
    ),
    (
        "crates/apiserver/src/server/special/token_request.rs",
        2,
        "tokens for webhooks",
    ),
    (
        "crates/apiserver/src/server/upkeep/mod.rs",
        1,
        "whether endpoints go with their service",
    ),
    (
        "crates/apiserver/src/server/write.rs",
        1,
        "whether an error is told twice",
    ),
    (
        "crates/apiserver/src/server/write/stages.rs",
        1,
        "what an update that creates may say of itself",
    ),
    (
        "crates/cel/src/eval/dispatch.rs",
        2,
        "the size of a range, and where a search for nothing ends",
    ),
    ("crates/cel/src/eval/mod.rs", 1, "alternatives to what is no optional"),
    ("crates/cel/src/lib.rs", 1, "names in backticks"),
    ("crates/cli/src/dropin/features.rs", 1, "the groups that are served"),
    (
        "crates/controllers/src/horizontalpodautoscaler/mod.rs",
        2,
        "what is said of a target at zero, and of one that several scale",
    ),
    (
        "crates/controllers/src/lib.rs",
        1,
        "controllers of kinds that are newer",
    ),
    (
        "crates/controllers/src/protection.rs",
        1,
        "whether a claim says that it is unused",
    ),
    (
        "crates/controllers/src/scheduler/mod.rs",
        1,
        "whether volumes on a node make it preferred",
    ),
    (
        "crates/controllers/src/statefulset/status.rs",
        1,
        "whether a set that is updated by deletes comes to its end",
    ),
    ("crates/kinds/src/lib.rs", 1, "the words of declared rules"),
    ("crates/kinds/src/rows/access.rs", 2, "kinds"),
    ("crates/kinds/src/rows/core.rs", 1, "strategies"),
    ("crates/kinds/src/rows/extension.rs", 7, "kinds and strategies"),
    ("crates/kinds/src/rows/scheduling.rs", 1, "kinds"),
    ("crates/kinds/src/rows/storage.rs", 5, "kinds and strategies"),
    ("crates/kinds/src/rows/workloads.rs", 3, "strategies"),
    (
        "crates/kinds/src/strategies/declared.rs",
        1,
        "the structs that errors show",
    ),
    (
        "crates/kinds/src/strategies/definitions.rs",
        2,
        "what rules about names cost",
    ),
    (
        "crates/kinds/src/strategies/pods/mod.rs",
        2,
        "what an update of a pod keeps, and projected volumes that a gate opened",
    ),
    ("crates/model/src/object.rs", 1, "the errors about owners"),
    (
        "crates/schema/src/declare.rs",
        2,
        "how long a name is to the cost of a rule",
    ),
    ("crates/schema/src/internal/table.rs", 2, "the structs that errors show"),
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
        let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
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
