//! Pages about the server itself: `/statusz` and `/flagz` (`zpages` of component-base, on since 1.36), as text for
//! people.
//!
//! Not here: their structured form; `/configz`, which kube-apiserver does not have.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response};
use kubewright_schema::protobuf::go_duration;

use super::Inner;
use super::respond::{Content, Reply};
use crate::Body;
use crate::authorization::Mode;
use crate::wire::negotiate;
use crate::wire::query::Query;

const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
                       guarantees and is for debugging purposes only.";

impl Inner {
    /// `/statusz`: since when the server runs, what it is, and where it answers.
    pub(super) fn statusz(&self, headers: &HeaderMap, query: &Query) -> Response<Body> {
        let since = self.started.as_second();
        let up = self.env.now().as_second().saturating_sub(since).max(0);
        let started = self.started.strftime("%a %b %e %H:%M:%S UTC %Y");
        let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
        let version = self.config.minor.version();
        let paths = self.paths();
        let folders: BTreeSet<&str> = paths.iter().filter_map(|path| path.split('/').nth(1)).collect();
        let folders: String = folders.iter().map(|folder| format!(" /{folder}")).collect();
        let text = format!(
            "\nStarted: {started}\nUp: {hours} hr {minutes:02} min {seconds:02} sec\nGo version: none\n\
             Binary version: {}\nEmulation version: 1.{}\nPaths:{folders}\n",
            version.trim_start_matches('v'),
            self.config.minor.number(),
        );
        self.page_of_text("statusz", &text, headers, query)
    }

    /// `/flagz`: the settings that kube-apiserver has as well, by the names of its flags.
    pub(super) fn flagz(&self, headers: &HeaderMap, query: &Query) -> Response<Body> {
        let config = &self.config;
        let lasting = |time: Duration| go_duration(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX));
        let list = |names: &BTreeSet<String>| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            format!("[{}]", names.join(","))
        };
        let modes = config.authorization.iter().map(Mode::name);
        let issuers = std::iter::once(&config.issuer).chain(&config.further_issuers);
        let issuers: Vec<&str> = issuers.map(String::as_str).collect();
        let flags = BTreeMap::from([
            ("anonymous-auth", config.anonymous.to_string()),
            ("api-audiences", format!("[{}]", config.audiences.join(","))),
            (
                "authorization-mode",
                format!("[{}]", modes.collect::<Vec<_>>().join(",")),
            ),
            ("disable-admission-plugins", list(&config.disabled_plugins)),
            ("enable-admission-plugins", list(&config.enabled_plugins)),
            ("etcd-compaction-interval", lasting(config.compaction_interval)),
            ("event-ttl", lasting(config.event_ttl)),
            ("request-timeout", lasting(config.request_timeout)),
            ("service-account-issuer", format!("[{}]", issuers.join(","))),
            ("service-cluster-ip-range", config.service_range.to_string()),
        ]);
        let lines: String = flags.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        self.page_of_text("flagz", &format!("\n{lines}"), headers, query)
    }

    fn page_of_text(&self, name: &str, text: &str, headers: &HeaderMap, query: &Query) -> Response<Body> {
        const TEXT: &str = "text/plain; charset=utf-8";
        if !negotiate::accepts(headers, "text/plain") {
            return self.text(406, "media type not acceptable, must be: text/plain\n", query);
        }
        let text = format!("\nkube-apiserver {name}\n{WARNING}\n{text}");
        self.respond(query, Reply::new(200, Content::Text(TEXT, Bytes::from(text))))
    }
}

#[cfg(test)]
mod tests {
    use crate::UserInfo;
    use crate::server::tests::World;

    #[test]
    fn the_server_tells_of_itself() {
        let world = World::new();
        world.advance(std::time::Duration::from_secs(3725));
        let check = |path: &str, accept: &str, code: u16, said: &[&str]| {
            let found = world.send(&format!("GET {path}"), &[("accept", accept)], "", UserInfo::admin());
            assert_eq!(found.code, code, "{path}: {}", found.body);
            let body = found.body.to_string();
            assert!(said.iter().all(|part| body.contains(part)), "{path}: {body}");
        };
        let status = [
            "kube-apiserver statusz",
            "Up: 1 hr 02 min 05 sec",
            "Emulation version: 1.36",
            " /apis",
            " /readyz",
        ];
        check("/statusz", "", 200, &status);
        check("/statusz", "text/plain", 200, &status);
        check("/statusz", "application/json", 406, &["must be: text/plain"]);
        check(
            "/flagz",
            "*/*",
            200,
            &["kube-apiserver flagz", "authorization-mode=[RBAC]", "event-ttl=1h0m0s"],
        );
        check("/configz", "", 404, &["404 page not found"]);
        let nobody = world.send("GET /flagz", &[], "", UserInfo::authenticated("jane", []));
        assert_eq!(nobody.code, 403, "{}", nobody.body);
    }

    /// As kube-apiserver answers while its gate is off: clients that would speak CBOR then speak JSON.
    #[test]
    fn there_is_no_cbor() {
        const MAPS: &str = "/api/v1/namespaces/default/configmaps";
        let world = World::new();
        let check = |line: &str, headers: &[(&str, &str)], code: u16, reason: &str| {
            let found = world.send(line, headers, "\u{1}", UserInfo::admin());
            assert_eq!(
                (found.code, found.body["reason"].as_str().unwrap_or("")),
                (code, reason),
                "{line}: {}",
                found.body
            );
        };
        let cbor = "application/cbor";
        check(&format!("GET {MAPS}"), &[("accept", cbor)], 406, "NotAcceptable");
        check(
            &format!("GET {MAPS}?watch=1"),
            &[("accept", "application/cbor-seq")],
            406,
            "NotAcceptable",
        );
        check(
            &format!("GET {MAPS}"),
            &[("accept", "application/cbor, application/json;q=0.9")],
            200,
            "",
        );
        check(
            &format!("POST {MAPS}"),
            &[("content-type", cbor)],
            415,
            "UnsupportedMediaType",
        );
        let apply = "application/apply-patch+cbor";
        check(
            &format!("PATCH {MAPS}/a?fieldManager=m"),
            &[("content-type", apply)],
            415,
            "UnsupportedMediaType",
        );
    }
}
