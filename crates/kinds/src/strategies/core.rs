//! Small kinds of the core group and their like: Namespace, ConfigMap, Secret, ServiceAccount, Endpoints, Lease.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kubewright_schema::error::FieldError;
use kubewright_schema::go::TypeMismatch;
use kubewright_schema::names;
use kubewright_schema::path::FieldPath;
use serde_json::{Value, json};

use super::check::{
    At, Errors, check_fields, check_ip, child, each, ensure, fill, fill_text, fixed, get, keep, not_negative,
};
use super::key_pairs;
use kubewright_model::object;
use kubewright_model::{
    Delete, Document, Ending, MetadataChecks, NameRule, PLAIN, Portion, StatusMetadata, Strategy, StrategyContext,
};

/// The largest sum of values of a ConfigMap or Secret, in bytes.
const MAX_DATA: usize = 1_048_576;

/// How Namespaces are written.
pub(crate) const NAMESPACE: Strategy = Strategy {
    names: NameRule::Label,
    ending: Some(&NAMESPACE_ENDING),
    delete_returns_object: true,
    status_metadata: StatusMetadata::WRITTEN,
    metadata_checks: MetadataChecks::UPDATE_AND_CREATE,
    default: default_namespace,
    prepare_create: prepare_namespace,
    prepare_update: |new, old, _| {
        keep(new, old, "status");
        keep(new, old, "spec");
    },
    validate_create: namespace,
    validate_status: namespace_status,
    ..PLAIN
};

/// Every namespace carries its name as a label, even when the client sends another value.
fn default_namespace(object: &mut Value) {
    let name = get(object, &["metadata", "name"]).as_str().unwrap_or("").to_owned();
    let Some(object) = object.as_object_mut() else { return };
    ensure(object, "spec");
    if let Some(status) = ensure(object, "status") {
        fill_text(status, "phase", "Active");
    }
    if !name.is_empty()
        && let Some(labels) = ensure(object, "metadata").and_then(|metadata| ensure(metadata, "labels"))
    {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
    }
}

fn prepare_namespace(object: &mut Value, _: &StrategyContext<'_>) {
    // A generated name is known only now.
    default_namespace(object);
    let Some(object) = object.as_object_mut() else { return };
    object.insert("status".to_owned(), json!({"phase": "Active"}));
    let Some(spec) = ensure(object, "spec") else { return };
    fill(spec, "finalizers", json!([]));
    if let Some(finalizers) = spec.get_mut("finalizers").and_then(Value::as_array_mut)
        && !finalizers.iter().any(|finalizer| finalizer == "kubernetes")
    {
        finalizers.push("kubernetes".into());
    }
}

/// `ValidateNamespace`.
fn namespace(new: &Value) -> Vec<FieldError> {
    namespace_finalizers(new, false)
}

/// `/finalize` of a namespace: all but the status is taken from the request.
pub(crate) static FINALIZE: Portion = Portion {
    name: "finalize",
    verbs: &["update"],
    restrict: |new, old| {
        if let Some(map) = new.as_object_mut() {
            match old.get("status") {
                Some(status) => drop(map.insert("status".to_owned(), status.clone())),
                None => drop(map.remove("status")),
            }
        }
        if !holds_content(new) {
            new["spec"] = json!({});
        }
    },
    owns_all_that_is_sent: false,
    writes_status: false,
    counts_generation: false,
    prepare: |_, _, _| {},
    // Only here the places of a namespace's own finalizers have numbers (`ValidateNamespaceFinalizeUpdate`).
    validate: |new, _| namespace_finalizers(new, true),
};

/// How a namespace ends: its contents go first, and its own finalizers say whether that is so (`NamespaceStrategy` and
/// its storage).
static NAMESPACE_ENDING: Ending = Ending {
    delete: |namespace| match (object::is_terminating(namespace), holds_content(namespace)) {
        (false, _) => Delete::Mark,
        (true, true) => Delete::Stay,
        (true, false) => Delete::AsAny,
    },
    mark: |namespace, _| match namespace.get_mut("status").and_then(Value::as_object_mut) {
        Some(status) => drop(status.insert("phase".to_owned(), json!("Terminating"))),
        None => namespace["status"] = json!({"phase": "Terminating"}),
    },
    is_blocked: holds_content,
    heeds_dependents: true,
};

fn holds_content(namespace: &Value) -> bool {
    get(namespace, &["spec", "finalizers"])
        .as_array()
        .is_some_and(|list| !list.is_empty())
}

