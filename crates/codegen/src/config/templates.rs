//! The texts of the files below `config/`, one template each in `templates/config`.
//!
//! Templates are compiled in. Not here: which of them a project has ([`super::tree`]).

use minijinja::{Environment, UndefinedBehavior, Value};

macro_rules! templates {
    ($($path:literal),* $(,)?) => {
        /// Path below `config/`, and text.
        const TEMPLATES: &[(&str, &str)] = &[$(($path, include_str!(concat!("../../templates/config/", $path)))),*];
    };
}

templates![
    "certificates/kustomization.yaml",
    "certificates/manager_certificates_patch.yaml",
    "certificates/manager_volume_patch.yaml",
    "certificates/role.yaml",
    "certificates/role_binding.yaml",
    "certmanager/ca_injection_patch.yaml",
    "certmanager/certificate-metrics.yaml",
    "certmanager/certificate-webhook.yaml",
    "certmanager/issuer.yaml",
    "certmanager/kustomization.yaml",
    "certmanager/kustomizeconfig.yaml",
    "crd/conversion_patch.yaml",
    "crd/kustomization.yaml",
    "crd/kustomizeconfig.yaml",
    "default/kustomization.yaml",
    "default/names.yaml",
    "default/replacements.yaml",
    "manager/image_patch.yaml",
    "manager/kustomization.yaml",
    "manager/manager.yaml",
    "manager/watch_namespace_patch.yaml",
    "metrics-certs/kustomization.yaml",
    "metrics-certs/manager_metrics_certs_patch.yaml",
    "metrics-certs/monitor_tls_patch.yaml",
    "metrics/kustomization.yaml",
    "metrics/manager_metrics_patch.yaml",
    "metrics/metrics_service.yaml",
    "network-policy/allow-metrics-traffic.yaml",
    "network-policy/allow-webhook-traffic.yaml",
    "network-policy/kustomization.yaml",
    "prometheus/kustomization.yaml",
    "prometheus/monitor.yaml",
    "rbac/kind_role.yaml",
    "rbac/kustomization.yaml",
    "rbac/leader_election_role.yaml",
    "rbac/leader_election_role_binding.yaml",
    "rbac/metrics_auth_role.yaml",
    "rbac/metrics_auth_role_binding.yaml",
    "rbac/metrics_reader_role.yaml",
    "rbac/role_binding.yaml",
    "rbac/service_account.yaml",
    "samples/kustomization.yaml",
    "samples/sample.yaml",
    "webhook/kustomization.yaml",
    "webhook/manager_webhook_patch.yaml",
    "webhook/service.yaml",
];

/// The text of a template with these values. Every name that the template uses must be among them.
pub(super) fn render(template: &str, values: &Value) -> String {
    let (_, text) = TEMPLATES
        .iter()
        .find(|(path, _)| *path == template)
        .expect("the path is one of the list above");
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_keep_trailing_newline(true);
    environment
        .render_str(text, values)
        .expect("a template uses only what it is given; every one is rendered by the tests of the tree")
}
