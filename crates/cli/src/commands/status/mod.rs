//! `kubewright status`: what the operator manages, as a tree: owners, children, and whether they are ready.
//!
//! The roots are the operator's Deployment and the objects of the project's kinds; children are found by their owner
//! references, whatever their kind, as the garbage collector finds them. Invariant: nothing is written; a kind that may
//! not be listed is named, because its objects are missing in the tree. Not here: the tree itself (`tree`), and whether an
//! object is ready (`health`).

mod health;
mod tree;

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;
use kubewright::kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kubewright::kube::{self, Client};
use kubewright_codegen::project::Project as Declared;
use kubewright_codegen::{Diagnostic, codes, manifests};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::files::Disk;
use crate::output::{BAD, DIM, Failure, Format, GOOD, count, paint};
use crate::project::Project;
use crate::rollout::{Cluster, definitions};
use crate::target::Target;
use tree::{Totals, Tree};

/// Objects of a page of a list.
const PAGE: u32 = 500;
/// Children are looked for in each of so many namespaces, and in all of them if there are more.
const MOST_NAMESPACES: usize = 4;

/// Show what the operator manages, as a tree: owners, children, and whether they are ready
///
/// Lists the operator's Deployment and the objects of the project's kinds, each with everything that it owns, and the
/// condition that says whether it is ready.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Kinds or objects to show: Guestbook, guestbooks or guestbook/hello [default: all kinds of the project]
    #[arg(value_name = "KIND[/NAME]", add = clap_complete::ArgValueCandidates::new(crate::complete::kinds))]
    what: Vec<String>,

    /// Namespace of the objects [default: all namespaces]
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,

    /// Kubeconfig to read [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME", add = clap_complete::ArgValueCandidates::new(crate::complete::contexts))]
    context: Option<String>,
}

/// A kind that the cluster serves.
#[derive(Clone, Debug)]
struct Kind {
    resource: ApiResource,
    namespaced: bool,
    /// Other names that people type for it.
    names: Vec<String>,
}

impl Kind {
    fn is_called(&self, word: &str) -> bool {
        let word = word.to_lowercase();
        let (name, group) = word.split_once('.').unwrap_or((&word, ""));
        let is_named = self.resource.kind.to_lowercase() == name
            || self.resource.plural == name
            || self.names.iter().any(|other| other == name);
        is_named && (group.is_empty() || self.resource.group == group)
    }
}

impl Arguments {
    pub(crate) async fn run(self, output: Format) -> Result<(), Failure> {
        let project = Project::here()?;
        // Nothing is changed there, so any context will do.
        let target = Target::read(self.kubeconfig.as_deref(), self.context.as_deref())?;
        let cluster = Cluster::connect(&target).await?;
        output.say(
            &paint(DIM, &cluster.title),
            &json!({"event": "cluster", "cluster": cluster.title}),
        );
        let _working = crate::progress::during("reading the objects of the cluster");
        let served = served(&cluster).await?;
        let own = definitions(&project.root.join(manifests::CRDS))?;
        let kinds = self.kinds(&served, &own)?;
        let mut found = Found::default();
        for (kind, name) in &kinds {
            let listed = found.list(&cluster.client, kind, self.namespace.as_deref()).await;
            let is_meant = |object: &Value| {
                name.as_ref()
                    .is_none_or(|name| object["metadata"]["name"] == name.as_str())
            };
            let mut objects =
                listed.map_err(|why| cluster.failed(format!("cannot list {}", kind.resource.plural), &why))?;
            objects.retain(is_meant);
            found.roots.extend(objects);
        }
        if self.what.is_empty() {
            found.roots.splice(0..0, operator(&project, &cluster.client).await);
        }
        if found.roots.is_empty() {
            let names: Vec<&str> = kinds.iter().map(|(kind, _)| kind.resource.plural.as_str()).collect();
            let text = match names[..] {
                [] => "none of the project's kinds is installed, and the operator is not deployed".to_owned(),
                _ => format!("there are no {}", names.join(", ")),
            };
            output.say(
                &text,
                &json!({"event": "status", "objects": 0, "ready": 0, "notReady": 0}),
            );
            return Ok(());
        }
        found.children(&cluster.client, &served).await;
        let tree = Tree::of(found.roots, found.others);
        for root in tree.roots() {
            output.say(&tree.text(root), &tree.to_json(root));
        }
        for kind in &found.refused {
            let text = format!("{kind} may not be listed; those that are children are missing here");
            output.warning(&text, &json!({"event": "warning", "warning": text}));
        }
        say(&tree.totals(), output);
        Ok(())
    }