/// `/token` of a ServiceAccount: a signed token for it.
pub(crate) static TOKEN: Document = Document {
    name: "token",
    group: "authentication.k8s.io",
    kind: "TokenRequest",
    schema_name: "io.k8s.api.authentication.v1.TokenRequest",
    changes_twice: false,
};

/// `ValidateNamespaceFinalizeUpdate` and `validateKubeFinalizerName`.
fn namespace_finalizers(new: &Value, numbered: bool) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let finalizers = At::root(new).keys(&["spec", "finalizers"]);
    for finalizer in finalizers.items() {
        let at = if numbered {
            finalizer
        } else {
            finalizer.moved(finalizers.path.clone())
        };
        let mistakes = names::qualified_name(at.text());
        let standard = matches!(at.text(), "kubernetes" | "orphan" | "foregroundDeletion");
        errors.messages(&at, mistakes);
        if !at.text().contains('/') && !standard {
            errors.invalid(
                &at,
                "name is neither a standard finalizer name nor is it fully qualified",
            );
        }
    }
    errors.into_vec()
}

/// `ValidateNamespaceStatusUpdate`.
fn namespace_status(new: &Value, _: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    // Upstream names the Go field here.
    let at = FieldPath::root().key("status").key("Phase");
    let phase = At::root(new).keys(&["status", "phase"]).moved(at);
    let terminating = !get(new, &["metadata", "deletionTimestamp"]).is_null();
    if terminating && phase.text() != "Terminating" {
        errors.invalid_value(
            &phase,
            phase.text(),
            "may only be 'Terminating' if `deletionTimestamp` is not empty",
        );
    } else if !terminating && phase.text() != "Active" {
        errors.invalid_value(
            &phase,
            phase.text(),
            "may only be 'Active' if `deletionTimestamp` is empty",
        );
    }
    errors.into_vec()
}

/// How ConfigMaps are written.
pub(crate) const CONFIG_MAP: Strategy = Strategy {
    metadata_checks: MetadataChecks::UPDATE_AND_CREATE,
    validate_create: config_map,
    validate_update: |new, old| {
        let mut errors = Errors::default();
        immutable_data(&mut errors, new, old, &["data", "binaryData"]);
        errors.extend(config_map(new));
        errors.into_vec()
    },
    ..PLAIN
};

/// `ValidateConfigMap`.
fn config_map(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new);
    let mut size = 0;
    for (key, entry) in at.key("data").entries() {
        data_key(&mut errors, key, &entry);
        if at.key("binaryData").value.get(key).is_some() {
            errors.invalid_value(&entry, key, "duplicate of key present in binaryData");
        }
        size += entry.text().len();
    }
    for (key, entry) in at.key("binaryData").entries() {
        data_key(&mut errors, key, &entry);
        size += decoded_len(entry.text());
    }
    if size > MAX_DATA {
        // Kubernetes names an empty path here.
        errors.push(FieldError::too_long("[]", MAX_DATA));
    }
    errors.into_vec()
}

/// `IsConfigMapKey`.
fn data_key(errors: &mut Errors, key: &str, at: &At<'_>) {
    for message in names::config_map_key(key) {
        errors.invalid_value(at, key, message);
    }
}

/// The length of a base64 text once decoded, computed without decoding it.
pub(super) fn decoded_len(text: &str) -> usize {
    text.len() / 4 * 3 - text.bytes().rev().take_while(|byte| *byte == b'=').count().min(2)
}

/// An object with `immutable: true` keeps its data, and stays immutable (`ValidateConfigMapUpdate`).
fn immutable_data(errors: &mut Errors, new: &Value, old: &Value, fields: &[&str]) {
    const WHY: &str = "field is immutable when `immutable` is set";
    if old.get("immutable") != Some(&Value::Bool(true)) {
        return;
    }
    let at = At::root(new);
    if !at.key("immutable").is_true() {
        errors.forbidden(&at.key("immutable"), WHY);
    }
    for field in fields {
        let empty = |value: &Value| value.as_object().is_none_or(serde_json::Map::is_empty);
        let (after, before) = (get(new, &[field]), get(old, &[field]));
        if after != before && !(empty(after) && empty(before)) {
            errors.forbidden(&at.key(field), WHY);
        }
    }
}

