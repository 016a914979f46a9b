//! The property test of conversions finds lost fields, and shows them on a small object.

use kubewright::kube::CustomResource;
use kubewright_testing::conversion::{check_round_trip, find_loss};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! version {
    ($module:ident, $version:literal, { $($fields:tt)* }) => {
        mod $module {
            use super::*;

            /// One version.
            #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq)]
            #[kube(group = "shop.my.domain", version = $version, kind = "Order", namespaced)]
            #[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "kubewright::k8s_openapi"))]
            pub(crate) struct OrderSpec { $($fields)* }
        }
    };
}

// Three ways to say the same, and one that says less.
version!(v1, "v1", {
    #[schemars(regex(pattern = r"^[0-9]{1,4} (EUR|USD)$"))]
    pub(crate) price: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    #[serde(default)]
    pub(crate) items: Vec<String>,
});
version!(v2, "v2", {
    #[schemars(range(min = 0, max = 9999))]
    pub(crate) amount: u32,
    #[schemars(regex(pattern = "^(EUR|USD)$"))]
    pub(crate) currency: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    #[serde(default)]
    pub(crate) items: Vec<String>,
});
version!(v3, "v3", {
    #[schemars(regex(pattern = r"^[0-9]{1,4} (EUR|USD)$"))]
    pub(crate) price: String,
    #[serde(default)]
    pub(crate) items: Vec<String>,
});

impl TryFrom<v1::Order> for v2::Order {
    type Error = String;

    fn try_from(hub: v1::Order) -> Result<v2::Order, String> {
        let (amount, currency) = hub.spec.price.split_once(' ').ok_or("spec.price has no currency")?;
        let spec = v2::OrderSpec {
            amount: amount.parse().map_err(|error| format!("spec.price: {error}"))?,
            currency: currency.to_owned(),
            note: hub.spec.note,
            items: hub.spec.items,
        };
        // 007 EUR is 7 EUR: the original text is kept beside it.
        let mut metadata = hub.metadata;
        metadata
            .annotations
            .get_or_insert_default()
            .insert("shop.my.domain/price".to_owned(), hub.spec.price.clone());
        Ok(v2::Order { metadata, spec })
    }
}

impl From<v2::Order> for v1::Order {
    fn from(spoke: v2::Order) -> v1::Order {
        let plain = format!("{} {}", spoke.spec.amount, spoke.spec.currency);
        let written = spoke
            .metadata
            .annotations
            .as_ref()
            .and_then(|annotations| annotations.get("shop.my.domain/price").cloned());
        let spec = v1::OrderSpec {
            price: written.unwrap_or(plain),
            note: spoke.spec.note,
            items: spoke.spec.items,
        };
        v1::Order {
            metadata: spoke.metadata,
            spec,
        }
    }
}

impl From<v1::Order> for v3::Order {
    fn from(hub: v1::Order) -> v3::Order {
        let spec = v3::OrderSpec {
            price: hub.spec.price,
            items: hub.spec.items,
        };
        v3::Order {
            metadata: hub.metadata,
            spec,
        }
    }
}

impl From<v3::Order> for v1::Order {
    fn from(spoke: v3::Order) -> v1::Order {
        let spec = v1::OrderSpec {
            price: spoke.spec.price,
            note: None,
            items: spoke.spec.items,
        };
        v1::Order {
            metadata: spoke.metadata,
            spec,
        }
    }
}

// Refuses values that its schema allows.
impl TryFrom<v3::Order> for v2::Order {
    type Error = &'static str;

    fn try_from(hub: v3::Order) -> Result<v2::Order, &'static str> {
        match hub.spec.items.len() {
            0 => Err("an order needs items"),
            _ => v2::Order::try_from(v1::Order::from(hub)).map_err(|_| "odd"),
        }
    }
}

impl From<v2::Order> for v3::Order {
    fn from(spoke: v2::Order) -> v3::Order {
        v1::Order::from(spoke).into()
    }
}

#[test]
fn w4_conversions_that_keep_everything_pass() {
    check_round_trip::<v1::Order, v2::Order>();
}

#[test]
fn w4_what_is_lost_is_found_and_shown_on_a_small_object() {
    let lost = find_loss::<v1::Order, v3::Order>(300)
        .expect_err("v3 has no notes")
        .to_string();
    let refused = find_loss::<v3::Order, v2::Order>(300)
        .expect_err("no items")
        .to_string();
    insta::assert_snapshot!(format!("{lost}\n{refused}"));
}
