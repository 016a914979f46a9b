//! What the operators do, each in the way of an ordinary operator: read the cache, write what is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kubewright::kube::api::{DeleteParams, Preconditions};
use kubewright::prelude::*;
use serde_json::{Value, json};

use super::super::corpus::kit::{self, Volumes, key};
use super::{App, AppStatus, Shape, Tier};

/// What a process remembers.
#[derive(Default)]
pub(super) struct Memory {
    made: Mutex<BTreeSet<String>>,
    passwords: Mutex<BTreeMap<String, String>>,
}

/// Where things are that no owner takes with it.
const ELSEWHERE: &str = "kube-public";

pub(super) async fn reconcile(shape: Shape, fixed: bool, memory: &Memory, app: &App, ctx: &Context) -> Result<Action> {
    let client = ctx.client();
    match shape {
        Shape::LateFinalizer | Shape::EarlyRelease => return account(shape, fixed, app, client).await,
        Shape::Unlocked => return registry(fixed, app, client).await,
        Shape::Collision => return role(fixed, app, client).await,
        _ if kit::is_going(app) => return Ok(Action::await_change()),
        _ => {}
    }
    match shape {
        Shape::Renamed => renamed(fixed, app, client).await?,
        Shape::Remembered => remembered(fixed, memory, app, client).await?,
        Shape::Password => password(fixed, memory, app, ctx).await?,
        Shape::Degraded => degraded(fixed, app, client).await?,
        Shape::Phase => phase(fixed, app, client).await?,
        Shape::Selector => {
            // The mend: only what never changes selects.
            let selector = match fixed {
                true => json!({ "app": key(app).1 }),
                false => json!({ "app": key(app).1, "tier": app.spec.tier }),
            };
            kit::ensure(client, deployment(app, &selector)).await?;
        }
        Shape::ScaleDown => scale_down(fixed, app, client).await?,
        _ => observed(fixed, app, client).await?,
    }
    Ok(Action::await_change())
}

fn deployment(app: &App, selector: &Value) -> Deployment {
    let (_, name) = key(app);
    let template = json!({ "metadata": { "labels": { "app": name, "tier": app.spec.tier } },
        "spec": { "containers": [{ "name": "app", "image": app.spec.image }] } });
    let spec = json!({ "replicas": app.spec.replicas, "selector": { "matchLabels": selector }, "template": template });
    kit::child(app, name, json!({ "spec": spec }))
}

fn plain_deployment(app: &App) -> Deployment {
    deployment(app, &json!({ "app": key(app).1 }))
}

fn settings(app: &App, name: &str) -> ConfigMap {
    kit::child(
        app,
        name,
        json!({ "data": { "image": app.spec.image, "tier": app.spec.tier } }),
    )
}

async fn note(app: &App, client: &Client, change: impl FnOnce(&mut AppStatus)) -> Result<Arc<App>> {
    let mut noted = app.clone();
    let before = noted.status.clone().unwrap_or_default();
    let mut after = before.clone();
    change(&mut after);
    if after == before {
        return Ok(Arc::new(noted));
    }
    noted.status = Some(after);
    client.update_status(&noted).await
}

async fn renamed(fixed: bool, app: &App, client: &Client) -> Result<()> {
    let (_, name) = key(app);
    let tier = match app.spec.tier {
        Tier::Basic => "basic",
        Tier::Gold => "gold",
    };
    let wanted = format!("{name}-{tier}");
    kit::ensure(client, settings(app, &wanted)).await?;
    // The mend: those of other names are deleted.
    if fixed && is_newest(client, app).await? {
        for other in kit::cached::<ConfigMap>(client, app).await? {
            if key(&*other).1 != wanted {
                client.delete(&*other).await?;
            }
        }
    }
    kit::ensure(client, plain_deployment(app)).await?;
    Ok(())
}

