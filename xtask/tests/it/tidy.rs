//! The tidy test: facts about the workspace that no compiler checks.
//!
//! Only facts, each with the reason: which crate may depend on which, that the map (ARCHITECTURE.md) points at what
//! exists, that no doc test is switched off, that purity is guarded, that the API server's pipeline knows no kind, that
//! no state is global, that a file of product code fits a head.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::{files, metadata, root};

/// The allowed dependencies in the workspace: package, its dependencies, the further ones of its tests.
const ARROWS: &[(&str, &[&str], &[&str])] = &[
    ("kubewright-values", &[], &[]),
    ("kubewright-cel", &["kubewright-values"], &[]),
    ("kubewright-schema", &["kubewright-cel", "kubewright-values"], &[]),
    ("kubewright-engine", &[], &[]),
    ("kubewright-runlog", &[], &[]),
    ("kubewright-model", &["kubewright-cel", "kubewright-schema"], &[]),
    (
        "kubewright-kinds",
        &["kubewright-cel", "kubewright-model", "kubewright-schema"],
        &[],
    ),
    // The pipeline does not know the kinds: its tests serve them.
    (
        "kubewright-apiserver",
        &[
            "kubewright-cel",
            "kubewright-model",
            "kubewright-runlog",
            "kubewright-schema",
        ],
        &["kubewright-kinds"],
    ),
    ("kubewright-codegen", &["kubewright-schema"], &[]),
    ("kubewright-derive", &[], &[]),
    ("kubewright", &["kubewright-engine", "kubewright-derive"], &[]),
    // Around the runtime: what built-in objects say, the controllers, the nodes. None knows the server.
    ("kubewright-objects", &["kubewright", "kubewright-schema"], &[]),
    (
        "kubewright-controllers",
        &[
            "kubewright",
            "kubewright-model",
            "kubewright-objects",
            "kubewright-schema",
        ],
        &[],
    ),
    (
        "kubewright-nodes",
        &[
            "kubewright",
            "kubewright-cel",
            "kubewright-model",
            "kubewright-objects",
            "kubewright-schema",
            "kubewright-values",
        ],
        &[],
    ),
    // Around the pipeline: its shell, which knows neither the kinds nor the runtime.
    (
        "kubewright-server",
        &["kubewright-apiserver", "kubewright-runlog"],
        &["kubewright-kinds"],
    ),
    // Joins them.
    (
        "kubewright-cluster",
        &[
            "kubewright",
            "kubewright-apiserver",
            "kubewright-controllers",
            "kubewright-kinds",
            "kubewright-nodes",
            "kubewright-objects",
            "kubewright-runlog",
            "kubewright-server",
        ],
        &[],
    ),
    (
        "kubewright-testing",
        &["kubewright-cluster", "kubewright", "kubewright-runlog"],
        &[],
    ),
    ("kubewright-demo", &["kubewright-cluster", "kubewright"], &[]),
    // Around the runtime: operators whose reconciler is somebody else's program.
    (
        "kubewright-operators",
        &["kubewright", "kubewright-codegen", "kubewright-schema"],
        &["kubewright-testing"],
    ),
    // The command carries the compiled-in operator of `kubewright demo`.
    (
        "kubewright-cli",
        &[
            "kubewright-codegen",
            "kubewright-cluster",
            "kubewright-demo",
            "kubewright-operators",
            "kubewright-runlog",
            "kubewright-testing",
            "kubewright",
            "kubewright-example-guestbook",
        ],
        &[],
    ),
    (
        "kubewright-example-guestbook",
        &["kubewright", "kubewright-example-guestbook-api"],
        &["kubewright-testing"],
    ),
    ("kubewright-example-guestbook-api", &[], &[]),
    (
        "autorebooter",
        &["kubewright", "autorebooter-api"],
        &["kubewright-testing", "kubewright-demo", "database"],
    ),
    ("autorebooter-api", &[], &[]),
    (
        "database",
        &["kubewright", "database-api"],
        &["kubewright-testing", "kubewright-demo"],
    ),
    ("database-api", &[], &[]),
    (
        "sidecarset",
        &["kubewright", "sidecarset-api"],
        &["kubewright-testing", "kubewright-demo"],
    ),
    ("sidecarset-api", &[], &[]),
    // Types for the generator of manifests, which its tests compare with controller-gen's.
    ("kubewright-fixtures", &["kubewright"], &["kubewright-codegen"]),
    (
        "kubewright-bench",
        &["kubewright-cluster", "kubewright", "kubewright-testing"],
        &[],
    ),
    ("kubewright-bench-runtime", &["kubewright"], &[]),
    ("xtask", &["kubewright-schema"], &[]),
    ("workspace-hack", &[], &[]), // whose tests have it says its manifest
];

