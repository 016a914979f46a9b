//! Types of values, and declarations: types with the sizes that a schema promises.
//!
//! A [`Type`] is the checker's notion. A [`Decl`] is a type as a schema gives it: the same type, plus the most elements
//! that a value may have, from which the cost of a rule is estimated. Both share the [`ObjectType`]s.
//!
//! Invariants: two object types are the same when their names are; names of fields are escaped
//! ([`escape`]), so that each can be written in an expression.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::names::{escape, is_reserved};
use kubewright_values::ListType;
use kubewright_values::budget;

/// A type of the language.
#[derive(Clone, Debug)]
pub enum Type {
    /// `bool`
    Bool,
    /// `int`, 64 bits
    Int,
    /// `uint`, 64 bits
    Uint,
    /// `double`
    Double,
    /// `string`
    String,
    /// `bytes`
    Bytes,
    /// `null_type`
    Null,
    /// Known only at run time.
    Dyn,
    /// The type of an expression that has an error; fits everywhere, so that one mistake is reported once.
    Error,
    /// `google.protobuf.Duration`
    Duration,
    /// `google.protobuf.Timestamp`
    Timestamp,
    /// `list(T)`
    List(Arc<Type>),
    /// `map(K, V)`
    Map(Arc<Type>, Arc<Type>),
    /// An object with declared fields.
    Object(Arc<ObjectType>),
    /// `optional_type(T)`
    Optional(Arc<Type>),
    /// `type`, or `type(T)` where T is known.
    Type(Option<Arc<Type>>),
    /// A type without fields that only functions know: `kubernetes.Quantity`, `kubernetes.URL`, `net.IP`, `net.CIDR`,
    /// `kubernetes.Semver`, `kubernetes.NamedFormat`, `kubernetes.authorization.Authorizer` …
    Opaque(Arc<str>),
    /// A parameter of an overload (`A`), or a variable of the checker (`_var3`).
    Param(Arc<str>),
}

/// An object with declared fields.
#[derive(Clone, Debug)]
pub struct ObjectType {
    /// The name that tells it apart, such as `selfType.spec`.
    pub name: Arc<str>,
    /// The fields by escaped name.
    pub fields: BTreeMap<Arc<str>, Field>,
}

impl ObjectType {
    /// The field that an expression names. A property that is a word of the language (`namespace`) may be written
    /// plainly where a dot tells that it is a field.
    pub fn field(&self, name: &str) -> Option<&Field> {
        let plain = self.fields.get(name);
        plain.or_else(|| self.fields.get(escape(name).filter(|_| is_reserved(name))?.as_str()))
    }
}

/// A field of an object.
#[derive(Clone, Debug)]
pub struct Field {
    /// The name in JSON, not escaped.
    pub json_name: Arc<str>,
    /// The type of its values.
    pub decl: Decl,
    /// The schema requires it.
    pub required: bool,
}

/// A type as a schema declares it.
#[derive(Clone, Debug)]
pub struct Decl {
    /// The type.
    pub ty: Type,
    /// Most characters of a string, bytes of bytes, items of a list, entries of a map; none where a size means nothing.
    pub max_elements: Option<u64>,
    /// Least bytes of a value in JSON.
    pub min_serialized_size: u64,
    /// The items of a list or the values of a map.
    pub items: Option<Arc<Decl>>,
    /// `x-kubernetes-list-type` and its keys (names in JSON), for lists: sets and maps compare and add without order.
    pub list: Option<(ListType, Arc<[String]>)>,
    /// `nullable`: `null` stands for itself. Where false, a field with the value `null` is an absent field.
    pub nullable: bool,
    /// `x-kubernetes-int-or-string`.
    pub int_or_string: bool,
    /// The string holds a date without a time (`format: date`), of the type [`Type::Timestamp`].
    pub date: bool,
}

impl Decl {
    /// A declaration that promises nothing about sizes.
    pub fn new(ty: Type) -> Self {
        let min_serialized_size = match ty {
            Type::String | Type::Bytes | Type::List(_) | Type::Map(..) | Type::Object(_) => 2,
            Type::Bool | Type::Null => 4,
            _ => 1,
        };
        Self {
            ty,
            max_elements: None,
            min_serialized_size,
            items: None,
            list: None,
            nullable: false,
            int_or_string: false,
            date: false,
        }
    }

    /// A list of `items`.
    pub fn list(items: Decl, max_elements: u64) -> Self {
        Self {
            max_elements: Some(max_elements),
            items: Some(Arc::new(items.clone())),
            ..Self::new(Type::list(items.ty))
        }
    }

