//! POST to a collection.

use serde_json::Value;

use super::options::WriteOptions;
use super::respond::{Content, Reply};
use super::write::{Written, default, fit_namespace};
use super::{Call, decode, negotiate};
use crate::model::Resource;
use crate::model::form::with_kind;
use crate::model::object;
use crate::model::status::Status;

impl Call<'_> {
    /// The object that the body of a create or an update holds, with its unknown fields reported or refused as the client
    /// wishes.
    pub(super) fn object_in_body(&mut self, options: &WriteOptions) -> Result<Value, Status> {
        let mut warnings = std::mem::take(&mut self.warnings);
        let object = self.read_object(options, &mut warnings);
        self.warnings = warnings;
        let object = object?;
        if let Some(entry) = self.audit {
            let shown = || {
                let mut shown = object.clone();
                default(&mut shown, &self.resource);
                with_kind(&self.resource, shown)
            };
            entry.sent(shown, &object);
        }
        Ok(object)
    }

    /// The same without the audit log.
    pub(super) fn read_object(&self, options: &WriteOptions, warnings: &mut Vec<String>) -> Result<Value, Status> {
        let format = negotiate::input(self.headers)?;
        let validation = options.field_validation;
        decode::object(self.body, format, &self.resource, &self.kinds, validation, warnings)
    }

    /// Enters a patch in the audit log, as it was sent.
    pub(super) fn enter_patch(&self, patch: &Value) {
        if let Some(entry) = self.audit {
            entry.sent_patch(patch);
        }
    }

    /// Enters a document that was sent to a subresource in the audit log.
    pub(super) fn enter_sent(&self, row: &Resource, document: &Value) {
        if let Some(entry) = self.audit {
            entry.sent(|| with_kind(row, document.clone()), document);
        }
    }

    pub(crate) async fn create(&mut self) -> Result<Reply, Status> {
        // The type of the body comes before the options here, and after them in updates.
        negotiate::input(self.headers)?;
        let options = WriteOptions::parse(self.query, "CreateOptions")?;
        let mut object = self.object_in_body(&options)?;
        self.fit_namespace(&mut object)?;
        self.refuse_while_definition_ends(object::name(&object))?;
        let mut writer = self.tracked_writer(&options);
        let written = writer.create(object).await;
        self.warnings.append(&mut writer.warnings);
        Ok(self.show(201, written?))
    }

    /// The namespace of the path goes into the object; another one is refused.
    pub(crate) fn fit_namespace(&self, object: &mut Value) -> Result<(), Status> {
        if !self.resource.namespaced {
            object::metadata_mut(object).remove("namespace");
        }
        fit_namespace(&self.resource, object, self.namespace())
    }

    /// The answer that shows the written object.
    pub(crate) fn show(&self, code: u16, written: Written) -> Reply {
        let resource = self.resource.clone();
        Reply::new(
            code,
            match written {
                Written::Stored(stored) => Content::Stored(resource, stored),
                Written::Shown(object) => Content::Object(resource, object),
            },
        )
    }
}
