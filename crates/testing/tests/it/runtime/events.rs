//! Events as `events.k8s.io` has them: their series, also where occurrences are too many, and events that are recorded while
//! the API server does not answer or refuses them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, ObjectReference, Pod};
use k8s_openapi::api::events::v1::Event;
use kubewright::kube::client::Body;
use kubewright::kube::{self, Api};
use kubewright::{
    Action, Cache, Client, Context, Controller, EventNote, EventRecorder, EventType, Reconciler, Stop, SystemClock,
};
use kubewright_testing::{Cluster, Controllers, Result, TestCluster};
use tokio::sync::watch;

use super::server::{Fault, Server, eventually, with_manager};

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

/// How often it has occurred.
fn times(event: &Event) -> i32 {
    event.series.as_ref().map_or(1, |series| series.count)
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
            let about =
                |event: &&Event| event.regarding.as_ref().and_then(|about| about.name.as_deref()) == Some("busy");
            let busy: Vec<&Event> = events.iter().filter(about).collect();
            let counted: i32 = busy.iter().map(|event| times(event)).sum();
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

/// A recorder on a cluster, which counts the requests for events.
struct Recording {
    cluster: TestCluster,
    recorder: EventRecorder,
    requests: Arc<AtomicUsize>,
    stop: kubewright::StopSource,
    writing: tokio::task::JoinHandle<()>,
}

impl Recording {
    /// In virtual time.
    async fn start() -> Result<Recording> {
        Recording::without("/forbids/nothing").await
    }

    /// With a role that has no rights below a path.
    async fn without(forbidden: &'static str) -> Result<Recording> {
        let start = "2026-01-01T00:00:00Z".parse().expect("a time");
        let cluster = TestCluster::in_virtual_time(start, Cluster::builder().controllers(Controllers::None)).await?;
        let (requests, kube) = (Arc::new(AtomicUsize::new(0)), cluster.kube());
        let counted = requests.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            counted.fetch_add(1, Ordering::SeqCst);
            let kube = kube.clone();
            async move {
                if !request.uri().path().starts_with(forbidden) {
                    return kube.send(request).await;
                }
                let status =
                    br#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}"#;
                let answer = http::Response::builder().status(403);
                Ok(answer.body(Body::from(status.to_vec())).expect("an answer"))
            }
        });
        let kube = kube::Client::new(service, "default");
        let (stop, token) = Stop::pair();
        let client = Client::new(kube.clone(), Cache::new(kube));
        let (recorder, writing) = EventRecorder::start(&client, Arc::new(SystemClock), token);
        Ok(Recording {
            cluster,
            recorder,
            requests,
            stop,
            writing,
        })
    }

    async fn events(&self) -> Result<Vec<Event>> {
        let api: Api<Event> = Api::namespaced(self.cluster.kube(), "default");
        Ok(api.list(&Default::default()).await?.items)
    }

    /// Lets everything be written that is due.
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_secs(5)).await;
    }

    async fn stop(self) {
        self.stop.stop();
        self.writing.await.expect("it does not panic");
    }
}

