//! 10,000 watchers on 10,000 connections: how soon they see 200 writes a second, and the cost of each of them.
//!
//! * *latency*: from the first byte of a write's request to each of its events, read by each of its watchers. The
//!   writes keep to a clock, as in `queue`. *spread*: a hundred watchers for each of a hundred namespaces, which are
//!   written to in turns, 20,000 events a second. *crowd*: all of them watch all namespaces, 2,000,000 events a second.
//!   The clients decrypt every event, on the same cores.
//! * *memory*: the private memory of the server a moment after the last watch was opened, and a moment after the
//!   writes, less that before the first, over their number. One watcher has come and gone before, so that shared data
//!   made by the first one is not counted.
//! * *descriptors*: open files of the server before, and after the clients are gone.
//! * *silent*: how long a new client needs for a connection, its handshake and a GET beside 2,000 connections that say
//!   nothing and 2,000 that sent half a head.
//!
//! Not here: the memory that the kernel holds for sockets.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use memchr::memmem::Finder;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::client::{Call, Connection, TOKEN};
use crate::https::trusting_config;
use crate::paced;
use crate::servers::Server;

const WATCHERS: usize = 10_000;
const NAMESPACES: usize = 100;
const RATE: usize = 200;
const SECONDS: usize = 10;
const WRITES: usize = RATE * SECONDS;
const SILENT: usize = 2000;
/// Connections that are opened at the same time.
const OPENERS: usize = 16;

const LONGEST: f64 = 100.0;
const MOST_MEMORY: f64 = 10.0;

/// How long nothing happens before memory is read: the server gives back the memory of requests.
const REST: Duration = Duration::from_secs(3);

/// The text before the number of a written object in an event.
const MARK: &[u8] = b"\"name\":\"w-";
/// Of a name that ends with the bytes that were read, the rest may follow.
const TAIL: usize = 1;

/// Measures ours and prints.
pub(crate) async fn measure(kubewright: &Path) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|why| format!("no temporary folder: {why}"))?;
    for (name, all) in [("spread", false), ("crowd", true)] {
        let server = Server::ours(kubewright, folder.path(), None).await?;
        let measured = watched(&server, name, all).await;
        server.stop().await;
        measured?;
    }
    let server = Server::ours(kubewright, folder.path(), None).await?;
    let measured = beside_silent(&server).await;
    server.stop().await;
    measured
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

async fn watched(server: &Server, name: &str, all: bool) -> Result<(), String> {
    let mut writer = Connection::open(server.address).await?;
    for namespace in 0..NAMESPACES {
        let body = format!(r#"{{"metadata":{{"name":"n-{namespace}"}}}}"#).into_bytes();
        writer.call(&Call::post("/api/v1/namespaces", &body)).await?;
    }
    let config = client_config();
    drop(open_watch(server, &config, 0, all).await?);
    drop(writer);
    tokio::time::sleep(REST).await;
    let (memory, descriptors) = (server.private_megabytes()?, server.descriptors()?);

    let watches = open_all(server, WATCHERS, move |address, at, config| {
        watch_from(address, config, at, all)
    })
    .await?;
    tokio::time::sleep(REST).await;
    let opened = server.private_megabytes()?;
    let open_descriptors = server.descriptors()?;

    let seen = Arc::new(Seen::new());
    let mut readers = JoinSet::new();
    for watch in watches {
        readers.spawn(read_events(watch, seen.clone()));
    }
    write_paced(server, &seen).await?;
    let expected = if all { WATCHERS } else { WATCHERS / NAMESPACES } * WRITES;
    let end = Instant::now() + Duration::from_secs(60);
    while seen.events.load(Ordering::Relaxed) < expected && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let events = seen.events.load(Ordering::Relaxed);
    tokio::time::sleep(REST).await;
    let after = server.private_megabytes()?;
    readers.shutdown().await;
    let gone = Instant::now();
    while server.descriptors()? > descriptors && gone.elapsed() < Duration::from_secs(30) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let each = |now: f64| (now - memory) * 1024.0 / WATCHERS as f64;
    let slowest = seen.quantile(1.0);
    println!(
        "\n{name}: {WATCHERS} watchers, {RATE} writes a second for {SECONDS} s: {events} of {expected} events; \
         p50 {:.1} ms, p99 {:.1} ms, slowest {slowest:.1} ms (≤ {LONGEST} ms) {}",
        seen.quantile(0.5),
        seen.quantile(0.99),
        verdict(events == expected && slowest <= LONGEST)
    );
    println!(
        "{name}: memory of a watcher {:.1} KB, after the writes {:.1} KB (≤ {MOST_MEMORY} KB) {}",
        each(opened),
        each(after),
        verdict(each(opened).max(each(after)) <= MOST_MEMORY)
    );
    let left = server.descriptors()?;
    println!(
        "{name}: descriptors {descriptors} before, {open_descriptors} with all watchers, {left} {:.1} s after they went (as before) {}",
        gone.elapsed().as_secs_f64(),
        verdict(left <= descriptors)
    );
    Ok(())
}

fn client_config() -> Arc<ClientConfig> {
    let mut config = trusting_config();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config)
}

