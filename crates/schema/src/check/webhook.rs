//! Rules about how webhooks are reached: those of admission and those of conversion.

use std::collections::BTreeSet;

use super::{At, Errors};
use crate::names;
use kubewright_cel::value::opaque::url::Url;

/// Versions of a review that a webhook takes.
pub fn review_versions(errors: &mut Errors, at: &At<'_>) {
    let mut seen = BTreeSet::new();
    for version in at.items() {
        if seen.insert(version.text()) {
            errors.messages(&version, names::dns1035_label(version.text()));
        } else {
            errors.invalid(&version, "duplicate version");
        }
    }
    if !seen.contains("v1") && !seen.contains("v1beta1") {
        errors.invalid(at, "must include at least one of v1, v1beta1");
    }
}

/// Where a webhook is: a URL or a service.
pub fn client_config(errors: &mut Errors, at: &At<'_>) {
    let (url, service) = (at.key("url"), at.key("service"));
    match (url.present(), service.present()) {
        (true, false) => self::url(errors, &url),
        (false, true) => self::service(errors, &service),
        _ => errors.required(at, "exactly one of url or service is required"),
    }
}

fn url(errors: &mut Errors, at: &At<'_>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let url = match Url::parse(at.text()) {
        Ok(url) => url,
        Err(why) => return errors.required(at, &format!("url must be a valid URL: {why}{FORM}")),
    };
    if url.scheme() != "https" {
        let why = format!("'https' is the only allowed URL scheme{FORM}");
        errors.invalid_value(at, url.scheme(), why);
    }
    if url.host().is_empty() {
        errors.invalid_value(at, url.host(), format!("host must be specified{FORM}"));
    }
    if let Some(user) = url.user() {
        errors.invalid_value(at, user, "user information is not permitted in the URL");
    }
    if !url.fragment().is_empty() {
        errors.invalid_value(at, url.fragment(), "fragments are not permitted in the URL");
    }
    if !url.query().is_empty() {
        errors.invalid_value(at, url.query(), "query parameters are not permitted in the URL");
    }
}

fn service(errors: &mut Errors, at: &At<'_>) {
    // Upstream looks at the one and names the other.
    for (field, named) in [("name", "namespace"), ("namespace", "name")] {
        if at.text_of(field).is_empty() {
            errors.required(&at.key(named), "");
        }
    }
    let port = at.key("port");
    if port.int().is_some_and(|port| !(1..=65535).contains(&port)) {
        errors.invalid(&port, "port is not valid: must be between 1 and 65535, inclusive");
    }
    let path = at.key("path");
    if path.text().is_empty() || path.text() == "/" {
        return;
    }
    if path.text() == "//" {
        return errors.invalid(&path, "segment[0] may not be empty");
    }
    if !path.text().starts_with('/') {
        errors.invalid(&path, "must start with a '/'");
    }
    // The first character is skipped, even when it is not a slash.
    let inner: String = path.text().chars().skip(1).collect();
    for (index, segment) in inner.strip_suffix('/').unwrap_or(&inner).split('/').enumerate() {
        if segment.is_empty() {
            errors.invalid(&path, format!("segment[{index}] may not be empty"));
            continue;
        }
        for message in names::dns1123_subdomain(segment) {
            errors.invalid(&path, format!("segment[{index}]: {message}"));
        }
    }
}
