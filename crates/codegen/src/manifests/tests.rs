//! Errors as a person meets them.

use super::*;
use crate::kustomize;
use crate::plan::MemoryFiles;
use crate::project::{Project, Resource, Webhooks};
use serde_json::json;

/// The source behind the kind of these tests.
const SOURCE: &str = r#"//! Types.

/// What is asked for.
#[derive(CustomResource, JsonSchema)]
#[kube(group = "wrong.example.org", version = "v1", kind = "Wrong", namespaced)]
#[serde(rename_all = "camelCase")]
pub struct WrongSpec {
    pub field_one: Option<Vec<Inner>>,
    #[schemars(length(min = 1))]
    pub lost: BTreeMap<String, i32>,
    #[serde(flatten)]
    pub more: More,
}

pub struct Inner {
    #[serde(rename = "port")]
    pub number: i32,
}

#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum More {
    Far { how_far: i32 },
}
"#;

fn files() -> MemoryFiles {
    MemoryFiles::from([
        ("api/Cargo.toml", "[package]\nname = \"wrong-api\"\n"),
        ("api/src/v1/wrong_types.rs", SOURCE),
    ])
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|&text| text.to_owned()).collect()
}

/// A declaration of one webhook.
fn hooked(change: fn(&mut Webhook)) -> Declaration {
    let mut webhook = Webhook {
        name: "a.b.io".to_owned(),
        path: Some("/x".to_owned()),
        verbs: texts(&["create"]),
        failure_policy: Some("Fail".to_owned()),
        side_effects: Some("None".to_owned()),
        admission_review_versions: texts(&["v1"]),
        mutating: true,
        ..Webhook::default()
    };
    webhook.kind.kind = "Thing".to_owned();
    change(&mut webhook);
    Declaration {
        declaration: 1,
        webhooks: vec![webhook],
        ..Declaration::default()
    }
}

/// A declaration of one kind whose spec has these properties; `change` does the rest.
fn declared(properties: Value, change: impl FnOnce(&mut Value)) -> Declaration {
    let mut crd = json!({
        "metadata": {"name": "wrongs.wrong.example.org"},
        "spec": {
            "group": "wrong.example.org",
            "names": {"kind": "Wrong", "plural": "wrongs", "singular": "wrong"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": {"type": "object", "properties": properties}},
            }}}],
        },
    });
    change(&mut crd);
    Declaration {
        declaration: 1,
        crds: vec![Crd {
            rust: "wrong_api::v1::wrong_types::Wrong".to_owned(),
            crd,
            problems: Vec::new(),
        }],
        ..Declaration::default()
    }
}

fn told(declaration: &Declaration) -> String {
    let files = files();
    let said = match objects(declaration, &files, &Options::default()) {
        Ok(made) => made.warnings.iter().map(|told| format!("warning: {told}")).collect(),
        Err(wrong) => wrong.iter().map(ToString::to_string).collect::<Vec<_>>(),
    };
    said.join("\n")
}

