//! A cluster that is killed, again and again, while clients write to it and watch it: each answer that a client got is
//! true after the restart.

// A test fails by panicking, and the process under test says on standard output where it listens.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::soon;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, ResourceExt as _};
use kubewright_cluster::{Cluster, Controllers};
use tokio::sync::{Mutex, mpsc};

/// Says where the process under test listens.
const SERVES: &str = "KUBEWRIGHT_TEST_SERVES";
const WRITERS: usize = 8;
const KEYS: u64 = 6;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the process that the other test starts and kills"]
async fn server_process() {
    let folder = std::env::var_os(SERVES).unwrap();
    let cluster = Cluster::builder()
        .controllers(Controllers::None)
        .data_dir(&folder)
        .start()
        .await
        .unwrap();
    let listening = cluster.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let path = Path::new(&folder).with_extension("kubeconfig");
    if !path.exists() {
        kubewright_cluster::kubeconfig::write(&path, &listening.kubeconfig).unwrap();
    }
    println!("\nserves {}", listening.address);
    std::future::pending::<()>().await;
}

/// The folder stays what it was at the start, wherever the link leads meanwhile.
#[tokio::test]
async fn a_link_is_followed_once() {
    let outer = tempfile::tempdir().unwrap();
    let at = |name: &str| outer.path().join(name);
    let lead = |to: &str| {
        let _ = std::fs::remove_file(at("link"));
        std::os::unix::fs::symlink(at(to), at("link")).unwrap();
    };
    let start = async |name: &str| {
        let cluster = Cluster::builder().controllers(Controllers::None).data_dir(at(name));
        let cluster = cluster.start().await.unwrap();
        let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
        (cluster, maps)
    };
    let create = async |maps: &Api<ConfigMap>, name: &str| {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.to_owned());
        maps.create(&PostParams::default(), &map).await.unwrap();
    };
    for name in ["first", "second"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    lead("first");
    let (cluster, maps) = start("link").await;
    create(&maps, "before").await;
    lead("second");
    create(&maps, "after").await;
    cluster.stop().await;
    let second = std::fs::read_dir(at("second")).unwrap();
    assert_eq!(second.count(), 0, "nothing is written there");
    let (cluster, maps) = start("first").await;
    for name in ["before", "after"] {
        assert!(maps.get_opt(name).await.unwrap().is_some(), "{name}");
    }
    cluster.stop().await;
}

/// A server in a process of its own.
struct Server {
    process: Child,
    address: String,
    started: Duration,
}

