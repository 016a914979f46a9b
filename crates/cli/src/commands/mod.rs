//! The commands, one file each.

pub(crate) mod build_installer;
pub(crate) mod cluster;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod demo;
pub(crate) mod deploy;
pub(crate) mod dev;
pub(crate) mod edit;
pub(crate) mod init;
pub(crate) mod install;
pub(crate) mod undeploy;
pub(crate) mod uninstall;
pub(crate) mod version;
