//! The built-in types that the cluster's own controllers and nodes read and write.
//!
//! They are those of `k8s-openapi` in names and form, and not its own, whose fields depend on a feature that the user's
//! program chooses: with an older one, a template that passes through a controller would lose what that version does not
//! know. Metadata (`ObjectMeta`, `LabelSelector`, `Time`, …) is the same in all versions, and is k8s-openapi's.
//!
//! Invariants: a type has every field of every version that the cluster serves, which a test compares with the published
//! definitions; a field that no controller looks into is a `Value`; `null` is as if the field were not there.
//! Not here: types that only users need, and validation, which is the API server's.

use std::collections::BTreeMap;
use std::fmt;

use kubewright::k8s_openapi::ByteString;
use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kubewright::k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kubewright::k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::de::{DeserializeSeed, Deserializer, Error, Visitor};

/// What a field is called in JSON: its name in Rust, or what is written beside it.
macro_rules! key {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $key:literal) => {
        $key
    };
}

/// Types from a table: `Name { field "jsonKey": Type, … }`, and for a kind `Name is Scope "apiVersion" "group" "version"
/// "plural"`.
macro_rules! types {
    ($($name:ident $(is $scope:ident $api_version:literal $group:literal $version:literal $plural:literal)? {
        $($field:ident $($key:literal)?: $type:ty),* $(,)?
    })*) => { $(
        #[doc = concat!("`", stringify!($name), "`, as Kubernetes documents it.")]
        #[derive(Clone, Debug, Default, PartialEq)]
        #[allow(missing_docs, reason = "Kubernetes documents the fields")]
        pub struct $name { $(pub $field: $type),* }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                #[allow(non_camel_case_types, reason = "named as the fields are")]
                enum Place { $($field),* }
                const KEYS: &[&str] = &[$($crate::api::key!($field $($key)?)),*];
                struct Fields;
                impl<'de> serde::de::Visitor<'de> for Fields {
                    type Value = $name;

                    fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        to.write_str(stringify!($name))
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<$name, A::Error> {
                        let mut object = $name::default();
                        while let Some(place) = map.next_key_seed($crate::api::Key(KEYS))? {
                            $(if place == Some(Place::$field as usize) {
                                object.$field = map.next_value::<Option<$type>>()?.unwrap_or_default();
                                continue;
                            })*
                            map.next_value::<serde::de::IgnoredAny>()?;
                        }
                        Ok(object)
                    }
                }
                deserializer.deserialize_struct(stringify!($name), KEYS, Fields)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap as _;
                let mut map = serializer.serialize_map(None)?;
                $(
                    map.serialize_entry("apiVersion", $api_version)?;
                    map.serialize_entry("kind", stringify!($name))?;
                )?
                $(if $crate::api::Given::is_given(&self.$field) {
                    map.serialize_entry($crate::api::key!($field $($key)?), &self.$field)?;
                })*
                map.end()
            }
        }

        impl $crate::api::Given for $name {}

        $(
            impl kubewright::k8s_openapi::Resource for $name {
                const API_VERSION: &'static str = $api_version;
                const GROUP: &'static str = $group;
                const KIND: &'static str = stringify!($name);
                const VERSION: &'static str = $version;
                const URL_PATH_SEGMENT: &'static str = $plural;
                type Scope = kubewright::k8s_openapi::$scope;
            }

            impl kubewright::k8s_openapi::Metadata for $name {
                type Ty = kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

                fn metadata(&self) -> &Self::Ty {
                    &self.metadata
                }

                fn metadata_mut(&mut self) -> &mut Self::Ty {
                    &mut self.metadata
                }
            }
        )?
    )* };
}
pub(crate) use key;

mod groups;
mod workloads;

pub use groups::*;
pub use workloads::*;

/// Types of the group without a name.
pub mod core {
    pub mod v1;
}

/// Which of these keys comes next; none for a key that the type does not have.
struct Key(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Option<usize>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Option<usize>, E> {
        Ok(self.0.iter().position(|key| *key == name))
    }
}

/// Whether a field is written: all are but an `Option` without a value.
trait Given {
    fn is_given(&self) -> bool {
        true
    }
}

impl<T> Given for Option<T> {
    fn is_given(&self) -> bool {
        self.is_some()
    }
}

impl<T> Given for Vec<T> {}
impl<K, V> Given for BTreeMap<K, V> {}
impl Given for String {}
impl Given for bool {}
impl Given for i32 {}
impl Given for i64 {}
impl Given for ByteString {}
impl Given for IntOrString {}
impl Given for LabelSelector {}
impl Given for ObjectMeta {}
impl Given for Quantity {}
impl Given for RawExtension {}

#[cfg(test)]
mod tests;
