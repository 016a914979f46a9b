//! A StatefulSet with a real PostgreSQL: its rows outlive its pod.
//!
//! The test runs where PostgreSQL is installed (Debian: `apt-get install postgresql`), and says so when it is not.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::processes::kubectl::Kubectl;
use crate::processes::running::{apply, cluster, gone};
use crate::processes::streams::forwarded;
use crate::support::{RunningCluster, kubectl_is_there};

pub(crate) fn postgres_is_there() -> bool {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let is_there = versions
        .map(|version| version.path().join("bin/postgres"))
        .any(|program| program.is_file());
    assert!(
        is_there || std::env::var_os("KUBEWRIGHT_REQUIRE_POSTGRES").is_none(),
        "PostgreSQL is not installed, and KUBEWRIGHT_REQUIRE_POSTGRES insists on it"
    );
    if !is_there {
        eprintln!("skipped: PostgreSQL is not installed");
    }
    is_there
}

const DATABASE: &str = r#"
apiVersion: v1
kind: Service
metadata: { name: db }
spec: { clusterIP: None, selector: { app: db }, ports: [{ port: 5432 }] }
---
apiVersion: apps/v1
kind: StatefulSet
metadata: { name: db }
spec:
  serviceName: db
  selector: { matchLabels: { app: db } }
  template:
    metadata: { labels: { app: db } }
    spec:
      containers:
      - name: postgres
        image: postgres:17
        env:
        - { name: POSTGRES_PASSWORD, value: "se'cret" }
        - { name: PGDATA, value: /var/lib/postgresql/data/pgdata }
        ports: [{ name: sql, containerPort: 5432 }]
        readinessProbe: { exec: { command: [pg_isready, -U, postgres] }, periodSeconds: 1 }
        livenessProbe: { tcpSocket: { port: sql } }
        volumeMounts: [{ name: data, mountPath: /var/lib/postgresql/data }]
  volumeClaimTemplates:
  - metadata: { name: data }
    spec: { accessModes: [ReadWriteOnce], resources: { requests: { storage: 1Gi } } }
"#;

#[test]
fn rows_outlive_their_pod() {
    if !kubectl_is_there() || !postgres_is_there() {
        return;
    }
    let mut cluster = cluster(&[], &["--data-dir", "data"]);
    let kubectl = Kubectl::of(&cluster);
    apply(&kubectl, &cluster, DATABASE);
    let ready = || kubectl.ok(&["rollout", "status", "statefulset/db", "--timeout=60s"]);
    let sql = |text: &str| kubectl.ok(&["exec", "db-0", "--", "psql", "-U", "postgres", "-tAc", text]);
    ready();
    sql("CREATE TABLE t (x int)");
    sql("INSERT INTO t VALUES (42)");
    let first = kubectl.ok(&["get", "pod", "db-0", "-o", "jsonpath={.metadata.uid}"]);
    kubectl.ok(&["delete", "pod", "db-0"]);
    kubectl.until(
        &[
            "get",
            "pod",
            "db-0",
            "-o",
            "jsonpath={.metadata.uid} {.status.containerStatuses[0].ready}",
        ],
        |said| !said.out.starts_with(&first) && said.out.ends_with(" true"),
    );
    assert_eq!(sql("SELECT x FROM t"), "42\n");

    // The password counts, and the address is that of the Endpoints.
    let ip = kubectl.ok(&["get", "endpoints", "db", "-o", "jsonpath={.subsets[0].addresses[0].ip}"]);
    let by_address = |password: &str| {
        let url = format!("postgresql://postgres:{password}@{ip}/postgres");
        kubectl.run(&["exec", "db-0", "--", "psql", &url, "-tAc", "SELECT x FROM t"])
    };
    assert_eq!(by_address("se%27cret").out, "42\n");
    assert_eq!(by_address("wrong").code, Some(2));

    // The client's input comes in, and the exit code comes out.
    let mut psql = kubectl.background(&["exec", "-i", "db-0", "--", "psql", "-U", "postgres", "-tA"]);
    psql.stdin
        .take()
        .unwrap()
        .write_all(b"SELECT x + 1 FROM t;\n\\q\n")
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&psql.wait_with_output().unwrap().stdout),
        "43\n"
    );
    let failed = kubectl
        .command(&["exec", "db-0", "--", "sh", "-c", "exit 7"])
        .stdin(Stdio::null())
        .status();
    assert_eq!(failed.unwrap().code(), Some(7));

    // A client of this machine comes in through a forwarded port.
    let (mut forwarding, port) = forwarded(&kubectl, "true", &["service/db", ":5432"]);
    let url = format!("postgresql://postgres:se%27cret@127.0.0.1:{port}/postgres");
    let client = Command::new("psql").args([&url, "-tAc", "SELECT x FROM t"]).output();
    let client = client.expect("psql comes with PostgreSQL");
    assert_eq!(String::from_utf8_lossy(&client.stdout), "42\n", "{client:?}");
    forwarding.kill().unwrap();
    forwarding.wait().unwrap();

    // A server that is killed starts again, and finds its rows; one that is killed again waits.
    let field = |path: &str, expected: &str| {
        let arguments = [
            "get",
            "pod",
            "db-0",
            "-o",
            &format!("jsonpath={{.status.containerStatuses[0]{path}}}"),
        ];
        kubectl.until(&arguments, |said| said.out == expected);
    };
    let kill = || {
        kubectl.run(&[
            "exec",
            "db-0",
            "--",
            "sh",
            "-c",
            "kill -9 $(head -1 $PGDATA/postmaster.pid)",
        ])
    };
    let following = kubectl.background(&["logs", "-f", "db-0"]);
    kill();
    let followed = following.wait_with_output().unwrap();
    let followed = String::from_utf8_lossy(&followed.stdout);
    assert!(
        followed.contains("database system is ready to accept connections"),
        "{followed}"
    );
    field("['restartCount', 'ready']", "1 true");
    assert_eq!(sql("SELECT x FROM t"), "42\n");
    let log = kubectl.ok(&["logs", "db-0"]);
    assert!(
        log.contains("database system was not properly shut down; automatic recovery"),
        "{log}"
    );
    let before = kubectl.ok(&["logs", "db-0", "--previous"]);
    assert!(
        before.contains("database system is ready to accept connections"),
        "{before}"
    );
    kill();
    field(".state.waiting.reason", "CrashLoopBackOff");
    field("['restartCount', 'ready']", "2 true");

    // However the cluster ends, none of its processes runs on; the next one finds the rows.
    let pids = kubectl.ok(&[
        "exec",
        "db-0",
        "--",
        "sh",
        "-c",
        "cat /proc/$(head -1 $PGDATA/postmaster.pid)/task/*/children",
    ]);
    let pids: Vec<String> = pids.split_whitespace().map(str::to_owned).collect();
    assert!(pids.len() > 3, "{pids:?}");
    cluster.process.kill().unwrap();
    cluster.process.wait().unwrap();
    gone(&pids);
    let folder = std::mem::replace(&mut cluster.folder, tempfile::tempdir().unwrap());
    let cluster = RunningCluster::start_in(folder, &["--runtime", "process", "--data-dir", "data"]);
    let kubectl = Kubectl::of(&cluster);
    let asked = [
        "exec",
        "db-0",
        "--",
        "psql",
        "-U",
        "postgres",
        "-tAc",
        "SELECT x FROM t",
    ];
    kubectl.until(&asked, |said| said.out == "42\n");
}
