//! The query of a request: percent-decoded parameters, bounded, with Kubernetes' rules for numbers and booleans.

use std::collections::BTreeMap;

use percent_encoding::{percent_decode_str, utf8_percent_encode};

use crate::model::status::Status;

/// The longest query that is read, in bytes. Long selectors fit; a longer query is refused in words.
const MAX_QUERY: usize = 64 * 1024;

/// The parameters of a request, each with all its values.
#[derive(Debug, Default)]
pub(crate) struct Query {
    parameters: BTreeMap<String, Vec<String>>,
}

impl Query {
    /// Reads the part of the URI after the question mark.
    pub(crate) fn parse(text: &str) -> Result<Query, Status> {
        if text.len() > MAX_QUERY {
            let message = format!("the query is {} bytes long, the limit is {MAX_QUERY}", text.len());
            return Err(Status::failure(414, "", message));
        }
        let mut query = Query::default();
        // Parameters that Go cannot read are left out.
        let is_read = |pair: &&str| !pair.is_empty() && !pair.contains(';') && first_broken_escape(pair).is_none();
        for pair in text.split('&').filter(is_read) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            query
                .parameters
                .entry(decode(name, true))
                .or_default()
                .push(decode(value, true));
        }
        Ok(query)
    }

    /// The first value, empty when absent.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.all(name).first().map_or("", String::as_str)
    }

    /// Whether the parameter is there, be it empty.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.parameters.contains_key(name)
    }

    /// All values.
    pub(crate) fn all(&self, name: &str) -> &[String] {
        self.parameters.get(name).map_or(&[], Vec::as_slice)
    }

    /// The query as it was read, written anew (`url.Values.Encode`).
    pub(crate) fn encoded(&self, escaped: &'static percent_encoding::AsciiSet) -> String {
        let escape = |text: &str| utf8_percent_encode(text, escaped).to_string();
        let pairs = self
            .parameters
            .iter()
            .flat_map(|(name, values)| values.iter().map(move |value| (name, value)));
        let pairs = pairs.map(|(name, value)| format!("{}={}", escape(name), escape(value)));
        pairs.collect::<Vec<_>>().join("&")
    }

    /// A boolean as apimachinery reads it: absent, `false` and `0` are false, everything else is true.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.optional_flag(name).unwrap_or(false)
    }

    /// The same, with absence told apart.
    pub(crate) fn optional_flag(&self, name: &str) -> Option<bool> {
        let value = self.all(name).first()?;
        Some(!matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    /// A number; `None` when absent. An empty one is no number.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, Status> {
        if !self.has(name) {
            return Ok(None);
        }
        let text = self.get(name);
        text.parse().map(Some).map_err(|error: std::num::ParseIntError| {
            use std::num::IntErrorKind::{NegOverflow, PosOverflow};
            let why = match error.kind() {
                PosOverflow | NegOverflow => "value out of range",
                _ => "invalid syntax",
            };
            Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: {why}"))
        })
    }
}

/// The first percent sign of a text that is not followed by two hexadecimal digits, with the two characters behind it:
/// as Go tells of a URL that it cannot read.
pub fn first_broken_escape(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let broken = |at: &usize| {
        bytes[*at] == b'%'
            && !bytes
                .get(at + 1..at + 3)
                .is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit))
    };
    let at = (0..bytes.len()).find(broken)?;
    let end = bytes.len().min(at + 3);
    Some(String::from_utf8_lossy(&bytes[at..end]).into_owned())
}

/// Percent-decodes; `+` is a space in queries. Broken escapes stay as they are, bytes that are no UTF-8 become U+FFFD.
pub(crate) fn decode(text: &str, plus_is_space: bool) -> String {
    if plus_is_space && text.contains('+') {
        return decode(&text.replace('+', " "), false);
    }
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = Query::parse("labelSelector=a%3Db%2Cc+in+(d)&watch&dryRun=All&dryRun=Foo&x=%zz&y=1;z=2")
            .expect("a short query");
        assert_eq!(query.get("labelSelector"), "a=b,c in (d)");
        assert!(query.flag("watch") && query.has("watch") && !query.flag("pretty"));
        assert_eq!(query.all("dryRun"), ["All", "Foo"]);
        assert!(!query.has("x") && !query.has("y"), "what Go cannot read it leaves out");
    }

    #[test]
    fn numbers_have_go_texts() {
        let query = Query::parse("limit=many&big=99999999999999999999&ok=-1&empty=").expect("a short query");
        let message = |name| query.number(name).expect_err("no number").message;
        assert_eq!(message("limit"), "strconv.ParseInt: parsing \"many\": invalid syntax");
        assert_eq!(
            message("big"),
            "strconv.ParseInt: parsing \"99999999999999999999\": value out of range"
        );
        assert_eq!(query.number("ok").expect("a number"), Some(-1));
        assert_eq!(message("empty"), "strconv.ParseInt: parsing \"\": invalid syntax");
        assert_eq!(query.number("absent").expect("nothing"), None);
    }

    #[test]
    fn booleans_are_true_unless_they_say_no() {
        for (text, want) in [
            ("watch=true", true),
            ("watch=1", true),
            ("watch=maybe", true),
            ("watch=", true),
            ("watch=0", false),
            ("watch=False", false),
            ("", false),
        ] {
            assert_eq!(Query::parse(text).expect("a short query").flag("watch"), want, "{text}");
        }
    }

    #[test]
    fn escapes_are_checked() {
        let check =
            |path: &str, expected: Option<&str>| assert_eq!(first_broken_escape(path).as_deref(), expected, "{path:?}");
        check("/api/v1", None);
        check("/a%2Fb%c3%a4", None);
        check("/a%zz", Some("%zz"));
        check("/a%2Fb%2", Some("%2"));
        check("/%", Some("%"));
        check("/%1%20", Some("%1%"));
    }

    #[test]
    fn an_endless_query_is_refused() {
        assert_eq!(
            Query::parse(&"x".repeat(MAX_QUERY + 1)).expect_err("too long").code,
            414
        );
    }
}