/// How Secrets are written.
pub(crate) const SECRET: Strategy = Strategy {
    metadata_checks: MetadataChecks::UPDATE_AND_CREATE,
    default: default_secret,
    validate_create: secret,
    validate_update: |new, old| {
        let mut errors = Errors::default();
        let rules = [fixed(&["type"], "ValidateSecretUpdate")];
        check_fields(&mut errors, &rules, &At::root(new), Some(&At::root(old)));
        immutable_data(&mut errors, new, old, &["data"]);
        errors.extend(secret(new));
        errors.into_vec()
    },
    warnings: |new, _| {
        let data = At::root(new).key("data");
        let text = |key: &str| {
            let bytes = STANDARD.decode(data.key(key).text()).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let pair = get(new, &["type"]) == "kubernetes.io/tls";
        let warnings = pair.then(|| key_pairs::mistake(&text("tls.crt"), &text("tls.key")));
        warnings.flatten().into_iter().collect()
    },
    ..PLAIN
};

/// `stringData` is written into `data` and never stored; the type is Opaque.
fn default_secret(object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    fill_text(object, "type", "Opaque");
    let Some(Value::Object(strings)) = object.remove("stringData") else {
        return;
    };
    if strings.is_empty() {
        return;
    }
    let Some(data) = ensure(object, "data") else { return };
    for (key, value) in strings {
        data.insert(key, STANDARD.encode(value.as_str().unwrap_or("")).into());
    }
}

/// `ValidateSecret`.
fn secret(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new);
    let data = at.key("data");
    let mut size = 0;
    for (key, entry) in data.entries() {
        data_key(&mut errors, key, &entry);
        size += decoded_len(entry.text());
    }
    if size > MAX_DATA {
        errors.push(FieldError::too_long("data", MAX_DATA));
    }
    let decoded = |key: &str| STANDARD.decode(data.key(key).text()).unwrap_or_default();
    let entry = |key: &str| data.moved(data.path.map_key(key));
    let has = |key: &str| data.value.get(key).is_some();
    match at.key("type").text() {
        "kubernetes.io/service-account-token" => {
            let name = at.keys(&["metadata", "annotations"]);
            let name = At {
                value: get(name.value, &["kubernetes.io/service-account.name"]),
                path: name.path.map_key("kubernetes.io/service-account.name"),
            };
            if name.text().is_empty() {
                errors.required(&name, "");
            }
        }
        "kubernetes.io/dockercfg" | "kubernetes.io/dockerconfigjson" => {
            let key = if at.key("type").text().ends_with("json") {
                ".dockerconfigjson"
            } else {
                ".dockercfg"
            };
            if !has(key) {
                errors.required(&entry(key), "");
            } else if let Err(why) = json_object(&decoded(key)) {
                errors.invalid_value(&entry(key), "<secret contents redacted>", why);
            }
        }
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            errors.required(&entry("username"), "");
            errors.required(&entry("password"), "");
        }
        "kubernetes.io/ssh-auth" if decoded("ssh-privatekey").is_empty() => {
            errors.required(&entry("ssh-privatekey"), "");
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if !has(key) {
                    errors.required(&entry(key), "");
                }
            }
        }
        _ => {}
    }
    errors.into_vec()
}

/// On an account whose pods may use only the secrets that it lists.
const ENFORCE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";

/// How ServiceAccounts are written.
pub(crate) const SERVICE_ACCOUNT: Strategy = Strategy {
    delete_returns_object: true,
    metadata_checks: MetadataChecks::UPDATE_AND_CREATE,
    prepare_create: |object, _| only_names_of_secrets(object),
    prepare_update: |new, _, _| only_names_of_secrets(new),
    warnings: |new, old| {
        let word = |object: &Value| get(object, &["metadata", "annotations", ENFORCE_SECRETS]).clone();
        if word(new).is_null() || old.is_some_and(|old| word(old) == word(new)) {
            return Vec::new();
        }
        vec![format!(
            "metadata.annotations[{ENFORCE_SECRETS}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
        )]
    },
    ..PLAIN
};

/// The secrets of an account are in its namespace: of a reference to one, only the name counts.
fn only_names_of_secrets(account: &mut Value) {
    let Some(account) = account.as_object_mut() else { return };
    for secret in each(account, "secrets") {
        secret.retain(|field, _| field == "name");
    }
}

/// How Endpoints are written.
pub(crate) const ENDPOINTS: Strategy = Strategy {
    fits_this_machine: Some(super::services::LOOPBACK),
    create_on_update: true,
    metadata_checks: MetadataChecks::UPDATE_AND_CREATE,
    default: |object| {
        let Some(object) = object.as_object_mut() else { return };
        for subset in each(object, "subsets") {
            for port in each(subset, "ports") {
                fill_text(port, "protocol", "TCP");
            }
        }
    },
    validate_create: endpoints,
    validate_update: |new, _| endpoints(new),
    warnings: |new, _| odd_addresses(new),
    ..PLAIN
};

