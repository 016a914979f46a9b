//! The signals that end a program.

/// Resolves at the first SIGINT or SIGTERM (client-go's `SetupSignalHandler`). A second one ends the process at once.
pub async fn shutdown_signal() {
    first_signal().await;
    tokio::spawn(async {
        first_signal().await;
        tracing::error!("second signal: ending at once");
        std::process::exit(1);
    });
}

async fn first_signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => {
                tokio::select! {
                    biased;
                    _ = tokio::signal::ctrl_c() => {}
                    _ = terminate.recv() => {}
                }
            }
            Err(error) => {
                tracing::error!(%error, "cannot listen for SIGTERM");
                let _ = tokio::signal::ctrl_c().await;
            }
        }
    }
    #[cfg(not(unix))]
    {
        let _ = tokio::signal::ctrl_c().await;
    }
}
