//! The code of the book's chapter about webhooks.

mod v1 {
    use kubewright::kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    /// A guestbook.
    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "webapp.my.domain", version = "v1", kind = "Guestbook", namespaced)]
    #[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "kubewright::k8s_openapi"))]
    pub(crate) struct GuestbookSpec {
        /// How many pages it has.
        pub(crate) size: i32,
        /// What stands above them.
        pub(crate) title: Option<String>,
    }
}

mod v2 {
    use kubewright::kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    /// A guestbook.
    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "webapp.my.domain", version = "v2", kind = "Guestbook", namespaced)]
    #[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "kubewright::k8s_openapi"))]
    pub(crate) struct GuestbookSpec {
        /// How many pages it has.
        pub(crate) pages: i32,
        /// What stands above them.
        pub(crate) title: Option<String>,
    }
}

// ANCHOR: defaulter
use kubewright::{AdmissionRequest, Defaulter, Denied, FieldErrors, Validator, Webhook};
use v1::Guestbook;

struct GuestbookDefaulter;

impl Defaulter for GuestbookDefaulter {
    type Object = Guestbook;

    async fn default(&self, guestbook: &mut Guestbook, _request: &AdmissionRequest) -> Result<(), Denied> {
        guestbook.spec.title.get_or_insert_with(|| "Welcome".to_owned());
        Ok(())
    }
}
// ANCHOR_END: defaulter

// ANCHOR: validator
struct GuestbookValidator;

impl Validator for GuestbookValidator {
    type Object = Guestbook;

    async fn create(&self, guestbook: &Guestbook, request: &AdmissionRequest) -> Result<(), Denied> {
        let mut errors = FieldErrors::new();
        if guestbook.spec.size > 100 {
            errors.invalid("spec.size", guestbook.spec.size, "must be at most 100");
        }
        if guestbook.spec.size > 50 {
            request.warn("spec.size: more than 50 pages are heavy");
        }
        errors.into_result()
    }

    async fn update(&self, old: &Guestbook, new: &Guestbook, request: &AdmissionRequest) -> Result<(), Denied> {
        if new.spec.size < old.spec.size {
            return Err(Denied::new("a guestbook does not shrink"));
        }
        self.create(new, request).await
    }
}
// ANCHOR_END: validator

// ANCHOR: conversion
impl From<v2::Guestbook> for v1::Guestbook {
    fn from(spoke: v2::Guestbook) -> v1::Guestbook {
        v1::Guestbook {
            metadata: spoke.metadata,
            spec: v1::GuestbookSpec {
                size: spoke.spec.pages,
                title: spoke.spec.title,
            },
        }
    }
}

impl From<v1::Guestbook> for v2::Guestbook {
    fn from(hub: v1::Guestbook) -> v2::Guestbook {
        v2::Guestbook {
            metadata: hub.metadata,
            spec: v2::GuestbookSpec {
                pages: hub.spec.size,
                title: hub.spec.title,
            },
        }
    }
}
// ANCHOR_END: conversion

// ANCHOR: operator
use kubewright::{Conversion, Operator};

fn operator() -> Operator {
    Operator::new("guestbook")
        .crd::<v1::Guestbook>()
        .crd::<v2::Guestbook>()
        .webhook(webhook())
        .conversion(Conversion::hub::<v1::Guestbook>().spoke::<v2::Guestbook>())
}

fn webhook() -> Webhook<Guestbook> {
    Webhook::of::<Guestbook>()
        .defaulter(GuestbookDefaulter)
        .validator(GuestbookValidator)
}
// ANCHOR_END: operator

// ANCHOR: raw
use kubewright::webhook::RawDefaulter;
use serde_json::Value;

/// Notes who created the object, whatever its kind.
struct CreatedBy;

impl RawDefaulter for CreatedBy {
    async fn default(&self, object: &mut Value, request: &AdmissionRequest) -> Result<(), Denied> {
        let user = request.user_info.username.clone().unwrap_or_default();
        request.annotate("created-by", user.clone());
        object["metadata"]["annotations"]["created-by"] = user.into();
        Ok(())
    }
}

fn chained() -> Webhook<Guestbook> {
    Webhook::of::<Guestbook>()
        .defaulter(GuestbookDefaulter)
        .raw_defaulter(CreatedBy)
        .mutating(|webhook| webhook.operations([Operation::Create]))
}
// ANCHOR_END: raw

// ANCHOR: tokens
use kubewright::k8s_openapi::api::authentication::v1::UserInfo;
use kubewright::webhook::{Authenticator, TokenRequest};

