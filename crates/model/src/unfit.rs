//! Why an object that a patch or a plugin left is not one of its kind.

use kubewright_schema::structural::TypeError;

use super::status::Status;

/// Why a patched object is not one of its kind.
pub enum Unfit {
    /// It cannot be read; the error of the decoder.
    Unreadable(TypeError),
    /// It has doubled or unknown fields, and the client asked for none; the error of the strict decoder.
    Strict(String),
    /// It can, and is refused.
    Refused(Status),
}

impl Unfit {
    /// The answer to a request whose plugins left such an object.
    pub fn into_status(self) -> Status {
        match self {
            Unfit::Unreadable(why) => Status::internal(&why.to_string()),
            Unfit::Strict(why) => Status::internal(&why),
            Unfit::Refused(status) => status,
        }
    }

    /// The error for an object that is decoded where no request is answered.
    pub fn into_error(self) -> TypeError {
        match self {
            Unfit::Unreadable(error) => error,
            Unfit::Strict(why) => why.into(),
            Unfit::Refused(status) => status.message.into(),
        }
    }
}

impl<E: Into<TypeError>> From<E> for Unfit {
    fn from(error: E) -> Unfit {
        Unfit::Unreadable(error.into())
    }
}
