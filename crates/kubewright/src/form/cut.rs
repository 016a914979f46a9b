//! Where the parts of a JSON text begin and end, without reading them.
//!
//! A list is cut into its items as its bytes arrive ([`Lister`]) and an event into its object, so that each object is
//! read by itself and can be kept as text. [`lean`] leaves managedFields out and notes where the id of an object
//! stands. One pass over the bytes that looks at quotes and brackets only: errors inside of a part are found when it is
//! decoded. Invariants: no recursion, at any nesting; a text that ends too early is `None`; the cost of a list grows
//! with its bytes, in however small pieces they come.

use std::ops::Range;

use super::packed::Head;

/// A member of an object: its name with the quotes, and its value.
pub(crate) struct Member<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl Member<'_> {
    /// Whether this is its name.
    pub(crate) fn is(&self, name: &str) -> bool {
        is_name(self.name, name)
    }
}

/// Names are compared as they are written: no server writes those of Kubernetes with escapes.
fn is_name(quoted: &[u8], name: &str) -> bool {
    quoted.get(1..quoted.len() - 1) == Some(name.as_bytes())
}

/// The members of an object; `None` when the text is none.
pub(crate) fn members(text: &[u8]) -> Option<Vec<Member<'_>>> {
    let mut members = Vec::new();
    let end = object(text, blank(text, 0), |name, at| {
        let value = value(text, at)?;
        let end = value.end;
        members.push(Member {
            name: &text[name],
            value: &text[value],
        });
        Some(end)
    })?;
    ends(text, end).then_some(members)
}

/// The value of a member of an object, wherever it stands in there.
pub(crate) fn member<'a>(text: &'a str, wanted: &str) -> Option<&'a str> {
    let bytes = text.as_bytes();
    let mut found = None;
    object(bytes, blank(bytes, 0), |name, at| {
        let value = value(bytes, at)?;
        let end = value.end;
        if is_name(&bytes[name], wanted) {
            found = Some(value);
        }
        Some(end)
    })?;
    text.get(found?)
}

/// The type and the object of a watch's event, as every known server writes it. `None` when it is written in another
/// way; the object is not looked at.
pub(crate) fn event(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = line.strip_prefix(b"{\"type\":\"")?;
    let kind = rest.split(|byte| *byte == b'"').next()?;
    let object = rest[kind.len()..].strip_prefix(b"\",\"object\":")?;
    Some((kind, object.strip_suffix(b"}")?))
}

/// Appends the text of an object without its managedFields, and with its kind when it does not say one, and answers
/// where its id stands in that; `None` when it is no object.
pub(crate) fn lean(text: &[u8], kind: Option<(&str, &str)>, lean: &mut Vec<u8>) -> Option<Head> {
    lean_without(text, kind, lean).map(|(head, _)| head)
}

/// [`lean`], and where the managedFields that were left out stand in the text.
pub(crate) fn lean_without(
    text: &[u8],
    kind: Option<(&str, &str)>,
    lean: &mut Vec<u8>,
) -> Option<(Head, Option<Range<usize>>)> {
    let mut managed = None;
    let mut head = Head::default();
    let (mut says_version, mut says_kind) = (false, false);
    lean.push(b'{');
    let end = object(text, blank(text, 0), |name, at| {
        let quoted = &text[name];
        says_version |= is_name(quoted, "apiVersion");
        says_kind |= is_name(quoted, "kind");
        if is_name(quoted, "metadata") && text.get(at) == Some(&b'{') {
            push(lean, quoted, b"");
            return metadata(text, at, lean, &mut head, &mut managed);
        }
        let value = value(text, at)?;
        let end = value.end;
        push(lean, quoted, &text[value]);
        Some(end)
    })?;
    for (name, value, found) in kind
        .into_iter()
        .flat_map(|(version, word)| [("apiVersion", version, says_version), ("kind", word, says_kind)])
    {
        if !found {
            let value = serde_json::to_vec(value).ok()?;
            push(lean, format!("\"{name}\"").as_bytes(), &value);
        }
    }
    lean.push(b'}');
    ends(text, end).then_some((head, managed))
}

