//! The main function of an operator.

use std::process::ExitCode;

use crate::operator::Operator;

/// Runs an operator as a program.
pub async fn run(operator: Operator) -> ExitCode {
    let client = match kube::Client::try_default().await {
        Ok(client) => client,
        Err(_) => return ExitCode::FAILURE,
    };
    match operator.run(client, crate::shutdown_signal()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
