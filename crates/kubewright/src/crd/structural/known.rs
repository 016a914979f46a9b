//! The schemas of types that Kubernetes knows, and of numbers.

use serde_json::{Value, json};

use super::Node;

/// The prefix of the names of Kubernetes' own types.
pub(super) const KUBERNETES: &str = "io.k8s.";

/// The pattern of a quantity, as Kubernetes' own generator has it.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// The schema that allows everything and keeps it.
pub(super) fn anything() -> Node {
    Node::from_iter([("x-kubernetes-preserve-unknown-fields".to_owned(), Value::Bool(true))])
}

/// Types of Kubernetes whose crate says too little about them.
pub(super) fn well_known(node: &mut Node, name: &str) {
    match name.rsplit('.').next() {
        Some("Quantity") => {
            node.insert("pattern".to_owned(), json!(QUANTITY));
        }
        Some("RawExtension") => {
            node.insert("type".to_owned(), json!("object"));
            node.extend(anything());
        }
        Some("ObjectMeta") => {
            // The metadata that an object's template may have; the rest belongs to the server.
            const TOLD: [&str; 5] = ["annotations", "finalizers", "labels", "name", "namespace"];
            if let Some(properties) = node.get_mut("properties").and_then(Value::as_object_mut) {
                let known = std::mem::take(properties);
                properties.extend(known.into_iter().filter(|(name, _)| TOLD.contains(&name.as_str())));
            }
        }
        _ => {}
    }
    // Words about the type are for its own page; a field has words of its own, or none.
    if node.get("type").is_none_or(|kind| kind != "object") || name.ends_with(".ObjectMeta") {
        node.remove("description");
    }
}

/// A bound without a fraction is a whole number.
pub(super) fn number(value: &Value) -> Value {
    match value.as_f64() {
        #[allow(clippy::cast_possible_truncation)]
        Some(float) if value.is_f64() && float.fract() == 0.0 && float.abs() < 9e15 => json!(float as i64),
        _ => value.clone(),
    }
}