async fn remembered(fixed: bool, memory: &Memory, app: &App, client: &Client) -> Result<()> {
    let (_, name) = key(app);
    let claim: PersistentVolumeClaim = kit::child(
        app,
        &format!("{name}-data"),
        json!({ "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } }),
    );
    let is_known = memory
        .made
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .contains(name);
    // The mend: what is there says whether it is there.
    if fixed || !is_known {
        let (namespace, claimed) = key(&claim);
        if client.get::<PersistentVolumeClaim>(namespace, claimed).await?.is_none() {
            client.create(&claim).await?;
        }
        let mut made = memory.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.insert(name.to_owned());
    }
    kit::ensure(client, plain_deployment(app)).await?;
    Ok(())
}

async fn password(fixed: bool, memory: &Memory, app: &App, ctx: &Context) -> Result<()> {
    let (client, (namespace, name)) = (ctx.client(), key(app));
    let secret = format!("{name}-password");
    let present = client.get::<Secret>(namespace, &secret).await?;
    // The mend: the password that is there is kept.
    if !fixed || present.is_none() {
        let new = format!("{:0>12x}", ctx.now().as_millisecond());
        let password = {
            let mut all = memory.passwords.lock().unwrap_or_else(PoisonError::into_inner);
            all.entry(name.to_owned()).or_insert(new).clone()
        };
        kit::ensure(
            client,
            kit::child::<Secret>(app, &secret, json!({ "data": { "password": password } })),
        )
        .await?;
    }
    kit::ensure(client, plain_deployment(app)).await?;
    Ok(())
}

/// Whether the cache shows what the user wants now: by what he wanted once nothing is deleted.
async fn is_newest(client: &Client, app: &App) -> Result<bool> {
    let (namespace, name) = key(app);
    let live = client.live::<App>(namespace, name).await?;
    Ok(live.is_some_and(|live| live.metadata.generation == app.metadata.generation))
}

/// Whether the cache does not show it. What nobody owns is made only for an object that is still there: whoever makes it
/// after the deletion leaves it behind.
async fn is_new<K: Object>(client: &Client, object: &K) -> Result<bool> {
    let (namespace, name) = key(object);
    Ok(client.get::<K>(namespace, name).await?.is_none())
}

/// An account elsewhere, which is deleted with the app.
async fn account(shape: Shape, fixed: bool, app: &App, client: &Client) -> Result<Action> {
    let (namespace, name) = key(app);
    let (late, early) = (
        shape == Shape::LateFinalizer && !fixed,
        shape == Shape::EarlyRelease && !fixed,
    );
    let mut account: ConfigMap = kit::left_behind(
        app,
        &format!("{}-{name}-account", namespace.unwrap_or_default()),
        json!({ "data": { "plan": app.spec.tier } }),
    );
    account.metadata.namespace = Some(ELSEWHERE.to_owned());
    if !kit::is_going(app) {
        // The mend: the finalizer is there before anything that it cleans up.
        if !late && !kit::is_held(app) {
            kit::hold(client, app).await?;
            return Ok(Action::await_change());
        }
        if is_new::<ConfigMap>(client, &account).await? && !kit::is_current(client, app).await? {
            return Err(Error::retry("what the cache shows is past"));
        }
        kit::ensure(client, account).await?;
        if !kit::is_held(app) {
            kit::hold(client, app).await?;
        }
        kit::ensure(client, plain_deployment(app)).await?;
        return Ok(Action::await_change());
    }
    if !kit::is_held(app) || !kit::is_current(client, app).await? {
        return Ok(Action::await_change());
    }
    let delete = async || {
        let present = client.live::<ConfigMap>(Some(ELSEWHERE), key(&account).1).await?;
        if let Some(present) = present {
            client.delete(&present).await?;
        }
        Ok::<(), Error>(())
    };
    // The mend: the object goes when nothing is left.
    if early {
        kit::release(client, app).await?;
        delete().await?;
    } else {
        delete().await?;
        kit::release(client, app).await?;
    }
    Ok(Action::await_change())
}

async fn degraded(fixed: bool, app: &App, client: &Client) -> Result<()> {
    match kit::ensure(client, plain_deployment(app)).await {
        Ok(_) => {
            note(app, client, |status| {
                status.phase = Some("Running".to_owned());
                // The mend: what is over is taken back.
                if fixed {
                    status.message = None;
                }
            })
            .await?;
            Ok(())
        }
        Err(error) => {
            let text = "the Deployment cannot be written".to_owned();
            note(app, client, |status| status.message = Some(text)).await?;
            Err(error)
        }
    }
}

/// All apps stand in one list.
async fn registry(fixed: bool, app: &App, client: &Client) -> Result<Action> {
    let (namespace, name) = key(app);
    let going = kit::is_going(app);
    if going && !kit::is_held(app) {
        return Ok(Action::await_change());
    }
    if !going && !kit::is_held(app) {
        kit::hold(client, app).await?;
        return Ok(Action::await_change());
    }
    if !kit::is_current(client, app).await? {
        return match going {
            true => Ok(Action::await_change()),
            false => Err(Error::retry("what the cache shows is past")),
        };
    }
    let known = client.get::<ConfigMap>(namespace, "registry").await?;
    let mut list = match known {
        Some(list) => (*list).clone(),
        None => {
            let mut list = ConfigMap::default();
            list.metadata.name = Some("registry".to_owned());
            list.metadata.namespace = namespace.map(str::to_owned);
            (*client.create(&list).await?).clone()
        }
    };
    let entries = list.data.get_or_insert_default();
    let before = entries.clone();
    match going {
        true => drop(entries.remove(name)),
        false => drop(entries.insert(name.to_owned(), app.spec.image.clone())),
    }
    if going && entries.is_empty() {
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                resource_version: list.metadata.resource_version.clone(),
                uid: list.metadata.uid.clone(),
            }),
            ..DeleteParams::default()
        };
        client.delete_with(&list, params).await?;
    } else if *entries != before {
        // The mend: a list that somebody else changed meanwhile is not written.
        if !fixed {
            list.metadata.resource_version = None;
        }
        client.update(&list).await?;
    }
    if going {
        kit::release(client, app).await?;
    }
    Ok(Action::await_change())
}

