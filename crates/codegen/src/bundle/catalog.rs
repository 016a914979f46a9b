//! A catalog of one bundle, and the objects with which OLM installs from it (`operator-sdk run bundle`).
//!
//! [`catalog`] reads the bundle and says what has to be created, in order. The catalog is a file-based one in a
//! ConfigMap, which a pod of the index image serves. Not here: the requests, and the waiting between them, which are
//! the command's; the bundle's image, which OLM pulls in the cluster.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::validate;
use crate::codes;
use crate::diagnostic::Diagnostic;
use crate::plan::Files;
use crate::yaml;

/// The channel of the catalog, and the group of a namespace without one: operator-sdk's names, so that either tool
/// cleans up after the other.
const CHANNEL: &str = "operator-sdk-run-bundle";
const GROUP: &str = "operator-sdk-og";

/// Where the catalog is served.
const PORT: u16 = 50051;
const FILE: &str = "catalog.yaml";

/// The most bytes of a ConfigMap.
const MAX_SIZE: usize = 1 << 20;

/// Fields of a ClusterServiceVersion that catalogs show.
const SHOWN: [&str; 11] = [
    "apiservicedefinitions",
    "description",
    "displayName",
    "installModes",
    "keywords",
    "links",
    "maintainers",
    "maturity",
    "minKubeVersion",
    "nativeAPIs",
    "provider",
];

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The image of the bundle, as the cluster pulls it.
    pub image: String,
    /// The namespace that the operator is installed in.
    pub namespace: String,
    /// The image that serves the catalog.
    pub index_image: String,
    /// How the operator is installed: `AllNamespaces`, `OwnNamespace`, or `SingleNamespace=a` and `MultiNamespace=a,b`;
    /// by default the widest mode that the bundle supports.
    pub install_mode: Option<String>,
    /// The Secret with which images are pulled.
    pub pull_secret: Option<String>,
}

/// What OLM needs to install a bundle.
#[derive(Clone, Debug)]
pub struct Catalog {
    /// The package.
    pub package: String,
    /// The name of the ClusterServiceVersion that OLM will create.
    pub csv: String,
    /// The namespaces that the operator serves; none for all.
    pub targets: Vec<String>,
    /// The CatalogSource, which owns the ConfigMap and the pod. It has no address yet.
    pub source: Value,
    /// The ConfigMap with the catalog.
    pub config_map: Value,
    /// The pod that serves it.
    pub pod: Value,
    /// The OperatorGroup, for a namespace that has none.
    pub group: Value,
    /// The Subscription, whose plan has to be approved.
    pub subscription: Value,
}

impl Catalog {
    /// Where the pod serves, once it has an address.
    #[must_use]
    pub fn address(ip: &str) -> String {
        match ip.contains(':') {
            true => format!("[{ip}]:{PORT}"),
            false => format!("{ip}:{PORT}"),
        }
    }
}

/// The name of the CatalogSource of a package.
#[must_use]
pub fn source_name(package: &str) -> String {
    format!("{package}-catalog")
}

/// What has to be created for the bundle in a folder.
///
/// # Errors
/// When the bundle cannot be read or is not valid, or does not support the install mode.
pub fn catalog(files: &dyn Files, request: &Request) -> Result<Catalog, Diagnostic> {
    let refused = |why: String| Diagnostic::new(codes::config::INVALID_BUNDLE, "cannot run the bundle").because(why);
    let report = validate::validate(files, &validate::Options::default())?;
    if let Some(wrong) = report
        .outputs
        .iter()
        .find(|finding| finding.level == validate::Level::Error)
    {
        return Err(refused(wrong.message.clone()).fix("kubewright bundle validate lists everything that is wrong"));
    }
    let (csv, package) = report.operator()?;
    let name = csv["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let targets = targets(csv, request).map_err(refused)?;
    let namespace = &request.namespace;
    let source = source_name(package);
    let text = yaml::documents_to_string(&documents(csv, package, &request.image));
    if text.len() > MAX_SIZE {
        return Err(
            refused(format!("its catalog has more than {} MiB", MAX_SIZE >> 20)).fix("shorten its descriptions")
        );
    }
    let mut source_spec = json!({"displayName": package, "publisher": "kubewright", "sourceType": "grpc"});
    if let Some(secret) = &request.pull_secret {
        source_spec["secrets"] = json!([secret]);
    }
    let metadata = |name: &str| json!({"name": name, "namespace": namespace});
    let config_map = format!("{source}-configmap");
    let mut group = json!({
        "apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup", "metadata": metadata(GROUP), "spec": {},
    });
    if !targets.is_empty() {
        group["spec"]["targetNamespaces"] = json!(targets);
    }
    Ok(Catalog {
        source: json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource", "metadata": metadata(&source),
            "spec": source_spec,
        }),
        config_map: json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(&config_map), "data": {FILE: text},
        }),
        pod: pod(&label(&request.image), &config_map, request),
        group,
        subscription: json!({
            "apiVersion": "operators.coreos.com/v1alpha1",
            "kind": "Subscription",
            "metadata": metadata(&format!("{}-sub", label(&name))),
            "spec": {
                "channel": CHANNEL,
                "installPlanApproval": "Manual",
                "name": package,
                "source": source,
                "sourceNamespace": namespace,
                "startingCSV": name,
            },
        }),
        package: package.to_owned(),
        csv: name,
        targets,
    })
}

