//! `kubewright version`: which program this is and which Kubernetes it serves.

use clap::Args;
use serde_json::json;

use crate::output::{Failure, Format};

/// Print the version of kubewright and of the Kubernetes API it serves
#[derive(Debug, Args)]
pub(crate) struct Arguments {}

impl Arguments {
    pub(crate) fn run(self, output: Format) -> Result<(), Failure> {
        let version = env!("CARGO_PKG_VERSION");
        let kubernetes = kubewright_cluster::Minor::default().version();
        output.say(
            &format!("kubewright {version} (embedded Kubernetes API {kubernetes})"),
            &json!({"kubewright": version, "kubernetes": kubernetes}),
        );
        Ok(())
    }
}
