//! The stories of `kubewright demo` beside the guestbook's: the objects to create, the state to wait for, the commands
//! to try.
//!
//! A story is data: operators that are compiled in, objects, a state to wait for, and words. The databases are real
//! ones, as processes of this machine. Not here: how a story is played (`../demo.rs`).

use clap::ValueEnum;
use kubewright::Operator;
use kubewright_cluster::{Images, ProcessRuntime};
use serde_json::{Value, json};

use crate::output::Failure;

/// Which operator is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Which {
    /// A Guestbook with its Deployment and Service
    #[default]
    Guestbook,
    /// Sidecars that are injected into pods
    Sidecarset,
    /// A PostgreSQL that is set up, as a process of this machine
    Database,
    /// A Deployment that is restarted when a value in that PostgreSQL changes
    Autorebooter,
}

/// The parts of a story.
pub(super) struct Story {
    pub(super) operators: Vec<Operator>,
    /// Created one after the other, in the namespace `default` where they have one.
    pub(super) objects: Vec<Value>,
    /// The kind whose object must be ready before the later ones are created.
    pub(super) waits_for: Option<&'static str>,
    /// The object that is waited for: its kind and name, and its state then.
    pub(super) hero: (&'static str, &'static str, &'static str),
    /// Whether it is.
    pub(super) is_there: fn(&Value) -> bool,
    /// How pods run as processes, if they do.
    pub(super) processes: Option<ProcessRuntime>,
    pub(super) invitation: &'static str,
}

impl Story {
    /// The story; none for the guestbook, whose story is older.
    ///
    /// # Errors
    /// When a program that it needs is not on this machine.
    pub(super) fn of(which: Which) -> Result<Option<Story>, Failure> {
        Ok(match which {
            Which::Guestbook => None,
            Which::Sidecarset => Some(sidecarset()),
            Which::Database => Some(database()?),
            Which::Autorebooter => Some(autorebooter()?),
        })
    }
}

fn sidecarset() -> Story {
    let set = json!({
        "apiVersion": "apps.kruise.io/v1alpha1", "kind": "SidecarSet", "metadata": {"name": "log-agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "shop"}},
            "containers": [{"name": "agent", "image": "agent:1", "volumeMounts": [{"name": "log", "mountPath": "/var/log"}]}],
            "volumes": [{"name": "log", "emptyDir": {}}],
        },
    });
    // Its ControllerRevisions are in the operator's namespace.
    let own = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sidecarset-system"}});
    Story {
        operators: vec![sidecarset::operator()],
        objects: vec![own, set, shop(3, Value::Null)],
        waits_for: None,
        hero: ("SidecarSet", "log-agent", "in three pods"),
        is_there: |set| set["status"]["updatedReadyPods"] == 3,
        processes: None,
        invitation: "  kubectl get sidecarsets -w\n  kubectl get pods -o custom-columns=NAME:.metadata.name,CONTAINERS:.spec.containers[*].image\n  \
                     kubectl patch sidecarset log-agent --type=json -p '[{\"op\":\"replace\",\"path\":\"/spec/containers/0/image\",\"value\":\"agent:2\"}]'",
    }
}

fn database() -> Result<Story, Failure> {
    let processes = processes()?;
    Ok(Story {
        operators: vec![database::operator()],
        objects: vec![mydb()],
        waits_for: None,
        hero: ("Database", "mydb", "running, and somebody has logged in"),
        is_there: is_ready,
        processes: Some(processes),
        invitation: "  kubectl get databases -w\n  kubectl get secret mydb-credentials -o yaml\n  kubectl logs mydb-0\n  kubectl delete service mydb\n  \
                     kubectl patch database mydb --type=merge -p '{\"spec\":{\"suspend\":true}}'",
    })
}

fn autorebooter() -> Result<Story, Failure> {
    let processes = processes()?;
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
    Ok(Story {
        operators: vec![database::operator(), autorebooter::operator()],
        objects: vec![mydb(), shop(2, json!("simulated")), policy],
        // A policy that cannot log in yet looks again after two minutes.
        waits_for: Some("Database"),
        hero: (
            "RebootPolicy",
            "price-list",
            "watching the comment of the database mydb",
        ),
        is_there: is_ready,
        processes: Some(processes),
        invitation: "  kubectl get rebootpolicies -w\n  PGPASSWORD=$(kubectl get secret mydb-credentials -o jsonpath='{.data.password}' | base64 -d) \\\n    \
                     psql -h $(kubectl get pod mydb-0 -o jsonpath='{.status.podIP}') -U app mydb -c \"COMMENT ON DATABASE mydb IS 'prices of today'\"\n  \
                     kubectl get pods -w",
    })
}

/// How pods become processes; an error where there is no PostgreSQL.
fn processes() -> Result<ProcessRuntime, Failure> {
    let images = Images::default();
    images
        .check("postgres")
        .map_err(|why| Failure::new("this demo runs a real PostgreSQL").because(why))?;
    Ok(ProcessRuntime::new(images).every_pod())
}

fn mydb() -> Value {
    json!({
        "apiVersion": "db.example.com/v1alpha1", "kind": "Database", "metadata": {"name": "mydb"},
        "spec": {"type": "postgres", "storage": {"size": "1Gi"}},
    })
}

fn shop(replicas: i32, class: Value) -> Value {
    let labels = json!({"app": "shop"});
    let mut pod = json!({"containers": [{"name": "main", "image": "shop:1"}]});
    if !class.is_null() {
        pod["runtimeClassName"] = class;
    }
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shop"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    })
}

/// Whether the condition Ready is True, for the present generation.
fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut ready = conditions
        .into_iter()
        .flatten()
        .filter(|condition| condition["type"] == "Ready");
    ready.any(|ready| ready["status"] == "True" && ready["observedGeneration"] == object["metadata"]["generation"])
}
