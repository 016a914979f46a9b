//! A PostgreSQL that is set up, as a process of this machine: `cargo run -p database --example database-demo`.

use std::process::ExitCode;

use kubewright_demo::{Demo, Error, is_ready};
use serde_json::json;

/// What is shown.
///
/// # Errors
/// When there is no PostgreSQL on this machine.
pub fn demo() -> Result<Demo, Error> {
    let mydb = json!({
        "apiVersion": "db.example.com/v1alpha1", "kind": "Database", "metadata": {"name": "mydb"},
        "spec": {"type": "postgres", "storage": {"size": "1Gi"}},
    });
    let demo = Demo::new("Database", "running, and somebody has logged in", is_ready)
        .with_postgres()?
        .object(mydb)
        .commands(
            r#"kubectl get databases -w
kubectl get secret mydb-credentials -o yaml
kubectl logs mydb-0
kubectl delete service mydb
kubectl patch database mydb --type=merge -p '{"spec":{"suspend":true}}'"#,
        );
    demo.operator(database::operator(), database::ROLE)
}

fn main() -> ExitCode {
    kubewright_demo::main(demo)
}
