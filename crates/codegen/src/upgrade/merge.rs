//! Three texts become one, line by line, as diff3 and `git merge` do it.
//!
//! Invariants: a text that only one side changed becomes that side's; where both made the same change it is made once;
//! changes that touch or overlap are a conflict, with the lines that both sides share at its ends kept out of it.

use std::ops::Range;

use similar::{MergeResolution, TextMerge};

/// The result of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The text, with conflicts between marks.
    pub text: String,
    /// The lines (from 1) where conflicts begin.
    pub conflicts: Vec<usize>,
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
    let merge = TextMerge::from_lines(base, ours, theirs);
    let ours = |lines: Range<usize>| -> Vec<&str> { lines.filter_map(|at| merge.ours_line(at)).collect() };
    let theirs = |lines: Range<usize>| -> Vec<&str> { lines.filter_map(|at| merge.theirs_line(at)).collect() };
    let mut merged = Merged {
        text: String::new(),
        conflicts: Vec::new(),
    };
    for region in merge.regions() {
        let (mine, new) = (ours(region.ours_range()), theirs(region.theirs_range()));
        match region.resolution() {
            MergeResolution::Conflict => conflict(&mine, &new, our_name, their_name, &mut merged),
            MergeResolution::Theirs => merged.text.push_str(&new.concat()),
            _ => merged.text.push_str(&mine.concat()),
        }
    }
    merged
}

/// Both sides between marks, without the lines that they share at the ends.
fn conflict(mine: &[&str], new: &[&str], our_name: &str, their_name: &str, merged: &mut Merged) {
    let before = mine.iter().zip(new).take_while(|(a, b)| a == b).count();
    let rest = mine.len().min(new.len()) - before;
    let after = mine
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take(rest)
        .take_while(|(a, b)| a == b)
        .count();
    let inner = |lines: &[&str]| -> String {
        let mut text = lines[before..lines.len() - after].concat();
        // A mark begins its own line.
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text
    };
    merged.text.push_str(&mine[..before].concat());
    let (ours, theirs) = (inner(mine), inner(new));
    merged.conflicts.push(merged.text.matches('\n').count() + 1);
    merged.text.push_str(&format!(
        "<<<<<<< {our_name}\n{ours}=======\n{theirs}>>>>>>> {their_name}\n"
    ));
    merged.text.push_str(&mine[mine.len() - after..].concat());
}
