//! KWR0400–KWR0499: roles.

use super::{Code, Explanation};

/// A rule allows nothing, or what cannot be.
pub const RULE: Code = Code(401);

pub(super) const EXPLANATIONS: &[Explanation] = &[Explanation {
    code: RULE,
    title: "a rule of a role says nothing, or what cannot be",
    story: "A rule names verbs and either resources with their API groups or URLs that are no resources. What controllers declare (their kind, what they own \
            and watch) needs no rule: it is derived. `#[rbac]` on the `impl Reconciler` or `Operator::rbac` are for the rest.\n\nThe core group is \
            `groups = \"\"`; several values are divided by `;`.",
}];
