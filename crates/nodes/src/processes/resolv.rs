//! The `/etc/resolv.conf` of a program, as a kubelet writes it (`GetPodDNS` of its package `network/dns`).
//!
//! Pure. A program without one of its own sees this machine's file; so does one of a pod with `dnsPolicy: ClusterFirst`
//! where the cluster's name server could not be started.

use std::collections::BTreeMap;
use std::net::IpAddr;

use kubewright_objects::api::core::v1::{Pod, PodDNSConfig};

use super::names::ZONE;

/// Where resolvers look.
pub(super) const FILE: &str = "/etc/resolv.conf";
/// What resolvers read at most (`MaxDNSNameservers`, `MaxDNSSearchPaths`, `MaxDNSSearchListChars`).
const NAME_SERVERS: usize = 3;
const SEARCHES: usize = 32;
const LETTERS: usize = 2048;

/// The content of a file.
#[derive(Default)]
struct Content {
    servers: Vec<String>,
    searches: Vec<String>,
    options: Vec<String>,
}

/// The addresses of the name servers in a file.
pub(super) fn name_servers(text: &str) -> Vec<IpAddr> {
    let servers = read(text).servers.into_iter();
    servers.filter_map(|server| server.parse().ok()).collect()
}

/// The file of a pod's programs, and what was left out of it; none where they see the machine's.
pub(super) fn file(pod: &Pod, cluster: Option<IpAddr>, machine: &str) -> Option<(String, Vec<String>)> {
    let spec = pod.spec.as_ref()?;
    let on_host = spec.host_network == Some(true);
    let own = match spec.dns_policy.as_deref().unwrap_or("ClusterFirst") {
        "ClusterFirst" if on_host => None,
        "ClusterFirst" | "ClusterFirstWithHostNet" => {
            cluster.map(|server| of_cluster(server, pod.metadata.namespace.as_deref().unwrap_or_default(), machine))
        }
        "None" => Some(Content::default()),
        _ => None,
    };
    let content = match (own, &spec.dns_config) {
        (None, None) => return None,
        (Some(own), None) => own,
        (own, Some(config)) => with(own.unwrap_or_else(|| read(machine)), config),
    };
    Some(written(content))
}

fn of_cluster(server: IpAddr, namespace: &str, machine: &str) -> Content {
    let own = [
        format!("{namespace}.svc.{ZONE}"),
        format!("svc.{ZONE}"),
        ZONE.to_owned(),
    ];
    Content {
        servers: vec![server.to_string()],
        searches: own.into_iter().chain(read(machine).searches).collect(),
        options: vec!["ndots:5".to_owned()],
    }
}

/// `appendDNSConfig`: servers and searches come behind, options of the same name give way.
fn with(mut content: Content, config: &PodDNSConfig) -> Content {
    content.servers.extend(config.nameservers.iter().flatten().cloned());
    content.searches.extend(config.searches.iter().flatten().cloned());
    let named = |option: &String| option.split(':').next().unwrap_or_default().to_owned();
    let mut options: BTreeMap<String, String> = content
        .options
        .iter()
        .map(|option| (named(option), option.clone()))
        .collect();
    for option in config.options.iter().flatten() {
        let Some(name) = &option.name else { continue };
        let text = match option.value.as_deref().filter(|value| !value.is_empty()) {
            Some(value) => format!("{name}:{value}"),
            None => name.clone(),
        };
        options.insert(name.clone(), text);
    }
    content.options = options.into_values().collect();
    content
}

/// `parseResolvConf`: the last line of searches and of options counts.
fn read(text: &str) -> Content {
    let mut content = Content::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let rest = |words: std::str::SplitWhitespace<'_>| words.map(str::to_owned).collect();
        match words.next() {
            Some("nameserver") => content.servers.extend(words.next().map(str::to_owned)),
            Some("search") => {
                let searches: Vec<String> = rest(words);
                let ended = |search: String| search.trim_end_matches('.').to_owned();
                content.searches = searches.into_iter().filter(|search| search != ".").map(ended).collect();
            }
            Some("options") => content.options = rest(words),
            _ => {}
        }
    }
    content
}

