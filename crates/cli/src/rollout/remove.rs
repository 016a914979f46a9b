//! Taking a project out of a cluster, in an order that loses nothing by accident.
//!
//! Custom resources go first, while the operator runs: their finalizers are its promise to clean up. Only when they are
//! gone go webhook configurations, then the operator and its rights, the definitions, and the namespace. Invariant: as
//! long as a custom resource is there, nothing else is deleted.

use std::time::Duration;

use kubewright::kube;
use kubewright::kube::api::{DeleteParams, ListParams};
use kubewright_codegen::{Diagnostic, codes};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::cluster::{Cluster, Kinds, defined};
use super::ready::{as_value, missing};
use super::{is_definition, is_webhook_configuration, text, title};
use crate::output::{DIM, Format, count, grouped, paint};

const POLL: Duration = Duration::from_millis(200);
/// How many objects a message names.
const NAMED: usize = 5;

/// How objects are removed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Removing {
    /// Takes a missing object for removed.
    pub(crate) ignore_not_found: bool,
    pub(crate) timeout: Duration,
}

/// Removes the objects, and before them all custom resources of the definitions among them.
///
/// # Errors
/// When custom resources do not go, the cluster refuses, something does not go in time, or (unless told otherwise) was
/// not there.
pub(crate) async fn remove_all(
    cluster: &Cluster,
    objects: &[Value],
    how: Removing,
    output: Format,
) -> Result<(), Diagnostic> {
    let kinds = cluster.kinds(objects).await?;
    let _working = crate::progress::during("waiting until everything is gone");
    let end = Instant::now() + how.timeout;
    for definition in objects.iter().filter(|object| is_definition(object)) {
        remove_resources(cluster, &kinds, definition, objects, end, output).await?;
    }
    let stages: [&dyn Fn(&Value) -> bool; 4] = [
        &is_webhook_configuration,
        &|object| !is_webhook_configuration(object) && !is_definition(object) && text(object, "/kind") != "Namespace",
        &is_definition,
        &|object| text(object, "/kind") == "Namespace",
    ];
    let mut absent = Vec::new();
    for stage in stages {
        // The reverse of the order in which they are applied.
        let stage: Vec<&Value> = objects.iter().rev().filter(|object| stage(object)).collect();
        for object in &stage {
            if !remove(cluster, &kinds, object, output).await? {
                absent.push(title(object));
            }
        }
        wait_gone(cluster, &kinds, &stage, end, output).await?;
    }
    if absent.is_empty() || how.ignore_not_found {
        return Ok(());
    }
    Err(Diagnostic::new(
        codes::config::ABSENT,
        match absent.len() {
            1 => format!("1 of {} was not there", count(objects.len(), "object")),
            missing => format!(
                "{} of {} were not there",
                grouped(missing),
                count(objects.len(), "object")
            ),
        },
    )
    .because(some(&absent))
    .because("everything else has been deleted")
    .fix("is this the right cluster? --ignore-not-found takes what is absent for deleted"))
}

fn some(names: &[String]) -> String {
    let shown = names[..names.len().min(NAMED)].join(", ");
    match names.len().checked_sub(NAMED) {
        Some(more) if more > 0 => format!("{shown} and {more} more"),
        _ => shown,
    }
}

/// Deletes one object; `false` when it was not there.
async fn remove(cluster: &Cluster, kinds: &Kinds, object: &Value, output: Format) -> Result<bool, Diagnostic> {
    let title = title(object);
    // A kind that the cluster does not know has no objects.
    let Some(api) = cluster.api(kinds, object) else {
        return Ok(false);
    };
    match api
        .delete(text(object, "/metadata/name"), &DeleteParams::background())
        .await
    {
        Ok(_) => {
            output.say(
                &format!("{title} {}", paint(DIM, "deleted")),
                &json!({"event": "deleted", "object": title}),
            );
            Ok(true)
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(why) => Err(cluster.failed(format!("cannot delete {title}"), &why)),
    }
}

/// Deletes all objects of a kind, and waits until they are gone.
async fn remove_resources(
    cluster: &Cluster,
    kinds: &Kinds,
    definition: &Value,
    objects: &[Value],
    end: Instant,
    output: Format,
) -> Result<(), Diagnostic> {
    let Some(resource) = defined(definition).into_iter().next() else {
        return Ok(());
    };
    let plural = format!("{}.{}", resource.plural, resource.group);
    let api = cluster.all(&resource);
    let mut told = None;
    loop {
        let left: Vec<Value> = match api.list(&ListParams::default()).await {
            Ok(list) => list.items.into_iter().map(as_value).collect(),
            // The definition is not there, so its objects are not either.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(why) => return Err(cluster.failed(format!("cannot list the {plural}"), &why)),
        };
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(stuck(cluster, kinds, &plural, &resource.kind, &left, objects).await);
        }
        if told != Some(left.len()) {
            told = Some(left.len());
            output.say(
                &paint(
                    DIM,
                    format!(
                        "deleting {} of {plural}, while the operator can clean up",
                        count(left.len(), "object")
                    ),
                ),
                &json!({"event": "deleting", "resource": plural, "left": left.len()}),
            );
        }
        for object in left
            .iter()
            .filter(|object| text(object, "/metadata/deletionTimestamp").is_empty())
        {
            let mut named = object.clone();
            named["apiVersion"] = resource.api_version.clone().into();
            named["kind"] = resource.kind.clone().into();
            remove(cluster, kinds, &named, output).await?;
        }
        sleep(POLL).await;
    }
}