/// The namespaces that the operator will serve.
fn targets(csv: &Value, request: &Request) -> Result<Vec<String>, String> {
    let modes = csv["spec"]["installModes"].as_array();
    let supported = |kind: &str| {
        let mut modes = modes.into_iter().flatten();
        modes.any(|mode| mode["type"] == *kind && mode["supported"] == true)
    };
    let own = || vec![request.namespace.clone()];
    let Some(asked) = &request.install_mode else {
        return match (supported("AllNamespaces"), supported("OwnNamespace")) {
            (true, _) => Ok(Vec::new()),
            (false, true) => Ok(own()),
            (false, false) => Err(
                "it serves neither all namespaces nor its own: name one with --install-mode SingleNamespace=NAMESPACE"
                    .to_owned(),
            ),
        };
    };
    let (kind, named) = asked.split_once('=').unwrap_or((asked, ""));
    let named: Vec<String> = named
        .split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    if !super::check::MODES.contains(&kind) {
        return Err(format!(
            "{kind:?} is no install mode: there are {}",
            super::check::MODES.join(", ")
        ));
    }
    if !supported(kind) {
        return Err(format!("it does not support the install mode {kind}"));
    }
    match (kind, &named[..]) {
        ("AllNamespaces", []) => Ok(Vec::new()),
        ("OwnNamespace", []) => Ok(own()),
        ("OwnNamespace", [one]) if *one == request.namespace => Ok(own()),
        ("SingleNamespace", [one]) if *one == request.namespace => {
            Err("its own namespace is served with --install-mode OwnNamespace".to_owned())
        }
        ("SingleNamespace", [_]) => Ok(named),
        ("MultiNamespace", [_, ..]) => Ok(named),
        _ => Err(format!(
            "--install-mode {asked} must be AllNamespaces, OwnNamespace, SingleNamespace=NAMESPACE or \
             MultiNamespace=NAMESPACE,…"
        )),
    }
}

/// The package, its channel and the bundle, as a file-based catalog.
fn documents(csv: &Value, package: &str, image: &str) -> Vec<Value> {
    let name = &csv["metadata"]["name"];
    let version = csv["spec"]["version"].as_str().unwrap_or_default();
    let mut properties = vec![json!({"type": "olm.package", "value": {"packageName": package, "version": version}})];
    for (relation, kind) in [("owned", "olm.gvk"), ("required", "olm.gvk.required")] {
        let entries = csv["spec"]["customresourcedefinitions"][relation].as_array();
        for entry in entries.into_iter().flatten() {
            let full = entry["name"].as_str().unwrap_or_default();
            let group = full.split_once('.').map_or("", |(_, group)| group);
            let value = json!({"group": group, "kind": entry["kind"], "version": entry["version"]});
            properties.push(json!({"type": kind, "value": value}));
        }
    }
    let mut shown = Map::new();
    shown.insert("annotations".to_owned(), csv["metadata"]["annotations"].clone());
    shown.insert(
        "crdDescriptions".to_owned(),
        csv["spec"]["customresourcedefinitions"].clone(),
    );
    for field in SHOWN {
        if let Some(value) = csv["spec"].get(field) {
            let field = if field == "apiservicedefinitions" {
                "apiServiceDefinitions"
            } else {
                field
            };
            shown.insert(field.to_owned(), value.clone());
        }
    }
    properties.push(json!({"type": "olm.csv.metadata", "value": shown}));
    vec![
        json!({"schema": "olm.package", "name": package, "defaultChannel": CHANNEL}),
        json!({"schema": "olm.channel", "name": CHANNEL, "package": package, "entries": [{"name": name}]}),
        json!({
            "schema": "olm.bundle",
            "name": name,
            "package": package,
            "image": image,
            "properties": properties,
            "relatedImages": related(csv, image),
        }),
    ]
}

