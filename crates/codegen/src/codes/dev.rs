//! KWR0700–KWR0799: `dev` and `run`, and their findings about an operator while it works.

use super::{Code, Explanation};

/// A command was pointed at a cluster that is not of this machine, and nobody confirmed it.
pub const REMOTE: Code = Code(702);
/// The API server refused a definition.
pub const REFUSED: Code = Code(703);
/// A sample could not be applied.
pub const SAMPLE: Code = Code(705);
/// The operator ended without a request to.
pub const ENDED: Code = Code(706);
/// Files cannot be watched.
pub const WATCH: Code = Code(707);
/// A reconciler wakes itself.
pub const LOOP: Code = Code(720);
/// A reconciler writes the same thing again and again.
pub const FIGHT: Code = Code(721);
/// Writes meet conflicts again and again.
pub const CONFLICTS: Code = Code(722);
/// The operator lacks the right for a request.
pub const FORBIDDEN: Code = Code(723);
/// The API server does not know a kind.
pub const UNKNOWN_KIND: Code = Code(724);
/// A deleted object waits for its finalizer.
pub const FINALIZER: Code = Code(725);
/// A reconcile does not end.
pub const STUCK: Code = Code(726);
/// A field cannot be changed.
pub const IMMUTABLE: Code = Code(727);
/// An owner reference crosses namespaces.
pub const OWNER: Code = Code(728);
/// A webhook cannot be reached.
pub const WEBHOOK: Code = Code(729);
/// A reconciler changes the spec of the object that it reconciles.
pub const OWN_SPEC: Code = Code(730);
/// The API server found an object invalid that the operator wrote.
pub const INVALID: Code = Code(731);