#[test]
fn mistakes_that_the_original_passes_on_are_told_with_their_place() {
    let field = |schema: Value| declared(json!({"fieldOne": schema}), |_| {});
    let crd = |change: fn(&mut Value)| declared(json!({"fieldOne": {"type": "string"}}), change);
    let problem = |at: &str, what: &str, why: &str| {
        let mut declaration = field(json!({"type": "string"}));
        declaration.crds[0].problems.push(Problem {
            at: at.to_owned(),
            what: what.to_owned(),
            why: why.to_owned(),
            warning: false,
        });
        declaration
    };
    let rbac = |rule: Rule| Declaration {
        declaration: 1,
        rbac: vec![rule],
        ..Declaration::default()
    };
    let cases: Vec<(&str, Declaration)> = vec![
        (
            "unknown-marker",
            problem(
                "spec.fieldOne",
                "keyword",
                "`minimun` is no keyword of a CustomResourceDefinition's schema; did you mean `minimum`?",
            ),
        ),
        ("number-expected", field(json!({"type": "integer", "minimum": "abc"}))),
        ("rule-of-other-type", field(json!({"type": "integer", "minLength": 1}))),
        ("maximum-on-string", field(json!({"type": "string", "maximum": 3}))),
        ("enum-of-other-type", field(json!({"type": "string", "enum": [1, 2]}))),
        (
            "default-of-other-type",
            field(json!({"type": "integer", "default": "word"})),
        ),
        ("float", field(json!({"type": "number"}))),
        (
            "oneof-unknown-field",
            problem(
                "spec",
                "unknown-field",
                "`exactlyOneOf` names the field `nowhere`, which is not there (there are: field)",
            ),
        ),
        (
            "listmap-without-key",
            field(
                json!({"type": "array", "items": {"type": "object", "properties": {"port": {"type": "integer"}}}, "x-kubernetes-list-type": "map"}),
            ),
        ),
        (
            "listtype-on-string",
            field(json!({"type": "string", "x-kubernetes-list-type": "set"})),
        ),
        (
            "column-without-path",
            crd(|crd| {
                crd["spec"]["versions"][0]["additionalPrinterColumns"] =
                    json!([{"name": "X", "type": "string", "jsonPath": ""}]);
            }),
        ),
        ("scope-unknown", crd(|crd| crd["spec"]["scope"] = json!("Galaxy"))),
        (
            "rule-without-rule",
            field(json!({"type": "string", "x-kubernetes-validations": [{"message": "m"}]})),
        ),
        (
            "rule-does-not-compile",
            field(json!({"type": "string", "x-kubernetes-validations": [{"rule": "self +"}]})),
        ),
        (
            "rule-too-costly",
            field(
                json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": [{"rule": "self.all(a, self.all(b, a == b))"}]}),
            ),
        ),
        (
            "no-group",
            crd(|crd| {
                crd["spec"]["group"] = json!("");
                crd["metadata"]["name"] = json!("wrongs.");
            }),
        ),
        (
            "unique-items",
            field(json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true})),
        ),
        (
            "selectable-missing",
            crd(|crd| crd["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.nowhere"}])),
        ),
        (
            "rbac-no-verbs",
            rbac(Rule {
                groups: texts(&["apps"]),
                resources: texts(&["deployments"]),
                ..Rule::default()
            }),
        ),
        ("webhook-no-path", hooked(|webhook| webhook.path = None)),
        (
            "webhook-no-failure-policy",
            hooked(|webhook| webhook.failure_policy = None),
        ),
        (
            "webhook-side-effects-some",
            hooked(|webhook| webhook.side_effects = Some("Some".to_owned())),
        ),
        ("two-storage-versions", {
            let mut declaration = crd(|_| {});
            let mut second = crd(|crd| crd["spec"]["versions"][0]["name"] = json!("v2"));
            declaration.crds.append(&mut second.crds);
            declaration
        }),
        (
            "transition rule below a list",
            field(
                json!({"type": "array", "maxItems": 3, "items": {"type": "object", "properties": {"port": {"type": "integer", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}}}),
            ),
        ),
        (
            "a rule that schemars leaves out",
            declared(
                json!({"lost": {"type": "object", "additionalProperties": {"type": "integer"}}}),
                |_| {},
            ),
        ),
        (
            "a variant's field",
            declared(json!({"howFar": {"type": "integer", "default": true}}), |_| {}),
        ),
        (
            "list types",
            declared(
                json!({
                    "noSuchType": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "bag"},
                    "noSuchMap": {"type": "object", "x-kubernetes-map-type": "loose"},
                    "setOfStructs": {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"},
                    "mapOfTexts": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
                    "optionalKey": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                        "items": {"type": "object", "properties": {"k": {"type": "string"}}}},
                    "otherKey": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["q"],
                        "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}},
                    "keysOfASet": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set", "x-kubernetes-list-map-keys": ["k"]},
                }),
                |_| {},
            ),
        ),
        (
            "columns and scale",
            declared(
                json!({"size": {"type": "integer"}, "color": {"type": "string"}}),
                |crd| {
                    let version = &mut crd["spec"]["versions"][0];
                    version["additionalPrinterColumns"] = json!([
                        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                        {"name": "Sise", "type": "integer", "jsonPath": ".spec.sise"},
                        {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
                    ]);
                    version["subresources"] =
                        json!({"scale": {"specReplicasPath": ".spec.color", "statusReplicasPath": ".status.size"}});
                },
            ),
        ),
        (
            "no version is served",
            crd(|crd| crd["spec"]["versions"][0]["served"] = json!(false)),
        ),
        (
            "verbs",
            Declaration {
                declaration: 1,
                rbac: ["gett", "GET", "watchh", "post", "get,list", "patch", "impersonate-on"]
                    .iter()
                    .map(|verb| Rule {
                        at: Some(("mine/api/src/v1/wrong_types.rs".to_owned(), 7, 9)),
                        groups: texts(&["apps"]),
                        resources: texts(&["deployments"]),
                        verbs: texts(&[verb]),
                        ..Rule::default()
                    })
                    .collect(),
                ..Declaration::default()
            },
        ),
        (
            "a path and another URL",
            hooked(|webhook| webhook.url = Some("https://example.org/y".to_owned())),
        ),
        (
            "a webhook's patch",
            hooked(|webhook| webhook.patch = Some(json!({"nameSpaceSelector": {}}))),
        ),
    ];
    let all: Vec<String> = cases
        .iter()
        .map(|(name, declaration)| format!("# {name}\n{}", told(declaration)))
        .collect();
    insta::assert_snapshot!(all.join("\n\n"));
}

