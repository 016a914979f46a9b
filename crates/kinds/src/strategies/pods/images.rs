//! Names of images, as far as the API server reads them: whether it is one, and its tag (`parsers.ParseImageName`).

/// The path of an image's name, with that of Docker's own images, is at most so long.
const MAX_PATH: usize = 255;

/// The tag of an image: `latest` when it has neither a tag nor a digest, none when it has only a digest or is no image
/// name.
pub(super) fn tag_of(image: &str) -> Option<&str> {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let start = name.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match name[start..].split_once(':') {
        Some((base, tag)) => (&name[..start + base.len()], Some(tag)),
        None => (name, None),
    };
    if !is_name(name) || !tag.is_none_or(is_tag) || !digest.is_none_or(is_digest) {
        return None;
    }
    tag.or(if digest.is_some() { None } else { Some("latest") })
}

/// A registry, if the first part looks like one, and the path there.
fn is_name(name: &str) -> bool {
    let is_domain = |first: &str| {
        first.contains(['.', ':']) || first == "localhost" || first.bytes().any(|byte| byte.is_ascii_uppercase())
    };
    let (domain, path) = match name.split_once('/') {
        Some((first, path)) if is_domain(first) => (Some(first), path),
        _ => (None, name),
    };
    let own = if domain.is_none() && !path.contains('/') {
        "library/".len()
    } else {
        0
    };
    let is_identifier = name.len() == 64
        && name
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    !is_identifier
        && path.len() + own <= MAX_PATH
        && domain.is_none_or(is_registry)
        && path.split('/').all(is_part_of_path)
}

fn is_registry(domain: &str) -> bool {
    let (host, port) = match domain.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (domain, None),
    };
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let v6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match v6 {
        Some(v6) => v6.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':'),
        None => host.split('.').all(is_label),
    };
    is_host && port.is_none_or(is_port)
}

/// Words of small letters and digits; between two of them a dot, one or two underscores, or dashes.
fn is_part_of_path(part: &str) -> bool {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let edges = part.starts_with(word) && part.ends_with(word);
    let mut between = part.split(word).filter(|gap| !gap.is_empty());
    edges && between.all(|gap| matches!(gap, "." | "_" | "__") || gap.bytes().all(|byte| byte == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = tag.as_bytes();
    (1..=128).contains(&bytes.len())
        && word(bytes[0])
        && bytes.iter().all(|byte| word(*byte) || matches!(byte, b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, sum)) = digest.split_once(':') else {
        return false;
    };
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphabetic()) && word.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    algorithm.split(['-', '_', '+', '.']).all(is_word)
        && sum.len() >= 32
        && sum.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags() {
        const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        let check = |image: &str, tag: Option<&str>| assert_eq!(tag_of(image), tag, "{image}");
        for image in [
            "nginx",
            "a/b",
            "localhost:5000/nginx",
            "R.io/a",
            "[::1]:5000/a",
            "a.b-c/d__e/f---g/h.i",
        ] {
            check(image, Some("latest"));
            check(&format!("{image}:1.2"), Some("1.2"));
            check(&format!("{image}@{DIGEST}"), None);
            check(&format!("{image}:latest@{DIGEST}"), Some("latest"));
        }
        let long = "x".repeat(MAX_PATH);
        let hex = "0123456789abcdef".repeat(4);
        for none in [
            "",
            "-x",
            "*",
            "../x",
            "a..b",
            "\u{fc}n\u{ef}",
            "Bad",
            " pad ",
            "a:",
            "a:-b",
            "a@sha256:00",
            "a//b",
            &long,
            &hex,
        ] {
            check(none, None);
        }
    }
}
