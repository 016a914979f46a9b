//! Requests under load: their cost for the server, how many a second, how soon a watcher sees a write, how much memory
//! is left.
//!
//! * *CPU per request*: time on a processor of all threads of the server's processes (Linux: `schedstat`), over the
//!   number of requests that one client sends one after another on one connection.
//! * *per second*: requests answered, by one client or by sixteen, each on a connection of its own.
//! * *create → event*: from the first byte of the request to the event on the connection of a watch.
//! * The client decodes nothing, and runs on the same two cores as the server.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::Spread;
use crate::client::{Call, Connection};
use crate::servers::Server;

/// Figures by name, in milliseconds, per second, or megabytes, as the name says.
pub(crate) type Figures = BTreeMap<&'static str, f64>;

pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const THINGS: &str = "/apis/bench.example.com/v1/namespaces/default/things";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const WATCHERS: usize = 500;
const LISTED: usize = 10_000;

/// How many requests each measurement sends, so that it lasts long enough to be believed.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) requests: usize,
    pub(crate) events: usize,
}

/// Everything that is measured on a server that keeps its objects in memory (the peer: without fsync).
pub(crate) async fn measure(server: &Server, scale: Scale) -> Result<Figures, String> {
    let mut figures = Figures::new();
    let mut connection = Connection::open(server.address).await?;
    figures.insert("definition to first object, ms", definition(&mut connection).await?);
    one_at_a_time(server, &mut connection, scale.requests, &mut figures).await?;
    let rate = creates(server, 16, scale.requests * 4, "many").await?;
    figures.insert("creates a second, 16 at a time", rate);
    figures.insert(
        "gets a second, 16 at a time",
        gets(server, 16, scale.requests * 8).await?,
    );
    latency(server, scale.events, &mut figures).await?;
    fan_out(server, scale.events / 4, &mut figures).await?;
    list(server, &mut figures).await?;
    figures.insert("memory after all that, MB", server.private_megabytes()?);
    Ok(figures)
}

/// Creates only, on a server that acknowledges after fsync.
pub(crate) async fn durable(server: &Server, scale: Scale) -> Result<Figures, String> {
    let mut figures = Figures::new();
    let one = creates(server, 1, scale.requests, "one").await?;
    figures.insert("durable creates a second, one at a time", one);
    let many = creates(server, 16, scale.requests * 4, "many").await?;
    figures.insert("durable creates a second, 16 at a time", many);
    Ok(figures)
}

/// Resident memory of so many objects of 2 KB, over the size of their JSON; ours only, the peer would take minutes.
pub(crate) async fn memory(server: &Server, objects: usize) -> Result<(f64, f64), String> {
    let padding = "x".repeat(1700);
    let mut connection = Connection::open(server.address).await?;
    for index in 0..objects {
        let body = config_map(&format!("big-{index}"), &padding);
        connection.call(&Call::post(CONFIG_MAPS, &body)).await?;
    }
    let json = connection.call(&Call::get(CONFIG_MAPS)).await?;
    // The memory for the answer is given back after a moment.
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok((server.private_megabytes()?, json as f64 / 1_048_576.0))
}

pub(crate) fn config_map(name: &str, text: &str) -> Vec<u8> {
    format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","labels":{{"app":"bench"}}}},"data":{{"key":"{text}"}}}}"#)
        .into_bytes()
}

