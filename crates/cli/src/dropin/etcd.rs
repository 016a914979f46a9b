//! `etcd`, as far as test environments look at it: it is healthy, and its data folder is where the kube-apiserver
//! beside it keeps its objects.
//!
//! There is no etcd API behind its port, and a client that asks for one is told so. A kube-apiserver asks at [`PLACE`]
//! for the folder; so one that is started again finds the objects of an earlier one.
//!
//! Invariants: a client costs one small buffer, and never longer than [`TIMEOUT`]; [`CLIENTS`] at most at a time.

use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::flags::{self, Given};
use super::table::ETCD;
use super::{failed, print, settings};
use crate::parent::Parent;
use crate::signals::stop_signal;

/// Where a kube-apiserver asks for the folder.
const PLACE: &str = "/kubewright/data-dir";
/// How long a client may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The largest head of a request, and of an answer to a kube-apiserver.
const HEAD: usize = 8 * 1024;
/// How many clients are served at the same time; more wait.
const CLIENTS: usize = 64;
/// How long a kube-apiserver waits for its etcd to answer.
const WAIT: Duration = Duration::from_secs(20);
/// How often it tries.
const AGAIN: Duration = Duration::from_millis(20);

/// The facts that etcd gives a kube-apiserver.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The folder of the objects.
    pub(super) folder: PathBuf,
    /// Whether writes wait for the disk.
    pub(super) synced: bool,
}

pub(super) fn main(arguments: &[String], _: Instant) -> ExitCode {
    let parent = Parent::now();
    let given = match flags::parse(ETCD, arguments) {
        Ok(given) => given,
        Err(why) => return failed(&why),
    };
    if given.help {
        let intro = "The etcd of kubewright: it names the folder in which the kube-apiserver beside it keeps its objects. It has no etcd API.";
        print(&flags::help(intro, "etcd [flags]", &ETCD.served()));
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(run(&given, parent)),
        Err(why) => Err(format!("cannot start the asynchronous runtime: {why}")),
    };
    done.map_or_else(|why| failed(&why), |()| ExitCode::SUCCESS)
}

async fn run(given: &Given, parent: Parent) -> Result<(), String> {
    if let Some(rest) = given.rest.first() {
        return Err(format!("{rest:?} is not a valid flag"));
    }
    let stop = stop_signal().map_err(|why| why.to_string())?;
    let folder = data_folder(Path::new(given.last("data-dir").unwrap_or("default.etcd")))?;
    let answer: Arc<str> = json!({"dataDir": folder, "fsync": !given.flag("unsafe-no-fsync").unwrap_or(false)})
        .to_string()
        .into();
    let mut sockets = Vec::new();
    for url in addresses(given)? {
        let socket = TcpListener::bind(url).await;
        sockets.push(socket.map_err(|why| format!("cannot listen on {url}: {why}"))?);
    }
    let clients = Arc::new(Semaphore::new(CLIENTS));
    for socket in sockets {
        tokio::spawn(serve(socket, clients.clone(), answer.clone()));
    }
    tokio::select! {
        () = stop => {}
        () = parent.gone() => {}
    }
    Ok(())
}

fn addresses(given: &Given) -> Result<Vec<SocketAddr>, String> {
    let urls = given.list("listen-client-urls");
    let urls = if urls.is_empty() {
        vec!["http://localhost:2379"]
    } else {
        urls
    };
    let read = |url: &str| {
        settings::client_address(url)
            .map_err(|_| format!("--listen-client-urls={url}: only http://HOST:PORT is served"))
    };
    urls.into_iter().map(read).collect()
}

/// Makes the folder when it is missing, and names the part of it that is the kube-apiserver's, whole.
fn data_folder(path: &Path) -> Result<String, String> {
    let failed = |why: std::io::Error| format!("cannot use the data folder {}: {why}", path.display());
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(failed)?;
    let folder = path.canonicalize().map_err(failed)?.join("kubewright");
    match folder.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(format!("the name of the data folder {} is not UTF-8", path.display())),
    }
}

