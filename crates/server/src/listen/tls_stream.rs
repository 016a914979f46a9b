//! TLS over a socket, for connections of which there are many and which mostly rest.
//!
//! A stream with buffers of its own holds several KiB for each connection as long as it is open. Here records are
//! decrypted where they were read and encrypted where they are written from, in buffers that all connections of a
//! thread share; a connection keeps incomplete records, and bytes that its client or its socket has not taken, and
//! nothing while it rests. The protocol is rustls', in its form for callers with buffers of their own
//! ([`UnbufferedServerConnection`]).
//!
//! Invariants:
//! - bytes leave in the order in which rustls made them: its own messages go out before data that is encrypted after
//!   them;
//! - nothing is read while decrypted bytes wait, and nothing is encrypted while encrypted bytes wait: each has a bound;
//! - a client that ends without a goodbye is an error, never the end of its data.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, InsufficientSizeError, UnbufferedStatus, WriteTraffic,
};
use rustls::{ProtocolVersion, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// One record of TLS as it is sent: 16 KiB of plain text with its header and trailer.
const RECORD: usize = 16 * 1024 + 1024;

/// How much is encrypted at a time, and written with one call of the system.
const BATCH: usize = 4 * 16 * 1024;

/// The most bytes that are kept of a client: the longest message of a handshake that rustls takes, and the record
/// behind it.
const MAX_INCOMING: usize = 64 * 1024 + 2 * RECORD;

thread_local! {
    /// Where records are read.
    static READ: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// Where records are made.
    static WRITE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// Where short pieces of plain text become one record.
    static GATHER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The server's end of a TLS connection.
pub(crate) struct TlsStream<S> {
    socket: S,
    session: UnbufferedServerConnection,
    /// The beginning of a record, or of a message in several of them.
    incoming: Vec<u8>,
    /// Decrypted bytes that the reader has not taken yet.
    plain: ReadBuffer,
    /// Records that the socket has not taken yet.
    outgoing: ReadBuffer,
    /// Whether the client has said that nothing follows.
    ended: bool,
    /// Whether we have.
    said_goodbye: bool,
}

/// Bytes that wait for their reader, which takes them from the front.
#[derive(Default)]
struct ReadBuffer {
    bytes: Vec<u8>,
    taken: usize,
}

impl ReadBuffer {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }

    fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Gives its memory back with the last byte.
    fn take(&mut self, count: usize) {
        self.taken += count;
        if self.is_empty() {
            *self = ReadBuffer::default();
        }
    }
}

/// The right to encrypt something.
type Traffic<'a> = WriteTraffic<'a, ServerConnectionData>;

/// The data to encrypt.
#[derive(Clone, Copy)]
enum Outgoing<'a> {
    Plain(&'a [u8]),
    /// That nothing follows.
    Goodbye,
}

impl Outgoing<'_> {
    fn len(self) -> usize {
        match self {
            Outgoing::Plain(bytes) => bytes.len(),
            Outgoing::Goodbye => 0,
        }
    }

    fn write(self, traffic: &mut Traffic<'_>, into: &mut [u8]) -> Result<usize, EncryptError> {
        match self {
            Outgoing::Plain(bytes) => traffic.encrypt(bytes, into),
            Outgoing::Goodbye => traffic.queue_close_notify(into),
        }
    }
}

