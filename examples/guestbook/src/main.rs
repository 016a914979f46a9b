//! Runs the guestbook operator; `--help` says how.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    kubewright::run(guestbook::operator()).await
}
