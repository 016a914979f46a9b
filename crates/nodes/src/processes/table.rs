//! The processes of this machine, as `/proc` lists them: the parent of each, and its usage.
//!
//! A process in the table may be gone a moment later; an entry that cannot be read is no process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

/// The ticks in which `/proc` counts time: a second has this many for programs, regardless of the kernel's own
/// (`USER_HZ`).
const TICKS: u64 = 100;

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    parent: u32,
    /// Ticks of its own.
    own: u64,
    /// Ticks of its children that have ended and were waited for.
    waited: u64,
}

/// All processes at one moment, by their number.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: BTreeMap<u32, Entry>,
    children: BTreeMap<u32, Vec<u32>>,
}

impl Table {
    pub(super) fn read() -> Table {
        let mut entries = BTreeMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            entries.extend(parse(&stat).map(|entry| (pid, entry)));
        }
        Table::of(entries)
    }

    fn of(entries: BTreeMap<u32, Entry>) -> Table {
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (pid, entry) in &entries {
            children.entry(entry.parent).or_default().push(*pid);
        }
        Table { entries, children }
    }

    /// The processes below one.
    pub(super) fn below(&self, of: u32) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        let mut open = vec![of];
        while let Some(pid) = open.pop() {
            let children = self.children.get(&pid).into_iter().flatten();
            open.extend(children.filter(|child| found.insert(**child)));
        }
        found
    }

    /// The time on processors of all below one, also of those that have ended: the parent that waited for them has it.
    pub(super) fn time_below(&self, of: u32) -> Duration {
        let waited = self.entries.get(&of).map_or(0, |entry| entry.waited);
        let below = self.below(of);
        let below = below.iter().filter_map(|pid| self.entries.get(pid));
        let ticks = below.fold(waited, |sum, entry| {
            sum.saturating_add(entry.own).saturating_add(entry.waited)
        });
        Duration::from_millis(ticks.saturating_mul(1000 / TICKS))
    }
}

/// A line of `/proc/PID/stat`.
fn parse(stat: &str) -> Option<Entry> {
    // The name in parentheses may hold anything. Behind it: the state, the parent, … and from the twelfth on the times.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Entry {
        parent: fields.get(1)?.parse().ok()?,
        own: number(11)?.saturating_add(number(12)?),
        waited: number(13)?.saturating_add(number(14)?),
    })
}

/// The bytes that a process holds in memory: of shared pages its share, where the kernel tells it.
pub(super) fn resident(pid: u32) -> u64 {
    let kilobytes = |file: &str, key: &str| -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let found = kilobytes("smaps_rollup", "Pss:").or_else(|| kilobytes("status", "VmRSS:"));
    found.unwrap_or(0).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn lines() {
        let entry = |parent, own, waited| Some(Entry { parent, own, waited });
        let check = |line: &str, expected: Option<Entry>| assert_eq!(parse(line), expected, "{line}");
        let line = "7 (a) b) S 3 7 7 0 -1 4194560 1 2 3 4 10 5 2 1 20 0 1 0 99 1000 25";
        check(line, entry(3, 15, 3));
        check("7 (a) S 3", None);
        check("", None);
    }

    #[test]
    fn processes_below_a_process() {
        let entry = |parent, own, waited| Entry { parent, own, waited };
        let table = Table::of(BTreeMap::from([
            (1, entry(0, 900, 900)),
            (2, entry(1, 50, 7)),
            (3, entry(2, 100, 1)),
            (4, entry(3, 200, 2)),
            (5, entry(1, 400, 4)),
        ]));
        assert_eq!(table.below(2), BTreeSet::from([3, 4]));
        assert_eq!(table.below(9), BTreeSet::new());
        // Its own time is not its program's.
        assert_eq!(table.time_below(2), Duration::from_millis(3100));
    }

    #[test]
    fn this_machine() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep starts");
        let table = Table::read();
        assert!(table.below(std::process::id()).contains(&child.id()));
        assert!(!table.below(child.id()).contains(&std::process::id()));
        assert!(resident(std::process::id()) > 100_000);
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
    }
}
