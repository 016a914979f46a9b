//! The markers of kubewright: thin macros that only write down what a person said.
//!
//! A macro here turns an attribute into a constant or a method that the declaration of an operator reads; it decides nothing. Not here:
//! what follows from a marker (`kubewright`, `kubewright-codegen`).
