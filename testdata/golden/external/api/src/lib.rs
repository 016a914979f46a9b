//! The types of external's API, for the operator and for everybody who talks to it.

pub mod external;
