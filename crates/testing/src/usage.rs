//! Which rules of an operator's role its tests used: the requests of its client, held against the role.
//!
//! A rule that no test uses is one that production may use untested, or one too many. A request counts when the API
//! server did not refuse it; what it refused is counted too. Not here: the advice about it (`failures.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{Method, Request, Response, StatusCode, Uri};
use kubewright::Rule;
use kubewright::kube::api::DynamicObject;
use kubewright::kube::{self, client::Body};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;

use crate::request_info::RequestInfo;

/// The rights of a cluster's operators, and the requests that they made.
#[derive(Clone, Debug)]
pub(crate) struct Usage(Arc<Mutex<Recorded>>, watch::Sender<()>);

impl Default for Usage {
    fn default() -> Usage {
        Usage(Arc::default(), watch::Sender::new(()))
    }
}

#[derive(Debug, Default)]
struct Recorded {
    granted: BTreeSet<Granted>,
    requests: BTreeSet<Access>,
    /// The requests that the role does not allow, each as its refusal says it.
    refused: BTreeMap<String, Refused>,
}

#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) missing: Rule,
    pub(crate) namespace: Option<String>,
    pub(crate) times: u32,
}

/// How often a request is refused before nobody expects it to be allowed. Caches try again much later than reconciles.
const FINAL: u32 = 6;
const FINAL_OF_CACHES: u32 = 3;

/// A rule as it stands in a role (`PolicyRule` of rbac.authorization.k8s.io/v1).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Granted {
    api_groups: Vec<String>,
    resources: Vec<String>,
    resource_names: Vec<String>,
    verbs: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
}

/// The target of a request, as kube-apiserver's `RequestInfo` has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Access {
    Resource {
        group: String,
        /// With its subresource: `deployments/status`.
        resource: String,
        name: Option<String>,
        verb: &'static str,
    },
    Path {
        path: String,
        verb: &'static str,
    },
}

impl Usage {
    /// Counts the rules of these roles among those that may be used.
    pub(crate) fn grant(&self, roles: &[DynamicObject]) {
        let rules = roles.iter().filter_map(|role| role.data.get("rules")?.as_array());
        let granted = rules.flatten().filter_map(|rule| Granted::deserialize(rule).ok());
        self.recorded().granted.extend(granted);
    }

