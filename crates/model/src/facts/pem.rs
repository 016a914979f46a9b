//! PEM as Go's `pem.Decode` finds it: blocks in a text, with anything between them.
//!
//! What is signed is read by [`only`]: the text is one block and nothing else, so that every reader finds the same in it.
//!
//! Invariant: a text is read once, whatever stands in it.

use std::str::Lines;

use kubewright_schema::base64;

/// A block.
#[derive(Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// Its type, such as `CERTIFICATE`.
    pub kind: &'a str,
    /// What it holds.
    pub bytes: Vec<u8>,
}

/// What the one block of a text holds: the text begins with its first line and ends with its last, and between them is
/// nothing but base64. White space may stand at the ends of the text and of its lines.
///
/// Readers differ in what they pass over: some find a beginning in the middle of a line, some take the last of two
/// blocks. A text that has no such place is the same to all of them.
pub fn only(text: &[u8], kind: &str) -> Option<Vec<u8>> {
    const WHITE: [char; 4] = [' ', '\t', '\r', '\n'];
    let text = std::str::from_utf8(text).ok()?;
    let text = text.trim_start_matches(['\r', '\n']).trim_end_matches(WHITE);
    let (first, rest) = text.split_once('\n')?;
    let (body, last) = rest.rsplit_once('\n')?;
    let is = |line: &str, word| kind_of(line, word) == Some(kind);
    if !is(first.trim_end_matches(WHITE), "-----BEGIN ") || !is(last, "-----END ") {
        return None;
    }
    let body: String = body.split(WHITE).collect();
    base64::decode(&body).ok()
}

/// The blocks of a text, in order; what is no block is passed over.
///
/// A block begins with the last beginning before an end, so that a text of beginnings alone is read once.
pub fn blocks(text: &str) -> Blocks<'_> {
    Blocks { lines: text.lines() }
}

/// The [`blocks`] of a text.
#[derive(Debug)]
pub struct Blocks<'a> {
    lines: Lines<'a>,
}

impl<'a> Iterator for Blocks<'a> {
    type Item = Block<'a>;

    fn next(&mut self) -> Option<Block<'a>> {
        let mut open: Option<(&str, String)> = None;
        for line in self.lines.by_ref().map(str::trim_end) {
            if let Some(kind) = kind_of(line, "-----BEGIN ") {
                open = Some((kind, String::new()));
            } else if let Some(kind) = kind_of(line, "-----END ") {
                let begun = open.take().filter(|(begun, _)| *begun == kind);
                if let Some(bytes) = begun.and_then(|(_, body)| base64::decode(&body).ok()) {
                    return Some(Block { kind, bytes });
                }
            } else if let Some((_, body)) = &mut open
                && !(body.is_empty() && line.contains(':'))
            {
                body.push_str(line.trim());
            }
        }
        None
    }
}

/// The rest of a PEM line after this word and before the closing dashes.
fn kind_of<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    line.strip_prefix(word)?.strip_suffix("-----")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found() {
        let check = |text: &str, wanted: &[(&str, &[u8])]| {
            let found: Vec<_> = blocks(text).map(|block| (block.kind, block.bytes)).collect();
            let wanted: Vec<_> = wanted.iter().map(|(kind, bytes)| (*kind, bytes.to_vec())).collect();
            assert_eq!(found, wanted, "{text:?}");
        };
        let block = |kind: &str, body: &str| format!("-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n");
        let (one, other) = (block("A", "AAEC"), block("B C", "Proc-Type: 4\n\nAA\nEC"));
        check("", &[]);
        check(
            &format!("x\n{one}y\n{other}z"),
            &[("A", &[0, 1, 2]), ("B C", &[0, 1, 2])],
        );
        // What is no base64 is no block.
        check(&format!("{}{one}", block("A", "!!!!")), &[("A", &[0, 1, 2])]);
        check(&one.replace("END A", "END B"), &[]);
        // Headers stand at the beginning.
        check(&block("A", "AA\nProc-Type: 4\nEC"), &[]);
    }

    /// In the words of three readers: Go takes the first block that begins with a line, others one that begins anywhere
    /// or the last; all of them take the same of a text that is one block.
    #[test]
    fn a_text_is_one_block() {
        let block = "-----BEGIN A-----\nAAEC\n-----END A-----\n";
        let check = |text: &str, is_one: bool| {
            let wanted = is_one.then(|| vec![0, 1, 2]);
            assert_eq!(only(text.as_bytes(), "A"), wanted, "{text:?}");
        };
        for text in [
            block.to_owned(),
            block.trim_end().to_owned(),
            block.replace('\n', "\r\n"),
            block.replace('\n', " \t\n"),
            block.replace("AAEC", "AA\n\n  EC"),
            format!("\n\r\n{block}\n \n"),
        ] {
            check(&text, true);
        }
        for text in [
            String::new(),
            format!("{block}{block}"),
            format!("x{block}"),
            format!("x\n{block}"),
            format!(" {block}"),
            format!("{block}x"),
            format!("-----BEGIN A-----\n{block}"),
            format!("{block}-----END A-----\n"),
            format!("-----BEGIN B-----\nAAEC\n-----END B-----\n{block}"),
            block.replace("A-----", "B-----"),
            block.replace("END A", "END B"),
            block.replace("AAEC", "K: v\n\nAAEC"),
            block.replace("AAEC", "AAE"),
            block.replace("AAEC", "A-EC"),
            block.replace("AAEC", "A\u{85}AEC"),
            block.replace("AAEC", "A\0AEC"),
            block.replace("-----BEGIN", "\u{feff}-----BEGIN"),
            block.replace("A-----\nAA", "A-----AA"),
            block.replace("EC\n-----END", "EC-----END"),
            block.replace('\n', "\r"),
            "-----BEGIN A----------END A-----".to_owned(),
            "-----BEGIN A-----\n-----END A-----x".to_owned(),
        ] {
            check(&text, false);
        }
        assert_eq!(only(&[block.as_bytes(), &[0xff]].concat(), "A"), None);
        assert_eq!(only(b"-----BEGIN A-----\n\n-----END A-----", "A"), Some(vec![]));
    }
}
