//! A foreign client: plain kube with its typed and dynamic APIs, its discovery and kube-runtime's watcher, over HTTPS
//! and in process. Nothing of kubewright is on the client's side.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{Who, client_config, https_client, listening, soon};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, CustomResource, CustomResourceExt as _, Discovery, ResourceExt};
use kubewright_cluster::{Cluster, Controllers};
use rustls::HandshakeKind;
use rustls::pki_types::ServerName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Runs a scenario through both doors, each time with a cluster of its own.
async fn check(controllers: Controllers, scenario: impl AsyncFn(Client)) {
    for https in [false, true] {
        let builder = Cluster::builder().controllers(controllers.clone());
        let (cluster, listening) = listening(builder).await;
        let client = if https {
            https_client(&listening).await
        } else {
            cluster.client()
        };
        soon(
            if https {
                "the scenario over HTTPS"
            } else {
                "the scenario in process"
            },
            scenario(client),
        )
        .await;
        let stopping = Instant::now();
        cluster.stop().await;
        assert!(
            stopping.elapsed() < Duration::from_secs(5),
            "stopping took {:?}",
            stopping.elapsed()
        );
    }
}

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema, PartialEq)]
#[kube(
    group = "plain.example.com",
    version = "v1",
    kind = "Ship",
    namespaced,
    status = "ShipStatus",
    shortname = "sh"
)]
#[kube(scale(spec_replicas_path = ".spec.sails", status_replicas_path = ".status.sails"))]
#[kube(printcolumn(name = "Sails", type_ = "integer", json_path = ".spec.sails"))]
struct ShipSpec {
    #[schemars(range(min = 1, max = 9))]
    sails: i32,
    #[serde(default = "harbour")]
    port: String,
}

fn harbour() -> String {
    "home".to_owned()
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, PartialEq)]
struct ShipStatus {
    sails: i32,
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object.metadata.labels = Some(BTreeMap::from([("value".to_owned(), value.to_owned())]));
    object.data = Some(BTreeMap::from([("value".to_owned(), value.to_owned())]));
    object
}

/// The code and reason of an API error.
fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> (u16, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.reason),
        other => panic!("not an API error: {other:?}"),
    }
}

#[tokio::test]
async fn the_typed_api() {
    check(Controllers::None, async |client| {
        let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let created = api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
        assert!(
            created.uid().is_some() && created.resource_version().is_some() && created.creation_timestamp().is_some()
        );
        assert_eq!(api.get("a").await.unwrap(), created);
        assert_eq!(
            refusal(api.create(&PostParams::default(), &config_map("a", "1")).await),
            (409, "AlreadyExists".to_owned())
        );

        let mut changed = created.clone();
        changed.data.as_mut().unwrap().insert("more".to_owned(), "2".to_owned());
        let changed = api.replace("a", &PostParams::default(), &changed).await.unwrap();
        assert_ne!(changed.resource_version(), created.resource_version());
        assert_eq!(
            refusal(api.replace("a", &PostParams::default(), &created).await),
            (409, "Conflict".to_owned())
        );

        for (what, patch) in [
            ("merge", Patch::Merge(json!({"data": {"more": null, "merge": "yes"}}))),
            (
                "strategic",
                Patch::Strategic(json!({"metadata": {"labels": {"strategic": "yes"}}})),
            ),
        ] {
            let patched = api
                .patch("a", &PatchParams::default(), &patch)
                .await
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(patched.uid(), created.uid(), "{what}");
        }
        let patched = api.get("a").await.unwrap();
        assert_eq!(
            patched.data.unwrap(),
            BTreeMap::from([
                ("merge".to_owned(), "yes".to_owned()),
                ("value".to_owned(), "1".to_owned())
            ])
        );
        assert_eq!(patched.metadata.labels.unwrap()["strategic"], "yes");

        for name in ["b", "c", "d"] {
            api.create(&PostParams::default(), &config_map(name, "2"))
                .await
                .unwrap();
        }
        let names = |list: Vec<ConfigMap>| list.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
        assert_eq!(
            names(api.list(&ListParams::default().labels("value=2")).await.unwrap().items),
            ["b", "c", "d"]
        );
        assert_eq!(
            names(
                api.list(&ListParams::default().fields("metadata.name=c"))
                    .await
                    .unwrap()
                    .items
            ),
            ["c"]
        );
        let first = api
            .list(&ListParams::default().labels("value in (1,2)").limit(3))
            .await
            .unwrap();
        let token = first.metadata.continue_.clone().expect("there is more");
        let second = api
            .list(
                &ListParams::default()
                    .labels("value in (1,2)")
                    .limit(3)
                    .continue_token(&token),
            )
            .await
            .unwrap();
        assert_eq!(
            (names(first.items), names(second.items)),
            (vec!["a".into(), "b".into(), "c".into()], vec!["d".into()])
        );
        let metadata = api
            .list_metadata(&ListParams::default().labels("value=1"))
            .await
            .unwrap();
        assert_eq!(metadata.items[0].metadata.uid, created.uid());

        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        api.create(&dry, &config_map("dry", "1")).await.unwrap();
        assert!(api.get_opt("dry").await.unwrap().is_none());
        api.delete("a", &DeleteParams::default()).await.unwrap();
        assert_eq!(refusal(api.get("a").await), (404, "NotFound".to_owned()));
        api.delete_collection(&DeleteParams::default(), &ListParams::default().labels("value=2"))
            .await
            .unwrap();
        assert!(
            api.list(&ListParams::default().labels("value=2"))
                .await
                .unwrap()
                .items
                .is_empty()
        );
        assert!(Api::<Namespace>::all(client).get("kube-system").await.is_ok());
    })
    .await;
}

