//! The cost of a request in instructions: the same on every machine, where times and their ratios are not.
//!
//! The server runs in `valgrind --tool=callgrind`, which counts the instructions of all its threads. Each kind of
//! request is sent [`REQUESTS`] times on one connection, after [`WARM`] others. The floor beside them is an echo: a
//! server of this program that reads a get over TLS and writes an answer of as many bytes.
//!
//! Invariant: counts are held against `bench/instructions.txt`, and more than [`ALLOWED`] over it is an error. With
//! `KUBEWRIGHT_BENCH_RECORD=1` the file is written instead.
//!
//! Not here: time that is spent waiting, and instructions of the kernel.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use kubewright_cluster::Pki;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio_rustls::TlsAcceptor;

use crate::client::{Call, Connection};
use crate::https;
use crate::load::{self, SINGLE};
use crate::machine::free_address;
use crate::servers::Server;

/// The argument with which this program is the echo.
pub(crate) const ECHO: &str = "echo";

/// How many requests of a kind are counted.
const REQUESTS: usize = 500;
/// And how many are sent before, so that caches and the allocator have what they need.
const WARM: usize = 100;
/// So much more than the last record is an error.
const ALLOWED: f64 = 1.05;
/// A program in valgrind starts some fifty times as slowly.
const PATIENCE: Duration = Duration::from_secs(120);

/// A get of one of the ConfigMaps that were made.
const GET: Call<'static> = Call {
    method: "GET",
    path: "/api/v1/namespaces/default/configmaps/one-100",
    content_type: "",
    body: b"",
};

/// The file of the last record: a word and its instructions on each line.
const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.txt");

/// Counts, prints, and holds the counts against the record.
pub(crate) async fn measure(kubewright: &Path) -> Result<(), String> {
    if Command::new("valgrind")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .await
        .is_err()
    {
        println!("(no instructions: valgrind is not on the PATH)");
        return Ok(());
    }
    let (mut counted, length) = of_ours(kubewright).await?;
    counted.insert("echo", of_the_echo(length).await?);
    let record = std::fs::read_to_string(RECORD).unwrap_or_default();
    let record: BTreeMap<&str, f64> = record
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(word, count)| Some((word, count.trim().parse().ok()?)))
        .collect();
    println!("instructions of a request       now   last record");
    let mut worse = Vec::new();
    for (word, now) in &counted {
        let last = record.get(word);
        println!(
            "  {word:20} {now:12.0} {:>13}",
            last.map_or("-".to_owned(), f64::to_string)
        );
        if last.is_some_and(|last| *now > last * ALLOWED) {
            worse.push(*word);
        }
    }
    if std::env::var_os("KUBEWRIGHT_BENCH_RECORD").is_some() {
        let lines: String = counted.iter().map(|(word, now)| format!("{word} {now:.0}\n")).collect();
        return std::fs::write(RECORD, lines).map_err(|why| format!("cannot write {RECORD}: {why}"));
    }
    match worse.as_slice() {
        [] => Ok(()),
        worse => Err(format!("more than 5 % over the last record: {}", worse.join(", "))),
    }
}

/// A process in callgrind.
struct Counted {
    id: u32,
    out: PathBuf,
    dumps: usize,
}

impl Counted {
    fn command(program: &Path, out: &Path) -> Command {
        let mut command = Command::new("valgrind");
        command
            .args(["--quiet", "--tool=callgrind"])
            .arg(format!("--callgrind-out-file={}", out.display()))
            .arg(program);
        command
    }

    async fn control(&self, flag: &str) -> Result<(), String> {
        let done = Command::new("callgrind_control")
            .args([flag, &self.id.to_string()])
            .stdout(Stdio::null())
            .status()
            .await;
        match done {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("callgrind_control {flag} ended with {status}")),
            Err(why) => Err(format!("cannot start callgrind_control: {why}")),
        }
    }

    /// The instructions since the last time; they are counted from 0 again.
    async fn taken(&mut self) -> Result<f64, String> {
        self.control("-d").await?;
        self.dumps += 1;
        let dump = PathBuf::from(format!("{}.{}", self.out.display(), self.dumps));
        let text = std::fs::read_to_string(&dump).map_err(|why| format!("cannot read {}: {why}", dump.display()))?;
        let total = text.lines().find_map(|line| line.strip_prefix("totals:"));
        let total = total.and_then(|total| total.trim().parse().ok());
        total.ok_or_else(|| format!("{} has no totals", dump.display()))
    }
}

