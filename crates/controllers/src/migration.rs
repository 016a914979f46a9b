//! StorageVersionMigrations (from Kubernetes 1.37 on): every object of a resource is written again, and so stored in the
//! version in which it is stored now; then its definition forgets the versions in which nothing is stored any more.
//!
//! Upstream has three controllers, which hand a migration to each other through its status
//! (`storageversionmigrator`); here one takes the same steps. Invariants: of each resource one migration runs, the
//! oldest first, and what it wrote before a crash is written again without harm; an object is written only in the state
//! that was read, so no change of others is undone.
//!
//! Not here: in which version an object is stored (the API server decides it with each write).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kubewright::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kubewright::kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kubewright::kube::discovery::{ApiCapabilities, Discovery, verbs};
use kubewright::{Action, Client, Context, Controller, Error, Reconciler, Request, Result, conditions};
use serde_json::{Value, json};

use super::unstructured::UnstructuredApi;
use kubewright_objects::api::storagemigration::v1::{GroupResource, StorageVersionMigration};
use kubewright_objects::meta;

const RUNNING: &str = "Running";
const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";
/// The condition of a definition whose objects are migrated.
const MIGRATING: &str = "StorageMigrating";
/// The field manager of that condition.
const RUNNER: &str = "migration-runner-controller";
/// The field manager of the objects.
const MIGRATOR: &str = "storage-version-migrator-controller";
/// How long a resource may stay unknown after its migration was created.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often an unknown resource is looked for.
const AGAIN: Duration = Duration::from_secs(2);
/// How many objects are listed at once.
const PAGE: u32 = 500;

/// Migrates.
pub(crate) struct Migrator;

/// The controller of StorageVersionMigrations.
pub(crate) fn controller() -> Controller {
    Controller::of(Migrator).named(MIGRATOR)
}

fn is_true(migration: &StorageVersionMigration, kind: &str) -> bool {
    let status = migration.status.as_ref();
    let known = status.and_then(|status| status.conditions.as_deref());
    conditions::is_true(known.unwrap_or_default(), kind)
}

fn has_ended(migration: &StorageVersionMigration) -> bool {
    is_true(migration, SUCCEEDED) || is_true(migration, FAILED)
}

impl Reconciler for Migrator {
    type Object = StorageVersionMigration;

    async fn reconcile(&self, migration: Arc<StorageVersionMigration>, ctx: Context) -> Result<Action> {
        match (is_true(&migration, RUNNING), has_ended(&migration)) {
            (true, true) => finish(&migration, &ctx).await?,
            (true, false) => return go_on(&migration, &ctx).await,
            (false, _) => start_next(&ctx).await?,
        }
        Ok(Action::await_change())
    }

    async fn deleted(&self, _: Request, ctx: Context) -> Result<Action> {
        start_next(&ctx).await?;
        Ok(Action::await_change())
    }
}

/// Starts the oldest migration of each resource of which none runs.
async fn start_next(ctx: &Context) -> Result<()> {
    let mut all = ctx.client().list::<StorageVersionMigration>(None).await?;
    all.sort_by_key(|one| (meta::created(&one.metadata), one.metadata.name.clone()));
    let name_of = |resource: &GroupResource| (resource.group.clone(), resource.resource.clone());
    let running = all.iter().filter(|one| is_true(one, RUNNING));
    let mut busy: BTreeSet<_> = running.map(|one| name_of(&one.spec.resource)).collect();
    let waiting = all.iter().filter(|one| !is_true(one, RUNNING) && !has_ended(one));
    for next in waiting {
        if busy.insert(name_of(&next.spec.resource)) {
            start(next, ctx).await?;
        }
    }
    Ok(())
}

async fn start(migration: &StorageVersionMigration, ctx: &Context) -> Result<()> {
    if let Some(definition) = definition_of(&migration.spec.resource, ctx.client()).await? {
        let message = format!("Migration {} is running", meta::name(&migration.metadata));
        say_migrating(&definition, ("True", "MigrationRunning", &message), None, ctx).await?;
    }
    say(migration, &[running(None)], ctx).await
}

/// `migrationRunningMessage`: how many objects are left, of how many.
fn running(left: Option<(usize, usize, Option<&Error>)>) -> (&'static str, &'static str, &'static str, String) {
    let mut message = "The migration is running".to_owned();
    if let Some((left, all, failed)) = left {
        match left {
            _ if all == 0 => {}
            0 => message.push_str(&format!(", {all} objects verified migrated")),
            left => message.push_str(&format!(", {left}/{all} objects not yet migrated")),
        }
        if let Some(failed) = failed {
            message.push_str(&format!("; transient error: {}", super::plain(failed)));
        }
    }
    (RUNNING, "True", "MigrationRunning", message)
}