/// Appends the metadata that begin at `at`, and answers where they end.
fn metadata(
    text: &[u8],
    at: usize,
    lean: &mut Vec<u8>,
    head: &mut Head,
    managed: &mut Option<Range<usize>>,
) -> Option<usize> {
    let begin = lean.len();
    // Two of them, or a name with escapes, cannot be pointed to.
    head.odd |= head.metadata != (0, 0);
    lean.push(b'{');
    let end = object(text, at, |name, at| {
        let value = value(text, at)?;
        let (quoted, end) = (&text[name], value.end);
        if is_name(quoted, "managedFields") {
            *managed = Some(value);
            return Some(end);
        }
        push(lean, quoted, &text[value.clone()]);
        let part = match quoted {
            b"\"name\"" => &mut head.name,
            b"\"namespace\"" => &mut head.namespace,
            b"\"uid\"" => &mut head.uid,
            b"\"resourceVersion\"" => &mut head.version,
            b"\"ownerReferences\"" => {
                head.owners = part(lean.len() - value.len(), lean.len());
                return Some(end);
            }
            _ => return Some(end),
        };
        let value = &text[value];
        head.odd |= *part != (0, 0) || value.contains(&b'\\');
        if value.len() > 2 && value[0] == b'"' {
            *part = self::part(lean.len() - value.len() + 1, lean.len() - 1);
        }
        Some(end)
    })?;
    lean.push(b'}');
    head.metadata = part(begin, lean.len());
    Some(end)
}

/// A range as it is kept. No text is longer than a frame of a watch, or an item of a list, may be.
fn part(from: usize, to: usize) -> (u32, u32) {
    (
        u32::try_from(from).unwrap_or_default(),
        u32::try_from(to).unwrap_or_default(),
    )
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

/// Cuts a list into its items as it arrives. It holds the bytes of one incomplete item, and those outside of the items.
#[derive(Default)]
pub(crate) struct Lister {
    section: Section,
    /// Bytes that have arrived and are not cut yet.
    rest: Vec<u8>,
    /// So much must have arrived before cutting is tried again: an item in a thousand pieces is not looked at a
    /// thousand times.
    enough: usize,
    /// The list without its items.
    outer: Vec<u8>,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Section {
    #[default]
    Before,
    Items(Next),
    After,
}

/// The next token among the items.
#[derive(Clone, Copy, PartialEq)]
enum Next {
    ItemOrEnd,
    Item,
    CommaOrEnd,
}

impl Lister {
    /// Takes the next bytes, and tells `item` of each whole item.
    ///
    /// # Errors
    /// When the items are no list, and those of `item`.
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        mut item: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut rest = std::mem::take(&mut self.rest);
        let whole = if rest.is_empty() {
            bytes
        } else {
            rest.extend_from_slice(bytes);
            &rest[..]
        };
        let mut cut = 0;
        if whole.len() >= self.enough {
            cut = self.cut(whole, &mut item)?;
            let left = whole.len() - cut;
            self.enough = if cut == 0 { left + left / 2 } else { 0 };
        }
        if rest.is_empty() {
            rest.extend_from_slice(&bytes[cut..]);
        } else {
            rest.drain(..cut);
        }
        self.rest = rest;
        Ok(())
    }

    /// How many bytes are held.
    pub(crate) fn held(&self) -> usize {
        self.rest.len() + self.outer.len()
    }

    /// Nothing more arrives: the next feed looks at all that waits.
    pub(crate) fn settle(&mut self) {
        self.enough = 0;
    }

    /// The list without its items, and with incomplete ones. Whether that is JSON is for the reader.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.outer.append(&mut self.rest);
        self.outer
    }

    /// Cuts complete items, and answers up to where.
    fn cut(&mut self, text: &[u8], item: &mut impl FnMut(&[u8]) -> Result<(), String>) -> Result<usize, String> {
        let mut at = 0;
        if self.section == Section::Before {
            let Some(begin) = items_begin(text) else { return Ok(0) };
            self.outer.extend_from_slice(&text[..begin]);
            self.section = Section::Items(Next::ItemOrEnd);
            at = begin;
        }
        while let Section::Items(expected) = self.section {
            let next = blank(text, at);
            let Some(byte) = text.get(next) else { return Ok(at) };
            self.section = match (byte, expected) {
                (b']', Next::ItemOrEnd | Next::CommaOrEnd) => Section::After,
                (b',', Next::CommaOrEnd) => {
                    at = next + 1;
                    Section::Items(Next::Item)
                }
                (b',' | b']' | b'}', _) | (_, Next::CommaOrEnd) => {
                    return Err("its items are no list".to_owned());
                }
                _ => {
                    let Some(found) = value(text, next).filter(|found| is_whole(text, found)) else {
                        return Ok(at);
                    };
                    at = found.end;
                    item(&text[found])?;
                    Section::Items(Next::CommaOrEnd)
                }
            };
        }
        self.outer.extend_from_slice(&text[at..]);
        Ok(text.len())
    }
}

/// Whether a value cannot go on behind its end.
fn is_whole(text: &[u8], value: &Range<usize>) -> bool {
    matches!(text[value.start], b'"' | b'{' | b'[') || value.end < text.len()
}

