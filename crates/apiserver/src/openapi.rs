//! OpenAPI v3: an index with hashes, and one document for each group and version. `v2` makes the one document of
//! version 2 out of the same parts.
//!
//! kubectl reads three things in a document: `paths` with `x-kubernetes-group-version-kind` and `x-kubernetes-action`
//! (to find a kind for `explain`, and whether it may send a strategic merge patch), the query parameter
//! `fieldValidation`, and `components.schemas`. The schemas are the published texts of the catalog, taken as they are,
//! closed over their references.
//!
//! Documents of built-in kinds are made on first use and kept as text; the index needs their hashes, so it makes them
//! all. Those of custom kinds are told apart by their sources (the definitions and their generations), so that nothing
//! needs to be made to tell whether one changed; a few are kept.
//!
//! A document as a protobuf message is made of its text for each answer: [`Form`] says how it is asked for, `messages`
//! and `gnostic` how it is written.

mod connects;
mod gnostic;
mod messages;
mod paths;
mod schemas;
pub mod v2;

use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use http::HeaderMap;
use kubewright_schema::{budget, decode};
use serde_json::{Map, Value, json};

use crate::model::Resource;
pub use crate::registry::documents::openapi::Document;
use crate::registry::{Snapshot, hash};
use crate::wire::negotiate;

/// `/openapi/v3`: the paths of the documents with their hashes.
pub fn index(snapshot: &Snapshot) -> Arc<Document> {
    let make = || {
        let mut entries = Map::new();
        for path in document_paths(snapshot) {
            let hash = match fingerprint(snapshot, &path) {
                Some(hash) => Some(hash),
                None => built_in(snapshot, &path).map(|document| document.hash.clone()),
            };
            if let Some(hash) = hash {
                let url = address(&path, &hash);
                entries.insert(path, json!({"serverRelativeURL": url}));
            }
        }
        Document::new(json!({"paths": entries}).to_string())
    };
    Arc::clone(snapshot.openapi.index.get_or_init(make))
}

/// The same with the documents of other servers, which have these paths and hashes; one without a hash is not listed,
/// nor is one of this server in its place.
pub(crate) fn index_with(snapshot: &Snapshot, others: &[(String, Option<String>)]) -> Arc<Document> {
    let own = index(snapshot);
    budget::allow_stored(own.body.len());
    let mut value = decode::stored(&own.body).expect("it is a JSON text that was made here");
    if let Some(entries) = value.get_mut("paths").and_then(Value::as_object_mut) {
        for (path, hash) in others {
            entries.remove(path);
            if let Some(hash) = hash {
                entries.insert(path.clone(), json!({"serverRelativeURL": address(path, hash)}));
            }
        }
    }
    Document::new(value.to_string())
}

/// `/openapi/v3/{path}`, with a path such as `api/v1` or `apis/apps/v1`; none when there is no such document.
/// A wrong `hash` parameter is answered with 301 to [`location`].
///
/// ```
/// use kubewright_apiserver::openapi;
/// use kubewright_apiserver::registry::{Kinds, Registry};
///
/// let snapshot = Registry::of(Kinds::new(kubewright_kinds::built_in(Default::default()))).snapshot();
/// let document = openapi::document(&snapshot, "apis/apps/v1").expect("served");
/// assert!(openapi::location("apis/apps/v1", &document).starts_with("/openapi/v3/apis/apps/v1?hash="));
/// assert!(openapi::document(&snapshot, "apis/unknown/v1").is_none());
/// ```
pub fn document(snapshot: &Snapshot, path: &str) -> Option<Arc<Document>> {
    let path = path.trim_matches('/');
    let Some(hash) = fingerprint(snapshot, path) else {
        return built_in(snapshot, path);
    };
    let recent = || snapshot.openapi.recent.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(document) = recent().get(path, &hash) {
        return Some(document);
    }
    // Made outside the lock: two requests may do it twice, with the same result, and none waits for another document.
    let document = Document::with(hash, make(snapshot, path)?);
    recent().add(path, &document);
    Some(document)
}

/// A document that no definition has a part in: it is the same for all servers that have these kinds.
fn built_in(snapshot: &Snapshot, path: &str) -> Option<Arc<Document>> {
    let made = || snapshot.kinds.documents.lock().unwrap_or_else(PoisonError::into_inner);
    // Another server with these kinds may serve more.
    let group = path.strip_prefix("apis/").and_then(|rest| rest.split('/').next());
    if group.is_some_and(|group| !snapshot.has_group(group)) {
        return None;
    }
    if let Some(document) = made().get(path) {
        return Some(document.clone());
    }
    let document = Document::new(make(snapshot, path)?);
    Some(made().entry(path.to_owned()).or_insert(document).clone())
}

