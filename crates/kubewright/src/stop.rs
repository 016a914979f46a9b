//! The signal that asks a task to stop.

use std::sync::OnceLock;

use crate::watch;

/// Says when to stop. Cheap to clone; dropping the source counts as the request.
#[derive(Debug, Clone)]
pub struct Stop(watch::Receiver<bool>);

/// The other end of [`Stop`].
#[derive(Debug)]
pub struct StopSource(watch::Sender<bool>);

impl Stop {
    /// A pair of source and token.
    pub fn pair() -> (StopSource, Stop) {
        let (sender, receiver) = watch::channel(false);
        (StopSource(sender), Stop(receiver))
    }

    /// A token of which the stop is never requested.
    pub fn never() -> Stop {
        static SOURCE: OnceLock<StopSource> = OnceLock::new();
        SOURCE.get_or_init(|| Stop::pair().0).token()
    }

    /// Waits until the stop is requested.
    pub async fn requested(&self) {
        // An error means that the source is gone: no owner is left to run for.
        let _ = self.0.clone().wait_for(|stop| *stop).await;
    }

    /// Whether the stop was requested already.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.is_closed()
    }
}

impl StopSource {
    /// Requests the stop. Further calls do nothing.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Another token of the same source.
    pub fn token(&self) -> Stop {
        Stop(self.0.subscribe())
    }
}
