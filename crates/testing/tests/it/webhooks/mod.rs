//! Webhooks and conversions of an operator, seen through the API of a cluster with real objects.

mod book;
mod doors;
mod faults;
mod https;
mod kinds;
mod own_certificate;
mod round_trip;

use kinds::{v1, v2};
use kubewright::k8s_openapi::api::core::v1::Pod;
use kubewright::kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kubewright::kube::core::{ApiResource, GroupVersionKind};
use kubewright::kube::{self, ResourceExt as _};
use kubewright::webhook::{FailurePolicy, Operation};
use kubewright::{AdmissionRequest, Conversion, Defaulter, Denied, FieldErrors, Operator, Validator, Webhook};
use kubewright_testing::{Cluster, Controllers, Result, TestCluster};
use serde_json::{Value, json};

/// The configurations of webhooks of a kind.
fn admission(cluster: &TestCluster, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
    Api::all_with(cluster.kube(), &ApiResource::from_gvk(&kind))
}

struct GuestbookDefaulter;

impl Defaulter for GuestbookDefaulter {
    type Object = v1::Guestbook;

    async fn default(&self, guestbook: &mut v1::Guestbook, request: &AdmissionRequest) -> Result<(), Denied> {
        assert!(guestbook.name_any() != "panic-in-default", "asked to panic");
        guestbook.spec.title.get_or_insert_with(|| "Welcome".to_owned());
        if request.dry_run {
            guestbook.annotations_mut().insert("tried".to_owned(), "yes".to_owned());
        }
        Ok(())
    }
}

struct GuestbookValidator;

impl Validator for GuestbookValidator {
    type Object = v1::Guestbook;

    async fn create(&self, guestbook: &v1::Guestbook, request: &AdmissionRequest) -> Result<(), Denied> {
        let mut errors = FieldErrors::new();
        if guestbook.spec.size > 100 {
            errors.invalid("spec.size", guestbook.spec.size, "must be at most 100");
        }
        if guestbook.spec.title.as_deref() == Some("") {
            errors.required("spec.title", "visitors want to know where they are");
        }
        if guestbook.spec.size > 50 {
            request.warn("spec.size: more than 50 pages are heavy");
        }
        errors.into_result()
    }

    async fn update(&self, old: &v1::Guestbook, new: &v1::Guestbook, request: &AdmissionRequest) -> Result<(), Denied> {
        if new.spec.size < old.spec.size {
            return Err(Denied::new(format!(
                "a guestbook does not shrink: {} to {}",
                old.spec.size, new.spec.size
            )));
        }
        self.create(new, request).await
    }

    async fn delete(&self, guestbook: &v1::Guestbook, _: &AdmissionRequest) -> Result<(), Denied> {
        match guestbook.labels().contains_key("precious") {
            true => Err("it is precious".into()),
            false => Ok(()),
        }
    }
}

struct PodDefaulter;

impl Defaulter for PodDefaulter {
    type Object = Pod;

    async fn default(&self, pod: &mut Pod, request: &AdmissionRequest) -> Result<(), Denied> {
        // The cluster's objects can be read here.
        let namespace = request.namespace.clone().unwrap_or_default();
        let found = request
            .client()?
            .live::<kubewright::k8s_openapi::api::core::v1::Namespace>(None, &namespace)
            .await?;
        pod.labels_mut().insert("seen".to_owned(), found.is_some().to_string());
        Ok(())
    }
}

fn operator() -> Operator {
    let guestbook = Webhook::of::<v1::Guestbook>()
        .defaulter(GuestbookDefaulter)
        .validator(GuestbookValidator)
        .validating(|webhook| webhook.operations([Operation::Create, Operation::Update, Operation::Delete]));
    let pod = Webhook::of::<Pod>().defaulter(PodDefaulter).mutating(|webhook| {
        webhook
            .operations([Operation::Create])
            .failure_policy(FailurePolicy::Ignore)
    });
    Operator::new("guestbook")
        .crd::<v1::Guestbook>()
        .crd::<v2::Guestbook>()
        .webhook(guestbook)
        .webhook(pod)
        .conversion(Conversion::hub::<v1::Guestbook>().spoke::<v2::Guestbook>())
}

async fn cluster() -> Result<(TestCluster, Api<v1::Guestbook>)> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let api = Api::namespaced(cluster.kube(), "default");
    Ok((cluster, api))
}

fn guestbook(spec: Value) -> v1::Guestbook {
    let object = json!({"metadata": {"name": "hello"}, "spec": spec});
    serde_json::from_value(object).expect("a guestbook")
}

