//! The files of a project of Ansible that do not depend on its kinds, and those of a role.

pub(super) const REQUIREMENTS: &str = "---
# The collections that the roles use: ansible-galaxy collection install -r requirements.yml
collections:
- name: operator_sdk.util
- name: kubernetes.core
";

pub(super) const DOCKERFILE: &str = r#"# The operator: kubewright beside Python, ansible-core and ansible-runner, with the roles. IMAGE has a kubewright on its
# PATH.
ARG IMAGE=ghcr.io/kubewright/kubewright:latest
FROM ${IMAGE} AS kubewright

FROM python:3.12-slim
RUN pip install --no-cache-dir ansible-core ansible-runner ansible-runner-http kubernetes
COPY --from=kubewright /usr/local/bin/kubewright /usr/local/bin/kubewright

ENV HOME=/opt/ansible
WORKDIR ${HOME}
COPY requirements.yml ${HOME}/requirements.yml
RUN ansible-galaxy collection install -r requirements.yml -p /usr/share/ansible/collections
COPY watches.yaml ${HOME}/watches.yaml
COPY roles/ ${HOME}/roles/
COPY playbooks/ ${HOME}/playbooks/
RUN useradd --uid 1001 --gid 0 --no-create-home --home-dir ${HOME} ansible
USER 1001
ENTRYPOINT ["kubewright", "ansible-operator", "run", "--watches-file=./watches.yaml"]
"#;

/// How `make run` runs the operator.
pub(super) const RUN: &str =
    "ANSIBLE_ROLES_PATH=\"$(ANSIBLE_ROLES_PATH):$(shell pwd)/roles\" $(KUBEWRIGHT) ansible-operator run";

/// The files of a role, below its folder.
pub(super) fn role(kind: &str) -> Vec<(&'static str, String)> {
    let main = |what: &str| format!("---\n# {what} of the role of {kind}.\n");
    vec![
        ("README.md", format!("# The role of {kind}\n\nMakes what a {kind} asks for. The fields of its spec are variables; `defaults/main.yml` has their defaults.\n")),
        ("defaults/main.yml", main("Defaults of the variables")),
        ("files/.placeholder", String::new()),
        ("handlers/main.yml", main("Handlers")),
        ("meta/main.yml", "---\ngalaxy_info:\n  description: The role of an operator.\n  license: Apache-2.0\n  min_ansible_version: \"2.15\"\n  galaxy_tags: []\ndependencies: []\ncollections:\n- operator_sdk.util\n- kubernetes.core\n".to_owned()),
        ("tasks/main.yml", main("Tasks")),
        ("templates/.placeholder", String::new()),
        ("vars/main.yml", main("Variables that users do not override")),
    ]
}

/// The playbook of a kind.
pub(super) fn playbook(name: &str, role: bool) -> String {
    let tasks = match role {
        true => format!("  tasks:\n  - ansible.builtin.import_role:\n      name: {name}\n"),
        false => "  tasks: []\n".to_owned(),
    };
    format!(
        "---\n- hosts: localhost\n  gather_facts: false\n  collections:\n  - kubernetes.core\n  - operator_sdk.util\n{tasks}"
    )
}