    /// A map of strings to `values`.
    pub fn map(values: Decl, max_elements: u64) -> Self {
        Self {
            max_elements: Some(max_elements),
            items: Some(Arc::new(values.clone())),
            ..Self::new(Type::map(Type::String, values.ty))
        }
    }

    /// An object with these fields, given by their names in JSON. A name that cannot be escaped is left out.
    ///
    /// ```
    /// use kubewright_cel::{Environment, compile, types::{Decl, Type}};
    ///
    /// // The variables of a policy, each known to those after it.
    /// let variables = Decl::object("kubernetes.variables", [("replicas".to_owned(), Decl::new(Type::Int))]);
    /// let environment = Environment::new()
    ///     .variable("variables", variables)
    ///     .variable("authorizer", Decl::new(Type::opaque("kubernetes.authorization.Authorizer")));
    /// assert!(compile("variables.replicas > 1 && authorizer.path('/x').check('get').allowed()",
    /// &environment).is_ok()); assert!(compile("variables.color == 'red'", &environment).is_err());
    /// ```
    pub fn object<N: AsRef<str>>(name: &str, fields: impl IntoIterator<Item = (N, Decl)>) -> Self {
        let fields = fields.into_iter().filter_map(|(name, decl)| {
            let name = name.as_ref();
            let field = Field {
                json_name: name.into(),
                decl,
                required: false,
            };
            Some((escape(name)?.into(), field))
        });
        Self::new(Type::Object(Arc::new(ObjectType {
            name: name.into(),
            fields: fields.collect(),
        })))
    }

    /// The fields, when it is an object.
    pub fn as_object(&self) -> Option<&Arc<ObjectType>> {
        match &self.ty {
            Type::Object(object) => Some(object),
            _ => None,
        }
    }
}

impl Type {
    /// `list(element)`.
    pub fn list(element: Type) -> Self {
        Self::List(Arc::new(element))
    }

    /// `map(key, value)`.
    pub fn map(key: Type, value: Type) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    /// `optional_type(value)`.
    pub fn optional(value: Type) -> Self {
        Self::Optional(Arc::new(value))
    }

    /// The type of the name of `named`.
    pub fn type_of(named: Type) -> Self {
        Self::Type(Some(Arc::new(named)))
    }

    /// A type that only functions know.
    pub fn opaque(name: &str) -> Self {
        Self::Opaque(name.into())
    }

    /// The name of the type itself, without parameters, as `type(x)` prints at run time: `int`, `list`,
    /// `google.protobuf.Timestamp`, `optional_type`.
    pub fn name(&self) -> &str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Null => "null_type",
            Self::Dyn => "dyn",
            Self::Error => "error",
            Self::Duration => "google.protobuf.Duration",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(..) => "map",
            Self::Object(object) => &object.name,
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Opaque(name) | Self::Param(name) => name,
        }
    }

    /// True for [`Dyn`](Self::Dyn) and [`Error`](Self::Error).
    pub fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }
}

impl PartialEq for Type {
    fn eq(&self, other: &Self) -> bool {
        budget::spend(1);
        match (self, other) {
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a == b,
            (Self::Map(k1, v1), Self::Map(k2, v2)) => k1 == k2 && v1 == v2,
            (Self::Object(a), Self::Object(b)) => a.name == b.name,
            (Self::Type(a), Self::Type(b)) => a == b,
            (Self::Opaque(a), Self::Opaque(b)) | (Self::Param(a), Self::Param(b)) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other) && self.is_simple(),
        }
    }
}

impl Type {
    /// True when the variant says all.
    fn is_simple(&self) -> bool {
        !matches!(
            self,
            Self::List(_)
                | Self::Map(..)
                | Self::Object(_)
                | Self::Optional(_)
                | Self::Type(_)
                | Self::Opaque(_)
                | Self::Param(_)
        )
    }
}

impl fmt::Display for Type {
    /// As the checker's messages name types: `map(string, int)`, `timestamp`, `null`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A type that holds another one twice, which holds another one twice, is short to say in an expression alone.
        budget::spend(4);
        budget::produce(8);
        match self {
            Self::Null => f.write_str("null"),
            Self::Error => f.write_str("!error!"),
            Self::Duration => f.write_str("duration"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::List(element) => write!(f, "list({element})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Optional(value) => write!(f, "optional_type({value})"),
            Self::Type(Some(named)) => write!(f, "type({named})"),
            other => f.write_str(other.name()),
        }
    }
}
