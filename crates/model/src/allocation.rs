//! Values that are unique among the objects of a store and handed out by the server: a Service's cluster IPs and node
//! ports.

use std::collections::BTreeMap;
use std::net::IpAddr;

use kubewright_schema::error::FieldError;
use serde_json::Value;

use super::StrategyContext;

/// Cluster IPs that are reserved independently of Services: each is the name of an IPAddress.
pub trait ReservedIps {
    /// Whether this one is.
    fn is_reserved(&self, ip: IpAddr) -> bool;
}

/// No IP is reserved.
impl ReservedIps for () {
    fn is_reserved(&self, _: IpAddr) -> bool {
        false
    }
}

/// How unique values of a store are handed out.
#[derive(Clone, Copy)]
pub struct Allocation {
    /// The allocated values of a stored object.
    pub values: fn(&Value) -> Vec<AllocatedValue>,
    /// Gives an object the values it needs: called after `prepare_…` and before validation, with the object, the one it
    /// replaces, and the values that are taken. An error refuses the write.
    pub give: Allocate,
}

/// See [`Allocation::give`].
pub type Allocate = fn(
    object: &mut Value,
    old: Option<&Value>,
    taken: &AllocatedValues,
    context: &StrategyContext<'_>,
) -> Result<(), Unallocated>;

/// A value that only one object of a store may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AllocatedValue {
    /// A cluster IP.
    Ip(IpAddr),
    /// A port of all nodes.
    Port(i64),
}

/// The allocated values, and how often each is: to an object as it is stored, and perhaps once more by a write of it that
/// is under way.
#[derive(Debug, Default)]
pub struct AllocatedValues {
    counts: BTreeMap<AllocatedValue, usize>,
}

impl AllocatedValues {
    /// Whether the value is allocated.
    pub fn has(&self, value: AllocatedValue) -> bool {
        self.counts.contains_key(&value)
    }

    /// These values are allocated from now on.
    pub fn add(&mut self, values: &[AllocatedValue]) {
        for value in values {
            *self.counts.entry(*value).or_default() += 1;
        }
    }

    /// One object gives these values back.
    pub fn remove(&mut self, values: &[AllocatedValue]) {
        for value in values {
            if let Some(count) = self.counts.get_mut(value) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(value);
                }
            }
        }
    }
}

/// Why an object does not get a unique value of its store.
#[derive(Clone, Debug, PartialEq)]
pub enum Unallocated {
    /// The object asks for a value that it cannot have: 422.
    Invalid(Vec<FieldError>),
    /// There is nothing left, or the requested value is another object's: 500 with the reason `InternalError`.
    Failed(String),
    /// An error that upstream reports without a reason: 500.
    Untyped(String),
}