/// What client-go's recorder fills in, and a series from the second occurrence on, in one Event.
async fn equal_events_are_a_series(recording: Recording) -> Result<()> {
    let note = || {
        let pod = {
            let mut pod = Pod::default();
            pod.metadata.name = Some("p".to_owned());
            pod
        };
        EventNote::warning("FailedMount", "its volume is elsewhere")
            .action("Mounting")
            .related(&pod)
    };
    for count in 1..=3 {
        recording
            .recorder
            .record_note("shop.example.com/door", about("a"), note());
        recording.settle().await;
        let events = recording.events().await?;
        let [event] = events.as_slice() else {
            panic!("{events:?}")
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        assert_eq!(
            [
                &event.type_,
                &event.reason,
                &event.action,
                &event.note,
                &event.reporting_controller
            ]
            .map(text),
            [
                "Warning",
                "FailedMount",
                "Mounting",
                "its volume is elsewhere",
                "shop.example.com/door"
            ]
            .map(str::to_owned)
        );
        assert!(
            text(&event.reporting_instance).starts_with("shop.example.com/door-"),
            "{event:?}"
        );
        assert_eq!(
            event.related.as_ref().and_then(|related| related.name.as_deref()),
            Some("p")
        );
        assert!(event.event_time.is_some() && event.deprecated_count.is_none());
        assert_eq!((times(event), event.series.is_some()), (count, count > 1));
    }
    // Another action is another event; without one the reason stands for it.
    recording
        .recorder
        .record_note("shop.example.com/door", about("a"), note().action("Unmounting"));
    recording
        .recorder
        .record("shop", about("a"), EventType::Normal, "Opened", "come in");
    recording.settle().await;
    let actions: Vec<_> = recording
        .events()
        .await?
        .into_iter()
        .filter_map(|event| event.action)
        .collect();
    assert_eq!(
        (actions.len(), actions.contains(&"Opened".to_owned())),
        (3, true),
        "{actions:?}"
    );
    recording.stop().await;
    Ok(())
}

#[tokio::test]
async fn e_equal_events_are_a_series() -> Result<()> {
    equal_events_are_a_series(Recording::start().await?).await
}

/// Roles that were written for client-go's older recorder have no rights on `events.k8s.io`.
#[tokio::test]
async fn e_a_role_may_name_the_events_of_the_core_alone() -> Result<()> {
    equal_events_are_a_series(Recording::without("/apis/events.k8s.io/").await?).await
}

/// E2, E9: one object has few writes, and no occurrence is lost from the count.
#[tokio::test]
async fn e9_occurrences_that_are_too_many_are_counted_later() -> Result<()> {
    const OCCURRENCES: i32 = 100;
    let recording = Recording::start().await?;
    for _ in 0..OCCURRENCES {
        recording.recorder.record(
            "shop",
            about("busy"),
            EventType::Warning,
            "Closed",
            "the door is locked",
        );
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let written = recording.requests.load(Ordering::SeqCst);
    assert!((25..=26).contains(&written), "{written}");
    tokio::time::sleep(Duration::from_secs(600)).await;
    let events = recording.events().await?;
    assert_eq!((events.len(), times(&events[0])), (1, OCCURRENCES), "{events:?}");
    recording.stop().await;
    Ok(())
}

/// E8: texts that are too long and names that are none are no reason to lose an event.
#[tokio::test]
async fn e8_what_does_not_fit_is_made_to_fit() -> Result<()> {
    let recording = Recording::start().await?;
    let long = "é".repeat(2_000);
    for (component, name, reason) in [
        ("the door", "system:node:Ä", "Opened"),
        (&*long, &*"a".repeat(253), &*long),
        ("", "a", ""),
    ] {
        recording
            .recorder
            .record(component, about(name), EventType::Normal, reason, &*long);
    }
    recording.settle().await;
    let events = recording.events().await?;
    assert_eq!(events.len(), 3, "{events:?}");
    recording.stop().await;
    Ok(())
}

/// E4: an event whose answer was lost is one event, and one whose name is taken gets another.
#[tokio::test]
async fn e4_an_event_is_written_once() -> Result<()> {
    for (fault, requests) in [
        (Fault::Lost(504, "Timeout"), 2),
        (Fault::Refused(409, "AlreadyExists"), 2),
    ] {
        let server = Server::new().await;
        let times = AtomicUsize::new(0);
        server.fault(move |seen| {
            let first = seen.verb == "POST" && times.fetch_add(1, Ordering::SeqCst) == 0;
            first.then_some(fault)
        });
        let (stop, token) = Stop::pair();
        let (recorder, writing) = EventRecorder::start(&server.client(), Arc::new(SystemClock), token);
        recorder.record("test", about("x"), EventType::Normal, "Tested", "once");
        eventually("it is tried again", || server.seen("POST", "/events").len() == requests).await;
        stop.stop();
        writing.await.expect("no panic");
        assert_eq!(server.objects::<Event>().await.len(), 1, "{fault:?}");
        tokio::time::resume(); // the next server has its own time
    }
    Ok(())
}

/// Says something about a namespace.
struct Talker;

impl Reconciler for Talker {
    type Object = Namespace;

    async fn reconcile(&self, namespace: Arc<Namespace>, ctx: Context) -> kubewright::Result<Action> {
        for _ in 0..3 {
            ctx.event(&*namespace, EventType::Warning, "Odd", "it is odd");
        }
        Ok(Action::await_change())
    }
}

/// E3: what a reconciler says of an object without a namespace is in `default`, counted, and in its controller's name.
#[tokio::test]
async fn e3_events_of_cluster_scoped_objects_go_to_default() -> Result<()> {
    let server = Server::new().await;
    let talker = Controller::of(Talker).named("talker");
    with_manager(server.manager().add(talker), tokio::time::sleep(Duration::from_secs(5))).await;
    let events = server.objects::<Event>().await;
    let about_a = |event: &&Event| event.regarding.as_ref().and_then(|about| about.name.as_deref()) == Some("a");
    let about: Vec<&Event> = events.iter().filter(about_a).collect();
    let [odd] = about.as_slice() else { panic!("{events:?}") };
    let regarding = odd.regarding.clone().unwrap_or_default();
    assert_eq!(
        (regarding.kind.as_deref(), regarding.api_version.as_deref()),
        (Some("Namespace"), Some("v1"))
    );
    assert_eq!((odd.metadata.namespace.as_deref(), times(odd)), (Some("default"), 3));
    assert_eq!(odd.reporting_controller.as_deref(), Some("talker"));
    assert_eq!(odd.type_.as_deref(), Some("Warning"));
    Ok(())
}
