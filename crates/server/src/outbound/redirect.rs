//! Where an answer sends a call instead, as Go's HTTP client follows it: which method, with the body or without, to
//! which URL.
//!
//! Not here: sending; how often a call may be sent on.

use http::uri::InvalidUri;
use http::{Method, Uri};

/// A step of a call: the next request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) method: Method,
    pub(super) url: Uri,
    /// Where the step comes from, unless it leaves HTTPS.
    pub(super) referer: Option<String>,
}

impl Step {
    /// The next step after an answer with this status and `Location`; none when it is not a redirect.
    ///
    /// # Errors
    /// A `Location` that is none, in the words of Go's client.
    pub(super) fn next(&self, code: u16, location: Option<&str>) -> Result<Option<Step>, String> {
        let Some(location) = location.filter(|location| !location.is_empty()) else {
            return Ok(None);
        };
        let method = match code {
            301..=303 => Method::GET,
            307 | 308 => self.method.clone(),
            _ => return Ok(None),
        };
        let unfit = |why: String| format!("failed to parse Location header {location:?}: parse {location:?}: {why}");
        let url: Uri = resolve(&self.url, location).parse().map_err(|error: InvalidUri| {
            unfit(match location.contains('[') && !location.contains(']') {
                true => "missing ']' in host".to_owned(),
                false => error.to_string(),
            })
        })?;
        let authority = url.authority().map_or("", |authority| authority.as_str());
        let port = authority.rsplit(']').next().and_then(|host| host.rsplit_once(':'));
        if let Some((_, port)) = port.filter(|(_, port)| !port.is_empty() && url.port_u16().is_none()) {
            return Err(unfit(format!("invalid port {:?} after host", format!(":{port}"))));
        }
        let leaves = self.url.scheme_str() == Some("https") && url.scheme_str() == Some("http");
        Ok(Some(Step {
            method,
            referer: (!leaves).then(|| self.url.to_string()),
            url,
        }))
    }

    /// Whether the body goes along.
    pub(super) fn has_body(&self) -> bool {
        self.method == Method::POST
    }
}

/// The URL that a reference means, seen from another (RFC 3986, 5.2).
fn resolve(base: &Uri, reference: &str) -> String {
    let reference = reference.split('#').next().unwrap_or("");
    if reference.contains("://") {
        return reference.to_owned();
    }
    let scheme = base.scheme_str().unwrap_or("https");
    if let Some(rest) = reference.strip_prefix("//") {
        return format!("{scheme}://{rest}");
    }
    let host = base.authority().map_or("", |authority| authority.as_str());
    let (path, query) = match reference.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (reference, String::new()),
    };
    let path = match path {
        "" => base.path().to_owned(),
        path if path.starts_with('/') => without_dots(path),
        path => {
            let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            without_dots(&format!("{folder}/{path}"))
        }
    };
    format!("{scheme}://{host}{path}{query}")
}

/// A path without `.` and `..`.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/').skip(1) {
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    let ends_open = path.ends_with("/.") || path.ends_with("/..");
    format!("/{}{}", kept.join("/"), if ends_open { "/" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_answers_lead() {
        let from = Step {
            method: Method::POST,
            url: "https://a.test:8/x/y?timeout=5s".parse().expect("a URL"),
            referer: None,
        };
        let check = |code: u16, location: &str, expected: &str| {
            let said = match from.next(code, Some(location)) {
                Ok(None) => "stays".to_owned(),
                Ok(Some(step)) => {
                    let referer = if step.referer.is_some() { "" } else { " unseen" };
                    format!("{} {}{referer}", step.method, step.url)
                }
                Err(why) => why,
            };
            assert_eq!(said, expected, "{code} {location}");
        };
        check(307, "/z", "POST https://a.test:8/z");
        check(308, "z", "POST https://a.test:8/x/z");
        check(302, "../z?a=b#c", "GET https://a.test:8/z?a=b");
        check(301, "//b.test/z", "GET https://b.test/z");
        check(303, "?a=b", "GET https://a.test:8/x/y?a=b");
        check(307, "http://b.test/z", "POST http://b.test/z unseen");
        check(307, "", "stays");
        check(304, "/z", "stays");
        check(300, "/z", "stays");
        check(
            307,
            "https://b.test:x/",
            "failed to parse Location header \"https://b.test:x/\": parse \"https://b.test:x/\": invalid port \":x\" after host",
        );
        check(
            307,
            "http://[::1",
            "failed to parse Location header \"http://[::1\": parse \"http://[::1\": missing ']' in host",
        );
    }
}
