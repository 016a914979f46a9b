//! Small operators after public reports, one for each class of bugs that neither the faults nor the inputs nor the
//! oracles of the explorer reached before: what others own goes and comes back, a namespace ends, a neighbor of almost
//! the same name, a deletion in the foreground, a list, an object that may be absent, a change by hand, a condition that
//! stays.
//!
//! Invariants: a pair differs in one place, which a comment names (*The mend*), and was written from its report before it
//! was known whether it is found; the mended operator keeps its promise under every fault.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kubewright::Scope;
use kubewright::prelude::*;
use kubewright_testing::explore::{Explore, Step};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::corpus::kit::{self, key};

const SECRET: &str = "apiVersion: v1
kind: Secret
metadata: {name: access}
data: {token: YWxwaGE=}
";
const SITE: &str = "apiVersion: example.com/v1
kind: Site
metadata: {name: shop}
spec: {replicas: 2, hosts: [{name: web}, {name: api}]}
";

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Site",
    namespaced,
    status = "SiteStatus"
)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct SiteSpec {
    #[schemars(range(min = 1, max = 3))]
    replicas: i32,
    #[serde(default)]
    hosts: Vec<Host>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ingress: Option<Ingress>,
}

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
struct Host {
    name: String,
}

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
struct Ingress {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    class: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
struct SiteStatus {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
struct Condition {
    r#type: String,
    status: String,
}

/// The mistakes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Class {
    /// grafana/agent#655: a Secret that the object names is read and not watched.
    Unwatched,
    /// rabbitmq/messaging-topology-operator#277: the cleanup needs a Secret, which the user deleted first.
    Login,
    /// ansible/awx-operator#228: the cleanup makes an object, in a namespace that is being deleted.
    Farewell,
    /// defilantech/LLMKube#949, infinispan/infinispan-operator#1428: what is deleted in the foreground gets its children
    /// again.
    Foreground,
    /// kubernetes-sigs/cluster-api-operator#589: a child is compared by a note of what was wanted, not by what it is.
    Drift,
    /// perses/perses-operator#279: a condition tells of a failure that is over.
    Degraded,
    /// arkmq-org/arkmq-org-broker-operator#199: two objects with the same content share a child, which goes with one.
    Shared,
    /// apache/solr-operator#673, open-telemetry/opentelemetry-operator#2651: what an optional part of the spec asked for
    /// stays when it is taken out.
    Optional,
    /// nais/naiserator#27: so does what an entry of a list asked for.
    Entry,
}

/// Each with its name.
pub(super) const CLASSES: [(&str, Class); 9] = [
    ("grafana-agent-655", Class::Unwatched),
    ("messaging-topology-277", Class::Login),
    ("awx-228", Class::Farewell),
    ("llmkube-949", Class::Foreground),
    ("cluster-api-operator-589", Class::Drift),
    ("perses-279", Class::Degraded),
    ("arkmq-199", Class::Shared),
    ("solr-673", Class::Optional),
    ("naiserator-27", Class::Entry),
];

fn operator(class: Class, fixed: bool) -> Operator {
    let controller = Controller::of(Sites { class, fixed })
        .owns::<Deployment>()
        .owns::<ConfigMap>()
        .reads::<Namespace>(Scope::all());
    // The mend of a Secret that is not watched.
    let controller = match class != Class::Unwatched || fixed {
        true => controller.watches_all_of::<Secret>(),
        false => controller.reads::<Secret>(Scope::all()),
    };
    Operator::new("sites").crd::<Site>().controller(controller)
}

struct Sites {
    class: Class,
    fixed: bool,
}

impl Reconciler for Sites {
    type Object = Site;