pub(super) const EXPLANATIONS: &[Explanation] = &[
    Explanation {
        code: REMOTE,
        title: "a cluster is not of this machine, and nobody named it",
        story: "The commonest accident with such tools is the wrong current context. `install`, `deploy`, `uninstall`, \
                `undeploy` and `run` use the current context if it is of this machine, or if the project has used it \
                before (`.kubewright/contexts`, which git does not see). Any other one must be named once: `--context \
                NAME`.\n\n`kubewright dev` replaces definitions, applies samples and runs code that was saved a \
                second ago. That needs a cluster that may be lost, so without `--context` `dev` starts an embedded \
                cluster and does not read your kubeconfig. To use a cluster that is not of this machine all the same, \
                name it twice: `--context NAME --allow-context NAME`. `controllers` asks for the second name, \
                too.\n\nA context counts as local when its server is a loopback address, or when it is minikube's, \
                kind's, k3d's, Docker's or Rancher's on a private one. A context with a proxy, or with a certificate \
                for another name, does not count as local, since its server may be another machine.",
    },
    Explanation {
        code: REFUSED,
        title: "the API server refused a definition",
        story: "After each build `dev` applies the CRDs that the operator declares. The server refused one; its \
                message says why. The previous build keeps running, with the definitions that the server has.\n\nA \
                schema that is not structural or a default that does not fit is fixed in the types; `kubewright \
                manifests` says at which field. The scope (namespaced or not) and the names of a kind cannot be \
                changed while the definition is there: delete it (`kubectl delete crd NAME`, its objects go with it) \
                and save again. A version that still stands in `status.storedVersions` cannot be dropped.",
    },
    Explanation {
        code: SAMPLE,
        title: "a sample was not applied or not reconciled",
        story: "`dev --samples` applies the files of `config/samples` when the operator is ready, and again when one \
                of them is saved. The server refused one, or the file is not YAML. Unknown fields are refused and not \
                dropped silently: a field that is spelled wrongly is found here.\n\nFix the file and save it.\n\n\
                `kubewright test` applies the samples, too, and waits until the operator has reconciled them: a reconcile \
                that still fails after a minute, or an operator that does not come to rest, is this error. `kubewright \
                dev --samples` shows each reconcile with its cause.",
    },
    Explanation {
        code: ENDED,
        title: "the operator ended unexpectedly",
        story: "The program panicked outside a reconcile, could not start (a port is taken, the kubeconfig cannot be \
                read), or was killed. `dev` shows its last lines and starts it again, after a pause that doubles each \
                time up to 30 seconds; saving a file starts it at once. A panic inside a reconcile does not end an \
                operator: it is an error of that one key, and is tried again.",
    },
    Explanation {
        code: WATCH,
        title: "files cannot be watched",
        story: "`dev` asks the operating system to report saved files. On Linux the number of watches is limited: \
                `sysctl fs.inotify.max_user_watches` and `fs.inotify.max_user_instances` show how many a user may \
                have, and a higher number can be set there. Network file systems often report nothing; keep the \
                project on a local disk.",
    },
    Explanation {
        code: LOOP,
        title: "a reconciler wakes itself",
        story: "The same key is reconciled again and again, and each time because of a field that the previous \
                reconcile wrote: a time stamp in status, a counter, a list whose order changes. Each pass costs \
                requests, and in production this never stops.\n\nWrite such a field only when something else changed, \
                or drop it. To check something regularly, return `Action::requeue_after`. A controller that need not \
                see its own writes of the status uses the predicate `generation_changed`.",
    },
    Explanation {
        code: FIGHT,
        title: "a reconciler writes the same thing again and again",
        story: "With each reconcile, the same fields of the same object change from one value to another and back. \
                Most often the operator sends an object without a field for which the API server has a default, or \
                another controller (an autoscaler) owns the field.\n\nUse `ctx.apply`, which compares only the \
                fields that you set and sends nothing when nothing changes, instead of `replace`; and do not set \
                fields that others own.",
    },
    Explanation {
        code: CONFLICTS,
        title: "writes meet conflicts again and again",
        story: "A conflict (409) means that the object was changed since it was read. An occasional conflict is \
                normal and is retried. Many in a row mean that the operator writes with an old resourceVersion each \
                time, or that two controllers write the same object in turns.\n\nWrite single fields (`ctx.apply`, \
                `ctx.patch_status`) instead of whole objects, and find the other writer with `kubectl get -o yaml \
                --show-managed-fields`.",
    },
    Explanation {
        code: FORBIDDEN,
        title: "the operator lacks a permission",
        story: "The API server answered 403: the role of the operator's service account lacks a rule. The message \
                names the verb, the resource and the namespace or the cluster.\n\nController declarations (`of`, \
                `owns`, `watches`) bring their own rules. Add other permissions with `#[rbac(…)]` above the `impl` of \
                the reconciler; `kubewright manifests` writes config/rbac/role.yaml from both.",
    },
    Explanation {
        code: UNKNOWN_KIND,
        title: "the API server does not know a kind",
        story: "The operator watches, reads or writes a kind that this cluster does not serve: its \
                CustomResourceDefinition is not installed, or not in this version.\n\n`kubewright install` installs \
                the project's own definitions into the current cluster; in `kubewright dev` this happens after each \
                build. Definitions of other projects must be installed first. `kubectl api-resources` lists what the \
                server knows.",
    },
    Explanation {
        code: FINALIZER,
        title: "a deleted object waits for its finalizer",
        story: "The object has a deletionTimestamp and stays until its last finalizer is removed. The operator removes \
                its own finalizer when `cleanup` is done. Either that code is not reached, or it fails, or the \
                operator does not run.\n\nAs a last resort `kubectl patch KIND NAME --type=merge -p \
                '{\"metadata\":{\"finalizers\":null}}'` releases the object; resources outside the cluster are then \
                not removed.",
    },
    Explanation {
        code: STUCK,
        title: "a reconcile does not end",
        story: "A reconcile has been running for half a minute. Meanwhile its key is not reconciled again, and its \
                worker is not free for other keys. Something in it waits without a timeout, or blocks the thread: \
                `std::thread::sleep`, synchronous network or file access, a lock.\n\nUse the asynchronous forms \
                (`tokio::time::sleep`), put blocking work into `tokio::task::spawn_blocking`, and return \
                `Action::requeue_after` instead of waiting.",
    },
    Explanation {
        code: IMMUTABLE,
        title: "a field cannot be changed",
        story: "Some fields are fixed when an object is created: most of a StatefulSet's spec, a Deployment's \
                selector, a Job's template, a Service's clusterIP. The API server always refuses the change, so a \
                retry cannot succeed.\n\nChange what may be changed (the size of a volume is changed at the \
                PersistentVolumeClaim), or delete the object and let the reconcile create it anew.",
    },
    Explanation {
        code: OWNER,
        title: "an owner reference crosses namespaces",
        story: "An object can be owned by an object of its own namespace or by a cluster-scoped one. Across namespaces \
                the garbage collector does not find the owner, assumes that it was deleted, and deletes the \
                dependent.\n\nPut a label on the object that names its owner, find the owner from it with \
                `Controller::watches`, and delete the object in a finalizer.",
    },
    Explanation {
        code: WEBHOOK,
        title: "a webhook cannot be reached",
        story: "The API server calls a webhook of the operator before it stores an object, and could not reach it: the \
                operator does not run, listens elsewhere, or has a certificate that the configuration's caBundle does \
                not cover. With `failurePolicy: Fail` every such write fails.\n\nIn `dev` the webhooks answer when the \
                operator is ready; while it restarts, they do not answer for a moment. In a cluster look at the \
                Service, its endpoints and the certificate.",
    },
    Explanation {
        code: OWN_SPEC,
        title: "a reconciler changes the spec of the object that it reconciles",
        story: "The spec is the state that the user (or their Git repository) asks for. An operator that changes it \
                works against the user, and each change triggers another reconcile.\n\nPut observed or computed values \
                into the status; put defaults into the schema or the defaulting webhook.",
    },
    Explanation {
        code: INVALID,
        title: "the API server rejected an object of the operator as invalid",
        story: "The API server answered 422: a field of the object breaks a rule of its kind. The message names the \
                field. A retry with the same object cannot succeed.\n\nIf the value comes from the custom resource, \
                refuse it earlier: with a rule in the schema, so that the author of the resource gets the error at \
                once.",
    },
];
