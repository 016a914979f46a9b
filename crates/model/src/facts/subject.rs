//! The subject of a certificate, or of a request for one, as Kubernetes takes it: its common name is a user, its
//! organizations are the user's groups.
//!
//! The one reader for both: what is read of a request is what is later read of its certificate. It reads texts as Go's
//! `crypto/x509` does (`parseASN1String`); a text that it cannot read refuses the whole, because a group that is passed
//! over could be the one that a check looks for.
//!
//! Invariant: no input makes it panic.

use kubewright_schema::budget;

use super::der::{self, Reader, Value, tag};

/// The attribute type `commonName` (2.5.4.3).
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
/// The attribute type `organizationName` (2.5.4.10).
const ORGANIZATION: &[u8] = &[0x55, 4, 10];
/// The attribute type of a user's UID (1.3.6.1.4.1.57683.2, `X509UID` of apimachinery).
pub const UID: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x83, 0xc2, 0x53, 0x02];

/// What a subject says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// Its common name, the last one as in Go's `pkix.Name`; empty when it has none.
    pub common_name: String,
    /// Its organizations, in order.
    pub organizations: Vec<String>,
    /// Its UIDs, in order. A certificate with more than one is refused.
    pub uids: Vec<String>,
}

impl Subject {
    /// Reads a `Name` (DER, the whole value).
    ///
    /// # Errors
    /// Why it cannot be read, in Go's words.
    pub fn read(name: &[u8]) -> Result<Subject, &'static str> {
        let mut found = Subject::default();
        for set in sets(name)? {
            for attribute in attributes(set)? {
                let text = text(attribute.value)?;
                match attribute.kind {
                    COMMON_NAME => found.common_name = text,
                    ORGANIZATION => found.organizations.push(text),
                    UID => found.uids.push(text),
                    _ => {}
                }
            }
        }
        Ok(found)
    }
}

/// A `Name` as it stands, but for its UIDs: upstream's signer, too, signs a subject without them, since nobody checks
/// them when a request is approved.
///
/// # Errors
/// Why it cannot be read, in Go's words.
pub fn without_uids(name: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut kept = Vec::new();
    for set in sets(name)? {
        let all = attributes(set)?;
        if all.iter().all(|attribute| attribute.kind != UID) {
            kept.push(set.whole.to_vec());
            continue;
        }
        let others: Vec<&[u8]> = all.iter().filter(|one| one.kind != UID).map(|one| one.whole).collect();
        if !others.is_empty() {
            kept.push(der::value(tag::SET, &others));
        }
    }
    let kept: Vec<&[u8]> = kept.iter().map(Vec::as_slice).collect();
    Ok(der::value(tag::SEQUENCE, &kept))
}

/// An `AttributeTypeAndValue`.
struct Attribute<'a> {
    kind: &'a [u8],
    value: Value<'a>,
    whole: &'a [u8],
}

/// The parts of a `Name` (`RelativeDistinguishedName`), in order.
fn sets(name: &[u8]) -> Result<Vec<Value<'_>>, &'static str> {
    let mut rest = Reader::of_one(name, tag::SEQUENCE)?;
    let mut sets = Vec::new();
    while !rest.is_empty() {
        budget::spend(1);
        sets.push(rest.value(tag::SET)?);
    }
    Ok(sets)
}

/// The attributes of a part.
fn attributes(set: Value<'_>) -> Result<Vec<Attribute<'_>>, &'static str> {
    let mut rest = Reader::new(set.contents);
    let mut attributes = Vec::new();
    while !rest.is_empty() {
        budget::spend(1);
        let whole = rest.value(tag::SEQUENCE)?;
        let mut parts = Reader::new(whole.contents);
        attributes.push(Attribute {
            kind: parts.value(tag::IDENTIFIER)?.contents,
            value: parts.any()?,
            whole: whole.whole,
        });
        parts.end()?;
    }
    Ok(attributes)
}

