//! The ports behind which the EndpointSlices of a Service have an endpoint, for those that other API servers are
//! reached through: so that a write of a slice reads no other one, however many there are in its namespace.
//!
//! Made from storage when it is first asked for, which is never in a cluster without other API servers. From then on
//! each write of a slice takes in that slice.
//!
//! Invariant: what is known of a slice is brought up to date from storage, under one lock, after each write of it, so
//! that it never goes back in time. All of it may be made anew from storage.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use super::availability::{SLICES, service_of};
use crate::model::form::key;
use crate::model::object;
use crate::storage::{ListRequest, Storage};
use crate::values::get;

/// How far the way through a Service goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It has no slices.
    NoSlices,
    /// None of them has a ready endpoint behind the port.
    NoEndpoint,
    /// One of them has.
    Endpoint,
}

/// The slices of all Services, once somebody has asked.
#[derive(Default)]
pub(crate) struct Slices(Mutex<Option<Index>>);

/// Slices by what is asked of them.
#[derive(Default)]
pub(crate) struct Index {
    /// The Service of each slice, and the names of its ports that have a ready endpoint.
    slices: BTreeMap<String, (String, Vec<String>)>,
    /// By `namespace/name`.
    services: BTreeMap<String, Service>,
}

#[derive(Default)]
struct Service {
    slices: usize,
    /// How many slices have a ready endpoint behind a port.
    ports: BTreeMap<String, usize>,
}

/// The ports of a slice that have a ready endpoint.
fn ports(slice: &Value) -> Vec<String> {
    let mut endpoints = get(slice, &["endpoints"]).as_array().into_iter().flatten();
    if endpoints.all(|one| get(one, &["conditions", "ready"]) == false) {
        return Vec::new();
    }
    let ports = get(slice, &["ports"]).as_array().into_iter().flatten();
    let numbered = ports.filter(|one| get(one, &["port"]).is_number());
    numbered
        .filter_map(|one| get(one, &["name"]).as_str().map(str::to_owned))
        .collect()
}

impl Index {
    /// Takes note of the slice stored under a key now.
    pub(crate) fn put(&mut self, slice_key: &str, slice: Option<&Value>) {
        if let Some((service, ports)) = self.slices.remove(slice_key)
            && let Some(known) = self.services.get_mut(&service)
        {
            known.slices -= 1;
            for port in ports {
                match known.ports.get_mut(&port) {
                    Some(count) if *count > 1 => *count -= 1,
                    _ => drop(known.ports.remove(&port)),
                }
            }
            if known.slices == 0 {
                self.services.remove(&service);
            }
        }
        let Some(slice) = slice else { return };
        let service = key(object::namespace(slice), service_of(slice));
        let (known, ports) = (self.services.entry(service.clone()).or_default(), ports(slice));
        known.slices += 1;
        for port in &ports {
            *known.ports.entry(port.clone()).or_default() += 1;
        }
        self.slices.insert(slice_key.to_owned(), (service, ports));
    }

    /// How far the way goes through this port of a Service.
    pub(crate) fn way(&self, service: &str, port: &str) -> Way {
        match self.services.get(service) {
            None => Way::NoSlices,
            Some(known) if known.ports.contains_key(port) => Way::Endpoint,
            Some(_) => Way::NoEndpoint,
        }
    }
}

impl Slices {
    /// How far the way goes through this port of a Service.
    pub(crate) fn way(&self, storage: &dyn Storage, service: &str, port: &str) -> Way {
        let mut index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let index = index.get_or_insert_with(|| {
            let listed = storage.list(SLICES, &ListRequest::default());
            let mut index = Index::default();
            for (key, slice) in listed.map(|listed| listed.items).unwrap_or_default() {
                index.put(&key, Some(slice.value()));
            }
            index
        });
        index.way(service, port)
    }

    /// Takes note of a write of a slice.
    pub(crate) fn written(&self, storage: &dyn Storage, key: &str) {
        if let Some(index) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let slice = storage.get(SLICES, key);
            index.put(key, slice.as_ref().map(|slice| slice.value()));
        }
    }

    /// Forgets everything: writes were taken back.
    pub(crate) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
