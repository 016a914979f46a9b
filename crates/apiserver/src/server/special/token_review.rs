//! POST of a TokenReview: whose token is this?

use serde_json::{Value, json};

use crate::model::Operation;
use crate::model::object;
use crate::model::status::Status;
use crate::server::Call;
use crate::server::managed;
use crate::server::options::WriteOptions;
use crate::server::respond::{Content, Reply};
use crate::wire::negotiate::{self, Transform};

impl Call<'_> {
    /// Refuses to show as a Table a document that is answered and not stored.
    pub(crate) fn refuse_table(&self) -> Result<(), Status> {
        match self.output.transform {
            Transform::Table(_) => Err(negotiate::not_transformed()),
            _ => Ok(()),
        }
    }

    pub(crate) async fn review_token(&mut self) -> Result<Reply, Status> {
        self.refuse_table()?;
        let options = WriteOptions::parse(self.query, "CreateOptions")?;
        let mut review = self.object_in_body(&options)?;
        self.fit_namespace(&mut review)?;
        object::wipe_system_fields(&mut review);
        let now = crate::env::rfc3339(self.server.env.now());
        let manager = managed::manager_name(&options.field_manager, self.headers);
        managed::track_virtual(&self.resource, &manager, "", &mut review, &now);
        let writer = self.writer(options.dry_run);
        let attributes = writer.attributes(Operation::Create, "", "", object::name(&review));
        let session = writer.session();
        let mutated = writer.mutate(&session, &attributes, &mut review, None).await;
        self.warnings.extend(session.take_warnings());
        mutated?;
        let spec = review.get("spec").unwrap_or(&Value::Null);
        let token = spec.get("token").and_then(Value::as_str).unwrap_or("").to_owned();
        if token.is_empty() {
            return Err(Status::bad_request(
                "token is required for TokenReview in authentication",
            ));
        }
        let asked = spec.get("audiences").and_then(Value::as_array).into_iter().flatten();
        let mut audiences: Vec<String> = asked.filter_map(Value::as_str).map(str::to_owned).collect();
        let validated = writer.validate(&session, &attributes, &review, None).await;
        self.warnings.extend(session.take_warnings());
        validated?;
        let authenticator = &self.server.authenticator;
        if audiences.is_empty() {
            audiences = authenticator.audiences().to_vec();
        }
        review["status"] = match authenticator.review(&token, &audiences) {
            Ok(found) => json!({
                "authenticated": true,
                "user": found.user.to_value(),
                "audiences": found.audiences,
            }),
            Err(why) => json!({"user": {}, "error": why}),
        };
        Ok(Reply::new(201, Content::Object(self.resource.clone(), review)))
    }
}
