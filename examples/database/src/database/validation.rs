//! Which Databases may be stored, beyond what the definition says.

use database_api::v1alpha1::{Database, DatabaseType};
use kubewright::FieldErrors;
use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubewright::workloads::Amount;

use super::shape::{Shape, numbers};

/// The errors in a new Database.
pub fn check_new(object: &Database) -> FieldErrors {
    let mut errors = check(object);
    let name = object.metadata.name.as_deref().unwrap_or_default();
    if name.len() > 40 {
        let why = "must be at most 40 characters: children have longer names";
        errors.invalid("metadata.name", name, why);
    }
    if name.contains('.') || name.starts_with(|first: char| first.is_ascii_digit()) {
        let why = "must begin with a letter and have no dot: a Service has the same name";
        errors.invalid("metadata.name", name, why);
    }
    let shape = Shape::of(object);
    if is_the_servers_user(&shape) {
        errors.invalid("spec.user", &shape.user, "is the server's own: choose another");
    }
    if is_the_servers_database(&shape) {
        let why = "is the server's own: choose another (it is the object's name unless you do)";
        errors.invalid("spec.database", &shape.database, why);
    }
    errors
}

/// Whether no role can have the name, quoted or not.
fn is_the_servers_user(shape: &Shape) -> bool {
    shape.is_postgres() && (shape.user.starts_with("pg_") || ["public", "none"].contains(&shape.user.as_str()))
}

/// Whether the database holds what the server lives by: new databases are copies of PostgreSQL's templates, and who may
/// write to `mysql` is an administrator.
fn is_the_servers_database(shape: &Shape) -> bool {
    let own: &[&str] = match shape.is_postgres() {
        true => &["template0", "template1"],
        false => &["mysql", "sys", "information_schema", "performance_schema"],
    };
    own.contains(&shape.database.as_str())
}

/// The errors in any Database.
fn check(object: &Database) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if object.spec.password.is_some() && object.spec.password_secret_ref.is_some() {
        errors.forbidden("spec.password", "may not be set beside passwordSecretRef");
    }
    if let Some(storage) = &object.spec.storage
        && bytes(&storage.size).is_none_or(|bytes| bytes < 1 << 20)
    {
        errors.invalid("spec.storage.size", &storage.size, "must be a quantity of at least 1Mi");
    }
    if let Some(user) = object
        .spec
        .user
        .as_ref()
        .filter(|user| user.as_str() == crate::world::servers::OPERATOR)
    {
        errors.invalid("spec.user", user, "is the operator's own user");
    }
    errors
}

/// The errors in a change.
pub fn check_change(before: &Database, after: &Database) -> FieldErrors {
    let mut errors = check(after);
    let (old, new) = (Shape::of(before), Shape::of(after));
    if numbers(&new.version) < numbers(&old.version) {
        errors.forbidden(
            "spec.version",
            format!(
                "{} is older than {}: data of a newer server cannot be read by an older one",
                new.version, old.version
            ),
        );
    }
    let major = |shape: &Shape| numbers(&shape.version).first().copied();
    if new.kind == DatabaseType::Postgres && major(&new) != major(&old) {
        errors.forbidden(
            "spec.version",
            "PostgreSQL does not read the data of another major version: make a new Database, and dump and restore",
        );
    }
    for (field, is_same) in [
        ("spec.user", old.user == new.user),
        ("spec.database", old.database == new.database),
        ("spec.restoreFrom", before.spec.restore_from == after.spec.restore_from),
    ] {
        if !is_same {
            errors.forbidden(field, "cannot be changed");
        }
    }
    let size = |object: &Database| {
        object
            .spec
            .storage
            .as_ref()
            .and_then(|storage| bytes(&storage.size))
            .unwrap_or(DEFAULT_SIZE)
    };
    if size(after) < size(before) {
        let given = after.spec.storage.as_ref().map(|storage| &storage.size);
        errors.invalid("spec.storage.size", given, "cannot shrink");
    }
    let class = |object: &Database| {
        object
            .spec
            .storage
            .as_ref()
            .and_then(|storage| storage.storage_class_name.clone())
    };
    if class(after) != class(before) {
        errors.forbidden("spec.storage.storageClassName", "cannot be changed");
    }
    errors
}

/// The size of a claim that is given none, in bytes: 1Gi.
const DEFAULT_SIZE: i128 = 1 << 30;

/// A quantity of bytes; `None` for what is none.
pub fn bytes(quantity: &Quantity) -> Option<i128> {
    Amount::of(quantity).ok().map(Amount::units)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sizes_are_quantities() {
        let check = |size: &str, is_accepted: bool| {
            let object = json!({
                "apiVersion": "db.example.com/v1alpha1", "kind": "Database", "metadata": {"name": "shop"},
                "spec": {"type": "postgres", "storage": {"size": size}},
            });
            let object: Database = serde_json::from_value(object).expect("it is a Database");
            let errors = check_new(&object).to_string();
            assert_eq!(!errors.contains("spec.storage.size"), is_accepted, "{size}: {errors}");
        };
        for size in ["1Gi", "1.5Gi", "2e9", "1Mi", "1048576"] {
            check(size, true);
        }
        for size in ["1023Ki", "1M", "0", "-1Gi", "much"] {
            check(size, false);
        }
    }
}
