//! A name server for programs, at port 53 of a loopback address of the cluster: what CoreDNS is in a real cluster.
//!
//! It answers for `cluster.local` from the names of Services (`names`), and hands every other question to the name
//! servers of this machine as it came. A program finds it in its `/etc/resolv.conf` (`resolv`). Port 53 needs root or
//! `net.ipv4.ip_unprivileged_port_start`; without it the files of hosts are left.
//!
//! | file | what |
//! |---|---|
//! | `records` | what a name stands for |
//! | `message` | questions and answers as they are sent |
//!
//! Invariants: it listens on loopback only; questions under way and connections have bounds, beyond which a client is
//! told that the server failed, or waits in the system's queue; all ends with the cluster.

mod message;
mod records;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use self::message::{Verdict, Way};
use super::names::Names;
use super::proxy::REST;
use super::resolv;

const PORT: u16 = 53;
/// The longest message over UDP that is read: the one that EDNS lets a client send.
const LONGEST: usize = 4096;
/// How many questions wait for other name servers, and how many clients are connected over TCP.
const FORWARDED: usize = 64;
const CONNECTIONS: usize = 32;
/// How long another name server may take, and a client over TCP to say something.
const PATIENCE: Duration = Duration::from_secs(2);
const IDLE: Duration = Duration::from_secs(10);

/// The address of the name server in this network of loopback addresses: the last one of the half of the pods, which no
/// pod is given.
pub(super) fn address(network: u8) -> IpAddr {
    Ipv4Addr::new(127, network, 127, 255).into()
}

/// A name server that listens. It ends when this is dropped.
pub(super) struct Dns {
    tasks: [AbortHandle; 2],
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// What both doors need.
#[derive(Clone)]
struct Server {
    names: Arc<Mutex<Names>>,
    own: IpAddr,
    /// The port of other name servers.
    port: u16,
    /// The machine's `resolv.conf`.
    machine: Arc<Path>,
    forwarded: Arc<Semaphore>,
}

impl Dns {
    /// Listens over UDP and TCP.
    ///
    /// # Errors
    /// When the port is taken, or not for this user.
    pub(super) fn start(network: u8, names: Arc<Mutex<Names>>) -> io::Result<Dns> {
        let server = Server {
            names,
            own: address(network),
            port: PORT,
            machine: Path::new(resolv::FILE).into(),
            forwarded: Arc::new(Semaphore::new(FORWARDED)),
        };
        server.listen(PORT).map(|(dns, _)| dns)
    }
}

impl Server {
    fn listen(self, port: u16) -> io::Result<(Dns, SocketAddr)> {
        let udp = std::net::UdpSocket::bind((self.own, port))?;
        let address = udp.local_addr()?;
        let tcp = std::net::TcpListener::bind(address)?;
        udp.set_nonblocking(true)?;
        tcp.set_nonblocking(true)?;
        let (udp, tcp) = (UdpSocket::from_std(udp)?, TcpListener::from_std(tcp)?);
        let tasks = [
            tokio::spawn(self.clone().datagrams(Arc::new(udp))).abort_handle(),
            tokio::spawn(self.connections(tcp)).abort_handle(),
        ];
        Ok((Dns { tasks }, address))
    }

    fn judge(&self, message: &[u8], way: Way) -> Verdict {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        message::answer(&names, message, way)
    }

    async fn datagrams(self, socket: Arc<UdpSocket>) {
        let mut forwarding = tokio::task::JoinSet::new();
        let mut buffer = vec![0; LONGEST];
        loop {
            let Ok((length, client)) = socket.recv_from(&mut buffer).await else {
                tokio::time::sleep(REST).await;
                continue;
            };
            while forwarding.try_join_next().is_some() {}
            let message = &buffer[..length];
            let answer = match self.judge(message, Way::Udp) {
                Verdict::Answer(answer) => Some(answer),
                Verdict::Drop => None,
                Verdict::Forward => match self.forwarded.clone().try_acquire_owned() {
                    Err(_) => message::failed(message),
                    Ok(place) => {
                        let (server, socket, message) = (self.clone(), socket.clone(), message.to_vec());
                        forwarding.spawn(async move {
                            if let Some(answer) = server.forward(&message, Way::Udp).await {
                                // A client that is gone needs no answer.
                                let _ = socket.send_to(&answer, client).await;
                            }
                            drop(place);
                        });
                        None
                    }
                },
            };
            if let Some(answer) = answer {
                let _ = socket.send_to(&answer, client).await;
            }
        }
    }

    async fn connections(self, listener: TcpListener) {
        let mut clients = tokio::task::JoinSet::new();
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            // They are never closed.
            let Ok(place) = places.clone().acquire_owned().await else {
                return;
            };
            while clients.try_join_next().is_some() {}
            let Ok((client, _)) = listener.accept().await else {
                tokio::time::sleep(REST).await;
                continue;
            };
            let server = self.clone();
            clients.spawn(async move {
                // It ends when the client breaks off, too.
                let _ = server.serve(client).await;
                drop(place);
            });
        }
    }

