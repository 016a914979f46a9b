//! The formats of strings that apiextensions checks. Others mean nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use regex::Regex;

/// The formats with a meaning for a value, of strings and of numbers.
const KNOWN: &[&str] = &[
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "date-time",
    "datetime",
    "double",
    "duration",
    "email",
    "float",
    "hexcolor",
    "hostname",
    "int32",
    "int64",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8s-long-name",
    "k8s-short-name",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uint32",
    "uint64",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

/// Whether the format means anything.
pub fn is_known(format: &str) -> bool {
    KNOWN.binary_search(&format).is_ok()
}

/// Whether a string has the format. Formats of numbers and unknown ones allow every string.
pub fn is_valid(format: &str, text: &str) -> bool {
    match format {
        "bsonobjectid" => text.len() == 24 && is_hex(text),
        "byte" => is_base64(text),
        "cidr" => is_cidr(text),
        "creditcard" => is_credit_card(text),
        "date" => is_date(text),
        "date-time" | "datetime" => is_date_time(text),
        "duration" => is_duration(text),
        "email" => is_email(text),
        "hexcolor" => is_hex_color(text),
        "hostname" => is_hostname(text),
        // Zeros in front are nothing.
        "ipv4" => {
            let parts = text.split('.').map(|part| part.trim_start_matches('0'));
            let parts: Vec<&str> = parts.map(|part| if part.is_empty() { "0" } else { part }).collect();
            !text.split('.').any(str::is_empty) && parts.join(".").parse::<Ipv4Addr>().is_ok()
        }
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "k8s-long-name" => text.len() <= 253 && text.split('.').all(is_label),
        "k8s-short-name" => is_label(text),
        "mac" => is_mac(text),
        "rgbcolor" => is_rgb_color(text),
        "ssn" => matches(&SSN, text),
        "uri" => is_uri(text),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some('3')),
        "uuid4" => is_uuid(text, Some('4')),
        "uuid5" => is_uuid(text, Some('5')),
        _ => true,
    }
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the expressions of this file compile: its test uses each")
}

fn matches(pattern: &LazyLock<Regex>, text: &str) -> bool {
    pattern.is_match(text)
}

static SSN: LazyLock<Regex> = LazyLock::new(|| regex(r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$"));
static CLOCK: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})$"));
static GO_DURATION: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^[+-]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$"));
static WORDS: LazyLock<Regex> = LazyLock::new(|| regex(r"([0-9]+)\s*([A-Za-zµ]+)"));

fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (1..=63).contains(&text.len())
        && text.bytes().all(|b| inner(b) || b == b'-')
        && text.bytes().next().is_some_and(inner)
        && text.bytes().last().is_some_and(inner)
}

/// Standard alphabet, with padding, not empty.
fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && text.len() - body.len() <= 2
        && body
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let max = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    !bits.is_empty()
        && bits.len() <= 3
        && bits.bytes().all(|b| b.is_ascii_digit())
        && bits.parse::<u32>().is_ok_and(|bits| bits <= max)
}

/// The digits of a text with spaces and dashes between them; none when there is anything else.
fn digits(text: &str) -> Option<Vec<u32>> {
    text.chars()
        .filter(|c| *c != ' ' && *c != '-')
        .map(|c| c.to_digit(10))
        .collect()
}

/// The check sum of Luhn over the lengths that cards have.
fn is_credit_card(text: &str) -> bool {
    let Some(digits) = digits(text).filter(|digits| (13..=19).contains(&digits.len())) else {
        return false;
    };
    let weigh = |(i, digit): (usize, &u32)| match digit * 2 {
        _ if i % 2 == 0 => *digit,
        doubled if doubled > 9 => doubled - 9,
        doubled => doubled,
    };
    digits.iter().rev().enumerate().map(weigh).sum::<u32>() % 10 == 0
}

fn is_isbn10(text: &str) -> bool {
    let text: String = text.chars().filter(|c| *c != ' ' && *c != '-').collect();
    let (Some(body), Some(last)) = (text.get(..9).and_then(digits), text.get(9..)) else {
        return false;
    };
    let last = match last {
        "X" | "x" => 10,
        digit if digit.len() == 1 => match digit.parse::<u32>() {
            Ok(digit) => digit,
            Err(_) => return false,
        },
        _ => return false,
    };
    body.len() == 9 && (body.iter().zip(1..).map(|(digit, weight)| digit * weight).sum::<u32>() + last * 10) % 11 == 0
}

