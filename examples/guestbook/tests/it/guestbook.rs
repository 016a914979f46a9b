//! The guestbook operator on a cluster of its own: what it promises to its users.

use guestbook::{Guestbook, GuestbookSpec};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Pod, Service};
use kubewright::kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kubewright_testing::{RunningOperator, TestCluster};
use serde_json::{Value, json};

type TestResult = Result<(), Box<dyn std::error::Error>>;

const NAMESPACE: &str = "default";

// ANCHOR: start
/// A cluster on which the operator runs, with a Guestbook `hello` of this size that is ready.
async fn with_guestbook(
    size: i32,
) -> Result<(TestCluster, RunningOperator, Api<Guestbook>), Box<dyn std::error::Error>> {
    let cluster = TestCluster::start().await?;
    let running = cluster.run(guestbook::operator()).await?;
    let guestbooks: Api<Guestbook> = Api::namespaced(cluster.kube(), "default");
    let wanted = Guestbook::new(
        "hello",
        GuestbookSpec {
            size,
            image: "guestbook:1".into(),
            greeting: None,
        },
    );
    guestbooks.create(&PostParams::default(), &wanted).await?;
    cluster
        .wait_for(NAMESPACE, "hello", "is ready", Guestbook::is_ready)
        .await?;
    Ok((cluster, running, guestbooks))
}
// ANCHOR_END: start

async fn patch(guestbooks: &Api<Guestbook>, patch: Value) -> TestResult {
    guestbooks
        .patch("hello", &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_guestbook_gets_its_children_and_becomes_ready() -> TestResult {
    let (cluster, _running, guestbooks) = with_guestbook(2).await?;

    let guestbook = guestbooks.get("hello").await?;
    let status = guestbook.status.as_ref().expect("a ready guestbook has a status");
    assert_eq!((status.replicas, status.ready_replicas), (2, 2));
    assert_eq!(status.conditions[0].message, "2 of 2 pods are ready");

    let uid = guestbook.metadata.uid.clone();
    let owned = |owners: Option<Vec<_>>| {
        let owners: Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference> = owners.unwrap_or_default();
        owners.len() == 1 && Some(&owners[0].uid) == uid.as_ref() && owners[0].controller == Some(true)
    };
    let deployment = Api::<Deployment>::namespaced(cluster.kube(), "default")
        .get("hello")
        .await?;
    assert!(owned(deployment.metadata.owner_references));
    let service = Api::<Service>::namespaced(cluster.kube(), "default")
        .get("hello")
        .await?;
    assert!(owned(service.metadata.owner_references));
    Ok(())
}

// ANCHOR: changes
#[tokio::test]
async fn changes_of_the_guestbook_reach_its_pods() -> TestResult {
    let (cluster, _running, guestbooks) = with_guestbook(1).await?;

    patch(&guestbooks, json!({"spec": {"size": 3}})).await?;
    let three = |guestbook: &Guestbook| {
        guestbook.is_ready() && guestbook.status.as_ref().is_some_and(|s| s.ready_replicas == 3)
    };
    cluster
        .wait_for(NAMESPACE, "hello", "has three ready pods", three)
        .await?;

    patch(
        &guestbooks,
        json!({"spec": {"image": "guestbook:2", "greeting": "Welcome"}}),
    )
    .await?;
    cluster
        .wait_for_all(NAMESPACE, "are three pods of the new image", |pods: &[Pod]| {
            let new = |pod: &&Pod| {
                let container = pod.spec.as_ref().map(|spec| &spec.containers[0]);
                container.is_some_and(|c| {
                    c.image.as_deref() == Some("guestbook:2")
                        && c.env
                            .as_ref()
                            .is_some_and(|env| env[0].value.as_deref() == Some("Welcome"))
                })
            };
            pods.len() == 3 && pods.iter().filter(new).count() == 3
        })
        .await?;
    cluster
        .wait_for(NAMESPACE, "hello", "is ready again", Guestbook::is_ready)
        .await?;
    Ok(())
}
// ANCHOR_END: changes

#[tokio::test]
async fn children_that_were_tampered_with_are_put_right() -> TestResult {
    let (cluster, _running, _guestbooks) = with_guestbook(2).await?;
    let deployments: Api<Deployment> = Api::namespaced(cluster.kube(), "default");
    let services: Api<Service> = Api::namespaced(cluster.kube(), "default");

    let tampered = json!({"spec": {"replicas": 5}});
    deployments
        .patch("hello", &PatchParams::default(), &Patch::Merge(tampered))
        .await?;
    let two = |deployment: &Deployment| deployment.spec.as_ref().and_then(|spec| spec.replicas) == Some(2);
    cluster
        .wait_for(NAMESPACE, "hello", "has two replicas again", two)
        .await?;

    let before = services.get("hello").await?.metadata.uid;
    services.delete("hello", &DeleteParams::default()).await?;
    cluster
        .wait_for(NAMESPACE, "hello", "is there again", |service: &Service| {
            service.metadata.uid != before
        })
        .await?;
    Ok(())
}

// ANCHOR: deletion
#[tokio::test]
async fn a_deleted_guestbook_takes_its_children_with_it() -> TestResult {
    let (cluster, _running, guestbooks) = with_guestbook(2).await?;
    guestbooks.delete("hello", &DeleteParams::default()).await?;
    cluster.wait_gone::<Guestbook>(NAMESPACE, "hello").await?;
    cluster.wait_gone::<Deployment>(NAMESPACE, "hello").await?;
    cluster.wait_gone::<Service>(NAMESPACE, "hello").await?;
    cluster
        .wait_for_all(NAMESPACE, "are gone", |sets: &[ReplicaSet]| sets.is_empty())
        .await?;
    cluster
        .wait_for_all(NAMESPACE, "are gone", |pods: &[Pod]| pods.is_empty())
        .await?;
    Ok(())
}
// ANCHOR_END: deletion

#[tokio::test]
async fn the_definition_refuses_what_makes_no_sense() -> TestResult {
    let (_cluster, _running, guestbooks) = with_guestbook(0).await?;
    let refused = |spec: Value| {
        let guestbooks = guestbooks.clone();
        async move {
            let wrong = guestbooks
                .patch("hello", &PatchParams::default(), &Patch::Merge(json!({"spec": spec})))
                .await;
            wrong.expect_err("this must be refused").to_string()
        }
    };
    let text = refused(json!({"size": -1})).await;
    assert!(
        text.contains("spec.size") && text.contains("greater than or equal to 0"),
        "{text}"
    );
    let text = refused(json!({"greeting": "x".repeat(201)})).await;
    assert!(text.contains("spec.greeting: Too long"), "{text}");
    Ok(())
}

#[tokio::test]
async fn the_sample_is_valid() -> TestResult {
    let (cluster, _running, guestbooks) = with_guestbook(0).await?;
    guestbooks.delete("hello", &DeleteParams::default()).await?;
    cluster.wait_gone::<Guestbook>(NAMESPACE, "hello").await?;
    let request = http::Request::post("/apis/webapp.my.domain/v1/namespaces/default/guestbooks?fieldValidation=Strict")
        .header("content-type", "application/yaml")
        .body(guestbook::SAMPLE.as_bytes().to_vec())?;
    let created: Guestbook = cluster.kube().request(request).await?;
    assert_eq!(created.spec.size, 2);
    cluster
        .wait_for(NAMESPACE, "hello", "is ready", Guestbook::is_ready)
        .await?;
    Ok(())
}
