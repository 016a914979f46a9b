//! The values in each object, and the file that it stands in.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::text::{MARK, Pieces};
use super::values::Defaults;
use crate::codes;
use crate::config::split_image;
use crate::diagnostic::{Diagnostic, Place};
use crate::project::Project;

/// The templates, by their path below `templates/`, and the initial values.
pub(super) struct Templates {
    pub(super) files: BTreeMap<String, String>,
    pub(super) defaults: Defaults,
}

/// Names that the release decides, each with the expression that stands for it.
struct Names {
    project: String,
    expressions: BTreeMap<String, String>,
    namespace: String,
}

pub(super) fn templates(project: &Project, objects: &[Value]) -> Result<Templates, Diagnostic> {
    if let Some(object) = objects.iter().find(|object| object.to_string().contains(MARK)) {
        return Err(Diagnostic::new(codes::config::UNSUPPORTED, "cannot make a chart")
            .at(Place::file("config/default").field(name(object)))
            .because(format!(
                "the object says {MARK}, which the command itself uses to mark places"
            ))
            .fix("choose another word"));
    }
    let names = Names::of(project, objects);
    let mut defaults = Defaults {
        project: project.name.clone(),
        ..defaults(objects)
    };
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for object in objects.iter().filter(|object| object["kind"] != "Namespace") {
        let (folder, condition) = place(object, &names);
        let mut pieces = Pieces::default();
        let mut changed = object.clone();
        let is_crd = object["kind"] == "CustomResourceDefinition";
        if object["kind"] == "Deployment" && object["metadata"]["labels"]["control-plane"] == "controller-manager" {
            // Before the names: a field that becomes a value cannot ask the release.
            deployment(&mut changed, &mut pieces, &mut defaults);
        }
        names.put(&mut changed, is_crd, &mut pieces);
        // After the names: parts that depend on a value are out of their sight.
        if is_crd {
            crd(&mut changed, &mut pieces);
        }
        ports(&mut changed, folder, &defaults, &mut pieces);
        trusted(&mut changed, &mut pieces);
        if object["kind"] == "ServiceAccount" {
            let with = "{{- with .Values.serviceAccount.annotations }}";
            let lines = [with, "annotations:", "  {{- toYaml . | nindent 4 }}", "{{- end }}"];
            if let Some(metadata) = changed["metadata"].as_object_mut() {
                pieces.field_lines(metadata, &lines);
            }
        }
        let mut text = pieces.print(&changed);
        if let Some(condition) = condition {
            text = format!("{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n");
        }
        let stem = if is_crd { name(object) } else { names.bare(name(object)) };
        let mut path = format!("{folder}/{stem}.yaml");
        if files.contains_key(&path) {
            let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
            path = format!("{folder}/{stem}-{kind}.yaml");
        }
        files.insert(path, text);
    }
    Ok(Templates { files, defaults })
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The folder of an object, and the value that it depends on.
fn place(object: &Value, names: &Names) -> (&'static str, Option<&'static str>) {
    let bare = names.bare(name(object));
    let group = object["apiVersion"].as_str().unwrap_or_default();
    match object["kind"].as_str().unwrap_or_default() {
        "CustomResourceDefinition" => ("crd", Some(".Values.crd.enabled")),
        "Deployment" => ("manager", None),
        "ServiceAccount" => ("rbac", Some(".Values.serviceAccount.enabled")),
        "Role" | "ClusterRole" | "RoleBinding" | "ClusterRoleBinding" => {
            let helper = ["-admin-role", "-editor-role", "-viewer-role"];
            if bare.starts_with("metrics-") {
                ("rbac", Some(".Values.metrics.enabled"))
            } else if helper.iter().any(|end| bare.ends_with(end)) {
                ("rbac", Some(".Values.rbac.helpers.enabled"))
            } else {
                ("rbac", None)
            }
        }
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
            ("webhook", Some(".Values.webhook.enabled"))
        }
        "Service" if bare.starts_with("webhook") => ("webhook", Some(".Values.webhook.enabled")),
        "Service" if bare.contains("metrics") => ("metrics", Some(".Values.metrics.enabled")),
        "Certificate" | "Issuer" if group.starts_with("cert-manager.io/") => {
            ("cert-manager", Some(".Values.certManager.enabled"))
        }
        "ServiceMonitor" => (
            "prometheus",
            Some("and .Values.metrics.enabled .Values.prometheus.enabled"),
        ),
        "NetworkPolicy" if bare.contains("webhook") => (
            "network-policy",
            Some("and .Values.webhook.enabled .Values.networkPolicy.enabled"),
        ),
        "NetworkPolicy" => (
            "network-policy",
            Some("and .Values.metrics.enabled .Values.networkPolicy.enabled"),
        ),
        _ => ("extras", None),
    }
}

