//! The types of core's API, for the operator and for everybody who talks to it.