fn is_isbn13(text: &str) -> bool {
    let Some(digits) = digits(text).filter(|digits| digits.len() == 13) else {
        return false;
    };
    digits
        .iter()
        .enumerate()
        .map(|(i, digit)| digit * if i % 2 == 0 { 1 } else { 3 })
        .sum::<u32>()
        % 10
        == 0
}

fn is_date(text: &str) -> bool {
    // Four, two and two digits: `jiff` would take more forms.
    text.len() == 10 && text.as_bytes().get(4) == Some(&b'-') && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let Some((date, clock)) = lower.split_once('t') else {
        return false;
    };
    is_date(date)
        && CLOCK
            .captures(clock)
            .is_some_and(|found| &found[1] <= "23" && &found[2] <= "59" && &found[3] <= "59")
}

/// Go's form (`1h30m`) or words (`2 weeks`).
fn is_duration(text: &str) -> bool {
    const UNITS: &[&[&str]] = &[
        &["ns", "nano"],
        &["us", "µs", "micro"],
        &["ms", "milli"],
        &["s", "sec"],
        &["m", "min"],
        &["h", "hr", "hour"],
        &["d", "day"],
        &["w", "week"],
    ];
    let is_unit = |unit: &str| {
        UNITS.iter().any(|names| {
            let longest = names[names.len() - 1];
            names.contains(&unit) || unit.starts_with(longest)
        })
    };
    matches(&GO_DURATION, text) || WORDS.captures_iter(text).any(|found| is_unit(&found[2].to_lowercase()))
}

/// An address, alone or as `Name <address>`.
fn is_email(text: &str) -> bool {
    let address = match text.split_once('<') {
        Some((_, rest)) => match rest.strip_suffix('>') {
            Some(address) => address,
            None => return false,
        },
        None => text.trim(),
    };
    let Some((local, domain)) = address.rsplit_once('@') else {
        return false;
    };
    let atom = |text: &str| {
        !text.is_empty()
            && text.split('.').all(|part| {
                !part.is_empty()
                    && part
                        .chars()
                        .all(|c| !c.is_whitespace() && !c.is_control() && !"()<>[]:;@\\,\"".contains(c))
            })
    };
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    (quoted || atom(local)) && atom(domain)
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && is_hex(digits)
}

fn is_rgb_color(text: &str) -> bool {
    let inside = text.strip_prefix("rgb(").and_then(|rest| rest.strip_suffix(')'));
    let Some(parts) = inside.map(|inside| inside.split(',').collect::<Vec<_>>()) else {
        return false;
    };
    parts.len() == 3
        && parts
            .iter()
            .all(|part| part.trim().parse::<u8>().is_ok() && !part.trim().starts_with('+'))
}

fn is_hostname(text: &str) -> bool {
    let inner = |c: char| c.is_alphanumeric();
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.chars().all(|c| inner(c) || c == '-')
            && label.chars().next().is_some_and(inner)
            && label.chars().last().is_some_and(inner)
    };
    // A domain ends with a name of letters, two at least.
    let top = |label: &str| label.chars().count() >= 2 && label.chars().all(char::is_alphabetic);
    let domain = text.rsplit_once('.').is_none_or(|(_, last)| top(last));
    text.len() <= 255 && text.split('.').all(label) && domain
}

fn is_mac(text: &str) -> bool {
    let separated = |separator: char, width: usize, counts: &[usize]| {
        let parts: Vec<_> = text.split(separator).collect();
        counts.contains(&parts.len()) && parts.iter().all(|part| part.len() == width && is_hex(part))
    };
    separated(':', 2, &[6, 8, 20]) || separated('-', 2, &[6, 8, 20]) || separated('.', 4, &[3, 4, 10])
}

/// Absolute, or a path from the root.
fn is_uri(text: &str) -> bool {
    let escapes = || {
        text.match_indices('%')
            .all(|(i, _)| text.get(i + 1..i + 3).is_some_and(is_hex))
    };
    let scheme = || {
        text.split_once(':').is_some_and(|(scheme, rest)| {
            scheme.bytes().next().is_some_and(|b| b.is_ascii_alphabetic())
                && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
                && !rest.is_empty()
        })
    };
    !text.is_empty()
        && !text.chars().any(|c| c.is_ascii_control() || c == ' ')
        && escapes()
        && (text.starts_with('/') || scheme())
}

