//! kubewright as a replica of an operator, run by the flags that users give it; the bench has two of them, or starts one
//! again.
//!
//! With `KUBEWRIGHT_BENCH_CHILDREN` it applies a ConfigMap for each ServiceAccount; without it looks at ConfigMaps and
//! does nothing. It tells of its first reconcile and of every thousandth.

#![allow(clippy::print_stdout, reason = "lines are how a subject answers the bench")]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kubewright::kube::core::ObjectMeta;
use kubewright::{Action, Context, Controller, Operator, Reconciler, Result};

/// How many reconciles there were.
#[derive(Default)]
struct Count(AtomicUsize);

impl Count {
    fn one_more(&self) {
        let count = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        if count == 1 || count.is_multiple_of(1000) {
            println!("reconciled {count}");
        }
    }
}

/// Does nothing.
#[derive(Default)]
struct Idler(Count);

impl Reconciler for Idler {
    type Object = ConfigMap;

    async fn reconcile(&self, _: Arc<ConfigMap>, _: Context) -> Result<Action> {
        self.0.one_more();
        Ok(Action::await_change())
    }
}

/// Keeps a child for each object.
#[derive(Default)]
struct Parent(Count);

impl Reconciler for Parent {
    type Object = ServiceAccount;

    async fn reconcile(&self, account: Arc<ServiceAccount>, ctx: Context) -> Result<Action> {
        let (name, namespace) = (account.metadata.name.clone(), account.metadata.namespace.clone());
        let data = BTreeMap::from([("account".to_owned(), name.clone().unwrap_or_default())]);
        ctx.apply(ConfigMap {
            metadata: ObjectMeta {
                name,
                namespace,
                ..ObjectMeta::default()
            },
            data: Some(data),
            ..ConfigMap::default()
        })
        .await?;
        self.0.one_more();
        Ok(Action::await_change())
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let operator = Operator::new("bench");
    kubewright::run(match std::env::var_os("KUBEWRIGHT_BENCH_CHILDREN") {
        None => operator.controller(Controller::of::<ConfigMap>(Idler::default())),
        Some(_) => operator.controller(Controller::of::<ServiceAccount>(Parent::default()).owns::<ConfigMap>()),
    })
    .await
}