    /// The kinds to show, each perhaps with the name of one object.
    fn kinds(&self, served: &[Kind], own: &[Value]) -> Result<Vec<(Kind, Option<String>)>, Diagnostic> {
        let is_own = |kind: &&Kind| {
            own.iter().any(|definition| {
                definition["spec"]["group"] == kind.resource.group.as_str()
                    && definition["spec"]["names"]["plural"] == kind.resource.plural.as_str()
            })
        };
        let own: Vec<&Kind> = served.iter().filter(is_own).collect();
        if self.what.is_empty() {
            return Ok(own.into_iter().map(|kind| (kind.clone(), None)).collect());
        }
        let mut found = Vec::new();
        for word in &self.what {
            let (word, name) = word
                .split_once('/')
                .map_or((word.as_str(), None), |(kind, name)| (kind, Some(name)));
            let kind = own.iter().copied().find(|kind| kind.is_called(word));
            let kind = kind
                .or_else(|| served.iter().find(|kind| kind.is_called(word)))
                .ok_or_else(|| {
                    let names: Vec<&str> = own.iter().map(|kind| kind.resource.kind.as_str()).collect();
                    let known = match names[..] {
                        [] => "the cluster serves none of the project's kinds".to_owned(),
                        _ => format!("the project's kinds are {}", names.join(", ")),
                    };
                    Diagnostic::new(codes::config::NO_KIND, format!("cannot show {word}"))
                        .because(format!("the cluster serves no such kind; {known}"))
                        .fix("install the definitions (kubewright install), or name another kind")
                })?;
            found.push((kind.clone(), name.map(str::to_owned)));
        }
        Ok(found)
    }
}

/// The objects that were read.
#[derive(Default)]
struct Found {
    roots: Vec<Value>,
    /// Objects that may be children.
    others: Vec<Value>,
    /// Kinds that may not be listed.
    refused: BTreeSet<String>,
}

impl Found {
    async fn list(&self, client: &Client, kind: &Kind, namespace: Option<&str>) -> kube::Result<Vec<Value>> {
        list(client.clone(), kind.clone(), namespace.map(str::to_owned)).await
    }

    /// Reads everything that has an owner and may be a child of a root: children of an object in a namespace are there,
    /// too.
    async fn children(&mut self, client: &Client, served: &[Kind]) {
        let namespaces: BTreeSet<Option<String>> = self
            .roots
            .iter()
            .map(|root| root["metadata"]["namespace"].as_str().map(str::to_owned))
            .collect();
        let everywhere = namespaces.contains(&None) || namespaces.len() > MOST_NAMESPACES;
        let mut lists = JoinSet::new();
        for kind in served {
            let places: Vec<Option<String>> = match (everywhere, kind.namespaced) {
                (true, _) => vec![None],
                (false, true) => namespaces.iter().cloned().collect(),
                // An object in a namespace owns nothing outside of it.
                (false, false) => Vec::new(),
            };
            for place in places {
                let (client, kind) = (client.clone(), kind.clone());
                lists.spawn(async move { (kind.resource.plural.clone(), list(client, kind, place).await) });
            }
        }
        while let Some(listed) = lists.join_next().await {
            match listed {
                Ok((_, Ok(objects))) => self
                    .others
                    .extend(objects.into_iter().filter(|object| !tree::owners(object).is_empty())),
                Ok((plural, Err(kube::Error::Api(status)))) if status.code == 403 => {
                    self.refused.insert(plural);
                }
                // A kind that went meanwhile, or whose own server does not answer, has no children to show.
                Ok((plural, Err(why))) => tracing::info!(plural, %why, "cannot be listed"),
                Err(why) => tracing::info!(%why, "a list was not finished"),
            }
        }
    }
}

