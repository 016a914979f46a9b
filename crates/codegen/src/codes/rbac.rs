//! KWR0400–KWR0499: roles.

use super::{Code, Explanation};

/// A rule allows nothing, or something that does not exist.
pub const RULE: Code = Code(401);

/// A ClusterRole has no binding.
pub const UNBOUND: Code = Code(402);

/// A rule names a resource that the project's own group does not have.
pub const UNKNOWN: Code = Code(403);

pub(super) const EXPLANATIONS: &[Explanation] = &[
    Explanation {
        code: RULE,
        title: "a rule of a role is empty or invalid",
        story: "A rule names verbs and either resources with their API groups or non-resource URLs. What controllers \
                declare (their kind, what they own and watch) needs no rule: it is derived. `#[rbac]` on the `impl \
                Reconciler` or `Operator::rbac` are for other permissions.\n\nThe core group is `groups = \"\"`; \
                several values are separated by `;`.",
    },
    Explanation {
        code: UNBOUND,
        title: "a ClusterRole has no binding",
        story: "A project of `--namespaced` binds the operator's service account to the Role of its own namespace. A \
                rule about something cluster-scoped (nodes, namespaces, a kind of scope Cluster, URLs) cannot be in a \
                Role, so it is written to a ClusterRole. But a ClusterRole without a binding grants nothing.\n\nAdd a \
                ClusterRoleBinding to `config/rbac` and name it in the kustomization there, remove the rule, or let \
                the operator watch all namespaces: `kubewright edit --namespaced=false`.",
    },
    Explanation {
        code: UNKNOWN,
        title: "a rule names a resource that the project's own group does not have",
        story: "Rules name resources by their plural in lower case: `guestbooks`, not `guestbook` or `Guestbook`. \
                Kubernetes accepts any name, and the rule then allows nothing. It is a warning, because another \
                operator may define kinds in the same group.",
    },
];
