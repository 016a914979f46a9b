//! The types of core's API, for the operator and its clients.
