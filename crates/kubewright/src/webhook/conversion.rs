//! Conversion between the versions of one kind, through a hub.
//!
//! Invariants: objects come back in the order in which they were asked for, and a single one that cannot be converted
//! is named; the metadata is the library's: of the result of the user's conversion only labels and annotations count
//! (W4).

use std::any::type_name;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;

use super::description::{ConversionDescription, Kind};
use crate::error::end_of_panic;
use crate::form::of_json;
use crate::object::Object;

/// The path under which all conversions of an operator are served.
pub(crate) const PATH: &str = "/convert";

/// How the versions of one kind are converted: each through the hub, by `TryFrom` (controller-runtime's hub and spoke).
///
/// Each spoke needs two conversions, to the hub and from it. They convert `spec` and `status`; metadata is carried over
/// by the library, except that labels and annotations may be changed by a conversion which sets `metadata` (to keep in
/// an annotation a value for which the other version has no field).
///
/// ```
/// # mod v1 {
/// #     use kubewright::{kube::CustomResource, schemars::{self, JsonSchema}};
/// #     use serde::{Deserialize, Serialize};
/// #     #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// #     #[kube(group = "webapp.my.domain", version = "v1", kind = "Guestbook", namespaced)]
/// #     #[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "kubewright::k8s_openapi", schemars = "kubewright::schemars"))]
/// #     pub struct GuestbookSpec { pub size: i32 }
/// # }
/// # mod v2 {
/// #     use kubewright::{kube::CustomResource, schemars::{self, JsonSchema}};
/// #     use serde::{Deserialize, Serialize};
/// #     #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// #     #[kube(group = "webapp.my.domain", version = "v2", kind = "Guestbook", namespaced)]
/// #     #[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "kubewright::k8s_openapi", schemars = "kubewright::schemars"))]
/// #     pub struct GuestbookSpec { pub replicas: i32 }
/// # }
/// use kubewright::{Conversion, Operator};
///
/// impl From<v2::Guestbook> for v1::Guestbook {
///     fn from(spoke: v2::Guestbook) -> v1::Guestbook {
///         v1::Guestbook { metadata: spoke.metadata, spec: v1::GuestbookSpec { size: spoke.spec.replicas } }
///     }
/// }
///
/// impl From<v1::Guestbook> for v2::Guestbook {
///     fn from(hub: v1::Guestbook) -> v2::Guestbook {
///         v2::Guestbook { metadata: hub.metadata, spec: v2::GuestbookSpec { replicas: hub.spec.size } }
///     }
/// }
///
/// let operator = Operator::new("guestbook")
///     .crd::<v1::Guestbook>()
///     .crd::<v2::Guestbook>()
///     .conversion(Conversion::hub::<v1::Guestbook>().spoke::<v2::Guestbook>());
/// ```
#[must_use]
pub struct Conversion<H = ()> {
    hub: Option<Kind>,
    spokes: Vec<Spoke<H>>,
}

/// One spoke without its type.
struct Spoke<H> {
    kind: Kind,
    to_hub: fn(Value) -> Result<H, String>,
    from_hub: fn(H) -> Result<Value, String>,
}

impl<H> fmt::Debug for Conversion<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spokes: Vec<&str> = self.spokes.iter().map(|spoke| spoke.kind.rust.as_str()).collect();
        f.debug_struct("Conversion")
            .field("hub", &self.hub.as_ref().map(|hub| &hub.rust))
            .field("spokes", &spokes)
            .finish()
    }
}

impl Conversion {
    /// Conversions of a kind through this version of it. Usually it is the stored version.
    pub fn hub<H: Object>() -> Conversion<H> {
        Conversion {
            hub: Some(Kind::of::<H>()),
            spokes: Vec::new(),
        }
    }
}

impl<H: Object> Conversion<H> {
    /// Adds a version that is converted to the hub and back.
    pub fn spoke<S>(mut self) -> Conversion<H>
    where
        S: Object + TryFrom<H, Error: fmt::Display>,
        H: TryFrom<S, Error: fmt::Display>,
    {
        self.spokes.push(Spoke {
            kind: Kind::of::<S>(),
            to_hub: |object| H::try_from(read::<S>(object)?).map_err(|error| error.to_string()),
            from_hub: |hub| write(&S::try_from(hub).map_err(|error| error.to_string())?),
        });
        self
    }
}

fn read<K: Object>(object: Value) -> Result<K, String> {
    of_json(&object).map_err(|error| format!("it cannot be read as {}: {error}", type_name::<K>()))
}

fn write<K: Object>(object: &K) -> Result<Value, String> {
    serde_json::to_value(object)
        .map_err(|error| format!("the converted {} cannot be written: {error}", type_name::<K>()))
}

/// The conversions of one kind without its types.
pub(crate) trait Convert: Send + Sync {
    /// The hub's group and kind.
    fn kind(&self) -> &Kind;
    fn describe(&self) -> ConversionDescription;
    /// The error in the declaration.
    fn check(&self) -> Result<(), String>;
    /// Converts one object to this `apiVersion`. The error says which object, and why.
    fn convert(&self, object: &Value, to: &str) -> Result<Value, String>;
}

