//! Copies of a Database's data: a CronJob makes them, and a new Database may begin with one.
//!
//! The claim with the copies has no owner: it outlives the Database as its data do. A copy is read once; the condition
//! `Restored` remembers it, even when the Job is gone.

use database_api::v1alpha1::Database;
use kubewright::conditions;
use kubewright::k8s_openapi::api::batch::v1::{CronJob, Job};
use kubewright::k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kubewright::kube::api::DeleteParams;
use kubewright::prelude::*;

use super::credentials::Credentials;
use super::server::Server;
use super::status::Said;
use crate::database::copies::{self, Password};
use crate::database::shape::{Shape, backups_of};

/// How the copies fare: nothing where none are asked for.
pub(super) struct Copies {
    /// `BackedUp`.
    pub(super) backup: Option<Said>,
    /// `Restored`. The Database is not ready before it is true.
    pub(super) restore: Option<Said>,
}

impl Copies {
    /// Why the data are not there with which the Database is to begin.
    pub(super) fn missing(&self) -> Option<&Said> {
        self.restore.as_ref().filter(|restore| restore.is_true != Some(true))
    }
}

fn said(is_true: Option<bool>, reason: &'static str, message: String) -> Result<Option<Said>> {
    Ok(Some(Said::new(is_true, reason, message)))
}

/// Sees to it that copies are made, and that the wanted one is read.
pub(super) async fn keep(
    database: &Database,
    shape: &Shape,
    credentials: &Credentials,
    server: &Server,
    ctx: &Context,
) -> Result<Copies> {
    let password = Password {
        secret: &credentials.secret,
        key: credentials.key(database),
    };
    Ok(Copies {
        backup: backup(database, shape, &password, ctx).await?,
        restore: restore(database, shape, &password, server, ctx).await?,
    })
}

async fn backup(database: &Database, shape: &Shape, password: &Password<'_>, ctx: &Context) -> Result<Option<Said>> {
    let (client, namespace) = (ctx.client(), ctx.request().namespace());
    let Some(wanted) = &database.spec.backup else {
        if client.get::<CronJob>(namespace, &shape.backup()).await?.is_some() {
            client
                .delete_named::<CronJob>(namespace, &shape.backup(), DeleteParams::background())
                .await?;
        }
        return Ok(None);
    };
    if client
        .get::<PersistentVolumeClaim>(namespace, &shape.backups())
        .await?
        .is_none()
    {
        let mut claim = copies::backups(shape, wanted);
        claim.metadata.namespace = namespace.map(str::to_owned);
        match client.create(&claim).await {
            Err(error) if !error.is_already_exists() => return Err(error),
            _ => {}
        }
    }
    let made = match ctx.apply(copies::cron_job(shape, database, wanted, password)).await {
        Ok(made) => made,
        // A schedule is judged by the API server.
        Err(error) if error.status().is_some_and(|status| status.code == 422) => {
            return said(Some(false), "InvalidSchedule", error.to_string());
        }
        Err(error) => return Err(error),
    };
    let status = made.status.clone().unwrap_or_default();
    let is_at_it = status.active.is_some_and(|active| !active.is_empty());
    match (status.last_schedule_time, status.last_successful_time) {
        // A copy is whole some time after it was due.
        (Some(due), Some(whole)) if whole >= due || is_at_it => {
            said(Some(true), "Copied", format!("the last copy is of {}", whole.0))
        }
        (Some(due), _) if !is_at_it => {
            let message = format!("the copy of {} failed: the pods of its Job say why", due.0);
            said(Some(false), "CopyFailed", message)
        }
        _ => said(None, "NoCopyYet", format!("copies are made at {}", wanted.schedule)),
    }
}

async fn restore(
    database: &Database,
    shape: &Shape,
    password: &Password<'_>,
    server: &Server,
    ctx: &Context,
) -> Result<Option<Said>> {
    let Some(from) = &database.spec.restore_from else {
        return Ok(None);
    };
    let (client, namespace) = (ctx.client(), ctx.request().namespace());
    let before = database
        .status
        .as_ref()
        .and_then(|status| conditions::find(&status.conditions, "Restored"));
    if let Some(done) = before.filter(|before| before.status == "True") {
        return said(Some(true), "Restored", done.message.clone());
    }
    let claim = backups_of(&from.database);
    if client.get::<PersistentVolumeClaim>(namespace, &claim).await?.is_none() {
        return said(
            Some(false),
            "BackupNotFound",
            format!("there is no claim {claim} with copies"),
        );
    }
    if !matches!(server, Server::Running { .. }) {
        return said(None, "Waiting", "the server is to answer first".to_owned());
    }
    let job = match client.get::<Job>(namespace, &shape.restore()).await? {
        Some(job) => job,
        None => ctx.apply(copies::restore_job(shape, from, password)).await?,
    };
    let is = |type_: &str| {
        let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let mut meant = conditions.filter(|condition| condition.type_ == type_ && condition.status == "True");
        meant
            .next()
            .map(|condition| condition.message.clone().unwrap_or_default())
    };
    if is("Complete").is_some() {
        return said(
            Some(true),
            "Restored",
            format!("began with a copy of {}", from.database),
        );
    }
    match is("Failed") {
        Some(why) => said(
            Some(false),
            "RestoreFailed",
            format!("Job {}: {why}; delete it to try again", shape.restore()),
        ),
        None => said(None, "Restoring", format!("a copy of {} is read", from.database)),
    }
}