fn is_uuid(text: &str, version: Option<char>) -> bool {
    let groups = if version.is_some() {
        text.matches('-').count() == 4
    } else {
        true
    };
    let mut plain = String::with_capacity(32);
    for (i, c) in text.char_indices() {
        // The dashes stand where they must; without a version each may be left out.
        if c == '-' && matches!(plain.len(), 8 | 12 | 16 | 20) && i > 0 && !text[..i].ends_with('-') {
            continue;
        }
        plain.push(c);
    }
    let at = |i: usize| plain.chars().nth(i);
    groups
        && plain.len() == 32
        && is_hex(&plain)
        && version.is_none_or(|version| at(12) == Some(version))
        && (!matches!(version, Some('4' | '5')) || at(16).is_some_and(|c| "89abAB".contains(c)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(format: &str, valid: &[&str], invalid: &[&str]) {
        assert!(is_known(format), "{format} is not in the list");
        for text in valid {
            assert!(is_valid(format, text), "{format}: {text:?} is valid");
        }
        for text in invalid {
            assert!(!is_valid(format, text), "{format}: {text:?} is not valid");
        }
    }

    #[test]
    fn formats() {
        check(
            "date-time",
            &["2026-01-02T03:04:05Z", "2026-01-02t03:04:05.6+02:00"],
            &[
                "yesterday",
                "2026-01-02",
                "2026-13-02T03:04:05Z",
                "2026-01-02T24:04:05Z",
                "2026-01-02T03:04:05",
            ],
        );
        check("date", &["2026-02-28"], &["2026-02-30", "2026-2-3", "20260228", ""]);
        check(
            "duration",
            &["1h30m", "0", "-1.5s", "2 weeks", "3 days"],
            &["", "1 fortnight", "h", "x"],
        );
        check("byte", &["YQ==", "YWI=", "YWJj"], &["", "*", "YQ", "YQ=", "===="]);
        check("ipv4", &["1.2.3.4"], &["1.2.3", "1.2.3.256", "::1", ""]);
        check("ipv6", &["::1", "fe80::1"], &["1.2.3.4", "::g", ""]);
        check(
            "cidr",
            &["10.0.0.0/8", "::/0"],
            &["10.0.0.0", "10.0.0.0/33", "x/8", "10.0.0.0/"],
        );
        check(
            "mac",
            &["00:11:22:33:44:55", "0011.2233.4455"],
            &["00:11:22:33:44", "00:11:22:33:44:5g"],
        );
        check(
            "uuid",
            &[
                "11111111-2222-3333-4444-555555555555",
                "11111111222233334444555555555555",
            ],
            &[
                "x",
                "11111111-2222-3333-4444-55555555555",
                "-1111111-2222-3333-4444-555555555555",
            ],
        );
        check(
            "uuid3",
            &["11111111-2222-3333-4444-555555555555"],
            &["11111111-2222-4333-4444-555555555555"],
        );
        check(
            "uuid4",
            &["11111111-2222-4333-8444-555555555555"],
            &["11111111-2222-4333-4444-555555555555"],
        );
        check(
            "uuid5",
            &["11111111-2222-5333-a444-555555555555"],
            &["11111111-2222-4333-8444-555555555555"],
        );
        check("uri", &["https://x.io/a?b=c", "/a", "urn:x"], &["", "a b", "x", "/%zz"]);
        check("email", &["a@b.c", "A <a@b.c>"], &["", "a", "@b", "a@", "a b@c"]);
        check("hostname", &["a", "a-b.example.com"], &["", "-a", "a..b", "a_b"]);
        check("hexcolor", &["#fff", "a0b1c2"], &["#ffff", "#ggg"]);
        check("rgbcolor", &["rgb(0,10,255)"], &["rgb(0,10,256)", "0,1,2"]);
        check("creditcard", &["4111 1111 1111 1111"], &["4111 1111 1111 1112", "1"]);
        check("isbn10", &["0-306-40615-2", "097522980X"], &["0-306-40615-3", "x"]);
        check("isbn13", &["978-0-306-40615-7"], &["978-0-306-40615-8"]);
        check("isbn", &["978-0-306-40615-7", "0-306-40615-2"], &["1"]);
        check("ssn", &["123-45-6789"], &["123-45-678"]);
        check("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f"]);
        check("k8s-short-name", &["a-b"], &["A", "a.b", ""]);
        check("k8s-long-name", &["a-b.c"], &["A", "a..b", ""]);
        check("password", &["", "x"], &[]);
        assert!(is_valid("unheard-of", "x") && !is_known("unheard-of"));
    }

    #[test]
    fn the_list_is_sorted_for_its_binary_search() {
        assert!(KNOWN.is_sorted());
    }
}
