//! `kubewright bundle cleanup`: takes an operator out of a cluster that OLM installed for `bundle run`, or for
//! operator-sdk's `run bundle`.
//!
//! The order is what matters: the Subscription first, so that OLM installs nothing again; definitions while the operator
//! still runs, so that it can finish its objects; then the operator, and its catalog.

use clap::Args;
use kubewright::kube::api::{Api, DeleteParams, DynamicObject};
use kubewright_codegen::bundle::catalog;
use kubewright_codegen::{Diagnostic, codes};
use serde_json::{Value, json};

use super::olm::{Olm, Where, of_olm, resource};
use crate::output::{CHANGE, DIM, Failure, Format, paint};

/// Take an operator out of a cluster that OLM installed, with its kinds and their objects
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Package of the operator
    #[arg(value_name = "PACKAGE")]
    package: String,

    /// Delete the operator's definitions, and with them its objects; and the OperatorGroups of a namespace without
    /// operators
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true", value_name = "BOOL", hide_default_value = true)]
    delete_all: bool,

    /// Delete the definitions, with --delete-all=false
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_name = "BOOL", hide_default_value = true)]
    delete_crds: bool,

    /// Delete the OperatorGroups, with --delete-all=false
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_name = "BOOL", hide_default_value = true)]
    delete_operator_groups: bool,

    #[command(flatten)]
    cluster: Where,
}

impl Arguments {
    pub(crate) async fn run(self, output: Format) -> Result<(), Failure> {
        let olm = self.cluster.connect("clean up", output).await?;
        let mut deleted = 0;
        let subscriptions = olm.namespaced(&of_olm("Subscription"));
        let found = list(&olm, &subscriptions, "Subscriptions").await?;
        let subscription = found.iter().find(|found| found["spec"]["name"] == *self.package);
        let name = |value: Option<&Value>| {
            value
                .and_then(Value::as_str)
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
        };
        let status = subscription.map(|found| &found["status"]);
        let csv = status.and_then(|status| name(status.get("installedCSV")).or(name(status.get("currentCSV"))));
        let csvs = olm.namespaced(&of_olm("ClusterServiceVersion"));
        if let Some(subscription) = subscription {
            let name = subscription["metadata"]["name"].as_str().unwrap_or_default();
            deleted += usize::from(delete(&olm, &subscriptions, "Subscription", name, output).await?);
        }
        if let (Some(csv), true) = (&csv, self.delete_all || self.delete_crds) {
            let found = csvs
                .get_opt(csv)
                .await
                .map_err(|why| olm.failed("cannot read the operator", &why))?;
            let definitions = olm.all(&resource(
                "apiextensions.k8s.io/v1",
                "CustomResourceDefinition",
                "customresourcedefinitions",
            ));
            for name in found.iter().flat_map(|csv| owned(&json!(csv))) {
                deleted += usize::from(delete(&olm, &definitions, "CustomResourceDefinition", &name, output).await?);
            }
        }
        if let Some(csv) = &csv {
            deleted += usize::from(delete(&olm, &csvs, "ClusterServiceVersion", csv, output).await?);
        }
        let named = subscription.and_then(|found| name(found["spec"].get("source")));
        let source = named.unwrap_or_else(|| catalog::source_name(&self.package));
        let sources = olm.namespaced(&of_olm("CatalogSource"));
        deleted += usize::from(delete(&olm, &sources, "CatalogSource", &source, output).await?);
        if deleted == 0 {
            return Err(Failure::from(
                Diagnostic::new(codes::config::ABSENT, "cannot clean up")
                    .because(format!(
                        "nothing of the package {} is in the namespace {}",
                        self.package, olm.namespace
                    ))
                    .fix("name the namespace with --namespace"),
            ));
        }
        if self.delete_all || self.delete_operator_groups {
            groups(&olm, &subscriptions, output).await?;
        }
        output.say(
            &paint(DIM, format!("{} is gone", self.package)),
            &json!({"event": "cleaned", "package": self.package, "deleted": deleted}),
        );
        Ok(())
    }
}

async fn list(olm: &Olm, api: &Api<DynamicObject>, what: &str) -> Result<Vec<Value>, Diagnostic> {
    let found = api.list(&Default::default()).await;
    let found = found.map_err(|why| olm.failed(format!("cannot list the {what}"), &why))?;
    Ok(found.items.iter().map(|object| json!(object)).collect())
}

/// The definitions that an operator owns.
fn owned(csv: &Value) -> Vec<String> {
    let owned = csv
        .pointer("/spec/customresourcedefinitions/owned")
        .and_then(Value::as_array);
    let mut names: Vec<String> = owned
        .into_iter()
        .flatten()
        .filter_map(|entry| entry["name"].as_str().map(str::to_owned))
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Deletes an object, and waits until it is gone. Whether it was there.
async fn delete(
    olm: &Olm,
    api: &Api<DynamicObject>,
    kind: &str,
    name: &str,
    output: Format,
) -> Result<bool, Diagnostic> {
    match api.delete(name, &DeleteParams::default()).await {
        Ok(_) => {}
        Err(kubewright::kube::Error::Api(status)) if status.code == 404 => return Ok(false),
        Err(why) => return Err(olm.failed(format!("cannot delete the {kind} {name}"), &why)),
    }
    let gone = |object: Option<&Value>| Ok(object.is_none().then_some(()));
    let stays = |object: &Value| format!("it has the finalizers {}", object["metadata"]["finalizers"]);
    olm.wait(api, name, &format!("the end of the {kind} {name}"), gone, stays)
        .await?;
    output.say(
        &format!("{kind} {name} {}", paint(CHANGE, "deleted")),
        &json!({"event": "deleted", "kind": kind, "name": name}),
    );
    Ok(true)
}

/// The OperatorGroups of a namespace in which OLM has nothing more to install.
async fn groups(olm: &Olm, subscriptions: &Api<DynamicObject>, output: Format) -> Result<(), Diagnostic> {
    if !list(olm, subscriptions, "Subscriptions").await?.is_empty() {
        return Ok(());
    }
    let groups = olm.namespaced(&of_olm("OperatorGroup"));
    for group in list(olm, &groups, "OperatorGroups").await? {
        let name = group["metadata"]["name"].as_str().unwrap_or_default();
        delete(olm, &groups, "OperatorGroup", name, output).await?;
    }
    Ok(())
}
