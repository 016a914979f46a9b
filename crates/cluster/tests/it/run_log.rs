//! What a cluster records: every request with its client and outcome, every commit in order, every event of a watch once.

use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kubewright_cluster::Cluster;
use kubewright_runlog::{Entry, Recorder, What};
use serde_json::json;

#[derive(Default)]
struct Kept(Mutex<Vec<Entry>>);

impl Recorder for Kept {
    fn record(&self, entry: Entry) {
        self.0.lock().expect("no panic").push(entry);
    }
}

impl Kept {
    /// What is told of this object, without times, clients and revisions.
    fn about(&self, object: &str) -> Vec<String> {
        let kept = self.0.lock().expect("no panic");
        let of_object = kept.iter().filter(|entry| entry.object() == object);
        let told = of_object.map(|entry| {
            let line = entry.line();
            let told = line.rsplit("  ").next().unwrap_or_default();
            told.split(" (").next().unwrap_or_default().to_owned()
        });
        told.collect()
    }
}

#[tokio::test]
async fn what_happens_is_recorded_once_and_in_order() -> Result<(), Box<dyn std::error::Error>> {
    let kept = Arc::new(Kept::default());
    let cluster = Cluster::builder()
        .controllers(kubewright_cluster::Controllers::None)
        .record(kept.clone())
        .start()
        .await?;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
    let listed = maps.list(&Default::default()).await?;
    let from = listed.metadata.resource_version.unwrap_or_default();
    let watched = WatchParams::default().fields("metadata.name=one");
    let mut watch = maps.watch(&watched, &from).await?.boxed();
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "one"}, "data": {"a": "1"}}))?;
    maps.create(&PostParams::default(), &map).await?;
    let again = maps.create(&PostParams::default(), &map).await;
    assert!(again.is_err(), "it is there already");
    let patch = |value: &str| Patch::Merge(json!({"data": {"a": value}}));
    for value in ["2", "2"] {
        maps.patch("one", &PatchParams::default(), &patch(value)).await?;
    }
    maps.delete("one", &DeleteParams::default()).await?;
    // The watch has delivered all before it.
    while let Some(event) = watch.next().await {
        if matches!(event?, WatchEvent::Deleted(_)) {
            break;
        }
    }

    let object = "configmaps default/one";
    let (heard, rest): (Vec<String>, Vec<String>) = kept.about(object).into_iter().partition(|it| it.contains("hears"));
    let expected = ["ADDED", "MODIFIED", "DELETED"].map(|kind| format!("hears {kind} {object}"));
    assert_eq!(heard, expected);
    let expected = [
        ("watch", " → 200"),
        ("ADDED", ""),
        ("create", " → 201"),
        ("MODIFIED", ""),
        ("patch", " → 200"),
        ("patch", " → 200, no change"),
        ("DELETED", ""),
        ("delete", " → 200"),
    ];
    assert_eq!(rest, expected.map(|(what, came)| format!("{what} {object}{came}")));

    let kept = kept.0.lock().expect("no panic");
    let revisions: Vec<u64> = kept
        .iter()
        .filter_map(|entry| match entry.what {
            What::Commit { revision, .. } => Some(revision),
            _ => None,
        })
        .collect();
    let sorted = revisions.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    assert!(sorted, "no revision is left out: {revisions:?}");
    let creates: Vec<&Entry> = kept
        .iter()
        .filter(|entry| entry.call.is("create", "configmaps"))
        .collect();
    let came: Vec<Option<u16>> = creates
        .iter()
        .map(|entry| match entry.what {
            What::Write { code, .. } => code,
            _ => None,
        })
        .collect();
    assert_eq!(came, [Some(201), Some(409)]);
    assert!(
        creates.iter().all(|entry| entry.user == "kubernetes-admin"),
        "{creates:?}"
    );
    let told = kept.iter().find_map(|entry| match &entry.what {
        What::Commit { kind, object, .. } if kind == "MODIFIED" && entry.call.name == "one" => Some(object.clone()),
        _ => None,
    });
    let told: serde_json::Value = serde_json::from_str(&told.unwrap_or_default())?;
    assert_eq!(told["data"]["a"], "2");
    Ok(())
}
