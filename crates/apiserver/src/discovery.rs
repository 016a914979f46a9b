//! Discovery: which groups, versions and resources there are, in the legacy form and the aggregated one.
//!
//! Everything is made from the rows of a snapshot, on first use, and kept with it. The order of verbs differs on
//! purpose: built-in kinds list them sorted, custom ones as the extensions server does; clients compare such things.
//!
//! Invariants: a kind that is not served is not listed; the ETag of an aggregated document changes exactly when the
//! document does.
//!
//! Not here: versions of other servers (`discovery/remote.rs`), negotiation for the legacy form, and the encoding of
//! both.

pub(crate) mod remote;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use serde_json::{Value, json};

use crate::model::{Minor, Resource, Subresource, Verbs};
use crate::registry::documents::discovery::Form;
pub use crate::registry::documents::discovery::{Aggregated, Answer, DiscoveryPath};
use crate::registry::{Group, Snapshot, hash, short_hash};
use crate::scheme::join_version;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Answers `/api`, `/apis`, `/api/{version}`, `/apis/{group}`, `/apis/{group}/{version}`; none for groups and versions
/// that are not served. `accept` is the header's text, empty when absent.
///
/// ```
/// use kubewright_apiserver::discovery::{DiscoveryPath, respond};
/// use kubewright_apiserver::registry::{Kinds, Registry};
///
/// let snapshot = Registry::of(Kinds::new(kubewright_kinds::built_in(Default::default()))).snapshot();
/// let place = DiscoveryPath::Version("apps".to_owned(), "v1".to_owned());
/// let answer = respond(&place, "application/json", &snapshot).expect("served");
/// assert_eq!(answer.body["groupVersion"], "apps/v1");
/// assert!(respond(&DiscoveryPath::Group("unknown.example.org".to_owned()), "", &snapshot).is_none());
/// ```
pub fn respond(place: &DiscoveryPath, accept: &str, snapshot: &Snapshot) -> Option<Answer> {
    let form = form_of(place, accept);
    let mut answers = snapshot
        .discovery
        .answers
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(answer) = answers.get(&(place.clone(), form)) {
        return answer.clone();
    }
    let answer = make(place, form, snapshot);
    // Unknown ones are not kept: there is no end of them.
    if answer.is_some() {
        answers.insert((place.clone(), form), answer.clone());
    }
    answer
}

/// The form in which the document at a path is asked for.
fn form_of(place: &DiscoveryPath, accept: &str) -> Form {
    match place {
        DiscoveryPath::Core | DiscoveryPath::Groups => form_for(accept),
        _ => Form::Legacy,
    }
}

/// The first media type of the list that can be served decides.
fn form_for(accept: &str) -> Form {
    for media in accept.split(',') {
        let mut parts = media.split(';').map(str::trim);
        let kind = parts.next().unwrap_or("");
        if !matches!(kind, "application/json" | "*/*" | "application/yaml" | PROTOBUF) {
            continue;
        }
        let parameters: BTreeMap<&str, &str> = parts.filter_map(|part| part.split_once('=')).collect();
        let get = |name: &str| parameters.get(name).copied().unwrap_or("");
        match (kind, get("g"), get("as"), get("v")) {
            ("application/json", "apidiscovery.k8s.io", "APIGroupDiscoveryList", "v2") => return Form::V2,
            (PROTOBUF, "apidiscovery.k8s.io", "APIGroupDiscoveryList", "v2") => return Form::V2Protobuf,
            (_, "", "", _) => return Form::Legacy,
            _ => {}
        }
    }
    Form::Legacy
}