async fn phase(fixed: bool, app: &App, client: &Client) -> Result<()> {
    let phase = app.status.as_ref().and_then(|status| status.phase.clone());
    // The mend: work that was begun is taken up again.
    if phase.as_deref() == Some("Creating") && !fixed {
        return Ok(());
    }
    let mut app = Arc::new(app.clone());
    if phase.is_none() {
        app = note(&app, client, |status| status.phase = Some("Creating".to_owned())).await?;
    }
    let name = key(&*app).1.to_owned();
    kit::ensure(client, settings(&app, &format!("{name}-settings"))).await?;
    let spec = json!({ "selector": { "app": name }, "ports": [{ "port": 80 }] });
    kit::ensure(client, kit::child::<Service>(&*app, &name, json!({ "spec": spec }))).await?;
    note(&app, client, |status| status.phase = Some("Created".to_owned())).await?;
    Ok(())
}

async fn scale_down(fixed: bool, app: &App, client: &Client) -> Result<()> {
    let (namespace, name) = key(app);
    let set = kit::set(app, "", app.spec.replicas, &app.spec.image, Volumes::Owned);
    // The mend: volumes go when their members are gone for good.
    if !fixed && client.get::<StatefulSet>(namespace, name).await?.is_some() {
        for claim in kit::cached::<PersistentVolumeClaim>(client, app).await? {
            if kit::ordinal(&*claim) >= app.spec.replicas && !kit::is_going(&*claim) {
                client.delete(&*claim).await?;
            }
        }
    }
    kit::ensure(client, set).await?;
    if fixed && kit::prune(client, app, app.spec.replicas).await? {
        return Err(Error::retry("a member is still there"));
    }
    Ok(())
}

async fn observed(fixed: bool, app: &App, client: &Client) -> Result<()> {
    let seen = app.status.as_ref().and_then(|status| status.observed_generation);
    // The mend: children are looked at whatever was seen.
    if !fixed && seen.is_some() && seen == app.metadata.generation {
        return Ok(());
    }
    let name = key(app).1;
    kit::ensure(client, settings(app, &format!("{name}-settings"))).await?;
    kit::ensure(client, plain_deployment(app)).await?;
    note(app, client, |status| {
        status.observed_generation = app.metadata.generation;
    })
    .await?;
    Ok(())
}

/// A role, which has no namespace and so no owner.
async fn role(fixed: bool, app: &App, client: &Client) -> Result<Action> {
    let (namespace, name) = key(app);
    // The mend: the name tells the namespace.
    let named = match fixed {
        true => format!("app-{}-{name}", namespace.unwrap_or_default()),
        false => format!("app-{name}"),
    };
    if kit::is_going(app) {
        if kit::is_held(app) && kit::is_current(client, app).await? {
            client
                .delete_named::<ClusterRole>(None, &named, DeleteParams::default())
                .await?;
            kit::release(client, app).await?;
        }
        return Ok(Action::await_change());
    }
    if !kit::is_held(app) {
        kit::hold(client, app).await?;
        return Ok(Action::await_change());
    }
    if client.get::<ClusterRole>(None, &named).await?.is_none() {
        if !kit::is_current(client, app).await? {
            return Err(Error::retry("what the cache shows is past"));
        }
        let rules = json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }]);
        let body = json!({ "metadata": { "name": named }, "rules": rules });
        client.create(&serde_json::from_value::<ClusterRole>(body)?).await?;
    }
    kit::ensure(client, plain_deployment(app)).await?;
    Ok(Action::await_change())
}
