//! The lines of a log. Pure.
//!
//! Kept lines have the form of the kubelet's files (`TIME STREAM F TEXT`).

use jiff::Timestamp;

/// A line of a log, without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When it was written.
    pub time: Timestamp,
    /// Its bytes.
    pub text: Vec<u8>,
}

impl Line {
    /// A line with this time and text.
    pub fn new(time: Timestamp, text: impl Into<Vec<u8>>) -> Line {
        Line {
            time,
            text: text.into(),
        }
    }

    /// As it stands in a file.
    pub(crate) fn kept(&self, stream: &str) -> Vec<u8> {
        let mut kept = format!("{} {stream} F ", self.stamp()).into_bytes();
        kept.extend_from_slice(&self.text);
        kept.push(b'\n');
        kept
    }

    /// A line of a file; none where it is damaged.
    pub(crate) fn read(kept: &[u8]) -> Option<Line> {
        let mut parts = kept.splitn(4, |byte| *byte == b' ');
        let time = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
        let (_stream, _tag) = (parts.next()?, parts.next()?);
        Some(Line::new(time, parts.next()?))
    }

    /// Its time in RFC 3339 with nine digits behind the point, as kubelets write it.
    pub fn stamp(&self) -> String {
        format!("{:.9}", self.time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(second: i64, text: &str) -> Line {
        Line::new(Timestamp::from_second(second).expect("small"), text)
    }

    #[test]
    fn kept_lines_are_read_again() {
        let check = |kept: &str, expected: Option<Line>| assert_eq!(Line::read(kept.as_bytes()), expected, "{kept}");
        check("1970-01-01T00:00:03.000000000Z stdout F a b", Some(line(3, "a b")));
        check("1970-01-01T00:00:03.000000000Z stdout F ", Some(line(3, "")));
        check("nonsense stdout F a", None);
        check("1970-01-01T00:00:03.000000000Z", None);
        let kept = line(3, "a b").kept("stderr");
        assert_eq!(
            String::from_utf8_lossy(&kept),
            "1970-01-01T00:00:03.000000000Z stderr F a b\n"
        );
    }
}
