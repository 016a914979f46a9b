//! Kinds that are known by name only: what the server says of them.

use std::time::Duration;

use kubewright::kube::core::{ApiResource, GroupVersionKind};
use kubewright::kube::discovery::{Scope, pinned_kind};
use kubewright::{Stop, kube};

use crate::watches::shown;

/// A kind as the server serves it.
#[derive(Debug, Clone, PartialEq)]
pub struct Served {
    /// Group, version, kind and plural.
    pub resource: ApiResource,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

/// Asks the server for a kind.
///
/// # Errors
/// When the server does not serve it or does not answer.
pub async fn look_up(client: &kube::Client, kind: &GroupVersionKind) -> Result<Served, kube::Error> {
    let (resource, capabilities) = pinned_kind(client, kind).await?;
    Ok(Served {
        resource,
        namespaced: capabilities.scope == Scope::Namespaced,
    })
}

/// Waits until the server serves a kind: its CRD may be installed later. `report` hears why it waits, each time that it
/// asked in vain. `None` when the stop came first.
pub async fn wait_for(
    client: &kube::Client,
    kind: &GroupVersionKind,
    stop: &Stop,
    report: impl Fn(&str),
) -> Option<Served> {
    const LONGEST: Duration = Duration::from_secs(10);
    let mut pause = Duration::from_millis(250);
    loop {
        match look_up(client, kind).await {
            Ok(served) => return Some(served),
            Err(error) => report(&format!("{} is not served yet: {error}", shown(kind))),
        }
        tokio::select! {
            () = stop.requested() => return None,
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(LONGEST);
    }
}
