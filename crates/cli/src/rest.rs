//! The work of an idle server: it reads the data that its first definition will need.

use std::time::Duration;

/// How long a server lets its first clients begin before it reads ahead.
const AFTER: Duration = Duration::from_millis(500);

/// Waits for the end, and runs `prepare` once in the meantime.
pub(crate) async fn until(stop: impl Future<Output = ()>, prepare: impl FnOnce()) {
    let mut stop = std::pin::pin!(stop);
    if tokio::time::timeout(AFTER, &mut stop).await.is_err() {
        prepare();
        stop.await;
    }
}
