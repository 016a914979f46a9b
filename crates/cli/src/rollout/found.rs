//! What is there to be removed, and the question whether it may go.
//!
//! Custom resources are the data of users, and nothing brings them back. Invariant: nothing is deleted before a person
//! has seen kinds and counts and agreed, at a terminal or with `--yes`. Not here: the order of deletion (`remove`).

use kubewright::kube;
use kubewright::kube::api::ListParams;
use kubewright_codegen::{Diagnostic, codes};
use serde_json::{Value, json};

use super::cluster::{Cluster, Kinds, defined};
use super::ready::as_value;
use super::{is_definition, text, title};
use crate::confirm::{Answer, yes_or_no};
use crate::output::{Format, STRONG, paint};

/// Objects that would go.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The custom resources of the definitions first, then the objects themselves, in the order of deletion.
    pub(super) objects: Vec<Value>,
    /// How many of the objects are not there.
    pub(super) absent: usize,
}

impl Found {
    /// Looks for the objects, and for all custom resources of the definitions among them.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub(super) async fn look(cluster: &Cluster, kinds: &Kinds, objects: &[Value]) -> Result<Found, Diagnostic> {
        let mut found = Found::default();
        for definition in objects.iter().filter(|object| is_definition(object)) {
            let Some(resource) = defined(definition).into_iter().next() else {
                continue;
            };
            match cluster.all(&resource).list(&ListParams::default()).await {
                Ok(list) => found.objects.extend(list.items.into_iter().map(|item| {
                    let mut object = as_value(item);
                    object["apiVersion"] = resource.api_version.clone().into();
                    object["kind"] = resource.kind.clone().into();
                    object
                })),
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(why) => return Err(cluster.failed(format!("cannot list the {}", resource.plural), &why)),
            }
        }
        for object in objects.iter().rev() {
            let there = match cluster.api(kinds, object) {
                Some(api) => api.get_opt(text(object, "/metadata/name")).await,
                None => Ok(None),
            };
            let there = there.map_err(|why| cluster.failed(format!("cannot look for {}", title(object)), &why))?;
            match there {
                Some(there) => found.objects.push(as_value(there)),
                None => found.absent += 1,
            }
        }
        Ok(found)
    }

    /// Shows what goes, and asks a person, unless `yes` was said or nothing goes.
    ///
    /// # Errors
    /// KWR0618 when nobody agreed.
    pub(super) fn confirm(
        &self,
        cluster: &Cluster,
        command: &str,
        yes: bool,
        output: Format,
    ) -> Result<(), Diagnostic> {
        let kinds = self.by_kind();
        if kinds.is_empty() {
            return Ok(());
        }
        let mut lines = "this deletes:".to_owned();
        for (object, number) in &kinds {
            let more = match text(object, "/kind") {
                "Namespace" => format!(" {}, and everything in it", text(object, "/metadata/name")),
                _ => String::new(),
            };
            lines.push_str(&format!("\n{number:>7} {}{more}", text(object, "/kind")));
        }
        let kinds: Vec<Value> = kinds
            .iter()
            .map(
                |(object, number)| json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "count": number}),
            )
            .collect();
        output.say(&lines, &json!({"event": "goes", "kinds": kinds}));
        if yes {
            return Ok(());
        }
        let question = format!("Delete them from {}?", paint(STRONG, &cluster.title));
        let why = match yes_or_no(&question) {
            Answer::Yes => return Ok(()),
            Answer::No => "the answer was no".to_owned(),
            Answer::Unasked(why) => why.to_owned(),
        };
        Err(
            Diagnostic::new(codes::config::UNCONFIRMED, format!("{command} has deleted nothing"))
                .because(why)
                .fix(format!("if all of this is to go: kubewright {command} --yes")),
        )
    }

    /// An object of each kind, and how many there are.
    fn by_kind(&self) -> Vec<(&Value, usize)> {
        let kind = |object: &Value| (object["apiVersion"].clone(), object["kind"].clone());
        let mut kinds: Vec<(&Value, usize)> = Vec::new();
        for object in &self.objects {
            match kinds.iter_mut().find(|(known, _)| kind(known) == kind(object)) {
                Some((_, number)) => *number += 1,
                None => kinds.push((object, 1)),
            }
        }
        kinds
    }
}