impl Names {
    fn of(project: &Project, objects: &[Value]) -> Names {
        let prefix = format!("{}-", project.name);
        let fullname = format!("include \"{}.fullname\" .", project.name);
        let namespace = objects.iter().find(|object| object["kind"] == "Namespace");
        let namespace = namespace.map_or(project.namespace(), |object| name(object).to_owned());
        let mut expressions = BTreeMap::new();
        for object in objects {
            let Some(rest) = name(object).strip_prefix(&prefix) else {
                continue;
            };
            let expression = if object["kind"] == "ServiceAccount" && rest == "controller-manager" {
                // Deployments share the name; their own is put back by the caller of `put`.
                continue;
            } else {
                format!("{{{{ {fullname} }}}}-{rest}")
            };
            expressions.insert(name(object).to_owned(), expression);
        }
        Names {
            project: project.name.clone(),
            expressions,
            namespace,
        }
    }

    /// A name without the project's prefix.
    fn bare<'n>(&self, name: &'n str) -> &'n str {
        name.strip_prefix(&self.project)
            .and_then(|rest| rest.strip_prefix('-'))
            .unwrap_or(name)
    }

    /// Puts the release's names in the place of the project's.
    fn put(&self, object: &mut Value, is_crd: bool, pieces: &mut Pieces) {
        let is_account = object["kind"] == "ServiceAccount";
        let binds = object["kind"].as_str().is_some_and(|kind| kind.ends_with("Binding"));
        let account = format!("include \"{}.serviceAccountName\" .", self.project);
        if is_account {
            object["metadata"]["name"] = pieces.inline(&account).into();
        }
        let subjects = object.get_mut("subjects").and_then(Value::as_array_mut);
        for subject in subjects.into_iter().flatten() {
            if binds && subject["kind"] == "ServiceAccount" {
                subject["name"] = pieces.inline(&account).into();
            }
        }
        if let Some(name) = object.pointer_mut("/spec/template/spec/serviceAccountName") {
            *name = pieces.inline(&account).into();
        }
        if is_crd {
            // The schema is text of the user's; names in it are no references.
            for part in ["metadata", "spec"] {
                let Some(map) = object[part].as_object_mut() else {
                    continue;
                };
                let keys: Vec<String> = map
                    .keys()
                    .filter(|key| *key == "annotations" || *key == "conversion")
                    .cloned()
                    .collect();
                for key in keys {
                    self.walk(&mut map[&key], pieces);
                }
            }
            self.labels(&mut object["metadata"], pieces);
            return;
        }
        self.walk(object, pieces);
    }

    fn walk(&self, value: &mut Value, pieces: &mut Pieces) {
        match value {
            Value::String(text) => {
                if let Some(changed) = self.text(text, pieces) {
                    *text = changed;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.walk(item, pieces)),
            Value::Object(fields) => {
                fields.values_mut().for_each(|field| self.walk(field, pieces));
                self.release(fields, pieces);
            }
            _ => {}
        }
    }

    fn labels(&self, metadata: &mut Value, pieces: &mut Pieces) {
        if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            self.release(labels, pieces);
        }
    }

    /// Labels and selectors name the release too, so that two of them can live in one namespace.
    fn release(&self, labels: &mut Map<String, Value>, pieces: &mut Pieces) {
        if labels.get("app.kubernetes.io/name").and_then(Value::as_str) != Some(&self.project) {
            return;
        }
        labels.insert(
            "app.kubernetes.io/instance".to_owned(),
            pieces.inline(".Release.Name | quote").into(),
        );
        if let Some(by) = labels.get_mut("app.kubernetes.io/managed-by") {
            *by = pieces.inline(".Release.Service").into();
        }
    }

    /// A text with every whole name in it replaced, such as `NAMESPACE/NAME` and `SERVICE.NAMESPACE.svc`.
    fn text(&self, text: &str, pieces: &mut Pieces) -> Option<String> {
        if text == self.namespace {
            return Some(pieces.inline(".Release.Namespace | quote"));
        }
        let mut changed = String::new();
        let mut word = String::new();
        let mut found = false;
        for letter in text.chars().map(Some).chain([None]) {
            if let Some(letter) = letter.filter(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-') {
                word.push(letter);
                continue;
            }
            if word == self.namespace {
                found = true;
                changed.push_str(&pieces.inline(".Release.Namespace"));
            } else if self.expressions.contains_key(&word) {
                found = true;
                let fullname = pieces.inline(&format!("include \"{}.fullname\" .", self.project));
                changed.push_str(&format!("{fullname}-{}", self.bare(&word)));
            } else {
                changed.push_str(&word);
            }
            word.clear();
            changed.extend(letter);
        }
        found.then_some(changed)
    }
}