/// Where the items of a list begin, behind their bracket.
fn items_begin(text: &[u8]) -> Option<usize> {
    let mut begin = None;
    object(text, blank(text, 0), |name, at| {
        if is_name(&text[name], "items") && text.get(at) == Some(&b'[') {
            begin = Some(at + 1);
            return None;
        }
        value(text, at).map(|value| value.end)
    });
    begin
}

/// Walks over the members of the object that begins at `at`, and answers where it ends. `member` is told where a name
/// stands and where its value begins, and answers where that ends.
fn object(text: &[u8], at: usize, mut member: impl FnMut(Range<usize>, usize) -> Option<usize>) -> Option<usize> {
    if text.get(at) != Some(&b'{') {
        return None;
    }
    let mut at = blank(text, at + 1);
    if text.get(at) == Some(&b'}') {
        return Some(at + 1);
    }
    loop {
        let name = string(text, at)?;
        let colon = blank(text, name.end);
        if text.get(colon) != Some(&b':') {
            return None;
        }
        at = blank(text, member(name, blank(text, colon + 1))?);
        match text.get(at) {
            Some(b',') => at = blank(text, at + 1),
            Some(b'}') => return Some(at + 1),
            _ => return None,
        }
    }
}

/// Whether nothing follows but blanks.
fn ends(text: &[u8], at: usize) -> bool {
    blank(text, at) == text.len()
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
        next = quote_or_escape(text, next)?;
        match text[next] {
            b'"' => return Some(at..next + 1),
            _ => next += 2,
        }
    }
}

/// The next quote or backslash from `at` on. Strings are most of a text, so eight bytes are looked at together.
#[inline]
fn quote_or_escape(text: &[u8], mut at: usize) -> Option<usize> {
    while let Some(eight) = text.get(at..).and_then(|rest| rest.first_chunk()) {
        let word = u64::from_le_bytes(*eight);
        let found = equal(word, b'"') | equal(word, b'\\');
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let rest = text.get(at..)?.iter();
    let found = rest.enumerate().find(|(_, byte)| matches!(byte, b'"' | b'\\'))?;
    Some(at + found.0)
}

/// Marks the bytes of a word that are this one, by their highest bits. Above the lowest mark there may be wrong ones.
#[inline]
fn equal(word: u64, byte: u8) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    let differs = word ^ (ONES * u64::from(byte));
    differs.wrapping_sub(ONES) & !differs & (ONES << 7)
}

