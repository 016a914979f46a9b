use super::*;
use crate::MemoryFiles;

const EVERYTHING: &str = r#"# a comment
# of two lines
cliVersion: 0.1.0
domain: testproject.org
layout:
- rust.kubewright.dev/v1-alpha
multigroup: true
namespaced: true
plugins:
  deploy-image.go.kubebuilder.io/v1-alpha:
    resources:
    - domain: testproject.org
      options:
        containerPort: "11211"
        image: memcached:1.6.26-alpine3.19
  grafana.kubebuilder.io/v1-alpha: {}
projectName: project-v4
repo: example.com/project
resources:
- api:
    crdVersion: v1
    namespaced: true
    ssa: true
  controllers:
  - name: captain
  - name: captain-backup
  domain: testproject.org
  group: crew
  kind: Captain
  path: project_v4_api::crew::v1
  plural: admirales
  version: v1
  webhooks:
    conversion: true
    defaulting: true
    defaultingPath: /x
    spoke:
    - v2
    webhookVersion: v1
- api:
    crdVersion: v1
    namespaced: true
  domain: testproject.org
  future: "yes"
  group: crew
  kind: Captain
  plural: admirales
  version: v2
- controller: true
  domain: io
  external: true
  group: cert-manager
  kind: Certificate
  module: cert-manager-api@0.1
  path: cert_manager_api::v1
  version: v1
- core: true
  group: core
  kind: Pod
  path: k8s_openapi::api::core::v1
  version: v1
  webhooks:
    validation: true
    webhookVersion: v1
unheardOf:
- 1
- other: "off"
version: "3"
"#;

#[test]
fn a_file_is_written_as_it_was_read() {
    let project = Project::parse(EVERYTHING).unwrap();
    assert_eq!(project.to_text(), EVERYTHING);
    assert_eq!(project.resources[3].api_version(), "v1");
    assert_eq!(project.resources[2].api_version(), "cert-manager.io/v1");
    assert_eq!(
        project.controller_names(&project.resources[2]),
        ["cert-manager-certificate"]
    );
    assert!(project.has_webhooks() && project.has_admission_webhooks());
    let find = project.find("crew.testproject.org", "v2", "Captain").unwrap();
    assert_eq!(find.plural(), "admirales");
}

#[test]
fn what_cannot_be_is_told_with_its_place() {
    let head = "version: \"3\"\nprojectName: p\nlayout: [rust.kubewright.dev/v1-alpha]\n";
    let cases = [
        "version: [\n".to_owned(),
        "- 1\n".to_owned(),
        "domain: a.b\n".to_owned(),
        "version: \"2\"\n".to_owned(),
        "version: \"3\"\nlayout: [go.kubebuilder.io/v4]\nprojectName: p\n".to_owned(),
        "version: \"3\"\nlayout: rust.kubewright.dev/v1-alpha\n".to_owned(),
        format!("{head}domain: [1]\n"),
        format!("{head}domain: My_Domain\n"),
        format!("{head}projectName: q\n"),
        format!(
            "{head}resources:\n- {{group: g, domain: d.e, version: v1, kind: K}}\n- {{group: g, domain: d.e, version: v1}}\n"
        ),
        format!("{head}resources:\n- {{group: g, domain: d.e, version: v1, kind: k}}\n"),
        format!(
            "{head}resources:\n- {{group: g, domain: d.e, version: v1, kind: K}}\n- {{group: g, domain: d.e, version: v1, kind: K}}\n"
        ),
        format!(
            "{head}resources:\n- {{group: g, domain: d.e, version: v1, kind: K, controllers: [{{name: a-b}}, {{name: a-b}}]}}\n"
        ),
        format!(
            "{head}resources:\n- {{group: g, domain: d.e, version: v1, kind: K, webhooks: {{conversion: true, spoke: [v2]}}}}\n"
        ),
        format!("{head}resources:\n- {{grup: g, domain: d.e, version: v1, kind: K}}\n"),
        format!("{head}resources:\n- {{group: g, domain: d.e, version: v1, kind: K, webhooks: {{defaultng: true}}}}\n"),
        format!("{head}multigruop: true\n"),
    ];
    let told: Vec<String> = cases
        .iter()
        .map(|text| match Project::parse(text) {
            Ok(_) => format!("{text}=> fine"),
            Err(wrong) => format!("{}\n=> {wrong}", text.replace(head, "…\n").trim_end()),
        })
        .collect();
    insta::assert_snapshot!(told.join("\n\n"));
}

#[test]
fn a_folder_without_the_file_is_no_project() {
    let wrong = Project::load(&MemoryFiles::default()).unwrap_err();
    assert_eq!(wrong.code, codes::project::NONE);
}
