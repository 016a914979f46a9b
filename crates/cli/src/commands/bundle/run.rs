//! `kubewright bundle run`: installs a bundle with the OLM of a cluster, from a catalog that has nothing else
//! (`operator-sdk run bundle`).

use clap::Args;
use kubewright::kube;
use kubewright::kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kubewright_codegen::bundle::catalog::{self, Catalog, Request};
use kubewright_codegen::{Diagnostic, Place, codes};
use serde_json::{Value, json};

use super::olm::{Olm, Where, of_olm, resource};
use crate::files::Disk;
use crate::output::{CHANGE, Failure, Format, GOOD, paint};

/// Install a bundle in a cluster that has OLM, from a catalog with nothing else
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Image of the bundle, as the cluster pulls it
    #[arg(value_name = "IMAGE")]
    image: String,

    /// Folder with what is in the image, which is not pulled here
    #[arg(long, value_name = "FOLDER", default_value = "bundle")]
    bundle: String,

    /// Image that serves the catalog
    #[arg(long, value_name = "IMAGE", default_value = "quay.io/operator-framework/opm:latest")]
    index_image: String,

    /// AllNamespaces, OwnNamespace, SingleNamespace=NAMESPACE or MultiNamespace=NAMESPACE,… [default: the widest that
    /// the bundle supports]
    #[arg(long, value_name = "MODE")]
    install_mode: Option<String>,

    /// Secret of the namespace with which images are pulled
    #[arg(long, value_name = "NAME")]
    pull_secret_name: Option<String>,

    #[command(flatten)]
    cluster: Where,
}

const ATTEMPTED: &str = "cannot run the bundle";

impl Arguments {
    pub(super) async fn run(self, output: Format) -> Result<(), Failure> {
        if !std::path::Path::new(&self.bundle).is_dir() {
            return Err(Failure::from(
                Diagnostic::new(codes::config::INVALID_BUNDLE, ATTEMPTED)
                    .at(Place::file(&self.bundle))
                    .because("there is no such folder, and images are not pulled")
                    .fix("name the folder that the image was made of with --bundle"),
            ));
        }
        let olm = self.cluster.connect("run the bundle", output).await?;
        let request = Request {
            image: self.image,
            namespace: olm.namespace.clone(),
            index_image: self.index_image,
            install_mode: self.install_mode,
            pull_secret: self.pull_secret_name,
        };
        let asked = request.install_mode.is_some();
        let catalog = catalog::catalog(&Disk::new(&self.bundle), &request)?;
        serve(&olm, &catalog, output).await?;
        group(&olm, &catalog, asked, output).await?;
        install(&olm, &catalog, output).await?;
        output.say(
            &paint(GOOD, format!("OLM has installed {}", catalog.csv)),
            &json!({"event": "installed", "csv": catalog.csv, "namespace": olm.namespace}),
        );
        Ok(())
    }
}

