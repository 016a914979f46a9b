//! The code of `AGENTS.md`, which every scaffolded project has: it is compiled and run here, and the last test compares
//! the two.

mod v1 {
    use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
    use kubewright::kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    /// GuestbookSpec is the desired state of a Guestbook.
    #[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
    #[kube(
        group = "webapp.my.domain",
        version = "v1",
        kind = "Guestbook",
        namespaced,
        status = "GuestbookStatus"
    )]
    #[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "kubewright::k8s_openapi"))]
    pub(crate) struct GuestbookSpec {
        /// What visitors see.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) greeting: Option<String>,
    }

    /// GuestbookStatus is the observed state of a Guestbook.
    #[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
    pub(crate) struct GuestbookStatus {
        /// The condition `Ready`.
        #[serde(default)]
        pub(crate) conditions: Vec<Condition>,
    }
}

use kubewright::k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kubewright::kube::api::{Api, DeleteParams, PostParams};
use kubewright::prelude::*;
use kubewright::{conditions, predicate};
use kubewright_testing::TestCluster;

struct GuestbookReconciler;

impl Reconciler for GuestbookReconciler {
    type Object = v1::Guestbook;

    async fn reconcile(&self, guestbook: Arc<v1::Guestbook>, ctx: Context) -> Result<Action> {
        // Another object, from the cache. The cache has seen what this operator wrote.
        let namespace = ctx.request().namespace();
        let password = ctx.client().get::<Secret>(namespace, "password").await?;
        // A child: computed from its parent, not read first. It gets the namespace of the
        // parent and an owner reference, and nothing is sent if nothing changes.
        let greeting = guestbook.spec.greeting.clone().unwrap_or_default();
        ctx.apply(ConfigMap {
            metadata: ObjectMeta {
                name: guestbook.metadata.name.clone(),
                ..ObjectMeta::default()
            },
            data: Some([("greeting".to_owned(), greeting)].into()),
            ..ConfigMap::default()
        })
        .await?;
        let ready = if password.is_some() {
            ctx.condition(&*guestbook, "Ready", true, "Reconciled", "up to date")
        } else {
            // An Event, which `kubectl describe` shows.
            let message = "there is no Secret password";
            ctx.event(&*guestbook, EventType::Warning, "NoPassword", message);
            ctx.condition(&*guestbook, "Ready", false, "NoPassword", message)
        };
        // The status: what was observed. Nothing is sent if nothing changes.
        ctx.patch_status(&*guestbook, |guestbook| {
            let status = guestbook.status.get_or_insert_default();
            conditions::set(&mut status.conditions, ready);
        })
        .await?;
        // The span of the reconcile has the controller and the object.
        tracing::info!(has_password = password.is_some(), "reconciled");
        // For what no watch reports: `Action::requeue_after(Duration::from_secs(60))`.
        Ok(Action::await_change())
    }

    /// With `.finalizer(…)`: undo what is outside of the cluster. Children need nothing.
    async fn cleanup(&self, guestbook: Arc<v1::Guestbook>, _: Context) -> Result<Cleanup> {
        tracing::info!(guestbook = guestbook.name_any(), "closes the account");
        Ok(Cleanup::Done)
    }
}

/// The controller: what it watches.
fn controller() -> Controller {
    Controller::of(GuestbookReconciler)
        // Not its own status writes.
        .with_predicate::<v1::Guestbook>(predicate::generation_changed)
        // A child that changes wakes its owner.
        .owns::<ConfigMap>()
        // Another object wakes the objects of these keys.
        .watches(|secret: &Secret| vec![Request::new(&secret.metadata.namespace, "hello")])
        .finalizer("webapp.my.domain/account")
}

struct GuestbookDefaulter;

impl Defaulter for GuestbookDefaulter {
    type Object = v1::Guestbook;

    async fn default(&self, object: &mut v1::Guestbook, _: &AdmissionRequest) -> Result<(), Denied> {
        // It may be called twice for one write.
        object.spec.greeting.get_or_insert_with(|| "Welcome".to_owned());
        Ok(())
    }
}

