//! The ports that Services have at every node of the cluster.
//!
//! The number belongs to the node, whatever the protocol: a port that one Service has is given to no other.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::allocation::{refuse, set, spec};
use super::type_of;
use crate::strategies::check::{At, Errors, absent, each, get, text};
use kubewright_model::{AllocatedValue, AllocatedValues, StrategyContext, Unallocated};

const NODE_PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;

/// Whether ports that the client does not choose are given, and kept when a client leaves them out
/// (`shouldAllocateNodePorts`, and `needsNodePort` of `storage.go`; that of `strategy.go` looks at the type alone).
pub(super) fn is_given_node_ports(service: &Value) -> bool {
    match type_of(service) {
        "NodePort" => true,
        "LoadBalancer" => get(service, &["spec", "allocateLoadBalancerNodePorts"]) != &json!(false),
        _ => false,
    }
}

pub(super) fn node_ports(service: &Value) -> impl Iterator<Item = i64> {
    let ports = get(service, &["spec", "ports"]).as_array().into_iter().flatten();
    ports
        .filter_map(|port| get(port, &["nodePort"]).as_i64())
        .filter(|number| *number != 0)
}

pub(super) fn health_check_port(service: &Value) -> Option<i64> {
    let port = get(service, &["spec", "healthCheckNodePort"]).as_i64();
    port.filter(|number| *number != 0)
}

/// A port that is given without a node port keeps the one that its name had, unless another port has it now.
pub(super) fn keep_node_ports(service: &mut Value, old: &Value) {
    let present: BTreeSet<i64> = node_ports(service).collect();
    let used: BTreeSet<i64> = node_ports(old).filter(|port| present.contains(port)).collect();
    let name = |port: &Value| get(port, &["name"]).as_str().unwrap_or("").to_owned();
    let ports = get(old, &["spec", "ports"]).as_array().into_iter().flatten();
    let before: BTreeMap<String, i64> = ports
        .map(|port| (name(port), get(port, &["nodePort"]).as_i64().unwrap_or(0)))
        .collect();
    let Some(spec) = spec(service) else { return };
    for port in each(spec, "ports").filter(|port| absent(port, "nodePort")) {
        let kept = before.get(text(port, "name")).copied().unwrap_or(0);
        if kept != 0 && !used.contains(&kept) {
            port.insert("nodePort".to_owned(), kept.into());
        }
    }
}

/// The ports of the nodes as one write sees them.
pub(super) struct Ports<'a> {
    pub(super) taken: &'a AllocatedValues,
    /// The ports that this write was given.
    pub(super) given: Vec<i64>,
    pub(super) context: &'a StrategyContext<'a>,
}