/// The error of rustls, as one of a stream.
fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream<S> {
    /// Waits until the client has shown that it speaks TLS as `config` has it, and has sent its certificate if it has
    /// one.
    ///
    /// # Errors
    /// When it does not, or goes. It is told why, if it listens.
    pub(crate) async fn accept(socket: S, config: Arc<ServerConfig>) -> io::Result<TlsStream<S>> {
        let mut stream = TlsStream {
            socket,
            session: UnbufferedServerConnection::new(config).map_err(invalid)?,
            incoming: Vec::new(),
            plain: ReadBuffer::default(),
            outgoing: ReadBuffer::default(),
            ended: false,
            said_goodbye: false,
        };
        while stream.session.is_handshaking() {
            // The client may not read before it has sent something, and the other way round.
            let heard = poll_fn(|cx| match stream.poll_send(cx) {
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) | Poll::Pending => stream.poll_hear(cx),
            });
            if let Err(error) = heard.await {
                // The alert goes as far as the socket takes it now.
                let _ = poll_fn(|cx| Poll::Ready(stream.poll_send(cx))).await;
                return Err(error);
            }
        }
        if stream.session.protocol_version() == Some(ProtocolVersion::TLSv1_3) {
            // Only a ticket is left: the client's handshake is over, and it may send before it reads.
            poll_fn(|cx| Poll::Ready(stream.send_some(cx))).await?;
        } else {
            poll_fn(|cx| stream.poll_send(cx)).await?;
        }
        Ok(stream)
    }

    /// The TLS session of the client.
    pub(crate) fn session(&self) -> &UnbufferedServerConnection {
        &self.session
    }

    /// Reads once and processes the bytes: plain text, the client's goodbye, a message to answer.
    fn poll_hear(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        READ.with_borrow_mut(|buffer| {
            buffer.resize(RECORD, 0);
            let mut read = ReadBuf::new(buffer);
            ready!(Pin::new(&mut self.socket).poll_read(cx, &mut read))?;
            let count = read.filled().len();
            if count == 0 {
                let why = "the client closed the connection without a TLS close_notify";
                return Poll::Ready(Err(io::Error::new(ErrorKind::UnexpectedEof, why)));
            }
            Poll::Ready(self.hear(&mut buffer[..count]))
        })
    }

    fn hear(&mut self, read: &mut [u8]) -> io::Result<()> {
        if self.incoming.is_empty() {
            let used = self.process(read, |_| Ok(()))?;
            self.incoming.extend_from_slice(&read[used..]);
            return Ok(());
        }
        self.incoming.extend_from_slice(read);
        self.process_incoming(|_| Ok(()))?;
        if self.incoming.len() > MAX_INCOMING {
            return Err(io::Error::new(ErrorKind::InvalidData, "a TLS message is too long"));
        }
        Ok(())
    }

    /// Processes the kept bytes: rustls counts on seeing all of them each time.
    fn process_incoming(&mut self, idle: impl FnOnce(Traffic<'_>) -> io::Result<()>) -> io::Result<()> {
        let mut incoming = mem::take(&mut self.incoming);
        let used = self.process(&mut incoming, idle)?;
        if used < incoming.len() {
            incoming.drain(..used);
            self.incoming = incoming;
        }
        Ok(())
    }

    /// Works on records until more of them are needed, and then lets `idle` say something if that may be; how many
    /// bytes are done with.
    fn process(&mut self, records: &mut [u8], idle: impl FnOnce(Traffic<'_>) -> io::Result<()>) -> io::Result<usize> {
        let mut used = 0;
        loop {
            let UnbufferedStatus { mut discard, state } = self.session.process_tls_records(&mut records[used..]);
            let state = match state {
                Ok(state) => state,
                Err(error) => {
                    self.encode_alert(&mut records[used + discard..])?;
                    return Err(invalid(error));
                }
            };
            match state {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(invalid)?;
                        discard += record.discard;
                        self.plain.add(record.payload);
                    }
                }
                ConnectionState::EncodeTlsData(data) => encode(data, &mut self.outgoing)?,
                // It is in the outgoing bytes, which nothing overtakes.
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::PeerClosed => self.ended = true,
                ConnectionState::Closed => {
                    self.ended = true;
                    return Ok(used + discard);
                }
                ConnectionState::BlockedHandshake => return Ok(used + discard),
                ConnectionState::WriteTraffic(traffic) => {
                    idle(traffic)?;
                    return Ok(used + discard);
                }
                other => {
                    let why = format!("an unexpected state of TLS: {other:?}");
                    return Err(io::Error::new(ErrorKind::Unsupported, why));
                }
            }
            used += discard;
        }
    }

    /// Encodes the alert of rustls for the error that it has just reported.
    fn encode_alert(&mut self, records: &mut [u8]) -> io::Result<()> {
        // Beyond its own messages it would come across the error again.
        while self.session.wants_write() {
            let Ok(ConnectionState::EncodeTlsData(data)) = self.session.process_tls_records(records).state else {
                break;
            };
            encode(data, &mut self.outgoing)?;
        }
        Ok(())
    }

    /// Gives the socket the waiting bytes.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outgoing.is_empty() {
            match ready!(Pin::new(&mut self.socket).poll_write(cx, self.outgoing.rest()))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                count => self.outgoing.take(count),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Gives the socket as much of that as it takes now.
    fn send_some(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.poll_send(cx) {
            Poll::Ready(sent) => sent,
            Poll::Pending => Ok(()),
        }
    }

    /// Encrypts this and sends it as far as the socket takes it.
    fn say(&mut self, cx: &mut Context<'_>, what: Outgoing<'_>) -> io::Result<()> {
        WRITE.with_borrow_mut(|buffer| {
            let mut made = None;
            self.process_incoming(|mut traffic| {
                // Each record has a head and a tag.
                buffer.resize(buffer.len().max(what.len() + 1024), 0);
                let written = match what.write(&mut traffic, buffer) {
                    Err(EncryptError::InsufficientSize(InsufficientSizeError { required_size })) => {
                        buffer.resize(required_size, 0);
                        what.write(&mut traffic, buffer)
                    }
                    written => written,
                };
                made = Some(written.map_err(invalid)?);
                Ok(())
            })?;
            let Some(made) = made else {
                return Err(io::Error::new(ErrorKind::NotConnected, "the TLS connection is closed"));
            };
            let mut rest = &buffer[..made];
            if self.outgoing.is_empty()
                && let Poll::Ready(sent) = Pin::new(&mut self.socket).poll_write(cx, rest)
            {
                rest = &rest[sent?..];
            }
            self.outgoing.add(rest);
            Ok(())
        })
    }
}

