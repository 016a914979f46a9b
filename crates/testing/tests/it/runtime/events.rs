//! Events that are recorded while the API server does not answer.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, ObjectReference};
use kubewright::kube::client::Body;
use kubewright::kube::{self, Api};
use kubewright::{Cache, Client, EventRecorder, EventType, Stop, SystemClock};
use kubewright_testing::{Cluster, Controllers, Result, TestCluster};
use tokio::sync::watch;

/// A client whose requests wait until the gate is open.
fn gated(client: kube::Client, gate: &watch::Sender<bool>) -> kube::Client {
    let (gate, namespace) = (gate.subscribe(), client.default_namespace().to_owned());
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (client, mut gate) = (client.clone(), gate.clone());
        async move {
            // The test keeps the sender.
            drop(gate.wait_for(|open| *open).await);
            client.send(request).await
        }
    });
    kube::Client::new(service, namespace)
}

fn about(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("ConfigMap".to_owned()),
        namespace: Some("default".to_owned()),
        name: Some(name.to_owned()),
        ..Default::default()
    }
}

/// E1: of equal events none is lost, however many there are; of different ones as many wait as there is room for.
#[tokio::test]
async fn e1_events_wait_for_a_server_that_does_not_answer() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let gate = watch::Sender::new(false);
    let (stop, token) = Stop::pair();
    let kube = gated(cluster.kube(), &gate);
    let client = Client::new(kube.clone(), Cache::new(kube));
    let (recorder, writing) = EventRecorder::start(&client, Arc::new(SystemClock), token);
    for _ in 0..5_000 {
        recorder.record(
            "shop",
            about("busy"),
            EventType::Warning,
            "Closed",
            "the door is locked",
        );
    }
    assert_eq!(recorder.dropped(), 0);
    for number in 0..2_000 {
        recorder.record(
            "shop",
            about(&format!("c{number}")),
            EventType::Normal,
            "Open",
            "come in",
        );
    }
    let dropped = recorder.dropped();
    assert!((1_000..=1_001).contains(&dropped), "{dropped}");
    gate.send_replace(true);
    let api: Api<Event> = Api::namespaced(cluster.kube(), "default");
    let all = async {
        loop {
            let events = api.list(&Default::default()).await?.items;
            let about = |event: &&Event| event.involved_object.name.as_deref() == Some("busy");
            let busy: Vec<&Event> = events.iter().filter(about).collect();
            let counted: i32 = busy.iter().filter_map(|event| event.count).sum();
            if events.len() >= 1_000 && counted == 5_000 {
                assert_eq!(busy.len(), 1);
                return Ok::<_, kube::Error>(());
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all)
        .await
        .expect("they are written")?;
    stop.stop();
    writing.await.expect("it does not panic");
    Ok(())
}
