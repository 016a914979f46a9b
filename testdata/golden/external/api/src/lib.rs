//! The types of external's API, for the operator and its clients.

pub mod external;
