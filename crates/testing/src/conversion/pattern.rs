//! A text that matches a pattern.

use regex_syntax::hir::{Class, Hir, HirKind};

use super::random::Random;

/// The most repetitions of a part that may be repeated without end.
const REPEATED: u64 = 4;
/// The longest text, in bytes: patterns may multiply repetitions.
const LONGEST: usize = 4096;

/// A text that the pattern matches, if the pattern can be read and says which.
pub(super) fn matching(pattern: &str, random: &mut Random) -> Option<String> {
    let mut text = Vec::new();
    write(&regex_syntax::parse(pattern).ok()?, random, &mut text)?;
    String::from_utf8(text).ok()
}

fn write(expression: &Hir, random: &mut Random, text: &mut Vec<u8>) -> Option<()> {
    if text.len() > LONGEST {
        return None;
    }
    match expression.kind() {
        HirKind::Empty | HirKind::Look(_) => {} // anchors; boundaries between words are left to luck
        HirKind::Literal(literal) => text.extend_from_slice(&literal.0),
        HirKind::Class(Class::Unicode(class)) => {
            let range = class.ranges().get(random.below(class.ranges().len() as u64) as usize)?;
            let (start, end) = (u32::from(range.start()), u32::from(range.end()));
            // A character without a printed form does not help the reader of the report.
            let (start, end) = (start.max(0x20).min(end), end.min(0x17f).max(start));
            let chosen = start + random.below(u64::from(end.abs_diff(start)) + 1) as u32;
            text.extend_from_slice(char::from_u32(chosen)?.to_string().as_bytes());
        }
        HirKind::Class(Class::Bytes(class)) => {
            let range = class.ranges().first()?;
            text.push(range.start());
        }
        HirKind::Repetition(repetition) => {
            let min = u64::from(repetition.min);
            let most = repetition
                .max
                .map_or(min + REPEATED, |max| u64::from(max).min(min + REPEATED));
            for _ in 0..min + random.below(most - min + 1) {
                write(&repetition.sub, random, text)?;
            }
        }
        HirKind::Capture(capture) => write(&capture.sub, random, text)?,
        HirKind::Concat(parts) => {
            for part in parts {
                write(part, random, text)?;
            }
        }
        HirKind::Alternation(choices) => {
            let index = random.below(choices.len() as u64) as usize;
            write(choices.get(index)?, random, text)?;
        }
    }
    Some(())
}
