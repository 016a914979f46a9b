//! The flags of the two programs: one that is served, with its line of the help, and one that is only known.
//!
//! Setups of real clusters set flags that this server does not have. One that only tunes the original is accepted: its
//! default says nothing, another value is warned of. One without which the server would behave otherwise than it was
//! asked to is refused, unless it asks for the default.

use super::flags::{Flag, Given, Section, same};

/// The flags of kube-apiserver.
pub(super) const APISERVER: Table = Table(include_str!("../../data/kube-apiserver-flags.txt"));
/// The flags of etcd.
pub(super) const ETCD: Table = Table(include_str!("../../data/etcd-flags.txt"));

/// The flags of a program, as in its file below `data`.
#[derive(Clone, Copy)]
pub(super) struct Table(&'static str);

/// A line of a table: a flag with its effect.
struct Row {
    heading: &'static str,
    flag: Flag,
    effect: &'static str,
}

impl Table {
    fn rows(self) -> impl Iterator<Item = Row> {
        let lines = self.0.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let mut heading = "";
        lines.filter_map(move |line| {
            if let Some(begun) = line.strip_prefix('[') {
                heading = begun.trim_end_matches(']');
                return None;
            }
            let mut words = line.splitn(4, ' ');
            let (name, value, effect) = (words.next()?, words.next()?, words.next()?);
            let flag = Flag {
                name,
                value: (value != "bool").then_some(value),
                usage: words.next()?,
            };
            Some(Row { heading, flag, effect })
        })
    }

    /// The flag of this name.
    pub(super) fn find(self, name: &str) -> Option<Flag> {
        self.rows().map(|row| row.flag).find(|flag| flag.name == name)
    }

    /// The flags that are served, under their headings.
    pub(super) fn served(self) -> Vec<Section> {
        let mut sections: Vec<Section> = Vec::new();
        for Row { heading, flag, .. } in self.rows().filter(|row| row.effect == "served") {
            match sections.last_mut() {
                Some((last, flags)) if *last == heading => flags.push(flag),
                _ => sections.push((heading, vec![flag])),
            }
        }
        sections
    }

    /// Looks at the flags that were given and are not served.
    ///
    /// # Errors
    /// The first that is refused.
    pub(super) fn judge(self, given: &Given, warnings: &mut Vec<String>) -> Result<(), String> {
        for Row { flag, effect, .. } in self.rows() {
            let Some((effect, default)) = effect.split_once('=') else {
                continue;
            };
            let Flag { name, usage, .. } = flag;
            match given.last(name) {
                Some(value) if same(&flag, value, default) => {}
                Some(value) if effect == "refused" => {
                    return Err(format!("--{name}={value} is not served by kubewright: {usage}"));
                }
                Some(value) => warnings.push(format!("--{name}={value} changes nothing: {usage}")),
                None => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::flags;
    use super::*;

    #[test]
    fn what_only_tunes_is_accepted_and_the_rest_is_refused() {
        #[track_caller]
        fn check(flag: &str, expected: Result<&[&str], &str>) {
            let given = flags::parse(APISERVER, &[flag.to_owned()]).unwrap();
            let mut warnings = Vec::new();
            let judged = APISERVER.judge(&given, &mut warnings);
            let judged = judged.map(|()| warnings.iter().map(String::as_str).collect::<Vec<_>>());
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
        check("--max-requests-inflight=0", Ok(&[]));
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
    fn every_line_of_a_table_is_a_flag_with_an_effect_and_a_text() {
        for (table, served) in [(APISERVER, 47), (ETCD, 9)] {
            let rows: Vec<Row> = table.rows().collect();
            let is_flag = |line: &&str| !line.is_empty() && !line.starts_with(['#', '[']);
            assert_eq!(rows.len(), table.0.lines().filter(is_flag).count());
            let mut names: Vec<&str> = rows.iter().map(|row| row.flag.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), rows.len(), "a flag is in the table twice");
            for row in &rows {
                let effect = row.effect.split('=').next();
                assert!(
                    matches!(effect, Some("served" | "nothing" | "refused")),
                    "{}",
                    row.flag.name
                );
                assert!(!row.flag.usage.is_empty(), "{}", row.flag.name);
            }
            assert_eq!(
                table.served().iter().map(|(_, flags)| flags.len()).sum::<usize>(),
                served
            );
        }
    }
}
