//! The flags of kube-apiserver 1.36 that this server does not have (`data/unserved-flags.txt`).
//!
//! Setups of real clusters set them. One that only tunes the original is accepted: its default says nothing, another
//! value is warned of. One without which the server would behave otherwise than it was asked to is refused, unless it
//! asks for the default.

use super::flags::{Flag, Given, same};

const FLAGS: &str = include_str!("../../data/unserved-flags.txt");

/// Those of which the original refuses negative values (`ServerRunOptions.Validate`).
const NOT_NEGATIVE: [&str; 6] = [
    "livez-grace-period",
    "max-mutating-requests-inflight",
    "max-requests-inflight",
    "min-request-timeout",
    "request-timeout",
    "shutdown-delay-duration",
];

/// A line of the table.
struct Row {
    flag: Flag,
    default: &'static str,
    is_refused: bool,
}

fn rows() -> impl Iterator<Item = Row> {
    let lines = FLAGS.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let mut words = line.splitn(5, ' ');
        let (name, value) = (words.next()?, words.next()?);
        let (default, how) = (words.next()?, words.next()?);
        Some(Row {
            flag: Flag {
                name,
                value: (value != "bool").then_some(value),
                usage: words.next()?,
            },
            default: if default == "-" { "" } else { default },
            is_refused: how == "refused",
        })
    })
}

/// The flag of this name.
pub(super) fn find(name: &str) -> Option<Flag> {
    rows().map(|row| row.flag).find(|flag| flag.name == name)
}

/// Looks at those that were given.
///
/// # Errors
/// The first that is refused.
pub(super) fn judge(given: &Given, warnings: &mut Vec<String>) -> Result<(), String> {
    for row in rows() {
        let Flag { name, usage, .. } = row.flag;
        let Some(value) = given.last(name).filter(|value| !same(&row.flag, value, row.default)) else {
            continue;
        };
        if NOT_NEGATIVE.contains(&name) && value.starts_with('-') {
            return Err(format!("--{name} can not be negative value"));
        }
        if row.is_refused {
            return Err(format!("--{name}={value} is not served by kubewright: {usage}"));
        }
        warnings.push(format!("--{name}={value} changes nothing: {usage}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{flags, names};
    use super::*;

    #[test]
    fn what_only_tunes_is_accepted_and_the_rest_is_refused() {
        #[track_caller]
        fn check(flag: &str, expected: Result<&[&str], &str>) {
            let given = flags::parse(names::APISERVER, find, &[flag.to_owned()]).unwrap();
            let mut warnings = Vec::new();
            let judged = judge(&given, &mut warnings).map(|()| warnings.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(judged.as_deref().map_err(String::as_str), expected, "{flag}");
        }
        check("--watch-cache", Ok(&[]));
        check("--watch-cache=T", Ok(&[]));
        check("--request-timeout=60s", Ok(&[]));
        check("--max-requests-inflight=0x190", Ok(&[]));
        check(
            "--watch-cache=false",
            Ok(&["--watch-cache=false changes nothing: the store of kubewright has no such part"]),
        );
        check(
            "--max-requests-inflight=0",
            Ok(&["--max-requests-inflight=0 changes nothing: no request waits for another here"]),
        );
        check(
            "--request-timeout=-1s",
            Err("--request-timeout can not be negative value"),
        );
        check("--oidc-username-claim=sub", Ok(&[]));
        check("--oidc-issuer-url=", Ok(&[]));
        check(
            "--oidc-issuer-url=https://a",
            Err(
                "--oidc-issuer-url=https://a is not served by kubewright: tokens of OpenID Connect are not authenticated",
            ),
        );
    }

    #[test]
    fn a_flag_is_served_or_in_the_table_and_has_a_reason() {
        let served: Vec<&str> = names::APISERVER
            .iter()
            .flat_map(|section| section.1.iter().map(|flag| flag.name))
            .collect();
        let mut count = 0;
        for row in rows() {
            count += 1;
            assert!(!served.contains(&row.flag.name), "{}", row.flag.name);
            assert!(!row.flag.usage.is_empty(), "{}", row.flag.name);
        }
        let lines = FLAGS.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(count, lines, "a line that cannot be read");
    }
}
