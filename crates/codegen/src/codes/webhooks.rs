//! KWR0500–KWR0549: webhook configurations.

use super::{Code, Explanation};

/// A setting of a webhook is invalid.
pub const SETTING: Code = Code(501);
/// Two webhooks of one configuration have the same name.
pub const TWICE: Code = Code(502);
/// A patch of a webhook does not fit.
pub const PATCH: Code = Code(503);
/// An API server refuses a webhook.
pub const REFUSED: Code = Code(504);
/// A webhook keeps its own operator from starting.
pub const DEADLOCK: Code = Code(505);

pub(super) const EXPLANATIONS: &[Explanation] = &[
    Explanation {
        code: SETTING,
        title: "a setting of a webhook is invalid",
        story: "The API server takes a webhook whose name is a domain of three parts or more, whose failure policy is \
                `Fail` or `Ignore`, whose side effects are `None` or `NoneOnDryRun`, whose timeout is 1 to 30 seconds, \
                and which is reached by a path of a service or by a URL. `Webhook::of` has valid values for all of \
                them; one of them was changed to an invalid value.",
    },
    Explanation {
        code: TWICE,
        title: "two webhooks have the same name or path",
        story: "Within a configuration the names of webhooks are unique, and the operator serves one webhook on a \
                path. The usual name has the kind and the version in it, so two webhooks for one version of a kind, or \
                for kinds of the same name in two groups, need different names: `.mutating(|webhook| \
                webhook.name(\"…\"))`.",
    },
    Explanation {
        code: PATCH,
        title: "a patch of a webhook does not fit",
        story: "A patch adds fields to the generated entry by a strategic merge: `namespaceSelector`, \
                `objectSelector`, `matchConditions`. It names a field that a webhook does not have, or an item of a \
                list without its key (a match condition without `name`).",
    },
    Explanation {
        code: REFUSED,
        title: "an API server refuses a webhook",
        story: "Before they are written, the configurations are sent to kubewright's own API server, which says what \
                kube-apiserver says. They are complete, with the fields that a patch added: match conditions are \
                compiled, selectors are parsed, policies and timeouts are checked. The message is the server's.",
    },
    Explanation {
        code: DEADLOCK,
        title: "a webhook keeps its own operator from starting",
        story: "With the failure policy `Fail`, writes fail while the webhook cannot be reached. A webhook for pods, \
                or for kinds that create pods, that includes the operator's own namespace must answer before the \
                operator's pods can be created: once none of them runs, none can start again. Webhooks for kinds of \
                Kubernetes itself therefore leave out `kube-system` and namespaces with the label `control-plane`, as \
                the scaffold labels the operator's, unless `.everywhere()` or a selector of your own says otherwise. \
                If this has happened, delete the webhook configuration, let the operator start, and apply the \
                configuration again.",
    },
];
