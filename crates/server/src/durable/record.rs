//! An object as it stands on the disk: by itself, so that it can be verified, and found when nothing around it can be
//! read any more.
//!
//! ```text
//! magic 8 │ kind 1 │ revision 8 │ store 2 │ key 2 │ text 4 │ … store │ key │ text │ checksum 4
//! ```
//!
//! Numbers are little endian; the three lengths are those of the parts that follow. The checksum (CRC-32C) covers
//! everything between the magic and itself. A record of the other kind has no parts: it says that its revision was
//! reached.

/// The beginning of every record. Not text, so that no object can hold it by accident: JSON has no raw control
/// characters.
pub(super) const MAGIC: [u8; 8] = *b"\x01kwrec\x02\n";
const HEAD: usize = 8 + 1 + 8 + 2 + 2 + 4;
const OBJECT: u8 = 1;
const MARK: u8 = 2;

/// A record that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// An object: its revision, store, key and JSON text.
    Object(u64, &'a str, &'a str, &'a [u8]),
    /// The storage has reached this revision.
    Mark(u64),
}

/// The error in a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    /// In words.
    pub(super) why: &'static str,
    /// The object that the record seems to hold, as far as that can be read.
    pub(super) who: Option<(u64, String, String)>,
}

impl Broken {
    fn new(why: &'static str) -> Broken {
        Broken { why, who: None }
    }
}

/// The record of an object; `None` when a name is longer than any that the API accepts.
pub(super) fn object(revision: u64, store: &str, key: &str, text: &[u8]) -> Option<Vec<u8>> {
    let (store_size, key_size) = (u16::try_from(store.len()).ok()?, u16::try_from(key.len()).ok()?);
    let text_size = u32::try_from(text.len()).ok()?;
    let mut out = Vec::with_capacity(HEAD + store.len() + key.len() + text.len() + 4);
    out.extend_from_slice(&MAGIC);
    out.push(OBJECT);
    out.extend_from_slice(&revision.to_le_bytes());
    out.extend_from_slice(&store_size.to_le_bytes());
    out.extend_from_slice(&key_size.to_le_bytes());
    out.extend_from_slice(&text_size.to_le_bytes());
    out.extend_from_slice(store.as_bytes());
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(text);
    seal(&mut out);
    Some(out)
}

/// The record of a revision.
pub(super) fn mark(revision: u64) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.push(MARK);
    out.extend_from_slice(&revision.to_le_bytes());
    out.extend_from_slice(&[0; 8]);
    seal(&mut out);
    out
}

fn seal(out: &mut Vec<u8>) {
    let sum = checksum(&out[MAGIC.len()..]);
    out.extend_from_slice(&sum.to_le_bytes());
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// Reads the record at the beginning of `bytes`; answers how long it is, too.
pub(super) fn read(bytes: &[u8]) -> Result<(Record<'_>, usize), Broken> {
    if !bytes.starts_with(&MAGIC) {
        return Err(Broken::new("does not begin as a record does"));
    }
    parse(bytes).unwrap_or_else(|| Err(Broken::new("is cut off")))
}

/// `None` when the bytes end too early.
fn parse(bytes: &[u8]) -> Option<Result<(Record<'_>, usize), Broken>> {
    let kind = *bytes.get(8)?;
    let revision = u64::from_le_bytes(number(bytes, 9)?);
    let store_size = usize::from(u16::from_le_bytes(number(bytes, 17)?));
    let key_size = usize::from(u16::from_le_bytes(number(bytes, 19)?));
    let text_size = usize::try_from(u32::from_le_bytes(number(bytes, 21)?)).ok()?;
    let (key_at, text_at) = (HEAD + store_size, HEAD + store_size + key_size);
    let names = (bytes.get(HEAD..key_at), bytes.get(key_at..text_at));
    let name = |part: Option<&[u8]>| part.and_then(|part| std::str::from_utf8(part).ok()).map(str::to_owned);
    let broken = |why: &'static str| {
        let who = match (name(names.0), name(names.1)) {
            (Some(store), Some(key)) if !store.is_empty() => Some((revision, store, key)),
            _ => None,
        };
        Some(Err(Broken { why, who }))
    };
    let end = text_at.checked_add(text_size)?;
    let Some(stored) = number(bytes, end) else {
        return broken("is cut off");
    };
    if checksum(&bytes[MAGIC.len()..end]) != u32::from_le_bytes(stored) {
        return broken("fails its checksum");
    }
    let names = (std::str::from_utf8(names.0?), std::str::from_utf8(names.1?));
    match (kind, names) {
        (OBJECT, (Ok(store), Ok(key))) => Some(Ok((
            Record::Object(revision, store, key, &bytes[text_at..end]),
            end + 4,
        ))),
        (MARK, _) => Some(Ok((Record::Mark(revision), end + 4))),
        _ => broken("is of an unknown kind"),
    }
}

/// CRC-32C.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_crc_32c() {
        assert_eq!(checksum(b""), 0);
        assert_eq!(checksum(b"123456789"), 0xe306_9283);
        assert_eq!(checksum(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn records_are_read_back_and_every_flipped_bit_is_seen() {
        let check = |bytes: Vec<u8>, expected: Record<'_>| {
            let mut long = bytes.clone();
            long.extend_from_slice(b"whatever follows");
            assert_eq!(read(&long), Ok((expected, bytes.len())));
            for bit in 0..bytes.len() * 8 {
                let mut flipped = long.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(read(&flipped).is_err(), "bit {bit}");
            }
            for size in 0..bytes.len() {
                assert!(read(&bytes[..size]).is_err(), "{size} bytes");
            }
        };
        let text = br#"{"metadata":{"name":"a"}}"#;
        let stored = object(7, "configmaps", "default/a", text).expect("short names");
        check(stored, Record::Object(7, "configmaps", "default/a", text));
        check(mark(9), Record::Mark(9));
        assert_eq!(object(7, "s", &"k".repeat(70_000), b"{}"), None);
    }
}