    /// The same client, whose requests are noted, for a pod of this namespace.
    pub(crate) fn noting(&self, client: &kube::Client, namespace: &str) -> kube::Client {
        let (usage, inner) = (self.clone(), client.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (usage, inner) = (usage.clone(), inner.clone());
            let requests = Access::of(request.method(), request.uri());
            let asked = RequestInfo::of(request.method(), request.uri());
            async move {
                let answer = inner.send(request).await?;
                if answer.status() != StatusCode::FORBIDDEN {
                    usage.recorded().requests.insert(requests);
                    return Ok(answer);
                }
                let (head, body) = answer.into_parts();
                let body = body.collect_bytes().await?;
                usage.refuse(&body, asked.namespace);
                Ok::<_, kube::Error>(Response::from_parts(head, Body::from(body)))
            }
        });
        kube::Client::new(service, namespace)
    }

    /// Notes a refusal for want of a right. Admission refuses with the same status.
    fn refuse(&self, status: &[u8], namespace: Option<String>) {
        let status: Value = serde_json::from_slice(status).unwrap_or_default();
        let text = status["message"].as_str().unwrap_or_default();
        let Some(missing) = Rule::missing_in(text) else {
            return;
        };
        let mut recorded = self.recorded();
        let refused = recorded.refused.entry(text.to_owned()).or_insert(Refused {
            missing,
            namespace,
            times: 0,
        });
        refused.times = refused.times.saturating_add(1);
        drop(recorded);
        self.1.send_replace(());
    }

    /// The requests that the role does not allow.
    pub(crate) fn refused(&self) -> Vec<Refused> {
        self.recorded().refused.values().cloned().collect()
    }

    /// Waits until `is_awaited` holds for the rule of a request that was refused again and again.
    pub(crate) async fn denied(&self, is_awaited: impl Fn(&Rule) -> bool) {
        let mut refusals = self.1.subscribe();
        loop {
            let mut refused = self.refused().into_iter();
            let is_final = |refused: &Refused| match refused.missing.covers(&refused.missing.clone().verbs(["watch"])) {
                true => refused.times >= FINAL_OF_CACHES,
                false => refused.times >= FINAL,
            };
            if refused.any(|refused| is_final(&refused) && is_awaited(&refused.missing)) {
                return;
            }
            if refusals.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The rules that were not used, each for one resource, with the unused verbs.
    pub(crate) fn unused(&self) -> Vec<Rule> {
        let seen = self.recorded();
        let of_each = seen.granted.iter().flat_map(|rule| rule.unused(&seen.requests));
        of_each.collect()
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fits(pattern: &str, text: &str) -> bool {
    pattern == "*" || pattern == text || pattern.strip_suffix('*').is_some_and(|start| text.starts_with(start))
}

impl Granted {
    fn unused(&self, requests: &BTreeSet<Access>) -> Vec<Rule> {
        let mut unused = Vec::new();
        for group in &self.api_groups {
            // No request asks for it: an owner reference that blocks deletion needs it
            // (OwnerReferencesPermissionEnforcement).
            let asked_for = self
                .resources
                .iter()
                .filter(|resource| !resource.ends_with("/finalizers"));
            for resource in asked_for {
                let used = |verb: &str| {
                    requests
                        .iter()
                        .any(|requests| self.allowed(group, resource, verb, requests))
                };
                // Where a server sends no initial events, an informer lists before it watches.
                let is_used = |verb: &str| used(verb) || verb == "list" && used("watch");
                let verbs: Vec<&String> = self.verbs.iter().filter(|verb| !is_used(verb)).collect();
                if !verbs.is_empty() {
                    let rule = Rule::new().groups([group]).resources([resource]).verbs(verbs);
                    unused.push(rule.resource_names(&self.resource_names));
                }
            }
        }
        for url in &self.non_resource_urls {
            let is_used = |verb: &str| {
                requests.iter().any(|requests| match requests {
                    Access::Path { path, verb: used } => fits(url, path) && fits(verb, used),
                    Access::Resource { .. } => false,
                })
            };
            let verbs: Vec<&String> = self.verbs.iter().filter(|verb| !is_used(verb)).collect();
            if !verbs.is_empty() {
                unused.push(Rule::new().urls([url]).verbs(verbs));
            }
        }
        unused
    }

    /// Whether this part of the rule allowed a request.
    fn allowed(&self, in_group: &str, of: &str, to: &str, requests: &Access) -> bool {
        let Access::Resource {
            group,
            resource,
            name,
            verb,
        } = requests
        else {
            return false;
        };
        let names = &self.resource_names;
        fits(in_group, group)
            && fits(of, resource)
            && fits(to, verb)
            && (names.is_empty() || name.as_ref().is_some_and(|name| names.contains(name)))
    }
}

impl Access {
    fn of(method: &Method, uri: &Uri) -> Access {
        let requested = RequestInfo::of(method, uri);
        if requested.resource.is_empty() {
            return Access::Path {
                path: uri.path().to_owned(),
                verb: requested.verb,
            };
        }
        Access::Resource {
            group: requested.group,
            resource: requested.resource,
            name: requested.name,
            verb: requested.verb,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_used_is_left() {
        let check = |rule: serde_json::Value, requests: &[(&str, &str)], expected: &[&str]| {
            let rule = Granted::deserialize(&rule).expect("a rule");
            let requests = requests
                .iter()
                .map(|(method, uri)| Access::of(&method.parse().expect("a method"), &uri.parse().expect("an address")))
                .collect();
            let unused: Vec<String> = rule.unused(&requests).iter().map(ToString::to_string).collect();
            assert_eq!(unused, expected, "{rule:?}");
        };
        let pods = serde_json::json!({"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]});
        check(
            pods.clone(),
            &[("GET", "/api/v1/pods")],
            &[
                r#"#[rbac(groups = "", resources = "pods", verbs = "get")]"#,
                r#"#[rbac(groups = "", resources = "pods/log", verbs = ["get", "list"])]"#,
            ],
        );
        let all = serde_json::json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
        check(all, &[("GET", "/api/v1/pods")], &[]);
        let named = serde_json::json!({
            "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"], "verbs": ["get"],
        });
        let left = r#"#[rbac(groups = "", resources = "secrets", resourceNames = "a", verbs = "get")]"#;
        check(named.clone(), &[("GET", "/api/v1/namespaces/x/secrets/b")], &[left]);
        check(named, &[("GET", "/api/v1/namespaces/x/secrets/a")], &[]);
        let urls = serde_json::json!({"nonResourceURLs": ["/metrics", "/healthz*"], "verbs": ["get"]});
        check(
            urls,
            &[("GET", "/healthz/ready")],
            &[r#"#[rbac(verbs = "get", urls = "/metrics")]"#],
        );
    }
}
