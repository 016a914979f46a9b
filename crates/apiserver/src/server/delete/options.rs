//! The options of a delete, as they come: in the body, as JSON, YAML or protobuf, or in the query.
//!
//! Not here: what they may say together (`server/options.rs`).

use kubewright_schema::protobuf::{Envelope, ProtobufError};
use kubewright_schema::{catalog, decode as schema_decode, structural};
use serde_json::{Value, json};

use crate::model::status::Status;
use crate::scheme::unregistered;
use crate::server::Call;
use crate::server::options::DeleteOptions;
use crate::wire::negotiate::{self, Input};

impl Call<'_> {
    fn protobuf_delete_options(&self) -> Result<DeleteOptions, Status> {
        let unreadable = |error: ProtobufError| Status::bad_request(error.to_string());
        let mut envelope = Envelope::read(self.body).map_err(unreadable)?;
        if envelope.kind.is_empty() {
            "DeleteOptions".clone_into(&mut envelope.kind);
        }
        if envelope.kind != "DeleteOptions" {
            let why = unregistered(&envelope.kind, &envelope.api_version);
            return Err(Status::bad_request(why));
        }
        if envelope.api_version.is_empty() {
            self.resource.api_version().clone_into(&mut envelope.api_version);
        }
        DeleteOptions::from_value(&envelope.decode().map_err(unreadable)?, self.server.config.minor)
    }

    /// The options out of the body, or out of the query when there is no body.
    pub(super) fn delete_options(&self) -> Result<DeleteOptions, Status> {
        if self.body.is_empty() {
            return DeleteOptions::from_query(self.query, self.server.config.minor);
        }
        let options = self.delete_options_in_body()?;
        if let Some(entry) = self.audit {
            // In the group of all options, and without a version, as upstream logs them.
            let mut shown = options.to_value();
            shown["kind"] = json!("DeleteOptions");
            shown["apiVersion"] = json!("meta.k8s.io/__internal");
            entry.sent_patch(&shown);
        }
        Ok(options)
    }

    fn delete_options_in_body(&self) -> Result<DeleteOptions, Status> {
        let parsed = match negotiate::input(self.headers)? {
            Input::Json => schema_decode::json(self.body)
                .map_err(|error| format!("couldn't get version/kind; json parse error: {error}")),
            Input::Yaml => schema_decode::yaml(self.body).map_err(|error| error.to_string()),
            Input::Protobuf => return self.protobuf_delete_options(),
        };
        let body = parsed.map_err(Status::bad_request)?.value;
        if !body.is_object() && !body.is_null() {
            return Err(Status::bad_request(crate::scheme::not_an_object(&body)));
        }
        if let Some(schema) = catalog::definition("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions") {
            structural::type_check(&body, &schema, "DeleteOptions").map_err(Status::bad_request)?;
        }
        let text = |key: &str| body.get(key).and_then(Value::as_str).unwrap_or("");
        let kind = text("kind");
        if !kind.is_empty() && kind != "DeleteOptions" {
            let version = Some(text("apiVersion")).filter(|version| !version.is_empty());
            return Err(Status::bad_request(unregistered(
                kind,
                version.unwrap_or("meta.k8s.io/v1"),
            )));
        }
        // A body replaces the query altogether, dryRun included.
        DeleteOptions::from_value(&body, self.server.config.minor)
    }
}