    /// Answers the questions of a connection, one after the other.
    async fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        loop {
            let message = tokio::time::timeout(IDLE, framed(&mut client)).await??;
            let answer = match self.judge(&message, Way::Tcp) {
                Verdict::Answer(answer) => answer,
                Verdict::Drop => return Ok(()),
                Verdict::Forward => {
                    let place = self.forwarded.acquire().await.map_err(io::Error::other)?;
                    let answer = self.forward(&message, Way::Tcp).await;
                    drop(place);
                    answer.ok_or(io::ErrorKind::InvalidData)?
                }
            };
            tokio::time::timeout(IDLE, send(&mut client, &answer)).await??;
        }
    }

    /// The answer of the first name server of this machine that gives one; without any, that the server failed.
    async fn forward(&self, message: &[u8], way: Way) -> Option<Vec<u8>> {
        // It may change at any time, and is small.
        let machine = tokio::fs::read_to_string(&self.machine).await.unwrap_or_default();
        for server in resolv::name_servers(&machine) {
            if server == self.own {
                continue;
            }
            let server = SocketAddr::new(server, self.port);
            let asking = async {
                match way {
                    Way::Udp => over_udp(server, message).await,
                    Way::Tcp => over_tcp(server, message).await,
                }
            };
            match tokio::time::timeout(PATIENCE, asking).await {
                Ok(Ok(answer)) => return Some(answer),
                Ok(Err(error)) => tracing::debug!(%server, %error, "a name server does not answer"),
                Err(_) => tracing::debug!(%server, "a name server does not answer in time"),
            }
        }
        message::failed(message)
    }
}

async fn over_udp(server: SocketAddr, message: &[u8]) -> io::Result<Vec<u8>> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    // A port by chance for each question, and no other peer: answers are not easily forged.
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(message).await?;
    let mut buffer = vec![0; usize::from(u16::MAX)];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if buffer[..length].get(..2) == message.get(..2) {
            buffer.truncate(length);
            return Ok(buffer);
        }
    }
}

async fn over_tcp(server: SocketAddr, message: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    send(&mut stream, message).await?;
    framed(&mut stream).await
}

/// A message with its length before it (RFC 1035, 4.2.2).
async fn framed(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u16().await?;
    let mut message = vec![0; usize::from(length)];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

async fn send(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    let mut framed = length.to_be_bytes().to_vec();
    framed.extend_from_slice(message);
    stream.write_all(&framed).await
}

#[cfg(test)]
mod tests {
    use kubewright::Request;
    use simple_dns::{CLASS, Name, Packet, Question, TYPE};

    use super::*;
    use crate::processes::names::Entry;

    /// A server that knows one Service, at a free port.
    fn server(machine: &Path, port: u16) -> (Dns, SocketAddr) {
        let mut names = Names::default();
        let entry = Entry::Address {
            ip: "127.9.128.7".parse().expect("an address"),
            ports: vec![],
        };
        names.set(&Request::new(Some("shop"), "web"), Some(entry));
        let server = Server {
            names: Arc::new(Mutex::new(names)),
            own: Ipv4Addr::LOCALHOST.into(),
            port,
            machine: machine.into(),
            forwarded: Arc::new(Semaphore::new(1)),
        };
        // A port that is free for datagrams need not be free for connections.
        let mut tries = (0..20).map(|_| server.clone().listen(0));
        tries.find_map(Result::ok).expect("a free port")
    }

    fn query(name: &str) -> Vec<u8> {
        let mut query = Packet::new_query(7);
        let name = Name::new(name).expect("a name");
        query.questions = vec![Question::new(name, TYPE::A.into(), CLASS::IN.into(), false)];
        query.build_bytes_vec().expect("a query")
    }

    fn told(answer: &[u8]) -> String {
        let answer = Packet::parse(answer).expect("an answer");
        format!("{:?} {}", answer.rcode(), answer.answers.len())
    }

    /// Asks over both ways.
    async fn check(server: SocketAddr, name: &str, expected: &str) {
        let message = query(name);
        let udp = over_udp(server, &message).await.expect("an answer");
        let tcp = over_tcp(server, &message).await.expect("an answer");
        assert_eq!([told(&udp), told(&tcp)], [expected, expected], "{name}");
    }

    #[tokio::test]
    async fn own_names_are_answered_and_others_are_handed_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let none = folder.path().join("none");
        let (_far, other) = server(&none, 0);
        check(other, "web.shop.svc.cluster.local", "NoError 1").await;
        check(other, "gone.shop.svc.cluster.local", "NameError 0").await;
        check(other, "example.com", "ServerFailure 0").await;

        // The second server hands what it does not know to a third one, whose answer is given back as it came.
        let upstream = UdpSocket::bind("127.0.0.2:0").await.expect("a free port");
        let port = upstream.local_addr().expect("it listens").port();
        let over_tcp = TcpListener::bind(("127.0.0.2", port)).await.expect("the same port");
        let machine = folder.path().join("resolv.conf");
        // The first one does not answer: nothing listens there.
        let text = "nameserver 127.0.0.3\nnameserver 127.0.0.2\n";
        std::fs::write(&machine, text).expect("it is ours");
        let (_near, near) = server(&machine, port);
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            while let Ok((length, client)) = upstream.recv_from(&mut buffer).await {
                let reply = Packet::parse(&buffer[..length]).expect("a query").into_reply();
                let reply = reply.build_bytes_vec().expect("a reply");
                let _ = upstream.send_to(&reply, client).await;
            }
        });
        tokio::spawn(async move {
            while let Ok((mut client, _)) = over_tcp.accept().await {
                let message = framed(&mut client).await.expect("a query");
                let reply = Packet::parse(&message).expect("a query").into_reply();
                let _ = send(&mut client, &reply.build_bytes_vec().expect("a reply")).await;
            }
        });
        check(near, "example.com", "NoError 0").await;
        check(near, "web.shop.svc.cluster.local", "NoError 1").await;
    }
}