    async fn reconcile(&self, site: Arc<Site>, ctx: Context) -> Result<Action> {
        let (client, (namespace, name)) = (ctx.client(), key(&*site));
        let cleans_up = matches!(self.class, Class::Login | Class::Farewell);
        if kit::is_going(&*site) {
            if cleans_up && kit::is_held(&*site) {
                self.clean_up(&site, client).await?;
            }
            // The mend: what is going gets nothing any more.
            if self.class != Class::Foreground || self.fixed {
                return Ok(Action::await_change());
            }
        } else if cleans_up && !kit::is_held(&*site) {
            kit::hold(client, &*site).await?;
            return Ok(Action::await_change());
        }
        self.serve(&site, client).await?;
        match self.class {
            Class::Unwatched => {
                let token = token(client, &site).await?.unwrap_or_default();
                let config = settings(&site, &format!("{name}-config"), &token);
                kit::ensure(client, config).await?;
            }
            Class::Degraded => {
                let is_degraded = token(client, &site).await?.is_none();
                // The mend: that all is well is told, too.
                if is_degraded || self.fixed {
                    tell(client, &site, is_degraded).await?;
                }
            }
            Class::Shared => {
                let content = site.spec.replicas.to_string();
                // The mend: each has its own.
                let shared = match self.fixed {
                    true => format!("{name}-props-{content}"),
                    false => format!("props-{content}"),
                };
                if client.get::<ConfigMap>(namespace, &shared).await?.is_none() {
                    client.create(&settings(&site, &shared, &content)).await?;
                }
                prune(client, &site, &[shared]).await?;
            }
            Class::Optional => {
                let ingress = format!("{name}-ingress");
                if let Some(wanted) = &site.spec.ingress {
                    let class = wanted.class.clone().unwrap_or_default();
                    kit::ensure(client, settings(&site, &ingress, &class)).await?;
                } else if self.fixed {
                    // The mend: what is not wanted any more goes.
                    prune(client, &site, &[]).await?;
                }
            }
            Class::Entry => {
                let mut wanted = Vec::new();
                for host in &site.spec.hosts {
                    let config = settings(&site, &format!("{name}-{}", host.name), &host.name);
                    wanted.push(key(&config).1.to_owned());
                    kit::ensure(client, config).await?;
                }
                // The mend: those of other entries are deleted.
                if self.fixed {
                    prune(client, &site, &wanted).await?;
                }
            }
            _ => {}
        }
        Ok(Action::await_change())
    }
}

/// What the wanted state was when the child was written.
const WANTED: &str = "example.com/wanted";

impl Sites {
    async fn serve(&self, site: &Site, client: &Client) -> Result<()> {
        let (namespace, name) = key(site);
        let (labels, wanted) = (json!({ "app": name }), site.spec.replicas.to_string());
        let container = json!({ "name": "web", "image": "web:1" });
        let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [container] } });
        let spec =
            json!({ "replicas": site.spec.replicas, "selector": { "matchLabels": labels }, "template": template });
        let body = json!({ "metadata": { "annotations": { WANTED: wanted } }, "spec": spec });
        if self.class == Class::Drift && !self.fixed {
            let known = client.get::<Deployment>(namespace, name).await?;
            let noted = known
                .as_ref()
                .and_then(|known| known.metadata.annotations.as_ref()?.get(WANTED));
            if noted == Some(&wanted) {
                return Ok(());
            }
        }
        // The mend: it is compared with what is there.
        kit::ensure(client, kit::child::<Deployment>(site, name, body)).await?;
        Ok(())
    }

    async fn clean_up(&self, site: &Site, client: &Client) -> Result<()> {
        if !kit::is_current(client, site).await? {
            return Err(Error::retry("what the cache shows is past"));
        }
        let (namespace, name) = key(site);
        if self.class == Class::Login {
            let token = client.live::<Secret>(namespace, "access").await?;
            // The mend: who cannot log in any more has nothing left to clean up.
            if token.is_none() && !self.fixed {
                return Err(Error::retry("there is no Secret to log in with"));
            }
        } else {
            let home = client.live::<Namespace>(None, namespace.unwrap_or_default()).await?;
            // The mend: in a namespace that ends nothing can be made.
            if home.is_some_and(|home| !kit::is_going(&home)) || !self.fixed {
                kit::ensure(client, settings(site, &format!("{name}-farewell"), "farewell")).await?;
            }
        }
        kit::release(client, site).await
    }
}

fn settings(site: &Site, name: &str, content: &str) -> ConfigMap {
    kit::child(site, name, json!({ "data": { "content": content } }))
}

/// The token of the Secret that every site uses.
async fn token(client: &Client, site: &Site) -> Result<Option<String>> {
    let secret = client.get::<Secret>(key(site).0, "access").await?;
    let data = secret.as_ref().and_then(|secret| secret.data.as_ref()?.get("token"));
    Ok(data.map(|token| String::from_utf8_lossy(&token.0).into_owned()))
}

async fn tell(client: &Client, site: &Site, is_degraded: bool) -> Result<()> {
    let status = if is_degraded { "True" } else { "False" };
    let condition = Condition {
        r#type: "Degraded".to_owned(),
        status: status.to_owned(),
    };
    let status = Some(SiteStatus {
        conditions: vec![condition],
    });
    if site.status != status {
        let site = Site { status, ..site.clone() };
        client.update_status(&site).await?;
    }
    Ok(())
}

/// Deletes the ConfigMaps of a site that are not wanted, if the site is as the API server has it.
async fn prune(client: &Client, site: &Site, wanted: &[String]) -> Result<()> {
    for other in kit::cached::<ConfigMap>(client, site).await? {
        if wanted.iter().any(|wanted| wanted == key(&*other).1) || kit::is_going(&*other) {
            continue;
        }
        let (namespace, name) = key(site);
        let live = client.live::<Site>(namespace, name).await?;
        if live.is_none_or(|live| live.metadata.generation != site.metadata.generation) {
            return Err(Error::retry("what the cache shows is past"));
        }
        client.delete(&*other).await?;
    }
    Ok(())
}

/// The exploration of one of them; `None` if none has this name.
pub(super) fn explore(name: &str, fixed: bool) -> Option<kubewright_testing::Result<Explore>> {
    let (_, class) = *CLASSES.iter().find(|(known, _)| *known == name)?;
    let folder = tempfile::tempdir().expect("a folder for the samples");
    for (file, sample) in [("0.yaml", SECRET), ("1.yaml", SITE)] {
        std::fs::write(folder.path().join(file), sample).expect("a sample can be written");
    }
    let crds = operator(class, true).crds().expect("the CRD can be made");
    let steps = Step::of_samples(folder.path(), &crds);
    Some(steps.map(|steps| Explore::of(move || operator(class, fixed)).steps(steps)))
}
