//! The webhooks that the API server calls before it stores a Database.

use kubewright::prelude::*;

use database_api::v1alpha1::{Database, Storage};
use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::database::shape::Shape;
use crate::database::validation;

/// Fills in absent fields, so that a later default changes no existing database.
#[derive(Clone, Copy, Debug, Default)]
pub struct DatabaseDefaulter;

impl Defaulter for DatabaseDefaulter {
    type Object = Database;

    /// Called before a Database is created or changed.
    async fn default(&self, database: &mut Database, request: &AdmissionRequest) -> Result<(), Denied> {
        let shape = Shape::of(database);
        if database.spec.password.is_some() {
            request.warn(format!(
                "spec.password is stored in plain text; moved to Secret {}",
                shape.credentials()
            ));
        }
        if shape.user == "root" || shape.user == "postgres" {
            request.warn(format!(
                "spec.user {}: applications should not log in as an administrator",
                shape.user
            ));
        }
        let spec = &mut database.spec;
        spec.version.get_or_insert(shape.version);
        spec.user.get_or_insert(shape.user);
        spec.replicas.get_or_insert(1);
        spec.deletion_policy.get_or_insert_default();
        spec.storage.get_or_insert_with(|| Storage {
            size: Quantity("1Gi".to_owned()),
            storage_class_name: None,
        });
        Ok(())
    }
}

/// Says which databases may be stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct DatabaseValidator;

impl Validator for DatabaseValidator {
    type Object = Database;

    /// Called before a Database is created.
    async fn create(&self, database: &Database, _: &AdmissionRequest) -> Result<(), Denied> {
        validation::check_new(database).into_result()
    }

    /// Called before a Database is changed.
    async fn update(&self, before: &Database, database: &Database, _: &AdmissionRequest) -> Result<(), Denied> {
        if database.metadata.deletion_timestamp.is_some() {
            return Ok(()); // nothing that was stored before keeps it from going
        }
        validation::check_change(before, database).into_result()
    }
}

/// The webhooks of databases, and what the API server is told about them.
pub fn webhook() -> Webhook<Database> {
    Webhook::of::<Database>()
        .defaulter(DatabaseDefaulter)
        .validator(DatabaseValidator)
}
