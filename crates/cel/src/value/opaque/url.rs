//! URLs, read as Go's `net/url` reads them: `url('https://example.com:80/a').getHostname()`.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::Called;
use super::Opaque;
use crate::error::Error;
use crate::value::{Key, Map, Text, Value};
use crate::work::{ITEM, made};
use kubewright_values::error::quote;

/// The parts of a URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    opaque: String,
    user: Option<String>,
    host: String,
    /// As it was written.
    path: String,
    query: String,
    fragment: String,
}

pub(super) fn call<'a>(overload: &str, args: &[Value<'a>]) -> Called<'a> {
    let text = |text: &str| Ok(Value::string(text));
    Some(match (overload, args) {
        ("string_to_url", [Value::String(text)]) => check_request_uri(text)
            .and_then(|()| Url::parse(text))
            .map(|url| Value::Opaque(Opaque::Url(Rc::new(url))))
            .map_err(|error| Error::new(format!("URL parse error during conversion from string: {error}"))),
        ("is_url_string", [Value::String(text)]) => Ok(Value::Bool(read(text, true).is_ok())),
        (_, [Value::Opaque(Opaque::Url(url))]) => match overload {
            "url_get_scheme" => text(&url.scheme),
            "url_get_host" => text(&url.host),
            "url_get_hostname" => text(url.split_host().0),
            "url_get_port" => text(url.split_host().1),
            "url_get_escaped_path" => text(&url.escaped_path()),
            "url_get_query" => query(&url.query),
            _ => return None,
        },
        _ => return None,
    })
}

/// `url.ParseRequestURI`: an absolute URL or an absolute path, without a fragment.
pub(super) fn check_request_uri(text: &str) -> Result<(), String> {
    read(text, true)
        .map(drop)
        .map_err(|error| format!("parse {}: {error}", quote(text)))
}

impl Url {
    /// Reads a URL as `url.Parse` does.
    ///
    /// # Errors
    /// Go's error about a text that is no URL.
    ///
    /// ```
    /// use kubewright_cel::value::opaque::url::Url;
    /// assert_eq!(Url::parse("https://a.example:8443/b?c#d").unwrap().host(), "a.example:8443");
    /// assert_eq!(Url::parse("https://a b/").unwrap_err(), "parse \"https://a b/\": invalid character \" \" in host name");
    /// ```
    pub fn parse(text: &str) -> Result<Self, String> {
        let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
        let url = read(rest, false).map_err(|error| format!("parse {}: {error}", quote(rest)))?;
        check_escapes(fragment).map_err(|error| format!("parse {}: {error}", quote(text)))?;
        Ok(Self {
            fragment: fragment.to_owned(),
            ..url
        })
    }

    /// The scheme in lower case; empty when there is none.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Host and port; empty when there is none.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The part before the `@`, if there is one.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The part behind the `?`.
    pub fn query(&self) -> &str {
        &self.query
    }

    /// The part behind the `#`.
    pub fn fragment(&self) -> &str {
        &self.fragment
    }

    /// Host name without brackets, and port.
    fn split_host(&self) -> (&str, &str) {
        let bracketed = |host: &str| !host.starts_with('[') || host.ends_with(']');
        let (host, port) = match self.host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) && bracketed(host) => (host, port),
            _ => (self.host.as_str(), ""),
        };
        let name = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        (name.unwrap_or(host), port)
    }

    /// The path as it was written, if Go finds that a valid encoding, else encoded anew.
    fn escaped_path(&self) -> String {
        let valid = |b: u8| b.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*[]%".contains(&b);
        if self.path.bytes().all(valid) {
            return self.path.clone();
        }
        let mut escaped = String::with_capacity(self.path.len());
        let bytes = decode(&self.path);
        for byte in bytes {
            if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte) {
                escaped.push(char::from(byte));
            } else {
                escaped.push_str(&format!("%{byte:02X}"));
            }
        }
        escaped
    }
}

/// The scheme with the rest, or the whole as a rest.
fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".into()),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => return Ok(("", text)),
        }
    }
    Ok(("", text))
}

