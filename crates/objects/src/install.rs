//! What a part of the control plane brings along: objects that it creates once, at its start.
//!
//! Invariant: a server that is not well at that moment is asked again. Nothing else would make the object later, and the
//! cluster would go without it until a restart.

use std::time::Duration;

use kubewright::{Client, Error, Object, Result, Stop};

/// The first pause before the server is asked again, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// Creates an object unless one of its name is there, and answers whether it did. A server that cannot do it now is asked
/// again until `stop`.
///
/// # Errors
/// When the server refuses the object: it would do so the next time.
pub async fn install<K: Object>(client: &Client, object: &K, stop: &Stop) -> Result<bool> {
    let mut pause = PAUSES.0;
    loop {
        match client.create(object).await {
            Ok(_) => return Ok(true),
            Err(error) if error.is_already_exists() => return Ok(false),
            Err(error) if is_refused(&error) => return Err(error),
            Err(error) => {
                tracing::warn!(
                    kind = %K::kind(&()),
                    name = object.meta().name,
                    error = &error as &dyn std::error::Error,
                    "it is not created; trying again"
                );
            }
        }
        tokio::select! {
            biased;
            () = stop.requested() => return Ok(false),
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(PAUSES.1),
        }
    }
}

/// Whether the answer is about the object, and not about the state of the server.
fn is_refused(error: &Error) -> bool {
    let code = error.status().map_or(0, |status| status.code);
    (400..500).contains(&code) && code != 429
}