/// Encodes a message of rustls itself, behind the waiting bytes.
fn encode<D>(mut data: EncodeTlsData<'_, D>, outgoing: &mut ReadBuffer) -> io::Result<()> {
    let from = outgoing.bytes.len();
    loop {
        match data.encode(&mut outgoing.bytes[from..]) {
            Ok(written) => {
                outgoing.bytes.truncate(from + written);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) => {
                outgoing.bytes.resize(from + required_size, 0);
            }
            Err(error @ EncodeError::AlreadyEncoded) => return Err(invalid(error)),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.plain.is_empty() && !this.ended {
            // The other end may wait for the waiting bytes; whether the socket takes them now does not matter to the
            // reader.
            this.send_some(cx)?;
            let heard = ready!(this.poll_hear(cx));
            // A record may ask for an answer.
            this.send_some(cx)?;
            heard?;
        }
        let rest = this.plain.rest();
        let count = rest.len().min(into.remaining());
        into.put_slice(&rest[..count]);
        this.plain.take(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, plain: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_send(cx))?;
        let plain = &plain[..plain.len().min(BATCH)];
        if !plain.is_empty() {
            this.say(cx, Outgoing::Plain(plain))?;
        }
        Poll::Ready(Ok(plain.len()))
    }

    /// Pieces that fill no record of their own share one: each record costs a head, a tag and its client a turn.
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        const FULL: usize = 16 * 1024;
        let mut pieces = pieces.iter().filter(|piece| !piece.is_empty());
        let Some(first) = pieces.next() else {
            return Poll::Ready(Ok(0));
        };
        if first.len() >= FULL {
            return self.poll_write(cx, first);
        }
        GATHER.with_borrow_mut(|gathered| {
            gathered.clear();
            gathered.extend_from_slice(first);
            for piece in pieces {
                let count = piece.len().min(FULL - gathered.len());
                gathered.extend_from_slice(&piece[..count]);
            }
            self.poll_write(cx, gathered)
        })
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_send(cx))?;
        if !this.said_goodbye {
            this.said_goodbye = true;
            this.say(cx, Outgoing::Goodbye)?;
            ready!(this.poll_send(cx))?;
        }
        Pin::new(&mut this.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion, version};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client::TlsStream as ClientStream;

    use super::*;
    use crate::certificates::Authority;
    use crate::listen::Tls;
    use crate::tls::Serving;

    const BOTH: [&SupportedProtocolVersion; 2] = [&version::TLS12, &version::TLS13];

    /// Both ends, over a connection that takes so many bytes at a time.
    struct Ends {
        server: TlsStream<DuplexStream>,
        client: ClientStream<DuplexStream>,
    }

    fn configs(version: &'static SupportedProtocolVersion) -> (Arc<ServerConfig>, Arc<ClientConfig>) {
        let authority = Authority::new().expect("an authority");
        let serving = authority.serving([127, 0, 0, 1].into()).expect("a certificate");
        let tls = Tls::new(Serving::from(&serving), Some(vec![authority.der().clone()])).expect("a configuration");
        let admin = authority.admin().expect("a client");
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![admin.certificate_der()], admin.key_der())
            .expect("a client's certificate");
        (tls.config.clone(), Arc::new(client))
    }

    async fn ends(version: &'static SupportedProtocolVersion, width: usize) -> Ends {
        let (server, client) = configs(version);
        let (near, far) = tokio::io::duplex(width);
        let name = ServerName::try_from("localhost").expect("a name");
        let connector = TlsConnector::from(client);
        let (server, client) = tokio::join!(TlsStream::accept(near, server), connector.connect(name, far));
        Ends {
            server: server.expect("the server's end"),
            client: client.expect("the client's end"),
        }
    }

    fn text(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at % 251) as u8).collect()
    }

    /// Sends this to the other end and back.
    async fn check(ends: &mut Ends, length: usize) {
        let sent = text(length);
        let (mut came, mut back) = (vec![0; length], vec![0; length]);
        let Ends { server, client } = ends;
        let there = async {
            client.write_all(&sent).await.expect("the client sends");
            client.flush().await.expect("the client sends all");
            client.read_exact(&mut back).await.expect("the client reads");
        };
        let here = async {
            server.read_exact(&mut came).await.expect("the server reads");
            // The first half in small pieces.
            let (first, second) = came.split_at(length / 2);
            let pieces: Vec<IoSlice<'_>> = first.chunks(length / 20 + 1).map(IoSlice::new).collect();
            let mut pieces = &mut { pieces }[..];
            while !pieces.is_empty() {
                let count = server.write_vectored(pieces).await.expect("the server sends pieces");
                IoSlice::advance_slices(&mut pieces, count);
            }
            server.write_all(second).await.expect("the server sends");
            server.flush().await.expect("the server sends all");
        };
        tokio::join!(there, here);
        assert!(came == sent && back == sent, "{length} bytes were changed on their way");
    }

    #[tokio::test]
    async fn what_is_sent_arrives() {
        for version in BOTH {
            for (width, longest) in [(1, 3000), (7, 20_000), (1500, 100_000), (1 << 20, 500_000)] {
                let mut ends = ends(version, width).await;
                for length in [1, 2, 100, 16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1, longest] {
                    let length = length.min(longest);
                    check(&mut ends, length).await;
                }
            }
        }
    }

    #[tokio::test]
    async fn a_connection_that_rests_keeps_nothing() {
        for version in BOTH {
            let mut ends = ends(version, 1 << 20).await;
            check(&mut ends, 100_000).await;
            let mut byte = [0];
            let resting = tokio::time::timeout(std::time::Duration::ZERO, ends.server.read(&mut byte)).await;
            assert!(resting.is_err());
            let TlsStream {
                incoming,
                plain,
                outgoing,
                ..
            } = &ends.server;
            let kept = [incoming.capacity(), plain.bytes.capacity(), outgoing.bytes.capacity()];
            assert_eq!(kept, [0; 3]);
        }
    }

    #[tokio::test]
    async fn the_server_knows_the_client() {
        for version in BOTH {
            let ends = ends(version, 100).await;
            let session = ends.server.session();
            assert_eq!(session.peer_certificates().map(<[_]>::len), Some(1));
            let spoken = session.protocol_version();
            assert!(spoken == Some(ProtocolVersion::TLSv1_2) || spoken == Some(ProtocolVersion::TLSv1_3));
        }
    }

    #[tokio::test]
    async fn keys_change_while_both_go_on() {
        let mut ends = ends(&version::TLS13, 64).await;
        for turn in 0..5 {
            check(&mut ends, 1000).await;
            if turn % 2 == 0 {
                let (_, client) = ends.client.get_mut();
                client.refresh_traffic_keys().expect("other keys");
            }
        }
    }

    #[tokio::test]
    async fn goodbyes_are_heard() {
        for version in BOTH {
            // The client's: the server may still answer.
            let mut these = ends(version, 100).await;
            these.client.write_all(b"last").await.expect("a word");
            these.client.shutdown().await.expect("a goodbye");
            let mut came = Vec::new();
            these.server.read_to_end(&mut came).await.expect("an end");
            assert_eq!(came, b"last");
            assert_eq!(these.server.read(&mut [0]).await.expect("still the end"), 0);
            // The server's.
            let mut these = ends(version, 1 << 20).await;
            these.server.write_all(b"last").await.expect("a word");
            these.server.shutdown().await.expect("a goodbye");
            let mut came = Vec::new();
            these.client.read_to_end(&mut came).await.expect("an end");
            assert_eq!(came, b"last");
            // None at all.
            let mut these = ends(version, 1 << 20).await;
            these.client.write_all(b"last").await.expect("a word");
            these.client.flush().await.expect("a word");
            drop(these.client);
            let mut came = Vec::new();
            let error = these.server.read_to_end(&mut came).await.expect_err("no goodbye");
            assert_eq!((&came[..], error.kind()), (&b"last"[..], ErrorKind::UnexpectedEof));
        }
    }

    #[tokio::test]
    async fn a_broken_handshake_gets_an_alert() {
        let (config, _) = configs(&version::TLS13);
        let (near, mut far) = tokio::io::duplex(1024);
        far.write_all(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00")
            .await
            .expect("some bytes");
        let refused = TlsStream::accept(near, config).await.err().expect("no TLS");
        assert_eq!(refused.kind(), ErrorKind::InvalidData);
        let mut alert = [0; 2];
        far.read_exact(&mut alert).await.expect("an alert");
        assert_eq!(alert, [21, 3]);
    }

    #[tokio::test]
    async fn a_record_that_was_changed_on_its_way_ends_the_connection() {
        let mut ends = ends(&version::TLS13, 1 << 20).await;
        let (socket, _) = ends.client.get_mut();
        socket
            .write_all(b"\x17\x03\x03\x00\x20abcdefghijklmnopqrstuvwxyz012345")
            .await
            .expect("some bytes");
        let error = ends.server.read(&mut [0]).await.expect_err("no record");
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        let error = ends.client.read(&mut [0]).await.expect_err("an alert");
        assert!(error.to_string().contains("BadRecordMac"), "{error}");
    }
}
