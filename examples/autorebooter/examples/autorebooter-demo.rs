//! A Deployment that is restarted when a value in a PostgreSQL changes: `cargo run -p autorebooter --example
//! autorebooter-demo`. The PostgreSQL is one that the example `database` sets up, as a process of this machine.

use std::process::ExitCode;

use kubewright_demo::{Demo, Error, is_ready, shop};
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
    let policy = json!({
        "apiVersion": "autoreboot.my.domain/v1alpha1", "kind": "RebootPolicy", "metadata": {"name": "price-list"},
        "spec": {
            "targets": [{"kind": "Deployment", "name": "shop"}],
            "source": {
                "type": "postgres", "databaseRef": {"name": "mydb"}, "pollInterval": "1s", "mode": "Poll",
                "watch": {"query": "SELECT description FROM pg_shdescription JOIN pg_database ON objoid = oid WHERE datname = 'mydb'"},
            },
            "debounce": "1s", "minRestartInterval": "5s", "showValue": true,
        },
    });
    let demo = Demo::new("RebootPolicy", "watching the comment of the database mydb", is_ready)
        .with_postgres()?
        // A policy that cannot log in yet looks again after two minutes.
        .object_first(mydb, "Database")
        .object(shop(2, Some("simulated")))
        .object(policy)
        .commands(
            r#"kubectl get rebootpolicies -w
PGPASSWORD=$(kubectl get secret mydb-credentials -o jsonpath='{.data.password}' | base64 -d) \
  psql -h $(kubectl get pod mydb-0 -o jsonpath='{.status.podIP}') -U app mydb -c "COMMENT ON DATABASE mydb IS 'prices of today'"
kubectl get pods -w"#,
        );
    demo.operator(database::operator(), database::ROLE)?
        .operator(autorebooter::operator(), autorebooter::ROLE)
}

fn main() -> ExitCode {
    kubewright_demo::main(demo)
}
