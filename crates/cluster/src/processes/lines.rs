//! The lines of a log, and which of them a client gets.
//!
//! Pure. Kept lines have the form of the kubelet's files (`TIME STREAM F TEXT`); sent ones are as `readLogs` in
//! pkg/kubelet/kuberuntime/logs writes them: the last so many first, of these those that are young enough, cut where
//! the bytes end.

use jiff::Timestamp;
use kubewright_apiserver::LogOptions;

/// A line of a log, without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) time: Timestamp,
    pub(crate) text: Vec<u8>,
}

impl Line {
    pub(crate) fn new(time: Timestamp, text: impl Into<Vec<u8>>) -> Line {
        Line {
            time,
            text: text.into(),
        }
    }

    /// As it stands in a file.
    pub(crate) fn kept(&self, stream: &str) -> Vec<u8> {
        let mut kept = format!("{} {stream} F ", stamp(self.time)).into_bytes();
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
}

/// RFC 3339 with nine digits behind the point, as kubelets write it.
fn stamp(time: Timestamp) -> String {
    format!("{time:.9}")
}

/// Turns lines into those that the client gets.
#[derive(Debug)]
pub(crate) struct Filter {
    since: Option<Timestamp>,
    timestamps: bool,
    left: Option<u64>,
}

impl Filter {
    pub(crate) fn new(options: &LogOptions) -> Filter {
        Filter {
            since: options.since,
            timestamps: options.timestamps,
            left: options.limit_bytes,
        }
    }

    /// Whether nothing more will be sent.
    pub(crate) fn is_spent(&self) -> bool {
        self.left == Some(0)
    }

    /// Appends a line as it is sent, if it is.
    pub(crate) fn write(&mut self, line: &Line, out: &mut Vec<u8>) {
        if self.since.is_some_and(|since| line.time < since) {
            return;
        }
        let mut sent = Vec::with_capacity(line.text.len() + 32);
        if self.timestamps {
            sent.extend_from_slice(stamp(line.time).as_bytes());
            sent.push(b' ');
        }
        sent.extend_from_slice(&line.text);
        sent.push(b'\n');
        if let Some(left) = &mut self.left {
            sent.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= u64::try_from(sent.len()).unwrap_or(*left).min(*left);
        }
        out.append(&mut sent);
    }
}

/// The last so many of all lines.
pub(crate) fn tail(lines: &[Line], count: Option<u64>) -> &[Line] {
    let skipped = count.map_or(0, |count| {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        lines.len().saturating_sub(count)
    });
    &lines[skipped..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(second: i64, text: &str) -> Line {
        Line::new(Timestamp::from_second(second).expect("small"), text)
    }

    #[test]
    fn which_lines_are_sent() {
        let lines = [line(1, "one"), line(2, "two"), line(3, "three")];
        let check = |options: LogOptions, expected: &str| {
            let (mut filter, mut out) = (Filter::new(&options), Vec::new());
            for line in tail(&lines, options.tail_lines) {
                filter.write(line, &mut out);
            }
            assert_eq!(String::from_utf8_lossy(&out), expected, "{options:?}");
        };
        let all = LogOptions::default;
        let since = |second| Timestamp::from_second(second).ok();
        check(all(), "one\ntwo\nthree\n");
        check(
            LogOptions {
                tail_lines: Some(2),
                ..all()
            },
            "two\nthree\n",
        );
        check(
            LogOptions {
                tail_lines: Some(0),
                ..all()
            },
            "",
        );
        check(
            LogOptions {
                tail_lines: Some(9),
                ..all()
            },
            "one\ntwo\nthree\n",
        );
        check(
            LogOptions {
                since: since(2),
                ..all()
            },
            "two\nthree\n",
        );
        check(
            LogOptions {
                since: since(3),
                tail_lines: Some(2),
                ..all()
            },
            "three\n",
        );
        check(
            LogOptions {
                limit_bytes: Some(6),
                ..all()
            },
            "one\ntw",
        );
        let stamped = LogOptions {
            timestamps: true,
            tail_lines: Some(1),
            ..all()
        };
        check(stamped, "1970-01-01T00:00:03.000000000Z three\n");
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