fn make(place: &DiscoveryPath, form: Form, snapshot: &Snapshot) -> Option<Answer> {
    let legacy = |body: Value| {
        Some(Answer {
            body: Arc::new(body),
            aggregated: None,
        })
    };
    match (place, form) {
        (DiscoveryPath::Core, Form::Legacy) => legacy(versions(snapshot)),
        (DiscoveryPath::Groups, Form::Legacy) => legacy(groups(snapshot)),
        (DiscoveryPath::Core, _) => Some(aggregated(snapshot, form, |group| group.name.is_empty())),
        (DiscoveryPath::Groups, _) => Some(aggregated(snapshot, form, |group| !group.name.is_empty())),
        (DiscoveryPath::CoreVersion(version), _) => resources(snapshot, "", version).and_then(legacy),
        (DiscoveryPath::Group(group), _) => {
            let group = snapshot
                .groups()
                .iter()
                .find(|known| !group.is_empty() && known.name == *group)?;
            let mut body = group_entry(group);
            body["kind"] = "APIGroup".into();
            body["apiVersion"] = "v1".into();
            legacy(body)
        }
        (DiscoveryPath::Version(group, _), _) if group.is_empty() => None,
        (DiscoveryPath::Version(group, version), _) => resources(snapshot, group, version).and_then(legacy),
    }
}

fn versions(snapshot: &Snapshot) -> Value {
    let versions = snapshot
        .groups()
        .iter()
        .find(|group| group.name.is_empty())
        .map(|group| group.versions.clone())
        .unwrap_or_default();
    json!({"kind": "APIVersions", "versions": versions, "serverAddressByClientCIDRs": []})
}

fn groups(snapshot: &Snapshot) -> Value {
    let groups: Vec<Value> = snapshot
        .groups()
        .iter()
        .filter(|group| !group.name.is_empty())
        .map(group_entry)
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn group_entry(group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{}/{version}", group.name), "version": version}))
        .collect();
    json!({"name": group.name, "preferredVersion": versions.first(), "versions": versions})
}

fn resources(snapshot: &Snapshot, group: &str, version: &str) -> Option<Value> {
    if !snapshot.has_version(group, version) {
        return None;
    }
    let mut list = Vec::new();
    for row in snapshot.version_rows(group, version) {
        list.push(resource_entry(row, snapshot.minor()));
        list.extend(
            row.subresources
                .iter()
                .map(|subresource| subresource_entry(row, subresource)),
        );
    }
    let mut body = json!({
        "kind": "APIResourceList",
        "groupVersion": join_version(group, version),
        "resources": list,
    });
    // The core group's document has no apiVersion, a habit from before there were groups.
    if !group.is_empty() {
        body["apiVersion"] = "v1".into();
    }
    Some(body)
}

/// The verbs of a kind, in the order in which its server lists them.
pub(crate) fn verbs(row: &Resource) -> &'static [&'static str] {
    match (row.verbs, row.custom.is_some()) {
        (Verbs::CreateOnly, _) => &["create"],
        (Verbs::ReadOnly, _) => &["get", "list"],
        (Verbs::AllButDeleteCollection, _) => &["create", "delete", "get", "list", "patch", "update", "watch"],
        (Verbs::All, false) => &[
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        ],
        (Verbs::All, true) => &[
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "create",
            "update",
            "watch",
        ],
    }
}

fn resource_entry(row: &Resource, minor: Minor) -> Value {
    let mut entry = json!({
        "name": row.plural,
        "singularName": row.singular,
        "namespaced": row.namespaced,
        "kind": row.kind,
        "verbs": verbs(row),
    });
    names(row, &mut entry);
    if !matches!(row.verbs, Verbs::CreateOnly | Verbs::ReadOnly) {
        entry["storageVersionHash"] = storage_version_hash(row, minor).into();
    }
    entry
}

fn names(row: &Resource, entry: &mut Value) {
    if !row.short_names.is_empty() {
        entry["shortNames"] = json!(row.short_names);
    }
    if !row.categories.is_empty() {
        entry["categories"] = json!(row.categories);
    }
}

/// Tells clients when the stored form of a kind changes: it depends on group, version and kind of the stored objects.
fn storage_version_hash(row: &Resource, minor: Minor) -> String {
    use base64::Engine as _;
    let group = row.stored_group();
    // kube-apiserver hashes some kinds in a beta version, in which it stores them or once did; clients only compare the
    // hash.
    let version = match row.store.as_ref() {
        "mutatingadmissionpolicies.admissionregistration.k8s.io"
        | "mutatingadmissionpolicybindings.admissionregistration.k8s.io"
            if minor < Minor::V37 =>
        {
            "v1beta1"
        }
        "customresourcedefinitions.apiextensions.k8s.io"
        | "clustertrustbundles.certificates.k8s.io"
        | "podcertificaterequests.certificates.k8s.io"
        | "storageversionmigrations.storagemigration.k8s.io" => "v1beta1",
        "devicetaintrules.resource.k8s.io" => "v1beta2",
        _ => row.storage_version.as_ref(),
    };
    let stored = format!("{group}/{version}/{}", row.kind);
    base64::engine::general_purpose::STANDARD.encode(short_hash(stored.as_bytes()))
}

