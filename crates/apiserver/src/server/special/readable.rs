//! A delete of what cannot be read (`ignoreStoreReadErrorWithClusterBreakingPotential`, since 1.37): this server can read
//! all that it has, so that nothing is ever deleted.

use crate::model::status::Status;
use crate::server::Call;
use crate::server::authorize::further_attributes;
use crate::server::update::invalid_object;

/// What a user must be allowed beside the delete.
const VERB: &str = "unsafe-delete-ignore-read-errors";

impl Call<'_> {
    /// The refusal: of the user (`authorizeUnsafeDelete`), or that of the storage upstream.
    pub(in crate::server) async fn refuse_readable(&self) -> Status {
        if let Some(entry) = self.audit {
            entry.annotate("apiserver.k8s.io/unsafe-delete-ignore-read-error", "");
        }
        let attributes = further_attributes(VERB, &self.resource, self.namespace(), self.name());
        let decision = self.server.authorizer.decide(self.user, &attributes).decision().await;
        if !decision.is_allowed() {
            let why = match decision.error.as_str() {
                "" => format!("not permitted to do {VERB:?}, reason: {}", decision.reason),
                error => format!("error while checking permission for {VERB:?}, {error}"),
            };
            return Status::forbidden(&self.resource, self.name(), &why);
        }
        if let Err(missing) = self.get_stored().await {
            return missing;
        }
        let why = "unsafe deletion is not allowed because the object is decodable from storage";
        invalid_object(&self.resource, "/registry", &self.key(), self.name(), why)
    }
}