/// Longer than one piece of a response.
#[tokio::test]
async fn a_list_of_a_megabyte() {
    check(Controllers::None, async |client| {
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        for index in 0..16 {
            let mut map = config_map(&format!("large-{index:02}"), "large");
            map.data = Some(BTreeMap::from([("value".to_owned(), "x".repeat(64 * 1024))]));
            maps.create(&PostParams::default(), &map).await.expect("created");
        }
        let listed = maps.list(&ListParams::default()).await.expect("a list");
        let names: Vec<String> = listed.items.iter().map(ResourceExt::name_any).collect();
        let expected: Vec<String> = (0..16).map(|index| format!("large-{index:02}")).collect();
        assert_eq!(names, expected);
        let value = |map: &ConfigMap| map.data.iter().flatten().map(|(_, value)| value.len()).sum::<usize>();
        assert!(
            listed.items.iter().all(|map| value(map) == 64 * 1024),
            "every value is whole"
        );
    })
    .await;
}

#[tokio::test]
async fn the_dynamic_api_and_discovery() {
    check(Controllers::None, async |client| {
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        crds.create(&PostParams::default(), &Ship::crd()).await.unwrap();
        await_condition(crds, "ships.plain.example.com", conditions::is_crd_established())
            .await
            .unwrap();

        let discovery = Discovery::new(client.clone()).run_aggregated().await.unwrap();
        let group = discovery
            .get("plain.example.com")
            .expect("the group of the CRD is discovered");
        let (resource, capabilities) = group.recommended_kind("Ship").expect("its kind as well");
        assert_eq!(
            (resource.plural.as_str(), resource.api_version.as_str()),
            ("ships", "plain.example.com/v1")
        );
        assert!(capabilities.supports_operation(kube::discovery::verbs::WATCH));
        let legacy = Discovery::new(client.clone())
            .filter(&["plain.example.com", "apps"])
            .run()
            .await
            .unwrap();
        assert!(
            legacy
                .get("apps")
                .is_some_and(|apps| apps.recommended_kind("Deployment").is_some())
        );

        let api: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
        let ship = DynamicObject::new("victory", &ApiResource::erase::<Ship>(&())).data(json!({"spec": {"sails": 3}}));
        let created = api.create(&PostParams::default(), &ship).await.unwrap();
        assert_eq!(
            created.data["spec"],
            json!({"sails": 3, "port": "home"}),
            "defaults are filled in"
        );
        assert_eq!(created.metadata.generation, Some(1));
        let refused = DynamicObject::new("wreck", &resource).data(json!({"spec": {"sails": 0}}));
        assert_eq!(
            refusal(api.create(&PostParams::default(), &refused).await),
            (422, "Invalid".to_owned())
        );

        let status = json!({"status": {"sails": 2}, "spec": {"sails": 9}});
        let patched = api
            .patch_status("victory", &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
        assert_eq!(
            (&patched.data["spec"]["sails"], &patched.data["status"]["sails"]),
            (&json!(3), &json!(2))
        );
        let scale = api
            .patch_scale(
                "victory",
                &PatchParams::default(),
                &Patch::Merge(json!({"spec": {"replicas": 5}})),
            )
            .await
            .unwrap();
        assert_eq!(scale.spec.unwrap().replicas, Some(5));

        let typed: Api<Ship> = Api::default_namespaced(client);
        let ship = typed.get("victory").await.unwrap();
        assert_eq!(
            (ship.spec.sails, ship.status, ship.metadata.generation),
            (5, Some(ShipStatus { sails: 2 }), Some(2))
        );
    })
    .await;
}

#[tokio::test]
async fn the_watch_api() {
    check(Controllers::None, async |client| {
        let api: Api<ConfigMap> = Api::default_namespaced(client);
        let before = api
            .list(&ListParams::default())
            .await
            .unwrap()
            .metadata
            .resource_version
            .unwrap();
        let mut events = api
            .watch(&WatchParams::default().labels("value=1"), &before)
            .await
            .unwrap()
            .boxed();
        api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
        api.create(&PostParams::default(), &config_map("unseen", "0"))
            .await
            .unwrap();
        let patch =
            |value: &str| Patch::Merge(json!({"metadata": {"labels": {"value": value}}, "data": {"value": value}}));
        api.patch(
            "a",
            &PatchParams::default(),
            &Patch::Merge(json!({"data": {"value": "x"}})),
        )
        .await
        .unwrap();
        api.patch("unseen", &PatchParams::default(), &patch("1")).await.unwrap();
        api.patch("a", &PatchParams::default(), &patch("0")).await.unwrap();
        api.delete("unseen", &DeleteParams::default()).await.unwrap();
        let mut seen = Vec::new();
        while seen.len() < 5 {
            seen.push(match events.try_next().await.unwrap().expect("the watch goes on") {
                WatchEvent::Added(object) => format!("added {}", object.name_any()),
                WatchEvent::Modified(object) => format!("modified {}", object.name_any()),
                WatchEvent::Deleted(object) => format!("deleted {}", object.name_any()),
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(
            seen,
            ["added a", "modified a", "added unseen", "deleted a", "deleted unseen"],
            "a selector turns changes into arrivals and departures"
        );

        // From the beginning, with the state first and a bookmark where it ends.
        let mut events = api
            .watch(&WatchParams::default().initial_events(), "0")
            .await
            .unwrap()
            .boxed();
        let mut initial = Vec::new();
        loop {
            match events.try_next().await.unwrap().expect("the watch goes on") {
                WatchEvent::Added(object) => initial.push(object.name_any()),
                WatchEvent::Bookmark(bookmark) => {
                    assert_eq!(bookmark.metadata.annotations["k8s.io/initial-events-end"], "true");
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(initial.iter().filter(|name| *name == "a").count(), 1, "{initial:?}");

        // A time limit ends a watch as a stream ends.
        let short = api.watch(&WatchParams::default().timeout(1), &before).await.unwrap();
        let all: Vec<_> = short.try_collect().await.unwrap();
        assert!(all.len() >= 6, "{} events", all.len());
    })
    .await;
}

#[tokio::test]
async fn the_watcher_of_kube_runtime() {
    for streaming in [false, true] {
        check(Controllers::None, async |client| {
            let api: Api<ConfigMap> = Api::default_namespaced(client);
            for index in 0..7 {
                api.create(&PostParams::default(), &config_map(&format!("old-{index}"), "1"))
                    .await
                    .unwrap();
            }
            let config = watcher::Config::default().labels("value=1");
            let config = if streaming {
                config.streaming_lists()
            } else {
                config.page_size(3)
            };
            let mut events = watcher(api.clone(), config).boxed();
            let mut initial = Vec::new();
            loop {
                match events.try_next().await.unwrap().expect("a watcher has no end") {
                    watcher::Event::Init => {}
                    watcher::Event::InitApply(object) => initial.push(object.name_any()),
                    watcher::Event::InitDone => break,
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(initial, (0..7).map(|index| format!("old-{index}")).collect::<Vec<_>>());
            api.create(&PostParams::default(), &config_map("new", "1"))
                .await
                .unwrap();
            api.delete("old-0", &DeleteParams::default()).await.unwrap();
            let next = async |events: &mut futures::stream::BoxStream<'_, _>| {
                events.try_next().await.unwrap().expect("a watcher has no end")
            };
            assert!(matches!(next(&mut events).await, watcher::Event::Apply(object) if object.name_any() == "new"));
            assert!(matches!(next(&mut events).await, watcher::Event::Delete(object) if object.name_any() == "old-0"));
        })
        .await;
    }
}

#[tokio::test]
async fn a_deployment_runs_and_goes() {
    check(Controllers::All, async |client| {
        let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "nginx:1"}]}},
            },
        }))
        .unwrap();
        deployments.create(&PostParams::default(), &deployment).await.unwrap();
        let ready = |replicas: i32| {
            move |deployment: Option<&Deployment>| {
                let status = deployment.and_then(|deployment| deployment.status.as_ref());
                status.is_some_and(|status| status.ready_replicas == Some(replicas) && status.replicas == Some(replicas))
            }
        };
        await_condition(deployments.clone(), "web", ready(2)).await.unwrap();
        await_condition(deployments.clone(), "web", conditions::is_deployment_completed()).await.unwrap();
        deployments.patch_scale("web", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 3}}))).await.unwrap();
        await_condition(deployments.clone(), "web", ready(3)).await.unwrap();

        // Its dependents go with it.
        let sets: Api<ReplicaSet> = Api::default_namespaced(client.clone());
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let set = sets.list(&ListParams::default().labels("app=web")).await.unwrap().items.pop().expect("a replica set");
        let pod = pods.list(&ListParams::default().labels("app=web")).await.unwrap().items.pop().expect("a pod");
        deployments.delete("web", &DeleteParams::background()).await.unwrap();
        await_condition(sets, &set.name_any(), conditions::is_deleted(&set.uid().unwrap())).await.unwrap();
        await_condition(pods, &pod.name_any(), conditions::is_deleted(&pod.uid().unwrap())).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_namespace_comes_and_goes() {
    check(Controllers::All, async |client| {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some("team".to_owned());
        let created = namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "team");
        await_condition(accounts, "default", conditions::is_created())
            .await
            .unwrap();
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), "team");
        let kept = api
            .create(&PostParams::default(), &config_map("kept", "1"))
            .await
            .unwrap();
        namespaces.delete("team", &DeleteParams::default()).await.unwrap();
        await_condition(namespaces, "team", conditions::is_deleted(&created.uid().unwrap()))
            .await
            .unwrap();
        assert!(
            api.get_opt("kept").await.unwrap().is_none(),
            "{:?} outlived its namespace",
            kept.name_any()
        );
    })
    .await;
}

#[tokio::test]
async fn a_session_is_resumed_and_remembers_who_it_was() {
    let (cluster, listening) = listening(Cluster::builder().controllers(Controllers::None)).await;
    let config = Arc::new(client_config(&listening, Who::Admin));
    for expected in [HandshakeKind::Full, HandshakeKind::Resumed] {
        let stream = tokio::net::TcpStream::connect(listening.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = tokio_rustls::TlsConnector::from(config.clone())
            .connect(name, stream)
            .await
            .unwrap();
        assert_eq!(stream.get_ref().1.handshake_kind(), Some(expected));
        // The ticket comes before the first request: it acknowledges the handshake, which a client with Nagle's
        // algorithm waits for.
        soon("the ticket", stream.get_ref().0.readable()).await.unwrap();
        let request = b"GET /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        soon("the answer", stream.read_to_string(&mut answer)).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }
    cluster.stop().await;
}
