//! Flags as Go's pflag reads them, and the help that lists them.
//!
//! `--name=value`, `--name value`, `-v 2`; a boolean stands alone or has its value behind `=`. A flag may come several
//! times: its reader decides which of its values count. The errors are pflag's.
//!
//! Invariant: a value that was read is one of its flag's type.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use kubewright_cluster::go_duration;

use super::table::Table;

/// A flag.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flag {
    pub(super) name: &'static str,
    /// The word for its value in the help; `None` for a boolean.
    pub(super) value: Option<&'static str>,
    pub(super) usage: &'static str,
}

/// Flags under one heading of the help.
pub(super) type Section = (&'static str, Vec<Flag>);

/// The given flags, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Given {
    values: BTreeMap<&'static str, Vec<String>>,
    pub(super) help: bool,
    pub(super) rest: Vec<String>,
}

impl Given {
    /// The last value of a flag.
    pub(super) fn last(&self, name: &str) -> Option<&str> {
        self.all(name).last().map(String::as_str)
    }

    /// All values of a flag.
    pub(super) fn all(&self, name: &str) -> &[String] {
        self.values.get(name).map_or(&[], Vec::as_slice)
    }

    /// The values of a flag that takes lists with commas.
    pub(super) fn list(&self, name: &str) -> Vec<&str> {
        let all = self.all(name).iter().flat_map(|one| one.split(','));
        all.map(str::trim).filter(|one| !one.is_empty()).collect()
    }

    /// A duration, if it was given. A negative one is none.
    pub(super) fn lasting(&self, name: &str) -> Option<Duration> {
        let nanoseconds = go_duration(self.last(name)?).ok()?;
        Some(Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0)))
    }

    /// A boolean, if it was given.
    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        self.last(name).and_then(truth)
    }
}

/// `strconv.ParseBool`.
pub(super) fn truth(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Whether both texts are the same value of a flag.
pub(super) fn same(flag: &Flag, one: &str, other: &str) -> bool {
    let equal = |read: fn(&str) -> Option<i64>| read(one).is_some() && read(one) == read(other);
    one == other
        || match flag.value {
            None => truth(one).is_some() && truth(one) == truth(other),
            Some("int") => equal(|text| integer(text).ok()),
            Some("duration") => equal(|text| go_duration(text).ok()),
            Some(_) => false,
        }
}

/// `strconv.ParseInt` with base 0, without the underscores that it lets stand between digits.
pub(super) fn integer(text: &str) -> Result<i64, String> {
    let wrong = |why: &str| format!("strconv.ParseInt: parsing {text:?}: {why}");
    let (sign, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) if text.starts_with('-') => ("-", digits),
        Some(digits) => ("", digits),
        None => ("", text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(wrong("invalid syntax"));
    }
    i64::from_str_radix(&format!("{sign}{digits}"), radix).map_err(|_| wrong("value out of range"))
}

fn invalid(flag: &str, value: &str, why: &str) -> String {
    format!("invalid argument {value:?} for \"{flag}\" flag: {why}")
}

/// The error of a value that is none of its flag's type.
fn judge(flag: &Flag, value: &str) -> Result<(), String> {
    match flag.value {
        None if truth(value).is_none() => Err(format!("strconv.ParseBool: parsing {value:?}: invalid syntax")),
        Some("int") => integer(value).map(drop),
        Some("duration") => go_duration(value).map(drop),
        Some("float" | "float32") if value.parse::<f64>().is_err() => {
            Err(format!("strconv.ParseFloat: parsing {value:?}: invalid syntax"))
        }
        Some("Level") if value.parse::<u32>().is_err() => {
            Err(format!("strconv.ParseUint: parsing {value:?}: invalid syntax"))
        }
        Some("ip") if value.trim().parse::<IpAddr>().is_err() => Err(format!("failed to parse IP: {value:?}")),
        _ => Ok(()),
    }
}

/// Reads the arguments of a program that has the flags of the table.
///
/// # Errors
/// In the words of pflag.
pub(super) fn parse(table: Table, arguments: &[String]) -> Result<Given, String> {
    parse_with(|name| table.find(name), arguments)
}

fn parse_with(find: impl Fn(&str) -> Option<Flag>, arguments: &[String]) -> Result<Given, String> {
    let mut given = Given::default();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            given.rest.extend(arguments.cloned());
            break;
        }
        let (name, value) = match argument.strip_prefix("--") {
            Some(long) => match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (long, None),
            },
            None if argument == "-h" => ("help", None),
            None => match argument.strip_prefix("-v") {
                Some("") => ("v", None),
                Some(value) => ("v", Some(value.trim_start_matches('=').to_owned())),
                None if argument.len() > 1 && argument.starts_with('-') => return Err(unknown_short(argument)),
                None => {
                    given.rest.push(argument.clone());
                    continue;
                }
            },
        };
        if name.is_empty() || name.starts_with('-') || name.starts_with('=') {
            return Err(format!("bad flag syntax: {argument}"));
        }
        if name == "help" {
            let value = value.as_deref().unwrap_or("true");
            let wrong = || format!("strconv.ParseBool: parsing {value:?}: invalid syntax");
            given.help |= truth(value).ok_or_else(|| invalid("-h, --help", value, &wrong()))?;
            continue;
        }
        let Some(flag) = find(name) else {
            return Err(format!("unknown flag: --{name}"));
        };
        let value = match (value, flag.value) {
            (Some(value), _) => value,
            (None, None) => "true".to_owned(),
            // `version` has a value when there is one behind `=`.
            (None, Some(_)) if name == "version" => "true".to_owned(),
            (None, Some(_)) => match arguments.next() {
                Some(value) => value.clone(),
                None if argument == "-v" => return Err("flag needs an argument: 'v' in -v".to_owned()),
                None => return Err(format!("flag needs an argument: --{name}")),
            },
        };
        let shown = if name == "v" { "-v, --v" } else { &format!("--{name}") };
        judge(&flag, &value).map_err(|why| invalid(shown, &value, &why))?;
        given.values.entry(flag.name).or_default().push(value);
    }
    Ok(given)
}