/// The counts, and the length of what a get answers.
async fn of_ours(kubewright: &Path) -> Result<(BTreeMap<&'static str, f64>, usize), String> {
    let folder = tempfile::tempdir().map_err(|why| format!("no temporary folder: {why}"))?;
    let out = folder.path().join("callgrind");
    let command = Counted::command(kubewright, &out);
    let server = Server::start_by(command, PATIENCE, folder.path(), None, &["--controllers", "none"]).await?;
    let id = server.id().ok_or("the server has ended")?;
    let mut process = Counted { id, out, dumps: 0 };
    let mut connection = Connection::open(server.address).await?;
    load::definition(&mut connection).await?;
    let mut counted = BTreeMap::new();
    for kind in &SINGLE {
        for index in 0..WARM {
            connection.call(&(kind.make)(index).as_call()).await?;
        }
        process.taken().await?;
        for index in WARM..WARM + REQUESTS {
            connection.call(&(kind.make)(index).as_call()).await?;
        }
        counted.insert(kind.word, process.taken().await? / REQUESTS as f64);
    }
    let length = connection.call(&GET).await?;
    server.stop().await;
    Ok((counted, length))
}

async fn of_the_echo(length: usize) -> Result<f64, String> {
    let folder = tempfile::tempdir().map_err(|why| format!("no temporary folder: {why}"))?;
    let out = folder.path().join("callgrind");
    let program = std::env::current_exe().map_err(|why| format!("cannot find this program: {why}"))?;
    let address = free_address()?;
    let mut child = Counted::command(&program, &out)
        .args([ECHO, &address.to_string(), &length.to_string()])
        .kill_on_drop(true)
        .spawn()
        .map_err(|why| format!("cannot start the echo: {why}"))?;
    https::until_ready(address, PATIENCE).await?;
    let id = child.id().ok_or("the echo has ended")?;
    let mut process = Counted { id, out, dumps: 0 };
    let mut connection = Connection::open(address).await?;
    for _ in 0..WARM {
        connection.call(&GET).await?;
    }
    process.taken().await?;
    for _ in 0..REQUESTS {
        connection.call(&GET).await?;
    }
    let counted = process.taken().await? / REQUESTS as f64;
    // It is killed at the latest when it is dropped.
    let _ = child.kill().await;
    Ok(counted)
}

/// Answers every head of a request with a body of so many bytes.
pub(crate) async fn echo(mut arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let failed = |why: std::io::Error| format!("the echo: {why}");
    let address: Option<SocketAddr> = arguments.next().and_then(|text| text.parse().ok());
    let length: Option<usize> = arguments.next().and_then(|text| text.parse().ok());
    let (Some(address), Some(length)) = (address, length) else {
        return Err("the echo needs an address and a length".to_owned());
    };
    let (certificate, key) = Pki::self_signed(address.ip()).map_err(|why| why.to_string())?;
    let unreadable = |why: rustls::pki_types::pem::Error| format!("the echo's certificate: {why}");
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(unreadable)?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(unreadable)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![certificate], key))
        .map_err(|why| format!("the echo's certificate: {why}"))?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{}",
        "x".repeat(length)
    );
    loop {
        let (socket, _) = listener.accept().await.map_err(failed)?;
        socket.set_nodelay(true).map_err(failed)?;
        let Ok(mut stream) = acceptor.accept(socket).await else {
            continue;
        };
        let answer = answer.clone();
        tokio::spawn(async move {
            let mut buffer = vec![0; 8 * 1024];
            // A request is smaller than the buffer, and comes in one record.
            while let Ok(read) = stream.read(&mut buffer).await {
                if read == 0 || stream.write_all(answer.as_bytes()).await.is_err() || stream.flush().await.is_err() {
                    return;
                }
            }
        });
    }
}