fn failed(message: String) -> (&'static str, &'static str, &'static str, String) {
    (FAILED, "True", "StorageVersionMigrationFailed", message)
}

/// Writes conditions, if they say something new.
async fn say(migration: &StorageVersionMigration, said: &[(&str, &str, &str, String)], ctx: &Context) -> Result<()> {
    let mut next = migration.clone();
    let known = next.status.get_or_insert_default().conditions.get_or_insert_default();
    for (kind, status, reason, message) in said {
        let condition = Condition {
            type_: (*kind).to_owned(),
            status: (*status).to_owned(),
            reason: (*reason).to_owned(),
            message: message.clone(),
            last_transition_time: meta::time(ctx.now()),
            observed_generation: None,
        };
        conditions::set(known, condition);
    }
    if next.status != migration.status {
        ctx.client().update_status(&next).await?;
    }
    Ok(())
}

/// The next step of a migration that runs.
async fn go_on(migration: &StorageVersionMigration, ctx: &Context) -> Result<Action> {
    let client = ctx.client();
    let since = ctx.now().duration_since(meta::created(&migration.metadata));
    let may_come = Duration::try_from(since).unwrap_or_default() < PATIENCE;
    let Some((resource, able)) = find(&migration.spec.resource, client).await? else {
        if may_come {
            return Ok(Action::requeue_after(AGAIN));
        }
        say(
            migration,
            &[failed("resource does not exist in discovery".to_owned())],
            ctx,
        )
        .await?;
        return Ok(Action::await_change());
    };
    let status = migration.status.as_ref();
    // Objects that were written later are not written again. Empty: not known yet.
    let until = status.and_then(|status| status.resource_version.as_deref());
    let Some(until) = until.filter(|until| !until.is_empty()) else {
        if ![verbs::UPDATE, verbs::PATCH, verbs::LIST]
            .iter()
            .all(|verb| able.supports_operation(verb))
        {
            let message = format!(
                "resource \"{}/{}, Resource={}\" does not support discovery operations: [update patch list]",
                resource.group, resource.version, resource.plural
            );
            say(migration, &[failed(message)], ctx).await?;
            return Ok(Action::await_change());
        }
        let page = UnstructuredApi::new(client.kube(), &resource, None);
        let page = page.list_metadata(&ListParams::default().limit(1)).await?;
        let mut next = migration.clone();
        next.status.get_or_insert_default().resource_version = page.version;
        client.update_status(&next).await?;
        return Ok(Action::await_change());
    };
    // Upstream reads the objects from the garbage collector, which knows no events, and nothing that cannot be deleted.
    let is_collected = [verbs::WATCH, verbs::DELETE]
        .iter()
        .all(|verb| able.supports_operation(verb));
    if !is_collected || resource.kind == "Event" {
        if may_come {
            return Ok(Action::requeue_after(AGAIN));
        }
        let why = "migration encountered unhandled error: resource does not exist in GC: %!w(<nil>)";
        say(migration, &[failed(why.to_owned())], ctx).await?;
        return Ok(Action::await_change());
    }
    migrate(migration, until, &resource, ctx).await
}

/// The resource in the version that its group prefers.
async fn find(wanted: &GroupResource, client: &Client) -> Result<Option<(ApiResource, ApiCapabilities)>> {
    let group = wanted.group.as_str();
    let discovery = Discovery::new(client.kube().clone())
        .filter(&[group])
        .run_aggregated()
        .await?;
    let Some(group) = discovery.get(group) else {
        return Ok(None);
    };
    let preferred = group.preferred_version().into_iter();
    let mut found = preferred
        .chain(group.versions())
        .flat_map(|version| group.versioned_resources(version));
    Ok(found.find(|(resource, _)| resource.plural == wanted.resource))
}

