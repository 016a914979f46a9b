//! Bytes in texts, as Go's `base64.StdEncoding` reads them: line ends count for nothing, and so do the bits of the last
//! digit that belong to no byte. So many texts stand for the same bytes; [`canonical`] is the one that Go writes.

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::{PAD, STANDARD};

/// Takes bits that belong to no byte.
const LENIENT: GeneralPurpose = GeneralPurpose::new(&ALPHABET, PAD.with_decode_allow_trailing_bits(true));

const LINE_ENDS: [char; 2] = ['\r', '\n'];

fn without_line_ends(text: &str) -> Cow<'_, str> {
    if text.contains(LINE_ENDS) {
        Cow::Owned(text.replace(LINE_ENDS, ""))
    } else {
        Cow::Borrowed(text)
    }
}

/// The bytes of a text.
///
/// ```
/// use kubewright_values::base64::decode;
/// assert_eq!(decode("YQ=="), Ok(b"a".to_vec()));
/// assert_eq!(decode("YR=\n="), Ok(b"a".to_vec()));
/// assert_eq!(decode("a!bc"), Err(1));
/// ```
///
/// # Errors
/// The offset that Go tells (`illegal base64 data at input byte 1`).
pub fn decode(text: &str) -> Result<Vec<u8>, usize> {
    LENIENT
        .decode(without_line_ends(text).as_bytes())
        .map_err(|_| offset(text.as_bytes()))
}

/// The text that Go writes for the same bytes, for one that [`decode`] takes.
///
/// ```
/// use kubewright_values::base64::canonical;
/// assert_eq!(canonical("YR=\n="), "YQ==");
/// ```
pub fn canonical(text: &str) -> Cow<'_, str> {
    let mut whole = without_line_ends(text);
    // Only the last digit before the padding can have bits left over.
    let Some(begin) = whole.len().checked_sub(4).filter(|_| whole.ends_with('=')) else {
        return whole;
    };
    let last = whole.get(begin..).and_then(|last| LENIENT.decode(last).ok());
    let written = last.map(|bytes| STANDARD.encode(bytes));
    if let Some(written) = written
        && !whole.ends_with(&written)
    {
        whole.to_mut().replace_range(begin.., &written);
    }
    whole
}

/// Where Go finds the mistake of a text that it does not take.
fn offset(text: &[u8]) -> usize {
    let is_line_end = |b: &u8| matches!(b, b'\r' | b'\n');
    let is_digit = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
    // The characters that count, each with its place.
    let mut counting = text.iter().enumerate().filter(|(_, b)| !is_line_end(b)).peekable();
    let mut digits = 0;
    while counting.next_if(|(_, b)| is_digit(b)).is_some() {
        digits += 1;
    }
    let Some((at, first)) = counting.next() else {
        // Digits that are not four: Go has read to the end, and counts back as many as there are.
        return text.len() - digits % 4;
    };
    if *first != b'=' || digits % 4 < 2 {
        return at;
    }
    if digits % 4 == 2 {
        match counting.next() {
            Some((_, b'=')) => {}
            // Another character means that one is missing before it.
            Some((other, _)) => return other - 1,
            None => return text.len(),
        }
    }
    // Something stands behind the end.
    counting.next().map_or(text.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checked with Go's `base64.StdEncoding.DecodeString`: the text that it writes for the bytes, or where it finds a
    /// mistake.
    #[test]
    fn texts_are_read_as_go_reads_them() {
        for (text, want) in [
            ("", Ok("")),
            ("YQ==", Ok("YQ==")),
            ("YR==", Ok("YQ==")),
            ("Yf==", Ok("YQ==")),
            ("YWI=", Ok("YWI=")),
            ("YWJ=", Ok("YWI=")),
            ("YWK=", Ok("YWI=")),
            ("YWJj", Ok("YWJj")),
            ("YQ==\n", Ok("YQ==")),
            ("YQ=\n=", Ok("YQ==")),
            ("YQ\n==\r\n", Ok("YQ==")),
            ("Y\nR=\n=\n", Ok("YQ==")),
            ("Y", Err(0)),
            ("YW", Err(0)),
            ("YWI", Err(0)),
            ("YQ=", Err(3)),
            ("Y===", Err(1)),
            ("=", Err(0)),
            ("YQ==YQ==", Err(4)),
            ("YQ=x", Err(2)),
            ("YQ==x", Err(4)),
            ("a!bc", Err(1)),
            ("YWJjZ", Err(4)),
            ("YWJj\nZ", Err(5)),
            ("YWJjZGU", Err(4)),
            ("YWI==", Err(4)),
            ("YWI=YWI=", Err(4)),
            ("ä", Err(0)),
            ("YQ=\n", Err(4)),
            ("YWJjZ\n\n", Err(6)),
            ("Y\n\nW", Err(2)),
        ] {
            let written = decode(text).map(|bytes| STANDARD.encode(bytes));
            assert_eq!(written.as_deref(), want.as_ref().copied(), "{text:?}");
            if let Ok(want) = want {
                assert_eq!(canonical(text), want, "{text:?}");
            }
        }
    }
}
