//! Tries conversions between two versions of a kind on random objects.
//!
//! A conversion that loses a field is found late otherwise: when a client writes through one version a value that only
//! the other has. The objects are made out of the CRDs' schemas (`random.rs`), so they know every field, and texts fit
//! their patterns (`pattern.rs`). Invariant: the same types give the same objects, so a failing test fails again.
//!
//! Not here: CEL rules. An object may break one; a conversion that refuses such an object is reported all the same.

mod pattern;
mod random;

use std::fmt;

use kubewright::kube::CustomResourceExt;
use kubewright::webhook::Kind;
use kubewright::{Conversion, Object};
use serde_json::{Value, json};

use random::Random;

/// How many objects [`check_round_trip`] tries in each direction.
const OBJECTS: u32 = 300;
/// How many smaller objects are tried to find a small one that shows the loss.
const SHRINKING: u32 = 2_000;

/// Converts random objects of each version to the other and back, and panics with the first field that changed.
///
/// A value that one version does not have must be kept somewhere: in an annotation, which a conversion may set.
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
/// #     pub struct GuestbookSpec { pub pages: i32 }
/// # }
/// # impl From<v2::Guestbook> for v1::Guestbook {
/// #     fn from(v2: v2::Guestbook) -> Self { v1::Guestbook { metadata: v2.metadata, spec: v1::GuestbookSpec { size: v2.spec.pages } } }
/// # }
/// # impl From<v1::Guestbook> for v2::Guestbook {
/// #     fn from(v1: v1::Guestbook) -> Self { v2::Guestbook { metadata: v1.metadata, spec: v2::GuestbookSpec { pages: v1.spec.size } } }
/// # }
/// // #[test]
/// fn v1_and_v2_hold_the_same() {
///     kubewright_testing::conversion::check_round_trip::<v1::Guestbook, v2::Guestbook>();
/// }
/// # v1_and_v2_hold_the_same();
/// ```
///
/// # Panics
/// With a [`Loss`] in words.
pub fn check_round_trip<Hub, Spoke>()
where
    Hub: Object + CustomResourceExt + TryFrom<Spoke, Error: fmt::Display>,
    Spoke: Object + CustomResourceExt + TryFrom<Hub, Error: fmt::Display>,
{
    if let Err(loss) = find_loss::<Hub, Spoke>(OBJECTS) {
        panic!("{loss}");
    }
}

/// A wrong effect of a conversion on an object.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Loss {
    /// The versions in the order in which the object went through them.
    pub way: [String; 3],
    /// The problem.
    pub what: Problem,
    /// An object that shows it, made as small as was found.
    pub object: Value,
}

/// The problem of an object on its way.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Problem {
    /// A field came back as another.
    Changed {
        /// Its path, such as `spec.title`.
        field: String,
        /// The value before; `None` when there was none.
        before: Option<Value>,
        /// The value after; `None` when it is gone.
        after: Option<Value>,
    },
    /// A conversion refused.
    Refused(String),
    /// No object of the type could be made out of its schema: the type cannot read most of the objects that the schema
    /// allows.
    NoObjects(String),
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = self.way.join(" -> ");
        let shown = |value: &Option<Value>| value.as_ref().map_or("nothing".to_owned(), Value::to_string);
        match &self.what {
            Problem::Changed { field, before, after } => {
                write!(f, "{way} loses {field}: {} became {}", shown(before), shown(after))?;
                f.write_str("\n  keep it in an annotation when the other version has no field for it")?;
            }
            Problem::Refused(why) => {
                write!(f, "{way}: {why}")?;
                f.write_str("\n  when there can be no such object, let the schema say so (a pattern, a range)")?;
            }
            Problem::NoObjects(why) => {
                write!(f, "{way}: {why}")?;
                f.write_str("\n  let the schema say what the type can read (a pattern, a format, a range)")?;
            }
        }
        write!(f, "\n  object: {}", self.object)
    }
}

impl std::error::Error for Loss {}

/// As [`check_round_trip`], with a number of objects, and the loss as a value.
///
/// # Errors
/// The first [`Loss`], of the hub's objects or else of the spoke's.
pub fn find_loss<Hub, Spoke>(objects: u32) -> Result<(), Box<Loss>>
where
    Hub: Object + CustomResourceExt + TryFrom<Spoke, Error: fmt::Display>,
    Spoke: Object + CustomResourceExt + TryFrom<Hub, Error: fmt::Display>,
{
    let conversion = Conversion::hub::<Hub>().spoke::<Spoke>();
    let (hub, spoke) = (Kind::of::<Hub>(), Kind::of::<Spoke>());
    there_and_back::<Hub, Hub>(&conversion, &hub, &spoke, objects)?;
    there_and_back::<Spoke, Hub>(&conversion, &spoke, &hub, objects)
}

