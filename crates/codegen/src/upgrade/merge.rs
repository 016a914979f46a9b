//! Three texts become one, line by line, as diff3 and `git merge` do it.
//!
//! Invariants: a text that only one side changed becomes that side's; where both made the same change it is made once;
//! changes that touch or overlap are a conflict, with the lines that both sides share at its ends kept out of it.

use similar::{Algorithm, DiffOp, capture_diff_slices};

/// The result of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The text, with conflicts between marks.
    pub text: String,
    /// The lines (from 1) where conflicts begin.
    pub conflicts: Vec<usize>,
}

/// A change: which lines of the base, and which lines are there instead.
struct Hunk {
    base: std::ops::Range<usize>,
    side: std::ops::Range<usize>,
}

/// Merges the changes of two sides to a text. The names stand beside the marks of conflicts.
///
/// ```
/// use kubewright_codegen::upgrade::merge;
/// let merged = merge("a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n", "yours", "new");
/// assert_eq!((merged.text.as_str(), merged.conflicts.len()), ("A\nb\nC\n", 0));
/// let merged = merge("a\n", "b\n", "c\n", "yours", "new");
/// assert_eq!(merged.text, "<<<<<<< yours\nb\n=======\nc\n>>>>>>> new\n");
/// ```
#[must_use]
pub fn merge(base: &str, ours: &str, theirs: &str, our_name: &str, their_name: &str) -> Merged {
    let lines = |text: &'_ str| -> Vec<String> { text.split_inclusive('\n').map(str::to_owned).collect() };
    let (base, ours, theirs) = (lines(base), lines(ours), lines(theirs));
    let (mut left, mut right) = (
        hunks(&base, &ours).into_iter().peekable(),
        hunks(&base, &theirs).into_iter().peekable(),
    );
    let mut merged = Merged {
        text: String::new(),
        conflicts: Vec::new(),
    };
    // Up to where the base is done, and how far each side is ahead of it.
    let (mut at, mut our_at, mut their_at) = (0, 0, 0);
    while let Some(start) = [left.peek(), right.peek()]
        .into_iter()
        .flatten()
        .map(|hunk| hunk.base.start)
        .min()
    {
        merged.text.extend(base[at..start].iter().map(String::as_str));
        our_at += start - at;
        their_at += start - at;
        let mut end = start;
        let (mut our_end, mut their_end) = (our_at, their_at);
        let (mut our_base, mut their_base) = (start, start);
        let (mut is_ours, mut is_theirs) = (false, false);
        loop {
            let touches = |hunk: &Hunk, end: usize| hunk.base.start <= end;
            if let Some(hunk) = left.next_if(|hunk| touches(hunk, end)) {
                our_end = hunk.side.end;
                our_base = hunk.base.end;
                end = end.max(hunk.base.end);
                is_ours = true;
            } else if let Some(hunk) = right.next_if(|hunk| touches(hunk, end)) {
                their_end = hunk.side.end;
                their_base = hunk.base.end;
                end = end.max(hunk.base.end);
                is_theirs = true;
            } else {
                break;
            }
        }
        // A side that is shorter in the base goes on unchanged to the end of the region.
        our_end += end - our_base.max(start);
        their_end += end - their_base.max(start);
        let (mine, new) = (&ours[our_at..our_end], &theirs[their_at..their_end]);
        match (is_ours, is_theirs) {
            (true, false) => merged.text.extend(mine.iter().map(String::as_str)),
            (false, _) => merged.text.extend(new.iter().map(String::as_str)),
            (true, true) => conflict(mine, new, our_name, their_name, &mut merged),
        }
        (at, our_at, their_at) = (end, our_end, their_end);
    }
    merged.text.extend(base[at..].iter().map(String::as_str));
    merged
}

/// The parts between equal lines; only of those do both ranges always fit.
fn hunks(base: &[String], side: &[String]) -> Vec<Hunk> {
    let mut hunks: Vec<Hunk> = Vec::new();
    let (mut base_at, mut side_at) = (0, 0);
    let ops = capture_diff_slices(Algorithm::Myers, base, side);
    let equal = ops.iter().filter(|op| matches!(op, DiffOp::Equal { .. }));
    let ends = std::iter::once((base.len()..base.len(), side.len()..side.len()));
    for (base, side) in equal.map(|op| (op.old_range(), op.new_range())).chain(ends) {
        if base_at < base.start || side_at < side.start {
            hunks.push(Hunk {
                base: base_at..base.start,
                side: side_at..side.start,
            });
        }
        (base_at, side_at) = (base.end, side.end);
    }
    hunks
}

fn conflict(mine: &[String], new: &[String], our_name: &str, their_name: &str, merged: &mut Merged) {
    let before = mine.iter().zip(new).take_while(|(a, b)| a == b).count();
    let rest = mine.len().min(new.len()) - before;
    let after = mine
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take(rest)
        .take_while(|(a, b)| a == b)
        .count();
    let inner = |lines: &[String]| -> String {
        let mut text = lines[before..lines.len() - after].concat();
        // A mark begins its own line.
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text
    };
    merged.text.push_str(&mine[..before].concat());
    let (ours, theirs) = (inner(mine), inner(new));
    if !(mine.len() == new.len() && before == mine.len()) {
        merged.conflicts.push(merged.text.matches('\n').count() + 1);
        merged.text.push_str(&format!(
            "<<<<<<< {our_name}\n{ours}=======\n{theirs}>>>>>>> {their_name}\n"
        ));
    }
    merged.text.push_str(&mine[mine.len() - after..].concat());
}
