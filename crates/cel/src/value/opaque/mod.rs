//! Values that only functions know: quantities, addresses, versions, formats, checks of permissions. Each kind has a
//! file, with its functions.

pub mod authorizer;
mod cidr;
mod formats;
mod ip;
mod quantities;
mod semver;
pub mod url;

use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;

use kubewright_values::quantity::Quantity;

use kubewright_values::budget;

use super::Value;
use crate::error::Error;
use authorizer::{Authorization, Decision, ResourceCheck};

pub use formats::Format;
pub use ipnet::IpNet;
pub use semver::Version;
pub use url::Url;

/// The result of a function; none when the arguments do not fit.
pub(crate) type Called<'a> = Option<Result<Value<'a>, Error>>;

/// Calls the function of such values behind an overload.
pub(crate) fn call<'a>(overload: &str, args: &[Value<'a>]) -> Called<'a> {
    // A function that reads a text looks at each letter, and some copy it: the cost of CEL counts ten letters as one.
    let length = |arg: &Value<'a>| match arg {
        Value::String(text) => text.len(),
        _ => 0,
    };
    let read: usize = args.iter().map(length).sum();
    budget::spend(read / 8);
    None.or_else(|| quantities::call(overload, args))
        .or_else(|| url::call(overload, args))
        .or_else(|| ip::call(overload, args))
        .or_else(|| cidr::call(overload, args))
        .or_else(|| semver::call(overload, args))
        .or_else(|| formats::call(overload, args))
        .or_else(|| authorizer::call(overload, args))
}

/// A value without fields.
#[derive(Clone, Debug)]
pub enum Opaque<'a> {
    /// `kubernetes.Quantity`. Some have no integer value although they are whole: `1.5Gi`.
    Quantity {
        /// The amount.
        amount: Rc<Quantity>,
        /// Whether Kubernetes keeps it as an integer with a power of ten.
        integral: bool,
    },
    /// `net.IP`
    Ip(IpAddr),
    /// `net.CIDR`
    Cidr(IpNet),
    /// `kubernetes.URL`
    Url(Rc<Url>),
    /// `kubernetes.Semver`
    Semver(Rc<Version>),
    /// `kubernetes.NamedFormat`
    Format(&'static Format),
    /// `kubernetes.authorization.Authorizer`
    Authorizer(Authorization<'a>),
    /// `kubernetes.authorization.PathCheck`
    PathCheck(Authorization<'a>, Rc<str>),
    /// `kubernetes.authorization.GroupCheck`
    GroupCheck(Authorization<'a>, Rc<str>),
    /// `kubernetes.authorization.ResourceCheck`
    ResourceCheck(Authorization<'a>, Rc<ResourceCheck>),
    /// `kubernetes.authorization.Decision`
    Decision(Rc<Decision>),
}

impl Opaque<'_> {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Quantity { .. } => "kubernetes.Quantity",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Self::PathCheck(..) => "kubernetes.authorization.PathCheck",
            Self::GroupCheck(..) => "kubernetes.authorization.GroupCheck",
            Self::ResourceCheck(..) => "kubernetes.authorization.ResourceCheck",
            Self::Decision(_) => "kubernetes.authorization.Decision",
        }
    }

    /// Bytes of an address or a prefix, for the cost of work with it.
    pub(crate) fn size(&self) -> Option<u64> {
        match self {
            Self::Ip(IpAddr::V4(_)) => Some(4),
            Self::Ip(IpAddr::V6(_)) => Some(16),
            Self::Cidr(cidr) => Some(u64::from(cidr.prefix_len()).div_ceil(8)),
            _ => None,
        }
    }

    /// Whether two values of the same type are equal; none for different types.
    pub(crate) fn equals(&self, other: &Self) -> Option<bool> {
        match (self, other) {
            (Self::Quantity { amount: a, .. }, Self::Quantity { amount: b, .. }) => Some(a == b),
            (Self::Ip(a), Self::Ip(b)) => Some(a == b),
            (Self::Cidr(a), Self::Cidr(b)) => Some(a == b),
            (Self::Url(a), Self::Url(b)) => Some(a == b),
            (Self::Semver(a), Self::Semver(b)) => Some(a.compare(b).is_eq()),
            (Self::Format(a), Self::Format(b)) => Some(std::ptr::eq(*a, *b)),
            _ => None,
        }
    }

    /// The text of `string(x)`.
    pub(crate) fn as_text(&self) -> Option<String> {
        match self {
            Self::Ip(address) => Some(address.to_string()),
            Self::Cidr(cidr) => Some(cidr.to_string()),
            _ => None,
        }
    }
}

impl fmt::Display for Opaque<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quantity { amount, .. } => amount.fmt(f),
            Self::Ip(address) => address.fmt(f),
            Self::Cidr(cidr) => cidr.fmt(f),
            Self::Semver(version) => version.fmt(f),
            other => f.write_str(other.type_name()),
        }
    }
}
