//! A client that writes any bytes: a head and a body, over TLS, HTTP/1.1.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::input::Request;
use super::server::Server;
use crate::common::SOON;

/// An answer.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn is_json(&self) -> bool {
        self.head.to_lowercase().contains("content-type: application/json")
    }

    pub(crate) fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy(&self.body);
        let short: String = text.chars().take(400).collect();
        write!(f, "{} {short}", self.code)
    }
}

/// A connection that was used already, so that its handshake is over.
pub(crate) struct Connection {
    stream: TlsStream<TcpStream>,
    token: Option<String>,
    /// Bytes that were read and belong to no answer yet.
    read: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(server: &Server) -> Result<Connection, String> {
        let connecting = async {
            let stream = TcpStream::connect(server.address()).await?;
            // A body that follows its head would wait for the server to acknowledge that: 40 ms for each request.
            stream.set_nodelay(true)?;
            let name = ServerName::try_from("localhost").expect("a name");
            let config = Arc::new(server.tls());
            tokio_rustls::TlsConnector::from(config).connect(name, stream).await
        };
        let stream = within(connecting)
            .await?
            .map_err(|error| format!("no connection: {error}"))?;
        let mut connection = Connection {
            stream,
            token: server.token(),
            read: Vec::new(),
        };
        let greeting = super::input::get("/livez");
        let answer = connection.ask(&greeting).await?;
        if answer.code != 200 {
            return Err(format!("not alive: {answer:?}"));
        }
        Ok(connection)
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn ask(&mut self, request: &Request) -> Result<Answer, String> {
        within(self.whole(request)).await?
    }

    /// Sends a request and reads the answer until it holds `end`.
    pub(crate) async fn ask_until(&mut self, request: &Request, end: &str) -> Result<(), String> {
        within(self.until(request, end.as_bytes())).await?
    }

    /// Sends a request and reads none of its answer.
    pub(crate) async fn send(&mut self, request: &Request) {
        let mut head = format!("{} {} HTTP/1.1\r\nHost: localhost\r\n", request.method, request.path);
        if let Some(token) = &self.token {
            head += &format!("Authorization: Bearer {token}\r\n");
        }
        for (name, value) in &request.headers {
            head += &format!("{name}: {value}\r\n");
        }
        // A request that frames its body itself is sent as it is.
        let framed = ["content-length", "transfer-encoding"];
        let is_framed = |(name, _): &(String, String)| framed.contains(&name.to_lowercase().as_str());
        if !["GET", "HEAD"].contains(&request.method) && !request.headers.iter().any(is_framed) {
            head += &format!("Content-Length: {}\r\n", request.body.len());
        }
        head += "\r\n";
        // A server may answer before it has read everything, and close: the answer counts.
        let _ = self.stream.write_all(head.as_bytes()).await;
        let _ = self.stream.write_all(&request.body).await;
        // Bytes for which the socket had no room wait in the buffers of TLS until a flush.
        let _ = self.stream.flush().await;
    }

    async fn whole(&mut self, request: &Request) -> Result<Answer, String> {
        self.send(request).await;
        let (head_ends, head, code) = loop {
            let head_ends = self.read_until(0, b"\r\n\r\n").await?;
            let head = String::from_utf8_lossy(&self.read[..head_ends]).into_owned();
            let code = head
                .split(' ')
                .nth(1)
                .and_then(|code| code.parse().ok())
                .ok_or_else(|| format!("no status code: {head:?}"))?;
            // That the body may come is no answer: it is on its way already.
            if code != 100 {
                break (head_ends, head, code);
            }
            self.read.drain(..head_ends);
        };
        let lower = head.to_lowercase();
        let length = lower
            .lines()
            .find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        let (body, ends) = match length {
            _ if request.method == "HEAD" || code == 204 => (Vec::new(), head_ends),
            Some(length) => {
                self.read_at_least(head_ends + length).await?;
                (self.read[head_ends..head_ends + length].to_vec(), head_ends + length)
            }
            None if lower.contains("transfer-encoding: chunked") => self.chunks(head_ends).await?,
            None => {
                while self.more().await? {}
                (self.read[head_ends..].to_vec(), self.read.len())
            }
        };
        self.read.drain(..ends);
        Ok(Answer { code, head, body })
    }

    /// The body in chunks that begins at `at`, and where it ends.
    async fn chunks(&mut self, mut at: usize) -> Result<(Vec<u8>, usize), String> {
        let mut body = Vec::new();
        loop {
            let begins = self.read_until(at, b"\r\n").await?;
            let line = String::from_utf8_lossy(&self.read[at..begins - 2]).into_owned();
            let length = usize::from_str_radix(&line, 16).map_err(|_| format!("no length of a chunk: {line:?}"))?;
            self.read_at_least(begins + length + 2).await?;
            body.extend_from_slice(&self.read[begins..begins + length]);
            at = begins + length + 2;
            if length == 0 {
                return Ok((body, at));
            }
        }
    }

    async fn until(&mut self, request: &Request, end: &[u8]) -> Result<(), String> {
        self.send(request).await;
        self.read_until(0, end).await.map(|_| ())
    }

    /// Reads until `end` stands somewhere after `from`, and says where it ends.
    async fn read_until(&mut self, from: usize, end: &[u8]) -> Result<usize, String> {
        let mut from = from;
        loop {
            if let Some(at) = find(&self.read[from..], end) {
                return Ok(from + at + end.len());
            }
            from = from.max(self.read.len().saturating_sub(end.len()));
            if !self.more().await? {
                let end = String::from_utf8_lossy(end).into_owned();
                return Err(format!("the connection ends before {end:?}: {:?}", self.shown()));
            }
        }
    }

    async fn read_at_least(&mut self, length: usize) -> Result<(), String> {
        while self.read.len() < length {
            if !self.more().await? {
                return Err(format!(
                    "the connection ends after {} of {length} bytes",
                    self.read.len()
                ));
            }
        }
        Ok(())
    }

    /// Reads what has come; `false`: the connection has ended.
    pub(crate) async fn more(&mut self) -> Result<bool, String> {
        let mut buffer = vec![0; 64 * 1024];
        let count = self
            .stream
            .read(&mut buffer)
            .await
            .map_err(|error| format!("the connection breaks: {error}"))?;
        self.read.extend_from_slice(&buffer[..count]);
        Ok(count > 0)
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.read[..self.read.len().min(400)]).into_owned()
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

async fn within<F: Future>(future: F) -> Result<F::Output, String> {
    tokio::time::timeout(SOON, future)
        .await
        .map_err(|_| format!("no answer within {SOON:?}"))
}