async fn list(client: Client, kind: Kind, namespace: Option<String>) -> kube::Result<Vec<Value>> {
    let api: Api<DynamicObject> = match namespace.as_deref().filter(|_| kind.namespaced) {
        Some(namespace) => Api::namespaced_with(client, namespace, &kind.resource),
        None => Api::all_with(client, &kind.resource),
    };
    let mut parameters = ListParams::default().limit(PAGE);
    let mut objects = Vec::new();
    loop {
        let page = api.list(&parameters).await?;
        objects.extend(page.items.into_iter().map(|item| {
            let mut object = serde_json::to_value(item).unwrap_or_default();
            // Items of a list do not say what they are.
            object["apiVersion"] = kind.resource.api_version.clone().into();
            object["kind"] = kind.resource.kind.clone().into();
            object
        }));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(objects),
        }
    }
}

/// The kinds whose objects can be listed, in the version that the server prefers. Without Events and Leases, which are
/// many and have no owner.
async fn served(cluster: &Cluster) -> Result<Vec<Kind>, Diagnostic> {
    let failed = |why: kube::Error| cluster.failed("cannot ask which kinds the cluster serves".to_owned(), &why);
    let groups = cluster.client.list_api_groups().await.map_err(failed)?;
    let mut versions = vec!["v1".to_owned()];
    let preferred = |group: k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup| {
        let first = group.versions.into_iter().next();
        group.preferred_version.or(first).map(|version| version.group_version)
    };
    versions.extend(groups.groups.into_iter().filter_map(preferred));
    let mut kinds = Vec::new();
    for api_version in versions {
        let listed = match api_version.contains('/') {
            true => cluster.client.list_api_group_resources(&api_version).await,
            false => cluster.client.list_core_api_resources(&api_version).await,
        };
        let listed = match listed {
            Ok(listed) => listed,
            // An aggregated API whose server is down.
            Err(why) => {
                tracing::info!(api_version, %why, "cannot be asked for its kinds");
                continue;
            }
        };
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        for resource in listed.resources {
            let is_listed = !resource.name.contains('/') && resource.verbs.iter().any(|verb| verb == "list");
            if !is_listed || matches!(resource.kind.as_str(), "Event" | "Lease" | "ComponentStatus") {
                continue;
            }
            let mut names = resource.short_names.unwrap_or_default();
            names.push(resource.singular_name);
            kinds.push(Kind {
                resource: ApiResource {
                    group: group.to_owned(),
                    version: version.to_owned(),
                    api_version: api_version.clone(),
                    kind: resource.kind,
                    plural: resource.name,
                },
                namespaced: resource.namespaced,
                names,
            });
        }
    }
    Ok(kinds)
}

/// The operator's own Deployment, where it is deployed and may be read.
async fn operator(project: &Project, client: &Client) -> Option<Value> {
    let declared = Declared::load(&Disk::new(&project.root)).ok()?;
    let deployment = ApiResource::erase::<k8s_openapi::api::apps::v1::Deployment>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &declared.namespace(), &deployment);
    let of_operator = ListParams::default().labels("control-plane=controller-manager");
    let found = api.list(&of_operator).await.ok()?.items.into_iter().next()?;
    let mut object = serde_json::to_value(found).unwrap_or_default();
    (object["apiVersion"], object["kind"]) = ("apps/v1".into(), "Deployment".into());
    Some(object)
}

fn say(totals: &Totals, output: Format) {
    let objects = count(totals.objects, "object");
    let text = match totals.not_ready {
        0 => paint(GOOD, format!("{objects}, none of which is not ready")),
        number => paint(BAD, format!("{objects}, {number} not ready")),
    };
    output.say(
        &text,
        &json!({
            "event": "status", "objects": totals.objects, "ready": totals.ready, "notReady": totals.not_ready,
        }),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_many_names() {
        let kind = Kind {
            resource: ApiResource {
                group: "webapp.my.domain".into(),
                version: "v1".into(),
                api_version: "webapp.my.domain/v1".into(),
                kind: "Guestbook".into(),
                plural: "guestbooks".into(),
            },
            namespaced: true,
            names: vec!["gb".into(), "guestbook".into()],
        };
        for name in [
            "Guestbook",
            "guestbook",
            "guestbooks",
            "gb",
            "guestbooks.webapp.my.domain",
        ] {
            assert!(kind.is_called(name), "{name}");
        }
        for name in ["guest", "guestbooks.other.domain", ""] {
            assert!(!kind.is_called(name), "{name}");
        }
    }
}