fn defaults(objects: &[Value]) -> Defaults {
    let has = |kind: &str| objects.iter().any(|object| object["kind"] == kind);
    Defaults {
        has_webhooks: objects
            .iter()
            .any(|object| object["kind"] == "Service" && name(object).ends_with("webhook-service")),
        has_crds: has("CustomResourceDefinition"),
        has_certificates: has("Certificate"),
        has_monitor: has("ServiceMonitor"),
        has_policies: has("NetworkPolicy"),
        has_helpers: objects.iter().any(|object| name(object).ends_with("-viewer-role")),
        ..Defaults::default()
    }
}

fn port_of(args: &[Value], flag: &str) -> Option<u64> {
    let value = args
        .iter()
        .filter_map(Value::as_str)
        .find_map(|arg| arg.strip_prefix(flag));
    value?.rsplit([':', '=']).next()?.parse().ok()
}

/// The operator itself.
fn deployment(object: &mut Value, pieces: &mut Pieces, defaults: &mut Defaults) {
    let spec = &mut object["spec"];
    defaults.replicas = spec.get("replicas").cloned().unwrap_or(json!(1));
    spec["replicas"] = pieces.inline(".Values.manager.replicas").into();
    let pod = &mut spec["template"]["spec"];
    if let Some(containers) = pod["containers"].as_array_mut() {
        let at = containers
            .iter()
            .position(|container| container["name"] == "manager")
            .unwrap_or(0);
        if let Some(container) = containers.get_mut(at).and_then(Value::as_object_mut) {
            manager(container, pieces, defaults);
        }
    }
    let Some(pod) = pod.as_object_mut() else { return };
    defaults.pod_security = pod.remove("securityContext").unwrap_or(json!({}));
    pod.insert(
        "securityContext".to_owned(),
        pieces.block(".Values.manager.podSecurityContext"),
    );
    parts_of_webhooks(pod, "volumes", pieces);
    for field in [
        "imagePullSecrets",
        "nodeSelector",
        "tolerations",
        "affinity",
        "topologySpreadConstraints",
    ] {
        if pod.contains_key(field) {
            continue;
        }
        let with = format!("{{{{- with .Values.manager.{field} }}}}");
        let key = format!("{field}:");
        pieces.field_lines(pod, &[&with, &key, "  {{- toYaml . | nindent 8 }}", "{{- end }}"]);
    }
    if !pod.contains_key("priorityClassName") {
        pieces.field_lines(
            pod,
            &[
                "{{- with .Values.manager.priorityClassName }}",
                "priorityClassName: {{ . | quote }}",
                "{{- end }}",
            ],
        );
    }
}

