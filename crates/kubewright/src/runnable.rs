//! Runnables: anything that runs beside the controllers until it is asked to stop, such as loops, servers and pollers.
//!
//! Not here: when they start, see `manager`.

use std::future::Future;

use futures::future::BoxFuture;

use crate::client::Client;
use crate::error::Result;
use crate::stop::Stop;

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
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no runnable",
    note = "an `async fn(Client, Stop) -> Result<()>` is one; it is called again when this replica leads again, so it is `Fn`, not `FnOnce`"
)]
pub trait Runnable: Send + Sync + 'static {
    /// Runs until `stop` is requested. Returning early with `Ok` is fine; an error ends the manager. With leader
    /// election it is called again each time this replica begins to lead, never twice at a time.
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