async fn connect(address: std::net::SocketAddr, config: Arc<ClientConfig>) -> Result<TlsStream<TcpStream>, String> {
    let failed = |why: std::io::Error| format!("cannot connect to {address}: {why}");
    let socket = TcpStream::connect(address).await.map_err(failed)?;
    socket.set_nodelay(true).map_err(failed)?;
    let name = ServerName::from(address.ip());
    TlsConnector::from(config).connect(name, socket).await.map_err(failed)
}

async fn open_watch(
    server: &Server,
    config: &Arc<ClientConfig>,
    at: usize,
    all: bool,
) -> Result<TlsStream<TcpStream>, String> {
    watch_from(server.address, config.clone(), at, all).await
}

/// A watch whose head has come.
async fn watch_from(
    address: std::net::SocketAddr,
    config: Arc<ClientConfig>,
    at: usize,
    all: bool,
) -> Result<TlsStream<TcpStream>, String> {
    let mut stream = connect(address, config).await?;
    let path = if all {
        "/api/v1/configmaps".to_owned()
    } else {
        format!("/api/v1/namespaces/n-{}/configmaps", at % NAMESPACES)
    };
    let request = format!(
        "GET {path}?watch=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nAccept: application/json\r\n\r\n"
    );
    let failed = |why: std::io::Error| format!("a watch: {why}");
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut head = [0; 1024];
    let read = stream.read(&mut head).await.map_err(failed)?;
    if head[..read].starts_with(b"HTTP/1.1 200") {
        Ok(stream)
    } else {
        Err(format!(
            "a watch was answered with {}",
            String::from_utf8_lossy(&head[..read])
        ))
    }
}

/// Opens so many, several at a time.
async fn open_all<T, F, O>(server: &Server, count: usize, open: F) -> Result<Vec<T>, String>
where
    T: Send + 'static,
    O: Future<Output = Result<T, String>> + Send,
    F: Fn(std::net::SocketAddr, usize, Arc<ClientConfig>) -> O + Clone + Send + 'static,
{
    let mut openers = JoinSet::new();
    let (address, config) = (server.address, client_config());
    for opener in 0..OPENERS {
        let (open, config) = (open.clone(), config.clone());
        openers.spawn(async move {
            let mut opened = Vec::new();
            for at in (opener..count).step_by(OPENERS) {
                opened.push(open(address, at, config.clone()).await?);
            }
            Ok::<_, String>(opened)
        });
    }
    let mut all = Vec::with_capacity(count);
    while let Some(ended) = openers.join_next().await {
        all.extend(ended.map_err(|why| format!("a client: {why}"))??);
    }
    Ok(all)
}

/// The observation of all watchers.
struct Seen {
    started: Instant,
    /// When each write began, in microseconds.
    written: Vec<AtomicU64>,
    events: AtomicUsize,
    /// How many events took so many tenths of a millisecond; the last one has the rest.
    times: Vec<AtomicU32>,
}

