//! A delete of what cannot be read (`ignoreStoreReadErrorWithClusterBreakingPotential`, since 1.37): this server can read
//! all that it has, so that nothing is ever deleted.
//!
//! Not here: the verb `unsafe-delete-ignore-read-errors`, without which upstream refuses with another status.

use crate::model::status::Status;
use crate::server::Call;
use crate::server::update::invalid_object;

impl Call<'_> {
    /// The refusal, which is that of the storage upstream.
    pub(in crate::server) async fn refuse_readable(&self) -> Status {
        if let Err(missing) = self.get_stored().await {
            return missing;
        }
        let why = "unsafe deletion is not allowed because the object is decodable from storage";
        invalid_object(&self.resource, "/registry", &self.key(), self.name(), why)
    }
}
