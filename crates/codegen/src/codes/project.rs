//! KWR0100–KWR0199: the PROJECT file, and requests to the scaffold.

use super::{Code, Explanation};

/// There is no project here.
pub const NONE: Code = Code(100);
/// PROJECT cannot be read, or contradicts itself.
pub const BROKEN: Code = Code(101);
/// The project belongs to another tool or to another version of the file.
pub const FOREIGN: Code = Code(102);
/// A name cannot be used.
pub const NAME: Code = Code(103);
/// An answer is missing.
pub const MISSING: Code = Code(104);
/// The thing to create exists already.
pub const TAKEN: Code = Code(105);
/// The thing that a command builds on does not exist.
pub const UNKNOWN: Code = Code(106);
/// A second group in a project of one group.
pub const MULTIGROUP: Code = Code(107);
/// Flags contradict each other, or nothing was asked for.
pub const FLAGS: Code = Code(108);
/// A plugin that does not exist here.
pub const PLUGIN: Code = Code(109);
/// Files that a person edited stand in the way of their removal.
pub const KEPT: Code = Code(110);
/// Where the dependency on kubewright comes from is not known.
pub const SOURCE: Code = Code(111);
/// The scaffold and its users changed the same lines.
pub const CONFLICT: Code = Code(112);
/// An external plug-in failed, or its answer cannot be taken.
pub const EXTERNAL: Code = Code(113);
/// The settings of the project cannot be used.
pub const SETTINGS: Code = Code(114);

