//! The controller `database`: reconciles Databases.
//!
//! A reconcile finds or makes the passwords, applies the children, lets the claim grow, tries whether a login works,
//! has copies made, and reports it. Each step follows from what is there, so that one which was cut off is finished by
//! the next.

use kubewright::k8s_openapi::api::apps::v1::StatefulSet;
use kubewright::k8s_openapi::api::batch::v1::{CronJob, Job};
use kubewright::k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret, Service};
use kubewright::kube::core::{Expression, Selector};
use kubewright::prelude::*;
use kubewright::{Scope, predicate};

use database_api::v1alpha1::{Database, Phase};

use super::credentials::Missing;
use super::status::Seen;
use super::{copies, credentials, deletion, server, status, storage};
use crate::database::shape::{MANAGER, Shape};
use crate::database::{children, drift};
use crate::world::World;

/// The finalizer that keeps a Database until the fate of its data is decided.
const FINALIZER: &str = "db.example.com/data";
/// How often the operator logs in to a server that works.
const LOOK: Duration = Duration::from_secs(15);
/// How often a server is looked at that does not work yet; its pod wakes us, too.
const SOON: Duration = Duration::from_secs(2);

/// Reconciles [`Database`].
pub struct DatabaseReconciler {
    world: Arc<dyn World>,
}

#[rbac(groups = "db.example.com", resources = "databases", verbs = "patch")]
#[rbac(groups = "", resources = "persistentvolumeclaims", verbs = "create;patch;delete")]
#[rbac(groups = "apps", resources = "statefulsets", verbs = "delete")]
#[rbac(groups = "batch", resources = "cronjobs", verbs = "delete")]
#[rbac(groups = "storage.k8s.io", resources = "storageclasses", verbs = "get")]
impl Reconciler for DatabaseReconciler {
    type Object = Database;

    // ANCHOR: reconcile
    /// Called when a Database, one of its children or a Secret that it names has changed, and every now and then.
    async fn reconcile(&self, database: Arc<Database>, ctx: Context) -> Result<Action> {
        let shape = Shape::of(&database);
        status::begun(&database, &ctx).await?;
        let credentials = match credentials::find(&database, &shape, &ctx).await? {
            Ok(credentials) => credentials,
            Err(Missing(reason, why)) => {
                status::without_credentials(&database, &ctx, reason, &why).await?;
                return Ok(Action::await_change()); // the Secret wakes us
            }
        };
        for service in children::services(&shape) {
            restore(&database, service, &ctx).await?;
        }
        let size = storage::first_size(&database, &shape, &ctx).await?;
        restore(&database, children::stateful_set(&shape, &database, &size), &ctx).await?;
        let storage = storage::grow(&database, &shape, &ctx).await?;
        let server = server::look(&database, &shape, &credentials, &*self.world, &ctx).await?;
        let copies = copies::keep(&database, &shape, &credentials, &server, &ctx).await?;
        let seen = Seen {
            storage,
            server,
            copies,
        };
        let phase = status::seen(&database, &shape, &credentials, &seen, &ctx).await?;
        Ok(match phase {
            Phase::Suspended => Action::await_change(),
            Phase::Running | Phase::Failed => Action::requeue_after(LOOK),
            _ => Action::requeue_after(SOON),
        })
    }
    // ANCHOR_END: reconcile

    /// Called when a Database is being deleted.
    async fn cleanup(&self, database: Arc<Database>, ctx: Context) -> Result<Cleanup> {
        deletion::clean_up(&database, &ctx).await
    }
}

/// Applies a child, and reports the changes that another client had made in it.
async fn restore<K: Object>(database: &Database, child: K, ctx: &Context) -> Result<()> {
    let is_settled = database.status.as_ref().is_some_and(|status| {
        Some(status.observed_generation) == database.metadata.generation
            && status.phase.is_some_and(|phase| phase != Phase::Pending)
    });
    if is_settled {
        let name = child.meta().name.clone().unwrap_or_default();
        let kind = K::kind(&());
        let found = ctx.client().get::<K>(ctx.request().namespace(), &name).await?;
        let told = match found {
            None => Some(format!("{kind} {name} was gone, and is made anew")),
            Some(found) => {
                let json = |object: &K| serde_json::to_value(object).map_err(Error::retry);
                let paths = drift::differences(&json(&child)?["spec"], &json(&found)?["spec"]);
                (!paths.is_empty()).then(|| format!("{kind} {name} is put right: spec.{}", paths.join(", spec.")))
            }
        };
        if let Some(message) = told {
            ctx.event(database, EventType::Normal, "Restored", message);
        }
    }
    ctx.apply(child).await?;
    Ok(())
}

/// The Database that a labelled object belongs to.
fn of_label<K: Object>(object: &K) -> Vec<Request> {
    let owner = object.labels().get("app.kubernetes.io/instance");
    owner
        .map(|owner| Request::new(object.namespace().as_deref(), owner))
        .into_iter()
        .collect()
}

/// The controller: what it watches.
pub fn controller(world: Arc<dyn World>) -> Controller {
    let ours = || {
        Scope::all().labels(Selector::from(Expression::Equal(
            "app.kubernetes.io/managed-by".to_owned(),
            MANAGER.to_owned(),
        )))
    };
    let askers = |secret: Arc<Secret>, client: Client| async move {
        let name = secret.name_any();
        let all = client.list::<Database>(secret.namespace().as_deref()).await?;
        let asks = |database: &&Arc<Database>| {
            database
                .spec
                .password_secret_ref
                .as_ref()
                .is_some_and(|at| at.name == name)
        };
        Ok(all
            .iter()
            .filter(asks)
            .map(|database| Request::of(&**database))
            .collect())
    };
    Controller::of(DatabaseReconciler { world })
        .with_predicate::<Database>(predicate::generation_changed)
        .finalizer(FINALIZER)
        .owns::<StatefulSet>()
        .owns::<Service>()
        .owns::<Secret>()
        .owns::<CronJob>()
        .owns::<Job>()
        .reads::<Pod>(ours())
        .reads::<PersistentVolumeClaim>(ours())
        .source(Watch::<Secret>::new().map_with(askers))
        .source(Watch::<Pod>::new().within(ours()).map(of_label))
        .source(Watch::<PersistentVolumeClaim>::new().within(ours()).map(of_label))
        .concurrency(4)
}