/// Objects that do not go, and the owners of their finalizers.
async fn stuck(
    cluster: &Cluster,
    kinds: &Kinds,
    plural: &str,
    kind: &str,
    left: &[Value],
    objects: &[Value],
) -> Diagnostic {
    let described: Vec<String> = left
        .iter()
        .map(|object| {
            let finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
            let names: Vec<&str> = finalizers.iter().filter_map(Value::as_str).collect();
            let name = match text(object, "/metadata/namespace") {
                "" => text(object, "/metadata/name").to_owned(),
                namespace => format!("{namespace}/{}", text(object, "/metadata/name")),
            };
            format!("{name} ({})", names.join(", "))
        })
        .collect();
    let mut diagnostic = Diagnostic::new(
        codes::config::FINALIZERS,
        format!("{} of {plural} did not go in time", count(left.len(), "object")),
    )
    .because(format!("their finalizers were not removed: {}", some(&described)));
    for workload in objects.iter().filter(|object| text(object, "/kind") == "Deployment") {
        let Some(api) = cluster.api(kinds, workload) else {
            continue;
        };
        let state = match api.get_opt(text(workload, "/metadata/name")).await {
            Ok(Some(found)) => missing(&as_value(found)),
            Ok(None) => Some("it is not there".to_owned()),
            Err(_) => None,
        };
        if let Some(state) = state {
            diagnostic = diagnostic.because(format!("the operator does not run: {}: {state}", title(workload)));
        }
    }
    diagnostic.because("nothing else has been deleted").fix(format!(
        "let the operator run until they are gone, and run the command again; if it never will: kubectl patch {plural} NAME --type=merge -p \
         '{{\"metadata\":{{\"finalizers\":null}}}}', which leaves behind what the {kind} stood for"
    ))
}

async fn wait_gone(
    cluster: &Cluster,
    kinds: &Kinds,
    objects: &[&Value],
    end: Instant,
    output: Format,
) -> Result<(), Diagnostic> {
    for object in objects {
        let title = title(object);
        let Some(api) = cluster.api(kinds, object) else {
            continue;
        };
        let mut told = false;
        loop {
            let found = api.get_opt(text(object, "/metadata/name")).await;
            let found = found.map_err(|why| cluster.failed(format!("cannot wait for {title}"), &why))?;
            let Some(found) = found.map(as_value) else { break };
            // An object that is not being deleted was made anew by another client.
            if text(&found, "/metadata/deletionTimestamp").is_empty() {
                break;
            }
            if Instant::now() >= end {
                return Err(remaining(&title, &found));
            }
            if !told {
                told = true;
                output.say(
                    &paint(DIM, format!("waiting until {title} is gone")),
                    &json!({"event": "waiting", "object": title, "missing": "still there"}),
                );
            }
            sleep(POLL).await;
        }
    }
    Ok(())
}

fn remaining(title: &str, found: &Value) -> Diagnostic {
    let mut diagnostic = Diagnostic::new(codes::config::NOT_READY, format!("{title} did not go in time"));
    let conditions = found["status"]["conditions"].as_array();
    for condition in conditions
        .into_iter()
        .flatten()
        .filter(|condition| condition["status"] == "True")
    {
        let message = text(condition, "/message");
        if !message.is_empty() {
            diagnostic = diagnostic.because(message);
        }
    }
    let finalizers = found["metadata"]["finalizers"].as_array().into_iter().flatten();
    let names: Vec<&str> = finalizers.filter_map(Value::as_str).collect();
    if !names.is_empty() {
        diagnostic = diagnostic.because(format!("its finalizers are {}", names.join(", ")));
    }
    diagnostic.fix("it is being deleted; run the command again with --ignore-not-found, or wait longer with --timeout")
}