/// The text, within what resolvers read (`formDNSNameserversFitsLimits`, `formDNSSearchFitsLimits`).
fn written(mut content: Content) -> (String, Vec<String>) {
    let mut left_out = Vec::new();
    once(&mut content.servers);
    once(&mut content.searches);
    if content.servers.len() > NAME_SERVERS {
        content.servers.truncate(NAME_SERVERS);
        let servers = content.servers.join(" ");
        left_out.push(format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {servers}"
        ));
    }
    let before = content.searches.len();
    content.searches.truncate(SEARCHES);
    while content.searches.join(" ").len() > LETTERS {
        content.searches.pop();
    }
    if content.searches.len() < before {
        let searches = content.searches.join(" ");
        left_out.push(format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {searches}"
        ));
    }
    let mut text = String::new();
    let mut line = |key: &str, words: &str| {
        if !words.is_empty() {
            text.extend([key, " ", words, "\n"]);
        }
    };
    line("search", &content.searches.join(" "));
    content.servers.iter().for_each(|server| line("nameserver", server));
    line("options", &content.options.join(" "));
    (text, left_out)
}

/// Leaves each only where it comes first.
fn once(words: &mut Vec<String>) {
    let mut seen = std::collections::BTreeSet::new();
    words.retain(|word| seen.insert(word.clone()));
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const MACHINE: &str = "# made\nnameserver 192.0.2.53\nsearch old\nsearch example.com.\noptions edns0\n";

    #[test]
    fn files_of_pods() {
        let server: IpAddr = "127.9.127.255".parse().expect("an address");
        let own = "search shop.svc.cluster.local svc.cluster.local cluster.local example.com\nnameserver 127.9.127.255\noptions ndots:5\n";
        let check = |spec: Value, cluster: Option<IpAddr>, expected: Option<&str>| {
            let mut spec = spec;
            spec["containers"] = json!([]);
            let pod = json!({ "metadata": { "namespace": "shop" }, "spec": spec });
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            let found = file(&pod, cluster, MACHINE).map(|(text, left_out)| text + &left_out.join("\n"));
            assert_eq!(found.as_deref(), expected, "{spec}");
        };
        check(json!({}), Some(server), Some(own));
        check(json!({}), None, None);
        check(json!({ "hostNetwork": true }), Some(server), None);
        check(
            json!({ "dnsPolicy": "ClusterFirst", "hostNetwork": true }),
            Some(server),
            None,
        );
        check(
            json!({ "dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true }),
            Some(server),
            Some(own),
        );
        check(json!({ "dnsPolicy": "Default" }), Some(server), None);
        let config = json!({
            "nameservers": ["192.0.2.1", "192.0.2.53"], "searches": ["far", "example.com"],
            "options": [{ "name": "ndots", "value": "2" }, { "name": "edns0" }],
        });
        check(
            json!({ "dnsPolicy": "None", "dnsConfig": config }),
            Some(server),
            Some("search far example.com\nnameserver 192.0.2.1\nnameserver 192.0.2.53\noptions edns0 ndots:2\n"),
        );
        check(
            json!({ "dnsPolicy": "Default", "dnsConfig": { "searches": ["far"] } }),
            None,
            Some("search example.com far\nnameserver 192.0.2.53\noptions edns0\n"),
        );
        check(
            json!({ "dnsConfig": { "nameservers": ["192.0.2.1", "192.0.2.2", "192.0.2.3"] } }),
            Some(server),
            Some(
                "search shop.svc.cluster.local svc.cluster.local cluster.local example.com\n\
                 nameserver 127.9.127.255\nnameserver 192.0.2.1\nnameserver 192.0.2.2\noptions ndots:5\n\
                 Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 127.9.127.255 192.0.2.1 192.0.2.2",
            ),
        );
        let many: Vec<String> = (0..33).map(|number| format!("s{number}")).collect();
        let pod = json!({ "spec": { "containers": [], "dnsPolicy": "None", "dnsConfig": { "searches": many } } });
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let (text, left_out) = file(&pod, None, "").expect("a file of its own");
        assert_eq!(text.split(' ').count(), 1 + SEARCHES);
        assert!(
            left_out[0].starts_with("Search Line limits were exceeded"),
            "{left_out:?}"
        );
    }

    #[test]
    fn name_servers_of_a_file() {
        let found = name_servers("nameserver 192.0.2.1\nnameserver fe80::1%eth0\nnameserver\nnameserver ::1\n");
        let told: Vec<String> = found.iter().map(IpAddr::to_string).collect();
        assert_eq!(told, ["192.0.2.1", "::1"]);
    }
}