pub(super) const EXPLANATIONS: &[Explanation] = &[
    Explanation {
        code: NONE,
        title: "there is no project here",
        story: "The command works on a project, which is a folder with a file named PROJECT. There is none in this \
                folder or in any folder above it.\n\nChange into the folder of your project, or begin one: `kubewright \
                init --domain my.domain`.",
    },
    Explanation {
        code: BROKEN,
        title: "the PROJECT file cannot be used",
        story: "PROJECT (YAML, `version: \"3\"`) records which kinds, controllers and webhooks a project has; commands \
                read it before they do anything. It is not readable YAML, a field has an invalid value, or two entries \
                contradict each other. Nothing was changed.\n\nFix the place that the message names; `git diff \
                PROJECT` shows what changed last. Fields that kubewright does not know are kept as they are.",
    },
    Explanation {
        code: FOREIGN,
        title: "the project was made by another tool",
        story: "The `layout` in PROJECT says which tool made the files of a project. Files of kubewright's projects \
                are Rust (`rust.kubewright.dev/…`); those of this project are not, or its PROJECT does not have \
                version 3. Scaffolding Rust into it would mix two languages.\n\nStart a new project with `kubewright \
                init` and the same names: groups, kinds, `config/` and PROJECT mean the same, so manifests and users \
                stay as they are.",
    },
    Explanation {
        code: NAME,
        title: "a name cannot be used",
        story: "Groups, versions, kinds and plurals become parts of a CRD, of URLs, of Rust modules and types, and \
                cannot be changed later without moving every object. So they are checked before anything is written: a \
                domain and a group are DNS-1123 subdomains, a version and a plural DNS-1035 labels, a kind begins with \
                an upper-case letter and has only letters and digits.\n\nReserved words of Rust, dots and hyphens in \
                groups are fine: the module is then called `type_` or `dock_harbour`.",
    },
    Explanation {
        code: MISSING,
        title: "an answer is missing",
        story: "On a terminal the command asks for it; in a script or in CI it does not wait. The message names the \
                flag that gives the answer.",
    },
    Explanation {
        code: TAKEN,
        title: "it exists already",
        story: "A kind, controller or webhook is created once: its file is yours from then on. Nothing was \
                changed.\n\n`--force` writes the scaffold over it (`--diff` shows what would be lost). A second \
                controller for the same kind needs a name: `--controller-name guestbook-backup`. A webhook of another \
                type is added to the existing ones by naming only the new type.",
    },
    Explanation {
        code: UNKNOWN,
        title: "there is no such API in the project",
        story: "A webhook, a conversion or a controller without `--resource` builds on a type that exists: an API of \
                the project (`create api`), a built-in kind of Kubernetes (`--group core --version v1 --kind Pod`), or \
                a kind of another project (`--external-api-domain io --external-api-path their_crate::v1`).\n\nThe \
                message lists what the project has.",
    },
    Explanation {
        code: MULTIGROUP,
        title: "a second group needs the multigroup layout",
        story: "With one group, types live in `api/src/<version>`; a second group with the same version would collide \
                with it. `kubewright edit --multigroup` moves the files to `api/src/<group>/<version>` and updates the \
                `mod` and `use` lines; then create the API.",
    },
    Explanation {
        code: FLAGS,
        title: "flags contradict each other",
        story: "Some flags are valid only together, and some exclude each other: a path of a webhook needs that \
                webhook, a spoke needs `--conversion`, an external type is never a resource of this project. The \
                message names the pair.",
    },
    Explanation {
        code: PLUGIN,
        title: "no such plugin",
        story: "kubewright has one layout, `rust.kubewright.dev/v1-alpha`, and optional plugins with kubebuilder's \
                names: `edit --plugins helm/v2-alpha` (a chart from `config/`), `edit --plugins grafana/v1-alpha` \
                (dashboards), `edit --plugins autoupdate/v1-alpha` (a workflow that upgrades the project), `create api \
                --plugins deploy-image/v1-alpha --image IMAGE` (a kind whose controller runs an image). The version \
                may be left out of these keys. External plug-ins are named `NAME/VERSION`.\n\nLeave out other keys of \
                kubebuilder (`go/v4`, `kustomize/v2`): the layout does their work here.",
    },
    Explanation {
        code: KEPT,
        title: "a file was edited by hand and is not deleted",
        story: "`delete` removes what `create` wrote. A file that was edited since is not deleted, because the edits \
                would be lost; nothing was changed.\n\nSave what you need and use `--force`, or delete the file by \
                hand.",
    },
    Explanation {
        code: SOURCE,
        title: "the source of the kubewright crate is unknown",
        story: "A project depends on the `kubewright` crate. `--kubewright`, or the variable KUBEWRIGHT_PATH, says from \
                where: a git repository (`https://example.com/kubewright@REVISION`), a checkout (`../kubewright`, and \
                the project then builds on this machine only), or a published version (`0.1.0`). A program that was \
                built from a checkout writes the address and the revision of that checkout by itself. The Dockerfile \
                and the workflows follow the same source.",
    },
    Explanation {
        code: CONFLICT,
        title: "the scaffold and you changed the same lines",
        story: "`upgrade` merges three texts of each file: what the version that made the project wrote, what this \
                version writes, and your own file. Where you and the scaffold changed the same lines, only a person \
                can decide; nothing was written.\n\n`--force` writes the file with both between `<<<<<<< yours`, \
                `=======` and `>>>>>>> kubewright VERSION`, as `git merge` does. Choose, remove the marks, and look at \
                `git diff`. `--force --diff` shows the result first.",
    },
    Explanation {
        code: EXTERNAL,
        title: "an external plug-in failed",
        story: "`--plugins NAME/VERSION` runs a program: kubebuilder's protocol v1alpha1, JSON in and JSON out. The \
                program is `NAME/VERSION/NAME` (with or without a file extension) in `$EXTERNAL_PLUGINS_PATH`, or \
                else in `kubebuilder/plugins` in `$XDG_CONFIG_HOME` (`~/.config`; on macOS `~/Library/Application \
                Support`).\n\nIts answer is used as a whole or not at all. It must answer within a minute \
                (`KUBEWRIGHT_PLUGIN_SECONDS` changes that), with 32 MiB at most, and print one JSON object and \
                nothing else to standard output. Paths in the answer must be inside the project, and PROJECT must \
                remain valid for kubewright. If the plug-in reports an error, the message shows it.\n\nTo see its \
                answer, run it yourself: `echo \
                '{\"apiVersion\":\"v1alpha1\",\"command\":\"edit\",\"args\":[],\"universe\":{}}' | PROGRAM`.",
    },
    Explanation {
        code: SETTINGS,
        title: "kubewright.toml cannot be used",
        story: "`kubewright.toml`, beside PROJECT, has the settings of a project. It has two tables; any other name is \
                an error, because it would have no effect:\n\n`[manifests]`, for `manifests`, `dev`, `run` and \
                `doctor`: `generate-embedded-object-meta = false`, `max-desc-len = 0`, `allow-dangerous-types = true`, \
                with the meaning of the flags of `kubewright manifests`, which override them.\n\n`[images]`: an image \
                and the command that is run for it when pods are processes, `\"shop:dev\" = \"cargo run\"`.",
    },
];