impl Ports<'_> {
    fn take(&mut self, number: i64) -> Result<(), &'static str> {
        if !self.context.dry_run && !NODE_PORTS.contains(&number) {
            return Err("provided port is not in the valid range. The range of valid ports is 30000-32767");
        }
        if self.taken.has(AllocatedValue::Port(number)) || self.given.contains(&number) {
            return Err("provided port is already allocated");
        }
        self.given.push(number);
        Ok(())
    }

    fn next(&mut self) -> Result<i64, &'static str> {
        let (first, last) = (*NODE_PORTS.start(), *NODE_PORTS.end());
        let found = if self.context.dry_run {
            // A number outside the range of node ports, so that a client cannot mistake it for an allocated one.
            Some(self.given.iter().copied().max().unwrap_or(last + 1) + 1)
        } else {
            let size = last - first + 1;
            let start = (self.context.next_search_start() % u64::try_from(size).unwrap_or(1)) as i64;
            let mut all = (0..size).map(|step| first + (start + step) % size);
            all.find(|port| !self.taken.has(AllocatedValue::Port(*port)) && !self.given.contains(port))
        };
        let found = found.ok_or("range is full")?;
        self.given.push(found);
        Ok(found)
    }

    fn next_for_port(&mut self) -> Result<i64, Unallocated> {
        let failed = |why| Unallocated::Failed(format!("failed to allocate a nodePort: {why}"));
        self.next().map_err(failed)
    }

    fn take_for_port(&mut self, service: &Value, index: usize, number: i64) -> Result<(), Unallocated> {
        let Err(why) = self.take(number) else { return Ok(()) };
        let mut errors = Errors::default();
        let ports = At::root(service).keys(&["spec", "ports"]);
        let shown = Value::from(number);
        let at = At {
            value: &shown,
            path: ports.path.index(index).key("nodePort"),
        };
        errors.invalid(&at, why);
        refuse(errors)
    }

    /// The ports of a new Service: the same port has the same node port in every protocol, as far as the client does
    /// not say otherwise.
    pub(super) fn of_new(&mut self, service: &mut Value) -> Result<(), Unallocated> {
        let asked = PortNumbers::all(service);
        let mut numbers = BTreeMap::new();
        for (index, wanted) in asked.iter().enumerate() {
            if wanted.node == 0 && !is_given_node_ports(service) {
                continue;
            }
            let number = match (numbers.get(&wanted.port).copied(), wanted.node) {
                (None, _) => {
                    let same_port = asked.iter().find(|other| other.port == wanted.port && other.node != 0);
                    let number = if let Some(other) = same_port {
                        self.take_for_port(service, index, other.node)?;
                        other.node
                    } else {
                        self.next_for_port()?
                    };
                    numbers.insert(wanted.port, number);
                    number
                }
                (Some(number), node) if node == 0 || node == number => number,
                (Some(_), node) => {
                    self.take_for_port(service, index, node)?;
                    node
                }
            };
            put_node_port(service, index, number);
        }
        Ok(())
    }

    pub(super) fn of_changed(&mut self, service: &mut Value, old: &Value) -> Result<(), Unallocated> {
        let held: BTreeSet<i64> = node_ports(old).collect();
        let mut seen = BTreeSet::new();
        for (index, wanted) in PortNumbers::all(service).into_iter().enumerate() {
            if wanted.node == 0 && !is_given_node_ports(service) {
                continue;
            }
            let number = if wanted.node == 0 {
                self.next_for_port()?
            } else {
                if !held.contains(&wanted.node) && !self.given.contains(&wanted.node) {
                    self.take_for_port(service, index, wanted.node)?;
                }
                wanted.node
            };
            if !seen.insert((wanted.protocol.clone(), number)) {
                return Err(Unallocated::Untyped(format!(
                    "duplicate nodePort: {{{} {number}}}",
                    wanted.protocol
                )));
            }
            put_node_port(service, index, number);
        }
        Ok(())
    }

    pub(super) fn health_check(&mut self, service: &mut Value) -> Result<(), Unallocated> {
        if let Some(number) = health_check_port(service) {
            let failed = |why| format!("failed to allocate requested HealthCheck NodePort {number}: {why}");
            return self.take(number).map_err(|why| Unallocated::Failed(failed(why)));
        }
        let failed = |why| Unallocated::Failed(format!("failed to allocate a HealthCheck NodePort 0: {why}"));
        let number = self.next().map_err(failed)?;
        set(service, "healthCheckNodePort", number);
        Ok(())
    }
}

/// The numbers that tell the ports of a Service apart.
struct PortNumbers {
    port: i64,
    /// 0 when none is asked for.
    node: i64,
    protocol: String,
}

impl PortNumbers {
    fn all(service: &Value) -> Vec<PortNumbers> {
        let ports = get(service, &["spec", "ports"]).as_array().into_iter().flatten();
        let number = |port: &Value, key: &str| get(port, &[key]).as_i64().unwrap_or(0);
        ports
            .map(|port| PortNumbers {
                port: number(port, "port"),
                node: number(port, "nodePort"),
                protocol: get(port, &["protocol"]).as_str().unwrap_or("").to_owned(),
            })
            .collect()
    }
}

fn put_node_port(service: &mut Value, index: usize, number: i64) {
    let ports = service.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
    let port = ports
        .and_then(|ports| ports.get_mut(index))
        .and_then(Value::as_object_mut);
    if let Some(port) = port {
        port.insert("nodePort".to_owned(), number.into());
    }
}