/// The images of the bundle: its own, the operator's, and those that it says it starts.
fn related(csv: &Value, image: &str) -> Vec<Value> {
    let mut images: BTreeMap<String, String> = BTreeMap::from([(image.to_owned(), String::new())]);
    for path in ["containers", "initContainers"] {
        let path = format!("spec.install.spec.deployments.*.spec.template.spec.{path}.*.image");
        for found in super::check::values(csv, &path).into_iter().filter_map(Value::as_str) {
            images.entry(found.to_owned()).or_default();
        }
    }
    for found in csv["spec"]["relatedImages"].as_array().into_iter().flatten() {
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        images.insert(text("image"), text("name"));
    }
    images
        .into_iter()
        .map(|(image, name)| json!({"image": image, "name": name}))
        .collect()
}

/// The pod that serves the catalog. It fits the Pod Security Standard `restricted`, but for the user, which is the
/// image's.
fn pod(name: &str, config_map: &str, request: &Request) -> Value {
    let mut spec = json!({
        "containers": [{
            "name": "registry-grpc",
            "image": request.index_image,
            "command": ["opm", "serve", "/configs", "-p", PORT.to_string()],
            "ports": [{"containerPort": PORT, "name": "grpc"}],
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            "volumeMounts": [{"name": "catalog", "mountPath": format!("/configs/{FILE}"), "subPath": FILE}],
        }],
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": "catalog", "configMap": {"name": config_map}}],
    });
    if let Some(secret) = &request.pull_secret {
        spec["imagePullSecrets"] = json!([{"name": secret}]);
    }
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": request.namespace}, "spec": spec,
    })
}

/// A name or an image as a label of DNS: its last 63 letters, with hyphens for all that has no place there.
fn label(text: &str) -> String {
    let letters = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    let text: String = text.chars().map(letters).collect();
    let text = text.trim_matches('-');
    text[text.len().saturating_sub(63)..].trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{golden, made, options};
    use super::*;
    use crate::MemoryFiles;

    fn request(mode: Option<&str>) -> Request {
        Request {
            image: "registry.example.com/team/plain-bundle:v0.1.0".to_owned(),
            namespace: "plain".to_owned(),
            index_image: "quay.io/operator-framework/opm:latest".to_owned(),
            install_mode: mode.map(str::to_owned),
            pull_secret: Some("pull".to_owned()),
        }
    }

    fn bundle(change: (&str, &str)) -> MemoryFiles {
        let mut files = MemoryFiles::default();
        for (path, text) in made(&golden("plain"), &options()).0 {
            if let Some(path) = path.strip_prefix("bundle/") {
                files.0.insert(path.to_owned(), text.replace(change.0, change.1));
            }
        }
        files
    }

    #[test]
    fn a_catalog_has_one_bundle_and_what_olm_needs_to_install_it() {
        let found = catalog(&bundle(("", "")), &request(None)).unwrap();
        let shown = [
            &found.source,
            &found.config_map,
            &found.pod,
            &found.group,
            &found.subscription,
        ];
        insta::assert_snapshot!(yaml::documents_to_string(&shown.map(Clone::clone)));
        assert_eq!(Catalog::address("10.0.0.1"), "10.0.0.1:50051");
        assert_eq!(Catalog::address("fd00::1"), "[fd00::1]:50051");
    }

    #[test]
    fn the_install_mode_is_one_that_the_bundle_supports() {
        let all = ("supported: false", "supported: true");
        let check = |change: (&str, &str), mode: Option<&str>, expected: Result<&[&str], &str>| {
            let found = catalog(&bundle(change), &request(mode));
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found.targets, expected, "{mode:?}"),
                (Err(wrong), Err(expected)) => {
                    assert!(wrong.to_string().contains(expected), "{mode:?}: {wrong}");
                }
                (found, _) => panic!("{mode:?}: {found:?}"),
            }
        };
        check(("", ""), None, Ok(&[]));
        check(("", ""), Some("OwnNamespace"), Err("does not support"));
        check(all, Some("OwnNamespace"), Ok(&["plain"]));
        check(all, Some("OwnNamespace=other"), Err("must be"));
        check(all, Some("SingleNamespace=a"), Ok(&["a"]));
        check(all, Some("SingleNamespace"), Err("must be"));
        check(all, Some("SingleNamespace=plain"), Err("OwnNamespace"));
        check(all, Some("MultiNamespace=a,b"), Ok(&["a", "b"]));
        check(all, Some("Some"), Err("no install mode"));
        check(
            ("strategy: deployment", "strategy: ''"),
            None,
            Err("spec.install.strategy"),
        );
    }

    #[test]
    fn names_fit_a_label() {
        assert_eq!(label("plain.v0.1.0"), "plain-v0-1-0");
        assert_eq!(label("registry.example.com/a_b:v1"), "registry-example-com-a-b-v1");
        assert_eq!(label(&format!("a/{}", "b".repeat(80))).len(), 63);
    }
}
