//! Paths that are no resource: health, version, discovery, OpenAPI.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HOST, IF_NONE_MATCH, LOCATION, VARY};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use kubewright_schema::protobuf;
use serde_json::{Value, json};

use std::sync::Arc;

use super::Inner;
use super::compress;
use super::health;
use super::monitoring;
use super::respond::{Content, Reply, Responder, json_text};
use super::route::Page;
use super::upkeep::api_services;
use crate::discovery::DiscoveryPath;
use crate::model::status::Status;
use crate::registry::Snapshot;
use crate::wire::negotiate::{self, Format, Output};
use crate::wire::query::{Query, decode};
use crate::{Body, discovery, openapi};

/// Pages that are routed by method, and know GET only.
fn reads_by_get(page: &Page) -> bool {
    match page {
        Page::Version | Page::OpenIdConfiguration | Page::KeySet => true,
        Page::Discovery(place) => matches!(
            place,
            DiscoveryPath::Core | DiscoveryPath::CoreVersion(_) | DiscoveryPath::Version(..)
        ),
        _ => false,
    }
}

/// A page of a struct with these fields, in their order and always indented (`responsewriters.WriteRawJSON`).
fn indented(fields: &[(&str, Value)]) -> Reply {
    let lines = fields.iter().map(|(name, value)| {
        let value = String::from_utf8(json_text(value, true)).unwrap_or_default();
        format!("  {}: {}", json!(name), value.trim_end().replace('\n', "\n  "))
    });
    let text = format!("{{\n{}\n}}", lines.collect::<Vec<_>>().join(",\n"));
    Reply::new(200, Content::Text("application/json", Bytes::from(text)))
}

impl Inner {
    /// The answer to an unknown path.
    pub(super) fn not_found_text(&self, query: &Query) -> Response<Body> {
        self.text(404, "404 page not found\n", query)
    }

    /// The answer of paths of another server that is not available.
    pub(super) fn unavailable_text(&self, query: &Query) -> Response<Body> {
        self.text(503, "service unavailable\n", query)
    }

    /// An answer that is no Status, as upstream.
    pub(super) fn text(&self, code: u16, text: impl Into<String>, query: &Query) -> Response<Body> {
        Responder {
            output: Output::JSON,
            query,
            env: self.env.as_ref(),
        }
        .respond(Reply::text(code, text))
    }

    pub(super) fn answer_page(&self, page: &Page, head: &http::request::Parts, query: &Query) -> Response<Body> {
        let method = &head.method;
        let is_for_any_method = match page {
            Page::Index
            | Page::Health { .. }
            | Page::OpenApiV2
            | Page::OpenApiV3(_)
            | Page::Metrics
            | Page::Statusz
            | Page::Flagz
            | Page::NotServed => true,
            // Groups answer to any method, like everything that is not routed by version.
            Page::Discovery(DiscoveryPath::Groups | DiscoveryPath::Group(_)) => true,
            Page::Discovery(DiscoveryPath::Version(group, version)) => {
                self.registry.snapshot().is_custom_version(group, version)
            }
            _ => false,
        };
        let answer = self.read_page(page, head, query);
        let is_read = method == Method::GET || (method == Method::HEAD && !reads_by_get(page));
        // A missing page is not found by any method.
        if is_for_any_method || is_read || answer.status() == http::StatusCode::NOT_FOUND {
            answer
        } else {
            self.fail(&Status::method_not_allowed())
        }
    }

    /// The answer to a GET of a page.
    fn read_page(&self, page: &Page, head: &http::request::Parts, query: &Query) -> Response<Body> {
        let (uri, headers) = (&head.uri, &head.headers);
        match page {
            Page::Health { endpoint, check } => self.health(endpoint, check, query),
            Page::OpenApiV3(document) => self.openapi(document, headers, query),
            Page::OpenApiV2 => self.openapi_v2(headers, query),
            Page::Metrics => {
                let text = Content::Text(monitoring::MEDIA_TYPE, Bytes::from(self.metrics()));
                self.respond(query, Reply::new(200, text))
            }
            Page::Statusz => self.statusz(headers, query),
            Page::Flagz => self.flagz(headers, query),
            Page::Index => self.respond(query, indented(&[("paths", json!(self.paths()))])),
            Page::NotServed => self.fail(&Status::not_implemented(format!(
                "{} is not served: this server tells of itself in its log, not over the API",
                decode(uri.path(), false)
            ))),
            Page::OpenIdConfiguration => self.openid_configuration(uri, headers, query),
            Page::KeySet => self.key_set(headers, query),
            Page::Version if !negotiate::accepts_only(headers, "application/json") => {
                let message = "406: Not Acceptable\n\nAvailable representations: application/json";
                let status = Status::failure(406, "NotAcceptable", message).with_empty_details();
                self.fail_as_asked(headers, query, &status)
            }
            Page::Version => self.respond(query, indented(&self.version())),
            Page::Discovery(DiscoveryPath::Version(group, version))
                if self.registry.snapshot().lacks_custom_version(group, version) =>
            {
                self.not_found_text(query)
            }
            Page::Discovery(place) => self.discovery(place, uri, headers, query),
            Page::Nothing => self.not_found_text(query),
        }
    }