#[test]
fn a_length_of_time_that_may_be_any_string_is_told() {
    let check = |ty: &str, schema: Value, is_told: bool| {
        let source = SOURCE.replace("Option<Vec<Inner>>", ty);
        let files = MemoryFiles::from([
            ("api/Cargo.toml", "[package]\nname = \"wrong-api\"\n"),
            ("api/src/v1/wrong_types.rs", source.as_str()),
        ]);
        let declaration = declared(json!({"fieldOne": schema}), |_| {});
        let made = objects(&declaration, &files, &Options::default()).expect("nothing is wrong");
        let said: Vec<String> = made.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), usize::from(is_told), "{ty} {schema}: {said:?}");
        let parts = ["KWR0319", "wrong_types.rs:8:9 (spec.fieldOne", "regex(pattern"];
        assert!(
            said.iter().all(|said| parts.iter().all(|part| said.contains(part))),
            "{said:?}"
        );
    };
    let any = || json!({"type": "string"});
    let list = || json!({"type": "array", "items": any()});
    check("Duration", any(), true);
    check("Option<kube::core::Duration>", any(), true);
    check("Vec<kube::core::Duration>", list(), true);
    check("String", any(), false);
    check("Option<Vec<String>>", list(), false);
    check("mine::Duration", any(), false);
    check("Duration", json!({"type": "string", "pattern": "^[0-9]+s$"}), false);
    check("Duration", json!({"type": "string", "format": "duration"}), false);
    check("Duration", json!({"type": "integer"}), false);
}

#[test]
fn files_are_written_once_and_what_is_gone_is_removed() {
    let mut files = files();
    let declaration = declared(json!({"fieldOne": {"type": "string"}}), |_| {});
    let before = files.clone();
    let made = plan(&declaration, &before, &Options::default()).expect("nothing is wrong");
    assert_eq!(
        made.changes().map(|(path, _)| path).collect::<Vec<_>>(),
        ["config/crd/bases/wrong.example.org_wrongs.yaml", ROLES]
    );
    files.apply(&made);
    files
        .0
        .insert("config/crd/bases/foreign.yaml".to_owned(), "a: 1\n".to_owned());
    let current = files.clone();
    assert!(
        plan(&declaration, &current, &Options::default())
            .expect("nothing is wrong")
            .is_empty()
    );
    let none = Declaration {
        declaration: 1,
        ..Declaration::default()
    };
    let gone = plan(&none, &current, &Options::default()).expect("nothing is wrong");
    let changes: Vec<_> = gone.changes().map(|(path, change)| (path, change.verb())).collect();
    assert_eq!(changes, [("config/crd/bases/wrong.example.org_wrongs.yaml", "delete")]);
}

/// Whether a field `spec.inner.name`, a number, gets a warning in a project of these files besides the kind's own.
fn said_of_inner(kind: &str, files: &[(&str, &str)]) -> bool {
    let mut all = MemoryFiles::from([("api/Cargo.toml", "[package]\nname = \"wrong-api\"\n")]);
    let kind = format!(
        "{kind}\n#[derive(CustomResource)]\n#[kube(kind = \"Wrong\")]\npub struct WrongSpec {{ pub inner: INNER }}\n"
    );
    // The first line names the type: `// INNER`.
    let inner = kind
        .lines()
        .next()
        .unwrap_or_default()
        .trim_start_matches("// ")
        .to_owned();
    all.0
        .insert("api/src/v1/wrong_types.rs".to_owned(), kind.replace("INNER", &inner));
    for (path, text) in files {
        all.0.insert((*path).to_owned(), (*text).to_owned());
    }
    let properties = json!({"inner": {"type": "object", "properties": {"name": {"type": "integer"}}}});
    match objects(&declared(properties, |_| {}), &all, &Options::default()) {
        Ok(_) => false,
        Err(wrong) => {
            assert!(
                wrong.iter().all(|wrong| wrong.code.to_string() == "KWR0312"),
                "{wrong:?}"
            );
            true
        }
    }
}

