use super::*;
use crate::plan::MemoryFiles;

fn project() -> MemoryFiles {
    let mut files = MemoryFiles::default();
    let options = Init {
        name: "web-operator".to_owned(),
        domain: "example.com".to_owned(),
        namespaced: false,
        multigroup: false,
        cli_version: "0.1.0".to_owned(),
    };
    let before = files.clone();
    let plan = init(&before, &options).expect("a new project");
    files.apply(&plan);
    files
}

fn api() -> CreateApi {
    CreateApi {
        group: String::new(),
        version: String::new(),
        kind: String::new(),
        plural: None,
        chart: Chart {
            name: "my-web".to_owned(),
            values: "# The image.\nimage: nginx\n\nreplicas: 1\n".to_owned(),
            schema: Some(json!({"type": "object", "properties": {"replicas": {"type": "integer", "minimum": 0}}})),
            rendered: vec![
                json!({"apiVersion": "apps/v1", "kind": "Deployment"}),
                json!({"apiVersion": "v1", "kind": "Service"}),
                json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress"}),
                json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": [
                    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
                ]}),
            ],
        },
        force: false,
    }
}

#[test]
fn a_project_runs_the_operator_of_charts() {
    let files = project();
    let read = |path: &str| {
        files
            .0
            .get(path)
            .cloned()
            .unwrap_or_else(|| panic!("there is no {path}"))
    };
    assert!(
        read("PROJECT").contains("layout:\n- helm.sdk.operatorframework.io/v1\n"),
        "{}",
        read("PROJECT")
    );
    assert!(read("watches.yaml").ends_with("# +kubebuilder:scaffold:watch\n"));
    let manager = read("config/manager/manager.yaml");
    assert!(
        !manager.contains("/manager") && manager.contains("mountPath: /tmp") && manager.contains("- --leader-elect"),
        "{manager}"
    );
    assert!(read("config/metrics/manager_metrics_patch.yaml").contains("--metrics-require-rbac"));
    assert!(read("config/rbac/role.yaml").contains("kind: ClusterRole"));
    let again = init(
        &files,
        &Init {
            name: "web-operator".to_owned(),
            domain: String::new(),
            namespaced: false,
            multigroup: false,
            cli_version: String::new(),
        },
    );
    let why = again.map(|_| ()).expect_err("there is one already").to_string();
    assert!(why.contains("has a project already"), "{why}");
}

#[test]
fn a_kind_is_a_chart() {
    let mut files = project();
    let before = files.clone();
    let plan = create_api(&before, &api()).expect("a kind");
    files.apply(&plan);
    let read = |path: &str| {
        files
            .0
            .get(path)
            .cloned()
            .unwrap_or_else(|| panic!("there is no {path}"))
    };
    assert!(
        read("watches.yaml").contains(
            "- group: charts.example.com\n  version: v1alpha1\n  kind: MyWeb\n  chart: helm-charts/my-web\n# +kubebuilder:scaffold:watch\n"
        ),
        "{}",
        read("watches.yaml")
    );
    let sample = read("config/samples/charts_v1alpha1_myweb.yaml");
    assert!(
        sample.contains("kind: MyWeb\n") && sample.contains("  image: nginx\n\n  replicas: 1\n"),
        "{sample}"
    );
    let definition = crate::yaml::parse(&read("config/crd/bases/charts.example.com_mywebs.yaml")).expect("YAML");
    let spec = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    assert_eq!(spec["properties"]["replicas"], json!({"type": "integer", "minimum": 0}));
    assert_eq!(spec["x-kubernetes-preserve-unknown-fields"], true);
    let role = crate::yaml::parse(&read("config/rbac/role.yaml")).expect("YAML");
    let rules = role["rules"].as_array().cloned().unwrap_or_default();
    for (group, resource) in [
        ("apps", "deployments"),
        ("", "services"),
        ("networking.k8s.io", "ingresses"),
        ("rbac.authorization.k8s.io", "roles"),
        ("", "pods"),
        ("charts.example.com", "mywebs/status"),
        ("", "secrets"),
    ] {
        let has = |rule: &Value| {
            let names = |field: &str, name: &str| rule[field].as_array().is_some_and(|all| all.contains(&json!(name)));
            names("apiGroups", group) && names("resources", resource)
        };
        assert!(rules.iter().any(has), "{group} {resource}: {role}");
    }
    // A second time it is refused; by force it changes nothing.
    let why = create_api(&files, &api())
        .map(|_| ())
        .expect_err("it is there")
        .to_string();
    assert!(
        why.contains("has the kind charts.example.com/v1alpha1 MyWeb already"),
        "{why}"
    );
    let again = CreateApi { force: true, ..api() };
    let before = files.clone();
    let plan = create_api(&before, &again).expect("by force");
    assert!(
        plan.is_empty(),
        "{:?}",
        plan.changes().map(|(path, _)| path).collect::<Vec<_>>()
    );
    // Another chart for the kind takes the place of the first.
    let mut other = CreateApi {
        force: true,
        kind: "MyWeb".to_owned(),
        ..api()
    };
    other.chart.name = "other".to_owned();
    let plan = create_api(&before, &other).expect("by force");
    files.apply(&plan);
    let entry = "  kind: MyWeb\n  chart: helm-charts/other\n# +kubebuilder:scaffold:watch\n";
    let watches = &files.0["watches.yaml"];
    assert!(
        watches.contains(entry) && watches.matches("kind:").count() == 1,
        "{watches}"
    );
}