fn pod() -> Pod {
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    serde_json::from_value(pod).expect("a pod")
}

/// The text that a user would read.
fn words<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> String {
    match result {
        Err(kube::Error::Api(status)) => {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            let causes: Vec<String> = causes
                .map(|cause| format!("\n  {} ({}): {}", cause.field, cause.reason, cause.message))
                .collect();
            format!(
                "{} {}: {}{}",
                status.code,
                status.reason,
                status.message,
                causes.concat()
            )
        }
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn defaults_and_refusals() -> Result<()> {
    let (cluster, api) = cluster().await?;
    cluster.run(operator()).await?;
    let post = PostParams::default();

    let mut tried = guestbook(json!({"size": 3}));
    tried.metadata.name = Some("tried".to_owned());
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let tried = api.create(&dry, &tried).await?;
    assert_eq!(tried.annotations().get("tried").map(String::as_str), Some("yes"));

    let created = api.create(&post, &guestbook(json!({"size": 3}))).await?;
    assert_eq!(created.spec.title.as_deref(), Some("Welcome"));
    assert!(created.annotations().is_empty(), "{created:?}");

    let merge = |size: i32| Patch::Merge(json!({"spec": {"size": size}}));
    let patch = PatchParams::default();
    let shrunk = api.patch("hello", &patch, &merge(2)).await;
    let too_large = api.patch("hello", &patch, &merge(101)).await;
    let untitled = api
        .patch(
            "hello",
            &patch,
            &Patch::Merge(json!({"spec": {"size": 200, "title": ""}})),
        )
        .await;
    let mut panics = guestbook(json!({"size": 1}));
    panics.metadata.name = Some("panic-in-default".to_owned());
    let panics = api.create(&post, &panics).await;
    api.patch(
        "hello",
        &patch,
        &Patch::Merge(json!({"metadata": {"labels": {"precious": ""}}})),
    )
    .await?;
    let precious = api.delete("hello", &DeleteParams::default()).await;
    let refused = [
        words(shrunk),
        words(too_large),
        words(untitled),
        words(panics),
        words(precious),
    ];
    insta::assert_snapshot!(refused.join("\n"), @r#"
    403 Forbidden: admission webhook "vguestbook-v1.kb.io" denied the request: a guestbook does not shrink: 3 to 2
    422 Invalid: admission webhook "vguestbook-v1.kb.io" denied the request: Guestbook.webapp.my.domain "hello" is invalid: spec.size: Invalid value: 101: must be at most 100
      spec.size (FieldValueInvalid): Invalid value: 101: must be at most 100
    422 Invalid: admission webhook "vguestbook-v1.kb.io" denied the request: Guestbook.webapp.my.domain "hello" is invalid: [spec.size: Invalid value: 200: must be at most 100, spec.title: Required value: visitors want to know where they are]
      spec.size (FieldValueInvalid): Invalid value: 200: must be at most 100
      spec.title (FieldValueRequired): Required value: visitors want to know where they are
    500 InternalError: admission webhook "mguestbook-v1.kb.io" denied the request: panic: asked to panic [recovered]
    403 Forbidden: admission webhook "vguestbook-v1.kb.io" denied the request: it is precious
    "#);

    api.patch("hello", &patch, &Patch::Merge(json!({"metadata": {"labels": null}})))
        .await?;
    api.delete("hello", &DeleteParams::default()).await?;
    Ok(())
}

#[tokio::test]
async fn warnings_reach_the_person_who_writes() -> Result<()> {
    let (cluster, _) = cluster().await?;
    cluster.run(operator()).await?;
    let body = json!({
        "apiVersion": "webapp.my.domain/v1", "kind": "Guestbook",
        "metadata": {"name": "heavy"}, "spec": {"size": 51},
    });
    let request = http::Request::post("/apis/webapp.my.domain/v1/namespaces/default/guestbooks")
        .header("content-type", "application/json")
        .body(kube::client::Body::from(body.to_string().into_bytes()))
        .expect("a request");
    let answer = cluster.kube().send(request).await?;
    assert_eq!(answer.status(), 201);
    let warnings: Vec<&str> = answer
        .headers()
        .get_all("warning")
        .iter()
        .filter_map(|warning| warning.to_str().ok())
        .collect();
    assert_eq!(warnings, [r#"299 - "spec.size: more than 50 pages are heavy""#]);
    Ok(())
}

/// W2: a field that the API server knows and the Rust type does not is not lost when a webhook changes the object.
#[tokio::test]
async fn w2_what_the_type_does_not_know_survives() -> Result<()> {
    let (cluster, typed) = cluster().await?;
    let mut newer = json!(operator().crds()?.remove(0));
    for version in newer["spec"]["versions"].as_array_mut().expect("versions") {
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["colour"] = json!({"type": "string"});
    }
    cluster
        .install_crds([serde_json::from_value(newer).expect("a CRD")])
        .await?;
    cluster.run(operator()).await?;
    let resource = kubewright::api_resource::<v1::Guestbook>();
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.kube(), "default", &resource);
    let object = json!({
        "apiVersion": "webapp.my.domain/v1", "kind": "Guestbook", "metadata": {"name": "hello"},
        "spec": {"size": 1, "colour": "blue"},
    });
    let object: DynamicObject = serde_json::from_value(object).expect("an object");
    let created = api.create(&PostParams::default(), &object).await?;
    assert_eq!(
        created.data["spec"],
        json!({"size": 1, "colour": "blue", "title": "Welcome"})
    );
    assert_eq!(typed.get("hello").await?.spec.size, 1);
    Ok(())
}

/// A webhook of a built-in kind; it reads the cluster through the request's client.
#[tokio::test]
async fn pods_get_defaults_too() -> Result<()> {
    let (cluster, _) = cluster().await?;
    cluster.run(operator()).await?;
    let pods: Api<Pod> = Api::namespaced(cluster.kube(), "default");
    let pod = pods.create(&PostParams::default(), &pod()).await?;
    assert_eq!(pod.labels().get("seen").map(String::as_str), Some("true"));
    Ok(())
}

#[tokio::test]
async fn every_version_is_served_from_the_stored_one() -> Result<()> {
    let (cluster, v1) = cluster().await?;
    cluster.run(operator()).await?;
    let v2: Api<v2::Guestbook> = Api::namespaced(cluster.kube(), "default");
    let object =
        json!({"metadata": {"name": "new", "labels": {"a": "b"}}, "spec": {"pages": {"count": 7}, "title": "Hi"}});
    let object: v2::Guestbook = serde_json::from_value(object).expect("a guestbook");
    let created = v2.create(&PostParams::default(), &object).await?;
    assert_eq!(created.spec.pages.count, 7);
    let seen = v1.get("new").await?;
    assert_eq!((seen.spec.size, seen.labels().len()), (7, 1));
    assert_eq!(seen.uid(), created.uid());
    // Validation is called in the version that it is written for, whichever version the client wrote.
    let mut large = seen.clone();
    large.spec.size = 8;
    v1.replace("new", &PostParams::default(), &large).await?;
    let refused = v2
        .patch(
            "new",
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"pages": {"count": 1}}})),
        )
        .await;
    assert!(words(refused).contains("does not shrink: 8 to 1"));
    let all: Vec<i32> = v2
        .list(&Default::default())
        .await?
        .items
        .into_iter()
        .map(|guestbook| guestbook.spec.pages.count)
        .collect();
    assert_eq!(all, [8]);
    // An object that the other version has no words for is named.
    v1.create(&PostParams::default(), &guestbook(json!({"size": -1})))
        .await?;
    insta::assert_snapshot!(words(v2.get("hello").await), @"500 : conversion webhook for webapp.my.domain/v1, Kind=Guestbook failed: cannot convert Guestbook default/hello from webapp.my.domain/v1 to webapp.my.domain/v2: spec.size is -1, and v2 cannot count below 0");
    Ok(())
}

#[tokio::test]
async fn an_operator_that_is_gone_is_missed_as_its_failure_policies_say() -> Result<()> {
    let (cluster, api) = cluster().await?;
    let operator = cluster.run(operator()).await?;
    operator.stop().await?;
    let refused = api.create(&PostParams::default(), &guestbook(json!({"size": 3}))).await;
    insta::assert_snapshot!(words(refused), @r#"
    500 InternalError: Internal error occurred: failed calling webhook "mguestbook-v1.kb.io": failed to call webhook: Post "https://guestbook-webhook-service.guestbook-system.svc:443/mutate-webapp-my-domain-v1-guestbook?timeout=10s": dial tcp: connect: connection refused
       (): failed calling webhook "mguestbook-v1.kb.io": failed to call webhook: Post "https://guestbook-webhook-service.guestbook-system.svc:443/mutate-webapp-my-domain-v1-guestbook?timeout=10s": dial tcp: connect: connection refused
    "#);
    let pods: Api<Pod> = Api::namespaced(cluster.kube(), "default");
    let pod = pods.create(&PostParams::default(), &pod()).await?;
    assert!(pod.labels().is_empty(), "its webhook is ignored: {pod:?}");
    Ok(())
}
