//! The passwords of a Database: those of applications, which people may change, and the operator's own.

use database_api::v1alpha1::Database;
use kubewright::k8s_openapi::api::core::v1::Secret;
use kubewright::kube::api::Patch;
use kubewright::prelude::*;
use serde_json::json;

use crate::database::shape::Shape;
use crate::database::{children, password};

/// The passwords of a Database.
pub(super) struct Credentials {
    /// The Secret that applications use.
    pub(super) secret: String,
    pub(super) password: String,
    pub(super) operators: String,
}

impl Credentials {
    /// The key of the password in the Secret.
    pub(super) fn key<'a>(&self, database: &'a Database) -> &'a str {
        let named = database.spec.password_secret_ref.as_ref();
        named.and_then(|named| named.key.as_deref()).unwrap_or(KEY)
    }
}

/// The key of passwords.
const KEY: &str = "password";

/// Why there are none: a reason of a condition, and words.
pub(super) struct Missing(pub(super) &'static str, pub(super) String);

/// Finds the passwords, and makes those that are missing.
pub(super) async fn find(
    database: &Database,
    shape: &Shape,
    ctx: &Context,
) -> Result<std::result::Result<Credentials, Missing>> {
    let namespace = ctx.request().namespace();
    let (secret, password) = match &database.spec.password_secret_ref {
        Some(at) => {
            let key = at.key.as_deref().unwrap_or(KEY);
            let Some(secret) = ctx.client().get::<Secret>(namespace, &at.name).await? else {
                return Ok(Err(Missing(
                    "SecretNotFound",
                    format!("there is no Secret {}", at.name),
                )));
            };
            match text(&secret, key) {
                Some(password) => (at.name.clone(), password),
                None => {
                    let why = format!("the Secret {} has no text under the key {key}", at.name);
                    return Ok(Err(Missing("SecretIncomplete", why)));
                }
            }
        }
        None => (shape.credentials(), own(database, shape, ctx).await?),
    };
    let known = ctx.client().get::<Secret>(namespace, &shape.operator()).await?;
    let operators = match known.as_ref().and_then(|secret| text(secret, "password")) {
        Some(password) => password,
        None => password::random().map_err(Error::retry)?,
    };
    ctx.apply(children::operator_secret(shape, &operators)).await?;
    Ok(Ok(Credentials {
        secret,
        password,
        operators,
    }))
}

/// The password in the Secret that the operator makes: that of the spec, which is moved there, the one that is there,
/// or a new one.
async fn own(database: &Database, shape: &Shape, ctx: &Context) -> Result<String> {
    let namespace = ctx.request().namespace();
    let known = ctx.client().get::<Secret>(namespace, &shape.credentials()).await?;
    let password = match (
        &database.spec.password,
        known.as_ref().and_then(|secret| text(secret, "password")),
    ) {
        (Some(given), _) => given.clone(),
        (None, Some(known)) => known,
        (None, None) => password::random().map_err(Error::retry)?,
    };
    ctx.apply(children::credentials_secret(
        shape,
        namespace.unwrap_or_default(),
        &password,
    ))
    .await?;
    if database.spec.password.is_some() {
        // Last, so that it is not lost when the operator dies in between.
        let patch = Patch::Merge(json!({"spec": {"password": null}}));
        ctx.client()
            .patch::<Database, _>(namespace, &shape.name, &patch)
            .await?;
        let message = format!("spec.password was moved to Secret {}", shape.credentials());
        ctx.event(database, EventType::Normal, "PasswordMoved", message);
    }
    Ok(password)
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    let bytes = &secret.data.as_ref()?.get(key)?.0;
    String::from_utf8(bytes.clone()).ok().filter(|text| !text.is_empty())
}
