//! Where the parts of a JSON text begin and end, without reading them.
//!
//! A list is cut into its items and an event into its object, so that each object is decoded by itself and can be kept as text; managedFields
//! are left out on the way. One pass over the bytes that looks at quotes and brackets only: what is wrong inside of a part is found by
//! whoever decodes it. Invariants: no recursion, whatever nests; a text that ends too early is `None`.

use std::ops::Range;

/// A member of an object: its name with the quotes, and its value.
pub(super) struct Member<'a> {
    pub(super) name: &'a [u8],
    pub(super) value: &'a [u8],
}

impl Member<'_> {
    /// Whether this is its name. Names are compared as they are written: no server writes those of Kubernetes with escapes.
    pub(super) fn is(&self, name: &str) -> bool {
        self.name.get(1..self.name.len() - 1) == Some(name.as_bytes())
    }
}

/// The members of an object; `None` when the text is none.
pub(super) fn members(text: &[u8]) -> Option<Vec<Member<'_>>> {
    let mut members = Vec::new();
    parts(text, b'{', b'}', |at| {
        let name = string(text, at)?;
        let colon = blank(text, name.end);
        if text.get(colon) != Some(&b':') {
            return None;
        }
        let value = value(text, blank(text, colon + 1))?;
        let end = value.end;
        members.push(Member {
            name: &text[name],
            value: &text[value],
        });
        Some(end)
    })?;
    Some(members)
}

/// The items of an array; `None` when the text is none.
pub(super) fn items(text: &[u8]) -> Option<Vec<&[u8]>> {
    let mut items = Vec::new();
    parts(text, b'[', b']', |at| {
        let item = value(text, at)?;
        let end = item.end;
        items.push(&text[item]);
        Some(end)
    })?;
    Some(items)
}

/// The text of an object without its managedFields, and with its kind when it does not say one; `None` when it is no object.
pub(super) fn lean(text: &[u8], kind: Option<(&str, &str)>) -> Option<Vec<u8>> {
    let all = members(text)?;
    let mut lean = Vec::with_capacity(text.len());
    lean.push(b'{');
    if let Some((api_version, word)) = kind {
        for (name, value) in [("apiVersion", api_version), ("kind", word)] {
            if !all.iter().any(|member| member.is(name)) {
                let value = serde_json::to_vec(value).ok()?;
                push(&mut lean, format!("\"{name}\"").as_bytes(), &value);
            }
        }
    }
    for member in all {
        let metadata = if member.is("metadata") {
            members(member.value)
        } else {
            None
        };
        match metadata {
            None => push(&mut lean, member.name, member.value),
            Some(metadata) => {
                push(&mut lean, member.name, b"{");
                for member in metadata.iter().filter(|member| !member.is("managedFields")) {
                    push(&mut lean, member.name, member.value);
                }
                lean.push(b'}');
            }
        }
    }
    lean.push(b'}');
    Some(lean)
}

/// Appends a member.
fn push(text: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    if text.last() != Some(&b'{') {
        text.push(b',');
    }
    text.extend_from_slice(name);
    text.push(b':');
    text.extend_from_slice(value);
}

/// Walks over what stands between two brackets, with commas between. `part` answers where a part ends that begins there.
fn parts(text: &[u8], open: u8, close: u8, mut part: impl FnMut(usize) -> Option<usize>) -> Option<()> {
    let mut at = blank(text, 0);
    if text.get(at) != Some(&open) {
        return None;
    }
    at = blank(text, at + 1);
    if text.get(at) == Some(&close) {
        return ends(text, at);
    }
    loop {
        at = blank(text, part(at)?);
        match text.get(at) {
            Some(b',') => at = blank(text, at + 1),
            Some(byte) if *byte == close => return ends(text, at),
            _ => return None,
        }
    }
}

/// Nothing follows but blanks.
fn ends(text: &[u8], at: usize) -> Option<()> {
    (blank(text, at + 1) == text.len()).then_some(())
}

/// The next byte from `at` on that is no blank.
fn blank(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    at + rest
        .iter()
        .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))
        .count()
}