#[test]
fn rules_are_read_from_the_type_that_the_compiler_means() {
    const RULED: &str = "pub struct Inner { #[schemars(length(min = 1))] pub name: String }";
    const PLAIN: &str = "pub struct Inner { pub name: i32 }";
    let here = |text: &str| format!("// Inner\n{text}");
    let other = "api/src/net.rs";
    // (the code in the kind's own file, another file, the code in that file, whether the rule without effect is found)
    let cases: &[(&str, &str, &str, bool)] = &[
        (&here(RULED), other, PLAIN, true),
        (&here(PLAIN), other, RULED, false),
        ("// crate::net::Inner", other, RULED, true),
        ("// crate::net::Inner", "api/src/other.rs", RULED, false),
        ("// Inner\nuse k8s_openapi::api::core::v1::Inner;", other, RULED, false),
        ("// Inner\nuse k8s_openapi::api::core::v1::*;", other, RULED, false),
        ("// k8s_openapi::Inner", other, RULED, false),
        ("// Inner\nuse crate::net::Inner;", other, RULED, true),
        ("// Port\nuse crate::net::Inner as Port;", other, RULED, true),
        (
            "// Option<Box<Port>>\nuse crate::net::{Inner as Port, self};",
            other,
            RULED,
            true,
        ),
        ("// net::Inner\nuse crate::{net};", other, RULED, true),
        ("// Inner\nuse super::*;", "api/src/v1/mod.rs", RULED, true),
        ("// Inner\nuse super::super::net::*;", other, RULED, true),
        ("// wrong_api::net::Inner", other, RULED, true),
        (
            "// super::Inner",
            "api/src/v1/mod.rs",
            &format!("mod deep {{ {RULED} }}\npub use deep::Inner;"),
            true,
        ),
        (
            "// Wrapper<Inner>\npub struct Wrapper<T> { pub name: T }\nuse crate::net::Inner;",
            other,
            RULED,
            false,
        ),
        ("// Inner\ntype Inner = serde_json::Value;", other, RULED, false),
        (
            "// Inner\nuse crate::a::Inner;",
            "api/src/a.rs",
            "pub use crate::b::Inner;\npub mod b { pub use crate::a::Inner; }",
            false,
        ),
    ];
    for (kind, path, text, expected) in cases {
        assert_eq!(
            said_of_inner(kind, &[(path, text)]),
            *expected,
            "{kind}\n--- {path}\n{text}"
        );
    }
}

/// A project as the command makes it, with PROJECT's `config/` and without files generated from code.
fn configured(project: &Project) -> MemoryFiles {
    let nothing = MemoryFiles::default();
    let mut plan = Plan::new(&nothing);
    crate::config::sync(None, project, &mut plan).expect("nothing is in the way");
    let mut files = MemoryFiles::default();
    files.apply(&plan);
    files
}

/// The messages of `manifests` about a project, and those of rendering the result.
fn written(project: &Project, declaration: &Declaration) -> String {
    let mut files = configured(project);
    // As after a time when everything was declared.
    for path in [WEBHOOKS, "config/crd/bases/wrong.example.org_wrongs.yaml"] {
        files.0.insert(
            path.to_owned(),
            format!("{HEADER}kind: ConfigMap\napiVersion: v1\nmetadata: {{name: old}}\n"),
        );
    }
    let options = Options {
        namespace: project.namespaced.then(|| project.namespace()),
        ..Options::default()
    };
    let before = files.clone();
    let plan = plan(declaration, &before, &options).expect("nothing is wrong");
    files.apply(&plan);
    let mut said: Vec<String> = plan.notes.clone();
    said.extend(plan.warnings.iter().map(ToString::to_string));
    said.push(match crate::kustomize::build("config/default", &files) {
        Ok(objects) => {
            let mut roles = objects
                .iter()
                .filter(|object| object["metadata"]["name"] == "guestbook-manager-role");
            let role = roles.next().map_or_else(
                || "no role".to_owned(),
                |role| format!("{} {}", role["kind"], role["rules"]),
            );
            format!("rendered, with {role}")
        }
        Err(why) => why.to_string(),
    });
    said.join("\n")
}

