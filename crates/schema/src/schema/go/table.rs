//! The tables in `data` about built-in types, a line for each.
//!
//! `[prefix]` opens a section, whose lines are about the definitions `prefix.NAME`; a line is `NAME group, group …`;
//! `#` begins a comment. Not here: the meaning of the groups. Each table has a reader of its own.

use std::collections::BTreeMap;

/// Reads a table; `read` makes something of the groups of a line.
///
/// # Errors
/// The error of `read`, or that a definition stands twice, with the line.
pub(crate) fn table<T>(
    text: &'static str,
    read: impl Fn(&mut dyn Iterator<Item = &'static str>) -> Result<T, String>,
) -> Result<BTreeMap<String, T>, String> {
    let mut found = BTreeMap::new();
    let mut prefix = "";
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            prefix = section;
            continue;
        }
        let (name, groups) = line.split_once(' ').unwrap_or((line, ""));
        let mut groups = groups.split(", ").filter(|group| !group.is_empty());
        let about = read(&mut groups).map_err(|why| format!("{why}: {line}"))?;
        if found.insert(format!("{prefix}.{name}"), about).is_some() {
            return Err(format!("it stands twice: {line}"));
        }
    }
    Ok(found)
}

/// Checks that the definitions of a table exist, and the fields that its lines name.
#[cfg(test)]
pub(crate) fn check_names<T>(table: &BTreeMap<String, T>, fields: impl Fn(&T) -> Vec<&'static str>) {
    assert!(table.len() > 100, "{} lines", table.len());
    for (name, about) in table {
        let of = |minor| crate::schema::catalog::of(minor).definition(name);
        let schemas: Vec<_> = crate::Minor::ALL.into_iter().filter_map(of).collect();
        assert!(!schemas.is_empty(), "{name} is no definition");
        for field in fields(about) {
            let has = schemas.iter().any(|schema| schema.properties.contains_key(field));
            assert!(has, "{name} has no field {field}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_mistakes_told() {
        let count = |groups: &mut dyn Iterator<Item = &'static str>| match groups.count() {
            3 => Err("too much".to_owned()),
            count => Ok(count),
        };
        let read = |text| table(text, count);
        let found = [("a.B".to_owned(), 2), ("a.C".to_owned(), 0)];
        assert_eq!(read("# x\n[a]\n\nB x y, z\nC"), Ok(BTreeMap::from(found)));
        assert_eq!(read("[a]\nB x\nB y"), Err("it stands twice: B y".to_owned()));
        assert_eq!(read("[a]\nB x, y, z"), Err("too much: B x, y, z".to_owned()));
    }
}