/// The discovery entry of a subresource: name, kind with group and version where they differ, verbs.
struct Described {
    name: &'static str,
    group: &'static str,
    version: &'static str,
    kind: String,
    verbs: &'static [&'static str],
}

fn describe(row: &Resource, subresource: &Subresource) -> Described {
    let own = |name, verbs| Described {
        name,
        group: "",
        version: "",
        kind: row.kind.to_string(),
        verbs,
    };
    match subresource {
        Subresource::Status => own("status", subresource.verbs()),
        Subresource::Part(portion) => own(portion.name, portion.verbs),
        Subresource::Scale(_) => Described {
            name: "scale",
            group: "autoscaling",
            version: "v1",
            kind: "Scale".to_owned(),
            verbs: subresource.verbs(),
        },
        Subresource::Document(document) => Described {
            name: document.name,
            group: document.group,
            version: if document.group.is_empty() { "" } else { "v1" },
            kind: document.kind.to_owned(),
            verbs: subresource.verbs(),
        },
        Subresource::Connect(connection) => Described {
            kind: connection.kind.to_owned(),
            ..own(connection.to.name(), connection.to.verbs())
        },
    }
}

fn subresource_entry(row: &Resource, subresource: &Subresource) -> Value {
    let described = describe(row, subresource);
    let mut entry = json!({
        "name": format!("{}/{}", row.plural, described.name),
        "singularName": "",
        "namespaced": row.namespaced,
        "kind": described.kind,
        "verbs": described.verbs,
    });
    if !described.version.is_empty() {
        entry["group"] = described.group.into();
        entry["version"] = described.version.into();
    }
    entry
}

