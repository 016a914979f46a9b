//! The process that started this one, for programs that end with it: the child processes of a killed test run must not
//! stay.

use std::time::Duration;

use rustix::process::{Pid, getppid};

/// How often is looked whether the parent is still there.
const INTERVAL: Duration = Duration::from_millis(200);

/// The process that started this one. Ask for it first of all: it may end at any time.
#[derive(Clone, Copy)]
pub(crate) struct Parent(Option<Pid>);

impl Parent {
    pub(crate) fn now() -> Parent {
        Parent(getppid())
    }

    /// Ends when the parent has ended. The kernel's own signal for that (`PR_SET_PDEATHSIG`) comes when the *thread*
    /// ends that started this process, which in a Go program may be long before.
    pub(crate) async fn gone(self) {
        while getppid() == self.0 {
            tokio::time::sleep(INTERVAL).await;
        }
    }
}