/// The text of an attribute, by the type of its string.
fn text(value: Value<'_>) -> Result<String, &'static str> {
    let bytes = value.contents;
    let of = |fits: fn(u8) -> bool, why| match bytes.iter().all(|byte| fits(*byte)) {
        true => Ok(bytes.iter().map(|byte| char::from(*byte)).collect()),
        false => Err(why),
    };
    match value.tag {
        0x0c => String::from_utf8(bytes.to_vec()).map_err(|_| "invalid UTF-8 string"),
        0x12 => of(|byte| byte.is_ascii_digit() || byte == b' ', "invalid NumericString"),
        0x13 => of(is_printable, "invalid PrintableString"),
        // T.61, which everybody reads as Latin-1.
        0x14 => of(|_| true, ""),
        0x16 => of(|byte| byte.is_ascii(), "invalid IA5String"),
        0x1e => wide(bytes).ok_or("invalid BMPString"),
        _ => Err("unsupported string type"),
    }
}

/// `isPrintable`: with `*` and `&`, which are not of the type, but common.
fn is_printable(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b" '()+,-./:=?*&".contains(&byte)
}

/// A text of two bytes for each character, which may end with a zero.
fn wide(bytes: &[u8]) -> Option<String> {
    let (units, []) = bytes.as_chunks::<2>() else {
        return None;
    };
    let units = units.strip_suffix(&[[0, 0]]).unwrap_or(units);
    let characters = units.iter().map(|unit| match u16::from_be_bytes(*unit) {
        0xfdd0..=0xfdef | 0xfffe..=0xffff => None,
        unit => char::from_u32(unit.into()),
    });
    characters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCALITY: &[u8] = &[0x55, 4, 7];

    /// One attribute: its type, the tag of its text, the text.
    type Row<'a> = (&'a [u8], u8, &'a [u8]);

    /// A subject of these parts.
    fn name(parts: &[&[Row<'_>]]) -> Vec<u8> {
        let attribute = |(kind, tag, text): &Row<'_>| {
            let (kind, text) = (der::value(tag::IDENTIFIER, &[kind]), der::value(*tag, &[text]));
            der::value(tag::SEQUENCE, &[&kind, &text])
        };
        let set = |rows: &&[Row<'_>]| {
            let attributes: Vec<u8> = rows.iter().flat_map(attribute).collect();
            der::value(tag::SET, &[&attributes])
        };
        let sets: Vec<u8> = parts.iter().flat_map(set).collect();
        der::value(tag::SEQUENCE, &[&sets])
    }

    #[test]
    fn users_and_groups_are_read_as_go_reads_them() {
        let check = |parts: &[&[Row<'_>]], user: &str, groups: &[&str], uids: &[&str]| {
            let read = Subject::read(&name(parts)).expect("a subject");
            let read = (read.common_name.as_str(), read.organizations, read.uids);
            assert_eq!(
                read,
                (
                    user,
                    groups.iter().map(|&one| one.into()).collect(),
                    uids.iter().map(|&one| one.into()).collect()
                )
            );
        };
        check(&[], "", &[], &[]);
        // The last common name is the user, also within one part.
        check(
            &[&[(COMMON_NAME, 0x0c, b"a")], &[(COMMON_NAME, 0x13, b"b")]],
            "b",
            &[],
            &[],
        );
        check(&[&[(COMMON_NAME, 0x0c, b"a"), (COMMON_NAME, 0x0c, b"")]], "", &[], &[]);
        // Groups are in order, one or several in a part, in any type of string.
        let groups: &[Row<'_>] = &[(ORGANIZATION, 0x0c, "é".as_bytes()), (ORGANIZATION, 0x14, b"\xe9")];
        let wide: &[Row<'_>] = &[(ORGANIZATION, 0x1e, b"\0a\0\xe9\0\0"), (ORGANIZATION, 0x12, b"1 2")];
        check(
            &[groups, &[(LOCALITY, 0x16, b"x@y")], wide],
            "",
            &["é", "é", "aé", "1 2"],
            &[],
        );
        check(&[&[(UID, 0x0c, b"u")], &[(UID, 0x0c, b"")]], "", &[], &["u", ""]);
    }

    #[test]
    fn texts_that_cannot_be_read_refuse_the_whole() {
        let check = |kind: &[u8], tag: u8, text: &[u8], why: &str| {
            let read = Subject::read(&name(&[&[(COMMON_NAME, 0x0c, b"a")], &[(kind, tag, text)]]));
            assert_eq!(read, Err(why), "{tag:x} {text:x?}");
        };
        for kind in [COMMON_NAME, ORGANIZATION, UID, LOCALITY] {
            check(kind, 0x0c, b"\xff", "invalid UTF-8 string");
            check(kind, 0x13, b"a_b", "invalid PrintableString");
            check(kind, 0x12, b"a", "invalid NumericString");
            check(kind, 0x16, b"\x80", "invalid IA5String");
            check(kind, 0x1e, b"a", "invalid BMPString");
            check(kind, 0x1e, b"\xd8\x00", "invalid BMPString");
            check(kind, 0x1e, b"\xff\xff", "invalid BMPString");
            check(kind, 0x1c, b"\0\0\0a", "unsupported string type");
            check(kind, 0x04, b"a", "unsupported string type");
        }
    }

    #[test]
    fn a_subject_without_uids_is_as_it_stood() {
        let (user, group): (Row<'_>, Row<'_>) = ((COMMON_NAME, 0x13, b"a"), (ORGANIZATION, 0x1e, b"\0b"));
        let uid: Row<'_> = (UID, 0x0c, b"u");
        let check =
            |before: &[&[Row<'_>]], after: &[&[Row<'_>]]| assert_eq!(without_uids(&name(before)), Ok(name(after)));
        check(&[], &[]);
        check(&[&[group, user], &[group]], &[&[group, user], &[group]]);
        check(
            &[&[uid], &[group, uid, user], &[user], &[uid, uid]],
            &[&[group, user], &[user]],
        );
    }
}
