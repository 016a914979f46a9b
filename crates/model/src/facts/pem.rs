//! PEM as Go's `pem.Decode` finds it: blocks in a text, with anything between them.
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
                && !line.contains(':')
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
    }
}
