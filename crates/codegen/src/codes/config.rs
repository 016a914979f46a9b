//! KWR0600–KWR0699: the config/ tree, rendering it, and bringing it to a cluster.

use super::{Code, Explanation};

/// A kustomization uses something that the built-in renderer does not know.
pub const UNSUPPORTED: Code = Code(600);
/// A kustomization, or a file that it names, is not as it has to be.
pub const KUSTOMIZATION: Code = Code(601);
/// A generated manifest is missing.
pub const NOT_GENERATED: Code = Code(602);
/// A patch does not fit.
pub const PATCH: Code = Code(603);
/// A replacement has no source, or its target has no such field.
pub const REPLACEMENT: Code = Code(604);
/// Two objects have the same kind and name, or a reference may mean several.
pub const AMBIGUOUS: Code = Code(605);
/// `kustomize`, which was asked because the built-in renderer could not help, failed.
pub const KUSTOMIZE: Code = Code(606);
/// No cluster, or one that does not answer.
pub const CLUSTER: Code = Code(610);
/// The cluster does not know a kind.
pub const NO_KIND: Code = Code(611);
/// The cluster refused an object.
pub const REFUSED: Code = Code(612);
/// Something did not become ready in time.
pub const NOT_READY: Code = Code(613);
/// Objects stay because no controller removes their finalizers.
pub const FINALIZERS: Code = Code(614);
/// An object to delete does not exist.
pub const ABSENT: Code = Code(615);
/// A namespace that is not the project's.
pub const NAMESPACE: Code = Code(617);
/// Nobody agreed to a deletion.
pub const UNCONFIRMED: Code = Code(618);
/// A bundle that OLM would not take.
pub const BUNDLE: Code = Code(620);
/// A bundle cannot be read, or breaks a rule of OLM.
pub const INVALID_BUNDLE: Code = Code(621);

