//! Warnings about ports that cannot be distinguished from each other.
//!
//! Upstream compares each with each. Here a port looks up those that it clashes with, as a pod may have thousands that
//! do not.

use std::collections::BTreeMap;

use super::At;

/// So many are more than any answer has room for.
const MAX_WARNINGS: usize = 1000;

/// The key of a port; ordered so that ports with the same container port and protocol lie together, by host port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Ported<'a> {
    container: i64,
    protocol: &'a str,
    host: i64,
    ip: &'a str,
}

/// Where the ports stand that were looked at.
#[derive(Default)]
struct Known<'a>(BTreeMap<Ported<'a>, Vec<usize>>);

impl<'a> Known<'a> {
    /// The earlier ports that cannot be distinguished from this one, in order, with the word for it.
    fn clashes(&self, port: Ported<'a>) -> Vec<(usize, &'static str)> {
        let hosts = |first: i64, last: i64| {
            let at = |host: i64| Ported { host, ip: "", ..port };
            self.0.range(at(first)..at(last.saturating_add(1)))
        };
        let mut found = Vec::new();
        let mut add = |(other, places): (&Ported<'a>, &Vec<usize>)| {
            let word = if *other == port {
                "duplicate"
            } else if port.host == 0 || other.host == 0 {
                "overlapping"
            } else {
                "dangerously ambiguous"
            };
            found.extend(places.iter().map(|place| (*place, word)));
        };
        if port.host == 0 {
            hosts(i64::MIN, i64::MAX).for_each(add);
        } else {
            hosts(0, 0).for_each(&mut add);
            if port.ip.is_empty() {
                hosts(port.host, port.host).for_each(add);
            } else {
                let keys = ["", port.ip].map(|ip| Ported { ip, ..port });
                let there = keys.iter().filter_map(|key| self.0.get_key_value(key));
                there.for_each(add);
            }
        }
        found.sort_unstable();
        found
    }
}

pub(super) fn ports(all: &[At<'_>], warn: &mut Vec<String>) {
    let mut known = Known::default();
    let mut names: BTreeMap<&str, &At<'_>> = BTreeMap::new();
    for (place, port) in all.iter().enumerate() {
        let number = |field: &str| port.key(field).int().unwrap_or(0);
        let ported = Ported {
            container: number("containerPort"),
            protocol: port.text_of("protocol"),
            host: number("hostPort"),
            ip: port.text_of("hostIP"),
        };
        let name = port.text_of("name");
        if !ported.ip.is_empty() && ported.host == 0 {
            warn.push(format!(
                "{}: hostIP set without hostPort: {{Name:{name} HostPort:0 ContainerPort:{} Protocol:{} HostIP:{}}}",
                port.path, ported.container, ported.protocol, ported.ip
            ));
        }
        // Ports that are all the same make a warning for each two of them.
        if warn.len() < MAX_WARNINGS {
            let clashes = known.clashes(ported).into_iter().take(MAX_WARNINGS);
            warn.extend(
                clashes.map(|(other, word)| format!("{}: {word} port definition with {}", port.path, all[other].path)),
            );
        }
        known.0.entry(ported).or_default().push(place);
        if name.is_empty() {
            continue;
        }
        match names.get(name) {
            Some(first) => warn.push(format!(
                "{}: duplicate port name {name:?} with {first}, services and probes that select ports by name will use {first}",
                port.path,
                first = first.path
            )),
            None => {
                names.insert(name, port);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// As upstream (`warningsForOverlappingContainerPorts`).
    fn in_pairs(ports: &[Value]) -> Vec<String> {
        let number = |port: &Value, field: &str| port[field].as_i64().unwrap_or(0);
        let text = |port: &Value, field: &str| port[field].as_str().unwrap_or("").to_owned();
        let mut warnings = Vec::new();
        for (index, port) in ports.iter().enumerate() {
            let (host, ip) = (number(port, "hostPort"), text(port, "hostIP"));
            for (place, other) in ports[..index].iter().enumerate() {
                let (other_host, other_ip) = (number(other, "hostPort"), text(other, "hostIP"));
                let word = if port["containerPort"] != other["containerPort"] || port["protocol"] != other["protocol"] {
                    continue;
                } else if ip == other_ip && host == other_host {
                    "duplicate"
                } else if host == 0 || other_host == 0 {
                    "overlapping"
                } else if host == other_host && ip.is_empty() != other_ip.is_empty() {
                    "dangerously ambiguous"
                } else {
                    continue;
                };
                warnings.push(format!("[{index}]: {word} port definition with [{place}]"));
            }
        }
        warnings
    }

    /// The warnings about these ports together, without the warnings about single ports.
    fn clash_warnings(list: &[Value]) -> Vec<String> {
        let list = Value::from(list);
        let all: Vec<At<'_>> = At::root(&list).items().collect();
        let mut warn = Vec::new();
        ports(&all, &mut warn);
        warn.retain(|text| text.contains("port definition with"));
        warn
    }

    fn some_port() -> impl Strategy<Value = Value> {
        let ip = prop::sample::select(&["", "10.0.0.1", "10.0.0.2"][..]);
        let protocol = prop::sample::select(&["TCP", "UDP"][..]);
        (1_i64..3, 0_i64..3, ip, protocol).prop_map(|(container, host, ip, protocol)| {
            json!({"containerPort": container, "hostPort": host, "hostIP": ip, "protocol": protocol})
        })
    }

    proptest! {
        #[test]
        fn ports_clash_as_in_pairs(ports in prop::collection::vec(some_port(), 0..12)) {
            prop_assert_eq!(clash_warnings(&ports), in_pairs(&ports));
        }
    }

    #[test]
    fn no_more_is_said_than_an_answer_has_room_for() {
        let same = vec![json!({"containerPort": 80}); 3_000];
        assert!((MAX_WARNINGS..2 * MAX_WARNINGS).contains(&clash_warnings(&same).len()));
    }
}
