//! Whether the server that an APIService names can be reached: its condition `Available`.
//!
//! Versions that this server serves always are. Of another server's it is said how far the way there goes: the Service,
//! its port, its endpoints. There it ends: nothing is proxied, so the last step, a call, always fails and says why.
//! Upstream a controller in the API server writes the condition a moment after its cause; here it follows within the
//! same request.

use futures::FutureExt as _;
use serde_json::{Value, json};

use super::addresses;
use super::api_services;
use super::slices::Way;
use crate::env::rfc3339;
use crate::model::facts::locally_available;
use crate::model::form::key;
use crate::model::object::{self, conditions};
use crate::model::user::UserInfo;
use crate::server::Inner;
use crate::server::managed::Tracking;
use crate::server::write::{Part, Writer};
use crate::storage::StoredObject;
use crate::values::get;

pub(crate) const SLICES: &str = "endpointslices.discovery.k8s.io";
/// The label of an EndpointSlice that says whose it is.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The field manager of the server's own writes.
const MANAGER: &str = "kube-apiserver";

fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    get(value, path).as_str().unwrap_or("")
}

/// Why another server's version is not available: reason and message.
fn why_not(api_service: &Value, service: Option<&Value>, way: impl FnOnce(&str) -> Way) -> (&'static str, String) {
    let named = get(api_service, &["spec", "service"]);
    let (namespace, name) = (text(named, &["namespace"]), text(named, &["name"]));
    let port = get(named, &["port"]).as_i64().unwrap_or(443);
    let shown = format!("service/{name} in {namespace:?}");
    let Some(service) = service else {
        return ("ServiceNotFound", format!("{shown} is not present"));
    };
    let mut host = text(service, &["spec", "externalName"]);
    if text(service, &["spec", "type"]) == "ClusterIP" {
        host = text(service, &["spec", "clusterIP"]);
        let ports = get(service, &["spec", "ports"]).as_array().into_iter().flatten();
        let Some(found) = ports.into_iter().find(|one| get(one, &["port"]) == port) else {
            let why = format!("{shown} is not listening on port {port}");
            return ("ServicePortError", why);
        };
        let name = text(found, &["name"]);
        match way(name) {
            Way::NoSlices => {
                let why = format!("cannot find endpointslices for {shown}");
                return ("EndpointsNotFound", why);
            }
            Way::NoEndpoint => {
                let why = format!("endpointslices for {shown} have no addresses with port name {name:?}");
                return ("MissingEndpoints", why);
            }
            Way::Endpoint => {}
        }
    }
    let (group, version) = (
        text(api_service, &["spec", "group"]),
        text(api_service, &["spec", "version"]),
    );
    let url = format!("https://{host}:{port}/apis/{group}/{version}");
    let why = format!("failing or missing response from {url}: this server calls no other API servers");
    ("FailedDiscoveryCheck", why)
}

impl Inner {
    /// Says of an APIService that was written whether it is available.
    pub(crate) fn settle_availability(&self, api_service: &StoredObject) {
        let Some(row) = self.registry.lookup("apiregistration.k8s.io", "v1", "apiservices") else {
            return;
        };
        if self.availability(api_service.value()).is_none() {
            return;
        }
        let user = UserInfo::admin();
        let mut writer = Writer {
            tracking: Tracking::Update(MANAGER.to_owned()),
            ..Writer::new(self, row, &user)
        };
        let name = object::name(api_service.value()).to_owned();
        let next = |old: &mut Value, _: &mut Vec<String>| {
            let mut new = old.clone();
            if let Some(status) = self.availability(old) {
                new["status"] = status;
            }
            Ok(new)
        };
        match writer.update("", &name, Part::Status, next).now_or_never() {
            Some(Ok(_)) => {}
            Some(Err(status)) => tracing::debug!(name, %status, "an APIService does not say whether it is available"),
            None => tracing::debug!(
                name,
                "a webhook waits, so an APIService does not say whether it is available"
            ),
        }
    }

    /// The same of those that name a Service which was written, or of which an endpoint was.
    pub(crate) fn settle_available_through(&self, namespace: &str, service: &str) {
        for name in self.reached_through(namespace, service) {
            if let Some(api_service) = self.storage.get(api_services::STORE, &name) {
                self.settle_availability(&api_service);
            }
        }
    }

    /// The status that it should have; none when it has it.
    fn availability(&self, api_service: &Value) -> Option<Value> {
        let now = rfc3339(self.env.now());
        let named = get(api_service, &["spec", "service"]);
        let kinds = self.registry.snapshot();
        let (group, version) = (
            text(api_service, &["spec", "group"]),
            text(api_service, &["spec", "version"]),
        );
        let is_own = kinds.is_built_in_group(group) && kinds.has_version(group, version);
        let condition = if named.is_object() && is_own {
            // The group is served here, whatever Service it names.
            json!({"type": "Available", "status": "True", "lastTransitionTime": now, "reason": "Passed",
                "message": "all checks passed"})
        } else if named.is_object() {
            let (namespace, name) = (text(named, &["namespace"]), text(named, &["name"]));
            let service = self.storage.get(addresses::SERVICES, &key(namespace, name));
            let service = service.as_ref().map(|service| service.value());
            let way = |port: &str| self.slices.way(self.storage.as_ref(), &key(namespace, name), port);
            let (reason, message) = why_not(api_service, service, way);
            json!({"type": "Available", "status": "False", "lastTransitionTime": now, "reason": reason, "message": message})
        } else {
            locally_available(&now)
        };
        let before = get(api_service, &["status"]);
        let mut status = before.as_object().cloned().unwrap_or_default();
        conditions::set(&mut status, condition);
        let status = Value::Object(status);
        (status != *before).then_some(status)
    }
}

