//! Releases as Helm keeps them: one Secret for each revision.
//!
//! Helm alone writes them, but for two things: records that would keep it from working are deleted, and the Secrets get
//! an owner. [`next`] decides from what the records say; it does no IO.

use std::io::Read as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::Secret;
use kubewright::kube::ResourceExt as _;
use kubewright::kube::core::{ObjectMeta, PartialObjectMeta};
use serde::Deserialize;

/// How large a release may be when it is unpacked.
const LARGEST: u64 = 64 << 20;

/// One revision, as the labels of its Secret tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// The Secret.
    pub(super) secret: String,
    pub(super) uid: Option<String>,
    pub(super) resource_version: String,
    pub(super) version: u64,
    pub(super) status: String,
    /// The uid of the object that controls it.
    pub(super) owner: Option<String>,
}

impl Record {
    pub(super) fn of(secret: &PartialObjectMeta<Secret>) -> Option<Record> {
        let meta: &ObjectMeta = &secret.metadata;
        let label = |name: &str| meta.labels.as_ref()?.get(name);
        let owners = meta.owner_references.iter().flatten();
        Some(Record {
            secret: secret.name_any(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            version: label("version")?.parse().ok()?,
            status: label("status")?.clone(),
            owner: owners
                .filter(|owner| owner.controller == Some(true))
                .map(|owner| owner.uid.clone())
                .next(),
        })
    }

    fn is_pending(&self) -> bool {
        self.status.starts_with("pending-")
    }
}

/// The labels of a release's Secrets.
pub(super) fn selector(release: &str) -> String {
    format!("owner=helm,name={release}")
}

/// What a release needs before its values are looked at.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// There is none that works: these records go, and it is installed.
    Install { stale: Vec<Record> },
    /// An operation did not end, or failed and was not undone: this revision is restored.
    Restore { revision: u64 },
    /// It is deployed.
    Compare { deployed: Record },
}

/// The next step for a release with these records.
///
/// Nobody else works on the release: a key has one worker, and a pending record is what is left of an operator that was
/// ended. Helm refuses every upgrade while the last record is pending, and has a rollback that does not.
pub(super) fn next(records: &[Record]) -> Next {
    let newest = |status: &str| {
        let of_status = records.iter().filter(|record| record.status == status);
        of_status.max_by_key(|record| record.version)
    };
    let last = records.iter().max_by_key(|record| record.version);
    let unfinished =
        last.is_some_and(|last| last.is_pending() || last.status == "failed" || last.status == "superseded");
    match (newest("deployed"), newest("superseded")) {
        (Some(deployed), _) if unfinished => Next::Restore {
            revision: deployed.version,
        },
        (Some(deployed), _) => Next::Compare {
            deployed: deployed.clone(),
        },
        // Ended between the two writes by which one revision follows another.
        (None, Some(superseded)) if unfinished => Next::Restore {
            revision: superseded.version,
        },
        (None, _) => Next::Install {
            stale: records.to_vec(),
        },
    }
}

/// A release, as its Secret holds it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Release {
    pub(super) name: String,
    #[serde(default)]
    pub(super) version: u64,
    #[serde(default)]
    pub(super) manifest: String,
    #[serde(default)]
    pub(super) info: Info,
    #[serde(default)]
    chart: Chart,
    #[serde(default)]
    pub(super) hooks: Vec<Hook>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Info {
    #[serde(default)]
    pub(super) notes: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Chart {
    #[serde(default)]
    metadata: ChartMetadata,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct ChartMetadata {
    #[serde(default)]
    name: String,
}

/// An object that Helm makes beside the manifest.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Hook {
    #[serde(default)]
    pub(super) manifest: String,
}

impl Release {
    /// The name of the chart that it was made from.
    pub(super) fn chart(&self) -> &str {
        &self.chart.metadata.name
    }

    /// Reads a release out of its Secret.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(super) fn of(secret: &Secret) -> Result<Release, String> {
        let data = secret.data.as_ref().and_then(|data| data.get("release"));
        let data = data.ok_or_else(|| "it holds no release".to_owned())?;
        let packed = BASE64_STANDARD.decode(&data.0).map_err(|why| why.to_string())?;
        // Releases of old versions are not packed.
        let text = match packed.starts_with(&[0x1f, 0x8b, 0x08]) {
            false => packed,
            true => {
                let mut text = Vec::new();
                let mut unpacked = GzDecoder::new(&packed[..]).take(LARGEST);
                unpacked.read_to_end(&mut text).map_err(|why| why.to_string())?;
                text
            }
        };
        serde_json::from_slice(&text).map_err(|why| why.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(said: &str) -> Vec<Record> {
        let record = |(number, status): (usize, &str)| Record {
            secret: format!("v{}", number + 1),
            uid: None,
            resource_version: String::new(),
            version: number as u64 + 1,
            status: status.to_owned(),
            owner: None,
        };
        said.split_whitespace().enumerate().map(record).collect()
    }

    #[test]
    fn what_a_release_needs() {
        let check = |said: &str, expected: &str| {
            let told = match next(&records(said)) {
                Next::Install { stale } => format!("install, without {}", stale.len()),
                Next::Restore { revision } => format!("restore {revision}"),
                Next::Compare { deployed } => format!("compare {}", deployed.version),
            };
            assert_eq!(told, expected, "{said}");
        };
        check("", "install, without 0");
        check("deployed", "compare 1");
        check("superseded superseded deployed", "compare 3");
        check("pending-install", "install, without 1");
        check("failed", "install, without 1");
        check("uninstalled", "install, without 1");
        check("superseded uninstalling", "install, without 2");
        check("deployed pending-upgrade", "restore 1");
        check("superseded deployed pending-rollback", "restore 2");
        check("superseded pending-upgrade", "restore 1");
        check("deployed failed", "restore 1");
        check("deployed failed deployed", "compare 3");
        check("superseded failed deployed", "compare 3");
    }
}
