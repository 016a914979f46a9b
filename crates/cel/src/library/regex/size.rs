//! How large an expression is, before it is compiled.

use regex_syntax::ast::{Ast, ClassSet, ClassSetItem, ClassSetRange, RepetitionKind, RepetitionRange, Span};
use regex_syntax::hir::{Class, Hir, HirKind};

use kubewright_values::budget;

/// The most that a part may be repeated, with the repetitions around it (`repeatIsValid` of Go's `regexp/syntax`).
const REPEATED: usize = 1000;

/// A jump, or what else is no character.
const JUMP: Size = Size { parts: 1, ranges: 1 };

/// The size of an expression with its repetitions written out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    /// In characters, sets and the jumps between them.
    pub(super) parts: usize,
    /// In ranges of the bytes that encode them, as the `regex` crate compiles it.
    pub(super) ranges: usize,
}

impl Size {
    pub(super) fn of(expression: &Hir) -> Self {
        budget::spend(1);
        match expression.kind() {
            HirKind::Empty | HirKind::Look(_) => JUMP,
            HirKind::Literal(text) => Self {
                parts: text.0.len(),
                ranges: text.0.len(),
            },
            HirKind::Class(Class::Unicode(class)) => Self {
                parts: 1,
                ranges: class.iter().map(|range| range.end().len_utf8()).sum::<usize>().max(1),
            },
            HirKind::Class(Class::Bytes(_)) => Self { parts: 1, ranges: 1 },
            HirKind::Capture(group) => Self::of(&group.sub).plus(JUMP),
            HirKind::Concat(parts) => parts.iter().fold(JUMP, |sum, part| sum.plus(Self::of(part))),
            HirKind::Alternation(choices) => choices
                .iter()
                .fold(JUMP, |sum, choice| sum.plus(Self::of(choice)).plus(JUMP).plus(JUMP)),
            HirKind::Repetition(repetition) => {
                let times = repetition.max.unwrap_or(repetition.min).max(1) as usize;
                let one = Self::of(&repetition.sub).plus(JUMP);
                let all = Self {
                    parts: one.parts.saturating_mul(times),
                    ranges: one.ranges.saturating_mul(times),
                };
                all.plus(JUMP)
            }
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            parts: self.parts.saturating_add(other.parts),
            ranges: self.ranges.saturating_add(other.ranges),
        }
    }
}

/// How often the parts of an expression are repeated at most.
///
/// # Errors
/// The repetition that Go refuses.
pub(super) fn repeated(expression: &Ast) -> Result<usize, Span> {
    let most = |parts: &[Ast]| parts.iter().try_fold(1, |most, part| Ok(repeated(part)?.max(most)));
    match expression {
        Ast::Group(group) => repeated(&group.ast),
        Ast::Alternation(choices) => most(&choices.asts),
        Ast::Concat(parts) => most(&parts.asts),
        Ast::Repetition(repetition) => {
            let within = repeated(&repetition.ast)?;
            let RepetitionKind::Range(range) = &repetition.op.kind else {
                return Ok(within);
            };
            let (RepetitionRange::Exactly(times)
            | RepetitionRange::AtLeast(times)
            | RepetitionRange::Bounded(_, times)) = range;
            // What is repeated no times is not looked at.
            let is_none = *times == 0 && !matches!(range, RepetitionRange::AtLeast(_));
            let times = (*times as usize)
                .max(1)
                .saturating_mul(if is_none { 0 } else { within });
            if times > REPEATED {
                return Err(repetition.op.span);
            }
            Ok(times.max(1))
        }
        _ => Ok(1),
    }
}

/// Counts the work of finding the characters of all sets: where cases are folded, it is done for each character.
pub(super) fn spend_on_sets(expression: &Ast, folded: bool) {
    match expression {
        Ast::Group(group) => spend_on_sets(&group.ast, folded),
        Ast::Alternation(choices) => choices.asts.iter().for_each(|part| spend_on_sets(part, folded)),
        Ast::Concat(parts) => parts.asts.iter().for_each(|part| spend_on_sets(part, folded)),
        Ast::Repetition(repetition) => spend_on_sets(&repetition.ast, folded),
        Ast::ClassUnicode(_) => spend_on_class(folded),
        Ast::ClassBracketed(set) => spend_on_set(&set.kind, folded),
        _ => budget::spend(1),
    }
}

fn spend_on_set(set: &ClassSet, folded: bool) {
    match set {
        ClassSet::Item(item) => spend_on_item(item, folded),
        ClassSet::BinaryOp(both) => {
            spend_on_set(&both.lhs, folded);
            spend_on_set(&both.rhs, folded);
        }
    }
}

fn spend_on_item(item: &ClassSetItem, folded: bool) {
    match item {
        ClassSetItem::Range(range) if folded => budget::spend(1 + width(range) / 2),
        ClassSetItem::Unicode(_) => spend_on_class(folded),
        ClassSetItem::Bracketed(set) => spend_on_set(&set.kind, folded),
        ClassSetItem::Union(items) => items.items.iter().for_each(|item| spend_on_item(item, folded)),
        _ => budget::spend(1),
    }
}

/// A class of Unicode's characters has some 700 ranges, and 140,000 characters.
fn spend_on_class(folded: bool) {
    budget::spend(if folded { 70_000 } else { 2_000 });
}

fn width(range: &ClassSetRange) -> usize {
    u32::from(range.end.c).saturating_sub(u32::from(range.start.c)) as usize
}
