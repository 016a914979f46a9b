//! Operators of Helm charts. What needs Helm runs with the program that `KUBEWRIGHT_HELM` names, or `helm` on the PATH,
//! and says so where there is none; a program of the test's own plays failures.

mod charts;
mod failures;
mod kit;
mod life;
mod takeover;
