//! Paths that are no resource: health, version, discovery, OpenAPI.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH, LOCATION, VARY};
use http::{HeaderMap, HeaderName, Method, Response};
use serde_json::{Value, json};

use super::Inner;
use super::negotiate::{self, Output};
use super::query::{Query, decode};
use super::respond::{Content, Reply, Responder};
use crate::authorization::Attributes;
use crate::status::Status;
use crate::{Body, UserInfo, discovery, openapi};

/// Checks of the health endpoints; all of them are about this process, which answers.
///
/// `etcd` is what clients call the storage.
const HEALTH_CHECKS: [&str; 3] = ["ping", "log", "etcd"];

impl Inner {
    pub(super) fn answer_path(
        &self,
        method: &Method,
        uri: &http::Uri,
        headers: &HeaderMap,
        query: &Query,
        user: &UserInfo,
    ) -> Response<Body> {
        let path = decode(uri.path(), false);
        let attributes = Attributes {
            verb: method.as_str().to_ascii_lowercase(),
            path: path.clone(),
            ..Attributes::default()
        };
        if let Err(status) = self.admit(user, headers, &attributes) {
            return self.fail_as_asked(headers, query, &status);
        }
        let reading = *method == Method::GET || *method == Method::HEAD;
        let trimmed = path.trim_end_matches('/');
        let segments: Vec<&str> = trimmed.split('/').skip(1).collect();
        match segments.as_slice() {
            [name @ ("healthz" | "livez" | "readyz"), checks @ ..] => self.health(name, checks, query),
            ["openapi", "v3", document @ ..] => self.openapi(&document.join("/"), headers, query),
            // Groups answer to any method, like everything that is not routed by version.
            ["apis"] | ["apis", _] => self.discovery(trimmed, headers, query),
            _ if !reading => self.fail(&Status::method_not_allowed()),
            [] => self.respond(query, Reply::new(200, Content::Plain(self.index()))),
            ["version"] => self.respond(query, Reply::new(200, Content::Plain(self.version()))),
            ["openapi", "v2"] => {
                let (type_, document) = openapi::v2::document(&negotiate::accept(headers), &self.config.version);
                self.respond(query, Reply::new(200, Content::Text(type_, document)))
            }
            ["api" | "apis", ..] => self.discovery(trimmed, headers, query),
            _ => self.not_found_text(query),
        }
    }

    fn respond(&self, query: &Query, reply: Reply) -> Response<Body> {
        let pretty = query.flag("pretty");
        Responder {
            output: Output { pretty, ..Output::JSON },
            query,
            now: self.env.now(),
        }
        .respond(reply)
    }

    fn index(&self) -> Value {
        let mut paths: Vec<String> = [
            "/api",
            "/apis",
            "/healthz",
            "/livez",
            "/openapi/v2",
            "/openapi/v3",
            "/readyz",
            "/version",
        ]
        .map(str::to_owned)
        .to_vec();
        for group in self.registry.snapshot().groups() {
            if group.name.is_empty() {
                paths.extend(group.versions.iter().map(|version| format!("/api/{version}")));
            } else {
                paths.push(format!("/apis/{}", group.name));
                paths.extend(
                    group
                        .versions
                        .iter()
                        .map(|version| format!("/apis/{}/{version}", group.name)),
                );
            }
        }
        paths.sort();
        json!({ "paths": paths })
    }

    fn version(&self) -> Value {
        let text = self.config.version.trim_start_matches('v');
        let mut numbers = text.split('.');
        let (major, minor) = (numbers.next().unwrap_or("0"), numbers.next().unwrap_or("0"));
        let minimum = minor
            .parse::<u32>()
            .map_or_else(|_| minor.to_owned(), |minor| minor.saturating_sub(1).to_string());
        json!({
            "major": major, "minor": minor, "emulationMajor": major, "emulationMinor": minor,
            "minCompatibilityMajor": major, "minCompatibilityMinor": minimum,
            "gitVersion": self.config.version, "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "", "compiler": "rustc", "platform": "kubewright"
        })
    }