#[test]
fn what_is_written_and_what_config_names_agree() {
    let none = Declaration {
        declaration: 1,
        ..Declaration::default()
    };
    let kind = declared(json!({}), |_| {});
    let hook = |mut declaration: Declaration| {
        declaration.webhooks = hooked(|_| {}).webhooks;
        declaration
    };
    let empty = Project::new("guestbook", "my.domain");
    let mut namespaced = empty.clone();
    namespaced.namespaced = true;
    let with = |webhooks: bool| {
        let mut project = empty.clone();
        let mut resource = Resource::own("wrong", "example.org", "v1", "Wrong", true);
        resource.webhooks = webhooks.then(|| Webhooks {
            validation: true,
            ..Webhooks::default()
        });
        project.resources.push(resource);
        project
    };
    let cases = [
        ("nothing at all", &empty, &none),
        ("in one namespace", &namespaced, &none),
        ("a kind without a controller", &with(false), &kind),
        ("webhooks without a controller", &with(true), &hook(kind.clone())),
        ("a kind that is not declared", &with(false), &none),
        ("a webhook that is not declared", &with(true), &kind),
        (
            "a kind and a webhook that PROJECT does not have",
            &empty,
            &hook(kind.clone()),
        ),
    ];
    let all: Vec<String> = cases
        .iter()
        .map(|(name, project, declaration)| format!("# {name}\n{}", written(project, declaration)))
        .collect();
    insta::assert_snapshot!(all.join("\n\n"));
}

#[test]
fn rights_follow_from_what_is_declared() {
    let kind = |group: &str, kind: &str, plural: &str| Kind {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
        namespaced: true,
        rust: String::new(),
    };
    let mut declaration = declared(json!({}), |crd| {
        crd["spec"]["versions"][0]["subresources"] = json!({"status": {}});
    });
    declaration.controllers.push(Controller {
        name: "wrong".to_owned(),
        cluster: None,
        reconciles: kind("wrong.example.org", "Wrong", "wrongs"),
        owns: vec![
            kind("apps", "Deployment", "deployments"),
            kind("", "Service", "services"),
        ],
        watches: vec![kind("", "Secret", "secrets")],
        events: true,
        finalizer: Some("shop.example.com/a".to_owned()),
        rbac: Vec::new(),
    });
    let of_it = declaration.clone();
    let made = |options: &Options| {
        let made = objects(&of_it, &files(), options).expect("nothing is wrong");
        yaml::documents_to_string(&made.roles)
    };
    insta::assert_snapshot!(made(&Options::default()));
    let here = Options {
        namespace: Some("wrong-system".to_owned()),
        ..Options::default()
    };
    assert!(made(&here).contains("kind: Role\nmetadata:\n  name: manager-role\n  namespace: wrong-system\n"));

    // Work in another cluster needs no right here.
    let mut elsewhere = declaration.clone();
    if let Some(controller) = elsewhere.controllers.last_mut() {
        controller.cluster = Some("west".to_owned());
        controller.owns.clear();
    }
    let made_elsewhere = objects(&elsewhere, &files(), &Options::default()).expect("nothing is wrong");
    let made_elsewhere = yaml::documents_to_string(&made_elsewhere.roles);
    assert!(
        made_elsewhere.contains("secrets") && !made_elsewhere.contains("- wrongs"),
        "{made_elsewhere}"
    );

    // Explicit rules belong to that namespace as well; a ClusterRole would have no binding there.
    let rule = |group: &str, resource: &str| Rule {
        groups: vec![group.to_owned()],
        resources: vec![resource.to_owned()],
        verbs: vec!["get".to_owned()],
        ..Rule::default()
    };
    declaration.rbac = vec![rule("wrong.example.org", "wrongs/scale"), rule("core", "secrets")];
    let declare = |declaration: &Declaration| objects(declaration, &files(), &here).expect("nothing is wrong");
    let within = declare(&declaration);
    assert_eq!(within.warnings, Vec::new());
    let made = yaml::documents_to_string(&within.roles);
    assert!(made.contains("wrongs/scale") && !made.contains("ClusterRole"), "{made}");
    declaration.rbac.push(rule("", "nodes/status"));
    declaration.rbac.push(Rule {
        urls: vec!["/metrics".to_owned()],
        verbs: vec!["get".to_owned()],
        ..Rule::default()
    });
    let beyond = declare(&declaration);
    insta::assert_snapshot!(
        "rights_beyond_the_namespace",
        yaml::documents_to_string(&beyond.roles[..1])
    );
    insta::assert_snapshot!("rights_beyond_the_namespace_warn", beyond.warnings[0]);
}

