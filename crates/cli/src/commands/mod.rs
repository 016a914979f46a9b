//! The commands, one file each.

pub(crate) mod cluster;
pub(crate) mod completion;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod demo;
pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod edit;
pub(crate) mod explain;
pub(crate) mod init;
pub(crate) mod run;
pub(crate) mod version;