/// The string that begins at `at`, with its quotes.
fn string(text: &[u8], at: usize) -> Option<Range<usize>> {
    if text.get(at) != Some(&b'"') {
        return None;
    }
    let mut next = at + 1;
    loop {
        next += text.get(next..)?.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        match text[next] {
            b'"' => return Some(at..next + 1),
            _ => next += 2,
        }
    }
}

/// The value that begins at `at`.
fn value(text: &[u8], at: usize) -> Option<Range<usize>> {
    let mut next = at;
    let mut depth = 0_usize;
    match text.get(at)? {
        b'"' => return string(text, at),
        b'{' | b'[' => {}
        _ => {
            let rest = &text[at..];
            let length = rest
                .iter()
                .position(|byte| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n'))
                .unwrap_or(rest.len());
            return (length > 0).then_some(at..at + length);
        }
    }
    loop {
        next += text
            .get(next..)?
            .iter()
            .position(|byte| matches!(byte, b'"' | b'{' | b'[' | b'}' | b']'))?;
        match text[next] {
            b'"' => next = string(text, next)?.end,
            b'{' | b'[' => {
                depth += 1;
                next += 1;
            }
            _ => {
                depth -= 1;
                next += 1;
                if depth == 0 {
                    return Some(at..next);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).expect("a part of a string, cut at quotes and brackets")
    }

    #[test]
    fn objects_lose_their_managed_fields_and_nothing_else() {
        let check = |object: &str, expected: &str| {
            let cut = lean(object.as_bytes(), None).expect("an object");
            assert_eq!(text(&cut), expected, "{object}");
        };
        check("{}", "{}");
        check(
            r#"{"metadata":{"managedFields":[{"a":"}]\"{"}],"name":"x"},"managedFields":1}"#,
            r#"{"metadata":{"name":"x"},"managedFields":1}"#,
        );
        check(
            " { \"metadata\" : { \"name\" : \"x\" , \"managedFields\" : [ ] } , \"a\" : [ 1 , -2e3 ] }\n",
            r#"{"metadata":{"name":"x"},"a":[ 1 , -2e3 ]}"#,
        );
        check(
            r#"{"metadata":7,"a\"b":"\\","c":"\\\""}"#,
            r#"{"metadata":7,"a\"b":"\\","c":"\\\""}"#,
        );
        check(
            r#"{"metadata":{},"metadata":null}"#,
            r#"{"metadata":{},"metadata":null}"#,
        );
    }

    #[test]
    fn objects_are_told_their_kind_when_they_do_not_say_it() {
        let check = |object: &str, expected: &str| {
            let cut = lean(object.as_bytes(), Some(("v1", "Pod"))).expect("an object");
            assert_eq!(text(&cut), expected);
        };
        check(r#"{"a":1}"#, r#"{"apiVersion":"v1","kind":"Pod","a":1}"#);
        check(r#"{"kind":"X"}"#, r#"{"apiVersion":"v1","kind":"X"}"#);
    }

    #[test]
    fn lists_are_cut_into_items() {
        let cut = items(br#" [{"a":[1,{"b":"]"}]}, 7 ,"x,y",null] "#).expect("a list");
        let cut: Vec<&str> = cut.into_iter().map(text).collect();
        assert_eq!(cut, [r#"{"a":[1,{"b":"]"}]}"#, "7", "\"x,y\"", "null"]);
        assert!(items(b"[]").expect("a list").is_empty());
    }

    #[test]
    fn what_ends_too_early_is_no_object_and_no_list() {
        let whole = r#"{"metadata":{"name":"a\"b","managedFields":[{"c":1}]},"items":[{"d":"e"},2]}"#;
        for end in 0..whole.len() {
            assert!(lean(&whole.as_bytes()[..end], None).is_none(), "{}", &whole[..end]);
        }
        for wrong in ["", "7", "[1", "[1,]x", "[,]", "[1 2]", "[1]]"] {
            assert!(items(wrong.as_bytes()).is_none(), "{wrong}");
        }
        for wrong in [r#"{"a"}"#, r#"{"a":}"#, r#"{a:1}"#, r#"{"a":1,}"#, r#"{"a":1}}"#] {
            assert!(members(wrong.as_bytes()).is_none(), "{wrong}");
        }
        let deep = "[".repeat(1_000_000);
        assert!(items(deep.as_bytes()).is_none());
    }
}
