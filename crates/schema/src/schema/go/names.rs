//! How Go's decoder names a field whose value has the wrong type: the type of the field, and the structs on the way to
//! it that are embedded in others. Neither is in the OpenAPI; the needed part of both is in `data/go-names.txt`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::table::table;

static TABLE: &str = include_str!("../../../data/go-names.txt");

/// Go's names of the fields of one type.
#[derive(Debug, Default)]
pub(crate) struct Names {
    types: BTreeMap<&'static str, &'static str>,
    embedded: BTreeMap<&'static str, &'static str>,
}

impl Names {
    /// The type of a field, as `reflect` prints it, where the schema does not tell it.
    pub(crate) fn type_of(&self, field: &str) -> Option<&'static str> {
        self.types.get(field).copied()
    }

    /// The embedded struct that a field is in, with dots where it is itself embedded.
    pub(crate) fn embedding(&self, field: &str) -> Option<&'static str> {
        self.embedded.get(field).copied()
    }
}

/// The table's names for a definition.
pub(crate) fn names(definition: &str) -> Option<&'static Names> {
    static NAMES: LazyLock<BTreeMap<String, Names>> =
        LazyLock::new(|| table(TABLE, read).expect("the table's test reads it"));
    NAMES.get(definition)
}

/// The type of an item of a list or of a value of a map of this type.
pub(crate) fn part(type_: &str) -> Option<&str> {
    let part = match type_.strip_prefix("map[") {
        Some(map) => map.split_once(']').map(|(_, values)| values),
        None => type_.strip_prefix("[]"),
    };
    part.map(|part| part.trim_start_matches('*'))
}

fn read(groups: &mut dyn Iterator<Item = &'static str>) -> Result<Names, String> {
    let mut names = Names::default();
    for group in groups {
        let mut words = group.split(' ');
        match (words.next(), words) {
            (Some("type"), fields) => names.types.extend(fields.filter_map(|field| field.split_once('='))),
            (Some("in"), mut fields) => {
                let embedded = fields.next().ok_or("in nothing")?;
                names.embedded.extend(fields.map(|field| (field, embedded)));
            }
            (word, _) => return Err(format!("unknown word {word:?}")),
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::super::table::check_names;
    use super::*;

    #[test]
    fn the_table_names_what_exists() {
        let table = table(TABLE, read).expect("well-formed");
        check_names(&table, |names| {
            names.types.keys().chain(names.embedded.keys()).copied().collect()
        });
    }
}
