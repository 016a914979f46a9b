//! How requests and answers are written: queries, media types, YAML. Not here: protobuf and JSON (`kubewright-schema`).

pub(crate) mod negotiate;
pub(crate) mod query;
pub(crate) mod yaml;
