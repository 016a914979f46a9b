//! The parts of a project's `config/`: files, and items of the lists in kustomizations.
//!
//! A [`Tree`] is a pure function of the [`Project`]; [`super::sync`] brings a folder from one tree to another. Not
//! here: the three kinds of file that are written from the code (`crd/bases`, `rbac/role.yaml`,
//! `webhook/manifests.yaml`); the lists only name them.

use std::collections::{BTreeMap, BTreeSet};

use minijinja::{Value, context};

use super::lists::Item;
use super::templates::render;
use crate::project::{Project, Resource};

/// A project's `config/`.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// Files as they are first written. Users may edit them; they are changed only when the project changes their
    /// contents.
    pub(super) files: BTreeMap<String, String>,
    /// Kustomizations as they are first written; later only their lists are edited.
    pub(super) kustomizations: BTreeMap<String, String>,
    /// Items of lists in kustomizations, beyond those of the first text, in the order in which they are added.
    pub(super) items: Vec<Item>,
    /// Files of single kinds, which go with them even if they were edited.
    pub(super) of_kinds: BTreeSet<String>,
}

/// The kustomization of all that is deployed.
pub(crate) const DEFAULT: &str = "config/default/kustomization.yaml";

const WEBHOOK_COMMENT: &str =
    "# Receive webhooks: a Service, what the API server sends to it, and where the operator finds its certificate.";
const CERTIFICATES_COMMENT: &str =
    "# Let the operator make its certificate itself, with nothing installed. Either this or ../certmanager below.";
const CERTMANAGER: &str = "# Let cert-manager, which must be in the cluster, make the certificates and tell the API server whom to trust.\n\
                           #- ../certmanager\n\
                           # Serve metrics with a certificate of cert-manager's too; stands after ../prometheus, which then checks it.\n\
                             #- ../metrics-certs";

impl Tree {
    /// The tree of a project. `is_grouped`: whether the role files of a kind are named after its group too.
    pub(super) fn of(project: &Project, is_grouped: &dyn Fn(&Resource) -> bool) -> Tree {
        let mut tree = Tree::default();
        let values = context! { project => project.name, namespaced => project.namespaced };
        tree.always(&values);
        if project.namespaced {
            tree.file("manager/watch_namespace_patch.yaml", &values);
            tree.item(
                "config/manager/kustomization.yaml",
                "patches",
                "path: watch_namespace_patch.yaml",
            );
        }
        tree.images_of_kinds(project);
        let mut kinds: Vec<&Resource> = Vec::new();
        for api in project.apis() {
            tree.sample(project, api);
            if !kinds.iter().any(|other| other.same_kind(api)) {
                kinds.push(api);
                tree.kind(project, api, is_grouped(api));
            }
        }
        if !kinds.is_empty() {
            tree.kustomization("crd", &values);
            tree.file("crd/kustomizeconfig.yaml", &values);
            tree.kustomization("samples", &values);
            tree.item(DEFAULT, "resources", "../crd");
        }
        if project.has_webhooks() {
            tree.webhooks(project, is_grouped, &values);
        }
        tree
    }

    fn file(&mut self, template: &str, values: &Value) {
        self.files
            .insert(format!("config/{template}"), render(template, values));
    }

    fn kustomization(&mut self, folder: &str, values: &Value) {
        let template = format!("{folder}/kustomization.yaml");
        let text = render(&template, values);
        self.kustomizations.insert(format!("config/{template}"), text);
    }

    fn item(&mut self, file: &str, list: &'static str, yaml: impl Into<String>) {
        self.items.push(Item::new(file, list, yaml));
    }

    /// A file of one kind, and the item that names it.
    fn of_kind(&mut self, folder: &str, file: &str, list: &'static str, text: String) {
        let path = format!("config/{folder}/{file}");
        self.files.insert(path.clone(), text);
        self.of_kinds.insert(path);
        let yaml = if list == "patches" {
            format!("path: {file}")
        } else {
            file.to_owned()
        };
        self.item(&format!("config/{folder}/kustomization.yaml"), list, yaml);
    }

    fn always(&mut self, values: &Value) {
        for folder in ["default", "manager", "rbac", "metrics", "prometheus", "network-policy"] {
            self.kustomization(folder, values);
        }
        for file in [
            "default/names.yaml",
            "default/replacements.yaml",
            "manager/manager.yaml",
            "metrics/manager_metrics_patch.yaml",
            "metrics/metrics_service.yaml",
            "network-policy/allow-metrics-traffic.yaml",
            "prometheus/monitor.yaml",
            "rbac/leader_election_role.yaml",
            "rbac/leader_election_role_binding.yaml",
            "rbac/metrics_auth_role.yaml",
            "rbac/metrics_auth_role_binding.yaml",
            "rbac/metrics_reader_role.yaml",
            "rbac/role_binding.yaml",
            "rbac/service_account.yaml",
        ] {
            self.file(file, values);
        }
    }

    /// An example of one version of a kind.
    fn sample(&mut self, project: &Project, api: &Resource) {
        let deployed = project.deployed_image(api);
        let values = context! {
            project => project.name,
            api_version => api.api_version(),
            kind => api.kind,
            name => format!("{}-sample", api.kind.to_lowercase()),
            deploys_image => deployed.is_some(),
            port => deployed.and_then(|options| options.container_port),
        };
        let text = render("samples/sample.yaml", &values);
        self.of_kind(
            "samples",
            &format!("{}.yaml", stem(api, &api.version)),
            "resources",
            text,
        );
    }

