//! How the server of a Database fares: its pod, and a login.

use std::net::IpAddr;

use database_api::v1alpha1::Database;
use kubewright::k8s_openapi::api::apps::v1::StatefulSet;
use kubewright::k8s_openapi::api::core::v1::Pod;
use kubewright::prelude::*;

use super::credentials::Credentials;
use crate::database::password;
use crate::database::shape::Shape;
use crate::world::{Login, Trouble, World};

/// After so many ends of its process a server has failed.
const TRIES: i32 = 5;

/// How a server fares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Server {
    /// None is to run, and none does.
    Suspended,
    /// It is on its way, and why it is not there.
    Starting(String),
    /// Its pod is being replaced.
    Updating,
    /// It does not answer, and why.
    Sick(String),
    /// It ends again and again, and what it said last.
    Failed(String),
    /// The login worked, with this password.
    Running {
        /// The hash of the password.
        hash: String,
        /// Whether the password was changed just now.
        is_rotated: bool,
    },
}

/// Looks at the server, and lets the credentials of applications work.
pub(super) async fn look(
    database: &Database,
    shape: &Shape,
    credentials: &Credentials,
    world: &dyn World,
    ctx: &Context,
) -> Result<Server> {
    let namespace = ctx.request().namespace();
    let set = ctx.client().get::<StatefulSet>(namespace, &shape.name).await?;
    let pod = ctx.client().get::<Pod>(namespace, &shape.pod()).await?;
    if database.spec.suspend {
        return Ok(match pod {
            Some(_) => Server::Starting("the server ends, as spec.suspend asks for it".to_owned()),
            None => Server::Suspended,
        });
    }
    let (Some(set), Some(pod)) = (set, pod) else {
        return Ok(Server::Starting("its pod is not there yet".to_owned()));
    };
    let status = set.status.clone().unwrap_or_default();
    let is_seen = status.observed_generation >= set.metadata.generation;
    let revision = pod.labels().get("controller-revision-hash");
    if !is_seen || status.update_revision.as_ref() != revision || pod.metadata.deletion_timestamp.is_some() {
        return Ok(Server::Updating);
    }
    if let Some(why) = failed(&pod) {
        return Ok(Server::Failed(why));
    }
    let address = pod
        .status
        .as_ref()
        .and_then(|status| status.pod_ip.as_ref())
        .and_then(|ip| ip.parse::<IpAddr>().ok());
    let Some(address) = address.filter(|_| is_ready(&pod)) else {
        return Ok(Server::Sick(
            last_words(&pod).unwrap_or_else(|| "its pod is not ready".to_owned()),
        ));
    };
    let login = Login {
        is_postgres: shape.is_postgres(),
        host: address.to_string(),
        port: shape.port(),
        user: shape.user.clone(),
        password: credentials.password.clone(),
        database: shape.database.clone(),
    };
    let hash = password::hash(&database.uid().unwrap_or_default(), &credentials.password);
    let before = database.status.as_ref().and_then(|status| status.password_hash.clone());
    let is_rotated = before.is_some_and(|before| before != hash);
    Ok(match world.login(&login).await {
        Ok(()) => Server::Running { hash, is_rotated },
        Err(Trouble::Unreachable(why)) => Server::Sick(why),
        // The user, the password or the database is not as it should be yet.
        Err(Trouble::Refused(_)) => match world.ensure(&login, &credentials.operators).await {
            Ok(()) => match world.login(&login).await {
                Ok(()) => Server::Running { hash, is_rotated },
                Err(trouble) => Server::Sick(trouble.to_string()),
            },
            Err(trouble) => Server::Sick(format!("cannot set the password of {}: {trouble}", shape.user)),
        },
    })
}

fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Why a server counts as failed, if it does.
fn failed(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    let is_waiting = status.state.as_ref().is_some_and(|state| state.waiting.is_some());
    let words = || last_words(pod).unwrap_or_else(|| "it ends again and again".to_owned());
    (status.restart_count >= TRIES && is_waiting).then(words)
}

/// The last line that a server wrote before it ended, or why it does not start.
fn last_words(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    let ended = |state: Option<&kubewright::k8s_openapi::api::core::v1::ContainerState>| {
        state
            .and_then(|state| state.terminated.as_ref())
            .and_then(|terminated| terminated.message.clone())
    };
    let said = ended(status.state.as_ref()).or_else(|| ended(status.last_state.as_ref()));
    let line = said
        .as_deref()
        .and_then(|said| said.lines().rfind(|line| !line.trim().is_empty()).map(str::to_owned));
    let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
    line.or_else(|| waiting.and_then(|waiting| waiting.message.clone().or_else(|| waiting.reason.clone())))
}
