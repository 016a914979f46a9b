//! What a server prepares while it is idle: the data that its first definition needs.

use std::time::Duration;

/// How long a server waits for its first clients before it prepares.
const DELAY: Duration = Duration::from_millis(500);

/// Waits for the end, and runs `prepare` once in the meantime.
pub(crate) async fn until(stop: impl Future<Output = ()>, prepare: impl FnOnce()) {
    let mut stop = std::pin::pin!(stop);
    if tokio::time::timeout(DELAY, &mut stop).await.is_err() {
        prepare();
        stop.await;
    }
}