/// The value that begins at `at`.
fn value(text: &[u8], at: usize) -> Option<Range<usize>> {
    match text.get(at)? {
        b'"' => string(text, at),
        b'{' | b'[' => nested(text, at).map(|end| at..end),
        _ => {
            let rest = &text[at..];
            let length = rest
                .iter()
                .position(|byte| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n'))
                .unwrap_or(rest.len());
            (length > 0).then_some(at..at + length)
        }
    }
}

/// Where the object or array that begins at `at` ends.
fn nested(text: &[u8], at: usize) -> Option<usize> {
    let (mut next, mut depth) = (at, 0_usize);
    loop {
        match text.get(next)? {
            b'"' => next = string(text, next)?.end,
            b'{' | b'[' => {
                depth += 1;
                next += 1;
            }
            b'}' | b']' => {
                depth -= 1;
                next += 1;
                if depth == 0 {
                    return Some(next);
                }
            }
            // Between strings there is not much.
            _ => next += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// For a string at any place, of any length and with any bytes.
        #[test]
        fn strings_end_at_the_first_quote_that_is_not_escaped(
            before in 0..9_usize,
            bytes in proptest::collection::vec(prop_oneof![Just(b'"'), Just(b'\\'), Just(b'#'), Just(b']'), any::<u8>()], 0..40),
        ) {
            let text = [&vec![b' '; before][..], b"\"", &bytes].concat();
            let mut escaped = false;
            let end = bytes.iter().position(|byte| {
                let quote = *byte == b'"' && !escaped;
                escaped = *byte == b'\\' && !escaped;
                quote
            });
            prop_assert_eq!(string(&text, before), end.map(|end| before..before + 1 + end + 1));
        }
    }

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).expect("a part of a string, cut at quotes and brackets")
    }

    fn leaned(object: &str, kind: Option<(&str, &str)>) -> Option<(String, Head)> {
        let mut cut = Vec::new();
        let head = lean(object.as_bytes(), kind, &mut cut)?;
        Some((text(&cut).to_owned(), head))
    }

    #[test]
    fn objects_lose_their_managed_fields_and_nothing_else() {
        let check = |object: &str, expected: &str| {
            let (cut, _) = leaned(object, None).expect("an object");
            assert_eq!(cut, expected, "{object}");
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
            let (cut, _) = leaned(object, Some(("v1", "Pod"))).expect("an object");
            assert_eq!(cut, expected);
        };
        check(r#"{"a":1}"#, r#"{"a":1,"apiVersion":"v1","kind":"Pod"}"#);
        check(r#"{"kind":"X"}"#, r#"{"kind":"X","apiVersion":"v1"}"#);
    }

    #[test]
    fn the_identity_of_an_object_is_pointed_to() {
        let check = |object: &str, expected: Option<[&str; 5]>| {
            let (cut, head) = leaned(object, None).expect("an object");
            let of = |(from, to): (u32, u32)| &cut[from as usize..to as usize];
            let found = [head.name, head.namespace, head.uid, head.version, head.owners].map(of);
            assert_eq!((!head.odd).then_some(found), expected, "{object}");
        };
        check(
            r#"{"metadata": {"managedFields":[], "uid":"u","ownerReferences":[{"name":"o"}],"namespace":"s","resourceVersion":"7","name":"n"}}"#,
            Some(["n", "s", "u", "7", r#"[{"name":"o"}]"#]),
        );
        check(r#"{"metadata":{"name":""}}"#, Some([""; 5]));
        check(r#"{"metadata":{"name":7}}"#, Some([""; 5]));
        check(r#"{"name":"x"}"#, Some([""; 5]));
        check(r#"{"metadata":{"name":"a\u0062"}}"#, None);
        check(r#"{"metadata":{"name":"a","name":"b"}}"#, None);
        check(r#"{"metadata":{},"metadata":{"name":"b"}}"#, None);
    }

    fn cut(list: &str, piece: usize) -> Result<(Vec<String>, String), String> {
        let mut items = Vec::new();
        let mut lister = Lister::default();
        let mut take = |item: &[u8]| {
            items.push(text(item).to_owned());
            Ok(())
        };
        for bytes in list.as_bytes().chunks(piece) {
            lister.feed(bytes, &mut take)?;
        }
        lister.settle();
        lister.feed(b"", &mut take)?;
        let outer = lister.finish();
        Ok((items, text(&outer).to_owned()))
    }

    #[test]
    fn lists_are_cut_into_items_in_whatever_pieces_they_come() {
        let check = |list: &str, expected: Result<(&[&str], &str), &str>| {
            let expected = expected
                .map(|(items, outer)| (items.iter().map(|item| (*item).to_owned()).collect(), outer.to_owned()))
                .map_err(str::to_owned);
            for piece in 1..=list.len() {
                assert_eq!(cut(list, piece), expected, "{list} by {piece}");
            }
        };
        check(
            r#"{"kind":"L","metadata":{"items":[1]},"items": [{"a":[1,{"b":"]"}]}, 7 ,"x,y",null] ,"z":1}"#,
            Ok((
                &[r#"{"a":[1,{"b":"]"}]}"#, "7", "\"x,y\"", "null"],
                r#"{"kind":"L","metadata":{"items":[1]},"items": [] ,"z":1}"#,
            )),
        );
        check(r#"{"items":[]}"#, Ok((&[], r#"{"items":[]}"#)));
        check(r#"{"items":null}"#, Ok((&[], r#"{"items":null}"#)));
        for wrong in [
            r#"{"items":[1 2]}"#,
            r#"{"items":[1,]}"#,
            r#"{"items":[,1]}"#,
            r#"{"items":[1}}"#,
        ] {
            check(wrong, Err("its items are no list"));
        }
        // A text that ends too early is noticed by the reader of the rest.
        check(r#"{"items":[{"a":1}"#, Ok((&[r#"{"a":1}"#], r#"{"items":["#)));
        check(r#"{"items":[1,{"a":"#, Ok((&["1"], r#"{"items":[{"a":"#)));
        check("[1]", Ok((&[], "[1]")));
    }

    #[test]
    fn what_ends_too_early_is_no_object() {
        let whole = r#"{"metadata":{"name":"a\"b","managedFields":[{"c":1}]},"items":[{"d":"e"},2]}"#;
        for end in 0..whole.len() {
            assert!(leaned(&whole[..end], None).is_none(), "{}", &whole[..end]);
        }
        for wrong in [
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{a:1}"#,
            r#"{"a":1,}"#,
            r#"{"a":1}}"#,
            "7",
            "",
        ] {
            assert!(members(wrong.as_bytes()).is_none(), "{wrong}");
        }
        let deep = format!("{{\"a\":{}", "[".repeat(1_000_000));
        assert!(members(deep.as_bytes()).is_none());
    }
}
