//! The commands, one file each.

pub(crate) mod alpha;
pub(crate) mod assets;
pub(crate) mod build_installer;
pub(crate) mod bundle;
pub(crate) mod cluster;
pub(crate) mod completion;
pub(crate) mod controllers;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod demo;
pub(crate) mod deploy;
pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod edit;
pub(crate) mod explain;
pub(crate) mod explore;
pub(crate) mod init;
pub(crate) mod install;
pub(crate) mod manifests;
pub(crate) mod migrate;
pub(crate) mod repair;
pub(crate) mod run;
pub(crate) mod undeploy;
pub(crate) mod uninstall;
pub(crate) mod upgrade;
pub(crate) mod version;
