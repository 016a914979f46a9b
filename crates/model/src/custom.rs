//! The parts that only kinds from a CustomResourceDefinition have: where their schema is written, their rules, their
//! versions.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use kubewright_schema::SchemaRef;
use kubewright_schema::rules::Validator;
use kubewright_schema::{budget, decode};
use serde_json::Value;

use crate::outbound::client::Client;

/// The parts that only kinds from a CustomResourceDefinition have.
#[derive(Clone, Debug)]
pub struct Custom {
    /// Name of the definition, such as `foos.ex.io`.
    pub crd_name: String,
    /// Whether unknown fields are kept at the root (`spec.preserveUnknownFields`, never for v1 unless the schema says
    /// so).
    pub preserve_unknown: bool,
    /// A warning to send with every answer when the version is deprecated.
    pub deprecation_warning: Option<String>,
    /// Where the schema is written.
    pub source: Source,
    /// Changes whenever documents about the kind do.
    pub fingerprint: String,
    /// The revision at which the definition became what it is: an object that was written before may have fields that
    /// the present schema has not, and lack its defaults.
    pub revision: u64,
    /// All versions of the definition, served or not.
    pub versions: Versions,
    /// The rules of the schema, compiled on first use.
    pub compiled_rules: Arc<OnceLock<Option<Validator>>>,
}

impl Custom {
    /// The compiled `x-kubernetes-validations` of this version, whose schema is given; none when it has none.
    pub fn rules(&self, schema: &SchemaRef) -> Option<&Validator> {
        self.compiled_rules.get_or_init(|| Validator::new(schema)).as_ref()
    }
}

/// Where the schema of a version of a custom kind is written: the text of its definition, which storage keeps anyway.
#[derive(Clone)]
pub struct Source {
    /// The text of the definition.
    pub text: Bytes,
    /// Which of `spec.versions` it is.
    pub version: usize,
}

impl Source {
    /// The `openAPIV3Schema` as a value; null when there is none.
    pub fn document(&self) -> Value {
        // A stored definition is the server's own: reading it has no budget that could end it halfway.
        let decoded = budget::unlimited(|| decode::json(&self.text));
        let mut definition = decoded.map(|decoded| decoded.value).unwrap_or_default();
        let path = format!("/spec/versions/{}/schema/openAPIV3Schema", self.version);
        definition.pointer_mut(&path).map(Value::take).unwrap_or_default()
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "version {} of a definition of {} bytes",
            self.version,
            self.text.len()
        )
    }
}

/// The versions of a custom kind.
#[derive(Clone, Debug)]
pub struct Versions {
    /// The version of stored objects that do not say theirs: kubewright stored them so once, while a definition had one
    /// version.
    pub first: String,
    /// Who converts; `None` when all versions have the same fields (strategy `None`).
    pub webhook: Option<Arc<ConversionWebhook>>,
    /// The schemas of all versions by their names: an object that is read gets the form of the version that it was
    /// written in.
    pub schemas: Arc<std::collections::BTreeMap<String, SchemaRef>>,
}

/// `spec.conversion.webhook` of a definition.
#[derive(Debug)]
pub struct ConversionWebhook {
    /// Where it is; the error is why that is not known.
    pub client: Result<Client, String>,
    /// `conversionReviewVersions`.
    pub review_versions: Vec<String>,
}
