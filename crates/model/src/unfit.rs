//! Why an object that a patch or a plugin left is not one of its kind.

use super::status::Status;

/// Why a patched object is not one of its kind.
pub enum Unfit {
    /// It cannot be read; the error of the decoder.
    Unreadable(String),
    /// It can, and is refused.
    Refused(Status),
}

impl Unfit {
    /// The answer to a request whose plugins left such an object.
    pub fn into_status(self) -> Status {
        match self {
            Unfit::Unreadable(why) => Status::internal(&why),
            Unfit::Refused(status) => status,
        }
    }

    /// The error's text.
    pub fn into_text(self) -> String {
        match self {
            Unfit::Unreadable(why) => why,
            Unfit::Refused(status) => status.message,
        }
    }
}

impl From<String> for Unfit {
    fn from(why: String) -> Unfit {
        Unfit::Unreadable(why)
    }
}
