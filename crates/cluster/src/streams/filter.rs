//! Which lines of a log a client gets.
//!
//! Pure. They are sent as `readLogs` in pkg/kubelet/kuberuntime/logs writes them: the last so many first, of these
//! those that are young enough, cut where the bytes end.

use jiff::Timestamp;
use kubewright_apiserver::LogOptions;
use kubewright_nodes::Line;

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
            sent.extend_from_slice(line.stamp().as_bytes());
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
}
