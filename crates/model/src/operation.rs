//! The operations on an object.

/// An operation on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A changed one.
    Update,
    /// The object is deleted.
    Delete,
    /// A connection to one (`exec`, `proxy`).
    Connect,
}

impl Operation {
    /// As rules and reviews spell it: `CREATE`, `UPDATE`, `DELETE`, `CONNECT`.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}
