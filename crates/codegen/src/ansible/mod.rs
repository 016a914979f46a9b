//! Projects without code whose kinds are Ansible roles and playbooks: `init --plugins ansible`, `create api
//! --generate-role`.
//!
//! The layout is operator-sdk's: `watches.yaml`, `roles/`, `playbooks/`, `requirements.yml`, `config/`, a Dockerfile.
//! `config/` follows PROJECT as in every project ([`crate::config`]); the definition of a kind and the role of the
//! operator are written here, because there is no code that would say them.

mod texts;

use serde_json::{Value, json};

use crate::diagnostic::Diagnostic;
use crate::names;
use crate::plan::{Files, Plan};
use crate::project::{self, ANSIBLE_LAYOUT as LAYOUT, Project, Resource};
pub use crate::without_code::Init;
use crate::without_code::{self, ROLE, WATCHES, wrong};
use crate::yaml;

/// Whether a key of `--plugins` is this layout.
#[must_use]
pub fn is_layout(key: &str) -> bool {
    [LAYOUT, "ansible.sdk.operatorframework.io", "ansible/v1", "ansible"].contains(&key)
}

/// Whether a project has this layout.
#[must_use]
pub fn is_of_ansible(project: &Project) -> bool {
    project.layout.iter().any(|key| key == LAYOUT)
}

/// Plans a new project.
///
/// # Errors
/// When a name cannot be used, or something is in the way.
pub fn init<'a>(files: &'a dyn Files, options: &Init) -> Result<Plan<'a>, Diagnostic> {
    let project = options.project(files, LAYOUT, &["requirements.yml"])?;
    let mut plan = Plan::new(files);
    crate::config::sync(None, &project, &mut plan)?;
    runs_roles(&mut plan, &options.name)?;
    plan.write(project::FILE, project.to_text())?;
    plan.write(WATCHES, without_code::no_watches("role or playbook"))?;
    plan.write("Dockerfile", texts::DOCKERFILE)?;
    plan.write("Makefile", without_code::makefile(texts::RUN))?;
    plan.write("requirements.yml", texts::REQUIREMENTS)?;
    plan.write("roles/.placeholder", "")?;
    plan.write("playbooks/.placeholder", "")?;
    if plan.read(".gitignore")?.is_none() {
        plan.write(".gitignore", "/bin/\n/.kubewright/\n*.retry\n*.swp\n*~\n")?;
    }
    let rules = role(&project, &plan)?;
    plan.write(ROLE, rules)?;
    plan.next
        .push("kubewright create api --group GROUP --version v1alpha1 --kind KIND --generate-role".to_owned());
    Ok(plan)
}

/// The manager of `config/` is the operator of roles: its image runs it.
fn runs_roles(plan: &mut Plan<'_>, name: &str) -> Result<(), Diagnostic> {
    let elect = format!("        - --leader-elect\n        - --leader-election-id={name}\n");
    let edits: [(&str, &str, &str); 6] = [
        (
            "config/manager/manager.yaml",
            "        command:\n        - /manager\n",
            "",
        ),
        ("config/manager/manager.yaml", "        - --leader-elect\n", &elect),
        ("config/manager/manager.yaml", "8081", "6789"),
        // Python and Ansible need as much for each run.
        ("config/manager/manager.yaml", "memory: 128Mi", "memory: 768Mi"),
        (
            "config/manager/manager.yaml",
            "        volumeMounts: []\n      volumes: []\n",
            "        env:\n        - name: ANSIBLE_GATHERING\n          value: explicit\n        - name: ANSIBLE_HOME\n          value: /tmp/.ansible\n        volumeMounts:\n        - name: tmp\n          \
             mountPath: /tmp\n      volumes:\n      - name: tmp\n        emptyDir: {}\n",
        ),
        (
            "config/metrics/manager_metrics_patch.yaml",
            "  value: --metrics-bind-address=:8443\n",
            "  value: --metrics-bind-address=:8443\n- op: add\n  path: /spec/template/spec/containers/0/args/0\n  value: --metrics-secure\n",
        ),
    ];
    for (path, from, to) in edits {
        let text = plan.read(path)?.unwrap_or_default();
        debug_assert!(text.contains(from), "{path} has {from:?}");
        plan.write(path, text.replace(from, to))?;
    }
    Ok(())
}

/// The options of `create api`.
#[derive(Debug, Clone, Default)]
pub struct CreateApi {
    /// The group without the domain.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The plural, when it does not follow from the kind.
    pub plural: Option<String>,
    /// Whether there is to be a role (`--generate-role`).
    pub role: bool,
    /// Whether there is to be a playbook (`--generate-playbook`), which runs the role if there is one.
    pub playbook: bool,
    /// Whether to write over existing files.
    pub force: bool,
}