fn aggregated(snapshot: &Snapshot, form: Form, wanted: impl Fn(&Group) -> bool) -> Answer {
    let items: Vec<Value> = snapshot
        .groups()
        .iter()
        .filter(|group| wanted(group))
        .map(|group| {
            let versions: Vec<Value> = group
                .versions
                .iter()
                .map(|version| {
                    let resources: Vec<Value> = snapshot
                        .version_rows(&group.name, version)
                        .map(|row| discovery(row))
                        .collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if group.name.is_empty() {
                json!({})
            } else {
                json!({"name": group.name})
            };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    let body =
        json!({"kind": "APIGroupDiscoveryList", "apiVersion": form.api_version(), "metadata": {}, "items": items});
    let etag = format!("\"{}\"", hash(body.to_string().as_bytes()));
    Answer {
        body: Arc::new(body),
        aggregated: Some(Aggregated {
            content_type: form.content_type(),
            etag,
        }),
    }
}

fn discovery(row: &Resource) -> Value {
    // The kinds of the group itself are given without group and version by built-in servers, with them by the
    // extensions server.
    let kind = |described: Option<&Described>| {
        let kind = described.map_or(row.kind.as_ref(), |described| described.kind.as_str());
        match described {
            Some(described) if !described.version.is_empty() => {
                json!({"group": described.group, "version": described.version, "kind": kind})
            }
            _ if row.custom.is_some() => json!({"group": row.group, "version": row.version, "kind": kind}),
            _ => json!({"group": "", "version": "", "kind": kind}),
        }
    };
    let mut entry = json!({
        "resource": row.plural,
        "responseKind": kind(None),
        "scope": if row.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": row.singular,
        "verbs": verbs(row),
    });
    names(row, &mut entry);
    if !row.subresources.is_empty() {
        let subresources: Vec<Value> = row
            .subresources
            .iter()
            .map(|subresource| {
                let described = describe(row, subresource);
                json!({"subresource": described.name, "responseKind": kind(Some(&described)), "verbs": described.verbs})
            })
            .collect();
        entry["subresources"] = Value::Array(subresources);
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    fn at(path: &str, accept: &str, snapshot: &Snapshot) -> Option<Answer> {
        respond(&DiscoveryPath::at(path)?, accept, snapshot)
    }

    fn recorded(text: &str) -> BTreeMap<String, Value> {
        serde_json::from_str(text).expect("the committed extract of the recording")
    }

    #[test]
    fn legacy_lists_are_those_of_the_recording() {
        let snapshot = Registry::new().snapshot();
        for (version, resources) in recorded(include_str!("../testdata/discovery_legacy.json")) {
            let path = if version == "v1" {
                "/api/v1".to_owned()
            } else {
                format!("/apis/{version}")
            };
            let answer = at(&path, "application/json", &snapshot).expect("served");
            let body = &answer.body;
            assert_eq!(body["resources"], resources, "{version}");
            assert_eq!(body["groupVersion"], version);
        }
    }

    #[test]
    fn aggregated_lists_are_those_of_the_recording() {
        let snapshot = Registry::new().snapshot();
        let recorded = recorded(include_str!("../testdata/discovery_aggregated.json"));
        let mut seen = 0;
        for path in ["/api", "/apis"] {
            let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
            let answer = at(path, accept, &snapshot).expect("served");
            assert!(answer.aggregated.is_some_and(|form| form.etag.starts_with('"')));
            for group in answer.body["items"].as_array().expect("a list") {
                let name = group["metadata"]["name"]
                    .as_str()
                    .map(|name| format!("{name}/"))
                    .unwrap_or_default();
                for version in group["versions"].as_array().expect("a list") {
                    let key = format!("{name}{}", version["version"].as_str().expect("a version"));
                    assert_eq!(Some(version), recorded.get(&key), "{key}");
                    seen += 1;
                }
            }
        }
        assert_eq!(seen, recorded.len());
    }

    #[test]
    fn the_form_follows_the_header() {
        let v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
        for (accept, wanted) in [
            ("", Form::Legacy),
            ("application/json", Form::Legacy),
            (v2, Form::V2),
            // Kubernetes 1.36 has no other version of it.
            (beta, Form::Legacy),
            (
                &format!("application/vnd.kubernetes.protobuf;as=X, {beta},{v2}"),
                Form::V2,
            ),
            ("application/json;g=other;v=v9;as=X,application/json", Form::Legacy),
            (&v2.replace("json", "vnd.kubernetes.protobuf"), Form::V2Protobuf),
            ("application/vnd.kubernetes.protobuf,application/json", Form::Legacy),
        ] {
            assert_eq!(form_for(accept), wanted, "{accept}");
        }
    }

    #[test]
    fn groups_come_in_the_order_of_kube_apiserver_and_unknown_ones_not_at_all() {
        let snapshot = Registry::new().snapshot();
        let body = at("/apis/", "", &snapshot).expect("served").body;
        let names: Vec<_> = body["groups"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|group| group["name"].as_str())
            .collect();
        let wanted = [
            "apiregistration.k8s.io",
            "apps",
            "events.k8s.io",
            "authentication.k8s.io",
            "authorization.k8s.io",
            "autoscaling",
            "batch",
            "certificates.k8s.io",
            "networking.k8s.io",
            "policy",
            "rbac.authorization.k8s.io",
            "storage.k8s.io",
            "admissionregistration.k8s.io",
            "apiextensions.k8s.io",
            "scheduling.k8s.io",
            "coordination.k8s.io",
            "node.k8s.io",
            "discovery.k8s.io",
            "resource.k8s.io",
            "flowcontrol.apiserver.k8s.io",
        ];
        assert_eq!(names, wanted.map(Some));
        for path in [
            "/apis/nothing",
            "/apis/apps/v2",
            "/api/v2",
            "/apis//v1",
            "/foo",
            "",
            "/api/v1/pods",
        ] {
            assert!(at(path, "", &snapshot).is_none(), "{path}");
        }
        let group = at("/apis/apps", "", &snapshot).expect("served").body;
        assert_eq!(group["preferredVersion"]["groupVersion"], "apps/v1");
    }
}