fn unknown_short(argument: &str) -> String {
    let letter = argument.chars().nth(1).unwrap_or('-');
    format!("unknown shorthand flag: '{letter}' in {argument}")
}

/// The flags as pflag lists them under their headings (`PrintSections` of component-base).
pub(super) fn help(intro: &str, usage: &str, sections: &[Section]) -> String {
    let mut text = format!("{intro}\n\nUsage:\n  {usage}\n");
    for (heading, flags) in sections {
        text.push_str(&format!("\n{heading} flags:\n\n"));
        let heads: Vec<String> = flags.iter().map(head).collect();
        let width = heads.iter().map(String::len).max().unwrap_or(0);
        for (flag, head) in flags.iter().zip(&heads) {
            text.push_str(&format!("{head:width$}   {}\n", flag.usage));
        }
    }
    text
}

fn head(flag: &Flag) -> String {
    let front = if flag.name == "v" { "  -v, " } else { "      " };
    match flag.value {
        None => format!("{front}--{}", flag.name),
        Some(value) => format!("{front}--{} {value}", flag.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn flag(name: &'static str, value: Option<&'static str>, usage: &'static str) -> Flag {
        Flag { name, value, usage }
    }

    const FLAGS: [Flag; 4] = [
        flag("port", Some("int"), "A port."),
        flag("names", Some("strings"), "Names."),
        flag("allow", None, "Allow it."),
        flag("v", Some("Level"), "How much to say."),
    ];

    fn read(arguments: &[&str]) -> Result<Given, String> {
        let arguments: Vec<String> = arguments.iter().map(|&one| one.to_owned()).collect();
        parse_with(|name| FLAGS.into_iter().find(|flag| flag.name == name), &arguments)
    }

    #[test]
    fn flags_are_read_as_pflag_reads_them() {
        #[track_caller]
        fn check(arguments: &[&str], name: &str, values: &[&str]) {
            assert_eq!(read(arguments).unwrap().all(name), values, "{arguments:?}");
        }
        check(&["--port=1"], "port", &["1"]);
        check(&["--port", "1", "--port=2"], "port", &["1", "2"]);
        check(&["--names="], "names", &[""]);
        check(&["--allow", "rest"], "allow", &["true"]);
        check(&["--allow=false"], "allow", &["false"]);
        check(&["-v", "2"], "v", &["2"]);
        check(&["-v=2", "-v3"], "v", &["2", "3"]);
        check(&["--v=4"], "v", &["4"]);
        check(&["--", "--port=1"], "port", &[]);
        assert_eq!(read(&["--allow", "rest"]).unwrap().rest, ["rest"]);
        assert!(read(&["--help"]).unwrap().help && !read(&["--help=false"]).unwrap().help);
        assert_eq!(
            read(&["--names=a,b, c", "--names=d"]).unwrap().list("names"),
            ["a", "b", "c", "d"]
        );
    }

    #[test]
    fn numbers_are_read_as_go_reads_them() {
        for (text, number) in [
            ("12", 12),
            ("-1", -1),
            ("+3", 3),
            ("0x1F", 31),
            ("0b11", 3),
            ("010", 8),
            ("0o17", 15),
            ("0", 0),
        ] {
            assert_eq!(integer(text), Ok(number), "{text}");
        }
        for text in ["", "-", "--1", "0x", "08", "1.5", "é"] {
            assert!(integer(text).is_err(), "{text}");
        }
    }

    #[test]
    fn mistakes_are_told_in_the_words_of_pflag() {
        #[track_caller]
        fn check(arguments: &[&str], expected: &str) {
            assert_eq!(read(arguments).unwrap_err(), expected);
        }
        check(&["--nonsense"], "unknown flag: --nonsense");
        check(&["--nonsense=1"], "unknown flag: --nonsense");
        check(&["-x"], "unknown shorthand flag: 'x' in -x");
        check(&["--port"], "flag needs an argument: --port");
        check(&["-v"], "flag needs an argument: 'v' in -v");
        check(
            &["-vx"],
            "invalid argument \"x\" for \"-v, --v\" flag: strconv.ParseUint: parsing \"x\": invalid syntax",
        );
        check(
            &["--help=x"],
            "invalid argument \"x\" for \"-h, --help\" flag: strconv.ParseBool: parsing \"x\": invalid syntax",
        );
        let not = |value: &str, why: &str| format!("invalid argument \"{value}\" for \"--port\" flag: {why}");
        check(
            &["--port=x"],
            &not("x", "strconv.ParseInt: parsing \"x\": invalid syntax"),
        );
        check(
            &["--port=9223372036854775808"],
            &not(
                "9223372036854775808",
                "strconv.ParseInt: parsing \"9223372036854775808\": value out of range",
            ),
        );
        check(&["--=1"], "bad flag syntax: --=1");
        check(
            &["--allow=maybe"],
            "invalid argument \"maybe\" for \"--allow\" flag: strconv.ParseBool: parsing \"maybe\": invalid syntax",
        );
    }

    #[test]
    fn the_help_has_a_line_for_each_flag() {
        assert_eq!(
            help("What it is.", "test [flags]", &[("Test", FLAGS.to_vec())]),
            "What it is.\n\nUsage:\n  test [flags]\n\nTest flags:\n\n      --port int        A port.\n      --names strings   Names.\n      --allow           Allow it.\n  -v, --v Level         How much to say.\n"
        );
    }
}
