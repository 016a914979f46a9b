//! The image of the operator, said for one rendering.

use kubewright_schema::decode;
use serde_json::{Value, json};

use crate::codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::plan::{Files, Plan};

const FILE: &str = "config/manager/kustomization.yaml";

/// Lets the operator's container have `image` (`registry:5000/guestbook:v1`, or with a digest), as `kustomize edit set
/// image controller=…` would; the plan is for rendering from and not to be written, so that no file of the project
/// changes.
///
/// # Errors
/// When the image is no reference, or `config/manager/kustomization.yaml` cannot be read.
pub fn set_image(image: &str, plan: &mut Plan<'_>) -> Result<(), Diagnostic> {
    let broken = |why: String| {
        Diagnostic::new(codes::config::KUSTOMIZATION, "cannot set the image of the operator")
            .at(Place::file(FILE).field("images"))
            .because(why)
    };
    let Some((name, tag, digest)) = split_image(image).filter(|_| is_reference(image)) else {
        return Err(Diagnostic::new(
            codes::config::KUSTOMIZATION,
            format!("cannot use {image:?} as the image of the operator"),
        )
        .because("it is not the name of an image")
        .fix("write it as registry.example.com/guestbook:v1"));
    };
    let text = plan
        .read(FILE)?
        .ok_or_else(|| broken("there is no such file".to_owned()))?;
    let mut value = decode::yaml(text.as_bytes())
        .map_err(|why| broken(why.to_string()))?
        .value;
    let fields = value
        .as_object_mut()
        .ok_or_else(|| broken("the file is not a mapping".to_owned()))?;
    let images = fields.entry("images").or_insert(Value::Null);
    if images.is_null() {
        *images = json!([]);
    }
    let images = images
        .as_array_mut()
        .ok_or_else(|| broken("images is not a list".to_owned()))?;
    images.retain(|entry| entry["name"] != "controller");
    let mut entry = json!({"name": "controller", "newName": name});
    if let Some(tag) = tag {
        entry["newTag"] = tag.into();
    }
    if let Some(digest) = digest {
        entry["digest"] = digest.into();
    }
    images.push(entry);
    // JSON is YAML.
    plan.write(FILE, value.to_string())
}

/// Whether a registry takes the name: no `https://`, no quotes, a tag and a digest that can be.
pub(crate) fn is_reference(image: &str) -> bool {
    const LONGEST_TAG: usize = 128;
    const SHORTEST_DIGEST: usize = 32;
    let Some((name, tag, digest)) = split_image(image) else {
        return false;
    };
    let word = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_part = |part: &str| !part.is_empty() && part.chars().all(word);
    let (host, held) = match name.split_once('/') {
        Some((host, held)) if host.contains(['.', ':']) => (Some(host), held),
        _ => (None, name),
    };
    let is_address = |host: &str| is_part(host) || host.strip_prefix('[').is_some_and(|v6| v6.ends_with(']'));
    // The port follows the last colon; those of an IPv6 address stand in brackets.
    let is_host = |host: &str| match host.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => is_address(host) && port.parse::<u16>().is_ok(),
        _ => is_address(host),
    };
    let is_tag = |tag: &str| is_part(tag) && !tag.starts_with(['.', '-']) && tag.len() <= LONGEST_TAG;
    let is_digest = |digest: &str| {
        digest.split_once(':').is_some_and(|(algorithm, hash)| {
            is_part(algorithm) && hash.len() >= SHORTEST_DIGEST && hash.chars().all(|c| c.is_ascii_hexdigit())
        })
    };
    host.is_none_or(is_host) && held.split('/').all(is_part) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest)
}

/// Name, tag and digest of an image.
pub(crate) fn split_image(image: &str) -> Option<(&str, Option<&str>, Option<&str>)> {
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    // A colon before a slash belongs to the port of the registry.
    let (name, tag) = match rest.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (rest, None),
    };
    let fits = |text: &str| !text.is_empty() && !text.chars().any(|letter| letter.is_whitespace() || letter == '@');
    // A registry's host may be in capitals, the path behind it may not.
    let held = name
        .split_once('/')
        .filter(|(host, _)| host.contains(['.', ':']))
        .map_or(name, |(_, held)| held);
    let fits_name = fits(name) && !held.chars().any(char::is_uppercase);
    (fits_name && tag.is_none_or(fits) && digest.is_none_or(fits)).then_some((name, tag, digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_named_as_registries_name_them() {
        let digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        for image in [
            "controller:latest",
            "registry.example.com/guestbook:v1",
            "localhost:5000/a/b__c:1.0-rc.1",
            "[::1]:5000/guestbook",
            &format!("ghcr.io/o/guestbook:v1@{digest}"),
        ] {
            assert!(is_reference(image), "{image} is one");
        }
        for image in [
            "",
            "\"\"",
            "https://example.org/a",
            ":5000/a",
            "a//b",
            "a/B",
            "a:",
            "a:-1",
            "a:b@",
            "a@sha256:1",
            "a b",
            "host:port/a",
        ] {
            assert!(!is_reference(image), "{image} is none");
        }
    }
}
