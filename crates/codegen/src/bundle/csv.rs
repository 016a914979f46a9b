//! The ClusterServiceVersion: the people's texts in the base, with everything that follows from `config/`.

use serde_json::{Value, json};

use crate::project::Project;

use super::rights::Rights;
use super::{Options, title};

/// Its sources.
pub(super) struct Parts<'a> {
    pub(super) project: &'a Project,
    pub(super) options: &'a Options,
    pub(super) package: &'a str,
    pub(super) base: Value,
    pub(super) objects: &'a [Value],
    pub(super) samples: &'a [Value],
    pub(super) rights: Rights,
    pub(super) hooks: Vec<Value>,
}

/// The base of an operator without a description yet.
pub(super) fn new_base(project: &Project, package: &str, options: &Options) -> Value {
    let name = title(&project.name);
    let maintainers: Vec<Value> = options.authors.iter().map(|author| maintainer(author)).collect();
    let mut spec = json!({
        "description": format!("The operator {}.", project.name),
        "displayName": name,
        "keywords": [package],
        "maturity": "alpha",
        "provider": {"name": maintainers.first().map_or(json!(name), |first| first["name"].clone())},
    });
    if !maintainers.is_empty() {
        spec["maintainers"] = json!(maintainers);
    }
    if let Some(url) = &options.repository {
        spec["links"] = json!([{"name": name, "url": url}]);
    }
    json!({
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "annotations": {"capabilities": "Basic Install"},
            "name": format!("{package}.v0.0.0"),
            "namespace": "placeholder",
        },
        "spec": spec,
    })
}

/// `Ann <ann@example.com>`, as Cargo.toml has it.
fn maintainer(author: &str) -> Value {
    match author.split_once('<') {
        Some((name, mail)) => json!({"email": mail.trim_end_matches('>').trim(), "name": name.trim()}),
        None => json!({"name": author.trim()}),
    }
}

impl Parts<'_> {
    /// The object.
    pub(super) fn object(self) -> Value {
        let mut csv = self.base.clone();
        // operator-sdk writes an icon without a picture into a new base, which no cluster takes.
        let icons = csv["spec"]["icon"].as_array();
        if icons.is_some_and(|icons| icons.iter().all(|icon| icon["base64data"] == "")) {
            csv["spec"].as_object_mut().map(|spec| spec.remove("icon"));
        }
        csv["apiVersion"] = json!("operators.coreos.com/v1alpha1");
        csv["metadata"]["name"] = json!(format!("{}.v{}", self.package, self.options.version));
        csv["metadata"]["namespace"] = json!("placeholder");
        let annotations = &mut csv["metadata"]["annotations"];
        annotations["alm-examples"] = json!(self.examples());
        annotations["operators.operatorframework.io/builder"] =
            json!(format!("kubewright-{}", self.options.cli_version));
        annotations["operators.operatorframework.io/project_layout"] = json!(self.project.layout.join(","));
        let required = csv["spec"]["customresourcedefinitions"].get("required").cloned();
        let mut definitions = json!({ "owned": self.owned() });
        if let Some(required) = required {
            definitions["required"] = required;
        }
        let spec = &mut csv["spec"];
        spec["customresourcedefinitions"] = definitions;
        spec["install"] = json!({"spec": self.install(), "strategy": "deployment"});
        if !spec["installModes"].is_array() {
            spec["installModes"] = self.modes();
        }
        spec["version"] = json!(self.options.version);
        let related = self.related_images();
        if !related.is_empty() {
            spec["relatedImages"] = json!(related);
        }
        if self.hooks.is_empty() {
            spec.as_object_mut().map(|spec| spec.remove("webhookdefinitions"));
        } else {
            spec["webhookdefinitions"] = json!(self.hooks);
        }
        csv
    }

    /// The examples of the operator's own groups, as JSON for the console.
    fn examples(&self) -> String {
        let own: Vec<&Value> = self
            .samples
            .iter()
            .filter(|sample| {
                let version = sample["apiVersion"].as_str().unwrap_or_default();
                let group = version.split_once('/').map_or("", |(group, _)| group);
                let is_defined = || self.objects.iter().any(|object| object["spec"]["group"] == group);
                self.project.apis().any(|api| api.full_group() == group) || is_defined()
            })
            .collect();
        serde_json::to_string_pretty(&own).expect("a list of objects is JSON")
    }

    /// Images that the operator starts itself, as its environment names them: `RELATED_IMAGE_` and a name. Clusters
    /// without a way to the registry mirror these.
    fn related_images(&self) -> Vec<Value> {
        let mut related: Vec<Value> = Vec::new();
        for deployment in self.objects.iter().filter(|object| object["kind"] == "Deployment") {
            let pod = &deployment["spec"]["template"]["spec"];
            let containers = ["containers", "initContainers"].map(|list| pod[list].as_array());
            for variable in containers
                .into_iter()
                .flatten()
                .flatten()
                .flat_map(|one| one["env"].as_array())
                .flatten()
            {
                let name = variable["name"]
                    .as_str()
                    .and_then(|name| name.strip_prefix("RELATED_IMAGE_"));
                let (Some(name), Some(image)) = (name, variable["value"].as_str()) else {
                    continue;
                };
                let entry = json!({"image": image, "name": name.to_lowercase().replace('_', "-")});
                if !related.contains(&entry) {
                    related.push(entry);
                }
            }
        }
        related
    }

    fn install(&self) -> Value {
        let deployments: Vec<Value> = self
            .objects
            .iter()
            .filter(|object| object["kind"] == "Deployment")
            .map(|deployment| {
                let mut entry = json!({"name": deployment["metadata"]["name"], "spec": deployment["spec"]});
                watch_targets(&mut entry["spec"]);
                if let Some(labels) = deployment["metadata"].get("labels") {
                    entry["label"] = labels.clone();
                }
                entry
            })
            .collect();
        let mut spec = json!({ "deployments": deployments });
        for (field, rights) in [
            ("clusterPermissions", &self.rights.cluster),
            ("permissions", &self.rights.namespaced),
        ] {
            if !rights.is_empty() {
                spec[field] = json!(rights);
            }
        }
        spec
    }

    /// For which namespaces the operator can be installed: for all, or for its own when it watches only that.
    fn modes(&self) -> Value {
        let own = self.project.namespaced;
        let mode = |kind: &str, supported: bool| json!({"supported": supported, "type": kind});
        json!([
            mode("OwnNamespace", own),
            mode("SingleNamespace", false),
            mode("MultiNamespace", false),
            mode("AllNamespaces", !own),
        ])
    }

    /// The operator's definitions, version by version. Fields of the base stay.
    fn owned(&self) -> Vec<Value> {
        let said = self.base["spec"]["customresourcedefinitions"]["owned"].as_array();
        let mut owned = Vec::new();
        for crd in self
            .objects
            .iter()
            .filter(|object| object["kind"] == "CustomResourceDefinition")
        {
            for version in crd["spec"]["versions"].as_array().into_iter().flatten() {
                let mut entry = entry(crd, version);
                let mut said = said.into_iter().flatten();
                let there = said.find(|said| said["name"] == entry["name"] && said["version"] == entry["version"]);
                if let (Some(Value::Object(there)), Some(entry)) = (there, entry.as_object_mut()) {
                    entry.extend(there.clone());
                }
                owned.push(entry);
            }
        }
        owned
    }
}