/// Plans a kind.
///
/// # Errors
/// When a name cannot be used, the kind is there, or a file is in the way.
pub fn create_api<'a>(files: &'a dyn Files, options: &CreateApi) -> Result<Plan<'a>, Diagnostic> {
    let mut plan = Plan::new(files);
    let before = Project::load(&plan)?;
    let attempted = format!("cannot create the API {}", options.kind);
    names::kind(&options.kind).map_err(|bad| wrong(&attempted, "--kind", &options.kind, &bad))?;
    names::version(&options.version).map_err(|bad| wrong(&attempted, "--version", &options.version, &bad))?;
    let mut resource = Resource::own(&options.group, &before.domain, &options.version, &options.kind, true);
    resource.plural.clone_from(&options.plural);
    let project = without_code::add(&mut plan, &resource, options.force)?;
    let name = resource.kind.to_lowercase();
    let runs = match (options.playbook, options.role) {
        (true, _) => format!("  playbook: playbooks/{name}.yml\n"),
        (false, true) => format!("  role: {name}\n"),
        (false, false) => "  # Say what is run for the kind: a role or a playbook.\n  # role: NAME\n".to_owned(),
    };
    without_code::watch(&mut plan, &resource, &runs)?;
    plan.write(
        &format!("config/crd/bases/{}_{}.yaml", resource.full_group(), resource.plural()),
        definition(&resource),
    )?;
    let sample = format!("config/samples/{}_{}_{name}.yaml", resource.group, resource.version);
    let text = format!(
        "apiVersion: {}\nkind: {}\nmetadata:\n  name: {name}-sample\nspec:\n  # Each field becomes a variable of the role: fooBar is foo_bar.\n  size: 1\n",
        resource.api_version(),
        resource.kind
    );
    plan.write(&sample, text)?;
    if options.role {
        for (file, text) in texts::role(&resource.kind) {
            let path = format!("roles/{name}/{file}");
            if options.force || plan.read(&path)?.is_none() {
                plan.write(&path, text)?;
            }
        }
    }
    if options.playbook {
        plan.write(&format!("playbooks/{name}.yml"), texts::playbook(&name, options.role))?;
    }
    let rules = role(&project, &plan)?;
    plan.write(ROLE, rules)?;
    plan.notes.push(format!(
        "{ROLE} has the kinds and what a small role makes; add what yours makes"
    ));
    plan.next.push("kubewright install".to_owned());
    plan.next.push("kubewright ansible-operator run".to_owned());
    Ok(plan)
}

fn definition(resource: &Resource) -> String {
    let any = |what: &str| json!({"type": "object", "description": what, "x-kubernetes-preserve-unknown-fields": true});
    let about = format!("A {}: what an Ansible role makes.", resource.kind);
    let spec = any("The variables of the role.");
    let status = any("The conditions of the last run, and what the role writes.");
    without_code::definition(resource, &about, None, spec, status)
}

/// The role of the operator: what a small role of Ansible makes, and its kinds. What somebody added stays.
fn role(project: &Project, plan: &Plan<'_>) -> Result<String, Diagnostic> {
    let all = json!(["create", "delete", "get", "list", "patch", "update", "watch"]);
    let rule = |group: &str, resources: Value| json!({"apiGroups": [group], "resources": resources, "verbs": all});
    let text = plan.read(ROLE)?.unwrap_or_default();
    let known = kubewright_schema::decode::yaml(text.as_bytes())
        .map(|read| read.value)
        .unwrap_or_default();
    let mut rules = match known["rules"].as_array() {
        Some(rules) => rules.clone(),
        None => vec![
            rule(
                "",
                json!([
                    "configmaps",
                    "events",
                    "pods",
                    "pods/exec",
                    "pods/log",
                    "secrets",
                    "services"
                ]),
            ),
            rule(
                "apps",
                json!(["daemonsets", "deployments", "replicasets", "statefulsets"]),
            ),
            rule("events.k8s.io", json!(["events"])),
        ],
    };
    for resource in &project.resources {
        let plural = resource.plural();
        let resources = json!([plural, format!("{plural}/status"), format!("{plural}/finalizers")]);
        let own = rule(&resource.full_group(), resources);
        if !rules.contains(&own) {
            rules.push(own);
        }
    }
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": if project.namespaced { "Role" } else { "ClusterRole" },
        "metadata": {"name": "manager-role"},
        "rules": rules,
    });
    Ok(format!(
        "# What the operator may do; kubewright create api adds to it.\n{}",
        yaml::to_string(&role)
    ))
}

#[cfg(test)]
mod tests;