/// The Service that an EndpointSlice belongs to; empty for none.
pub(crate) fn service_of(slice: &Value) -> &str {
    text(slice, &["metadata", "labels", SERVICE_NAME])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::tests::World;
    use crate::server::upkeep::slices::Index;

    #[test]
    fn how_far_the_way_goes() {
        let api_service = json!({"spec": {"group": "m.io", "version": "v1", "service": {"namespace": "d", "name": "s", "port": 8443}}});
        let check = |service: Value, slices: &[Value], reason: &str, message: &str| {
            let service = Some(service).filter(Value::is_object);
            let mut index = Index::default();
            for (number, slice) in slices.iter().enumerate() {
                let mut slice = slice.clone();
                slice["metadata"] = json!({"namespace": "d", "labels": {SERVICE_NAME: "s"}});
                index.put(&format!("d/{number}"), Some(&slice));
                index.put("d/other", Some(&slice));
            }
            index.put("d/other", None);
            let way = |port: &str| index.way("d/s", port);
            assert_eq!(
                why_not(&api_service, service.as_ref(), way),
                (reason, message.to_owned())
            );
        };
        check(Value::Null, &[], "ServiceNotFound", "service/s in \"d\" is not present");
        let service = |port: i64| json!({"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.9", "ports": [{"name": "https", "port": port}]}});
        check(
            service(443),
            &[],
            "ServicePortError",
            "service/s in \"d\" is not listening on port 8443",
        );
        let none = "cannot find endpointslices for service/s in \"d\"";
        check(service(8443), &[], "EndpointsNotFound", none);
        let missing = "endpointslices for service/s in \"d\" have no addresses with port name \"https\"";
        let slice = |ready: Value, port: &str| json!({"endpoints": [{"conditions": {"ready": ready}}], "ports": [{"name": port, "port": 1}]});
        let unfit = [slice(json!(false), "https"), slice(json!(true), "http"), json!({})];
        check(service(8443), &unfit, "MissingEndpoints", missing);
        let called = |host: &str| {
            format!(
                "failing or missing response from https://{host}:8443/apis/m.io/v1: this server calls no other API servers"
            )
        };
        for ready in [json!(true), Value::Null] {
            let slices = [slice(ready, "https")];
            check(service(8443), &slices, "FailedDiscoveryCheck", &called("10.0.0.9"));
        }
        let external = json!({"spec": {"type": "ExternalName", "externalName": "a.b"}});
        check(external, &[], "FailedDiscoveryCheck", &called("a.b"));
    }

    /// As kube-apiserver 1.36 says it, write by write, but for the last step.
    #[test]
    fn it_follows_what_is_written() {
        const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
        const SERVICES: &str = "/api/v1/namespaces/default/services";
        const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
        let world = World::new();
        let check = |line: String, body: &Value, status: &str, reason: &str| {
            let answer = world.call(&line, body);
            assert!(answer.code < 300, "{line}: {}", answer.body);
            let found = world.call(&format!("GET {API_SERVICES}/v1.m.io"), &Value::Null).body;
            let said = |field: &str| found["status"]["conditions"][0][field].clone();
            assert_eq!(
                (said("status"), said("reason")),
                (json!(status), json!(reason)),
                "{line}"
            );
            let owners = found["metadata"]["managedFields"].as_array().into_iter().flatten();
            let own = owners.filter(|entry| entry["manager"] == MANAGER && entry["subresource"] == "status");
            assert_eq!(own.count(), 1, "{line}");
        };
        let named = json!({"namespace": "default", "name": "s", "port": 443});
        let spec = json!({"group": "m.io", "version": "v1", "groupPriorityMinimum": 9, "versionPriority": 9,
            "insecureSkipTLSVerify": true, "service": named});
        let api_service = json!({"metadata": {"name": "v1.m.io"}, "spec": spec});
        check(format!("POST {API_SERVICES}"), &api_service, "False", "ServiceNotFound");
        let other = json!({"metadata": {"name": "other"}, "spec": {"ports": [{"port": 443}]}});
        check(format!("POST {SERVICES}"), &other, "False", "ServiceNotFound");
        let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80, "name": "https"}]}});
        check(format!("POST {SERVICES}"), &service, "False", "ServicePortError");
        let port = json!({"spec": {"ports": [{"port": 443, "name": "https"}]}});
        check(format!("PATCH {SERVICES}/s"), &port, "False", "EndpointsNotFound");
        let slice = json!({"metadata": {"name": "s-1", "labels": {SERVICE_NAME: "s"}}, "addressType": "IPv4",
            "endpoints": [], "ports": [{"name": "https", "port": 4443}]});
        check(format!("POST {SLICES}"), &slice, "False", "MissingEndpoints");
        let endpoint = json!({"endpoints": [{"addresses": ["10.1.2.3"]}]});
        check(
            format!("PATCH {SLICES}/s-1"),
            &endpoint,
            "False",
            "FailedDiscoveryCheck",
        );
        check(
            format!("DELETE {SLICES}/s-1"),
            &Value::Null,
            "False",
            "EndpointsNotFound",
        );
        check(format!("DELETE {SERVICES}/s"), &Value::Null, "False", "ServiceNotFound");
        let local = json!({"spec": {"service": null, "insecureSkipTLSVerify": null}});
        check(format!("PATCH {API_SERVICES}/v1.m.io"), &local, "True", "Local");
    }
}
