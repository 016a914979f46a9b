//! The inputs, in groups.

mod associative;
mod crowds;
mod depth;
mod doors;
mod encodings;
mod functions;
mod heads;
mod hunted;
mod kinds;
mod macros;
mod meetings;
mod numbers;
mod owners;
mod patches;
mod policies;
mod products;
mod protobuf;
mod queries;
mod reviewed;
mod roles;
mod schemas;
mod time;
mod width;

use crate::hostile::input::Input;

/// All groups with their titles.
pub(crate) fn groups() -> Vec<(&'static str, Vec<Input>)> {
    vec![
        ("Depth", depth::inputs()),
        ("Width and long strings", width::inputs()),
        ("Numbers and quantities", numbers::inputs()),
        ("Time", time::inputs()),
        ("Patches and apply", patches::inputs()),
        ("Roles", roles::inputs()),
        ("Definitions and their objects", schemas::inputs()),
        ("Expressions and admission policies", policies::inputs()),
        ("Protobuf", protobuf::inputs()),
        ("Encodings and YAML", encodings::inputs()),
        ("Selectors, pages and watches", queries::inputs()),
        ("Heads of requests and frames of bodies", heads::inputs()),
        ("Kinds, reviews and subresources", kinds::inputs()),
        ("Macros and functions that multiply", macros::inputs()),
        ("Owners of fields, directives and odd reads", owners::inputs()),
        ("Functions of expressions", functions::inputs()),
        ("Lists that meet lists", products::inputs()),
        ("Sets, maps and who owns them", associative::inputs()),
        ("What reviews found, and what is near to it", reviewed::inputs()),
        ("Many clients, and much that is there", crowds::inputs()),
        ("Doors that are seldom used", doors::inputs()),
        ("What a hunt from outside found", hunted::inputs()),
        ("Answers of others, and much that waits", meetings::inputs()),
    ]
}
