//! Content negotiation: in which form an answer is wanted, and in which form a body came.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};

use super::query::Query;
use crate::model::status::Status;

const ACCEPTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const STREAMS: &str = ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// The media type of a watch in protobuf.
pub(crate) const PROTOBUF_WATCH: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// How bytes are to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Yaml,
    /// Of built-in kinds only, and of metadata.
    Protobuf,
}

impl Format {
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Format::Json => "application/json",
            Format::Yaml => "application/yaml",
            Format::Protobuf => PROTOBUF,
        }
    }
}

/// How the bytes of a body are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Json,
    Yaml,
    /// Of built-in kinds only.
    Protobuf,
}

/// The form into which objects are transformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transform {
    None,
    /// A Table of `meta.k8s.io/v1` or `v1beta1`.
    Table(&'static str),
    /// PartialObjectMetadata of that version.
    Partial(&'static str),
    /// PartialObjectMetadataList of that version.
    PartialList(&'static str),
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) format: Format,
    pub(crate) transform: Transform,
    pub(crate) pretty: bool,
}

impl Output {
    /// Plain JSON, for errors before the negotiation and for nothing else.
    pub(crate) const JSON: Output = Output {
        format: Format::Json,
        transform: Transform::None,
        pretty: false,
    };
}

struct Clause<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Clause<'a> {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or("");
        let mut clause = Clause {
            media,
            parameters: Vec::new(),
            quality: 1.0,
        };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            if name.trim() == "q" {
                clause.quality = value.trim().parse().unwrap_or(0.0);
            } else {
                clause.parameters.push((name.trim(), value.trim()));
            }
        }
        clause
    }

    fn parameter(&self, name: &str) -> &str {
        self.parameters
            .iter()
            .find(|(key, _)| *key == name)
            .map_or("", |(_, value)| value)
    }

    /// The transformation that is asked for; `None` when it is not known.
    fn transform(&self) -> Option<Transform> {
        if !["", "watch"].contains(&self.parameter("stream")) {
            return None;
        }
        let version = match (self.parameter("g"), self.parameter("v")) {
            // The group and the version of nothing are not understood.
            (group, version) if self.parameter("as").is_empty() => {
                return (group.is_empty() && version.is_empty()).then_some(Transform::None);
            }
            ("meta.k8s.io", "v1") => "meta.k8s.io/v1",
            ("meta.k8s.io", "v1beta1") => "meta.k8s.io/v1beta1",
            _ => return None,
        };
        match self.parameter("as") {
            "Table" => Some(Transform::Table(version)),
            "PartialObjectMetadata" => Some(Transform::Partial(version)),
            "PartialObjectMetadataList" => Some(Transform::PartialList(version)),
            _ => None,
        }
    }
}

/// Reads `Accept`, best quality first. `streams`: whether the path may also be watched, which the text of the refusal
/// mentions.
pub(crate) fn output(headers: &HeaderMap, query: &Query, streams: bool) -> Result<Output, Status> {
    output_of(headers, query, streams, false)
}

/// The same for objects of a kind. `custom`: it is a custom resource, whose objects have no protobuf form.
pub(crate) fn output_of(headers: &HeaderMap, query: &Query, streams: bool, custom: bool) -> Result<Output, Status> {
    best_of(&accept(headers), is_pretty(headers, query), streams, custom)
}

/// The same without the clauses for a transformation (`as`) that is refused: the others count.
pub(crate) fn output_without(
    headers: &HeaderMap,
    query: &Query,
    streams: bool,
    is_refused: impl Fn(&str) -> bool,
) -> Result<Output, Status> {
    let text = accept(headers);
    let taken = text
        .split(',')
        .filter(|clause| !is_refused(Clause::parse(clause).parameter("as")));
    let taken: Vec<&str> = taken.collect();
    if taken.is_empty() {
        return Err(not_transformed());
    }
    best_of(&taken.join(","), is_pretty(headers, query), streams, false)
}

/// The best clause that can be served.
fn best_of(text: &str, pretty: bool, streams: bool, custom: bool) -> Result<Output, Status> {
    if text.trim().is_empty() {
        return Ok(Output { pretty, ..Output::JSON });
    }
    let mut clauses: Vec<Clause<'_>> = text.split(',').map(|clause| Clause::parse(clause.trim())).collect();
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    let mut known = false;
    for clause in &clauses {
        let format = match clause.media {
            "application/json" | "*/*" => Format::Json,
            "application/yaml" => Format::Yaml,
            PROTOBUF => Format::Protobuf,
            _ => continue,
        };
        known = true;
        // There are no streams of YAML.
        if format == Format::Yaml && clause.parameter("stream") == "watch" {
            continue;
        }
        if let Some(transform) = clause.transform() {
            let possible = match transform {
                // Its rows hold anything.
                Transform::Table(_) => format != Format::Protobuf,
                Transform::None => format != Format::Protobuf || !custom,
                Transform::Partial(_) | Transform::PartialList(_) => true,
            };
            if !possible {
                continue;
            }
            return Ok(Output {
                format,
                transform,
                pretty,
            });
        }
    }
    let streams = if streams { STREAMS } else { "" };
    // Paths of custom resources are not known to the router, which speaks first elsewhere.
    Err(if known || custom {
        not_transformed()
    } else {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {ACCEPTED}{streams}");
        Status::failure(406, "NotAcceptable", message).with_empty_details()
    })
}

