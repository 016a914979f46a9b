//! The inputs, in groups: most are text ([`text`]), the rest is made by code.

mod code;
mod encodings;
mod protobuf;
mod text;

use crate::hostile::input::Input;

/// All groups with their titles.
pub(crate) fn groups() -> Vec<(&'static str, Vec<Input>)> {
    let mut groups: Vec<_> = [
        include_str!("depth.txt"),
        include_str!("width.txt"),
        include_str!("numbers.txt"),
        include_str!("time.txt"),
        include_str!("patches.txt"),
        include_str!("roles.txt"),
        include_str!("schemas.txt"),
        include_str!("policies.txt"),
        include_str!("queries.txt"),
        include_str!("heads.txt"),
        include_str!("kinds.txt"),
        include_str!("macros.txt"),
        include_str!("owners.txt"),
        include_str!("functions.txt"),
        include_str!("products.txt"),
        include_str!("associative.txt"),
        include_str!("reviewed.txt"),
        include_str!("crowds.txt"),
        include_str!("hunted.txt"),
    ]
    .map(text::group)
    .into();
    groups.push(("Protobuf", protobuf::inputs()));
    groups.push(("Encodings and YAML", encodings::inputs()));
    groups.push(("What no text says", code::inputs()));
    // Last, because the longest waits are here: they begin first.
    groups.extend([include_str!("doors.txt"), include_str!("meetings.txt")].map(text::group));
    groups
}