    /// The files of a kind of the project's own, for all its versions: its definition and three roles for people.
    fn kind(&mut self, project: &Project, api: &Resource, is_grouped: bool) {
        let (group, plural) = (api.full_group(), api.plural());
        self.item(
            "config/crd/kustomization.yaml",
            "resources",
            format!("bases/{group}_{plural}.yaml"),
        );
        let kind = api.kind.to_lowercase();
        let (prefix, file_prefix) = if is_grouped {
            (format!("{}-", group_word(api)), format!("{}_", group_word(api)))
        } else {
            (String::new(), String::new())
        };
        for (role, purpose, verbs) in ROLES {
            let values = context! {
                project => project.name,
                // A Role in a namespace grants nothing on cluster-scoped kinds.
                namespaced => project.namespaced && api.api.as_ref().is_some_and(|api| api.namespaced),
                purpose => purpose.replace("KIND", &api.kind),
                name => format!("{prefix}{kind}-{role}-role"),
                group => group,
                plural => plural,
                verbs => verbs,
            };
            let text = render("rbac/kind_role.yaml", &values);
            self.of_kind(
                "rbac",
                &format!("{file_prefix}{kind}_{role}_role.yaml"),
                "resources",
                text,
            );
        }
    }

    fn webhooks(&mut self, project: &Project, is_grouped: &dyn Fn(&Resource) -> bool, values: &Value) {
        for folder in ["webhook", "certificates", "certmanager", "metrics-certs"] {
            self.kustomization(folder, values);
        }
        let hubs = project.apis().filter(|api| is_hub(api));
        let definitions: Vec<String> = hubs
            .map(|hub| format!("{}.{}", hub.plural(), hub.full_group()))
            .collect();
        self.file("certificates/role.yaml", &context! { definitions, ..values.clone() });
        for file in [
            "certificates/manager_certificates_patch.yaml",
            "certificates/manager_volume_patch.yaml",
            "certificates/role_binding.yaml",
            "certmanager/ca_injection_patch.yaml",
            "certmanager/certificate-metrics.yaml",
            "certmanager/certificate-webhook.yaml",
            "certmanager/issuer.yaml",
            "certmanager/kustomizeconfig.yaml",
            "metrics-certs/manager_metrics_certs_patch.yaml",
            "metrics-certs/monitor_tls_patch.yaml",
            "network-policy/allow-webhook-traffic.yaml",
            "webhook/manager_webhook_patch.yaml",
            "webhook/service.yaml",
        ] {
            self.file(file, values);
        }
        self.item(
            "config/network-policy/kustomization.yaml",
            "resources",
            "allow-webhook-traffic.yaml",
        );
        let component = |yaml: &str, comment, trailer| Item {
            comment,
            trailer,
            ..Item::new(DEFAULT, "components", yaml)
        };
        self.items.push(component("../webhook", WEBHOOK_COMMENT, ""));
        self.items
            .push(component("../certificates", CERTIFICATES_COMMENT, CERTMANAGER));
        if project.has_admission_webhooks() {
            self.item("config/webhook/kustomization.yaml", "resources", "manifests.yaml");
        }
        for hub in project.apis().filter(|api| is_hub(api)) {
            self.conversion(hub, is_grouped(hub), values);
        }
    }

    /// A kind whose versions the operator converts.
    fn conversion(&mut self, hub: &Resource, is_grouped: bool, values: &Value) {
        let name = format!("{}.{}", hub.plural(), hub.full_group());
        let values = context! { name => name, ..values.clone() };
        let text = render("crd/conversion_patch.yaml", &values);
        let group = if is_grouped {
            format!("{}_", group_word(hub))
        } else {
            String::new()
        };
        let file = format!("patches/webhook_in_{group}{}.yaml", hub.plural());
        self.of_kind("crd", &file, "patches", text);
        self.item(
            "config/certmanager/kustomization.yaml",
            "patches",
            format!("path: ca_injection_patch.yaml\ntarget:\n  kind: CustomResourceDefinition\n  name: {name}"),
        );
    }

    /// Kinds that the plugin deploy-image made have an image, which the operator is told in its environment.
    fn images_of_kinds(&mut self, project: &Project) {
        for deployed in project.deployed() {
            let kind = deployed.kind.to_lowercase();
            let values = context! {
                kind => deployed.kind,
                variable => deployed.variable(),
                // In quotes where YAML would read something else than a text.
                image => crate::yaml::to_string(&deployed.options.image.into()).trim_end(),
            };
            let text = render("manager/image_patch.yaml", &values);
            self.of_kind("manager", &format!("{kind}_image_patch.yaml"), "patches", text);
        }
    }
}

/// Name, purpose and verbs of the roles that people get.
const ROLES: [(&str, &str, &[&str]); 3] = [
    ("admin", "Everything with KIND objects", &["\"*\""]),
    (
        "editor",
        "Make, change and delete KIND objects",
        &["create", "delete", "get", "list", "patch", "update", "watch"],
    ),
    ("viewer", "Look at KIND objects", &["get", "list", "watch"]),
];

/// Whether versions are converted through this one.
fn is_hub(api: &Resource) -> bool {
    api.webhooks.as_ref().is_some_and(|webhooks| webhooks.conversion)
}

/// The group as it stands in file names: without the domain, unless the domain is all there is.
fn group_word(api: &Resource) -> &str {
    if api.group.is_empty() { &api.domain } else { &api.group }
}

fn stem(api: &Resource, version: &str) -> String {
    format!("{}_{version}_{}", group_word(api), api.kind.to_lowercase())
}