impl Seen {
    fn new() -> Seen {
        Seen {
            started: Instant::now(),
            written: (0..WRITES).map(|_| AtomicU64::new(0)).collect(),
            events: AtomicUsize::new(0),
            times: (0..200_000).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn note(&self, write: usize, now: u64) {
        let Some(written) = self.written.get(write) else { return };
        let tenths = now.saturating_sub(written.load(Ordering::Relaxed)) / 100;
        let at = usize::try_from(tenths).unwrap_or(usize::MAX).min(self.times.len() - 1);
        self.times[at].fetch_add(1, Ordering::Relaxed);
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    /// In milliseconds.
    fn quantile(&self, part: f64) -> f64 {
        let all = self.events.load(Ordering::Relaxed) as f64;
        let mut below = 0.0;
        for (tenths, count) in self.times.iter().enumerate() {
            below += f64::from(count.load(Ordering::Relaxed));
            if below > 0.0 && below >= all * part {
                return (tenths + 1) as f64 / 10.0;
            }
        }
        f64::NAN
    }
}

/// Reads until the stream ends; each event's number is found in the bytes as they come.
async fn read_events(mut stream: TlsStream<TcpStream>, seen: Arc<Seen>) {
    let mut buffer = vec![0; 16 * 1024];
    let mark = Finder::new(MARK);
    let mut kept = 0;
    loop {
        let Ok(read @ 1..) = stream.read(&mut buffer[kept..]).await else {
            return;
        };
        let now = seen.now();
        let filled = kept + read;
        let rest = note_events(&mark, &buffer[..filled], |write| seen.note(write, now));
        buffer.copy_within(rest..filled, 0);
        kept = filled - rest;
    }
}

/// Tells the numbers of the events in some bytes; from where on they are wanted again, with those that follow.
fn note_events(mark: &Finder<'_>, bytes: &[u8], mut note: impl FnMut(usize)) -> usize {
    let mut at = 0;
    while let Some(found) = mark.find(&bytes[at..]) {
        let digits = at + found + MARK.len();
        let length = bytes[digits..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits + length + TAIL > bytes.len() {
            return at + found;
        }
        note(
            bytes[digits..digits + length]
                .iter()
                .fold(0, |number, digit| number * 10 + usize::from(digit - b'0')),
        );
        at = digits + length + TAIL;
    }
    at.max(bytes.len().saturating_sub(MARK.len()))
}

async fn write_paced(server: &Server, seen: &Arc<Seen>) -> Result<(), String> {
    let seen = seen.clone();
    paced::keep(server, RATE, WRITES, move |mut connection, due| {
        let seen = seen.clone();
        async move {
            let path = format!("/api/v1/namespaces/n-{}/configmaps", due.index % NAMESPACES);
            let body = format!(
                r#"{{"metadata":{{"name":"w-{}"}},"data":{{"key":"value"}}}}"#,
                due.index
            )
            .into_bytes();
            seen.written[due.index].store(seen.now(), Ordering::Relaxed);
            connection.call(&Call::post(&path, &body)).await?;
            Ok(connection)
        }
    })
    .await
}

/// How long a new client needs beside many that say nothing.
async fn beside_silent(server: &Server) -> Result<(), String> {
    let silent = open_all(server, SILENT, |address, _, _| async move {
        TcpStream::connect(address)
            .await
            .map_err(|why| format!("cannot connect: {why}"))
    })
    .await?;
    let alone = new_clients(server).await?;
    let half = open_all(server, SILENT, |address, _, config| async move {
        let mut stream = connect(address, config).await?;
        let sent = stream.write_all(b"GET /api HTTP/1.1\r\nX-Slow: ").await;
        sent.map_err(|why| format!("half a head: {why}"))?;
        Ok(stream)
    })
    .await?;
    let beside = new_clients(server).await?;
    println!(
        "\na new client's connection and GET beside {} that say nothing: {alone:.1} ms, and {} with half a head: {beside:.1} ms, \
         the slowest of {CLIENTS} each (≤ {LONGEST} ms) {}",
        silent.len(),
        half.len(),
        verdict(alone.max(beside) <= LONGEST)
    );
    Ok(())
}

const CLIENTS: usize = 100;

/// The slowest of some clients that come one after another, in milliseconds.
async fn new_clients(server: &Server) -> Result<f64, String> {
    let mut slowest = 0.0_f64;
    for _ in 0..CLIENTS {
        let started = Instant::now();
        let mut client = Connection::open(server.address).await?;
        client.call(&Call::get("/api/v1/namespaces/default")).await?;
        slowest = slowest.max(started.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(slowest)
}