fn manager(container: &mut Map<String, Value>, pieces: &mut Pieces, defaults: &mut Defaults) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let (repository, tag, digest) = split_image(image).unwrap_or((image, None, None));
    defaults.repository = repository.to_owned();
    defaults.tag = tag.unwrap_or_default().to_owned();
    defaults.digest = digest.unwrap_or_default().to_owned();
    let image = pieces.inline(&format!("include \"{}.image\" . | quote", defaults.project));
    container.insert("image".to_owned(), image.into());
    container.insert(
        "imagePullPolicy".to_owned(),
        pieces.inline(".Values.manager.image.pullPolicy").into(),
    );
    defaults.resources = container.remove("resources").unwrap_or(json!({}));
    container.insert("resources".to_owned(), pieces.block(".Values.manager.resources"));
    defaults.security = container.remove("securityContext").unwrap_or(json!({}));
    container.insert(
        "securityContext".to_owned(),
        pieces.block(".Values.manager.securityContext"),
    );
    let args = container
        .remove("args")
        .and_then(|args| args.as_array().cloned())
        .unwrap_or_default();
    defaults.metrics_port = port_of(&args, "--metrics-bind-address=");
    defaults.webhook_port = port_of(&args, "--webhook-port=");
    let mut kept = Vec::new();
    for arg in args {
        let text = arg.as_str().unwrap_or_default();
        if text.starts_with("--metrics-") {
            let port = pieces.inline(".Values.metrics.port");
            let arg = if text.starts_with("--metrics-bind-address=") {
                json!(format!("--metrics-bind-address=:{port}"))
            } else {
                arg.clone()
            };
            kept.push(pieces.item_if(".Values.metrics.enabled", arg));
        } else if text.starts_with("--webhook-") {
            let port = pieces.inline(".Values.webhook.port");
            let arg = if text.starts_with("--webhook-port=") {
                json!(format!("--webhook-port={port}"))
            } else {
                arg.clone()
            };
            kept.push(pieces.item_if(".Values.webhook.enabled", arg));
        } else {
            defaults.args.push(arg.clone());
        }
    }
    kept.push(pieces.item_lines(&["{{- range .Values.manager.args }}", "- {{ . | quote }}", "{{- end }}"]));
    container.insert("args".to_owned(), kept.into());
    defaults.env = container.remove("env").unwrap_or(json!([]));
    container.insert("env".to_owned(), pieces.block(".Values.manager.env"));
    for list in ["ports", "volumeMounts"] {
        parts_of_webhooks(container, list, pieces);
    }
}

/// Items of a list that are named after webhooks depend on them.
fn parts_of_webhooks(object: &mut Map<String, Value>, list: &str, pieces: &mut Pieces) {
    for item in object.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
        let named = item["name"].as_str().unwrap_or_default().to_owned();
        let condition = if named.starts_with("webhook") {
            ".Values.webhook.enabled"
        } else if named.starts_with("metrics") {
            ".Values.metrics.enabled"
        } else {
            continue;
        };
        let mut value = item.take();
        if value["containerPort"].is_u64() && named.starts_with("webhook") {
            value["containerPort"] = pieces.inline(".Values.webhook.port").into();
        }
        *item = pieces.item_if(condition, value);
    }
}

/// Ports of services and policies follow the operator's.
fn ports(object: &mut Value, folder: &str, defaults: &Defaults, pieces: &mut Pieces) {
    let known = [
        (defaults.metrics_port, ".Values.metrics.port"),
        (defaults.webhook_port, ".Values.webhook.port"),
    ];
    let change = |port: &mut Value, pieces: &mut Pieces| {
        let found = known
            .iter()
            .find(|(known, _)| known.is_some() && *known == port.as_u64());
        if let Some((_, expression)) = found {
            *port = pieces.inline(expression).into();
        }
    };
    match folder {
        "metrics" | "webhook" if object["kind"] == "Service" => {
            let ports = object.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
            for port in ports.into_iter().flatten() {
                for field in ["port", "targetPort"] {
                    if let Some(port) = port.get_mut(field) {
                        change(port, pieces);
                    }
                }
            }
        }
        "network-policy" => {
            let rules = object.pointer_mut("/spec/ingress").and_then(Value::as_array_mut);
            for rule in rules.into_iter().flatten() {
                let ports = rule.get_mut("ports").and_then(Value::as_array_mut);
                for port in ports.into_iter().flatten() {
                    if let Some(port) = port.get_mut("port") {
                        change(port, pieces);
                    }
                }
            }
        }
        _ => {}
    }
}

/// The API server's trusted certificate is cert-manager's matter only where cert-manager is used.
fn trusted(object: &mut Value, pieces: &mut Pieces) {
    let annotations = object["metadata"].get_mut("annotations").and_then(Value::as_object_mut);
    if let Some(annotations) = annotations {
        pieces.field_if(
            ".Values.certManager.enabled",
            annotations,
            "cert-manager.io/inject-ca-from",
        );
    }
}

fn crd(object: &mut Value, pieces: &mut Pieces) {
    if let Some(spec) = object["spec"].as_object_mut() {
        pieces.field_if(".Values.webhook.enabled", spec, "conversion");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            pieces.field_lines(
                annotations,
                &[
                    "{{- if .Values.crd.keep }}",
                    "helm.sh/resource-policy: keep",
                    "{{- end }}",
                ],
            );
        }
    }
}
