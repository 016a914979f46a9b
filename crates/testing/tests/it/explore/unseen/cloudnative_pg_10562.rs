//! cloudnative-pg/cloudnative-pg#10562 (April 2026): a scheduled backup made the next backup, whose name says when it
//! is due, and then noted it in the status. When the note was lost, each reconcile tried to make the same backup again
//! and ended with *already exists*: no backup was made any more until a person deleted that one.

use k8s_openapi::api::batch::v1::Job;
use kubewright::kube::api::DeleteParams;
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::corpus::kit::{self, key};
use super::{Pair, Workload, newest};

pub(super) const PAIR: Pair = Pair {
    name: "cloudnative-pg-10562",
    operator,
    workload: Workload::Samples(&[SAMPLE]),
};

const SAMPLE: &str = "apiVersion: example.com/v1
kind: Schedule
metadata: {name: nightly}
spec: {due: 1}
";

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Schedule",
    namespaced,
    status = "ScheduleStatus"
)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct ScheduleSpec {
    /// The number of the backup that is due. Former ones are not kept.
    #[schemars(range(min = 1, max = 3))]
    due: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
struct ScheduleStatus {
    /// The number of the last backup that was made.
    last: i32,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Schedules { fixed }).owns::<Job>();
    Operator::new("backups").crd::<Schedule>().controller(controller)
}

struct Schedules {
    fixed: bool,
}

impl Reconciler for Schedules {
    type Object = Schedule;

    async fn reconcile(&self, schedule: Arc<Schedule>, ctx: Context) -> Result<Action> {
        let (client, (namespace, name)) = (ctx.client(), key(&*schedule));
        if kit::is_going(&*schedule) {
            return Ok(Action::await_change());
        }
        let due = schedule.spec.due;
        let status = Some(ScheduleStatus { last: due });
        let backup = backup(&schedule, &format!("{name}-{due}"));
        let is_there = client.get::<Job>(namespace, key(&backup).1).await?.is_some();
        if schedule.status != status || !is_there {
            // The mend: a backup of this name that is there is the one that is due.
            match self.fixed {
                true => drop(kit::ensure(client, backup.clone()).await?),
                false => drop(client.create(&backup).await?),
            }
        }
        if schedule.status != status {
            let mut schedule = (*schedule).clone();
            schedule.status = status;
            client.update_status(&schedule).await?;
        }
        for other in kit::cached::<Job>(client, &*schedule).await? {
            if key(&*other).1 != key(&backup).1 && !kit::is_going(&*other) {
                newest(client, &*schedule).await?;
                client.delete_with(&other, DeleteParams::background()).await?;
            }
        }
        Ok(Action::await_change())
    }
}

fn backup(schedule: &Schedule, name: &str) -> Job {
    let container = json!({ "name": "backup", "image": "barman:3" });
    let pod = json!({ "restartPolicy": "Never", "containers": [container] });
    kit::child(schedule, name, json!({ "spec": { "template": { "spec": pod } } }))
}
