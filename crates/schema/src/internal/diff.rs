//! A unified diff with three lines around each change, as Python's and Go's `difflib` make it.
//!
//! Which lines they call equal is a matter of taste where lines repeat, so their taste is followed: the longest common
//! block first, then the parts left and right of it; in texts of 200 lines and more, lines that make up more than a
//! hundredth of the text are not looked for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::budget;

const CONTEXT: usize = 3;
const POPULAR_FROM: usize = 200;

/// A run of lines that both texts have, or of lines of one in place of the other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    equal: bool,
    a: (usize, usize),
    b: (usize, usize),
}

/// The diff; empty when the texts are alike.
pub(super) fn unified(old: &str, new: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (old.split('\n').collect(), new.split('\n').collect());
    let mut text = String::new();
    for hunk in hunks(steps(&a, &b)) {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else {
            continue;
        };
        let (old_range, new_range) = (range(first.a.0, last.a.1), range(first.b.0, last.b.1));
        let _ = writeln!(text, "@@ -{old_range} +{new_range} @@");
        for step in hunk {
            if step.equal {
                write_lines(&mut text, ' ', &a[step.a.0..step.a.1]);
            } else {
                write_lines(&mut text, '-', &a[step.a.0..step.a.1]);
                write_lines(&mut text, '+', &b[step.b.0..step.b.1]);
            }
        }
    }
    text
}

fn write_lines(text: &mut String, mark: char, lines: &[&str]) {
    for line in lines {
        let _ = writeln!(text, "{mark}{line}");
    }
}

/// A range of lines, counted from one; of none it is the line before.
fn range(start: usize, end: usize) -> String {
    match end - start {
        1 => format!("{}", start + 1),
        0 => format!("{start},0"),
        length => format!("{},{length}", start + 1),
    }
}

/// Changes that are near each other, with the lines around them.
fn hunks(mut steps: Vec<Step>) -> Vec<Vec<Step>> {
    if steps.iter().all(|step| step.equal) {
        return Vec::new();
    }
    if let Some(first) = steps.first_mut().filter(|step| step.equal) {
        let skipped = (first.a.1 - first.a.0).saturating_sub(CONTEXT);
        first.a.0 += skipped;
        first.b.0 += skipped;
    }
    if let Some(last) = steps.last_mut().filter(|step| step.equal) {
        let skipped = (last.a.1 - last.a.0).saturating_sub(CONTEXT);
        last.a.1 -= skipped;
        last.b.1 -= skipped;
    }
    let mut found = Vec::new();
    let mut hunk = Vec::new();
    for mut step in steps {
        let length = step.a.1 - step.a.0;
        if step.equal && length > 2 * CONTEXT {
            let skipped = length - CONTEXT;
            hunk.push(Step {
                equal: true,
                a: (step.a.0, step.a.1 - skipped),
                b: (step.b.0, step.b.1 - skipped),
            });
            found.push(std::mem::take(&mut hunk));
            step.a.0 += skipped;
            step.b.0 += skipped;
        }
        hunk.push(step);
    }
    if hunk.iter().any(|step| !step.equal) {
        found.push(hunk);
    }
    found
}

/// The steps from the one text to the other.
fn steps(a: &[&str], b: &[&str]) -> Vec<Step> {
    let mut blocks = blocks(a, b);
    blocks.push((a.len(), b.len(), 0));
    let mut found = Vec::new();
    let (mut i, mut j) = (0, 0);
    for (x, y, length) in blocks {
        if i < x || j < y {
            found.push(Step {
                equal: false,
                a: (i, x),
                b: (j, y),
            });
        }
        if length > 0 {
            found.push(Step {
                equal: true,
                a: (x, x + length),
                b: (y, y + length),
            });
        }
        (i, j) = (x + length, y + length);
    }
    found
}

/// The common blocks in their order, neighbours joined.
fn blocks(a: &[&str], b: &[&str]) -> Vec<(usize, usize, usize)> {
    let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, line) in b.iter().enumerate() {
        places.entry(line).or_default().push(index);
    }
    if b.len() >= POPULAR_FROM {
        let most = b.len() / 100 + 1;
        places.retain(|_, found| found.len() <= most);
    }
    let mut waiting = vec![(0, a.len(), 0, b.len())];
    let mut found = BTreeSet::new();
    while let Some((a_low, a_high, b_low, b_high)) = waiting.pop() {
        let (i, j, length) = longest(a, b, &places, (a_low, a_high), (b_low, b_high));
        if length > 0 {
            found.insert((i, j, length));
            waiting.push((a_low, i, b_low, j));
            waiting.push((i + length, a_high, j + length, b_high));
        }
    }
    let mut joined: Vec<(usize, usize, usize)> = Vec::new();
    for (i, j, length) in found {
        match joined.last_mut() {
            Some(last) if last.0 + last.2 == i && last.1 + last.2 == j => last.2 += length,
            _ => joined.push((i, j, length)),
        }
    }
    joined
}

/// The longest common block, the first of several.
fn longest(
    a: &[&str],
    b: &[&str],
    places: &BTreeMap<&str, Vec<usize>>,
    (a_low, a_high): (usize, usize),
    (b_low, b_high): (usize, usize),
) -> (usize, usize, usize) {
    let mut best = (a_low, b_low, 0);
    // Lengths of the blocks that end in the line before, by where they end in the other text.
    let mut lengths: BTreeMap<usize, usize> = BTreeMap::new();
    for (i, line) in a.iter().enumerate().take(a_high).skip(a_low) {
        budget::spend(2);
        let mut next = BTreeMap::new();
        for &j in places.get(line).map_or(&[][..], Vec::as_slice) {
            budget::spend(4);
            if j < b_low {
                continue;
            }
            if j >= b_high {
                break;
            }
            let before = j.checked_sub(1).and_then(|j| lengths.get(&j));
            let length = before.map_or(1, |length| length + 1);
            next.insert(j, length);
            if length > best.2 {
                best = (i + 1 - length, j + 1 - length, length);
            }
        }
        lengths = next;
    }
    // Lines that were not looked for may still stand around the block.
    while best.0 > a_low && best.1 > b_low && a[best.0 - 1] == b[best.1 - 1] {
        best = (best.0 - 1, best.1 - 1, best.2 + 1);
    }
    while best.0 + best.2 < a_high && best.1 + best.2 < b_high && a[best.0 + best.2] == b[best.1 + best.2] {
        best.2 += 1;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_in_lines() {
        let check = |old: &str, new: &str, want: &str| assert_eq!(unified(old, new), want, "{old:?} {new:?}");
        check("a\nb", "a\nb", "");
        check("a", "b", "@@ -1 +1 @@\n-a\n+b\n");
        check(
            "1\n2\n3\n4\n5\n6",
            "1\n2\n3\n4\nx\n6",
            "@@ -2,5 +2,5 @@\n 2\n 3\n 4\n-5\n+x\n 6\n",
        );
        check("1\n2", "1\n2\n3", "@@ -1,2 +1,3 @@\n 1\n 2\n+3\n");
        let far = |first: &str, last: &str| format!("{first}\n1\n2\n3\n4\n5\n6\n7\n{last}");
        check(
            &far("a", "b"),
            &far("x", "y"),
            "@@ -1,4 +1,4 @@\n-a\n+x\n 1\n 2\n 3\n@@ -6,4 +6,4 @@\n 5\n 6\n 7\n-b\n+y\n",
        );
    }
}
