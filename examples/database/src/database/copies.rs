//! The children that copy the data of a Database and read a copy: a claim, a CronJob, a Job.
//!
//! A copy is a file of the server's own dump program, named by its time, so that the names are in the order of the
//! times. It has its name when it is whole: a pod that was killed leaves none that looks like one.

use database_api::v1alpha1::{Backup, Database, DatabaseType, RestoreFrom};
use kubewright::k8s_openapi::api::batch::v1::{CronJob, Job};
use kubewright::k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use super::children::{claim, container_security, labels, made, pod_security};
use super::shape::{Shape, backups_of};

/// Where the copies are in a pod.
const FOLDER: &str = "/backups";
/// How many copies stay when the spec does not say.
const KEPT: i32 = 3;

/// The Secret and its key with the password of the application's user.
pub struct Password<'a> {
    /// The name of the Secret.
    pub secret: &'a str,
    /// Its key.
    pub key: &'a str,
}

/// The claim with the copies.
pub fn backups(shape: &Shape, backup: &Backup) -> PersistentVolumeClaim {
    let storage = backup.storage.as_ref();
    let size = storage.map_or_else(|| Quantity("1Gi".to_owned()), |storage| storage.size.clone());
    made(json!({"metadata": {"name": shape.backups(), "labels": labels(shape)}, "spec": claim(&size, storage)}))
}

/// The CronJob that makes copies.
pub fn cron_job(shape: &Shape, object: &Database, backup: &Backup, password: &Password<'_>) -> CronJob {
    let dump = match shape.kind {
        DatabaseType::Postgres => {
            r#"pg_dump --host="$HOST" --port="$PORT" --username="$LOGIN" --format=custom --file="$FOLDER/.part" "$DATABASE""#
        }
        DatabaseType::Mysql => {
            r#"mysqldump --host="$HOST" --port="$PORT" --user="$LOGIN" --single-transaction --no-tablespaces "$DATABASE" > "$FOLDER/.part""#
        }
        DatabaseType::Mariadb => {
            r#"mariadb-dump --host="$HOST" --port="$PORT" --user="$LOGIN" --single-transaction "$DATABASE" > "$FOLDER/.part""#
        }
    };
    let script = format!(
        r#"set -eu
{dump}
mv "$FOLDER/.part" "$FOLDER/$(date -u +%Y%m%dT%H%M%SZ).dump"
ls "$FOLDER" | grep '[.]dump$' | sort -r | tail -n "+$((KEEP + 1))" | while read -r old; do rm "$FOLDER/$old"; done"#
    );
    let keep = backup.keep.unwrap_or(KEPT).to_string();
    let pod = pod(shape, &script, &[("KEEP", &keep)], password, &shape.backups(), false);
    made(json!({
        "metadata": {"name": shape.backup(), "labels": labels(shape)},
        "spec": {
            "schedule": backup.schedule, "suspend": object.spec.suspend,
            // A dump that takes long is not joined by the next.
            "concurrencyPolicy": "Forbid", "startingDeadlineSeconds": 600,
            "successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1,
            "jobTemplate": {"spec": {"backoffLimit": 3, "template": pod}},
        },
    }))
}

/// The Job that reads a copy into the database, which is still empty.
pub fn restore_job(shape: &Shape, from: &RestoreFrom, password: &Password<'_>) -> Job {
    // A second try begins as the first did: PostgreSQL takes all or nothing, and the other dumps drop their tables
    // first.
    let read = match shape.kind {
        DatabaseType::Postgres => {
            r#"pg_restore --host="$HOST" --port="$PORT" --username="$LOGIN" --no-owner --no-privileges --no-comments --single-transaction --dbname="$DATABASE" "$FOLDER/$FILE""#
        }
        DatabaseType::Mysql => r#"mysql --host="$HOST" --port="$PORT" --user="$LOGIN" "$DATABASE" < "$FOLDER/$FILE""#,
        DatabaseType::Mariadb => {
            r#"mariadb --host="$HOST" --port="$PORT" --user="$LOGIN" "$DATABASE" < "$FOLDER/$FILE""#
        }
    };
    let script = format!(
        r#"set -eu
[ -n "$FILE" ] || FILE=$(ls "$FOLDER" | grep '[.]dump$' | sort | tail -n 1)
[ -n "$FILE" ] || {{ echo "there is no copy" >&2; exit 1; }}
{read}
echo "read $FILE""#
    );
    let file = from.file.as_deref().unwrap_or_default();
    let pod = pod(
        shape,
        &script,
        &[("FILE", file)],
        password,
        &backups_of(&from.database),
        true,
    );
    made(json!({
        "metadata": {"name": shape.restore(), "labels": labels(shape)},
        "spec": {"backoffLimit": 3, "template": pod},
    }))
}

fn pod(
    shape: &Shape,
    script: &str,
    more: &[(&str, &str)],
    password: &Password<'_>,
    claim: &str,
    is_read: bool,
) -> Value {
    let port = shape.port().to_string();
    let secret = match shape.kind {
        DatabaseType::Postgres => "PGPASSWORD",
        DatabaseType::Mysql | DatabaseType::Mariadb => "MYSQL_PWD",
    };
    let values = [
        ("HOST", shape.name.as_str()),
        ("PORT", &port),
        ("LOGIN", &shape.user),
        ("DATABASE", &shape.database),
        ("FOLDER", FOLDER),
    ];
    let mut env: Vec<Value> = values
        .iter()
        .chain(more)
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    let key = json!({"secretKeyRef": {"name": password.secret, "key": password.key}});
    env.push(json!({"name": secret, "valueFrom": key}));
    json!({
        "metadata": {"labels": {"app.kubernetes.io/name": "database-copy", "app.kubernetes.io/managed-by": super::shape::MANAGER}},
        "spec": {
            "restartPolicy": "Never", "automountServiceAccountToken": false, "enableServiceLinks": false,
            "securityContext": pod_security(),
            "containers": [{
                "name": "copy", "image": shape.image(), "command": ["/bin/sh", "-c", script], "env": env,
                "securityContext": container_security(),
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [{"name": "backups", "mountPath": FOLDER, "readOnly": is_read}],
            }],
            "volumes": [{"name": "backups", "persistentVolumeClaim": {"claimName": claim, "readOnly": is_read}}],
        },
    })
}
