//! The children of a Database: Services, a StatefulSet, Secrets. Not here: those that copy its data (`copies`).
//!
//! Pods keep the Pod Security Standard `restricted`. The images run as user 999, all three.

use std::collections::BTreeMap;

use database_api::v1alpha1::{Database, DatabaseType, Storage};
use kubewright::k8s_openapi::api::apps::v1::StatefulSet;
use kubewright::k8s_openapi::api::core::v1::{Secret, Service};
use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::shape::{MANAGER, Shape};
use crate::world::servers::OPERATOR;

const IMAGE_USER: i64 = 999;

/// The rights of pods.
pub(super) fn pod_security() -> Value {
    json!({
        "runAsNonRoot": true, "runAsUser": IMAGE_USER, "runAsGroup": IMAGE_USER, "fsGroup": IMAGE_USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

/// The rights of containers.
pub(super) fn container_security() -> Value {
    json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})
}

/// The labels of all children.
pub fn labels(shape: &Shape) -> BTreeMap<String, String> {
    [
        ("app.kubernetes.io/name", "database"),
        ("app.kubernetes.io/instance", shape.name.as_str()),
        ("app.kubernetes.io/managed-by", MANAGER),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

pub(super) fn made<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).expect("it is written here as its kind has it")
}

/// The Service that applications use, and the one of the StatefulSet, which has no address.
pub fn services(shape: &Shape) -> [Service; 2] {
    let service = |name: &str, spec: Value| {
        let mut spec = spec;
        spec["selector"] = json!({"app.kubernetes.io/name": "database", "app.kubernetes.io/instance": shape.name});
        spec["ports"] = json!([{"name": "sql", "port": shape.port(), "targetPort": shape.port(), "protocol": "TCP"}]);
        made(json!({"metadata": {"name": name, "labels": labels(shape)}, "spec": spec}))
    };
    [
        service(&shape.name, json!({})),
        service(
            &shape.headless(),
            json!({"clusterIP": "None", "publishNotReadyAddresses": true}),
        ),
    ]
}

/// The spec of a claim of this size.
pub(super) fn claim(size: &Quantity, storage: Option<&Storage>) -> Value {
    let mut claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}});
    if let Some(class) = storage.and_then(|storage| storage.storage_class_name.as_ref()) {
        claim["storageClassName"] = json!(class);
    }
    claim
}

/// The StatefulSet. `size`: what the claim was made with, which cannot be changed here.
pub fn stateful_set(shape: &Shape, object: &Database, size: &Quantity) -> StatefulSet {
    let labels = labels(shape);
    let claim = claim(size, object.spec.storage.as_ref());
    let mut container = json!({
        "name": "database", "image": shape.image(), "env": environment(shape),
        "ports": [{"name": "sql", "containerPort": shape.port(), "protocol": "TCP"}],
        "readinessProbe": {"tcpSocket": {"port": shape.port()}, "periodSeconds": 2, "failureThreshold": 2},
        "securityContext": container_security(),
        // Why a server ended is then in the status of its pod.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "data", "mountPath": folder(shape)}, {"name": "run", "mountPath": run(shape)}],
    });
    if let Some(resources) = &object.spec.resources {
        container["resources"] = json!(resources);
    }
    let replicas = if object.spec.suspend { 0 } else { 1 };
    made(json!({
        "metadata": {"name": shape.name, "labels": labels},
        "spec": {
            "replicas": replicas, "serviceName": shape.headless(),
            "selector": {"matchLabels": {"app.kubernetes.io/name": "database", "app.kubernetes.io/instance": shape.name}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "automountServiceAccountToken": false, "enableServiceLinks": false, "terminationGracePeriodSeconds": 60,
                    "securityContext": pod_security(),
                    "containers": [container],
                    "volumes": [{"name": "run", "emptyDir": {}}],
                },
            },
            "volumeClaimTemplates": [{"metadata": {"name": "data", "labels": labels}, "spec": claim}],
        },
    }))
}

/// Where a server keeps its data.
fn folder(shape: &Shape) -> &'static str {
    match shape.kind {
        DatabaseType::Postgres => "/var/lib/postgresql/data",
        DatabaseType::Mysql | DatabaseType::Mariadb => "/var/lib/mysql",
    }
}

/// Where a server keeps its socket.
fn run(shape: &Shape) -> &'static str {
    match shape.kind {
        DatabaseType::Postgres => "/var/run/postgresql",
        DatabaseType::Mysql => "/var/run/mysqld",
        DatabaseType::Mariadb => "/run/mysqld",
    }
}

/// The environment of the image at its first start: the operator's user. Applications get theirs by SQL, as often as
/// their password changes.
fn environment(shape: &Shape) -> Value {
    let password = |name: &str| json!({"name": name, "valueFrom": {"secretKeyRef": {"name": shape.operator(), "key": "password"}}});
    match shape.kind {
        DatabaseType::Postgres => json!([
            password("POSTGRES_PASSWORD"), {"name": "POSTGRES_USER", "value": OPERATOR}, {"name": "POSTGRES_DB", "value": "postgres"},
            // Not the mount itself, which may have a folder lost+found.
            {"name": "PGDATA", "value": "/var/lib/postgresql/data/pgdata"},
        ]),
        DatabaseType::Mysql => json!([password("MYSQL_ROOT_PASSWORD")]),
        DatabaseType::Mariadb => json!([password("MARIADB_ROOT_PASSWORD")]),
    }
}

/// The Secret with the operator's own password.
pub fn operator_secret(shape: &Shape, password: &str) -> Secret {
    secret(
        shape,
        &shape.operator(),
        &[("username", OPERATOR), ("password", password)],
    )
}

/// The Secret for applications.
pub fn credentials_secret(shape: &Shape, namespace: &str, password: &str) -> Secret {
    let host = format!("{}.{namespace}.svc", shape.name);
    let scheme = if shape.is_postgres() { "postgres" } else { "mysql" };
    let port = shape.port().to_string();
    let encoded = utf8_percent_encode(password, NON_ALPHANUMERIC);
    let uri = format!("{scheme}://{}:{encoded}@{host}:{port}/{}", shape.user, shape.database);
    let parts = [
        ("username", shape.user.as_str()),
        ("password", password),
        ("host", &host),
        ("port", &port),
        ("database", &shape.database),
        ("uri", &uri),
    ];
    secret(shape, &shape.credentials(), &parts)
}

fn secret(shape: &Shape, name: &str, parts: &[(&str, &str)]) -> Secret {
    let data: BTreeMap<&str, kubewright::k8s_openapi::ByteString> = parts
        .iter()
        .map(|(key, text)| (*key, kubewright::k8s_openapi::ByteString(text.as_bytes().to_vec())))
        .collect();
    made(json!({"metadata": {"name": name, "labels": labels(shape)}, "type": "Opaque", "data": data}))
}
