//! `explore` with operators of roles: what is right comes right, and a planted bug in a role is found.

use super::*;

/// A role that asks whether it has worked already, and asks the wrong thing: a process that dies between its two writes
/// leaves the second undone for good.
const HASTY: &str = r#"
- name: look
  kubernetes.core.k8s_info: {api_version: v1, kind: ConfigMap, name: "{{ name }}-first", namespace: "{{ namespace }}"}
  register: first
- when: first.resources | length == 0
  block:
  - name: first
    kubernetes.core.k8s:
      definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ name }}-first", namespace: "{{ namespace }}"}}
  - name: second
    kubernetes.core.k8s:
      definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ name }}-second", namespace: "{{ namespace }}"}}
"#;

const VARIABLES: &str =
    "name: \"{{ ansible_operator_meta.name }}\"\nnamespace: \"{{ ansible_operator_meta.namespace }}\"\n";

/// Explores the project, and returns the report.
fn explores(typist: &Typist, arguments: &[&str]) -> serde_json::Value {
    let operator = format!(
        "TMPDIR=$(mktemp -d) exec {KUBEWRIGHT} ansible-operator run --proxy-port 0 --metrics-bind-address 0 \
         --health-probe-bind-address 0"
    );
    let mut command = typist.command("explore --output json --samples config/samples --crds config/crd/bases");
    let output = command.args(["--command", &operator]).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = said.lines().last().and_then(|line| serde_json::from_str(line).ok());
    last.unwrap_or_else(|| panic!("no report: {said}{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
#[ignore = "needs Ansible: KUBEWRIGHT_ANSIBLE names a virtual environment with it"]
fn a_planted_bug_in_a_role_is_found() {
    let environment = std::env::var_os("KUBEWRIGHT_ANSIBLE").expect("KUBEWRIGHT_ANSIBLE names a virtual environment");
    let typist = Typist::new(vec![("VIRTUAL_ENV", PathBuf::from(environment))]);
    typist.types("init --plugins ansible --domain example.com --project-name memcached-operator");
    typist.types("create api --group cache --version v1alpha1 --kind Memcached --generate-role");
    typist.write("roles/memcached/tasks/main.yml", HASTY);
    typist.write("roles/memcached/vars/main.yml", VARIABLES);
    // Python works for seconds between two requests.
    let times = ["--rest", "10s", "--patience", "60s", "--budget", "5m"];
    let report = explores(&typist, &times);
    let is_it = |finding: &&serde_json::Value| finding.to_string().contains("memcached-sample-second");
    let findings = report["findings"].as_array().unwrap();
    let mut found = findings.iter().filter(|finding| !finding["id"].is_null());
    let found = found.find(is_it).unwrap_or_else(|| panic!("it is not found: {report}"));
    let fault = found["id"].as_str().unwrap();

    // Without the bug, each object is asked for by itself, and the same fault comes right.
    let right = HASTY.replace("- when: first.resources | length == 0", "- when: true");
    typist.write("roles/memcached/tasks/main.yml", &right);
    let report = explores(&typist, &[&times[..], &["--replay", fault]].concat());
    let findings = report["findings"].as_array().unwrap();
    let found: Vec<_> = findings.iter().filter(|finding| !finding["id"].is_null()).collect();
    assert!(found.is_empty(), "{fault}: {found:?}");
}