/// Crates without IO, and what must not be reachable from them: runtimes, sockets, clocks' and entropy's sources.
const PURE: &[&str] = &[
    "kubewright-values",
    "kubewright-cel",
    "kubewright-schema",
    "kubewright-engine",
    "kubewright-runlog",
    "kubewright-model",
    "kubewright-kinds",
    "kubewright-apiserver",
    "kubewright-codegen",
];
const IMPURE: &[&str] = &[
    "tokio",
    "hyper",
    "rustls",
    "ring",
    "rand",
    "getrandom",
    "kube-client",
    "k8s-openapi",
    "socket2",
    "mio",
];

fn text(value: &serde_json::Value) -> &str {
    value.as_str().expect("a string in cargo's metadata")
}

fn items(value: &serde_json::Value) -> &[serde_json::Value] {
    value.as_array().expect("a list in cargo's metadata")
}

#[test]
fn crates_name_only_whom_they_may() {
    let metadata = metadata(&[]);
    let members: BTreeSet<&str> = items(&metadata["workspace_members"]).iter().map(text).collect();
    let packages: Vec<_> = items(&metadata["packages"])
        .iter()
        .filter(|package| members.contains(text(&package["id"])))
        .collect();
    let names: BTreeSet<&str> = packages.iter().map(|package| text(&package["name"])).collect();
    let known: BTreeSet<&str> = ARROWS.iter().map(|(name, _, _)| *name).collect();
    assert_eq!(
        names, known,
        "every member of the workspace has a line in ARROWS, and no other has"
    );

    let mut wrong = Vec::new();
    for package in packages {
        let name = text(&package["name"]);
        let (_, runtime, tests) = ARROWS
            .iter()
            .find(|(known, _, _)| *known == name)
            .expect("checked above");
        for dependency in items(&package["dependencies"]) {
            let other = text(&dependency["name"]);
            let in_tests = dependency["kind"] == "dev";
            if in_tests && other == "workspace-hack" {
                continue;
            }
            if names.contains(other) && !(runtime.contains(&other) || in_tests && tests.contains(&other)) {
                wrong.push(format!("{name} -> {other}{}", if in_tests { " (tests)" } else { "" }));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "arrows that ARCHITECTURE.md does not have: {wrong:#?}"
    );
}

#[test]
fn pure_crates_cannot_reach_io() {
    let metadata = metadata(&[]);
    let mut edges: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    for package in items(&metadata["packages"]) {
        names.insert(text(&package["id"]), text(&package["name"]));
    }
    for node in items(&metadata["resolve"]["nodes"]) {
        let to = items(&node["deps"])
            .iter()
            .filter(|dependency| {
                items(&dependency["dep_kinds"])
                    .iter()
                    .any(|kind| kind["kind"].is_null())
            })
            .map(|dependency| text(&dependency["pkg"]))
            .collect();
        edges.insert(text(&node["id"]), to);
    }
    for pure in PURE {
        let start = names
            .iter()
            .find(|(_, name)| *name == pure)
            .expect("a pure crate is a member")
            .0;
        let mut seen = BTreeSet::new();
        let mut todo = vec![*start];
        while let Some(id) = todo.pop() {
            if seen.insert(id) {
                todo.extend(&edges[id]);
            }
        }
        let reached: Vec<_> = seen
            .iter()
            .map(|id| names[id])
            .filter(|name| IMPURE.contains(name))
            .collect();
        assert!(reached.is_empty(), "{pure} is pure and must not depend on {reached:?}");
    }
}

#[test]
fn purity_lints_are_in_place() {
    for folder in [
        "values",
        "cel",
        "schema",
        "engine",
        "runlog",
        "model",
        "kinds",
        "apiserver",
    ] {
        let path = root().join("crates").join(folder).join("clippy.toml");
        let lints = fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        for banned in [
            "std::time::Instant::now",
            "std::time::SystemTime::now",
            "std::collections::HashMap",
        ] {
            assert!(lints.contains(banned), "{} does not ban {banned}", path.display());
        }
    }
    let mut manifests = Vec::new();
    files(&root(), "Cargo.toml", &mut manifests);
    for manifest in manifests {
        let content = fs::read_to_string(&manifest).expect("a manifest can be read");
        assert!(
            content.contains("[workspace]") || content.contains("[lints]\nworkspace = true"),
            "{} does not take the lints of the workspace",
            manifest.display()
        );
    }
}

#[test]
fn paths_in_the_architecture_exist() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md exists");
    let mut checked = 0;
    for quoted in map.split('`').skip(1).step_by(2) {
        let first = quoted.split('/').next().unwrap_or_default();
        let is_path = [
            "crates", "clients", "examples", "testdata", "bench", "docs", "xtask", ".ci",
        ]
        .contains(&first)
            && quoted.contains('/');
        if is_path && !quoted.contains(['*', '<', '{', ' ']) {
            checked += 1;
            assert!(
                root().join(quoted).exists(),
                "ARCHITECTURE.md names `{quoted}`, which does not exist"
            );
        }
    }
    assert!(
        checked > 10,
        "the map names the places where things are; only {checked} paths found"
    );
}

/// The head of a crate: its comment in `src/lib.rs`, or in `src/main.rs` of a program.
fn head(crate_folder: &Path) -> String {
    let source = ["src/lib.rs", "src/main.rs"].map(|file| crate_folder.join(file));
    let source = source.iter().find(|file| file.exists()).expect("a crate has a root");
    let content = fs::read_to_string(source).expect("a source can be read");
    let lines = content.lines().map_while(|line| line.strip_prefix("//!"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Whether a quoted piece of a table is a path of the repository.
fn is_path(quoted: &str) -> bool {
    (quoted.contains('/') || quoted.ends_with(".rs"))
        && !quoted.contains(['*', '<', '{', ' ', '#'])
        && !quoted.contains("::")
        && !quoted.starts_with('/')
}

#[test]
fn heads_say_where_to_change_what() {
    let mut wrong = Vec::new();
    let mut checked = 0;
    for entry in fs::read_dir(root().join("crates")).expect("the crates are there") {
        let folder = entry.expect("an entry can be read").path();
        let name = folder
            .file_name()
            .expect("it has a name")
            .to_string_lossy()
            .into_owned();
        let head = head(&folder);
        let Some((_, table)) = head.split_once("# Where to change what") else {
            // The macros decide nothing.
            if name != "derive" {
                wrong.push(format!("{name}: its head does not say where to change what"));
            }
            continue;
        };
        for row in table.lines() {
            let paths: Vec<&str> = row
                .split('`')
                .skip(1)
                .step_by(2)
                .filter(|quoted| is_path(quoted))
                .collect();
            let mut places = vec![folder.join("src"), folder.clone(), root(), folder.join("tests/it")];
            // "`x` of `kubewright-testing`", "the engine's `x`", "`a/b` … `c` beside it".
            for other in row.split(|c: char| !c.is_alphanumeric() && c != '-') {
                let other = root().join("crates").join(other.trim_start_matches("kubewright-"));
                places.extend([other.join("src"), other]);
            }
            let found =
                |places: &[PathBuf], path: &str| places.iter().map(|place| place.join(path)).find(|at| at.exists());
            let beside: Vec<PathBuf> = paths.iter().filter_map(|path| found(&places, path)).collect();
            places.extend(beside.iter().filter_map(|path| path.parent()).map(Path::to_path_buf));
            places.extend(beside);
            checked += paths.len();
            for path in paths.iter().filter(|path| found(&places, path).is_none()) {
                wrong.push(format!(
                    "{name}: names `{path}`, which is neither in the crate nor in the repository"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(
        checked > 100,
        "the heads name the places where things are; only {checked} paths found"
    );
}

/// The folders and files at the top of a crate that lie on a circle of imports. Files of tests may name anything.
fn on_a_circle(crate_folder: &Path) -> BTreeSet<String> {
    let source = crate_folder.join("src");
    let mut sources = Vec::new();
    files(&source, ".rs", &mut sources);
    let top = |path: &Path| {
        let below = path.strip_prefix(&source).expect("it lies in the crate");
        let first = below.components().next().expect("it has a name").as_os_str();
        first.to_string_lossy().trim_end_matches(".rs").to_owned()
    };
    let tops: BTreeSet<String> = sources.iter().map(|path| top(path)).collect();
    let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in &sources {
        if path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().contains("test"))
        {
            continue;
        }
        let content = fs::read_to_string(path).expect("a source can be read");
        let product = product_code(&content);
        let from = top(path);
        for after in product.split("crate::").skip(1) {
            let named = match after.strip_prefix('{') {
                Some(list) => list.split(';').next().unwrap_or_default(),
                None => after
                    .split(|c: char| !c.is_alphanumeric() && c != '_')
                    .next()
                    .unwrap_or_default(),
            };
            let words = named.split(|c: char| !c.is_alphanumeric() && c != '_');
            let words = words.filter(|word| tops.contains(*word) && *word != from);
            arrows.entry(from.clone()).or_default().extend(words.map(str::to_owned));
        }
    }
    let reached = |from: &String| {
        let mut seen = BTreeSet::new();
        let mut next = vec![from];
        while let Some(at) = next.pop() {
            for to in arrows.get(at).into_iter().flatten() {
                if seen.insert(to) {
                    next.push(to);
                }
            }
        }
        seen
    };
    arrows
        .keys()
        .filter(|from| reached(from).contains(from))
        .cloned()
        .collect()
}

#[test]
fn folders_do_not_import_each_other_in_a_circle() {
    let crates = fs::read_dir(root().join("crates")).expect("the crates are there");
    for folder in crates.map(|entry| entry.expect("it can be read").path()) {
        let name = folder
            .file_name()
            .expect("it has a name")
            .to_string_lossy()
            .into_owned();
        let circle = on_a_circle(&folder);
        assert!(circle.is_empty(), "{name}: in a circle: {circle:?}");
    }
}

/// The code of a source that ends up in a program: without comments, and without the module of tests at its end.
fn product_code(content: &str) -> String {
    let product = content.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    product
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .flat_map(|line| [line, "\n"])
        .collect()
}

/// Whether a source is one of tests alone, by its name.
fn is_of_tests(path: &Path) -> bool {
    path.file_stem().is_some_and(|name| {
        let name = name.to_string_lossy();
        name == "tests" || name.ends_with("_tests") || name == "conformance"
    })
}

/// The kinds and plurals of the rows of the built-in resource table.
fn built_in_names() -> BTreeSet<String> {
    let rows = root().join("crates/kinds/src/rows");
    let mut sources = Vec::new();
    files(&rows, ".rs", &mut sources);
    let mut names = BTreeSet::new();
    for source in sources {
        let content = fs::read_to_string(&source).expect("a source can be read");
        for field in [" kind: \"", " plural: \""] {
            let values = content.split(field).skip(1).filter_map(|rest| rest.split('"').next());
            names.extend(values.filter(|name| !name.is_empty()).map(str::to_owned));
        }
    }
    assert!(names.len() > 100, "two names for each of some 70 rows; found {names:?}");
    names
}

/// The kinds that a line of the pipeline names: literals and identifiers that are their names, paths into `kinds`.
fn kinds_named_in(line: &str, names: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    for (at, piece) in line.split('"').enumerate() {
        if at % 2 == 1 {
            // `pods`, `deployments.apps`, `apps/v1/Deployment`; a word in a sentence is no name.
            let parts = piece.split(['.', '/']).filter(|_| !piece.contains(' '));
            found.extend(parts.filter(|part| names.contains(*part)).map(str::to_owned));
        } else {
            let words = piece.split(|c: char| !c.is_alphanumeric() && c != '_');
            found.extend(
                words
                    .filter(|word| names.contains(*word) && word.starts_with(char::is_uppercase))
                    .map(str::to_owned),
            );
            if piece.contains("kinds::") || piece.contains("facts::") {
                found.push(piece.trim().to_owned());
            }
        }
    }
    found
}

#[test]
fn the_pipeline_names_no_kind() {
    let names = built_in_names();
    let server = root().join("crates/apiserver/src/server");
    let mut sources = Vec::new();
    files(&server, ".rs", &mut sources);
    let beside = ["special", "upkeep"].map(|folder| server.join(folder));
    sources.retain(|path| !is_of_tests(path) && !beside.iter().any(|folder| path.starts_with(folder)));
    assert!(sources.len() > 20, "the pipeline has many files; found {sources:?}");
    let mut wrong = Vec::new();
    for path in sources {
        let content = fs::read_to_string(&path).expect("a source can be read");
        for (number, line) in product_code(&content).lines().enumerate() {
            for name in kinds_named_in(line, &names) {
                wrong.push(format!("{}:{}: {name}", path.display(), number + 1));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "what belongs to a kind is in its row or strategy (or in `special`, `upkeep`): {wrong:#?}"
    );
}

#[test]
fn names_of_kinds_are_found() {
    let names = ["Job", "jobs", "Event"].map(str::to_owned).into();
    for (line, found) in [
        (r#"if kind == "Job" {"#, 1),
        (r#"if store == "jobs.batch" {"#, 1),
        (r#"error("no jobs here")"#, 0),
        ("fn jobs() -> Event {", 1),
        ("crate::kinds::cron::duration(text)", 1),
        ("self.kinds.lookup(group)", 0),
    ] {
        assert_eq!(kinds_named_in(line, &names).len(), found, "{line}");
    }
}

/// Crates whose state belongs to an owner: a server, a request.
const WITHOUT_STATE: &[&str] = &["apiserver", "kinds", "model", "schema", "cel", "values"];

/// The state that changes nevertheless, each a cache of constant data but the last: where, the name, why.
const STATE: &[(&str, &str, &str)] = &[
    (
        "schema/src/schema/catalog.rs",
        "PARSED",
        "definitions of the built-in catalog, parsed at first use",
    ),
    (
        "values/src/budget.rs",
        "LEFT",
        "what the request under way on this thread may still cost; empty between requests",
    ),
];

/// The statics of a source that may change: their names.
fn changing_statics(code: &str) -> Vec<String> {
    const CHANGING: [&str; 8] = [
        "Mutex",
        "RwLock",
        "OnceLock",
        "OnceCell",
        "Atomic",
        "RefCell",
        "Cell<",
        "UnsafeCell",
    ];
    let mut found = Vec::new();
    for (at, word) in code.match_indices("static ") {
        // `'static` is a lifetime.
        if !code[..at].ends_with(|before: char| before.is_whitespace()) && at > 0 {
            continue;
        }
        let declared = code[at + word.len()..].split('=').next().unwrap_or_default();
        let (name, type_) = declared.split_once(':').unwrap_or((declared, ""));
        if CHANGING.iter().any(|changing| type_.contains(changing)) {
            found.push(name.trim_start_matches("mut ").trim().to_owned());
        }
    }
    found
}

#[test]
fn state_belongs_to_a_server() {
    let mut found = BTreeSet::new();
    for member in WITHOUT_STATE {
        let (crates, mut sources) = (root().join("crates"), Vec::new());
        files(&crates.join(member).join("src"), ".rs", &mut sources);
        for path in sources.iter().filter(|path| !is_of_tests(path)) {
            let content = fs::read_to_string(path).expect("a source can be read");
            let path = path.strip_prefix(&crates).expect("it lies there").display().to_string();
            let names = changing_statics(&product_code(&content));
            found.extend(names.into_iter().map(|name| (path.clone(), name)));
        }
    }
    let known = STATE.iter();
    let known: BTreeSet<_> = known
        .map(|(path, name, _)| ((*path).to_owned(), (*name).to_owned()))
        .collect();
    assert_eq!(
        found, known,
        "a static that changes is shared by all servers of a process, and whatever clients send stays in it: \
         keep it in the server and hand it down"
    );
}

#[test]
fn changing_statics_are_found() {
    for (code, found) in [
        (
            "static KEPT: LazyLock<Mutex<Vec<u8>>> = LazyLock::new(Mutex::default);",
            1,
        ),
        (
            "    pub(crate) static KEPT:\n        OnceLock<String> = OnceLock::new();",
            1,
        ),
        (
            "thread_local! {\n    static LEFT: Cell<u8> = const { Cell::new(0) };\n}",
            1,
        ),
        ("static WORDS: LazyLock<Vec<u8>> = LazyLock::new(Vec::new);", 0),
        ("cells: &'static [Cell<u8>],", 0),
        ("fn f(kept: &'static Mutex<u8>) {}", 0),
    ] {
        assert_eq!(changing_statics(code).len(), found, "{code}");
    }
}

/// The user's program chooses the version of k8s-openapi's types, and a type that lacks a field drops it. The cluster's own
/// types are in `crates/objects/src/api`.
#[test]
fn the_cluster_uses_types_of_its_own() {
    // The same in every version, and asked for by the client.
    const SAME: [&str; 2] = ["autoscaling::v1::Scale;", "core::v1::ObjectReference;"];
    let mut sources = Vec::new();
    for name in ["objects", "nodes", "controllers"] {
        files(&root().join("crates").join(name).join("src"), ".rs", &mut sources);
    }
    files(&root().join("crates/cluster/src/streams"), ".rs", &mut sources);
    assert!(sources.len() > 100, "there are many files; found {sources:?}");
    for path in sources {
        let content = fs::read_to_string(&path).expect("a source can be read");
        for (number, line) in content.lines().enumerate() {
            let chosen = line.split_once("k8s_openapi::api::");
            let is_wrong = chosen.is_some_and(|(_, rest)| !SAME.contains(&rest));
            assert!(!is_wrong, "{}:{}: {line}", path.display(), number + 1);
        }
    }
}

/// The longest file of product code. A longer file holds more than one thing: part it by its subjects.
const MAX_LINES: usize = 600;

#[test]
fn no_product_file_is_too_long() {
    let mut sources = Vec::new();
    files(&root().join("crates"), ".rs", &mut sources);
    sources.retain(|path| !is_of_tests(path) && path.components().any(|part| part.as_os_str() == "src"));
    assert!(
        sources.len() > 500,
        "the workspace has many sources; found {}",
        sources.len()
    );
    let mut long = Vec::new();
    for path in sources {
        let content = fs::read_to_string(&path).expect("a source can be read");
        let lines = product_code(&content).lines().count();
        if lines > MAX_LINES {
            long.push(format!("{}: {lines} lines", path.display()));
        }
    }
    assert!(long.is_empty(), "more than {MAX_LINES} lines without tests: {long:#?}");
}

#[test]
fn no_doc_test_is_switched_off() {
    let mut sources = Vec::new();
    files(&root(), ".rs", &mut sources);
    for source in sources {
        let content = fs::read_to_string(&source).expect("a source can be read");
        for (number, line) in content.lines().enumerate() {
            let line = line.trim_start();
            let off = ["/// ```", "//! ```"]
                .iter()
                .filter_map(|fence| line.strip_prefix(fence))
                .any(|tags| tags.split(',').any(|tag| tag.trim() == "ignore"));
            assert!(!off, "{}:{}: a doc test is ignored", source.display(), number + 1);
        }
    }
}

#[test]
fn generated_data_is_what_the_generator_wrote() {
    // The generator's source data is not in the repository; this proves only that the result was not edited by hand.
    let data = root().join("crates/schema/data");
    let mut found = Vec::new();
    files(&data, ".jsonl", &mut found);
    assert!(!found.is_empty(), "no generated data in {}", data.display());
    for path in found {
        let content = fs::read_to_string(&path).expect("data can be read");
        let mut previous = String::new();
        for (number, line) in content.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
            let (name, json) = line
                .split_once('\t')
                .unwrap_or_else(|| panic!("{}:{}: not NAME, tab, JSON", path.display(), number + 1));
            // A definition that differs between versions stands once for each.
            assert!(
                name >= previous.as_str(),
                "{}:{}: not sorted",
                path.display(),
                number + 1
            );
            let value: serde_json::Value =
                serde_json::from_str(json).unwrap_or_else(|why| panic!("{}:{}: {why}", path.display(), number + 1));
            assert_eq!(
                value.to_string(),
                json,
                "{}:{}: not canonical",
                path.display(),
                number + 1
            );
            previous = name.to_string();
        }
    }
}
