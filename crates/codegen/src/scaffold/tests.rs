//! Commands as their users type them, on projects in memory.
//!
//! A line is a command, as `kubewright` would read it (only the flags that matter here). Each is run twice: the second
//! time nothing may change, or it says that the thing is there. Every Rust file must parse, and rustfmt must have
//! nothing to say.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::*;
use crate::{MemoryFiles, Plan};

/// A project with the commands carried out.
fn project(commands: &[&str]) -> MemoryFiles {
    let mut files = MemoryFiles::default();
    for command in commands {
        run(&mut files, command).unwrap_or_else(|wrong| panic!("{command}\n{wrong}"));
        if let Ok(again) = plan(&files.clone(), command) {
            assert!(again.is_empty(), "{command} twice:\n{}", again.diff());
        }
    }
    files
}

fn run(files: &mut MemoryFiles, command: &str) -> Result<Vec<String>, Diagnostic> {
    let before = files.clone();
    let plan = plan(&before, command)?;
    files.apply(&plan);
    Ok(plan
        .changes()
        .map(|(path, change)| format!("{} {path}", change.verb()))
        .collect())
}

fn plan<'a>(files: &'a MemoryFiles, command: &str) -> Result<Plan<'a>, Diagnostic> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let flag = |name: &str| words.contains(&name);
    let value = |name: &str| {
        let at = words.iter().position(|word| *word == name)?;
        words.get(at + 1).map(|value| (*value).to_owned())
    };
    let text = |name: &str| value(name).unwrap_or_default();
    let subject = Subject {
        group: text("--group"),
        version: text("--version"),
        kind: text("--kind"),
    };
    let external = External {
        path: value("--external-api-path"),
        domain: value("--external-api-domain"),
        module: value("--external-api-module"),
    };
    match (words[0], words.get(1).copied().unwrap_or_default()) {
        ("init", _) => init(
            files,
            &Init {
                name: value("--project-name").unwrap_or_else(|| "shop".to_owned()),
                domain: if flag("--domain=") {
                    String::new()
                } else {
                    value("--domain").unwrap_or_else(|| "my.domain".to_owned())
                },
                repo: text("--repo"),
                owner: text("--owner"),
                license: License::default(),
                boilerplate: flag("--license-file").then(|| "// A shop.\n".to_owned()),
                multigroup: flag("--multigroup"),
                namespaced: flag("--namespaced"),
                plugins: value("--plugins").into_iter().collect(),
                external: Vec::new(),
                dependency: Dependency::Version("0.1.0".to_owned()),
                cli_version: "0.1.0".to_owned(),
            },
        ),
        ("edit", _) => edit(
            files,
            &Edit {
                multigroup: if flag("--multigroup") {
                    Some(true)
                } else {
                    flag("--multigroup=false").then_some(false)
                },
                namespaced: flag("--namespaced").then_some(true),
                license: value("--license").map(|name| License::named(&name).expect("a license that is known")),
                owner: value("--owner"),
                boilerplate: flag("--license-file").then(|| "// A shop.\n".to_owned()),
                plugins: value("--plugins").into_iter().collect(),
                output: value("--output-dir"),
                force: flag("--force"),
            },
        ),
        ("create", "api") => create_api(
            files,
            &CreateApi {
                subject,
                plural: value("--plural"),
                namespaced: !flag("--namespaced=false"),
                resource: flag("--resource"),
                controller: flag("--controller"),
                controller_name: value("--controller-name"),
                external,
                ssa: flag("--ssa"),
                plugins: value("--plugins").into_iter().collect(),
                image: crate::project::DeployedImage {
                    image: text("--image"),
                    container_command: value("--image-container-command"),
                    container_port: value("--image-container-port"),
                    run_as_user: value("--run-as-user"),
                },
                force: flag("--force"),
            },
        ),
        ("create", "webhook") => create_webhook(
            files,
            &CreateWebhook {
                subject,
                defaulting: flag("--defaulting"),
                validation: flag("--programmatic-validation"),
                conversion: flag("--conversion"),
                spoke: value("--spoke")
                    .iter()
                    .flat_map(|spokes| spokes.split(','))
                    .map(str::to_owned)
                    .collect(),
                defaulting_path: value("--defaulting-path"),
                validation_path: value("--validation-path"),
                external,
                force: flag("--force"),
            },
        ),
        ("delete", what) => {
            let options = Delete {
                subject,
                controller_name: value("--controller-name"),
                defaulting: flag("--defaulting"),
                validation: flag("--programmatic-validation"),
                conversion: flag("--conversion"),
                force: flag("--force"),
            };
            if what == "api" {
                delete_api(files, &options)
            } else {
                delete_webhook(files, &options)
            }
        }
        other => panic!("no such command: {other:?}"),
    }
}

