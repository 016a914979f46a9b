//! News of the Leases of an election or a sharding, from an informer as everybody has one.
//!
//! Invariants: a connection that is silent for a lease duration is given up: a holder renews its Lease several times in
//! that time, so that it is broken. Without `list` or `watch` in the role nothing is lost but time: as long as the
//! Leases are not followed, that is said each retry period, and the users read them.
//!
//! Not here: what a Lease says, see `lease.rs`.

use kube::core::DynamicObject;
use kubewright_engine::election::Settings;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::lease;
use super::request::Requests;
use crate::cache::{Health, Informer, Scope};
use crate::form::Event;

/// News of Leases.
pub(crate) enum LeaseEvent {
    Changed(Box<DynamicObject>),
    /// The one of this name is gone.
    Deleted(String),
    /// All that there are were told of, and are followed.
    Followed,
    /// They are not followed, and why.
    Failed(String),
}

/// Leases that are followed.
pub(crate) struct Leases {
    informer: Informer<DynamicObject>,
    news: mpsc::UnboundedReceiver<LeaseEvent>,
    /// All were told of once.
    listed: bool,
    settings: Settings,
    look: Instant,
}

impl Leases {
    /// Those of the election's namespace that are in this scope.
    pub(crate) fn follow(requests: &Requests, scope: Scope) -> Leases {
        let cache = requests.client().cache();
        let scope = Scope {
            namespace: Some(requests.namespace.clone()),
            ..scope
        };
        let informer = cache.informer_that_is_never_silent(&lease::resource(), scope, requests.settings.lease);
        let (told, news) = mpsc::unbounded_channel();
        informer.add_inline_handler(move |event: &Event<DynamicObject>| {
            let lease = event.object();
            // The receiver has gone when its users have ended.
            let _ = told.send(match event {
                Event::Deleted { .. } => LeaseEvent::Deleted(lease.metadata.name.clone().unwrap_or_default()),
                _ => LeaseEvent::Changed(Box::new((***lease).clone())),
            });
        });
        Leases {
            informer,
            news,
            listed: false,
            settings: requests.settings,
            look: Instant::now() + requests.settings.retry,
        }
    }

    /// The next event. It may be dropped at any time.
    pub(crate) async fn next(&mut self) -> LeaseEvent {
        loop {
            tokio::select! {
                biased;
                Some(event) = self.news.recv() => return event,
                synced = timeout_at(self.look, self.informer.synced()), if !self.listed => {
                    if matches!(synced, Ok(Ok(()))) {
                        self.listed = true;
                        self.look = Instant::now();
                        continue; // what was told before comes first
                    }
                }
                () = sleep_until(self.look), if self.listed => {}
            }
            let (news, again) = match self.informer.health() {
                Health::Synced if self.listed => (LeaseEvent::Followed, self.settings.lease),
                Health::Degraded { reason } => (LeaseEvent::Failed(reason), self.settings.retry),
                _ => {
                    let why = "the API server has not listed them yet";
                    (LeaseEvent::Failed(why.to_owned()), self.settings.retry)
                }
            };
            self.look = Instant::now() + again;
            return news;
        }
    }
}
