//! Kinds that are newer than the types of Kubernetes that this workspace is compiled with, as far as controllers read
//! them: StorageVersionMigration and ClusterTrustBundle.
//!
//! Invariant: every field that a controller does not know is one that it does not have to keep. Not here:
//! PodCertificateRequests, of which the cleaner reads the metadata alone.

use std::borrow::Cow;

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kubewright::kube::Resource;
use kubewright::kube::core::{ClusterResourceScope, NamespaceResourceScope, ObjectMeta};
use serde::{Deserialize, Serialize};

macro_rules! resource {
    ($kind:ident, $scope:ident, $group:literal, $plural:literal) => {
        impl Resource for $kind {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                stringify!($kind).into()
            }

            fn group((): &()) -> Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> Cow<'_, str> {
                "v1".into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

/// Which resource is to be written again, and how far that is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct StorageVersionMigration {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: MigrationSpec,
    #[serde(default)]
    pub(crate) status: MigrationStatus,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct MigrationSpec {
    pub(crate) resource: GroupResource,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct GroupResource {
    #[serde(default)]
    pub(crate) group: String,
    pub(crate) resource: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MigrationStatus {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) conditions: Vec<Condition>,
    /// Objects that were written later are not written again. Empty: not known yet.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) resource_version: String,
}

resource!(
    StorageVersionMigration,
    ClusterResourceScope,
    "storagemigration.k8s.io",
    "storageversionmigrations"
);

/// Certificates that clients trust.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ClusterTrustBundle {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: TrustBundleSpec,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TrustBundleSpec {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) signer_name: String,
    #[serde(default)]
    pub(crate) trust_bundle: String,
}

resource!(
    ClusterTrustBundle,
    ClusterResourceScope,
    "certificates.k8s.io",
    "clustertrustbundles"
);

/// A request for a certificate of a pod: only its metadata are read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PodCertificateRequest {
    pub(crate) metadata: ObjectMeta,
}

resource!(
    PodCertificateRequest,
    NamespaceResourceScope,
    "certificates.k8s.io",
    "podcertificaterequests"
);
