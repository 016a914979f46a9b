//! Types that say nothing in their schema, because Go reads and writes them with code of their own.

use super::SchemaRef;

/// Types that Kubernetes reads and writes with code of their own, so that their schema says little or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    /// RFC 3339, written in UTC without fractions.
    Time,
    /// RFC 3339, written in UTC with six digits of a second.
    MicroTime,
    /// A number with a unit.
    Quantity,
    /// An `int32` or a string.
    IntOrString,
    /// Anything: `JSON`, `RawExtension`, `FieldsV1`.
    Free,
    /// A schema or a boolean, a schema or a list of them, a schema or a list of strings.
    SchemaOr(&'static str),
}

impl Special {
    /// The special type of a definition, by its name in the catalog.
    pub(crate) fn named(definition: &'static str) -> Option<Special> {
        Some(match definition.rsplit('.').next()? {
            "Time" => Special::Time,
            "MicroTime" => Special::MicroTime,
            "Quantity" => Special::Quantity,
            "IntOrString" => Special::IntOrString,
            "JSON" | "RawExtension" | "FieldsV1" | "Patch" => Special::Free,
            name @ ("JSONSchemaPropsOrBool" | "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrStringArray") => {
                Special::SchemaOr(name)
            }
            _ => return None,
        })
    }
}

/// Which of them a schema is.
pub(crate) fn special(schema: &SchemaRef) -> Option<Special> {
    schema.get().special
}
