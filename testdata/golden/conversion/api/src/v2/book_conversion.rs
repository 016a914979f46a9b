//! Book `v2` to and from `v1`, through which all versions are converted.
//!
//! No data may be lost in a round trip: keep in an annotation what a version has no field for. `tests/it/book_v2_conversion.rs` proves it.

use crate::v1;
use crate::v2;

/// Where `v1` keeps what only `v2` can say.
const SUBTITLE: &str = "shelf.my.domain/subtitle";

impl TryFrom<v2::Book> for v1::Book {
    type Error = String;

    fn try_from(spoke: v2::Book) -> Result<Self, Self::Error> {
        let mut metadata = spoke.metadata;
        if let Some(subtitle) = spoke.spec.subtitle {
            let annotations = metadata.annotations.get_or_insert_default();
            annotations.insert(SUBTITLE.to_owned(), subtitle);
        }
        Ok(v1::Book {
            metadata,
            spec: v1::BookSpec {
                foo: spoke.spec.foo,
            },
            status: spoke.status.map(|status| v1::BookStatus {
                conditions: status.conditions,
            }),
        })
    }
}

impl TryFrom<v1::Book> for v2::Book {
    type Error = String;

    fn try_from(hub: v1::Book) -> Result<Self, Self::Error> {
        let mut metadata = hub.metadata;
        let annotations = metadata.annotations.as_mut();
        let subtitle = annotations.and_then(|annotations| annotations.remove(SUBTITLE));
        metadata.annotations = metadata.annotations.filter(|left| !left.is_empty());
        Ok(v2::Book {
            metadata,
            spec: v2::BookSpec {
                foo: hub.spec.foo,
                subtitle,
            },
            status: hub.status.map(|status| v2::BookStatus {
                conditions: status.conditions,
            }),
        })
    }
}
