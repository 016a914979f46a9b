//! A delete of what cannot be read (`ignoreStoreReadErrorWithClusterBreakingPotential`, since 1.37): this server can read
//! all that it has, so that nothing is ever deleted.
//!
//! Not here: the verb `unsafe-delete-ignore-read-errors`, without which upstream refuses with another status.

use crate::model::Resource;
use crate::model::status::Status;
use crate::server::Call;

impl Call<'_> {
    /// The refusal, which is that of the storage upstream.
    pub(in crate::server) async fn refuse_readable(&self) -> Status {
        if let Err(missing) = self.get_stored().await {
            return missing;
        }
        let place = match self.namespace() {
            "" => self.name().to_owned(),
            namespace => format!("{namespace}/{}", self.name()),
        };
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}/{place}, ResourceVersion: 0, AdditionalErrorMsg: unsafe \
             deletion is not allowed because the object is decodable from storage",
            folder(&self.resource)
        );
        Status::conflict(&self.resource, self.name(), &why)
    }
}

/// Where etcd has objects of a resource (`SpecialDefaultResourcePrefixes` of kubeapiserver).
fn folder(resource: &Resource) -> String {
    match (&*resource.group, &*resource.plural) {
        (group, plural) if resource.custom.is_some() => format!("{group}/{plural}"),
        (group @ ("apiextensions.k8s.io" | "apiregistration.k8s.io"), plural) => format!("{group}/{plural}"),
        ("", "replicationcontrollers") => "controllers".to_owned(),
        ("", "endpoints") => "services/endpoints".to_owned(),
        ("", "services") => "services/specs".to_owned(),
        ("", "nodes") => "minions".to_owned(),
        ("networking.k8s.io", "ingresses") => "ingress".to_owned(),
        (_, plural) => plural.to_owned(),
    }
}