/// The form of a failure: no transformation, and protobuf even where objects have none. A client that takes nothing of
/// that gets JSON for people (`WriteRawJSON`).
pub(crate) fn of_failure(headers: &HeaderMap, query: &Query) -> Output {
    plain(headers, query).unwrap_or(Output {
        pretty: true,
        ..Output::JSON
    })
}

/// Reads `Accept` for a document that is never transformed.
pub(crate) fn plain(headers: &HeaderMap, query: &Query) -> Result<Output, Status> {
    output_without(headers, query, false, |kind| !kind.is_empty())
}

/// Whether a document of this media type alone may be the answer; a family of types such as `application/*` is not
/// understood.
pub(crate) fn accepts_only(headers: &HeaderMap, media: &str) -> bool {
    let text = accept(headers);
    let mut clauses = text.split(',').map(|clause| Clause::parse(clause.trim()));
    text.trim().is_empty() || clauses.any(|clause| clause.media == media || clause.media == "*/*")
}

/// Whether a document of this media type alone may be the answer.
pub(crate) fn accepts(headers: &HeaderMap, media: &str) -> bool {
    let text = accept(headers);
    let family = media.split('/').next().unwrap_or("");
    text.trim().is_empty()
        || text
            .split(',')
            .map(|clause| Clause::parse(clause.trim()))
            .any(|clause| {
                clause.media == media || clause.media == "*/*" || clause.media.strip_suffix("/*") == Some(family)
            })
}

/// The media type that fits the best clause, of several fitting ones the first; none when no clause is fitted. A family
/// of types such as `application/*` is fitted by its members, and comes after named types.
pub(crate) fn preferred<'a>(headers: &HeaderMap, offered: &[&'a str]) -> Option<&'a str> {
    let text = accept(headers);
    let text = if text.trim().is_empty() { "*/*" } else { &text };
    let mut clauses: Vec<Clause<'_>> = text.split(',').map(|clause| Clause::parse(clause.trim())).collect();
    clauses.sort_by(|a, b| {
        let quality = b.quality.total_cmp(&a.quality);
        quality.then(a.media.contains('*').cmp(&b.media.contains('*')))
    });
    let fits = |clause: &Clause<'_>, media: &str| match clause.media.split_once('/') {
        Some(("*", "*")) => true,
        Some((family, "*")) => media.split('/').next() == Some(family),
        _ => clause.media == media || clause.media == "*",
    };
    let best = |clause: &Clause<'_>| offered.iter().find(|media| fits(clause, media)).copied();
    clauses.iter().find_map(best)
}

/// 406 for a form that this kind does not have.
pub(crate) fn not_transformed() -> Status {
    let message = format!("only the following media types are accepted: {ACCEPTED}");
    Status::failure(406, "NotAcceptable", message)
}

/// The `Accept` header, several ones joined.
pub(crate) fn accept(headers: &HeaderMap) -> Cow<'_, str> {
    let mut values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let first = Cow::Borrowed(values.next().unwrap_or_default());
    values.fold(first, |joined, value| Cow::Owned([&*joined, ",", value].concat()))
}

/// Whether the answer is to be indented.
fn is_pretty(headers: &HeaderMap, query: &Query) -> bool {
    query.optional_flag("pretty").unwrap_or_else(|| is_a_person(headers))
}

/// Browsers and command lines get indented answers, as upstream does it.
fn is_a_person(headers: &HeaderMap) -> bool {
    let agent = headers
        .get(USER_AGENT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("");
    ["curl", "Wget", "Mozilla/5.0"]
        .iter()
        .any(|prefix| agent.starts_with(prefix))
}

/// The text of `Content-Type`; empty when there is none that can be read.
fn content_type_text(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE);
    value.and_then(|value| value.to_str().ok()).unwrap_or("")
}

/// The media type of a body without its parameters; JSON when absent.
pub(crate) fn content_type(headers: &HeaderMap) -> String {
    let media = content_type_text(headers)
        .split(';')
        .next()
        .unwrap_or("")
        .trim()
        .to_ascii_lowercase();
    if media.is_empty() {
        "application/json".to_owned()
    } else {
        media
    }
}

/// Whether each parameter of a `Content-Type` has a value, which is what Go asks of them.
fn has_parameters(headers: &HeaderMap) -> bool {
    let text = content_type_text(headers);
    let mut parameters = text.split(';').skip(1).map(str::trim);
    let last_may_be_empty = text.trim_end().ends_with(';');
    parameters.all(|parameter| parameter.contains('=') || (parameter.is_empty() && last_may_be_empty))
}

