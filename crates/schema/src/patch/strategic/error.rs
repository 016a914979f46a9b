//! Why a strategic merge patch cannot be applied, in the words of Kubernetes, and the codes of the answers.

/// Why a strategic merge patch cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrategicError {
    /// An item of a list that merges by key lacks the key.
    #[error("map: {item} does not contain declared merge key: {key}")]
    NoMergeKey {
        /// The item, as Go prints a map.
        item: String,
        /// The key that it lacks.
        key: String,
    },
    /// `$setElementOrder/x` does not list the changed items, or in another order.
    #[error("The order in patch list:\n{list}\n doesn't match $setElementOrder list:\n{order}\n")]
    Order {
        /// The patch's items, as Go prints them.
        list: String,
        /// The directive's items, as Go prints them.
        order: String,
    },
    /// `$setElementOrder/x`, or the list that it orders, is no list.
    #[error("expected a []interface {{}}, but received a {0}")]
    OrderType(&'static str),
    /// `$setElementOrder` does not name its list.
    #[error("invalid patch format of setElementOrder list")]
    OrderFormat,
    /// `$deleteFromPrimitiveList` does not name its list.
    #[error("invalid patch format of primitive list")]
    DeleteFormat,
    /// `$setElementOrder/x` orders a field that is not there.
    #[error("unable to find api field in struct {type_} for the json field {field:?}")]
    NoField {
        /// The Go name of the struct.
        type_: String,
        /// The field.
        field: String,
    },
    /// `$setElementOrder/x` orders a field that is not a list.
    #[error("expected slice or array type, but got: struct")]
    NotAList,
    /// `$setElementOrder/x` orders a list that is empty and stays so.
    #[error("no elements in any of the given slices")]
    NothingToOrder,
    /// An item of `$setElementOrder/x` is no map although the list merges by a key.
    #[error("value for key {0} is not a map")]
    OrderItem(usize),
    /// `$retainKeys` is no list, or does not list a key that the patch sets.
    #[error("invalid patch format of retainKeys")]
    Retain,
    /// `$patch` says something that is no directive.
    #[error("unknown patch type: {directive} in map: {map}")]
    Directive {
        /// The directive, as Go prints it with `%s`.
        directive: String,
        /// The map that it stands in, as Go prints it.
        map: String,
    },
    /// `$patch: merge` in an item of a list.
    #[error("merging lists cannot yet be specified in the patch")]
    MergeItem,
    /// Items of the list and of the patch are not all of one type.
    #[error("list element types are not identical: {0}")]
    Types(String),
    /// A list that merges has lists as its items.
    #[error("lists of lists are not supported")]
    ListOfLists,
    /// The patch is no object.
    #[error("a strategic merge patch is an object, not {0}")]
    NotAnObject(String),
}

impl StrategicError {
    /// The code that kube-apiserver answers with: 400 for a malformed directive, 422 for an unsupported one, and 500
    /// for everything else.
    pub fn code(&self) -> u16 {
        match self {
            StrategicError::Retain | StrategicError::OrderFormat | StrategicError::DeleteFormat => 400,
            StrategicError::ListOfLists => 422,
            _ => 500,
        }
    }
}
