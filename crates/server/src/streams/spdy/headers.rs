//! The headers of SPDY/3.1: blocks of names and values, compressed with one history for a whole connection.
//!
//! Headers of clients are inflated; those to them are in stored blocks, which every inflater reads. Invariants: a block
//! has a bound ([`LARGEST`]), compressed or not; nothing but the window of 32 KiB is kept between blocks. Pure.

use std::collections::BTreeMap;

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

use super::dictionary::{CHECKSUM, dictionary};

/// How many bytes of a block are read, as they are when they are inflated.
const LARGEST: usize = 16 * 1024;
/// How far back inflated data may refer.
const WINDOW: usize = 32 * 1024;

/// The headers of a stream; names are in small letters.
pub(in crate::streams) type Headers = BTreeMap<String, String>;

/// Reads the blocks of a connection, in the order in which they come.
pub(super) struct Reader {
    inflater: Box<DecompressorOxide>,
    window: Box<[u8]>,
    at: usize,
    has_begun: bool,
}

impl Reader {
    pub(super) fn new() -> Reader {
        let mut window = vec![0; WINDOW].into_boxed_slice();
        let known = dictionary();
        window[..known.len()].copy_from_slice(&known);
        Reader {
            inflater: Box::default(),
            at: known.len(),
            window,
            has_begun: false,
        }
    }

    /// Reads a block.
    ///
    /// # Errors
    /// In words, when it is none, or too large. Nothing behind it can be read then.
    pub(super) fn read(&mut self, mut block: &[u8]) -> Result<Headers, &'static str> {
        if !self.has_begun {
            // RFC 1950: deflate, a preset dictionary, and which.
            let [method, flags, known @ ..] = block else {
                return Err("headers without a beginning");
            };
            let is_zlib = method & 0x0f == 8 && (u16::from(*method) << 8 | u16::from(*flags)) % 31 == 0;
            if !is_zlib || flags & 0x20 == 0 || !known.starts_with(&CHECKSUM) {
                return Err("headers that are not compressed with the dictionary of SPDY/3.1");
            }
            block = &known[CHECKSUM.len()..];
            self.has_begun = true;
        }
        parse(&self.inflate(block)?)
    }

    fn inflate(&mut self, mut block: &[u8]) -> Result<Vec<u8>, &'static str> {
        let mut all = Vec::new();
        loop {
            let (status, read, written) = decompress(
                &mut self.inflater,
                block,
                &mut self.window,
                self.at,
                TINFL_FLAG_HAS_MORE_INPUT,
            );
            all.extend_from_slice(&self.window[self.at..self.at + written]);
            self.at = (self.at + written) % WINDOW;
            block = &block[read..];
            if all.len() > LARGEST {
                return Err("headers that are too large");
            }
            match status {
                TINFLStatus::NeedsMoreInput if block.is_empty() => return Ok(all),
                TINFLStatus::HasMoreOutput | TINFLStatus::NeedsMoreInput if read + written > 0 => {}
                _ => return Err("headers that cannot be inflated"),
            }
        }
    }
}

fn parse(mut block: &[u8]) -> Result<Headers, &'static str> {
    fn number(block: &mut &[u8]) -> Option<usize> {
        let (number, rest) = block.split_first_chunk::<4>()?;
        *block = rest;
        usize::try_from(u32::from_be_bytes(*number)).ok()
    }
    fn text(block: &mut &[u8]) -> Option<String> {
        let length = number(block)?;
        let (text, rest) = block.split_at_checked(length)?;
        *block = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    }
    let broken = "headers that are cut off";
    let count = number(&mut block).ok_or(broken)?;
    let mut headers = Headers::new();
    // Each takes eight bytes at least, so that the block bounds the count.
    for _ in 0..count {
        let name = text(&mut block).ok_or(broken)?;
        let value = text(&mut block).ok_or(broken)?;
        headers.insert(name.to_ascii_lowercase(), value);
    }
    Ok(headers)
}

/// No headers, as a block; `is_first` on its connection.
pub(super) fn none(is_first: bool) -> Vec<u8> {
    // RFC 1951: a stored block of four bytes, which are the count, and an empty one: it makes inflaters hand out their
    // data.
    let block = [0x00, 0x04, 0x00, 0xfb, 0xff, 0, 0, 0, 0, 0x00, 0x00, 0x00, 0xff, 0xff];
    let beginning: &[u8] = if is_first { &[0x78, 0x01] } else { &[] };
    [beginning, &block].concat()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// No headers, as a client says it: with the dictionary.
    pub(in crate::streams::spdy) fn empty(is_first: bool) -> Vec<u8> {
        let block = none(false);
        let beginning: &[u8] = if is_first { &[0x78, 0xbb] } else { &[] };
        let known: &[u8] = if is_first { &CHECKSUM } else { &[] };
        [beginning, known, &block].concat()
    }

    /// Two blocks as a Go client sent them: of the error stream and of the data stream of a forwarded port.
    const FIRST: &str = include_str!("../../../testdata/spdy-headers.txt");

    fn bytes(hex: &str) -> Vec<u8> {
        let pairs = hex.as_bytes().chunks(2);
        let pairs = pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("hex"), 16).expect("hex"));
        pairs.collect()
    }

    #[test]
    fn blocks_share_their_history() {
        let mut reader = Reader::new();
        let found: Vec<_> = FIRST
            .lines()
            .map(|line| reader.read(&bytes(line)).expect("a block"))
            .map(|headers| format!("{headers:?}"))
            .collect();
        assert_eq!(
            found,
            [
                r#"{"port": "5432", "requestid": "0", "streamtype": "error"}"#,
                r#"{"port": "5432", "requestid": "0", "streamtype": "data"}"#,
                r#"{"port": "5432", "requestid": "1", "streamtype": "error"}"#,
            ]
        );
    }

    #[test]
    fn what_is_no_block_is_refused() {
        let check = |block: &[u8], expected: &str| {
            assert_eq!(Reader::new().read(block), Err(expected), "{block:x?}");
        };
        let begun = |rest: &[u8]| [&[0x78, 0xbb], &CHECKSUM[..], rest].concat();
        check(b"", "headers without a beginning");
        check(
            &[0x78, 0x9c, 1, 2, 3, 4],
            "headers that are not compressed with the dictionary of SPDY/3.1",
        );
        check(&begun(&[0xff, 0xff]), "headers that cannot be inflated");
        check(&begun(&[]), "headers that are cut off");
        // One header whose name would be of 4 GiB.
        let cut = [0x00, 0x08, 0x00, 0xf7, 0xff, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff];
        check(&begun(&cut), "headers that are cut off");
        // 20,000 bytes in stored blocks.
        let mut much = begun(&[]);
        for _ in 0..20 {
            much.extend_from_slice(&[0x00, 0xe8, 0x03, 0x17, 0xfc]);
            much.extend_from_slice(&[0; 1000]);
        }
        check(&much, "headers that are too large");
    }

    #[test]
    fn any_bytes_do_no_harm() {
        let mut seed = 1u32;
        for _ in 0..2000 {
            let mut block = vec![0x78, 0xbb];
            block.extend_from_slice(&CHECKSUM);
            for _ in 0..64 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                block.extend_from_slice(&seed.to_be_bytes()[..2]);
            }
            // Any block is answered, with headers or an error.
            let _ = Reader::new().read(&block);
        }
    }
}