/// The files of a golden project that say what it deploys.
fn golden(name: &str) -> MemoryFiles {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../testdata/golden")
        .join(name);
    let mut files = MemoryFiles::default();
    let mut folders = vec![root.join("config")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let path = path.strip_prefix(&root).unwrap().to_str().unwrap();
            files.0.insert(path.to_owned(), text);
        }
    }
    files
}

/// Where something is allowed (nowhere in particular: everywhere), and what.
type Granted = std::collections::BTreeSet<(String, String)>;

/// What the rendered objects allow the account of the operator's pods.
fn granted(objects: &[Value]) -> Granted {
    let of_kind = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind);
    let deployment = of_kind("Deployment").next().expect("the operator");
    let account = &deployment["spec"]["template"]["spec"]["serviceAccountName"];
    let mut found = Granted::new();
    for (binding, kind) in [("RoleBinding", "Role"), ("ClusterRoleBinding", "ClusterRole")] {
        for binding in of_kind(binding) {
            let is_account = |subject: &Value| {
                subject["name"] == *account && subject["namespace"] == deployment["metadata"]["namespace"]
            };
            if !binding["subjects"].as_array().unwrap().iter().any(is_account) {
                continue;
            }
            let namespace = &binding["metadata"]["namespace"];
            let role = of_kind(kind).find(|role| {
                role["metadata"]["name"] == binding["roleRef"]["name"] && role["metadata"]["namespace"] == *namespace
            });
            let role = role.unwrap_or_else(|| panic!("{binding} binds nothing"));
            found.insert((
                namespace.as_str().unwrap_or_default().to_owned(),
                role["rules"].to_string(),
            ));
        }
    }
    found
}

/// What a test allows the operator: the roles of these files, in the namespaces that they name.
fn in_a_test(files: &MemoryFiles, own: &str) -> Granted {
    let mut found = Granted::new();
    for file in ["role.yaml", "leader_election_role.yaml", "metrics_auth_role.yaml"] {
        let text = files.0.get(&format!("config/rbac/{file}")).expect("a role");
        for role in kustomize::documents(file, text).unwrap() {
            let namespace = match (role["kind"].as_str(), role["metadata"]["namespace"].as_str()) {
                (Some("ClusterRole"), _) => "",
                (_, None | Some("system")) => own,
                (_, Some(namespace)) => namespace,
            };
            found.insert((namespace.to_owned(), role["rules"].to_string()));
        }
    }
    found
}

#[track_caller]
fn test_and_deployment_agree(files: &MemoryFiles, name: &str) {
    let rendered = kustomize::build("config/default", files).unwrap_or_else(|why| panic!("{name}: {why}"));
    let (deployed, tested) = (granted(&rendered), in_a_test(files, &format!("{name}-system")));
    assert_eq!(
        tested.difference(&deployed).collect::<Vec<_>>(),
        Vec::<&(String, String)>::new(),
        "{name}: a test passes, and the deployment is denied"
    );
    // Beyond that a deployment may make its own certificate; in tests nobody needs one.
    let more: Vec<_> = deployed.difference(&tested).collect();
    let is_certificate = |(_, rules): &&(String, String)| {
        rules.contains("webhook-server-cert") || rules.contains("webhookconfigurations")
    };
    assert!(more.iter().all(is_certificate), "{name}: {more:?}");
}

#[test]
fn what_a_test_grants_is_what_the_manifests_grant() {
    for name in ["plain", "multigroup", "core", "external", "conversion", "deploy-image"] {
        test_and_deployment_agree(&golden(name), name);
    }
}

