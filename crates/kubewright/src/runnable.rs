//! Anything that runs beside the controllers until it is asked to stop: loops of the operator's own, servers, pollers.
//!
//! Not here: what starts them and in which order, see `manager`.

use std::future::Future;
use std::sync::OnceLock;

use futures::future::BoxFuture;
use tokio::sync::watch;

use crate::client::Client;
use crate::error::Result;

/// Something with a life of its own (controller-runtime's `Runnable`).
///
/// Every `async fn(Client, Stop) -> Result<()>` is one:
///
/// ```
/// use kubewright::{Client, Manager, Result, Stop};
///
/// async fn heartbeat(_client: Client, stop: Stop) -> Result<()> {
///     stop.requested().await;
///     Ok(())
/// }
/// # fn build(client: kubewright::kube::Client) -> Result<Manager> {
/// let manager = Manager::builder(client).runnable("heartbeat", heartbeat).build()?;
/// # Ok(manager) }
/// ```
pub trait Runnable: Send + Sync + 'static {
    /// Runs until `stop` is requested. Returning early with `Ok` is fine; an error ends the manager. With leader election it is called again
    /// each time this replica begins to lead, never twice at a time.
    fn run(&self, client: Client, stop: Stop) -> BoxFuture<'static, Result<()>>;
}

impl<F, Fut> Runnable for F
where
    F: Fn(Client, Stop) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<()>> + Send + 'static,
{
    fn run(&self, client: Client, stop: Stop) -> BoxFuture<'static, Result<()>> {
        Box::pin(self(client, stop))
    }
}

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
        // An error means that the source is gone: nobody is left to run for.
        let _ = self.0.clone().wait_for(|stop| *stop).await;
    }

    /// Whether the stop was requested already.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
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
