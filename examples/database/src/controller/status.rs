//! The texts of the status. A condition is of the generation that it names; nothing is written that does not change.

use database_api::v1alpha1::{Database, DatabaseStatus, Endpoint, Named, Phase};
use kubewright::conditions;
use kubewright::prelude::*;

use super::copies::Copies;
use super::credentials::Credentials;
use super::server::Server;
use crate::database::shape::Shape;

/// The contents of a condition.
pub(super) struct Said {
    /// Its status; not known yet without one.
    pub(super) is_true: Option<bool>,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Said {
    pub(super) fn new(is_true: impl Into<Option<bool>>, reason: &'static str, message: String) -> Said {
        Said {
            is_true: is_true.into(),
            reason,
            message,
        }
    }
}

fn status(database: &mut Database) -> &mut DatabaseStatus {
    let generation = database.metadata.generation.unwrap_or_default();
    let status = database.status.get_or_insert_default();
    status.observed_generation = generation;
    status
}

/// A new generation was seen: no earlier condition holds for it. Answers the object as it is now.
pub(super) async fn begun(database: &Database, ctx: &Context) -> Result<()> {
    let before = database.status.as_ref().map(|status| status.observed_generation);
    if before == database.metadata.generation {
        return Ok(());
    }
    let ready = ctx.condition(
        database,
        "Ready",
        None,
        "Reconciling",
        "the newest spec is being worked on",
    );
    let progressing = ctx.condition(
        database,
        "Progressing",
        true,
        "Reconciling",
        "the newest spec is being worked on",
    );
    ctx.patch_status(database, |database| {
        let status = status(database);
        status.phase.get_or_insert(Phase::Pending);
        conditions::set(&mut status.conditions, ready);
        conditions::set(&mut status.conditions, progressing);
    })
    .await?;
    Ok(())
}

/// There is no password.
pub(super) async fn without_credentials(database: &Database, ctx: &Context, reason: &str, why: &str) -> Result<()> {
    let known = database
        .status
        .as_ref()
        .and_then(|status| conditions::find(&status.conditions, "CredentialsReady"));
    let is_news = known.is_none_or(|known| known.reason != reason);
    let credentials = ctx.condition(database, "CredentialsReady", false, reason, why);
    let ready = ctx.condition(database, "Ready", false, reason, why);
    ctx.patch_status(database, |database| {
        let status = status(database);
        status.phase = Some(Phase::Pending);
        conditions::set(&mut status.conditions, credentials);
        conditions::set(&mut status.conditions, ready);
    })
    .await?;
    if is_news {
        ctx.event(database, EventType::Warning, reason, why);
    }
    Ok(())
}

/// The observations of a Database.
pub(super) struct Seen {
    pub(super) storage: Said,
    pub(super) server: Server,
    pub(super) copies: Copies,
}

/// All is there that is needed; how the server, the claim and the copies fare.
pub(super) async fn seen(
    database: &Database,
    shape: &Shape,
    credentials: &Credentials,
    seen: &Seen,
    ctx: &Context,
) -> Result<Phase> {
    let Seen {
        storage,
        server,
        copies,
    } = seen;
    let was = database.status.as_ref().and_then(|status| status.phase);
    let phase = phase(was, seen);
    let (is_ready, reason, why) = match server {
        // Without its data a server is of no use.
        Server::Running { .. } if let Some(missing) = copies.missing() => {
            (false, missing.reason, missing.message.clone())
        }
        Server::Running { .. } => (true, "LoggedIn", format!("{} can log in", shape.user)),
        Server::Suspended => (false, "Suspended", "spec.suspend asks for it".to_owned()),
        Server::Starting(why) => (false, "Starting", why.clone()),
        Server::Updating => (false, "Updating", "its pod is being replaced".to_owned()),
        Server::Sick(why) => (false, "NotAnswering", why.clone()),
        Server::Failed(why) => (false, "Failed", why.clone()),
    };
    let is_moving = matches!(phase, Phase::Provisioning | Phase::Updating);
    let is_degraded = matches!(phase, Phase::Degraded | Phase::Failed);
    let degraded = match storage.reason {
        "ExpansionNotSupported" => (storage.reason, storage.message.clone()),
        _ => (reason, why.clone()),
    };
    let said = |type_, said: &Said| ctx.condition(database, type_, said.is_true, said.reason, &said.message);
    let all = [
        ctx.condition(database, "Ready", is_ready, reason, &why),
        ctx.condition(database, "Progressing", is_moving, reason, &why),
        ctx.condition(database, "Degraded", is_degraded, degraded.0, degraded.1),
        ctx.condition(
            database,
            "CredentialsReady",
            true,
            "Found",
            format!("the Secret {} has a password", credentials.secret),
        ),
        said("StorageReady", storage),
    ];
    let of_copies = [("BackedUp", &copies.backup), ("Restored", &copies.restore)]
        .map(|(type_, now)| (type_, now.as_ref().map(|now| said(type_, now))));
    let host = format!("{}.{}.svc", shape.name, ctx.request().namespace().unwrap_or_default());
    ctx.patch_status(database, |database| {
        let status = status(database);
        status.phase = Some(phase);
        status.version = Some(shape.version.clone());
        status.endpoint = Some(Endpoint {
            host,
            port: i32::from(shape.port()),
        });
        status.secret_ref = Some(Named {
            name: credentials.secret.clone(),
        });
        if let Server::Running { hash, .. } = server {
            status.password_hash = Some(hash.clone());
        }
        for condition in all {
            conditions::set(&mut status.conditions, condition);
        }
        for (type_, condition) in of_copies {
            match condition {
                Some(condition) => conditions::set(&mut status.conditions, condition),
                None => conditions::remove(&mut status.conditions, type_),
            };
        }
    })
    .await?;
    if let Server::Running { is_rotated: true, .. } = server {
        let message = format!("{} has the password of the Secret {}", shape.user, credentials.secret);
        ctx.event(database, EventType::Normal, "PasswordRotated", message);
    }
    if was != Some(phase) {
        let event_type = if is_degraded {
            EventType::Warning
        } else {
            EventType::Normal
        };
        ctx.event(database, event_type, &format!("{phase:?}"), why);
    }
    Ok(phase)
}

/// All of it in a word.
fn phase(was: Option<Phase>, seen: &Seen) -> Phase {
    let Seen {
        storage,
        server,
        copies,
    } = seen;
    // A server that never worked is not broken.
    let never_ran = matches!(was, None | Some(Phase::Pending | Phase::Provisioning));
    match server {
        Server::Running { .. } if let Some(missing) = copies.missing() => match missing.is_true {
            Some(_) => Phase::Failed,
            None => Phase::Provisioning,
        },
        Server::Running { .. } if storage.reason == "ExpansionNotSupported" => Phase::Degraded,
        Server::Running { .. } => Phase::Running,
        Server::Suspended => Phase::Suspended,
        Server::Failed(_) => Phase::Failed,
        Server::Starting(_) | Server::Updating | Server::Sick(_) if never_ran => Phase::Provisioning,
        Server::Starting(_) if was == Some(Phase::Suspended) => Phase::Provisioning,
        Server::Updating => Phase::Updating,
        // A new server of a new version is not there at once.
        Server::Starting(_) | Server::Sick(_) if was == Some(Phase::Updating) => Phase::Updating,
        Server::Starting(_) | Server::Sick(_) => Phase::Degraded,
    }
}
