//! How requests and answers are written: queries, media types, YAML, the wish for a WebSocket. Not here: protobuf and
//! JSON (`kubewright-schema`).

pub(crate) mod negotiate;
pub(crate) mod query;
pub mod websocket;
pub(crate) mod yaml;
