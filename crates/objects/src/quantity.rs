//! Amounts of resources, as numbers that can be added and compared.
//!
//! Pure. In thousandths, rounded up: the scheduler counts cpu so, and nothing is counted finer (`Quantity.MilliValue`).
//! The API server has validated stored quantities; a text that cannot be read all the same is no amount.

use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubewright::workloads::Amount;
use kubewright_schema::quantity::{self, Format};

/// The amount in thousandths, as far as it fits.
pub fn milli(quantity: &Quantity) -> Option<i128> {
    Amount::of(quantity).ok().map(Amount::milli)
}

/// An amount in thousandths, as Go writes it (`NewMilliQuantity`).
pub fn of_milli(amount: i128, format: Format) -> Quantity {
    Quantity(quantity::Quantity::new(amount, -3, format).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_as_in_go() {
        let check = |amount: i128, format: Format, expected: &str| {
            assert_eq!(of_milli(amount, format).0, expected);
        };
        check(0, Format::DecimalSi, "0");
        check(1500, Format::DecimalSi, "1500m");
        check(3000, Format::DecimalSi, "3");
        check(20_000_000, Format::DecimalSi, "20k");
        check(134_217_728_000, Format::BinarySi, "128Mi");
        check(1_000_000, Format::BinarySi, "1k");
    }
}
