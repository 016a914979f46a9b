//! A client that decodes nothing: HTTP/1.1 on connections that stay open, the same for us and for the peer.
//!
//! Its own work costs little, so that on two cores the server is measured.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::https::trusting_config;

/// The token of the administrator in both servers' token files.
pub(crate) const TOKEN: &str = "bench-token";

/// How much is read at once at most, unless a body is kept.
const READ: usize = 64 * 1024;

/// A request.
pub(crate) struct Call<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) content_type: &'a str,
    pub(crate) body: &'a [u8],
}

impl<'a> Call<'a> {
    pub(crate) fn get(path: &'a str) -> Call<'a> {
        Call {
            method: "GET",
            path,
            content_type: "",
            body: b"",
        }
    }

    pub(crate) fn post(path: &'a str, body: &'a [u8]) -> Call<'a> {
        Call {
            method: "POST",
            path,
            content_type: "application/json",
            body,
        }
    }
}

/// An open connection.
pub(crate) struct Connection {
    stream: TlsStream<TcpStream>,
    /// Bytes that were read and not yet used.
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Connection, String> {
        let failed = |why: std::io::Error| format!("cannot connect to {address}: {why}");
        let mut config = trusting_config();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let socket = TcpStream::connect(address).await.map_err(failed)?;
        socket.set_nodelay(true).map_err(failed)?;
        let connector = TlsConnector::from(Arc::new(config));
        let stream = connector
            .connect(ServerName::from(address.ip()), socket)
            .await
            .map_err(failed)?;
        Ok(Connection {
            stream,
            buffer: Vec::with_capacity(READ),
        })
    }

    /// Sends a request and reads the whole answer; the length of its body.
    ///
    /// # Errors
    /// When the answer's code is not one of success: a benchmark of failures measures nothing.
    pub(crate) async fn call(&mut self, call: &Call<'_>) -> Result<usize, String> {
        self.send(call).await?;
        let head = self.head().await?;
        if (200..300).contains(&head.code) {
            return self.skip_body(&head).await;
        }
        Err(format!(
            "{} {} was answered with {}: {}",
            call.method,
            call.path,
            head.code,
            String::from_utf8_lossy(&self.body(&head).await?)
        ))
    }

    /// The code and the body of the answer.
    pub(crate) async fn answer(&mut self, call: &Call<'_>) -> Result<(u16, Vec<u8>), String> {
        self.send(call).await?;
        let head = self.head().await?;
        let body = self.body(&head).await?;
        Ok((head.code, body))
    }

    /// Sends a watch and reads the head of its answer; then [`Connection::lines`] waits for events.
    pub(crate) async fn watch(&mut self, path: &str) -> Result<(), String> {
        self.send(&Call::get(path)).await?;
        let head = self.head().await?;
        if head.code == 200 && head.length.is_none() {
            Ok(())
        } else {
            Err(format!("the watch {path} was answered with {}", head.code))
        }
    }

    /// Waits until `lines` more lines have come; they are counted, not read. Those of the last chunk are in `seen`.
    pub(crate) async fn lines(&mut self, lines: usize, seen: &mut Vec<u8>) -> Result<(), String> {
        let mut left = lines;
        while left > 0 {
            let came = self.some_lines(seen).await?.ok_or("the watch ended")?;
            left = left.saturating_sub(came);
        }
        Ok(())
    }

    /// Waits for the next chunk of a watch, which is then in `seen`; how many lines it holds. `None` if the server ends
    /// the watch.
    pub(crate) async fn some_lines(&mut self, seen: &mut Vec<u8>) -> Result<Option<usize>, String> {
        seen.clear();
        let came = self.chunk(seen).await?;
        Ok(came.then(|| seen.iter().filter(|byte| **byte == b'\n').count()))
    }

    async fn send(&mut self, call: &Call<'_>) -> Result<(), String> {
        let mut message = format!(
            "{} {} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nAccept: application/json\r\nUser-Agent: bench\r\n",
            call.method, call.path
        );
        if !call.body.is_empty() {
            message += &format!(
                "Content-Type: {}\r\nContent-Length: {}\r\n",
                call.content_type,
                call.body.len()
            );
        }
        message += "\r\n";
        let mut message = message.into_bytes();
        message.extend_from_slice(call.body);
        let failed = |why: std::io::Error| format!("{} {}: {why}", call.method, call.path);
        self.stream.write_all(&message).await.map_err(failed)?;
        self.stream.flush().await.map_err(failed)
    }

    async fn more(&mut self) -> Result<(), String> {
        let read = self.stream.read_buf(&mut self.buffer).await;
        match read {
            Ok(0) => Err("the server closed the connection".to_owned()),
            Ok(_) => Ok(()),
            Err(why) => Err(format!("no answer: {why}")),
        }
    }

    async fn body(&mut self, head: &Head) -> Result<Vec<u8>, String> {
        let mut body = Vec::new();
        match head.length {
            Some(length) => {
                self.fill(length).await?;
                body.extend(self.buffer.drain(..length));
            }
            None => while self.chunk(&mut body).await? {},
        }
        Ok(body)
    }

    /// Reads the body and keeps nothing of it; its length.
    async fn skip_body(&mut self, head: &Head) -> Result<usize, String> {
        if let Some(length) = head.length {
            self.skip(length).await?;
            return Ok(length);
        }
        let mut length = 0;
        loop {
            let size = self.chunk_size().await?;
            self.skip(size + 2).await?;
            length += size;
            if size == 0 {
                return Ok(length);
            }
        }
    }

    async fn skip(&mut self, length: usize) -> Result<(), String> {
        let mut left = length;
        loop {
            let here = left.min(self.buffer.len());
            self.buffer.drain(..here);
            left -= here;
            if left == 0 {
                return Ok(());
            }
            self.more().await?;
        }
    }

    async fn fill(&mut self, length: usize) -> Result<(), String> {
        while self.buffer.len() < length {
            self.more().await?;
        }
        Ok(())
    }

    /// The text up to `end`, which is taken away with it.
    async fn until(&mut self, end: &[u8]) -> Result<Vec<u8>, String> {
        let mut from = 0;
        loop {
            let found = self.buffer[from..].windows(end.len()).position(|window| window == end);
            if let Some(at) = found {
                let text = self.buffer[..from + at].to_vec();
                self.buffer.drain(..from + at + end.len());
                return Ok(text);
            }
            from = self.buffer.len().saturating_sub(end.len());
            self.more().await?;
        }
    }

    async fn head(&mut self) -> Result<Head, String> {
        let text = self.until(b"\r\n\r\n").await?;
        let text = String::from_utf8_lossy(&text).to_ascii_lowercase();
        let code = text
            .get(9..12)
            .and_then(|code| code.parse().ok())
            .ok_or_else(|| format!("no HTTP answer: {text:?}"))?;
        let length = text
            .lines()
            .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        Ok(Head { code, length })
    }

    async fn chunk_size(&mut self) -> Result<usize, String> {
        let size = self.until(b"\r\n").await?;
        let size = String::from_utf8_lossy(&size);
        usize::from_str_radix(size.trim(), 16).map_err(|why| format!("no chunk: {size:?}: {why}"))
    }

    /// Appends one chunk; `false` after the last one.
    async fn chunk(&mut self, into: &mut Vec<u8>) -> Result<bool, String> {
        let size = self.chunk_size().await?;
        self.fill(size + 2).await?;
        into.extend(self.buffer.drain(..size));
        self.buffer.drain(..2);
        Ok(size > 0)
    }
}

struct Head {
    code: u16,
    /// `None`: the body comes in chunks.
    length: Option<usize>,
}
