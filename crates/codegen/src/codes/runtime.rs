//! KWR0550–KWR0599: running operators: their webhooks and conversions, their arguments.
//!
//! The runtime does not know this crate; it writes the code into its message, and `crates/cli` holds the two together.

use super::{Code, Explanation};

/// The webhook server finds no certificate.
pub const NO_CERTIFICATE: Code = Code(550);
/// A client wants a version that the operator does not convert to.
pub const NO_CONVERSION: Code = Code(551);

pub(super) const EXPLANATIONS: &[Explanation] = &[
    Explanation {
        code: NO_CERTIFICATE,
        title: "the webhook server has no certificate",
        story: "The API server calls webhooks over HTTPS only, so an operator with webhooks needs a certificate before \
                it can start. It looks for `tls.crt` and `tls.key` in the directory of `--webhook-cert-path`, and \
                without the flag in `k8s-webhook-server/serving-certs` in the temporary directory.\n\nIn a cluster \
                cert-manager makes the certificate and the pod mounts it: check that the Certificate is Ready and that \
                `config/default` has the cert-manager component switched on. On your own machine use `kubewright dev`, \
                which makes one, or set `ENABLE_WEBHOOKS=false` to run without webhooks. Tests need none: \
                `TestCluster::run` calls webhooks without a socket.",
    },
    Explanation {
        code: NO_CONVERSION,
        title: "the operator does not convert to this version",
        story: "The CustomResourceDefinition serves a version that the operator's conversion does not know, so the API \
                server cannot show objects in it.\n\nAdd the version to the declaration, \
                `Conversion::hub::<v1::Kind>().spoke::<v2::Kind>()`, with `TryFrom` both ways between it and the hub, \
                or stop serving it. `kubewright create webhook --conversion --spoke VERSION` scaffolds it.",
    },
];