#[test]
fn a_rule_for_another_namespace_reaches_it() {
    let mut files = golden("plain");
    let before = files.clone();
    let rule = |namespace: &str, role_name: &str, resource: &str| Rule {
        groups: vec!["apps".to_owned()],
        resources: vec![resource.to_owned()],
        verbs: vec!["get".to_owned()],
        namespace: namespace.to_owned(),
        role_name: role_name.to_owned(),
        ..Rule::default()
    };
    let mut declaration: Declaration = serde_json::from_value(json!({
        "declaration": 1, "name": "plain", "kubewright": "0.1.0",
        "crds": [], "controllers": [], "webhooks": [], "conversions": [], "rbac": [],
    }))
    .unwrap();
    let write = |declaration: &Declaration, files: &mut MemoryFiles| {
        let there = files.clone();
        files.apply(&plan(declaration, &there, &Options::default()).unwrap());
        // Kinds and webhooks are not declared here, and stay.
        let of_code = there
            .0
            .iter()
            .filter(|(path, _)| path.starts_with(CRDS) || *path == WEBHOOKS);
        files.0.extend(of_code.map(|(path, text)| (path.clone(), text.clone())));
    };
    declaration.rbac = vec![
        rule("", "", "controllerrevisions"),
        rule("infrastructure", "", "deployments"),
        rule("billing", "", "statefulsets"),
        rule("infrastructure", "scaler", "replicasets"),
        rule("billing", "scaler", "daemonsets"),
        rule("", "reader", "deployments/scale"),
    ];
    write(&declaration, &mut files);
    test_and_deployment_agree(&files, "plain");
    let rendered = kustomize::build("config/default", &files).unwrap();
    let there = granted(&rendered);
    for (namespace, resource) in [
        ("", "controllerrevisions"),
        ("infrastructure", "deployments"),
        ("billing", "statefulsets"),
        ("infrastructure", "replicasets"),
        ("billing", "daemonsets"),
        ("", "deployments/scale"),
    ] {
        let resource = format!("{resource:?}");
        assert!(
            there
                .iter()
                .any(|(at, rules)| at == namespace && rules.contains(&resource)),
            "{resource} in {namespace}"
        );
    }
    // What is no longer declared goes, and the lists with it.
    declaration.rbac.truncate(1);
    write(&declaration, &mut files);
    for file in ["config/rbac/kustomization.yaml", "config/default/kustomization.yaml"] {
        assert_eq!(files.0[file], before.0[file]);
    }
    assert!(!files.0.contains_key(NAMESPACES) && !files.0.contains_key(BINDINGS));
    // A file of a person's own is not written over.
    files.0.insert(BINDINGS.to_owned(), "# mine\n".to_owned());
    declaration.rbac = vec![rule("infrastructure", "", "deployments")];
    let refused = plan(&declaration, &files, &Options::default()).err().unwrap();
    assert!(refused[0].to_string().contains("KWR0001"), "{refused:?}");
}

#[test]
fn parts_that_do_not_fit_and_unknown_resources_of_the_own_group_are_told() {
    let rule = |group: &str, resource: &str| Rule {
        groups: vec![group.to_owned()],
        resources: vec![resource.to_owned()],
        verbs: vec!["get".to_owned()],
        ..Rule::default()
    };
    let mut declaration = Declaration {
        rbac: vec![
            rule("shop.example.org", "workitem"),
            rule("shop.example.org", "workitems/status"),
            rule("other.example.org", "workitem"),
        ],
        ..Declaration::default()
    };
    declaration.crds.push(Crd {
        crd: json!({"spec": {"group": "shop.example.org", "names": {"plural": "workitems"}}}),
        ..Crd::default()
    });
    let mut found = Findings::default();
    rbac::roles(&declaration, &files(), None, &mut found);
    assert_eq!(found.errors, Vec::new());
    let told: Vec<String> = found.warnings.iter().map(ToString::to_string).collect();
    assert!(
        told.len() == 1 && told[0].contains("\"workitem\"") && told[0].contains("fix: workitems is meant?"),
        "{told:?}"
    );

    let declaration = Declaration {
        problems: vec!["controller a: an index is there already".to_owned()],
        ..Declaration::default()
    };
    let refused = objects(&declaration, &files(), &Options::default()).expect_err("it would not start");
    let told = refused[0].to_string();
    assert!(
        told.contains("[KWR0395]") && told.contains("an index is there already"),
        "{told}"
    );
}