/// Writes every object again that was not written since, and says so.
async fn migrate(
    migration: &StorageVersionMigration,
    until: &str,
    resource: &ApiResource,
    ctx: &Context,
) -> Result<Action> {
    let kube = ctx.client().kube();
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u128>().ok());
    let until = number(Some(until));
    let (mut all, mut old) = (0, Vec::new());
    let (lists, mut params) = (
        UnstructuredApi::new(kube, resource, None),
        ListParams::default().limit(PAGE),
    );
    loop {
        let page = lists.list_metadata(&params).await?;
        all += page.items.len();
        let part = |object: &Value, field: &str| object["metadata"][field].as_str().map(str::to_owned);
        for object in &page.items {
            let version = part(object, "resourceVersion");
            if number(version.as_deref()) <= until {
                old.push((part(object, "namespace"), part(object, "name"), version));
            }
        }
        let Some(rest) = page.rest else { break };
        params = params.continue_token(&rest);
    }
    let mut left = old.len();
    for (namespace, name, version) in old {
        let api: Api<DynamicObject> = match &namespace {
            Some(namespace) => Api::namespaced_with(kube.clone(), namespace, resource),
            None => Api::all_with(kube.clone(), resource),
        };
        let patch = json!({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"resourceVersion": version}});
        let params = PatchParams {
            field_manager: Some(MIGRATOR.to_owned()),
            ..PatchParams::default()
        };
        let written = api
            .patch_metadata(&name.unwrap_or_default(), &params, &Patch::Merge(patch))
            .await;
        if let Err(error) = written.map_err(Error::from) {
            // Without an answer it is not known what became of it, and it is tried again.
            let code = error.status().map_or(503, |status| status.code);
            if code == 429 || code >= 500 {
                say(migration, &[running(Some((left, all, Some(&error))))], ctx).await?;
                return Err(error);
            }
            // Otherwise it was written or deleted meanwhile, and nothing is left to do.
            if !error.is_conflict() && !error.is_not_found() {
                let why = super::plain(&error);
                let why = format!("{left}/{all} not yet migrated. migration encountered unhandled error: {why}");
                say(migration, &[running(Some((left, all, None))), failed(why)], ctx).await?;
                return Ok(Action::await_change());
            }
        }
        left -= 1;
    }
    let done = (
        SUCCEEDED,
        "True",
        "StorageVersionMigrationSucceeded",
        "Migration completed".to_owned(),
    );
    say(migration, &[running(Some((left, all, None))), done], ctx).await?;
    Ok(Action::await_change())
}

/// The definition says that it is not migrated any more, and the migration that it does not run.
async fn finish(migration: &StorageVersionMigration, ctx: &Context) -> Result<()> {
    if let Some(definition) = definition_of(&migration.spec.resource, ctx.client()).await? {
        let said = definition.data.pointer("/status/conditions").and_then(Value::as_array);
        let said = said.into_iter().flatten().find(|one| one["type"] == MIGRATING);
        let generation = definition.metadata.generation;
        // Another spec may have stored objects in another version meanwhile.
        let is_same = said.is_some_and(|said| said["observedGeneration"].as_i64() == generation);
        let (reason, message) = match (is_true(migration, SUCCEEDED), is_same) {
            (true, true) => (
                "MigrationSucceeded",
                "The migration has succeeded and the stored versions have been updated",
            ),
            (true, false) => (
                "MigrationSucceeded",
                "The migration has succeeded but the stored versions have not been updated due to a generation mismatch",
            ),
            (false, _) => ("MigrationFailed", "The migration has failed"),
        };
        let versions = definition.data.pointer("/spec/versions").and_then(Value::as_array);
        let stored = versions
            .into_iter()
            .flatten()
            .find(|version| version["storage"] == true);
        let stored = stored.filter(|_| is_same).map(|version| &version["name"]);
        say_migrating(&definition, ("False", reason, message), stored, ctx).await?;
    }
    let over = (RUNNING, "False", "MigrationCompleted", "Migration completed".to_owned());
    say(migration, &[over], ctx).await
}

fn definitions(client: &Client) -> Api<DynamicObject> {
    Api::all_with(
        client.kube().clone(),
        &ApiResource::erase::<CustomResourceDefinition>(&()),
    )
}

async fn definition_of(resource: &GroupResource, client: &Client) -> Result<Option<DynamicObject>> {
    let name = format!("{}.{}", resource.resource, resource.group);
    Ok(definitions(client).get_opt(&name).await?)
}

/// Writes the condition of a definition, in the state in which it was read, and the versions in which objects are stored.
async fn say_migrating(
    definition: &DynamicObject,
    (status, reason, message): (&str, &str, &str),
    stored: Option<&Value>,
    ctx: &Context,
) -> Result<()> {
    let metadata = &definition.metadata;
    let condition = json!({"type": MIGRATING, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": meta::time(ctx.now()), "observedGeneration": metadata.generation});
    let mut next = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": metadata.name, "resourceVersion": metadata.resource_version},
        "status": {"conditions": [condition]}});
    if let Some(stored) = stored {
        next["status"]["storedVersions"] = json!([stored]);
    }
    let params = PatchParams::apply(RUNNER).force();
    definitions(ctx.client())
        .patch_status(meta::name(metadata), &params, &Patch::Apply(next))
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_migration_says_of_its_progress() {
        let check = |left, expected: &str| assert_eq!(running(left).3, expected);
        check(None, "The migration is running");
        check(Some((0, 0, None)), "The migration is running");
        check(
            Some((0, 3, None)),
            "The migration is running, 3 objects verified migrated",
        );
        let error = Error::retry("slow");
        check(
            Some((2, 3, Some(&error))),
            "The migration is running, 2/3 objects not yet migrated; transient error: slow",
        );
    }
}
