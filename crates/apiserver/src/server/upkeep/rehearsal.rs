//! Reads the data that the first definition of a server will need, while no request waits.
//!
//! A server starts without data that it may never use: the types of definitions and of the schemas in them, the
//! patterns of names. The first client that creates a definition pays for that. A server that has nothing to do can pay
//! before.
//!
//! Invariant: no plugin is called and nothing is stored; the read data is the same for every server.

use kubewright_schema::apply::Views;
use kubewright_schema::error::FieldError;
use serde_json::{Value, json};

use crate::model::object;
use crate::model::{Minor, Resource};
use crate::server::ApiServer;
use crate::server::decode;
use crate::server::managed::{self, Tracking};
use crate::server::write;

impl ApiServer {
    /// Reads the data that the first CustomResourceDefinition will need, which otherwise takes a millisecond when it
    /// comes.
    pub fn rehearse(&self) {
        let kinds = self.kinds();
        let definitions = kinds.by_kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        if let Some(resource) = definitions {
            for error in check(&resource) {
                tracing::debug!(%error, "the rehearsed definition is refused");
            }
        }
    }
}

/// Runs a definition through the pipeline without storing it; answers its errors.
fn check(resource: &Resource) -> Vec<FieldError> {
    let mut definition = definition();
    if let Err(why) = decode::fit(&mut definition, resource, Vec::new(), None) {
        return vec![FieldError::invalid("", Value::Null, why)];
    }
    write::default(&mut definition, resource);
    let manager = Tracking::Update("rehearsal".to_owned());
    managed::track_create(
        resource,
        &manager,
        &mut definition,
        "2026-01-01T00:00:00Z",
        &Views::new(),
    );
    let mut errors = object::validate(&definition, resource, Minor::default());
    errors.extend(resource.strategy.errors_of_new(&definition));
    errors
}

fn definition() -> Value {
    let part = json!({"type": "object", "required": ["list"], "properties": {
        "text": {"type": "string", "description": "A text.", "enum": ["a"], "default": "a"},
        "list": {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}}}}});
    let names =
        json!({"plural": "rehearsals", "singular": "rehearsal", "kind": "Rehearsal", "listKind": "RehearsalList"});
    json!({
        "metadata": {"name": "rehearsals.kubewright.invalid", "labels": {"a": "b"}},
        "spec": {
            "group": "kubewright.invalid",
            "scope": "Namespaced",
            "names": names,
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "Text", "type": "string", "jsonPath": ".spec.text"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": part, "status": part}}},
            }],
        },
        "status": {"acceptedNames": names, "conditions": [], "storedVersions": ["v1"]},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn the_rehearsed_definition_is_a_good_one() {
        let kinds = Registry::new().snapshot();
        let resource = kinds.by_kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        assert_eq!(check(&resource.expect("a built-in kind")), []);
    }
}