/// Random objects of `K` to the other version and back.
fn there_and_back<K, H>(conversion: &Conversion<H>, from: &Kind, through: &Kind, objects: u32) -> Result<(), Box<Loss>>
where
    K: Object + CustomResourceExt,
    H: Object,
{
    let (home, away) = (from.api_version(), through.api_version());
    let way = || [&from.version, &through.version, &from.version].map(String::clone);
    let trip = |object: &Value| -> Option<Problem> {
        let back = conversion
            .convert(object, &away)
            .and_then(|converted| conversion.convert(&converted, &home));
        match back {
            Err(why) => Some(Problem::Refused(why)),
            Ok(back) => difference(object, &back, ""),
        }
    };
    let mut random = Random::new(&from.rust);
    let mut unreadable = Vec::new();
    for _ in 0..objects {
        let sample = sample(from, &K::crd_schema(), &mut random);
        let Ok(object) = as_type_sees::<K>(sample.clone()) else {
            unreadable.push(sample);
            continue;
        };
        if let Some(problem) = trip(&object) {
            let (object, what) = shrink::<K>(object, problem, &trip);
            return Err(Box::new(Loss {
                way: way(),
                what,
                object,
            }));
        }
    }
    match unreadable.last() {
        Some(last) if unreadable.len() * 2 > objects as usize => {
            let (object, why) = shrink_unreadable::<K>(last.clone());
            Err(Box::new(Loss {
                way: way(),
                what: Problem::NoObjects(format!(
                    "{} of {objects} objects that the schema allows cannot be read as {}; the one below because: {why}",
                    unreadable.len(),
                    from.rust
                )),
                object,
            }))
        }
        _ => Ok(()),
    }
}

/// The schema of a type's only version.
trait Schema {
    fn crd_schema() -> Value;
}

impl<K: CustomResourceExt> Schema for K {
    fn crd_schema() -> Value {
        let version = K::crd().spec.versions.into_iter().next();
        let schema = version.and_then(|version| version.schema?.open_api_v3_schema);
        schema.map(|schema| json!(schema)).unwrap_or_default()
    }
}

/// A random object of a kind.
fn sample(kind: &Kind, schema: &Value, random: &mut Random) -> Value {
    let mut object = random.value(schema);
    let mut metadata = json!({
        "name": "sample", "uid": "8f3a4c5e-0000-4000-8000-000000000001",
        "labels": {"app": "sample"}, "annotations": {"note": "kept"},
    });
    if kind.namespaced {
        metadata["namespace"] = json!("default");
    }
    if !object.is_object() {
        object = json!({});
    }
    object["apiVersion"] = json!(kind.api_version());
    object["kind"] = json!(kind.kind);
    object["metadata"] = metadata;
    object
}

/// The object as its Rust type writes it: fields that are left out, empty or unknown to the type are no concern of a
/// conversion.
fn as_type_sees<K: Object>(object: Value) -> Result<Value, String> {
    let typed: K = serde_json::from_value(object).map_err(|error| error.to_string())?;
    serde_json::to_value(&typed).map_err(|error| error.to_string())
}

/// The first field that differs. Labels and annotations may be added on the way.
fn difference(before: &Value, after: &Value, path: &str) -> Option<Problem> {
    let changed = |before: Option<&Value>, after: Option<&Value>, path: String| {
        Some(Problem::Changed {
            field: path,
            before: before.cloned(),
            after: after.cloned(),
        })
    };
    match (before, after) {
        _ if before == after => None,
        (Value::Object(old), Value::Object(new)) => {
            let below = |key: &str| match path {
                "" => key.to_owned(),
                path => format!("{path}.{key}"),
            };
            for (key, value) in old {
                let found = match new.get(key) {
                    Some(other) => difference(value, other, &below(key)),
                    None => changed(Some(value), None, below(key)),
                };
                if found.is_some() {
                    return found;
                }
            }
            let may_grow = ["metadata.annotations", "metadata.labels"].contains(&path);
            let added = new.iter().find(|(key, _)| !may_grow && !old.contains_key(*key));
            added.and_then(|(key, value)| changed(None, Some(value), below(key)))
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => old
            .iter()
            .zip(new)
            .enumerate()
            .find_map(|(index, (old, new))| difference(old, new, &format!("{path}[{index}]"))),
        _ => changed(Some(before), Some(after), path.to_owned()),
    }
}

/// A small object that the type cannot read, which shows the field, and why.
fn shrink_unreadable<K: Object>(mut object: Value) -> (Value, String) {
    let why = |object: &Value| as_type_sees::<K>(object.clone()).err();
    let mut reason = why(&object).unwrap_or_default();
    let mut left = SHRINKING;
    loop {
        let smaller = random::smaller(&object)
            .into_iter()
            .take(left as usize)
            .find_map(|candidate| {
                left = left.saturating_sub(1);
                let still = why(&candidate).filter(|why| !why.starts_with("missing field"))?;
                (candidate != object).then_some((candidate, still))
            });
        match smaller {
            Some(found) => (object, reason) = found,
            None => return (object, reason),
        }
    }
}

/// A smaller object with the same kind of problem.
fn shrink<K: Object>(
    mut object: Value,
    mut problem: Problem,
    trip: &dyn Fn(&Value) -> Option<Problem>,
) -> (Value, Problem) {
    let mut left = SHRINKING;
    loop {
        let smaller = random::smaller(&object)
            .into_iter()
            .take(left as usize)
            .find_map(|candidate| {
                left = left.saturating_sub(1);
                let candidate = as_type_sees::<K>(candidate)
                    .ok()
                    .filter(|candidate| *candidate != object)?;
                let found = trip(&candidate)?;
                let alike = matches!((&found, &problem), (Problem::Refused(_), Problem::Refused(_)))
                    || matches!((&found, &problem), (Problem::Changed { .. }, Problem::Changed { .. }));
                alike.then_some((candidate, found))
            });
        match smaller {
            Some((candidate, found)) => (object, problem) = (candidate, found),
            None => return (object, problem),
        }
    }
}