/// Where an operator reads the namespaces that it watches from `WATCH_NAMESPACE`, OLM says which.
fn watch_targets(deployment: &mut Value) {
    let containers = deployment
        .pointer_mut("/template/spec/containers")
        .and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        for variable in container
            .get_mut("env")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            if variable["name"] == "WATCH_NAMESPACE" {
                let field = json!({"fieldRef": {"fieldPath": "metadata.annotations['olm.targetNamespaces']"}});
                *variable = json!({"name": "WATCH_NAMESPACE", "valueFrom": field});
            }
        }
    }
}

fn entry(crd: &Value, version: &Value) -> Value {
    let kind = crd["spec"]["names"]["kind"].as_str().unwrap_or_default();
    let schema = &version["schema"]["openAPIV3Schema"];
    let described = schema["description"].as_str().filter(|text| !text.is_empty());
    let mut entry = json!({
        "description": described.map_or_else(|| format!("{kind} is a kind of this operator."), str::to_owned),
        "displayName": title(kind),
        "kind": kind,
        "name": crd["metadata"]["name"],
        "version": version["name"],
    });
    for (field, part) in [("specDescriptors", "spec"), ("statusDescriptors", "status")] {
        let found = descriptors(&schema["properties"][part]["properties"]);
        if !found.is_empty() {
            entry[field] = json!(found);
        }
    }
    entry
}

/// A line of a form for each field; deeper ones are the form's own matter.
fn descriptors(properties: &Value) -> Vec<Value> {
    let fields = properties.as_object().into_iter().flatten();
    let mut found: Vec<Value> = fields
        .map(|(path, schema)| {
            let mut line = json!({"displayName": title(path), "path": path});
            if let Some(text) = schema["description"].as_str() {
                line["description"] = json!(text);
            }
            line
        })
        .collect();
    found.sort_by(|left, right| left["path"].as_str().cmp(&right["path"].as_str()));
    found
}