impl Server {
    fn start(folder: &Path) -> Server {
        let asked = Instant::now();
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "durable::server_process", "--nocapture"])
            .env(SERVES, folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = lines
            .map(Result::unwrap)
            .find_map(|line| line.strip_prefix("serves ").map(str::to_owned))
            .expect("the server says where it listens");
        Server {
            process,
            address,
            started: asked.elapsed(),
        }
    }

    /// The kubeconfig of the first start, at the address of this one: credentials outlive the process, ports need not.
    async fn client(&self, folder: &Path) -> Client {
        let text = std::fs::read_to_string(folder.with_extension("kubeconfig")).unwrap();
        let mut kubeconfig = Kubeconfig::from_yaml(&text).unwrap();
        for cluster in &mut kubeconfig.clusters {
            cluster.cluster.as_mut().unwrap().server = Some(format!("https://{}", self.address));
        }
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .unwrap();
        Client::try_from(config).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The record of one object: the content that was reported last, its revision, and a change without an answer.
#[derive(Clone, Debug, Default)]
struct Known {
    content: Option<u64>,
    revision: u64,
    /// The content that it may have instead.
    open: Option<Option<u64>>,
}

/// How long a writer waits. Its request was seen to hang in the client once, when the server had long been killed: it
/// is the client's part to give up then.
const PATIENCE: Duration = Duration::from_secs(20);

type Model = Arc<Mutex<BTreeMap<String, Known>>>;

fn map(name: &str, content: u64) -> ConfigMap {
    let data = BTreeMap::from([("n".to_owned(), content.to_string())]);
    ConfigMap {
        metadata: kube::api::ObjectMeta {
            name: Some(name.to_owned()),
            ..Default::default()
        },
        data: Some(data),
        ..Default::default()
    }
}

fn content(map: &ConfigMap) -> u64 {
    map.data.as_ref().unwrap()["n"].parse().unwrap()
}

fn revision(map: &ConfigMap) -> u64 {
    map.resource_version().unwrap().parse().unwrap()
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// A refusal is a failure of the test; a missing answer is its subject.
fn lost(error: kube::Error, killed: &AtomicBool) {
    let refused = matches!(error, kube::Error::Api(_));
    assert!(!refused && killed.load(Ordering::SeqCst), "{error:?}");
}

/// Writes to keys of its own until the server is gone.
async fn write(
    api: Api<ConfigMap>,
    model: Model,
    me: usize,
    seed: u64,
    told: mpsc::UnboundedSender<()>,
    killed: Arc<AtomicBool>,
) {
    let mut random = Random(seed);
    loop {
        let name = format!("w{me}-{}", random.below(KEYS));
        let next = random.below(u64::MAX);
        let present = model.lock().await.get(&name).cloned().unwrap_or_default().content;
        let wanted = match present {
            Some(_) if next.is_multiple_of(4) => None,
            _ => Some(next),
        };
        model.lock().await.entry(name.clone()).or_default().open = Some(wanted);
        let asked = async {
            match (present, wanted) {
                (None, Some(next)) => api.create(&PostParams::default(), &map(&name, next)).await.map(Some),
                (Some(_), Some(next)) => api
                    .replace(&name, &PostParams::default(), &map(&name, next))
                    .await
                    .map(Some),
                _ => api.delete(&name, &DeleteParams::default()).await.map(|_| None),
            }
        };
        let answer = match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return lost(error, &killed),
            Err(_) => return assert!(killed.load(Ordering::SeqCst), "no answer within {PATIENCE:?}"),
        };
        let mut model = model.lock().await;
        let known = model.entry(name).or_default();
        (known.content, known.open) = (wanted, None);
        if let Some(map) = answer {
            assert!(revision(&map) > known.revision);
            known.revision = revision(&map);
        }
        drop(model);
        if told.send(()).is_err() {
            return;
        }
    }
}

/// Notes the events of a watch until the server is gone: key, content, revision.
async fn watch(api: Api<ConfigMap>, from: u64) -> Vec<(String, Option<u64>, u64)> {
    let mut seen = Vec::new();
    let Ok(stream) = api.watch(&WatchParams::default(), &from.to_string()).await else {
        return seen;
    };
    let mut stream = std::pin::pin!(stream);
    let mut last = from;
    while let Some(Ok(event)) = stream.next().await {
        let (map, deleted) = match event {
            WatchEvent::Added(map) | WatchEvent::Modified(map) => (map, false),
            WatchEvent::Deleted(map) => (map, true),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => panic!("the watch ended: {status:?}"),
        };
        assert!(revision(&map) > last, "events come in order, once each");
        last = revision(&map);
        seen.push((map.name_any(), (!deleted).then(|| content(&map)), last));
    }
    seen
}

/// The events from a revision before a restart up to now, which are those that another watch has `seen` from there, and
/// then those that it missed.
async fn resumed(api: &Api<ConfigMap>, from: u64, seen: &[(String, Option<u64>, u64)], round: usize) {
    const LAST: &str = "last";
    api.create(&PostParams::default(), &map(LAST, 0)).await.unwrap();
    let mut stream = Box::pin(api.watch(&WatchParams::default(), &from.to_string()).await.unwrap());
    let mut events = Vec::new();
    loop {
        match soon("an event", stream.next()).await.expect("the watch goes on") {
            Ok(WatchEvent::Added(map)) if map.name_any() == LAST => break,
            Ok(WatchEvent::Added(map) | WatchEvent::Modified(map)) => {
                events.push((map.name_any(), Some(content(&map)), revision(&map)));
            }
            Ok(WatchEvent::Deleted(map)) => events.push((map.name_any(), None, revision(&map))),
            Ok(WatchEvent::Bookmark(_)) => {}
            other => panic!("round {round}: no watch from {from}, before the restart: {other:?}"),
        }
    }
    assert!(
        events.is_sorted_by(|one, next| one.2 < next.2),
        "round {round}: {events:?}"
    );
    assert!(events.starts_with(seen), "round {round}: {seen:?}, then {events:?}");
    api.delete(LAST, &DeleteParams::default()).await.unwrap();
    let latest: BTreeMap<String, Option<u64>> = events.into_iter().map(|(name, content, _)| (name, content)).collect();
    let list = api.list(&ListParams::default()).await.unwrap();
    let present: BTreeMap<String, u64> = list.items.iter().map(|map| (map.name_any(), content(map))).collect();
    for (name, content) in latest {
        assert_eq!(present.get(&name).copied(), content, "round {round}: {name}");
    }
}

/// Compares the stored objects with the reported ones, and takes over the stored ones.
async fn compare(
    api: &Api<ConfigMap>,
    model: &Model,
    seen: Vec<(String, Option<u64>, u64)>,
    highest: u64,
    round: usize,
) -> u64 {
    let mut model = model.lock().await;
    for (name, content, revision) in seen {
        let known = model.entry(name).or_default();
        if revision > known.revision {
            known.revision = revision;
            if known.open == Some(content) {
                // A watch has reported the change as done.
                known.open = None;
            }
            if known.open.is_none() {
                known.content = content;
            }
        }
    }
    let list = api.list(&ListParams::default()).await.unwrap();
    let now: u64 = list.metadata.resource_version.as_ref().unwrap().parse().unwrap();
    let told = model
        .values()
        .map(|known| known.revision)
        .max()
        .unwrap_or(0)
        .max(highest);
    assert!(now >= told, "round {round}: the revision is {now}, and {told} was told");
    let present: BTreeMap<String, &ConfigMap> = list.items.iter().map(|map| (map.name_any(), map)).collect();
    for name in present.keys() {
        assert!(model.contains_key(name), "round {round}: nobody has asked for {name}");
    }
    for (name, known) in model.iter_mut() {
        let found = present.get(name);
        let content = found.map(|map| content(map));
        let expected = content == known.content || known.open == Some(content);
        assert!(expected, "round {round}: {name} is {content:?}, known is {known:?}");
        if let Some(map) = found {
            if known.open.is_none() || (content == known.content && known.open != Some(content)) {
                assert_eq!(
                    revision(map),
                    known.revision,
                    "round {round}: {name} was written by nobody"
                );
            }
            known.revision = revision(map);
        }
        (known.content, known.open) = (content, None);
    }
    now
}

#[tokio::test]
async fn a_start_with_data_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        Cluster::builder()
            .controllers(Controllers::None)
            .data_dir(folder.path())
            .start()
    };
    let first = start().await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(first.client(), "default");
    maps.create(&PostParams::default(), &map("a", 1)).await.unwrap();
    let revision = first.api().resource_version();
    assert!(start().await.is_err(), "the folder serves one cluster");
    first.stop().await;
    let second = start().await.unwrap();
    assert_eq!(second.api().resource_version(), revision);
    let maps: Api<ConfigMap> = Api::namespaced(second.client(), "default");
    assert_eq!(content(&maps.get("a").await.unwrap()), 1);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_is_true_after_every_kill() {
    let rounds = std::env::var("KUBEWRIGHT_TEST_KILLS").map_or(20, |rounds| rounds.parse().unwrap());
    let seed = std::env::var("KUBEWRIGHT_TEST_SEED").map_or(7, |seed| seed.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let model = Model::default();
    let mut random = Random(seed);
    let (mut highest, mut writes, mut slowest) = (0, 0, Duration::ZERO);
    let mut first_uid = None;
    for round in 0..=rounds {
        let server = Server::start(&data);
        slowest = slowest.max(server.started);
        let client = server.client(&data).await;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let uid = namespaces.get("default").await.unwrap().uid();
        assert_eq!(*first_uid.get_or_insert(uid.clone()), uid, "a start makes nothing anew");
        let api: Api<ConfigMap> = Api::namespaced(client, "default");
        highest = compare(&api, &model, Vec::new(), highest, round).await;
        if round == rounds {
            break;
        }
        let (told, mut heard) = mpsc::unbounded_channel();
        let killed = Arc::new(AtomicBool::new(false));
        let watching = tokio::spawn(watch(api.clone(), highest));
        let writers: Vec<_> = (0..WRITERS)
            .map(|me| {
                let seed = random.below(u64::MAX) + 1;
                tokio::spawn(write(
                    api.clone(),
                    model.clone(),
                    me,
                    seed,
                    told.clone(),
                    killed.clone(),
                ))
            })
            .collect();
        for _ in 0..=random.below(150) {
            soon("an answer", heard.recv())
                .await
                .expect("writers write until the end");
            writes += 1;
        }
        killed.store(true, Ordering::SeqCst);
        drop(server);
        for writer in writers {
            soon("the end of a writer", writer).await.unwrap();
        }
        let seen = soon("the end of the watch", watching).await.unwrap();
        let server = Server::start(&data);
        slowest = slowest.max(server.started);
        let client = server.client(&data).await;
        let api: Api<ConfigMap> = Api::namespaced(client, "default");
        let before = highest;
        highest = compare(&api, &model, seen.clone(), highest, round).await;
        resumed(&api, before, &seen, round).await;
        // Another kill, of a server that has just begun.
    }
    eprintln!(
        "{} kills, {writes} answered writes, slowest start {slowest:?}",
        2 * rounds
    );
}
