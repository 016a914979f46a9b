//! Faults below HTTP, which no API server makes on demand. All else is tested with one, in `kubewright-testing`:
//! `tests/it/runtime` there says which test checks which invariant.

mod streams;