    /// 406 without a word, as OpenAPI documents are refused.
    fn not_acceptable(&self, query: &Query) -> Response<Body> {
        let mut reply = Reply::new(406, Content::Text("application/json", Bytes::new()));
        reply.headers = vec![(VARY, "Accept".to_owned())];
        let mut response = self.respond(query, reply);
        response.headers_mut().remove(CONTENT_TYPE);
        response
    }

    pub(super) fn respond(&self, query: &Query, reply: Reply) -> Response<Body> {
        let pretty = query.flag("pretty");
        Responder {
            output: Output { pretty, ..Output::JSON },
            query,
            env: self.env.as_ref(),
        }
        .respond(reply)
    }

    /// The paths that there are, in their order.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = [
            "/.well-known/openid-configuration",
            "/api",
            "/apis",
            "/apis/",
            "/flagz",
            "/metrics",
            "/openapi/v2",
            "/openapi/v3",
            "/openapi/v3/",
            "/openid/v1/jwks",
            "/statusz",
            "/version",
        ]
        .map(str::to_owned)
        .to_vec();
        paths.extend(health::paths());
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
        paths
    }

    fn version(&self) -> [(&'static str, Value); 13] {
        let number = self.config.minor.number();
        let (major, minor, minimum) = ("1", number.to_string(), number.saturating_sub(1).to_string());
        [
            ("major", json!(major)),
            ("minor", json!(minor)),
            ("emulationMajor", json!(major)),
            ("emulationMinor", json!(minor)),
            ("minCompatibilityMajor", json!(major)),
            ("minCompatibilityMinor", json!(minimum)),
            ("gitVersion", json!(self.config.minor.version())),
            ("gitCommit", json!("")),
            ("gitTreeState", json!("clean")),
            ("buildDate", json!("1970-01-01T00:00:00Z")),
            ("goVersion", json!("")),
            ("compiler", json!("rustc")),
            ("platform", json!("kubewright")),
        ]
    }

    fn discovery(&self, place: &DiscoveryPath, uri: &http::Uri, headers: &HeaderMap, query: &Query) -> Response<Body> {
        let snapshot = self.registry.snapshot();
        let accept = negotiate::accept(headers);
        // The state is read before what it is the state of.
        let state = self
            .storage
            .changes(api_services::STORE)
            .saturating_add(self.probes.state());
        let ranked = || self.ranked();
        let Some(answer) = discovery::remote::respond_with_remote(place, &accept, &snapshot, state, ranked) else {
            // An unknown group is no path at all; an unknown version of a known one is a missing resource.
            let known = match place {
                DiscoveryPath::CoreVersion(_) => true,
                DiscoveryPath::Version(group, _) => snapshot.has_group(group),
                DiscoveryPath::Core | DiscoveryPath::Groups | DiscoveryPath::Group(_) => false,
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
                let encoded = if aggregated.content_type.starts_with(Format::Protobuf.content_type()) {
                    protobuf::encode(&answer.body).map(Bytes::from)
                } else {
                    Ok(Bytes::from(json_text(&answer.body, false)))
                };
                match encoded {
                    Ok(text) => Reply::new(200, Content::Text(aggregated.content_type, text)),
                    Err(error) => return self.fail(&Status::untyped(error.to_string())),
                }
            };
            reply.headers = vec![(ETAG, aggregated.etag), (VARY, "Accept".to_owned())];
            let mut response = self.respond(query, reply);
            // A client that has the page asks with its ETag whether it is still current.
            response
                .headers_mut()
                .insert(CACHE_CONTROL, HeaderValue::from_static("public"));
            return response;
        }
        // The list of groups is negotiated by itself, everything else by the router in front of it.
        let lists_groups = *place == DiscoveryPath::Groups;
        let output = negotiate::plain(headers, query).or_else(|status| match lists_groups {
            true if negotiate::accepts(headers, "application/json") => Ok(Output::JSON),
            true => Err(negotiate::not_transformed()),
            // No router stands in front of groups that definitions make.
            false if place.group().is_some_and(|group| snapshot.is_custom_group(group)) => {
                Err(negotiate::not_transformed())
            }
            false => Err(status),
        });
        match output {
            Ok(output) => Responder {
                output,
                query,
                env: self.env.as_ref(),
            }
            .respond(Reply::new(
                200,
                Content::Plain(with_address(&answer.body, uri, headers)),
            )),
            Err(status) => self.fail(&status),
        }
    }

    /// The document of version 2, to any method.
    fn openapi_v2(&self, headers: &HeaderMap, query: &Query) -> Response<Body> {
        let mut response = match openapi::v2::Form::accepted(headers) {
            Some(form) => self.openapi_v2_as(form, headers, query),
            None => self.not_acceptable(query),
        };
        // A cache must know that there is another encoding, even when this answer is not compressed.
        response.headers_mut().append(VARY, compress::VARY_BY);
        response
    }

    fn openapi_v2_as(&self, form: openapi::v2::Form, headers: &HeaderMap, query: &Query) -> Response<Body> {
        let snapshot = self.registry.snapshot();
        // Its hash may be known when the document would have to be made.
        let is_known = headers.contains_key(IF_NONE_MATCH) && matches_etag(headers, &openapi::v2::etag(&snapshot));
        let (code, body) = if is_known {
            (304, Bytes::new())
        } else {
            (200, openapi::v2::document(&snapshot, form))
        };
        let mut reply = Reply::new(code, Content::Text(form.media_type(), body));
        reply.headers = vec![(ETAG, openapi::v2::etag(&snapshot)), (VARY, "Accept".to_owned())];
        let mut response = self.respond(query, reply);
        if is_known {
            response.headers_mut().remove(CONTENT_TYPE);
        }
        response
    }

    /// The index of version 3, with the documents of other servers.
    fn openapi_index(&self, snapshot: &Snapshot) -> Arc<openapi::Document> {
        let remotes = self.remotes().into_iter();
        let remotes = remotes.filter_map(|(_, listed)| self.remote(&listed.group, &listed.version));
        let remotes: Vec<(String, Option<String>)> = remotes
            .map(|remote| {
                (
                    format!("apis/{}/{}", remote.group, remote.version),
                    self.probes.openapi_of(&remote),
                )
            })
            .collect();
        match remotes.is_empty() {
            true => openapi::index(snapshot),
            false => openapi::index_with(snapshot, &remotes),
        }
    }

    fn openapi(&self, path: &str, headers: &HeaderMap, query: &Query) -> Response<Body> {
        let snapshot = self.registry.snapshot();
        let document = if path.is_empty() {
            Some(self.openapi_index(&snapshot))
        } else {
            openapi::document(&snapshot, path)
        };
        let Some(document) = document else {
            // No words and no media type, as upstream.
            let mut nothing = Response::new(Body::Full(Bytes::new()));
            *nothing.status_mut() = http::StatusCode::NOT_FOUND;
            return nothing;
        };
        // The index has one form.
        let form = match path {
            "" => Some(openapi::Form::Json),
            _ => openapi::Form::accepted(headers),
        };
        let Some(form) = form else {
            return self.not_acceptable(query);
        };
        let hash = query.get("hash");
        if !path.is_empty() && !hash.is_empty() && hash != document.hash {
            let mut reply = Reply::new(301, Content::Text("application/json", Bytes::new()));
            reply.headers.push((LOCATION, openapi::location(path, &document)));
            return self.respond(query, reply);
        }
        let etag = document.etag();
        // Upstream sets no media type for the index, so that Go guesses it from its first bytes.
        let type_ = if path.is_empty() {
            "text/plain; charset=utf-8"
        } else {
            form.media_type()
        };
        let mut reply = if matches_etag(headers, &etag) {
            Reply::new(304, Content::Text(type_, Bytes::new()))
        } else {
            Reply::new(200, Content::Text(type_, form.write(&document)))
        };
        reply.headers = vec![(ETAG, etag), (VARY, "Accept".to_owned())];
        let mut response = self.respond(query, reply);
        if !path.is_empty() && !hash.is_empty() {
            // The hash names this very text, so a client may keep it.
            let keep: (HeaderName, &str) = (CACHE_CONTROL, "public, immutable");
            if let Ok(value) = http::HeaderValue::from_str(keep.1) {
                response.headers_mut().insert(keep.0, value);
            }
        }
        response
    }
}

/// The core group's versions with where they are served: the address that the client has used, which is one that it can
/// reach.
fn with_address(document: &Value, uri: &http::Uri, headers: &HeaderMap) -> Value {
    let mut document = document.clone();
    let host = uri
        .authority()
        .map(http::uri::Authority::as_str)
        .or_else(|| headers.get(HOST).and_then(|host| host.to_str().ok()));
    if let (Some(host), "APIVersions") = (host, document["kind"].as_str().unwrap_or("")) {
        document["serverAddressByClientCIDRs"] = json!([{"clientCIDR": "0.0.0.0/0", "serverAddress": host}]);
    }
    document
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