struct Guests;

impl Authenticator for Guests {
    async fn authenticate(&self, asked: &TokenRequest) -> Result<Option<UserInfo>, Denied> {
        let name = asked.token().strip_prefix("guest:");
        Ok(name.map(|name| UserInfo {
            username: Some(name.to_owned()),
            ..UserInfo::default()
        }))
    }
}

fn with_guests() -> Operator {
    operator().authenticator("/authenticate", Guests)
}
// ANCHOR_END: tokens

// ANCHOR: settings
use kubewright::webhook::{FailurePolicy, Operation};

fn webhook_with_settings() -> Webhook<Guestbook> {
    Webhook::of::<Guestbook>()
        .defaulter(GuestbookDefaulter)
        .mutating(|webhook| {
            webhook
                .operations([Operation::Create])
                .failure_policy(FailurePolicy::Ignore)
        })
        .validator(GuestbookValidator)
        .validating(|webhook| {
            webhook
                .operations([Operation::Create, Operation::Update, Operation::Delete])
                .timeout_seconds(5)
        })
}
// ANCHOR_END: settings

// ANCHOR: test
use kubewright::kube::api::{Api, PostParams};
use kubewright_testing::TestCluster;

#[tokio::test]
async fn guestbooks_get_a_title_and_are_not_too_large() -> kubewright_testing::Result<()> {
    let cluster = TestCluster::start().await?;
    cluster.run(operator()).await?;
    let guestbooks: Api<Guestbook> = Api::namespaced(cluster.kube(), "default");

    let small = Guestbook::new("small", v1::GuestbookSpec { size: 3, title: None });
    let created = guestbooks.create(&PostParams::default(), &small).await?;
    assert_eq!(created.spec.title.as_deref(), Some("Welcome"));

    let large = Guestbook::new("large", v1::GuestbookSpec { size: 101, title: None });
    let refused = guestbooks.create(&PostParams::default(), &large).await;
    assert!(refused.is_err_and(|error| {
        error
            .to_string()
            .contains("spec.size: Invalid value: 101: must be at most 100")
    }));
    Ok(())
}

#[test]
fn conversions_lose_nothing() {
    kubewright_testing::conversion::check_round_trip::<v1::Guestbook, v2::Guestbook>();
}
// ANCHOR_END: test

// ANCHOR: unit
#[tokio::test]
async fn heavy_guestbooks_are_warned_about() {
    let request = AdmissionRequest::detached::<Guestbook>(Operation::Create);
    let heavy = Guestbook::new("heavy", v1::GuestbookSpec { size: 51, title: None });
    assert!(GuestbookValidator.create(&heavy, &request).await.is_ok());
    assert_eq!(request.warnings(), ["spec.size: more than 50 pages are heavy"]);
}
// ANCHOR_END: unit

#[tokio::test]
async fn the_chain_of_the_book_works() -> kubewright_testing::Result<()> {
    let cluster = TestCluster::start().await?;
    let operator = Operator::new("guestbook").crd::<v1::Guestbook>().webhook(chained());
    cluster.run_as_admin(operator).await?;
    let guestbooks: Api<Guestbook> = Api::namespaced(cluster.kube(), "default");
    let small = Guestbook::new("small", v1::GuestbookSpec { size: 3, title: None });
    let created = guestbooks.create(&PostParams::default(), &small).await?;
    assert_eq!(created.spec.title.as_deref(), Some("Welcome"));
    let annotations = created.metadata.annotations.unwrap_or_default();
    assert!(
        annotations.get("created-by").is_some_and(|user| !user.is_empty()),
        "{annotations:?}"
    );
    Ok(())
}

#[tokio::test]
async fn the_guests_of_the_book_are_known() -> kubewright_testing::Result<()> {
    let cluster = TestCluster::start().await?;
    let handlers = with_guests().manager(cluster.kube()).build()?.webhooks();
    let review = serde_json::json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "guest:ann"},
    });
    let answer = handlers
        .call("/authenticate", std::time::Duration::from_secs(9), review)
        .await;
    assert_eq!(answer.expect("an answer")["status"]["user"]["username"], "ann");
    Ok(())
}

#[test]
fn the_settings_of_the_book_are_valid() {
    let descriptions = webhook_with_settings().descriptions();
    assert_eq!(descriptions[0].failure_policy, "Ignore");
    assert_eq!(descriptions[1].verbs, ["create", "update", "delete"]);
}