/// The hash of a document's sources, if definitions have a part in it.
fn fingerprint(snapshot: &Snapshot, path: &str) -> Option<String> {
    let ["apis", group, version] = path.split('/').collect::<Vec<_>>()[..] else {
        return None;
    };
    let text = fingerprints(snapshot.version_rows(group, version));
    (!text.is_empty()).then(|| hash(text.as_bytes()))
}

/// The sources of the custom kinds among these rows, and the version of the program; empty when there is none.
fn fingerprints<'a>(rows: impl Iterator<Item = &'a Arc<Resource>>) -> String {
    let mut text = String::new();
    for (row, custom) in rows.filter_map(|row| row.custom.as_ref().map(|custom| (row, custom))) {
        for word in [env!("CARGO_PKG_VERSION"), &row.version, &custom.fingerprint] {
            text.push_str(word);
            text.push('\n');
        }
    }
    text
}

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
/// The media type that clients ask for, which is not a valid one: it has an `@`.
const PROTOBUF_WANTED: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";

/// How a document is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// JSON text.
    Json,
    /// The message `openapi.v3.Document` of gnostic.
    Protobuf,
}

impl Form {
    /// The form that the `Accept` header asks for; none when it takes neither (`HandleGroupVersion` of kube-openapi).
    pub fn accepted(headers: &HeaderMap) -> Option<Self> {
        match negotiate::preferred(headers, &[JSON, PROTOBUF, PROTOBUF_WANTED])? {
            JSON => Some(Form::Json),
            _ => Some(Form::Protobuf),
        }
    }

    /// The media type of the answer.
    pub fn media_type(self) -> &'static str {
        match self {
            Form::Json => JSON,
            Form::Protobuf => PROTOBUF,
        }
    }

    /// The document in this form.
    pub fn write(self, document: &Document) -> Bytes {
        match self {
            Form::Json => document.body.clone(),
            Form::Protobuf => {
                budget::allow_stored(document.body.len());
                let value = decode::stored(&document.body).expect("documents are JSON texts that were made here");
                Bytes::from(gnostic::write(&value, &messages::DOCUMENT))
            }
        }
    }
}

/// `/openapi/v3/apis/apps/v1?hash=…`: where the document is, as in the index.
pub fn location(path: &str, document: &Document) -> String {
    address(path, &document.hash)
}

fn address(path: &str, hash: &str) -> String {
    format!("/openapi/v3/{path}?hash={hash}")
}

