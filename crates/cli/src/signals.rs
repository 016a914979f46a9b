//! SIGINT and SIGTERM: the first asks for a clean stop, the second ends the process at once.

use std::sync::OnceLock;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::output::Failure;

/// The clean-up before the process ends at once, such as giving a terminal back.
static BEFORE_THE_END: OnceLock<fn()> = OnceLock::new();

/// Runs `restore` before a second signal ends the process. The first call counts.
pub(crate) fn before_the_end(restore: fn()) {
    let _ = BEFORE_THE_END.set(restore);
}

/// Waits for the first SIGINT or SIGTERM, registered now: none that comes after this call returns is lost.
///
/// # Errors
/// When the system refuses the handlers.
pub(crate) fn stop_signal() -> Result<impl Future<Output = ()> + Send + 'static, Failure> {
    let cannot = |why: std::io::Error| Failure::new("cannot listen for SIGINT and SIGTERM").because(why);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
    let (asks, asked) = tokio::sync::oneshot::channel();
    // A task of its own: the second signal ends the process also while the command does not wait for the first.
    tokio::spawn(async move {
        either(&mut interrupt, &mut terminate).await;
        // A command that waits no more is about to end.
        let _ = asks.send(());
        either(&mut interrupt, &mut terminate).await;
        if let Some(restore) = BEFORE_THE_END.get() {
            restore();
        }
        std::process::exit(130);
    });
    Ok(async move {
        // The task ends only with the runtime, which stops everything.
        let _ = asked.await;
    })
}

async fn either(one: &mut Signal, other: &mut Signal) {
    tokio::select! {
        _ = one.recv() => {}
        _ = other.recv() => {}
    }
}