/// The format of the body of a POST, PUT or DELETE.
pub(crate) fn input(headers: &HeaderMap) -> Result<Input, Status> {
    if !has_parameters(headers) {
        return Err(Status::unsupported_media_type(ACCEPTED));
    }
    match content_type(headers).as_str() {
        "application/json" => Ok(Input::Json),
        "application/yaml" => Ok(Input::Yaml),
        PROTOBUF => Ok(Input::Protobuf),
        _ => Err(Status::unsupported_media_type(ACCEPTED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(accept: &str, want: Result<(Format, Transform), &str>) {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().expect("a header"));
        let got = output(&headers, &Query::default(), false);
        match (got, want) {
            (Ok(got), Ok(want)) => assert_eq!((got.format, got.transform), want, "{accept}"),
            (Err(got), Err(want)) => assert_eq!(got.message, want, "{accept}"),
            (got, want) => panic!("{accept}: {got:?}, not {want:?}"),
        }
    }

    #[test]
    fn accept_headers() {
        let json = Ok((Format::Json, Transform::None));
        check("", json);
        check("*/*", json);
        let protobuf = Ok((Format::Protobuf, Transform::None));
        check("application/vnd.kubernetes.protobuf,application/json", protobuf);
        check("application/vnd.kubernetes.protobuf", protobuf);
        check("application/vnd.kubernetes.protobuf;stream=watch", protobuf);
        check(
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            Ok((Format::Protobuf, Transform::Partial("meta.k8s.io/v1"))),
        );
        check(
            "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json",
            json,
        );
        check("application/yaml;q=0.5,application/json;q=0.9", json);
        check("application/yaml", Ok((Format::Yaml, Transform::None)));
        check(
            "application/json;stream=other,application/yaml",
            Ok((Format::Yaml, Transform::None)),
        );
        let table = Ok((Format::Json, Transform::Table("meta.k8s.io/v1")));
        check(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            table,
        );
        check(
            "application/json;as=PartialObjectMetadata;v=v9;g=meta.k8s.io,application/json",
            json,
        );
        check(
            "application/json;as=PartialObjectMetadata;v=v9;g=meta.k8s.io",
            Err(
                "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf",
            ),
        );
        check(
            "application/*",
            Err(
                "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf",
            ),
        );
    }

    #[test]
    fn the_best_of_what_is_offered() {
        #[track_caller]
        fn check(accept: &str, want: Option<&str>) {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().expect("a header"));
            assert_eq!(
                preferred(&headers, &["application/json", "application/x@1"]),
                want,
                "{accept}"
            );
        }
        check("", Some("application/json"));
        check("*/*", Some("application/json"));
        check("*", Some("application/json"));
        check("application/*", Some("application/json"));
        check("application/x@1", Some("application/x@1"));
        check("application/json;q=0.5,application/x@1", Some("application/x@1"));
        check("*/*,application/x@1", Some("application/x@1"));
        check("text/html,application/json;as=Table", Some("application/json"));
        check("text/*", None);
        check("application/yaml", None);
        check("nonsense", None);
        assert_eq!(preferred(&HeaderMap::new(), &["a/b"]), Some("a/b"));
    }

    #[test]
    fn failures_are_never_transformed() {
        let check = |accept: &str, want: Format| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().expect("a header"));
            assert_eq!(of_failure(&headers, &Query::default()).format, want, "{accept}");
        };
        let partial = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        check(partial, Format::Json);
        check(&format!("{partial},application/yaml"), Format::Yaml);
        check(PROTOBUF, Format::Protobuf);
        check("text/html", Format::Json);
        check("application/yaml;alias=x", Format::Yaml);
    }

    #[test]
    fn custom_resources_have_no_protobuf_form() {
        let check = |accept: &str, want: Option<Format>| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().expect("a header"));
            let got = output_of(&headers, &Query::default(), false, true).ok();
            assert_eq!(got.map(|output| output.format), want, "{accept}");
        };
        check("application/vnd.kubernetes.protobuf", None);
        check(
            "application/vnd.kubernetes.protobuf,application/json",
            Some(Format::Json),
        );
        check(
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            Some(Format::Protobuf),
        );
    }

    #[test]
    fn bodies() {
        let mut headers = HeaderMap::new();
        assert_eq!(input(&headers).expect("JSON is the default"), Input::Json);
        for (text, code) in [
            ("application/json; charset=utf-8", 0),
            ("application/yaml", 0),
            ("text/plain", 415),
            ("nonsense", 415),
            (PROTOBUF, 0),
        ] {
            headers.insert(CONTENT_TYPE, text.parse().expect("a header"));
            assert_eq!(input(&headers).map_or_else(|status| status.code, |_| 0), code, "{text}");
        }
    }
}