fn read(text: &str, via_request: bool) -> Result<Url, String> {
    if text.bytes().any(|b| b < b' ' || b == 0x7f) {
        return Err("net/url: invalid control character in URL".into());
    }
    if text.is_empty() && via_request {
        return Err("empty url".into());
    }
    let mut url = Url::default();
    if text == "*" {
        url.path = "*".into();
        return Ok(url);
    }
    let (scheme, rest) = scheme(text)?;
    url.scheme = scheme.to_ascii_lowercase();
    let (mut rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    url.query = query.to_owned();
    if !rest.starts_with('/') {
        if !url.scheme.is_empty() {
            url.opaque = rest.to_owned();
            return Ok(url);
        }
        if via_request {
            return Err("invalid URI for request".into());
        }
        if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
            return Err("first path segment in URL cannot contain colon".into());
        }
    }
    let has_authority = !url.scheme.is_empty() || (!via_request && !rest.starts_with("///"));
    if has_authority && let Some(after) = rest.strip_prefix("//") {
        let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
        (url.user, url.host) = self::authority(authority)?;
        rest = path;
    }
    check_escapes(rest)?;
    rest.clone_into(&mut url.path);
    Ok(url)
}

/// Every `%` begins two hexadecimal digits.
fn check_escapes(text: &str) -> Result<(), String> {
    for (at, _) in text.match_indices('%') {
        let digits = text.as_bytes().get(at + 1..at + 3);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            let escape: String = text[at..].chars().take(3).collect();
            return Err(format!("invalid URL escape {}", quote(&escape)));
        }
    }
    Ok(())
}

fn authority(text: &str) -> Result<(Option<String>, String), String> {
    let (user, host) = match text.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, text),
    };
    check_host(host)?;
    if let Some(user) = user {
        let valid = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
        if !user.chars().all(valid) {
            return Err("net/url: invalid userinfo".into());
        }
        check_escapes(user)?;
    }
    Ok((
        user.map(str::to_owned),
        String::from_utf8_lossy(&decode(host)).into_owned(),
    ))
}

fn check_host(host: &str) -> Result<(), String> {
    let port = if host.starts_with('[') {
        let end = host.rfind(']').ok_or("missing ']' in host")?;
        &host[end + 1..]
    } else {
        host.rfind(':').map_or("", |at| &host[at..])
    };
    let valid_port = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
    if !valid_port {
        return Err(format!("invalid port {} after host", quote(port)));
    }
    check_escapes(host)?;
    for (at, c) in host.char_indices() {
        if c == '%' {
            let escape = &host[at..at + 3];
            // Only characters beyond ASCII may be encoded in a host.
            if escape.as_bytes()[1] < b'8' && escape != "%25" {
                return Err(format!("invalid URL escape {}", quote(escape)));
            }
        } else if c.is_ascii() && !(c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"".contains(c)) {
            return Err(format!("invalid character {} in host name", quote(&c.to_string())));
        }
    }
    Ok(())
}

/// Replaces each `%xx` by its byte.
fn decode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.map(|digits| u8::from_str_radix(digits, 16)) {
            Some(Ok(decoded)) if byte == b'%' => {
                bytes.push(decoded);
                rest = &after[2..];
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    bytes
}

/// The parameters of a query, each with its values in order. Malformed pairs are left out.
fn query<'a>(text: &str) -> Result<Value<'a>, Error> {
    /// A key, a value, the list of values and its share of a node.
    const PARAMETER: usize = 4 * ITEM;
    let mut parameters: BTreeMap<String, Vec<Value<'a>>> = BTreeMap::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        made(PARAMETER + pair.len());
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if check_escapes(key).is_err() || check_escapes(value).is_err() {
            continue;
        }
        parameters
            .entry(plain(key))
            .or_default()
            .push(Value::string(plain(value)));
    }
    let entries = parameters
        .into_iter()
        .map(|(key, values)| (Key::String(Text::from(key)), Value::list(values)));
    Ok(Value::Map(Map::new(entries.collect())))
}

/// A key or a value as it was before it was written into a query.
fn plain(text: &str) -> String {
    if !text.contains(['+', '%']) {
        return text.to_owned();
    }
    String::from_utf8_lossy(&decode(&text.replace('+', " "))).into_owned()
}
