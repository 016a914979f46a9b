//! The frames of SPDY/3.1, as far as kubectl and client-go (`moby/spdystream`) use them.
//!
//! Pure. Invariants: no frame is larger than [`LARGEST`]; an unknown frame is skipped, a broken one ends the
//! connection.

use bytes::{Buf as _, Bytes, BytesMut};

use super::headers::{self, Headers};

/// The most bytes of a frame that are read, and of one that is sent.
pub(super) const LARGEST: usize = 1024 * 1024;
const SENT: usize = 32 * 1024;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;
const FIN: u8 = 1;

/// Why a stream is reset: the server takes no more of them.
pub(super) const REFUSED: u32 = 3;
/// The reason of a reset: the sender wants nothing more of the stream.
pub(super) const CANCEL: u32 = 5;

/// A frame of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// A stream, and whether the client sends nothing on it.
    Open(u32, Headers, bool),
    Data(u32, Bytes, bool),
    Reset(u32),
    Ping(u32),
    Leave,
    /// A frame that does not matter here.
    Other,
}

/// Reads the frames of a client.
pub(super) struct Reader {
    buffer: BytesMut,
    headers: headers::Reader,
}

impl Reader {
    pub(super) fn new() -> Reader {
        Reader {
            buffer: BytesMut::new(),
            headers: headers::Reader::new(),
        }
    }

    /// Takes the bytes that have come.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame that has come as a whole.
    ///
    /// # Errors
    /// In words; nothing behind it can be read.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, &'static str> {
        let Some((head, _)) = self.buffer.split_first_chunk::<8>() else {
            return Ok(None);
        };
        let first = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let flags = head[4];
        let length = u32::from_be_bytes([0, head[5], head[6], head[7]]);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > LARGEST {
            return Err("a frame that is too large");
        }
        if self.buffer.len() < 8 + length {
            return Ok(None);
        }
        self.buffer.advance(8);
        let body = self.buffer.split_to(length).freeze();
        let is_last = flags & FIN != 0;
        if first >> 31 == 0 {
            return Ok(Some(Frame::Data(first, body, is_last)));
        }
        if first >> 16 & 0x7fff != 3 {
            return Err("a frame of another version than 3");
        }
        // The lower half of the word.
        self.control((first & 0xffff) as u16, body, is_last).map(Some)
    }

    fn control(&mut self, kind: u16, mut body: Bytes, is_last: bool) -> Result<Frame, &'static str> {
        // Frames that begin with their stream, and the number of bytes before their headers.
        let before = match kind {
            SYN_STREAM => 10,
            RST_STREAM | GOAWAY => 8,
            SYN_REPLY | PING | HEADERS => 4,
            _ => return Ok(Frame::Other),
        };
        if body.len() < before {
            return Err("a frame that is too short");
        }
        let stream = body.slice(..before).get_u32() & 0x7fff_ffff;
        body.advance(before);
        Ok(match kind {
            SYN_STREAM => Frame::Open(stream, self.headers.read(&body)?, is_last),
            RST_STREAM => Frame::Reset(stream),
            PING => Frame::Ping(stream),
            GOAWAY => Frame::Leave,
            // They are read all the same: later headers refer to them.
            SYN_REPLY | HEADERS => {
                self.headers.read(&body)?;
                Frame::Other
            }
            _ => Frame::Other,
        })
    }
}

fn control(kind: u16, body: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(8 + body.len());
    frame.extend_from_slice(&[0x80, 3]);
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(&u32::try_from(body.len()).unwrap_or_default().to_be_bytes());
    frame.extend_from_slice(body);
    frame.freeze()
}

/// Accepts a stream; `is_first` on its connection.
pub(super) fn reply(stream: u32, is_first: bool) -> Bytes {
    control(
        SYN_REPLY,
        &[&stream.to_be_bytes()[..], &headers::none(is_first)].concat(),
    )
}

pub(super) fn reset(stream: u32, why: u32) -> Bytes {
    control(RST_STREAM, &[stream.to_be_bytes(), why.to_be_bytes()].concat())
}

pub(super) fn ping(id: u32) -> Bytes {
    control(PING, &id.to_be_bytes())
}

/// The data of a stream, in frames of a size that every client takes.
pub(super) fn data(stream: u32, bytes: &[u8]) -> impl Iterator<Item = Bytes> {
    bytes.chunks(SENT).map(move |piece| data_frame(stream, piece, 0))
}

/// The end of a stream.
pub(super) fn end(stream: u32) -> Bytes {
    data_frame(stream, &[], FIN)
}

fn data_frame(stream: u32, piece: &[u8], flags: u8) -> Bytes {
    let mut frame = BytesMut::with_capacity(8 + piece.len());
    frame.extend_from_slice(&(stream & 0x7fff_ffff).to_be_bytes());
    let length = u32::try_from(piece.len()).unwrap_or_default().to_be_bytes();
    frame.extend_from_slice(&[flags, length[1], length[2], length[3]]);
    frame.extend_from_slice(piece);
    frame.freeze()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A stream without headers, as a client opens it.
    pub(in crate::streams::spdy) fn open(stream: u32, is_first: bool) -> Bytes {
        let mut body = [stream.to_be_bytes(), [0; 4]].concat();
        body.extend_from_slice(&[0, 0]);
        body.extend_from_slice(&headers::tests::empty(is_first));
        control(SYN_STREAM, &body)
    }

    /// A frame of data, however large.
    pub(in crate::streams::spdy) fn data(stream: u32, piece: &[u8]) -> Bytes {
        data_frame(stream, piece, 0)
    }

    fn read(bytes: &[u8]) -> Result<Vec<Frame>, &'static str> {
        let mut reader = Reader::new();
        let mut all = Vec::new();
        // However the bytes come apart.
        for byte in bytes {
            reader.take(&[*byte]);
            while let Some(frame) = reader.next()? {
                all.push(frame);
            }
        }
        Ok(all)
    }

    #[test]
    fn what_clients_send() {
        let check = |bytes: &[u8], expected: Frame| assert_eq!(read(bytes), Ok(vec![expected]), "{bytes:x?}");
        check(
            &[0, 0, 0, 5, 0, 0, 0, 2, b'h', b'i'],
            Frame::Data(5, Bytes::from_static(b"hi"), false),
        );
        check(&end(5), Frame::Data(5, Bytes::new(), true));
        check(&reset(5, CANCEL), Frame::Reset(5));
        check(&ping(9), Frame::Ping(9));
        check(&control(GOAWAY, &[0; 8]), Frame::Leave);
        check(&control(4, &[0; 4]), Frame::Other);
    }

    #[test]
    fn what_is_broken() {
        let check = |bytes: &[u8], expected: &'static str| assert_eq!(read(bytes), Err(expected), "{bytes:x?}");
        check(&[0, 0, 0, 5, 0, 0xff, 0xff, 0xff], "a frame that is too large");
        check(&[0x80, 2, 0, 1, 0, 0, 0, 0], "a frame of another version than 3");
        check(&control(SYN_STREAM, &[0; 9]), "a frame that is too short");
        check(&control(SYN_STREAM, &[0; 10]), "headers without a beginning");
    }

    #[test]
    fn data_goes_in_pieces() {
        let lengths: Vec<usize> = super::data(1, &[7; 70_000]).map(|frame| frame.len() - 8).collect();
        assert_eq!(lengths, [SENT, SENT, 70_000 - 2 * SENT]);
    }
}