/// All Rust files parse, and are as rustfmt would write them.
fn is_formatted(files: &MemoryFiles) {
    for (path, text) in files.0.iter().filter(|(path, _)| path.ends_with(".rs")) {
        syn::parse_file(text).unwrap_or_else(|why| panic!("{path}: {why}\n{text}"));
        let mut rustfmt = Command::new("rustfmt")
            // A scaffolded project has rustfmt's own settings, not those of this repository.
            .args([
                "--edition",
                "2024",
                "--config",
                "max_width=100,use_field_init_shorthand=false",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("rustfmt is part of the toolchain");
        let mut stdin = rustfmt.stdin.take().expect("it is piped");
        stdin.write_all(text.as_bytes()).expect("rustfmt reads");
        drop(stdin);
        let done = rustfmt.wait_with_output().expect("rustfmt ends");
        let formatted = String::from_utf8_lossy(&done.stdout);
        similar_asserts(path, &formatted, text);
    }
}

fn similar_asserts(path: &str, formatted: &str, text: &str) {
    let diff = similar::TextDiff::from_lines(text, formatted)
        .unified_diff()
        .header("scaffold", "rustfmt")
        .to_string();
    assert!(diff.is_empty(), "{path}\n{diff}");
}

/// The Rust files and PROJECT, as a person would look at them.
fn show(files: &MemoryFiles, wanted: &[&str]) -> String {
    let shown = files
        .0
        .iter()
        .filter(|(path, _)| wanted.iter().any(|part| path.contains(part)));
    shown.map(|(path, text)| format!("=== {path}\n{text}")).collect()
}

const INIT: &str = "init --project-name guestbook --repo example.com/guestbook";
const GUESTBOOK: &str = "create api --group webapp --version v1 --kind Guestbook --resource --controller";
const BOTH: &str = "create webhook --group webapp --version v1 --kind Guestbook --defaulting --programmatic-validation";

#[test]
fn a_plain_project() {
    let files = project(&[INIT, GUESTBOOK]);
    is_formatted(&files);
    insta::assert_snapshot!(show(&files, &["PROJECT", ".rs", "Cargo.toml"]));
}

#[test]
fn webhooks_one_after_the_other_are_webhooks_at_once() {
    let at_once = project(&[INIT, GUESTBOOK, BOTH]);
    is_formatted(&at_once);
    insta::assert_snapshot!(show(
        &at_once,
        &["src/webhook", "src/lib.rs", "tests/it/guestbook_webhook.rs"]
    ));
    let one = "create webhook --group webapp --version v1 --kind Guestbook --defaulting";
    let other = "create webhook --group webapp --version v1 --kind Guestbook --programmatic-validation";
    for order in [[one, other], [other, one]] {
        let files = project(&[INIT, GUESTBOOK, order[0], order[1]]);
        let differs: Vec<&String> = files
            .0
            .iter()
            .filter(|(path, text)| at_once.0.get(*path) != Some(text))
            .map(|(path, _)| path)
            .collect();
        assert!(differs.is_empty(), "{order:?} {}", show(&files, &[differs[0]]));
    }
}

#[test]
fn each_version_has_tests_of_its_own() {
    let second = "create webhook --group webapp --version v2 --kind Guestbook --defaulting --programmatic-validation";
    let version = "create api --group webapp --version v2 --kind Guestbook --resource";
    let mut files = project(&[INIT, GUESTBOOK, BOTH, version, second]);
    is_formatted(&files);
    let (first, other) = ("tests/it/guestbook_webhook.rs", "tests/it/guestbook_v2_webhook.rs");
    assert!(files.0[first].contains("webhook::v1::") && files.0[other].contains("webhook::v2::"));
    files.0.get_mut(first).unwrap().push_str("// mine\n");
    for command in [
        format!("{second} --force"),
        "edit --multigroup".to_owned(),
        "edit --multigroup=false".to_owned(),
    ] {
        run(&mut files, &command).unwrap();
        assert!(files.0.iter().any(|(_, text)| text.ends_with("// mine\n")), "{command}");
    }
    // A part of the second goes, then the rest; the first stays.
    run(
        &mut files,
        "delete webhook --group webapp --version v2 --kind Guestbook --defaulting",
    )
    .unwrap();
    assert!(files.0.contains_key(other));
    run(
        &mut files,
        "delete webhook --group webapp --version v2 --kind Guestbook",
    )
    .unwrap();
    assert!(!files.0.contains_key(other) && files.0[first].ends_with("// mine\n"));
    // The one that comes first has the short name, whichever it is.
    let files = project(&[INIT, GUESTBOOK, version, second, BOTH]);
    assert!(files.0[first].contains("webhook::v2::"));
    assert!(files.0["tests/it/guestbook_v1_webhook.rs"].contains("webhook::v1::"));
}

#[test]
fn files_keep_the_ends_of_their_lines() {
    let more = [
        BOTH,
        "create api --group webapp --version v2 --kind Guestbook --resource",
        "create webhook --group webapp --version v1 --kind Guestbook --conversion --spoke v2",
        "edit --multigroup",
        "delete webhook --group webapp --version v1 --kind Guestbook --defaulting",
    ];
    let mut plain = project(&[INIT, GUESTBOOK]);
    let mut other = plain.clone();
    for text in other.0.values_mut() {
        *text = text.replace('\n', "\r\n");
    }
    for command in more {
        run(&mut plain, command).unwrap();
        run(&mut other, command).unwrap_or_else(|wrong| panic!("{command}\n{wrong}"));
        for (path, text) in &other.0 {
            let lines = (text.matches('\n').count(), text.matches("\r\n").count());
            assert!(lines.0 == lines.1 || lines.1 == 0, "{command}: {path} has both ends");
            assert_eq!(&text.replace("\r\n", "\n"), &plain.0[path], "{command}: {path}");
        }
        assert_eq!(plain.0.len(), other.0.len(), "{command}");
    }
    assert!(other.0["src/lib.rs"].contains("\r\n") && other.0["PROJECT"].contains("\r\n"));
}

#[test]
fn words_of_kubebuilder_that_need_nothing_here_are_taken() {
    let check = |command: &str, said: &str| {
        let files = project(&["init --project-name shop --domain="]);
        let made = plan(&files, command).unwrap_or_else(|wrong| panic!("{command}\n{wrong}"));
        assert!(
            made.notes.iter().any(|note| note.contains(said)) || said.is_empty(),
            "{:?}",
            made.notes
        );
        let mut files = files.clone();
        files.apply(&made);
        is_formatted(&files);
    };
    check(
        "create api --group shop.example.org --version v1 --kind Cart --resource --controller --ssa",
        "server-side apply",
    );
    let issuer = "create api --group cert-manager --version v1 --kind Issuer --controller --external-api-domain io";
    check(
        &format!(
            "{issuer} --external-api-path github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1 --external-api-module github.com/cert-manager/cert-manager@v1.18.2"
        ),
        "only its group is used",
    );
    check(
        &format!("{issuer} --external-api-module github.com/cert-manager/cert-manager"),
        "only its group is used",
    );
    let files = project(&["init --project-name shop --domain="]);
    assert_eq!(Project::load(&files).unwrap().domain, "");
    for refused in [
        "create api --group cart --version v1 --kind Cart --resource",
        "create api --version v1 --kind Cart --resource",
        "create api --group apps --version v1 --kind Deployment --controller --ssa",
    ] {
        assert!(plan(&files, refused).is_err(), "{refused}");
    }
}

#[test]
fn versions_with_conversion() {
    let files = project(&[
        INIT,
        GUESTBOOK,
        "create api --group webapp --version v2 --kind Guestbook --resource",
        "create webhook --group webapp --version v2 --kind Guestbook --conversion --spoke v1",
    ]);
    is_formatted(&files);
    insta::assert_snapshot!(show(
        &files,
        &[
            "PROJECT",
            "_types.rs",
            "conversion",
            "src/webhook/",
            "src/lib.rs",
            "v1/mod.rs"
        ]
    ));
}

#[test]
fn core_and_external_types() {
    let files = project(&[
        "init --project-name podguard --license-file --owner me",
        "create api --group apps --version v1 --kind Deployment --controller",
        "create webhook --group core --version v1 --kind Pod --defaulting --programmatic-validation",
        "create api --group networking --version v1 --kind Ingress --controller",
        "create api --group cert-manager --version v1 --kind Certificate --controller --external-api-domain io --external-api-path github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1",
        "create api --group gateway --version v1 --kind Gateway --controller --external-api-domain networking.k8s.io --external-api-path gateway_api::v1 --external-api-module gateway-api@0.19",
        "create webhook --group gateway --version v1 --kind Gateway --programmatic-validation --validation-path /look",
    ]);
    is_formatted(&files);
    insta::assert_snapshot!(show(
        &files,
        &[
            "PROJECT",
            "deployment",
            "pod_webhook",
            "certificate",
            "gateway",
            "src/lib.rs",
            "Cargo.toml"
        ]
    ));
}

const FLEET: [&str; 9] = [
    "init --project-name fleet --domain fleet.example --multigroup",
    "create api --group crew --version v1 --kind Sailor --resource --controller",
    "create api --group dock.harbour --version v1beta1 --kind Berth --resource --controller",
    "create api --group sea-lanes --version v1 --kind Sailor --resource --controller",
    "create api --group crew --version v1 --kind Port --namespaced=false --resource --controller",
    "create api --group crew --version v1 --kind Sailor --controller --controller-name sailor-backup",
    "create webhook --group crew --version v1 --kind Sailor --defaulting --programmatic-validation",
    "create webhook --group dock.harbour --version v1beta1 --kind Berth --programmatic-validation",
    "create api --group core --version v1 --kind Pod --controller",
];

#[test]
fn several_groups() {
    let files = project(&FLEET);
    is_formatted(&files);
    insta::assert_snapshot!(show(
        &files,
        &[
            "PROJECT",
            "src/lib.rs",
            "mod.rs",
            "tests/it/crew",
            "tests/it/main.rs",
            "port_types",
            "sailor_controller.rs",
            "backup"
        ]
    ));
}

#[test]
fn odd_names() {
    let files = project(&[
        "init --project-name test --domain k8s.example --multigroup",
        "create api --group type --version v1 --kind Self --resource --controller",
        "create api --group gateway.networking --version v1beta1 --kind HTTPRoute --resource --controller",
        "create api --group gateway.networking --version v1beta1 --kind Gateway --plural gatewaies --resource --controller",
        "create api --group crate --version v1-alpha --kind Endpoints --resource --controller",
        "create api --group crate --version v1-alpha --kind Type --resource --controller",
        "create api --group crate --version v1-alpha --kind Option --resource --controller",
        "create api --group crate --version v1-alpha --kind Context --resource --controller",
        "create api --group a --version v1 --kind LongKindOfAnOperator --resource --controller",
        "create api --version v1 --kind Bare --resource --controller",
        "create webhook --group type --version v1 --kind Self --defaulting --programmatic-validation",
        "create webhook --group crate --version v1-alpha --kind Endpoints --defaulting --programmatic-validation",
        "create webhook --group a --version v1 --kind LongKindOfAnOperator --programmatic-validation --defaulting",
    ]);
    is_formatted(&files);
    insta::assert_snapshot!(show(
        &files,
        &[
            "PROJECT",
            "self_",
            "option_types",
            "endpoints_webhook.rs",
            "src/lib.rs",
            "tests/it/a_",
            "tests/it/main.rs",
        ]
    ));
}

#[test]
fn groups_move_and_the_project_is_as_if_it_had_begun_with_them() {
    let single = [
        INIT,
        GUESTBOOK,
        BOTH,
        "create api --group webapp --version v2 --kind Guestbook --resource",
        "create webhook --group webapp --version v1 --kind Guestbook --conversion --spoke v2",
        "create webhook --group core --version v1 --kind Pod --defaulting",
    ];
    let mut files = project(&single);
    let one = files.clone();
    files.0.insert("src/controller/help.rs".into(), "//! Help.\n".into());
    let controller = files.0.get_mut("src/controller/guestbook_controller.rs").unwrap();
    *controller = controller.replace(
        "use kubewright::prelude::*;\n",
        "use kubewright::prelude::*;\n\nuse super::help;\nuse guestbook_api::{v1 as one, v2};\n",
    );
    let mut multi = project(&single[..1]);
    run(&mut multi, "edit --multigroup").unwrap();
    for command in &single[1..] {
        run(&mut multi, command).unwrap();
    }
    let changes = run(&mut files, "edit --multigroup").unwrap();
    insta::assert_snapshot!(changes.join("\n"));
    let moved = files.0["src/controller/webapp/guestbook_controller.rs"].clone();
    assert!(
        moved.contains("use super::super::help;\nuse guestbook_api::webapp::{v1 as one, v2};\n"),
        "{moved}"
    );
    let paths = |files: &MemoryFiles| -> Vec<String> {
        files
            .0
            .keys()
            .filter(|path| !path.contains("help.rs") && !path.starts_with("config/"))
            .cloned()
            .collect()
    };
    assert_eq!(paths(&files), paths(&multi));
    run(&mut files, "edit --multigroup=false").unwrap();
    files.0.remove("src/controller/help.rs");
    let back = files.0["src/controller/guestbook_controller.rs"].clone();
    let back = back.replace("\nuse super::help;\nuse guestbook_api::{v1 as one, v2};\n", "");
    files.0.insert("src/controller/guestbook_controller.rs".into(), back);
    for (path, text) in &one.0 {
        if path.ends_with(".rs") || path == "PROJECT" {
            similar_asserts(path, files.0.get(path).map_or("", String::as_str), text);
        }
    }
}

#[test]
fn terms_are_changed_in_the_manifests() {
    let mut files = MemoryFiles::default();
    run(&mut files, INIT).unwrap();
    let terms = |files: &MemoryFiles, path: &str| -> Vec<String> {
        let lines = files.0[path]
            .lines()
            .filter(|line| line.starts_with("license") || line.starts_with("authors"));
        lines.map(str::to_owned).collect()
    };
    let mut check = |command: &str, changed: &[&str], root: &[&str], api: &[&str]| {
        assert_eq!(run(&mut files, command).unwrap(), changed, "{command}");
        assert_eq!(terms(&files, "Cargo.toml"), root, "{command}");
        assert_eq!(terms(&files, "api/Cargo.toml"), api, "{command}");
    };
    let both: &[&str] = &["update Cargo.toml", "update api/Cargo.toml"];
    let apache = "license = \"Apache-2.0\"";
    check(
        "edit --license apache2",
        &[],
        &[apache, "license.workspace = true"],
        &["license.workspace = true"],
    );
    check("edit --license none", both, &[], &[]);
    check(
        "edit --owner Ada",
        both,
        &["authors = [\"Ada\"]", "authors.workspace = true"],
        &["authors.workspace = true"],
    );
    check(
        "edit --license apache2 --owner Bea",
        both,
        &[
            "authors = [\"Bea\"]",
            apache,
            "authors.workspace = true",
            "license.workspace = true",
        ],
        &["authors.workspace = true", "license.workspace = true"],
    );
    let header = [
        "update Cargo.toml",
        "update api/Cargo.toml",
        "create hack/boilerplate.rs.txt",
    ];
    check(
        "edit --license none --license-file",
        &header,
        &["authors = [\"Bea\"]", "authors.workspace = true"],
        &["authors.workspace = true"],
    );
    files.0.insert("api/Cargo.toml".to_owned(), "[package".to_owned());
    let refused = run(&mut files, "edit --owner Cid").unwrap_err().to_string();
    assert!(
        refused.contains("KWR0002") && refused.contains("api/Cargo.toml"),
        "{refused}"
    );
}

#[test]
fn what_was_created_can_be_deleted() {
    let steps = [
        (GUESTBOOK, "delete api --group webapp --version v1 --kind Guestbook"),
        (
            "create api --group webapp --version v1 --kind Guestbook --controller --controller-name guestbook-backup",
            "delete api --group webapp --version v1 --kind Guestbook --controller-name guestbook-backup",
        ),
        (BOTH, "delete webhook --group webapp --version v1 --kind Guestbook"),
        (
            "create webhook --group webapp --version v1 --kind Guestbook --conversion",
            "delete webhook --group webapp --version v1 --kind Guestbook --conversion",
        ),
        (
            "create api --group cert-manager --version v1 --kind Certificate --controller --external-api-domain io",
            "delete api --group cert-manager --version v1 --kind Certificate",
        ),
        (
            "create webhook --group core --version v1 --kind Pod --defaulting",
            "delete webhook --group core --version v1 --kind Pod",
        ),
    ];
    let mut files = project(&[INIT]);
    let mut states = vec![];
    for (create, _) in steps {
        states.push(files.clone());
        run(&mut files, create).unwrap();
    }
    is_formatted(&files);
    // Webhooks stand on the type.
    let wrong = run(&mut files, steps[0].1).unwrap_err();
    assert_eq!(wrong.code, codes::project::TAKEN);
    for ((_, delete), state) in steps.iter().zip(states).rev() {
        run(&mut files, delete).unwrap_or_else(|wrong| panic!("{delete}: {wrong}"));
        for (path, text) in state.0.iter().filter(|(path, _)| !path.starts_with("config/")) {
            // A list of one controller stays a list.
            if path != "PROJECT" || !delete.contains("backup") {
                similar_asserts(
                    &format!("after {delete}: {path}"),
                    files.0.get(path).map_or("", String::as_str),
                    text,
                );
            }
        }
        let extra: Vec<&String> = files.0.keys().filter(|path| !state.0.contains_key(*path)).collect();
        assert!(extra.is_empty(), "after {delete}: {extra:?}");
    }
}

/// A project in which each test is a program of its own, as scaffolds were: what is there stays where it is, new tests
/// go into one program, and deleting undoes both.
#[test]
fn tests_of_earlier_scaffolds_stay_where_they_are() {
    let mut files = project(&[INIT, GUESTBOOK, BOTH]);
    files.0.remove(TESTS);
    files.0 = files
        .0
        .into_iter()
        .map(|(path, text)| (earlier_test(&path), text))
        .collect();
    let earlier = files.clone();
    let tests = |files: &MemoryFiles| -> Vec<String> {
        let found = files.0.keys().filter(|path| path.starts_with("tests/"));
        found.cloned().collect()
    };
    let old = [
        "tests/e2e.rs",
        "tests/faults.rs",
        "tests/guestbook_controller.rs",
        "tests/guestbook_webhook.rs",
        "tests/operator.rs",
    ];
    let second = "create api --group webapp --version v1 --kind Other --resource --controller";
    let of_second = ["tests/it/main.rs", "tests/it/other_controller.rs"];
    run(&mut files, second).unwrap();
    run(&mut files, &format!("{GUESTBOOK} --force")).unwrap();
    assert_eq!(tests(&files), [&old[..4], &of_second[..], &old[4..]].concat());
    run(&mut files, "edit --multigroup").unwrap();
    assert!(files.0.contains_key("tests/webapp_guestbook_webhook.rs"));
    assert!(
        files.0[TESTS].ends_with("mod webapp_other_controller;\n"),
        "{}",
        files.0[TESTS]
    );
    run(&mut files, "edit --multigroup=false").unwrap();
    run(&mut files, "delete api --group webapp --version v1 --kind Other").unwrap();
    assert_eq!(tests(&files), old);
    for command in ["delete webhook", "delete api"] {
        run(
            &mut files,
            &format!("{command} --group webapp --version v1 --kind Guestbook"),
        )
        .unwrap();
    }
    assert_eq!(tests(&files), [old[0], old[4]]);
    // The program is edited like any file of a person: declarations of his own stay, and what cannot be read is said.
    let mut files = earlier;
    files
        .0
        .insert(TESTS.into(), "mod support;\n\nmod other_controller {}\n".into());
    run(&mut files, second).unwrap();
    assert_eq!(files.0[TESTS], "mod support;\n\nmod other_controller {}\n");
    for (path, text, code) in [
        (TESTS, "mod (\n", codes::source::SYNTAX),
        ("tests/it/own.rs", "//! Mine.\n", codes::files::EDITED),
    ] {
        let mut files = project(&[INIT]);
        files.0.remove(TESTS);
        files.0.insert(path.into(), text.into());
        let wrong = run(&mut files, second).unwrap_err();
        assert_eq!((wrong.code, wrong.places[0].file.as_str()), (code, TESTS), "{wrong}");
    }
}

#[test]
fn what_moved_can_be_deleted_too() {
    let mut files = project(&[INIT, GUESTBOOK]);
    run(&mut files, "edit --multigroup").unwrap();
    run(&mut files, "delete api --group webapp --version v1 --kind Guestbook").unwrap();
    let left = files.0.keys().find(|path| path.contains("guestbook"));
    assert_eq!(left, None);
}

#[test]
fn what_a_person_wrote_is_not_deleted() {
    let mut files = project(&[INIT, GUESTBOOK]);
    let path = "src/controller/guestbook_controller.rs";
    *files.0.get_mut(path).unwrap() += "\n// mine\n";
    let before = files.clone();
    let delete = "delete api --group webapp --version v1 --kind Guestbook";
    let wrong = run(&mut files, delete).unwrap_err();
    assert_eq!(
        (wrong.code, wrong.places[0].file.as_str()),
        (codes::project::KEPT, path)
    );
    assert_eq!(files, before);
    run(&mut files, &format!("{delete} --force")).unwrap();
    assert!(!files.0.contains_key(path));
}

/// Wrong uses: which are refused, with which code, and in which words.
#[test]
fn wrong_uses_are_refused_before_anything_happens() {
    let guestbook = project(&[INIT, GUESTBOOK]);
    let webhooks = project(&[INIT, GUESTBOOK, BOTH]);
    let two = project(&[
        "init --project-name work",
        "create api --group work --version v1 --kind Shift --resource --controller",
        "create api --group work --version v1 --kind Shift --controller --controller-name shift-audit",
    ]);
    let mut rewritten = guestbook.clone();
    rewritten.0.insert(
        "src/lib.rs".into(),
        "use kubewright::Operator;\n\npub fn operator() -> Operator {\n    if true { a() } else { b() }\n}\n".into(),
    );
    let mut broken = guestbook.clone();
    broken.0.insert("src/lib.rs".into(), "pub fn operator( {\n".into());
    let mut taken = guestbook.clone();
    taken.0.insert("api/src/v1/other_types.rs".into(), "// mine\n".into());
    let empty = MemoryFiles::default();
    let foreign = MemoryFiles::from([("Makefile", "all:\n")]);
    let cases = [
        (
            &empty,
            "create api --group g --version v1 --kind K --resource --controller",
        ),
        (&empty, "edit --multigroup"),
        (&guestbook, "init"),
        (&foreign, "init"),
        (&empty, "init --domain My_Domain"),
        (&empty, "init --project-name Bad_Name"),
        (&empty, "init --plugins rust/v1"),
        (&empty, "init --plugins go/v4"),
        (&guestbook, "edit --plugins nothing/v1"),
        (
            &guestbook,
            "create api --group webapp --version v1 --resource --controller",
        ),
        (
            &guestbook,
            "create api --group webapp --kind Other --resource --controller",
        ),
        (
            &guestbook,
            "create api --group webapp --version v1 --kind other --resource",
        ),
        (
            &guestbook,
            "create api --group webapp --version v1 --kind My-Kind --resource",
        ),
        (
            &guestbook,
            "create api --group webapp --version 1 --kind Other --resource",
        ),
        (
            &guestbook,
            "create api --group webapp --version V1 --kind Other --resource",
        ),
        (
            &guestbook,
            "create api --group WebApp --version v1 --kind Other --resource",
        ),
        (
            &guestbook,
            "create api --group webapp --version v1 --kind Other --plural Oth_ers --resource",
        ),
        (
            &guestbook,
            "create api --group webapp --version v1 --kind Other --plural guestbooks --resource",
        ),
        (
            &guestbook,
            "create api --group webapp --version v1 --kind GuestbookSpec --resource",
        ),
        (
            &guestbook,
            "create api --group webapp --version v2 --kind Guestbook --namespaced=false --resource",
        ),
        (&guestbook, GUESTBOOK),
        (
            &guestbook,
            "create api --group other --version v1 --kind Other --resource --controller",
        ),
        (
            &guestbook,
            "create api --group ext --version v1 --kind Thing --resource --external-api-path a::b",
        ),
        (&guestbook, "create api --group webapp --version v1 --kind Other"),
        (
            &guestbook,
            "create api --group webapp --version v1 --kind Other --controller",
        ),
        (
            &guestbook,
            "create api --group apps --version v1 --kind Deploiment --controller",
        ),
        (
            &guestbook,
            "create api --group apps --version v1 --kind Statefulset --controller",
        ),
        (
            &guestbook,
            "create api --group webapp --version v1 --kind Guestbook --controller --controller-name Bad_Name",
        ),
        (
            &guestbook,
            "create api --group webapp --version v1 --kind Guestbook --controller",
        ),
        (
            &two,
            "create api --group work --version v1 --kind Shift --controller --controller-name shift-audit",
        ),
        (
            &guestbook,
            "create api --group ext --version v1 --kind Thing --controller --external-api-domain io --external-api-path a/b --external-api-module c",
        ),
        (
            &guestbook,
            "create webhook --group webapp --version v1 --kind Guestbook",
        ),
        (
            &guestbook,
            "create webhook --group webapp --version v1 --kind Nobody --defaulting",
        ),
        (
            &guestbook,
            "create webhook --group webapp --version v1 --kind Guestbook --programmatic-validation --defaulting-path /x",
        ),
        (
            &guestbook,
            "create webhook --group webapp --version v1 --kind Guestbook --defaulting --defaulting-path x",
        ),
        (
            &guestbook,
            "create webhook --group webapp --version v1 --kind Guestbook --defaulting --spoke v2",
        ),
        (
            &guestbook,
            "create webhook --group webapp --version v1 --kind Guestbook --conversion --spoke v2",
        ),
        (
            &guestbook,
            "create webhook --group webapp --version v1 --kind Guestbook --conversion --spoke v1",
        ),
        (
            &guestbook,
            "create webhook --group core --version v1 --kind Pod --conversion",
        ),
        (
            &webhooks,
            "create webhook --group webapp --version v1 --kind Guestbook --defaulting",
        ),
        (
            &guestbook,
            "delete webhook --group webapp --version v1 --kind Guestbook",
        ),
        (&guestbook, "delete api --group webapp --version v1 --kind Nobody"),
        (
            &rewritten,
            "create api --group webapp --version v1 --kind Other --resource",
        ),
        (
            &broken,
            "create api --group webapp --version v1 --kind Other --resource",
        ),
        (&taken, "create api --group webapp --version v1 --kind Other --resource"),
    ];
    let told: Vec<String> = cases
        .iter()
        .map(|(files, command)| match plan(files, command) {
            Ok(_) => panic!("{command} is taken"),
            Err(wrong) => format!("$ {command}\n{wrong}"),
        })
        .collect();
    insta::assert_snapshot!(told.join("\n\n"));
}

const MEMSTORE: &str = "create api --group cache --version v1alpha1 --kind Memstore --resource --controller --plugins deploy-image/v1-alpha \
                        --image memcached:1.6.26-alpine3.19 --image-container-command memcached,--memory-limit=64,-o,modern,-v \
                        --image-container-port 11211 --run-as-user 1001";

#[test]
fn a_kind_that_runs_an_image() {
    let files = project(&[INIT, MEMSTORE]);
    is_formatted(&files);
    insta::assert_snapshot!(show(
        &files,
        &[
            "PROJECT",
            "memstore_types.rs",
            "memstore_controller.rs",
            "_image_patch",
            "samples/cache"
        ]
    ));
    // A second controller, a version with the same fields, webhooks and a conversion.
    let grown = project(&[
        INIT,
        MEMSTORE,
        "create api --group cache --version v1alpha1 --kind Memstore --controller --controller-name backup",
        "create api --group cache --version v1 --kind Memstore --resource",
        "create webhook --group cache --version v1 --kind Memstore --defaulting --programmatic-validation",
        "create webhook --group cache --version v1 --kind Memstore --conversion --spoke v1alpha1",
    ]);
    is_formatted(&grown);
    let conversion = &grown.0["api/src/v1alpha1/memstore_conversion.rs"];
    assert!(
        conversion.contains("container_port: spoke.spec.container_port"),
        "{conversion}"
    );
    for made in [&files, &grown] {
        let again = again(made, "0.1.0").unwrap();
        let diff = similar::TextDiff::from_lines(show(made, &[""]), show(&again, &[""]))
            .unified_diff()
            .to_string();
        assert!(diff.is_empty(), "scaffolded again:\n{diff}");
    }
    // A created part can be deleted again.
    let mut files = files;
    run(
        &mut files,
        "delete api --group cache --version v1alpha1 --kind Memstore",
    )
    .unwrap();
    let empty = project(&[INIT]);
    let left: Vec<&String> = files.0.keys().filter(|path| !empty.0.contains_key(*path)).collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(files.0["PROJECT"], empty.0["PROJECT"]);
}

#[test]
fn images_of_kinds_with_odd_names_and_few_words() {
    let image = "--resource --controller --plugins deploy-image --image registry.example.com:5000/a-team/with-long-names/and-more-of-them/memcached:1.6.26-alpine3.19";
    let files = project(&[
        "init --project-name a-project-with-quite-a-name --domain k8s.example --multigroup",
        &format!("create api --group type --version v1 --kind Self {image}"),
        &format!(
            "create api --group gateway.networking --version v1beta1 --kind HTTPRoute {image} --image-container-port 80"
        ),
        &format!(
            "create api --group crate --version v1-alpha --kind Context {image} --image-container-command sleep,infinity"
        ),
        &format!(
            "create api --group a --version v1 --kind LongKindOfAnOperatorThatGoesOnAndOn {image} --run-as-user 7"
        ),
        &format!("create api --version v1 --kind Bare --plural bares {image}"),
    ]);
    is_formatted(&files);
}

#[test]
fn images_that_cannot_be_are_refused() {
    let empty = project(&[INIT]);
    let there = project(&[INIT, "edit --multigroup", MEMSTORE]);
    let of = |more: &str| {
        format!(
            "create api --group cache --version v1 --kind Shelf --resource --controller --plugins deploy-image/v1-alpha {more}"
        )
    };
    let cases = [
        (&empty, of("")),
        (&empty, of("--image a,b")),
        (&empty, of("--image a:b@")),
        (&empty, of("--image a --image-container-port 0")),
        (&empty, of("--image a --image-container-port http")),
        (&empty, of("--image a --run-as-user 0")),
        (&empty, of("--image a --run-as-user me")),
        (&empty, of("--image a --image-container-command a,,b")),
        (&empty, of("--image a --namespaced=false")),
        (&empty, of("--image a --controller-name other")),
        (&empty, of("--image a").replace(" --controller ", " ")),
        (&empty, of("--image a").replace("deploy-image/v1-alpha", "helm")),
        (&empty, of("--image a").replace("--plugins deploy-image/v1-alpha", "")),
        (&there, MEMSTORE.replace("--group cache", "--group other")),
    ];
    let mut told = String::new();
    for (files, command) in cases {
        let wrong = plan(files, &command)
            .err()
            .map_or("nothing is wrong".to_owned(), |wrong| wrong.to_string());
        told += &format!("$ {command}\n{wrong}\n\n");
    }
    insta::assert_snapshot!(told);
}