/// `ValidateEndpoints` and `validateEndpointSubsets`.
fn endpoints(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    for subset in At::root(new).key("subsets").items() {
        if subset.key("addresses").is_empty() && subset.key("notReadyAddresses").is_empty() {
            errors.required(&subset, "must specify `addresses` or `notReadyAddresses`");
        }
        for list in ["addresses", "notReadyAddresses"] {
            for address in subset.key(list).items() {
                let ip = address.key("ip");
                let parsed = check_ip(&mut errors, &ip);
                let (host, node) = (address.key("hostname"), address.key("nodeName"));
                if !host.text().is_empty() {
                    errors.messages(&host, names::dns1123_label(host.text()));
                }
                if node.present() {
                    errors.messages(&node, names::dns1123_subdomain(node.text()));
                }
                match parsed.or_else(|| super::service_warnings::sloppy_ip(ip.text())) {
                    Some(parsed) => super::services::ordinary_ip(&mut errors, &ip, parsed.to_canonical()),
                    // Kubernetes tells it twice.
                    None => errors.invalid(&ip, "must be a valid IP address"),
                }
            }
        }
        let several = subset.key("ports").len() > 1;
        for port in subset.key("ports").items() {
            if several && port.key("name").text().is_empty() {
                errors.required(&port.key("name"), "");
            }
            if !port.key("name").text().is_empty() {
                errors.messages(&port.key("name"), names::dns1123_label(port.key("name").text()));
            }
            super::check::check_port(&mut errors, &port.key("port"));
            errors.one_of(&port.key("protocol"), &["SCTP", "TCP", "UDP"], true);
            protocol_of_program(&mut errors, &port);
        }
    }
    errors.into_vec()
}

/// The warnings about addresses that could be written otherwise. Those of the controller are not looked at
/// (`endpointsWarnings`).
fn odd_addresses(new: &Value) -> Vec<String> {
    let at = At::root(new);
    if at
        .keys(&["metadata", "labels", "endpoints.kubernetes.io/managed-by"])
        .present()
    {
        return Vec::new();
    }
    let subsets = at.key("subsets");
    let mut warn = Vec::new();
    for subset in subsets.items() {
        for list in ["addresses", "notReadyAddresses"] {
            let addresses = subset.key(list);
            warn.extend(
                addresses
                    .items()
                    .filter_map(|one| super::service_warnings::address(&one.key("ip"))),
            );
        }
    }
    warn
}

/// `appProtocol`, spelt like a label.
pub(super) fn protocol_of_program(errors: &mut Errors, port: &At<'_>) {
    let at = port.key("appProtocol");
    if at.present() {
        errors.messages(&at, names::qualified_name(at.text()));
    }
}

/// Whether these bytes are a JSON object; if not, Go's words for why.
fn json_object(bytes: &[u8]) -> Result<(), String> {
    let decoded = kubewright_schema::decode::json(bytes).map_err(|error| error.to_string())?;
    match decoded.value {
        Value::Object(_) | Value::Null => Ok(()),
        other => Err(TypeMismatch::new(&other, "map[string]interface {}").to_string()),
    }
}

/// How Leases are written: a renewal must name the version that it renews.
pub(crate) const LEASE: Strategy = Strategy {
    create_on_update: true,
    unconditional_update: false,
    any_finalizer: true,
    default: |object| {
        if let Some(object) = object.as_object_mut() {
            ensure(object, "spec");
        }
    },
    prepare_create: |object, _| without_election(object),
    prepare_update: |new, _, _| without_election(new),
    validate_create: lease,
    validate_update: |new, _| lease(new),
    fields: &[not_negative(&["spec", "leaseTransitions"], "ValidateLeaseSpec")],
    ..PLAIN
};

/// Coordinated leader election is behind a feature that is off: its fields are dropped.
fn without_election(lease: &mut Value) {
    if let Some(spec) = lease.as_object_mut().and_then(|lease| child(lease, "spec")) {
        spec.remove("strategy");
        spec.remove("preferredHolder");
    }
}

/// `ValidateLeaseSpec`.
fn lease(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    let duration = spec.key("leaseDurationSeconds");
    if duration.int().is_some_and(|seconds| seconds <= 0) {
        errors.invalid(&duration, "must be greater than 0");
    }
    errors.into_vec()
}