impl<H: Object> Convert for Conversion<H> {
    fn kind(&self) -> &Kind {
        self.hub
            .as_ref()
            .expect("only Conversion::hub makes a conversion of a kind")
    }

    fn describe(&self) -> ConversionDescription {
        ConversionDescription {
            hub: self.kind().clone(),
            spokes: self.spokes.iter().map(|spoke| spoke.kind.clone()).collect(),
        }
    }

    fn check(&self) -> Result<(), String> {
        let hub = self.kind();
        let mut versions = vec![&hub.version];
        for Spoke { kind, .. } in &self.spokes {
            if (&kind.group, &kind.kind) != (&hub.group, &hub.kind) {
                return Err(format!(
                    "{} cannot be a spoke of {}: versions of one kind have the same group and kind",
                    kind.rust, hub.rust
                ));
            }
            if versions.contains(&&kind.version) {
                return Err(format!(
                    "the conversion of {} names version {} twice",
                    hub.kind, kind.version
                ));
            }
            versions.push(&kind.version);
        }
        Ok(())
    }

    fn convert(&self, object: &Value, to: &str) -> Result<Value, String> {
        Conversion::convert(self, object, to)
    }
}

impl<H: Object> Conversion<H> {
    /// Converts one object to another `apiVersion`, as the API server has it converted: through the hub, with its
    /// metadata.
    ///
    /// # Errors
    /// Which object, and why not.
    pub fn convert(&self, object: &Value, to: &str) -> Result<Value, String> {
        let from = text(object, "apiVersion");
        if from == to {
            return Ok(object.clone());
        }
        let converted = catch_unwind(AssertUnwindSafe(|| self.through_hub(object, from, to)))
            .unwrap_or_else(|panic| Err(format!("the conversion panicked: {}", end_of_panic(panic))));
        converted
            .and_then(|converted| finish(object, converted, to))
            .map_err(|why| {
                format!(
                    "cannot convert {} {} from {from} to {to}: {why}",
                    self.kind().kind,
                    name_of(object)
                )
            })
    }

    fn through_hub(&self, object: &Value, from: &str, to: &str) -> Result<Value, String> {
        let hub_version = self.kind().api_version();
        let hub = match from == hub_version {
            true => read::<H>(object.clone())?,
            false => (self.spoke_of(from)?.to_hub)(object.clone())?,
        };
        match to == hub_version {
            true => write(&hub),
            false => (self.spoke_of(to)?.from_hub)(hub),
        }
    }

    fn spoke_of(&self, api_version: &str) -> Result<&Spoke<H>, String> {
        let found = self.spokes.iter().find(|spoke| spoke.kind.api_version() == api_version);
        found.ok_or_else(|| {
            let spokes: Vec<String> = self.spokes.iter().map(|spoke| spoke.kind.api_version()).collect();
            format!(
                "the operator knows {} (the hub) and {}, not {api_version}; add .spoke::<…>() to its conversion (KWR0551)",
                self.kind().api_version(),
                if spokes.is_empty() {
                    "no spokes".to_owned()
                } else {
                    spokes.join(", ")
                }
            )
        })
    }
}

/// Kind, version and metadata of a converted object.
fn finish(original: &Value, mut converted: Value, to: &str) -> Result<Value, String> {
    let Some(object) = converted.as_object_mut() else {
        return Err("the conversion did not return an object".to_owned());
    };
    object.insert("apiVersion".to_owned(), Value::from(to));
    object.insert("kind".to_owned(), original.get("kind").cloned().unwrap_or_default());
    let returned = object.remove("metadata").unwrap_or_default();
    let mut metadata = original.get("metadata").cloned().unwrap_or_default();
    // A conversion that carried the metadata over decides about labels and annotations; one that did not only adds to
    // them.
    let carried = text(&returned, "name") == text(&metadata, "name") && !text(&returned, "name").is_empty();
    if let Some(metadata) = metadata.as_object_mut() {
        for key in ["labels", "annotations"] {
            let new = returned.get(key).filter(|new| !new.is_null()).cloned();
            match (new, carried) {
                (Some(new), true) => {
                    metadata.insert(key.to_owned(), new);
                }
                (None, true) => {
                    metadata.remove(key);
                }
                (Some(Value::Object(new)), false) => {
                    let old = metadata.entry(key).or_insert_with(|| Value::Object(Default::default()));
                    match old.as_object_mut() {
                        Some(old) => old.extend(new),
                        None => *old = Value::Object(new),
                    }
                }
                (_, false) => {}
            }
        }
    }
    object.insert("metadata".to_owned(), metadata);
    Ok(converted)
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// `default/hello`, or as much of it as there is.
pub(super) fn name_of(object: &Value) -> String {
    let metadata = object.get("metadata").unwrap_or(&Value::Null);
    let name = match text(metadata, "name") {
        "" => "(without a name)",
        name => name,
    };
    match text(metadata, "namespace") {
        "" => name.to_owned(),
        namespace => format!("{namespace}/{name}"),
    }
}