struct GuestbookValidator;

impl Validator for GuestbookValidator {
    type Object = v1::Guestbook;

    async fn create(&self, object: &v1::Guestbook, request: &AdmissionRequest) -> Result<(), Denied> {
        let greeting = object.spec.greeting.as_deref().unwrap_or_default();
        let mut errors = FieldErrors::new();
        if greeting.contains('<') {
            errors.invalid("spec.greeting", greeting, "must be plain text");
        }
        if greeting.is_empty() {
            request.warn("spec.greeting: visitors see an empty page");
        }
        errors.into_result()
    }

    async fn update(
        &self,
        _: &v1::Guestbook,
        object: &v1::Guestbook,
        request: &AdmissionRequest,
    ) -> Result<(), Denied> {
        self.create(object, request).await
    }
}

fn webhook() -> Webhook<v1::Guestbook> {
    Webhook::of::<v1::Guestbook>()
        .defaulter(GuestbookDefaulter)
        .validator(GuestbookValidator)
}

fn operator() -> Operator {
    Operator::new("guestbook")
        .crd::<v1::Guestbook>()
        .controller(controller())
        .webhook(webhook())
}

#[tokio::test]
async fn a_guestbook_waits_for_its_password() -> Result<(), Box<dyn std::error::Error>> {
    // A cluster in this process: an API server and the built-in controllers.
    let cluster = TestCluster::start().await?;
    // With the role in config/rbac and with the webhooks, as it is deployed.
    let running = cluster.run(operator()).await?;
    let guestbooks = Api::<v1::Guestbook>::namespaced(cluster.kube(), "default");
    let hello = v1::Guestbook::new("hello", v1::GuestbookSpec::default());
    guestbooks.create(&PostParams::default(), &hello).await?;

    let is_ready = |guestbook: &v1::Guestbook| {
        let status = guestbook.status.as_ref();
        status.is_some_and(|status| conditions::is_true(&status.conditions, "Ready"))
    };
    let namespace = Some("default");
    // Tests wait for states and never sleep. A wait that fails says why.
    cluster
        .wait_for(namespace, "hello", "greets", |child: &ConfigMap| {
            let data = child.data.as_ref();
            data.is_some_and(|data| data["greeting"] == "Welcome")
        })
        .await?;
    let mut password = Secret::default();
    password.metadata.name = Some("password".to_owned());
    let secrets = Api::<Secret>::namespaced(cluster.kube(), "default");
    secrets.create(&PostParams::default(), &password).await?;
    cluster.wait_for(namespace, "hello", "is Ready", is_ready).await?;

    guestbooks.delete("hello", &DeleteParams::default()).await?;
    cluster.wait_gone::<v1::Guestbook>(namespace, "hello").await?;
    cluster.wait_gone::<ConfigMap>(namespace, "hello").await?;
    running.stop().await?;
    Ok(())
}

/// The lines of code, without their indentation and where they are broken.
fn words(code: &str) -> String {
    let mut words = String::new();
    for word in code.split_whitespace() {
        words.push_str(word);
    }
    // Lines that are broken end with a comma.
    words.replace(",)", ")").replace(",}", "}")
}

#[test]
fn agents_are_shown_this_code() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("testdata/golden/plain/AGENTS.md")).unwrap();
    let code = words(include_str!("agents.rs"));
    let blocks: Vec<&str> = page
        .split("```rust\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert!(blocks.len() >= 3, "AGENTS.md shows a controller, webhooks and a test");
    for block in blocks {
        for piece in block.split("\n\n") {
            // In a project the operator is the crate's.
            let piece = piece.replace("guestbook::operator()", "operator()");
            let lines: Vec<&str> = piece.lines().filter(|line| !line.starts_with("use ")).collect();
            let piece = words(&lines.join("\n"));
            assert!(
                code.contains(&piece),
                "AGENTS.md shows code that nothing compiles:\n{piece}"
            );
        }
    }
}
