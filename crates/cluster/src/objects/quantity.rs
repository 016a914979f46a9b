//! Amounts of resources, as numbers that can be added and compared.
//!
//! Pure. In thousandths, rounded up: the scheduler counts cpu so, and nothing is counted finer (`Quantity.MilliValue`).
//! The API server has validated stored quantities; a text that cannot be read all the same is no amount.

use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubewright::workloads::Amount;

/// The amount in thousandths, as far as it fits.
pub(crate) fn milli(quantity: &Quantity) -> Option<i128> {
    Amount::of(quantity).ok().map(Amount::milli)
}