async fn serve(socket: TcpListener, clients: Arc<Semaphore>, answer: Arc<str>) {
    loop {
        let Ok(place) = clients.clone().acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = socket.accept().await else {
            // No descriptors are left: others must close something first.
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        let answer = answer.clone();
        tokio::spawn(async move {
            // An error of one client does not concern the server.
            let _ = tokio::time::timeout(TIMEOUT, client(stream, &answer)).await;
            drop(place);
        });
    }
}

/// Answers one request.
async fn client(mut stream: TcpStream, place: &str) -> std::io::Result<()> {
    let head = head(&mut stream).await?;
    let path = head.split_ascii_whitespace().nth(1).unwrap_or("");
    let (status, body) = respond(path.split('?').next().unwrap_or(""), place);
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}

fn respond(path: &str, place: &str) -> (&'static str, String) {
    match path {
        "/health" => ("200 OK", r#"{"health":"true","reason":""}"#.to_owned()),
        "/livez" | "/readyz" => ("200 OK", "ok\n".to_owned()),
        "/version" => ("200 OK", json!({"kubewright": env!("CARGO_PKG_VERSION")}).to_string()),
        PLACE => ("200 OK", place.to_owned()),
        _ => (
            "501 Not Implemented",
            json!({"error": "this is the etcd of kubewright: no etcd API is behind it"}).to_string(),
        ),
    }
}

/// The bytes up to an empty line, or as many as are looked at.
async fn head(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    let mut limited = stream.take(HEAD as u64);
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        if limited.read_buf(&mut bytes).await? == 0 {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Asks the etcd at this address where the objects are. It may just be starting, so it is asked again for a while.
///
/// # Errors
/// When no answer comes in time, or another program answers.
pub(super) async fn ask(address: SocketAddr) -> Result<Place, String> {
    let begun = Instant::now();
    loop {
        match tokio::time::timeout(TIMEOUT, answer(address)).await {
            Ok(Ok(text)) => return understood(&text).ok_or_else(|| foreign(address)),
            Ok(Err(why)) if begun.elapsed() > WAIT => {
                return Err(format!("etcd at http://{address} cannot be reached: {why}"));
            }
            Err(_) => return Err(foreign(address)),
            Ok(Err(_)) => tokio::time::sleep(AGAIN).await,
        }
    }
}

fn foreign(address: SocketAddr) -> String {
    format!("what answers at http://{address} is not the etcd of kubewright, and no other is served")
}

async fn answer(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {PLACE} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    stream.take(HEAD as u64).read_to_end(&mut bytes).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn understood(answer: &str) -> Option<Place> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let body: Value = serde_json::from_str(body)
        .ok()
        .filter(|_| head.starts_with("HTTP/1.1 200 "))?;
    Some(Place {
        folder: PathBuf::from(body.get("dataDir")?.as_str()?),
        synced: body.get("fsync")?.as_bool()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_etcd_is_understood() {
        #[track_caller]
        fn check(answer: &str, expected: Option<(&str, bool)>) {
            let expected = expected.map(|(folder, synced)| Place {
                folder: folder.into(),
                synced,
            });
            assert_eq!(understood(answer), expected, "{answer:?}");
        }
        let ours = r#"{"dataDir":"/a","fsync":false}"#;
        check(&format!("HTTP/1.1 200 OK\r\nA: b\r\n\r\n{ours}"), Some(("/a", false)));
        check(&format!("HTTP/1.1 404 Not Found\r\n\r\n{ours}"), None);
        check("HTTP/1.1 200 OK\r\n\r\n{}", None);
        check("HTTP/1.1 200 OK\r\n\r\nnonsense", None);
        check("", None);
    }

    #[test]
    fn what_is_not_there_is_said() {
        assert_eq!(respond("/health", "").0, "200 OK");
        assert_eq!(respond(PLACE, "here").1, "here");
        let (status, body) = respond("/v3/kv/range", "");
        assert!(status.starts_with("501") && body.contains("no etcd API"), "{body}");
    }
}