    fn health(&self, name: &str, checks: &[&str], query: &Query) -> Response<Body> {
        match checks {
            [] => {}
            [check] if HEALTH_CHECKS.contains(check) => return self.respond(query, Reply::text(200, "ok")),
            _ => return self.not_found_text(query),
        }
        if !query.has("verbose") {
            return self.respond(query, Reply::text(200, "ok"));
        }
        let mut text: String = HEALTH_CHECKS.iter().map(|check| format!("[+]{check} ok\n")).collect();
        text.push_str(&format!("{name} check passed\n"));
        self.respond(query, Reply::text(200, text))
    }

    fn discovery(&self, path: &str, headers: &HeaderMap, query: &Query) -> Response<Body> {
        let snapshot = self.registry.snapshot();
        let accept = negotiate::accept(headers);
        let Some(answer) = discovery::respond(path, &accept, &snapshot) else {
            // An unknown group is no path at all; an unknown version of a known one is a missing resource.
            let known = match path.split('/').collect::<Vec<_>>().as_slice() {
                ["", "api", _] => true,
                ["", "apis", group, _] => snapshot.has_group(group),
                _ => false,
            };
            return if known {
                self.fail(&Status::no_such_path())
            } else {
                self.not_found_text(query)
            };
        };
        if let Some(aggregated) = answer.aggregated {
            let mut reply = if matches_etag(headers, &aggregated.etag) {
                Reply::new(304, Content::Text(aggregated.content_type, Bytes::new()))
            } else {
                Reply::new(
                    200,
                    Content::Text(aggregated.content_type, Bytes::from(answer.body.to_string())),
                )
            };
            reply.headers = vec![(ETAG, aggregated.etag), (VARY, "Accept".to_owned())];
            return self.respond(query, reply);
        }
        match negotiate::output(headers, query, false) {
            // A document is no object: a transformation that the client would take is not made.
            Ok(output) => Responder {
                output,
                query,
                now: self.env.now(),
            }
            .respond(Reply::new(200, Content::Plain((*answer.body).clone()))),
            Err(status) => self.fail(&status),
        }
    }

    fn openapi(&self, path: &str, headers: &HeaderMap, query: &Query) -> Response<Body> {
        let snapshot = self.registry.snapshot();
        let document = if path.is_empty() {
            Some(openapi::index(&snapshot))
        } else {
            openapi::document(&snapshot, path)
        };
        let Some(document) = document else {
            return self.not_found_text(query);
        };
        let hash = query.get("hash");
        if !path.is_empty() && !hash.is_empty() && hash != document.hash {
            let mut reply = Reply::new(301, Content::Text("application/json", Bytes::new()));
            reply.headers.push((LOCATION, openapi::location(path, &document)));
            return self.respond(query, reply);
        }
        let etag = document.etag();
        let mut reply = if matches_etag(headers, &etag) {
            Reply::new(304, Content::Text("application/json", Bytes::new()))
        } else {
            Reply::new(200, Content::Text("application/json", document.body.clone()))
        };
        reply.headers = vec![(ETAG, etag), (VARY, "Accept".to_owned())];
        let mut response = self.respond(query, reply);
        if !path.is_empty() && !hash.is_empty() {
            // The hash names this very text, so whoever has it may keep it.
            let keep: (HeaderName, &str) = (CACHE_CONTROL, "public, immutable");
            if let Ok(value) = http::HeaderValue::from_str(keep.1) {
                response.headers_mut().insert(keep.0, value);
            }
        }
        response
    }
}

fn matches_etag(headers: &HeaderMap, etag: &str) -> bool {
    headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| {
            value
                .split(',')
                .map(str::trim)
                .any(|tag| tag == etag || tag == "*" || tag.strip_prefix("W/") == Some(etag))
        })
}
