//! PUT of an object, or of its status.

use kubewright_schema::error::FieldError;
use serde_json::{Value, json};

use super::Call;
use super::options::{WriteOptions, parse_version};
use super::respond::Reply;
use super::write::Part;
use crate::model::Resource;
use crate::model::object;
use crate::model::status::Status;

impl Call<'_> {
    pub(crate) async fn update(&mut self, part: Part) -> Result<Reply, Status> {
        let options = WriteOptions::parse(self.query, "UpdateOptions")?;
        let resource = self.resource.clone();
        let mut object = self.object_in_body(&options)?;
        self.fit_namespace(&mut object)?;
        self.fit_name(&object)?;
        let name = self.name().to_owned();
        let mut writer = self.tracked_writer(&options);
        if resource.strategy.create_on_update
            && part == Part::Main
            && self.server.storage.get(&resource.store, &self.key()).is_none()
        {
            check_uid(&resource, &self.key(), &name, &object, "", options.dry_run)?;
            writer.may_only_update = true;
            writer.warnings.extend(object::dedup_owners(&mut object, false));
            let written = writer.create(object).await;
            self.warnings.append(&mut writer.warnings);
            return Ok(self.show(201, written?));
        }
        let key = self.key();
        // It may be large: it is read again only if another write came first.
        let mut sent = Some(object);
        let written = writer
            .update(self.namespace(), &name, part, |old, warnings| {
                let mut new = sent.take().map_or_else(|| self.sent_again(&options), Ok)?;
                // Its version is looked at after the plugins that may change it.
                check_uid(&resource, &key, &name, &new, object::uid(old), options.dry_run)?;
                warnings.extend(object::dedup_owners(&mut new, false));
                Ok(new)
            })
            .await;
        self.warnings.append(&mut writer.warnings);
        Ok(self.show(200, written?))
    }

    /// The object in the body, which was read before.
    fn sent_again(&self, options: &WriteOptions) -> Result<Value, Status> {
        let mut object = self.read_object(options, &mut Vec::new())?;
        self.fit_namespace(&mut object)?;
        Ok(object)
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

/// The uid that a client expects against the present one, which is empty when there is no object.
pub(crate) fn check_uid(
    resource: &Resource,
    key: &str,
    name: &str,
    new: &Value,
    present: &str,
    dry_run: bool,
) -> Result<(), Status> {
    let wanted = object::uid(new);
    if wanted.is_empty() || wanted == present {
        return Ok(());
    }
    // A dry run looks before the key gets its prefix.
    let root = if dry_run { "" } else { "/registry" };
    let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {present}");
    Err(invalid_object(resource, root, key, name, &why))
}

/// The refusal of the storage to touch an object (`NewInvalidObjError`), whose key is shown below `root`.
pub(crate) fn invalid_object(resource: &Resource, root: &str, key: &str, name: &str, why: &str) -> Status {
    let prefix = resource.storage_prefix();
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {root}/{prefix}/{key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
    );
    Status::conflict(resource, name, &why)
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
