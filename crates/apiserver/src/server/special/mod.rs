//! What is no plain object: subresources that take a document of their own, reviews, what is computed when it is asked for, and the ways to what
//! runs. Each file says of which kind it is; the pipeline beside this folder names none.

pub(crate) mod components;
pub(crate) mod connect;
pub(crate) mod eviction;
pub(crate) mod openid;
pub(crate) mod proxy;
pub(crate) mod review;
pub(crate) mod scales;
pub(crate) mod streams;
pub(crate) mod token_request;
pub(crate) mod token_review;
