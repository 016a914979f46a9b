//! PUT of an object, or of its status.

use kubewright_schema::error::FieldError;
use serde_json::{Value, json};

use super::Call;
use super::options::{WriteOptions, parse_version};
use super::respond::Reply;
use super::write::Part;
use crate::object;
use crate::registry::Resource;
use crate::status::Status;

impl Call<'_> {
    pub(crate) async fn update(&mut self) -> Result<Reply, Status> {
        self.update_part(Part::Main).await
    }

    pub(crate) async fn update_part(&mut self, part: Part) -> Result<Reply, Status> {
        let options = WriteOptions::parse(self.query, "UpdateOptions")?;
        let resource = self.resource.clone();
        let mut object = self.object_in_body(&options)?;
        self.fit_name(&object)?;
        self.fit_namespace(&mut object)?;
        let name = self.name().to_owned();
        let mut writer = self.tracked_writer(&options);
        if resource.strategy.create_on_update
            && part == Part::Main
            && self.server.storage.get(&resource.store, &self.key()).is_none()
        {
            writer.may_only_update = true;
            let written = writer.create(object).await;
            self.warnings.append(&mut writer.warnings);
            return Ok(self.show(201, written?));
        }
        let key = self.key();
        let written = writer
            .update(self.namespace(), &name, part, |old, _| {
                check_identity(&resource, &key, &name, &object, old)?;
                Ok(object.clone())
            })
            .await;
        self.warnings.append(&mut writer.warnings);
        Ok(self.show(200, written?))
    }

    /// The name in the body must be that of the path.
    pub(crate) fn fit_name(&self, object: &Value) -> Result<(), Status> {
        let wanted = self.name();
        match object::name(object) {
            "" => Err(Status::bad_request(format!(
                "the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
            ))),
            same if same == wanted => Ok(()),
            other => Err(Status::bad_request(format!(
                "the name of the object ({other}) does not match the name on the URL ({wanted})"
            ))),
        }
    }
}

/// uid and resourceVersion of a PUT against the present object.
fn check_identity(resource: &Resource, key: &str, name: &str, new: &Value, old: &Value) -> Result<(), Status> {
    let (wanted, present) = (object::uid(new), object::uid(old));
    if !wanted.is_empty() && wanted != present {
        return Err(Status::conflict(
            resource,
            name,
            &format!(
                "StorageError: invalid object, Code: 4, Key: /registry/{}/{key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition \
                 failed: UID in precondition: {wanted}, UID in object meta: {present}",
                resource.plural
            ),
        ));
    }
    check_version(
        resource,
        name,
        object::text(new, "resourceVersion"),
        old,
        resource.strategy.unconditional_update,
    )
}

/// The resourceVersion that a client sends against the present one.
pub(crate) fn check_version(
    resource: &Resource,
    name: &str,
    version: &str,
    old: &Value,
    unconditional: bool,
) -> Result<(), Status> {
    let wanted = if version.is_empty() {
        0
    } else {
        parse_version(version).map_err(Status::untyped)?
    };
    if wanted == 0 {
        if unconditional {
            return Ok(());
        }
        let error = FieldError::invalid("metadata.resourceVersion", json!(0), "must be specified for an update");
        // Upstream puts the name of the resource where the kind belongs.
        return Err(Status::invalid(&resource.group, &resource.plural, name, &[error]));
    }
    let present = object::text(old, "resourceVersion");
    if wanted.to_string() == present {
        Ok(())
    } else {
        Err(Status::modified(resource, name))
    }
}
