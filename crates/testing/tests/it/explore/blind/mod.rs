//! Small operators with an ordinary mistake each, and the same without it, written before it was known what a search for
//! faults finds of them. Their workload is what a user has: a sample, and the CRD's schema.
//!
//! Invariants: a pair differs in one place, which a comment names (*The mend*); the mended operator keeps its promise
//! under every fault.

mod shapes;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kubewright::Scope;
use kubewright::prelude::*;
use kubewright_testing::explore::{Explore, Step};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use shapes::Memory;

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "App",
    namespaced,
    status = "AppStatus"
)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
pub(super) struct AppSpec {
    #[schemars(range(min = 1, max = 3))]
    pub(super) replicas: i32,
    pub(super) image: String,
    pub(super) tier: Tier,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Tier {
    Basic,
    Gold,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AppStatus {
    pub(super) phase: Option<String>,
    pub(super) message: Option<String>,
    pub(super) observed_generation: Option<i64>,
}

/// The mistakes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shape {
    /// The name of a child follows from a field, and the child of the former name stays.
    Renamed,
    /// What was made once is remembered by name, also when it went with its owner.
    Remembered,
    /// The password lives in the memory of the process.
    Password,
    /// The finalizer comes after what it is to clean up.
    LateFinalizer,
    /// What went wrong is written into the status, and stays there.
    Degraded,
    /// A shared object is written as it was read, whoever changed it meanwhile.
    Unlocked,
    /// A phase is noted before its work is done, and nobody takes the work up again.
    Phase,
    /// The selector of a Deployment follows from a field.
    Selector,
    /// The finalizer goes before the cleanup.
    EarlyRelease,
    /// The volume goes before its member.
    ScaleDown,
    /// What was seen once is not looked at again.
    Observed,
    /// A child without a namespace has the name of its owner.
    Collision,
}

/// Each with its name, and how many samples it takes.
pub(super) const SHAPES: [(&str, Shape, usize); 12] = [
    ("renamed-child", Shape::Renamed, 1),
    ("remembered-by-name", Shape::Remembered, 1),
    ("password-in-memory", Shape::Password, 1),
    ("late-finalizer", Shape::LateFinalizer, 1),
    ("degraded-for-ever", Shape::Degraded, 1),
    ("unlocked-update", Shape::Unlocked, 2),
    ("phase-before-work", Shape::Phase, 1),
    ("selector-of-a-field", Shape::Selector, 1),
    ("released-too-early", Shape::EarlyRelease, 1),
    ("volume-before-member", Shape::ScaleDown, 1),
    ("observed-generation", Shape::Observed, 1),
    ("collision-of-names", Shape::Collision, 1),
];

fn operator(shape: Shape, fixed: bool) -> Operator {
    let apps = Apps {
        shape,
        fixed,
        memory: Memory::default(),
    };
    let controller = Controller::of(apps)
        .owns::<Deployment>()
        .owns::<StatefulSet>()
        .owns::<ConfigMap>()
        .owns::<Secret>()
        .owns::<Service>()
        .owns::<PersistentVolumeClaim>()
        .reads::<ClusterRole>(Scope::all());
    Operator::new("apps").crd::<App>().controller(controller)
}

struct Apps {
    shape: Shape,
    fixed: bool,
    memory: Memory,
}

impl Reconciler for Apps {
    type Object = App;

    async fn reconcile(&self, app: Arc<App>, ctx: Context) -> Result<Action> {
        shapes::reconcile(self.shape, self.fixed, &self.memory, &app, &ctx).await
    }
}

fn steps(samples: usize) -> kubewright_testing::Result<Vec<Step>> {
    let folder = tempfile::tempdir().expect("a folder for the samples");
    for name in ["blue", "green"].iter().take(samples) {
        let sample = format!(
            "apiVersion: example.com/v1\nkind: App\nmetadata: {{name: {name}}}\n\
             spec: {{replicas: 2, image: \"app:1\", tier: basic}}\n"
        );
        std::fs::write(folder.path().join(format!("{name}.yaml")), sample).expect("a sample can be written");
    }
    let crds = operator(Shape::Renamed, true).crds().expect("the CRD can be made");
    Step::of_samples(folder.path(), &crds)
}

/// The exploration of one of them.
pub(super) fn explore(name: &str, fixed: bool) -> kubewright_testing::Result<Explore> {
    let found = SHAPES.iter().find(|(known, ..)| *known == name);
    let (_, shape, samples) = *found.expect("a shape of this name");
    Ok(Explore::of(move || operator(shape, fixed)).steps(steps(samples)?))
}