/// Creates an object, and says so.
async fn create(olm: &Olm, api: &Api<DynamicObject>, object: &Value, output: Format) -> Result<Value, Diagnostic> {
    let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
    let typed: DynamicObject = serde_json::from_value(object.clone()).expect("an object with a kind and a name");
    match api.create(&PostParams::default(), &typed).await {
        Ok(created) => {
            output.say(
                &format!("{kind} {name} {}", paint(CHANGE, "created")),
                &json!({"event": "created", "kind": kind, "name": name}),
            );
            Ok(json!(created))
        }
        Err(why) => {
            let failed = olm.failed(format!("cannot create the {kind} {name}"), &why);
            Err(match why {
                kube::Error::Api(status) if status.reason == "AlreadyExists" => {
                    failed.fix("it is of an earlier run: kubewright bundle cleanup PACKAGE")
                }
                _ => failed,
            })
        }
    }
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The catalog, and the pod that serves it; both go with their CatalogSource.
async fn serve(olm: &Olm, catalog: &Catalog, output: Format) -> Result<(), Diagnostic> {
    let sources = olm.namespaced(&of_olm("CatalogSource"));
    let source = create(olm, &sources, &catalog.source, output).await?;
    let owner = json!([{
        "apiVersion": source["apiVersion"], "kind": source["kind"], "name": source["metadata"]["name"],
        "uid": source["metadata"]["uid"],
    }]);
    let pods = olm.namespaced(&resource("v1", "Pod", "pods"));
    let config_maps = olm.namespaced(&resource("v1", "ConfigMap", "configmaps"));
    for (api, object) in [(&config_maps, &catalog.config_map), (&pods, &catalog.pod)] {
        let mut object = object.clone();
        object["metadata"]["ownerReferences"] = owner.clone();
        create(olm, api, &object, output).await?;
    }
    let running = |pod: Option<&Value>| {
        let is_running = pod.is_some_and(|pod| text(pod, "/status/phase") == "Running");
        let ip = pod.map_or("", |pod| text(pod, "/status/podIP"));
        Ok((is_running && !ip.is_empty()).then(|| ip.to_owned()))
    };
    let waits = |pod: &Value| {
        let state = pod.pointer("/status/containerStatuses/0/state/waiting");
        let state = state.map_or_else(String::new, |state| {
            format!(", {}: {}", text(state, "/reason"), text(state, "/message"))
        });
        format!("the pod is {}{state}", text(pod, "/status/phase"))
    };
    let what = "the pod that serves the catalog";
    let ip = olm
        .wait(&pods, text(&catalog.pod, "/metadata/name"), what, running, waits)
        .await?;
    let patch = Patch::Merge(json!({"spec": {"address": Catalog::address(&ip)}}));
    let name = text(&catalog.source, "/metadata/name");
    let patched = sources.patch(name, &PatchParams::default(), &patch).await;
    patched
        .map(drop)
        .map_err(|why| olm.failed("cannot say where the catalog is served", &why))
}

/// The one OperatorGroup of the namespace.
async fn group(olm: &Olm, catalog: &Catalog, asked: bool, output: Format) -> Result<(), Diagnostic> {
    let groups = olm.namespaced(&of_olm("OperatorGroup"));
    let found = groups.list(&Default::default()).await;
    let found = found.map_err(|why| olm.failed("cannot list the OperatorGroups", &why))?;
    let refused = |why: String| Diagnostic::new(codes::config::REFUSED, ATTEMPTED).because(why);
    match &found.items[..] {
        [] => create(olm, &groups, &catalog.group, output).await.map(drop),
        [group] => {
            let group = json!(group);
            let targets = group.pointer("/spec/targetNamespaces").and_then(Value::as_array);
            let targets: Vec<&str> = targets.into_iter().flatten().filter_map(Value::as_str).collect();
            if asked && targets != catalog.targets {
                return Err(refused(format!(
                    "the OperatorGroup {} of the namespace is for {targets:?}, which is another install mode",
                    text(&group, "/metadata/name")
                ))
                .fix("use another namespace, or leave --install-mode out"));
            }
            Ok(())
        }
        many => Err(refused(format!(
            "the namespace {} has {} OperatorGroups, and OLM installs nothing where there are several",
            olm.namespace,
            many.len()
        ))
        .fix("delete all but one")),
    }
}

/// The Subscription, its plan, which is approved, and the operator.
async fn install(olm: &Olm, catalog: &Catalog, output: Format) -> Result<(), Diagnostic> {
    let subscriptions = olm.namespaced(&of_olm("Subscription"));
    create(olm, &subscriptions, &catalog.subscription, output).await?;
    let name = text(&catalog.subscription, "/metadata/name");
    let planned = |subscription: Option<&Value>| {
        let plan = subscription.map_or("", |subscription| text(subscription, "/status/installPlanRef/name"));
        Ok((!plan.is_empty()).then(|| plan.to_owned()))
    };
    let conditions = |subscription: &Value| {
        let conditions = subscription.pointer("/status/conditions").and_then(Value::as_array);
        let lines: Vec<String> = conditions
            .into_iter()
            .flatten()
            .filter(|condition| condition["status"] == "True")
            .map(|condition| format!("{}: {}", text(condition, "/type"), text(condition, "/message")))
            .collect();
        match lines.is_empty() {
            true => "OLM has said nothing about the Subscription".to_owned(),
            false => lines.join("; "),
        }
    };
    let plan = olm
        .wait(&subscriptions, name, "OLM's install plan", planned, conditions)
        .await?;
    let plans = olm.namespaced(&of_olm("InstallPlan"));
    let approve = Patch::Merge(json!({"spec": {"approved": true}}));
    let approved = plans.patch(&plan, &PatchParams::default(), &approve).await;
    approved.map_err(|why| olm.failed(format!("cannot approve the InstallPlan {plan}"), &why))?;
    output.say(
        &format!("InstallPlan {plan} {}", paint(CHANGE, "approved")),
        &json!({"event": "approved", "kind": "InstallPlan", "name": plan}),
    );
    let csvs = olm.namespaced(&of_olm("ClusterServiceVersion"));
    let installed = |csv: Option<&Value>| match csv.map(|csv| (text(csv, "/status/phase"), csv)) {
        Some(("Succeeded", _)) => Ok(Some(())),
        Some(("Failed", csv)) => Err(Diagnostic::new(codes::config::NOT_READY, ATTEMPTED)
            .because(format!(
                "{}: {}",
                text(csv, "/status/reason"),
                text(csv, "/status/message")
            ))
            .fix("correct the bundle, then kubewright bundle cleanup PACKAGE, and run it again")),
        _ => Ok(None),
    };
    let phase = |csv: &Value| format!("it is {}: {}", text(csv, "/status/phase"), text(csv, "/status/message"));
    olm.wait(&csvs, &catalog.csv, &catalog.csv, installed, phase).await
}
