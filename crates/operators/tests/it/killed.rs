//! An operator that is gone after one of its writes, and its successor: the write is carried out, its answer is lost, and
//! nothing that the operator sends afterwards arrives.

use std::future::{Future, pending};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kubewright_testing::{Answer, Call, Interceptor, RunningOperator, TestCluster};
use tokio::sync::Notify;

/// Counts the writes of an operator, and kills it after one of them.
pub(crate) struct Killed {
    writes: Arc<AtomicUsize>,
    dead: Arc<Notify>,
    interceptor: Interceptor,
}

impl Killed {
    /// Kills an operator after so many of those writes that count; `usize::MAX` for never.
    pub(crate) fn after(
        cluster: &TestCluster,
        dies_after: usize,
        counts: impl Fn(&Call) -> bool + Send + Sync + 'static,
    ) -> Killed {
        let (writes, dead) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let interceptor = cluster.intercept({
            let (writes, dead) = (writes.clone(), dead.clone());
            move |call| {
                let is_write = !["get", "list", "watch"].contains(&call.verb.as_str()) && counts(call);
                let sent = writes.fetch_add(usize::from(is_write), Ordering::SeqCst) + usize::from(is_write);
                match sent {
                    sent if sent > dies_after || (sent == dies_after && !is_write) => Answer::Unreachable,
                    sent if sent == dies_after => {
                        dead.notify_one();
                        Answer::Lost
                    }
                    _ => Answer::Pass,
                }
            }
        });
        Killed {
            writes,
            dead,
            interceptor,
        }
    }

    /// Plays a life, in which another operator takes the place of the one that is killed. How many writes were sent.
    pub(crate) async fn succeeded(
        self,
        first: RunningOperator,
        successor: impl Future<Output = RunningOperator>,
        life: impl Future<Output = ()>,
    ) -> usize {
        let (interceptor, dead) = (self.interceptor, self.dead);
        let supervised = async {
            dead.notified().await;
            // It cannot say goodbye to anybody.
            let _ = first.stop().await;
            drop(interceptor);
            let _successor = successor.await;
            pending::<()>().await;
        };
        tokio::select! {
            () = supervised => unreachable!("it is pending in the end"),
            () = life => {}
        }
        self.writes.load(Ordering::SeqCst)
    }
}
