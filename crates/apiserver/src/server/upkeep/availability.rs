//! Whether the server that an APIService names can be reached: its condition `Available`.
//!
//! Versions that this server serves always are. Of another server's it is said how far the way there goes: the Service,
//! its port, its endpoints, and what came of the last question that it was asked (`aggregate::probes`). Upstream a
//! controller in the API server writes the condition a moment after its cause; here it follows within the same request,
//! but for the answers of other servers.

use futures::FutureExt as _;
use serde_json::{Value, json};

use super::addresses;
use super::api_services::{self, Remote};
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

/// Why the way to another server ends before it: reason and message; none if it does not.
fn why_not(
    api_service: &Value,
    service: Option<&Value>,
    way: impl FnOnce(&str) -> Way,
) -> Option<(&'static str, String)> {
    let named = get(api_service, &["spec", "service"]);
    let (namespace, name) = (text(named, &["namespace"]), text(named, &["name"]));
    let port = get(named, &["port"]).as_i64().unwrap_or(443);
    let shown = format!("service/{name} in {namespace:?}");
    let Some(service) = service else {
        return Some(("ServiceNotFound", format!("{shown} is not present")));
    };
    if text(service, &["spec", "type"]) != "ClusterIP" {
        return None;
    }
    let ports = get(service, &["spec", "ports"]).as_array().into_iter().flatten();
    let Some(found) = ports.into_iter().find(|one| get(one, &["port"]) == port) else {
        let why = format!("{shown} is not listening on port {port}");
        return Some(("ServicePortError", why));
    };
    let name = text(found, &["name"]);
    match way(name) {
        Way::NoSlices => {
            let why = format!("cannot find endpointslices for {shown}");
            Some(("EndpointsNotFound", why))
        }
        Way::NoEndpoint => {
            let why = format!("endpointslices for {shown} have no addresses with port name {name:?}");
            Some(("MissingEndpoints", why))
        }
        Way::Endpoint => None,
    }
}

impl Inner {
    /// After a write of an APIService: says whether it is available, and asks its server when the way there is another.
    pub(crate) fn settle_availability(&self, api_service: &StoredObject) {
        let name = object::name(api_service.head());
        let remote = Remote::of(api_service.value());
        if remote.is_some_and(|remote| self.probes.outcome(&remote).is_none()) {
            self.probes.ask(name);
        }
        self.settle_availability_of(name);
    }

    /// Says of an APIService whether it is available.
    pub(crate) fn settle_availability_of(&self, name: &str) {
        let Some(row) = self.registry.lookup("apiregistration.k8s.io", "v1", "apiservices") else {
            return;
        };
        let stored = self.storage.get(api_services::STORE, name);
        if stored.is_none_or(|stored| self.availability(stored.value()).is_none()) {
            return;
        }
        let user = UserInfo::admin();
        let mut writer = Writer {
            tracking: Tracking::Update(MANAGER.to_owned()),
            ..Writer::new(self, row, &user)
        };
        let next = |old: &mut Value, _: &mut Vec<String>| {
            let mut new = old.clone();
            if let Some(status) = self.availability(old) {
                new["status"] = status;
            }
            Ok(new)
        };
        match writer.update("", name, Part::Status, next).now_or_never() {
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
            self.settle_availability_of(&name);
            self.probes.ask(&name);
        }
    }

    /// Whether the way to another server goes as far as to an endpoint.
    pub(crate) fn is_reachable(&self, remote: &Remote) -> bool {
        let api_service = self.storage.get(api_services::STORE, &remote.name());
        api_service.is_some_and(|api_service| self.way_ends(api_service.value()).is_none())
    }

    /// Where it is, as messages have it.
    pub(crate) fn url_of(&self, remote: &Remote) -> String {
        let (key, port) = (remote.key(), remote.port);
        let service = self.storage.get(addresses::SERVICES, &key);
        let spec = |field: &str| {
            let found = service.as_ref().map(|service| text(service.value(), &["spec", field]));
            found.unwrap_or("").to_owned()
        };
        let host = match spec("type").as_str() {
            "ExternalName" => spec("externalName"),
            _ => spec("clusterIP"),
        };
        format!("https://{host}:{port}/apis/{}/{}", remote.group, remote.version)
    }

    fn way_ends(&self, api_service: &Value) -> Option<(&'static str, String)> {
        let named = get(api_service, &["spec", "service"]);
        let at = key(text(named, &["namespace"]), text(named, &["name"]));
        let service = self.storage.get(addresses::SERVICES, &at);
        let service = service.as_ref().map(|service| service.value());
        why_not(api_service, service, |port: &str| {
            self.slices.way(self.storage.as_ref(), &at, port)
        })
    }

    /// The status that it should have; none when it has it.
    fn availability(&self, api_service: &Value) -> Option<Value> {
        let now = rfc3339(self.env.now());
        let condition = |status: &str, reason: &str, message: &str| {
            json!({"type": "Available", "status": status, "lastTransitionTime": now, "reason": reason,
                "message": message})
        };
        let passed = condition("True", "Passed", "all checks passed");
        let condition = match Remote::of(api_service) {
            None => locally_available(&now),
            // It is served here, whatever Service it names.
            Some(remote) if self.stands_in(&remote.group, &remote.version) => passed,
            Some(remote) => match (self.way_ends(api_service), self.probes.outcome(&remote)) {
                (Some((reason, message)), _) => condition("False", reason, &message),
                (None, Some(Ok(()))) => passed,
                (None, Some(Err(message))) => condition("False", "FailedDiscoveryCheck", &message),
                // It is being asked.
                (None, None) => return None,
            },
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
            let expected = Some((reason, message.to_owned())).filter(|_| !reason.is_empty());
            assert_eq!(why_not(&api_service, service.as_ref(), way), expected);
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
        for ready in [json!(true), Value::Null] {
            check(service(8443), &[slice(ready, "https")], "", "");
        }
        let external = json!({"spec": {"type": "ExternalName", "externalName": "a.b"}});
        check(external, &[], "", "");
    }

    /// As kube-apiserver 1.36 says it, write by write. Nobody asks the other server here.
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
        check(format!("PATCH {SLICES}/s-1"), &endpoint, "False", "MissingEndpoints");
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