fn thing(name: &str) -> Vec<u8> {
    format!(r#"{{"apiVersion":"bench.example.com/v1","kind":"Thing","metadata":{{"name":"{name}"}},"spec":{{"size":3,"image":"nginx:1.27","ports":[{{"name":"http","port":80}}]}}}}"#)
        .into_bytes()
}

/// From the creation of a definition to the first object of its kind that is accepted.
pub(crate) async fn definition(connection: &mut Connection) -> Result<f64, String> {
    let started = Instant::now();
    connection.call(&Call::post(DEFINITIONS, DEFINITION.as_bytes())).await?;
    loop {
        let (code, body) = connection.answer(&Call::post(THINGS, &thing("first"))).await?;
        match code {
            201 => return Ok(milliseconds(started)),
            404 | 429 if started.elapsed() < Duration::from_secs(30) => {
                tokio::time::sleep(Duration::from_micros(500)).await;
            }
            _ => {
                return Err(format!(
                    "the first object was answered with {code}: {}",
                    String::from_utf8_lossy(&body)
                ));
            }
        }
    }
}

/// CPU per request and requests a second of one client.
async fn one_at_a_time(
    server: &Server,
    connection: &mut Connection,
    requests: usize,
    figures: &mut Figures,
) -> Result<(), String> {
    for kind in &SINGLE {
        let (before, started) = (server.cpu_milliseconds()?, Instant::now());
        for index in 0..requests {
            connection.call(&(kind.make)(index).as_call()).await?;
        }
        let seconds = started.elapsed().as_secs_f64();
        figures.insert(kind.figure, (server.cpu_milliseconds()? - before) / requests as f64);
        if let Some(rate) = kind.rate {
            figures.insert(rate, requests as f64 / seconds);
        }
    }
    Ok(())
}

/// A kind of request of which many are sent one after another.
pub(crate) struct Single {
    /// The figure of its CPU.
    figure: &'static str,
    /// The figure of how many a second.
    rate: Option<&'static str>,
    /// The word for it in `bench/instructions.txt`.
    pub(crate) word: &'static str,
    /// The request of a number; each number is sent once.
    pub(crate) make: fn(usize) -> Request,
}

/// In their order: a later one needs the objects of an earlier one.
pub(crate) const SINGLE: [Single; 7] = [
    Single {
        figure: "CPU of a create of a ConfigMap, ms",
        rate: Some("creates a second, one at a time"),
        word: "create",
        make: |index| post(CONFIG_MAPS, config_map(&format!("one-{index}"), &"v".repeat(200))),
    },
    Single {
        figure: "CPU of a create of a custom resource, ms",
        rate: None,
        word: "create-custom",
        make: |index| post(THINGS, thing(&format!("one-{index}"))),
    },
    Single {
        figure: "CPU of a get, ms",
        rate: Some("gets a second, one at a time"),
        word: "get",
        make: |index| Request::new("GET", format!("{CONFIG_MAPS}/one-{index}"), "", Vec::new()),
    },
    Single {
        figure: "CPU of a merge patch of a status, ms",
        rate: None,
        word: "patch-status",
        make: |index| {
            let body = format!(r#"{{"status":{{"ready":{index},"phase":"Running"}}}}"#).into_bytes();
            let path = format!("{THINGS}/one-{index}/status");
            Request::new("PATCH", path, "application/merge-patch+json", body)
        },
    },
    Single {
        figure: "CPU of an apply that creates, ms",
        rate: None,
        word: "apply-creates",
        make: |index| apply(index, "a"),
    },
    Single {
        figure: "CPU of an apply that changes, ms",
        rate: None,
        word: "apply-changes",
        make: |index| apply(index, "b"),
    },
    Single {
        figure: "CPU of an apply that changes nothing, ms",
        rate: None,
        word: "apply-nothing",
        make: |index| apply(index, "b"),
    },
];

fn post(path: &str, body: Vec<u8>) -> Request {
    Request::new("POST", path.to_owned(), "application/json", body)
}

fn apply(index: usize, text: &str) -> Request {
    let name = format!("applied-{index}");
    let path = format!("{CONFIG_MAPS}/{name}?fieldManager=bench");
    Request::new("PATCH", path, "application/apply-patch+yaml", config_map(&name, text))
}

pub(crate) struct Request {
    method: &'static str,
    path: String,
    content_type: &'static str,
    body: Vec<u8>,
}

impl Request {
    pub(crate) fn new(method: &'static str, path: String, content_type: &'static str, body: Vec<u8>) -> Request {
        Request {
            method,
            path,
            content_type,
            body,
        }
    }

    /// As a connection sends it.
    pub(crate) fn as_call(&self) -> Call<'_> {
        Call {
            method: self.method,
            path: &self.path,
            content_type: self.content_type,
            body: &self.body,
        }
    }
}

/// Creates a second by so many clients.
async fn creates(server: &Server, clients: usize, requests: usize, name: &'static str) -> Result<f64, String> {
    at_once(server, clients, requests, move |client, index| {
        let body = config_map(&format!("{name}-{client}-{index}"), "v");
        Request::new("POST", CONFIG_MAPS.to_owned(), "application/json", body)
    })
    .await
}

/// Gets a second by so many clients; the objects are there.
async fn gets(server: &Server, clients: usize, requests: usize) -> Result<f64, String> {
    at_once(server, clients, requests, |client, _| {
        Request::new("GET", format!("{CONFIG_MAPS}/one-{client}"), "", Vec::new())
    })
    .await
}

/// Requests a second by so many clients; `make` is given the client and which of its requests this is.
pub(crate) async fn at_once(
    server: &Server,
    clients: usize,
    requests: usize,
    make: impl Fn(usize, usize) -> Request + Copy + Send + 'static,
) -> Result<f64, String> {
    let mut connections = Vec::new();
    for _ in 0..clients {
        connections.push(Connection::open(server.address).await?);
    }
    let each = requests / clients;
    let started = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for (client, mut connection) in connections.into_iter().enumerate() {
        tasks.spawn(async move {
            for index in 0..each {
                connection.call(&make(client, index).as_call()).await?;
            }
            Ok::<(), String>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.map_err(|why| format!("a client: {why}"))??;
    }
    Ok((each * clients) as f64 / started.elapsed().as_secs_f64())
}

/// From a create that is sent to the event that is seen.
async fn latency(server: &Server, events: usize, figures: &mut Figures) -> Result<(), String> {
    let mut watch = watching(server).await?;
    let mut writer = Connection::open(server.address).await?;
    let (mut times, mut seen) = (Vec::new(), Vec::new());
    for index in 0..events {
        let body = config_map(&format!("seen-{index}"), "v");
        let started = Instant::now();
        let call = Call::post(CONFIG_MAPS, &body);
        let (written, observed) = tokio::join!(writer.call(&call), async {
            watch.lines(1, &mut seen).await.map(|()| milliseconds(started))
        });
        written?;
        times.push(observed?);
        let name = format!("\"seen-{index}\"");
        if !String::from_utf8_lossy(&seen).contains(&name) {
            return Err(format!("the event after creating {name} is about something else"));
        }
    }
    let spread = Spread::of(times);
    figures.insert("create to event p50, ms", spread.quantile(0.5));
    figures.insert("create to event p99, ms", spread.quantile(0.99));
    Ok(())
}

pub(crate) async fn watching(server: &Server) -> Result<Connection, String> {
    let mut watch = Connection::open(server.address).await?;
    let (_, listed) = watch.answer(&Call::get(&format!("{CONFIG_MAPS}?limit=1"))).await?;
    let listed = String::from_utf8_lossy(&listed).into_owned();
    let version = listed
        .split_once("\"resourceVersion\":\"")
        .and_then(|(_, rest)| rest.split_once('"'))
        .map_or("0", |(version, _)| version)
        .to_owned();
    watch
        .watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={version}"))
        .await?;
    Ok(watch)
}

/// One write seen by many watchers, each on a connection of its own: CPU per event, above the cost of the writes alone.
async fn fan_out(server: &Server, writes: usize, figures: &mut Figures) -> Result<(), String> {
    let mut writer = Connection::open(server.address).await?;
    let mut write = async |kind: &str| -> Result<f64, String> {
        let before = server.cpu_milliseconds()?;
        for index in 0..writes {
            let body = config_map(&format!("{kind}-{index}"), "v");
            writer.call(&Call::post(CONFIG_MAPS, &body)).await?;
        }
        Ok(before)
    };
    let before = write("alone").await?;
    let alone = server.cpu_milliseconds()? - before;
    let mut watchers = tokio::task::JoinSet::new();
    let (ready, mut open) = tokio::sync::mpsc::channel::<()>(WATCHERS);
    for _ in 0..WATCHERS {
        let mut watch = watching(server).await?;
        let ready = ready.clone();
        watchers.spawn(async move {
            // The counting watcher is ready: no write begins before all are.
            let _ = ready.send(()).await;
            watch.lines(writes, &mut Vec::new()).await
        });
    }
    for _ in 0..WATCHERS {
        open.recv().await;
    }
    let before = write("fanned").await?;
    while let Some(done) = watchers.join_next().await {
        done.map_err(|why| format!("a watcher: {why}"))??;
    }
    let cpu = server.cpu_milliseconds()? - before - alone;
    figures.insert(
        "CPU of an event to one of 500 watchers, µs",
        cpu * 1000.0 / (writes * WATCHERS) as f64,
    );
    Ok(())
}

/// A list of ten thousand objects of 870 bytes.
async fn list(server: &Server, figures: &mut Figures) -> Result<(), String> {
    const PATH: &str = "/api/v1/namespaces/kube-public/configmaps";
    let text = "v".repeat(620);
    // A server may close a connection that has rested for as long as everything else takes.
    let mut connection = Connection::open(server.address).await?;
    for index in 0..LISTED {
        let body = config_map(&format!("listed-{index}"), &text);
        connection.call(&Call::post(PATH, &body)).await?;
    }
    let (mut times, before) = (Vec::new(), server.cpu_milliseconds()?);
    const LISTS: usize = 5;
    for _ in 0..LISTS {
        let started = Instant::now();
        let length = connection.call(&Call::get(PATH)).await?;
        times.push(milliseconds(started));
        if length < LISTED * 500 {
            return Err(format!("the list of {LISTED} objects has only {length} bytes"));
        }
    }
    figures.insert("list of 10,000, ms", Spread::of(times).median());
    figures.insert(
        "CPU of a list of 10,000, ms",
        (server.cpu_milliseconds()? - before) / LISTS as f64,
    );
    Ok(())
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

const DEFINITION: &str = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.bench.example.com"},
"spec":{"group":"bench.example.com","scope":"Namespaced","names":{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"},
"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{
"spec":{"type":"object","properties":{"size":{"type":"integer","minimum":0,"maximum":100,"default":1},"image":{"type":"string","maxLength":200},
"ports":{"type":"array","items":{"type":"object","required":["port"],"properties":{"name":{"type":"string"},"port":{"type":"integer"},"protocol":{"type":"string","default":"TCP"}}}}}},
"status":{"type":"object","properties":{"ready":{"type":"integer"},"phase":{"type":"string"}}}}}}}]}}"#;
