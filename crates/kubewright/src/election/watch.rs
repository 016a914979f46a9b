//! The Leases of an election or a sharding as they change: a list and a watch from there, again and again.
//!
//! Invariants: no request waits longer than a request for a Lease may, and a connection that is silent for a lease
//! duration is given up: a holder renews its Lease several times in that time, so that it is broken. Without `list` or
//! `watch` in the role nothing is lost but time: the users read the Leases themselves.
//!
//! Not here: what a Lease says, see `lease.rs`.

use std::sync::Arc;

use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use kube::Api;
use kube::api::{ListParams, WatchParams};
use kube::core::{DynamicObject, WatchEvent};
use tokio::time::{sleep, timeout};

use super::request::Requests;
use crate::error::Chain;

/// How long one watch lasts, in seconds.
const WATCH_SECONDS: u32 = 290;

/// News of Leases.
pub(crate) enum LeaseEvent {
    /// All of them.
    Listed(Vec<DynamicObject>),
    Changed(Box<DynamicObject>),
    Deleted(Box<DynamicObject>),
    /// They cannot be listed, and why.
    Failed(String),
}

/// The events of the Leases that `selecting` selects, for ever. After a watch that ended they are listed again after
/// the retry period.
pub(crate) fn lease_events(requests: &Requests, selecting: ListParams) -> BoxStream<'static, LeaseEvent> {
    let (settings, limit) = (requests.settings, requests.limit());
    let (api, selecting) = (requests.api.clone(), Arc::new(selecting));
    stream::unfold(0_u64, move |round| {
        let (api, selecting) = (api.clone(), selecting.clone());
        async move {
            if round > 0 {
                sleep(settings.retry).await;
            }
            let events = match timeout(limit, api.list(&selecting)).await {
                Ok(Ok(list)) => {
                    let version = list.metadata.resource_version.clone().unwrap_or_default();
                    let opening = timeout(limit, changes(api, selecting, version));
                    // That a watch fails is no matter: the next list shows the same.
                    let opened = stream::once(opening)
                        .filter_map(|opened| async { opened.ok() })
                        .flatten();
                    let changes = stream::unfold(opened.boxed(), move |mut changes| async move {
                        let event = timeout(settings.lease, changes.next()).await.ok().flatten()?;
                        Some((event, changes))
                    });
                    stream::iter([LeaseEvent::Listed(list.items)]).chain(changes).boxed()
                }
                Ok(Err(error)) => stream::iter([LeaseEvent::Failed(Chain(&error).to_string())]).boxed(),
                Err(_) => stream::iter([LeaseEvent::Failed("the API server does not answer".to_owned())]).boxed(),
            };
            Some((events, round.saturating_add(1)))
        }
    })
    .flatten()
    .boxed()
}

/// One watch, from its opening to its end.
async fn changes(
    api: Api<DynamicObject>,
    selecting: Arc<ListParams>,
    version: String,
) -> BoxStream<'static, LeaseEvent> {
    let params = WatchParams {
        label_selector: selecting.label_selector.clone(),
        field_selector: selecting.field_selector.clone(),
        ..WatchParams::default().timeout(WATCH_SECONDS)
    };
    let events = match api.watch(&params, &version).await {
        Ok(events) => events.boxed(),
        Err(error) => stream::iter([Err(error)]).boxed(),
    };
    let known = events.try_filter_map(|event| async {
        match event {
            WatchEvent::Added(lease) | WatchEvent::Modified(lease) => Ok(Some(LeaseEvent::Changed(Box::new(lease)))),
            WatchEvent::Deleted(lease) => Ok(Some(LeaseEvent::Deleted(Box::new(lease)))),
            WatchEvent::Bookmark(_) => Ok(None),
            WatchEvent::Error(status) => Err(kube::Error::Api(status)),
        }
    });
    let ended = |error: &kube::Error| {
        tracing::debug!(error = %Chain(error), "the Leases are not watched; they are listed");
    };
    known
        .inspect_err(ended)
        .take_while(|event| std::future::ready(event.is_ok()))
        .filter_map(|event| async { event.ok() })
        .boxed()
}
