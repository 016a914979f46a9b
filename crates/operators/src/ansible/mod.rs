//! Operators whose reconciler is an Ansible role or playbook, run by `ansible-runner`.

pub mod snake;
pub mod vars;
pub mod watch;