pub(super) const EXPLANATIONS: &[Explanation] = &[
    Explanation {
        code: UNSUPPORTED,
        title: "a kustomization uses what the built-in renderer does not know",
        story: "kubewright renders `config/` itself, without another program, and supports exactly what its own tree \
                uses: resources, components, patches (strategic merge and JSON 6902), namespace, namePrefix, labels, \
                images, replacements and configurations. The message names a field beyond that, such as a generator or \
                a remote resource.\n\nWhere `kustomize` or `kubectl` is on the PATH, `build-installer`, `install`, \
                `uninstall`, `deploy` and `undeploy` run it instead; otherwise install kustomize 5, or use the fields \
                above instead.",
    },
    Explanation {
        code: KUSTOMIZATION,
        title: "a kustomization is broken",
        story: "The file named in the message is not YAML, has a field of the wrong type, or names a file or folder \
                that does not exist. `kustomize build` fails at the same place.\n\nFix the line that the message \
                names. A file that a list names must be in or below the kustomization's own folder; a folder may be \
                anywhere in the project.",
    },
    Explanation {
        code: NOT_GENERATED,
        title: "a generated manifest is missing",
        story: "`config/` names files that are written from the Rust code: `crd/bases/*.yaml`, `rbac/role.yaml` and \
                `webhook/manifests.yaml`. One of them is not there.\n\nRun `kubewright manifests`. If it is still \
                missing, the code no longer declares what the list names (a kind that was renamed, a webhook that is \
                not registered in `operator()`).",
    },
    Explanation {
        code: PATCH,
        title: "a patch does not fit",
        story: "A patch without `target` must name, by kind and name, exactly one object that comes before it; a JSON \
                patch must point to fields that exist. The message names the patch, and the object or field that it \
                did not find.\n\nNames in patches are those before the `namePrefix`. Parts in `components` are applied \
                in their order: a patch sees only the parts above it.",
    },
    Explanation {
        code: REPLACEMENT,
        title: "a replacement finds no source or no field",
        story: "`replacements` copy a value from one object into others. The source must be exactly one object and \
                have the field; every selected target must have the field too.\n\n`config/default/replacements.yaml` \
                takes final names from the stand-ins in `names.yaml`; both are needed for certificates.",
    },
    Explanation {
        code: AMBIGUOUS,
        title: "two objects have the same name",
        story: "Two objects of one kind have the same name in the same namespace, so that applying one would overwrite \
                the other, or a name may refer to either.\n\nRename one of them, or remove the duplicate from the list \
                that includes it.",
    },
    Explanation {
        code: KUSTOMIZE,
        title: "kustomize failed",
        story: "`config/` uses something that the built-in renderer does not know, so `kustomize build` (or `kubectl \
                kustomize`) was run. It failed; the message shows its output.\n\nRun the command in the message \
                yourself, and fix what it names.",
    },
    Explanation {
        code: CLUSTER,
        title: "there is no cluster to use",
        story: "The cluster is that of the current context in `--kubeconfig`, else `$KUBECONFIG`, else \
                `~/.kube/config`; `--context` selects another context. Either there is no such file or context, or the \
                server in it did not answer.\n\n`kubectl cluster-info` tries to reach the same cluster. For a cluster \
                of your own: `kubewright cluster --kubeconfig FILE`.",
    },
    Explanation {
        code: NO_KIND,
        title: "the cluster does not know a kind",
        story: "An object is of a kind that the cluster does not serve. `Certificate` and `Issuer` come with \
                cert-manager (https://cert-manager.io/docs/installation), which the webhooks' certificates need; \
                `ServiceMonitor` comes with the Prometheus operator. Nothing has been applied: this is checked \
                first.\n\nInstall the component that defines the kind, or switch the part off in \
                `config/default/kustomization.yaml`: put a `#` before its line.",
    },
    Explanation {
        code: REFUSED,
        title: "the cluster refused an object",
        story: "The API server did not accept an object; the message is the server's. Common causes: you have no \
                permission (`forbidden`: to deploy an operator you need the permissions that its roles grant), another \
                manager owns a field (`conflict`: `--force-conflicts` takes it over), or a webhook is not \
                ready.\n\nWhat was applied before the refusal stays; the command may be repeated.",
    },
    Explanation {
        code: NOT_READY,
        title: "something did not become ready in time",
        story: "`install` waits until the definitions are established, `deploy` until the operator is available. The \
                message says what is missing and, for pods, why.\n\n`ErrImagePull`, `ImagePullBackOff`: the cluster \
                cannot get the image; push it (`make docker-push IMG=…`) and pass the same name to `--image`. \
                `CrashLoopBackOff`: look at `kubectl logs` of the pod. `CreateContainerConfigError` or a volume that \
                does not mount: a Secret is missing, as when cert-manager does not work. A quota or no room: `kubectl \
                describe pod`. `--timeout` waits longer; everything stays applied.",
    },
    Explanation {
        code: FINALIZERS,
        title: "objects stay because of their finalizers",
        story: "Custom resources are deleted before the operator, so that it can clean up after them. Some were not \
                removed, because they still have a finalizer. Nothing else was deleted, so the operator can still \
                finish.\n\nRead its log (`kubectl logs`), and run the command again. If it cannot run any more, remove \
                the finalizers yourself: `kubectl patch KIND NAME --type=merge -p \
                '{\"metadata\":{\"finalizers\":null}}'`; what the operator created for them is then not cleaned up.",
    },
    Explanation {
        code: ABSENT,
        title: "an object to delete does not exist",
        story: "`uninstall` and `undeploy` expect everything that they delete to be there, so that a mistaken context \
                or namespace shows. An object was missing; all others have been deleted.\n\n`--ignore-not-found` \
                (`make undeploy ignore-not-found=true`) accepts missing objects.",
    },
    Explanation {
        code: NAMESPACE,
        title: "a namespace is not the project's",
        story: "`deploy` labels its namespace (the Pod Security Standard `restricted` holds for every pod in it), and \
                `undeploy` deletes it with everything in it. So both touch a namespace only if it is new, or carries \
                the project's label `app.kubernetes.io/name`. `default` and the namespaces whose names begin with \
                `kube-` are never used. Nothing was changed.\n\nChoose another name in \
                `config/default/kustomization.yaml` (`namespace:`). If the namespace is this project's, made by \
                somebody else beforehand, label it with the command in the message.",
    },
    Explanation {
        code: UNCONFIRMED,
        title: "nobody agreed to a deletion",
        story: "`uninstall` and `undeploy` delete custom resources, and with them what the operator made for them; \
                nothing brings these back. The command shows kinds and counts, and asks. Without a terminal to ask at \
                it wants `--yes`. Nothing was deleted.\n\nRead the list and the name of the cluster above it. \
                `--dry-run` names each object. Then add `--yes` (`make undeploy yes=true`).",
    },
    Explanation {
        code: BUNDLE,
        title: "OLM would refuse the bundle, or cannot express a part of it",
        story: "`kubewright bundle` turns `config/default` into a ClusterServiceVersion, and checks it against the \
                rules by which the Operator Lifecycle Manager and its catalogs refuse a bundle: required fields, \
                install modes, permissions and their service accounts, CRDs and examples that belong together, kinds \
                that a bundle may have. An error names the first rule that is broken, and nothing is written. A \
                warning names what OLM cannot express, such as the namespace selector of a webhook: OLM sets its \
                own.\n\nWrite the description, icon, maintainers and `replaces` to `config/manifests/bases`, which is \
                scaffolded once and then yours. Certificates are left out: OLM makes them.",
    },
    Explanation {
        code: INVALID_BUNDLE,
        title: "a bundle is not one that OLM takes",
        story: "`kubewright bundle validate` reads a folder as OLM does: `metadata/annotations.yaml` names the folder \
                of the manifests, where each file has one object, and one of them is a ClusterServiceVersion. What \
                keeps it from being read is named with its file. Otherwise all findings are printed: an error is \
                something that OLM, a catalog or an API server refuses, a warning something that users \
                miss.\n\n`--select-optional suite=operatorframework` adds the rules of OperatorHub.io, good practices \
                and removed APIs; `--list-optional` lists what there is. `-o json` prints the report for programs.",
    },
];
