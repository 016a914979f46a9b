//! Runs the operator against the cluster of the kubeconfig, or of the pod that it runs in. `--help` lists the flags.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    kubewright::run(guestbook::operator()).await
}