fn document_paths(snapshot: &Snapshot) -> Vec<String> {
    let mut all: Vec<String> = [
        ".well-known/openid-configuration",
        "api",
        "apis",
        "openid/v1/jwks",
        "version",
    ]
    .map(str::to_owned)
    .to_vec();
    for group in snapshot.groups() {
        if !group.name.is_empty() {
            all.push(format!("apis/{}", group.name));
        }
        for version in &group.versions {
            all.push(if group.name.is_empty() {
                format!("api/{version}")
            } else {
                format!("apis/{}/{version}", group.name)
            });
        }
    }
    all
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// The paths of a document, whose schemas are added; none when there is no such document.
fn contents(snapshot: &Snapshot, path: &str, schemas: &mut schemas::Schemas) -> Option<Map<String, Value>> {
    Some(match path.split('/').collect::<Vec<_>>().as_slice() {
        [".well-known", "openid-configuration"] => plain(
            path,
            "WellKnown",
            "getServiceAccountIssuerOpenIDConfiguration",
            "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
            &json!({"type": "string"}),
            "application/json",
        ),
        ["openid", "v1", "jwks"] => plain(
            path,
            "openid",
            "getServiceAccountIssuerOpenIDKeyset",
            "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
            &json!({"type": "string"}),
            "application/jwk-set+json",
        ),
        ["version"] => plain(
            path,
            "version",
            "getCodeVersion",
            "get the version information for this server",
            &schemas.version(),
            "application/json",
        ),
        ["api"] => root(
            schemas,
            "/api/",
            "core",
            "getCoreAPIVersions",
            "get available API versions",
            "APIVersions",
        ),
        ["apis"] => root(
            schemas,
            "/apis/",
            "apis",
            "getAPIVersions",
            "get available API versions",
            "APIGroupList",
        ),
        ["api", version] if snapshot.has_version("", version) => paths::version(snapshot, "", version, schemas),
        // A group of custom kinds has no document of its own, only its versions have.
        ["apis", group] if !group.is_empty() && snapshot.has_group(group) && !snapshot.is_custom_group(group) => {
            let (tag, id) = (paths::camel(group, false), paths::camel(group, true));
            root(
                schemas,
                &format!("/apis/{group}/"),
                &tag,
                &format!("get{id}APIGroup"),
                "get information of a group",
                "APIGroup",
            )
        }
        ["apis", group, version] if !group.is_empty() && snapshot.has_version(group, version) => {
            paths::version(snapshot, group, version, schemas)
        }
        _ => return None,
    })
}

/// Whether a document is about the kinds of definitions.
fn is_custom(snapshot: &Snapshot, path: &str) -> bool {
    let group = path.split('/').nth(1).unwrap_or("");
    snapshot.has_custom_kinds(group)
}

fn make(snapshot: &Snapshot, path: &str) -> Option<String> {
    let version = snapshot.minor();
    let mut schemas = schemas::Schemas::of_v3(version);
    let paths = Value::Object(contents(snapshot, path, &mut schemas)?);
    let schemas = schemas.into_json();
    let schemas = if schemas == "{}" {
        String::new()
    } else {
        format!("\"schemas\":{schemas},")
    };
    if is_custom(snapshot, path) && path.matches('/').count() == 2 {
        // Upstream, another part of the server makes the documents of custom kinds.
        let schemas = schemas.trim_end_matches(',');
        return Some(format!(
            "{{\"openapi\":\"3.0.0\",\"info\":{{\"title\":\"Kubernetes CRD Swagger\",\"version\":\"v0.1.0\"}},\"paths\":{paths},\
             \"components\":{{{schemas}}}}}"
        ));
    }
    Some(format!(
        "{{\"openapi\":\"3.0.0\",\"info\":{{\"title\":\"Kubernetes\",\"version\":\"{version}\"}},\"paths\":{paths},\"components\":{{{schemas}\
         \"securitySchemes\":{{\"BearerToken\":{{\"type\":\"apiKey\",\"description\":\"Bearer Token authentication\",\
         \"name\":\"authorization\",\"in\":\"header\"}}}}}}}}"
    ))
}

/// A path that answers one document, which is no object.
fn plain(path: &str, tag: &str, id: &str, description: &str, schema: &Value, type_: &str) -> Map<String, Value> {
    let responses = paths::responses(&[("200", "OK")], schema, &[type_]);
    let get = json!({"tags": [tag], "description": description, "operationId": id, "responses": responses});
    Map::from_iter([(format!("/{path}/"), json!({"get": get}))])
}

fn root(
    schemas: &mut schemas::Schemas,
    path: &str,
    tag: &str,
    id: &str,
    description: &str,
    kind: &str,
) -> Map<String, Value> {
    let responses = paths::responses(
        &[("200", "OK")],
        &schemas.reference(&format!("{META}.{kind}")),
        paths::BUILTIN_TYPES,
    );
    let get = json!({"tags": [tag], "description": description, "operationId": id, "responses": responses});
    Map::from_iter([(path.to_owned(), json!({"get": get}))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    fn parsed(snapshot: &Snapshot, path: &str) -> Value {
        serde_json::from_slice(&document(snapshot, path).expect("served").body).expect("JSON")
    }

    #[test]
    fn every_document_is_closed_over_its_references() {
        let snapshot = Registry::new().snapshot();
        for path in document_paths(&snapshot) {
            let body = parsed(&snapshot, &path);
            let text = body.to_string();
            let schemas = body["components"]["schemas"].as_object().cloned().unwrap_or_default();
            for reference in text
                .split("\"#/components/schemas/")
                .skip(1)
                .filter_map(|rest| rest.split('"').next())
            {
                assert!(schemas.contains_key(reference), "{path}: {reference} is missing");
            }
        }
    }

    /// The bytes are those of `proto.Marshal(openapi_v3.ParseDocument(text))`, recorded.
    #[test]
    fn a_message() {
        let recorded = include_bytes!("../testdata/openapi-v3.pb");
        let text = include_str!("../testdata/openapi-v3.json").to_owned();
        let message = Form::Protobuf.write(&Document::new(text));
        assert!(message == recorded.as_slice(), "{}", String::from_utf8_lossy(&message));
    }

    #[test]
    fn a_document_has_what_kubectl_reads() {
        let snapshot = Registry::new().snapshot();
        let body = parsed(&snapshot, "apis/apps/v1");
        let item = &body["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"];
        let patch = &item["patch"];
        assert_eq!(patch["operationId"], "patchAppsV1NamespacedDeployment");
        assert_eq!(patch["x-kubernetes-action"], "patch");
        assert_eq!(
            patch["x-kubernetes-group-version-kind"],
            json!({"group": "apps", "version": "v1", "kind": "Deployment"})
        );
        assert!(patch["requestBody"]["content"]["application/strategic-merge-patch+json"].is_object());
        let parameters: Vec<_> = patch["parameters"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|p| p["name"].as_str())
            .collect();
        assert_eq!(
            parameters,
            ["dryRun", "fieldManager", "fieldValidation", "force"].map(Some)
        );
        let paths: Vec<_> = body["paths"]
            .as_object()
            .expect("an object")
            .keys()
            .filter(|path| path.contains("deployments"))
            .collect();
        assert_eq!(
            paths,
            [
                "/apis/apps/v1/deployments",
                "/apis/apps/v1/namespaces/{namespace}/deployments",
                "/apis/apps/v1/namespaces/{namespace}/deployments/{name}",
                "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale",
                "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/status",
                "/apis/apps/v1/watch/deployments",
                "/apis/apps/v1/watch/namespaces/{namespace}/deployments",
                "/apis/apps/v1/watch/namespaces/{namespace}/deployments/{name}"
            ]
        );
        assert!(body["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"]["properties"]["spec"].is_object());
    }

    #[test]
    fn the_index_points_at_every_document() {
        let snapshot = Registry::new().snapshot();
        let index: Value = serde_json::from_slice(&index(&snapshot).body).expect("JSON");
        let paths = index["paths"].as_object().expect("an object");
        assert!(
            paths.contains_key("apis/apiextensions.k8s.io/v1")
                && paths.contains_key("api/v1")
                && paths.contains_key("apis/batch")
        );
        for (path, entry) in paths {
            let document = document(&snapshot, path).expect("served");
            assert_eq!(entry["serverRelativeURL"], location(path, &document));
        }
    }

    #[test]
    fn a_custom_kind_is_documented() {
        let registry = Registry::new();
        registry.apply_crds([&json!({
            "metadata": {"name": "foos.ex.io"},
            "spec": {"group": "ex.io", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"}, "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "description": "wanted",
                    "properties": {"ios": {"x-kubernetes-int-or-string": true}}}}}},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.replicas"}},
                "selectableFields": [{"jsonPath": ".spec.mode"}]
            }]},
            "status": {"conditions": [{"type": "Established", "status": "True"}],
                "acceptedNames": {"plural": "foos", "kind": "Foo", "singular": "foo", "listKind": "FooList"}}
        })]);
        let body = parsed(&registry.snapshot(), "apis/ex.io/v1");
        let paths: Vec<_> = body["paths"]
            .as_object()
            .expect("an object")
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(
            paths,
            [
                "/apis/ex.io/v1/foos",
                "/apis/ex.io/v1/namespaces/{namespace}/foos",
                "/apis/ex.io/v1/namespaces/{namespace}/foos/{name}",
                "/apis/ex.io/v1/namespaces/{namespace}/foos/{name}/scale",
                "/apis/ex.io/v1/namespaces/{namespace}/foos/{name}/status"
            ]
        );
        let foo = &body["components"]["schemas"]["io.ex.v1.Foo"];
        assert_eq!(foo["properties"]["spec"]["description"], "wanted");
        assert_eq!(
            foo["properties"]["spec"]["properties"]["ios"]["anyOf"],
            json!([{"type": "integer"}, {"type": "string"}])
        );
        assert_eq!(
            foo["x-kubernetes-group-version-kind"],
            json!([{"group": "ex.io", "kind": "Foo", "version": "v1"}])
        );
        assert_eq!(
            foo["x-kubernetes-selectable-fields"],
            json!([{"fieldPath": "spec.mode"}])
        );
        let content =
            &body["paths"]["/apis/ex.io/v1/namespaces/{namespace}/foos/{name}"]["patch"]["requestBody"]["content"];
        assert!(
            content.get("application/strategic-merge-patch+json").is_none(),
            "custom kinds have no strategic merge patch"
        );
        assert_eq!(
            body["paths"]["/apis/ex.io/v1/foos"]["get"]["operationId"],
            "listExIoV1FooForAllNamespaces"
        );
        let deleted =
            &body["components"]["schemas"][format!("{META}.DeleteOptions")]["x-kubernetes-group-version-kind"];
        let groups: std::collections::BTreeSet<_> = deleted
            .as_array()
            .expect("a list")
            .iter()
            .map(|kind| kind["group"].as_str())
            .collect();
        assert!(groups.contains(&Some("apps")) && !groups.contains(&Some("admission.k8s.io")));
        // Its list has the name that the paths refer to.
        assert!(body["components"]["schemas"]["io.ex.v1.FooList"].is_object());
    }
}
