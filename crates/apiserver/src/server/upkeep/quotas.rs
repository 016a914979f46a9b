//! The server's own writes to the status of a ResourceQuota.

use serde_json::Value;

use crate::model::status::Status;
use crate::model::user::{SYSTEM_MASTERS, UserInfo};
use crate::server::Inner;
use crate::server::managed::Tracking;
use crate::server::write::{Part, Writer};

/// The user as which the server sends requests to itself.
const USER: &str = "system:apiserver";
const MANAGER: &str = "kube-apiserver";

impl Inner {
    /// Replaces the status of a quota by the result of `next` for the present one, again after a conflict with another
    /// write. A quota that is gone limits nothing, and needs no status.
    pub(crate) async fn update_quota(
        &self,
        namespace: &str,
        name: &str,
        mut next: impl FnMut(&Value) -> Result<Value, Status> + Send,
    ) -> Result<(), Status> {
        let Some(resource) = self.registry.lookup("", "v1", "resourcequotas") else {
            return Err(Status::untyped("the resource table has no ResourceQuota"));
        };
        let user = UserInfo::authenticated(USER, [SYSTEM_MASTERS]);
        let mut writer = Writer {
            tracking: Tracking::Update(MANAGER.to_owned()),
            ..Writer::new(self, resource, &user)
        };
        match writer.update(namespace, name, Part::Status, |old, _| next(old)).await {
            Err(status) if status.reason != "NotFound" => Err(status),
            _ => Ok(()),
        }
    }
}
