//! Real kubectl against pods: their logs, programs in them, their ports, their usage. Of simulated pods, and of pods
//! that are processes.
//!
//! The tests run when kubectl is on the PATH, and say so when it is not.

#[cfg(target_os = "linux")]
mod hostile;
mod kubectl;
#[cfg(target_os = "linux")]
mod postgres;
#[cfg(target_os = "linux")]
mod running;
mod simulated;
#[cfg(target_os = "linux")]
mod streams;
mod top;
