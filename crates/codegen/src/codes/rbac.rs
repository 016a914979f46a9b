//! KWR0400–KWR0499: roles.

use super::{Code, Explanation};

/// A rule allows nothing, or something that does not exist.
pub const RULE: Code = Code(401);

/// A ClusterRole has no binding.
pub const UNBOUND: Code = Code(402);

pub(super) const EXPLANATIONS: &[Explanation] = &[
    Explanation {
        code: RULE,
        title: "a rule of a role says nothing, or what cannot be",
        story: "A rule names verbs and either resources with their API groups or URLs that are no resources. What controllers declare (their kind, what they own \
            and watch) needs no rule: it is derived. `#[rbac]` on the `impl Reconciler` or `Operator::rbac` are for the rest.\n\nThe core group is \
            `groups = \"\"`; several values are divided by `;`.",
    },
    Explanation {
        code: UNBOUND,
        title: "a ClusterRole is bound to nobody",
        story: "A project of `--namespaced` binds the operator's service account to the Role of its own namespace. A rule about something that lives in no \
            namespace (nodes, namespaces, a kind of scope Cluster, URLs) cannot stand in a Role, so it is written into a ClusterRole, and Kubernetes allows \
            nothing by a role that is bound to nobody.\n\nAdd a ClusterRoleBinding to `config/rbac` and name it in the kustomization there, take the \
            rule out, or let the operator work in all namespaces: `kubewright edit --namespaced=false`.",
    },
];
