//! KWR0800–KWR0899: the machine, its tools, and clusters: the findings of `doctor`.

use super::{Code, Explanation};

/// A kubeconfig cannot be used.
pub const KUBECONFIG: Code = Code(801);
/// The Rust toolchain is missing or too old.
pub const TOOLCHAIN: Code = Code(802);
/// The disk is nearly full.
pub const DISK: Code = Code(803);
/// A port that is needed is taken.
pub const PORT: Code = Code(804);
/// An optional tool is missing or too old.
pub const TOOL: Code = Code(805);
/// PROJECT and the code do not say the same.
pub const DRIFT: Code = Code(806);
/// The cluster's definitions are not those of the project.
pub const STALE: Code = Code(807);
/// The project's kubewright is not the command's.
pub const VERSION: Code = Code(808);

pub(super) const EXPLANATIONS: &[Explanation] = &[
    Explanation {
        code: KUBECONFIG,
        title: "a kubeconfig cannot be used",
        story: "The file is missing or is not YAML, the context does not exist, its credentials cannot be read, or the \
                server does not answer. The file is the one of `--kubeconfig`, or of `$KUBECONFIG`, or \
                `~/.kube/config`; the context that of `--context`, or the current one.\n\n`kubectl config \
                get-contexts` lists the contexts. `kubewright cluster` starts a cluster and writes a kubeconfig for \
                it.",
    },
    Explanation {
        code: TOOLCHAIN,
        title: "the Rust toolchain is missing or too old",
        story: "Operators are compiled with cargo. `rustup update stable` installs the newest toolchain; rustup itself \
                is at https://rustup.rs. A linker (`cc`) is needed as well: `apt install build-essential`, `dnf \
                install gcc`, or Xcode's command line tools.",
    },
    Explanation {
        code: DISK,
        title: "the disk is nearly full",
        story: "A debug build of an operator needs a gigabyte or two in `target/`, and the tests as much again. When \
                the disk is full compilers and linkers fail with messages that do not say so.\n\n`cargo clean` in \
                projects that you do not work on frees the most space.",
    },
    Explanation {
        code: PORT,
        title: "a port that is needed is taken",
        story: "An operator listens on 8081 (probes), 8443 (metrics) and 9443 (webhooks) unless told otherwise; \
                another program has the port. `dev` chooses free ports by itself; `run` and the operator take \
                `--health-probe-bind-address`, `--metrics-bind-address` and `--webhook-port`.\n\n`ss -ltnp` shows the \
                program that listens.",
    },
    Explanation {
        code: TOOL,
        title: "an optional tool is missing or too old",
        story: "kubewright itself needs only cargo. kubectl (1.30 or newer) shows what is in a cluster, docker or \
                podman build images, git shows what changed. Commands that need one of them say so.",
    },
    Explanation {
        code: DRIFT,
        title: "PROJECT and the code disagree",
        story: "PROJECT records which APIs, controllers and webhooks were created; the operator's declaration says \
                which of them the operator has. The two differ: most often a controller was never added to \
                `operator()` in src/lib.rs, and therefore never runs, or a kind was removed by hand.\n\nAdd the \
                missing entry, or remove the other with `kubewright delete api` or `kubewright delete webhook`.",
    },
    Explanation {
        code: STALE,
        title: "the cluster's definitions are not the project's",
        story: "A definition (CRD) in the cluster differs from the one in config/crd/bases: the types have changed \
                since it was installed, or another user installed another version. The API server drops fields \
                that its schema does not know and refuses what its schema forbids, so the operator may lose fields \
                that it writes.\n\n`kubewright install` and `kubewright deploy` update the definitions. Update them \
                before the operator that needs them.",
    },
    Explanation {
        code: VERSION,
        title: "the project's kubewright is not the command's",
        story: "The library that the operator is built with and the command have different versions. The command \
                understands declarations of its own version; it may misread or refuse those of another \
                version.\n\nBring the library up with `cargo update -p kubewright` or install the \
                command of the project's version (`cargo install kubewright-cli --locked --git ADDRESS --tag VERSION`).",
    },
];
