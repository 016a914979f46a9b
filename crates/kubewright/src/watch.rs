//! A value that tasks wait for: tokio's `watch` channel, whose waiters are woken in the order in which they came.
//!
//! Tokio wakes those of its own channel in an order of chance, for throughput on many threads; with it a run in virtual
//! time is not the same twice.

use std::sync::Arc;

pub(crate) use tokio::sync::watch::error::RecvError;
use tokio::sync::{Notify, watch};

/// Writes the value.
#[derive(Debug)]
pub(crate) struct Sender<T> {
    // Dropped before the waiters are told, so that they see it.
    inner: watch::Sender<T>,
    wake: Wake,
}

/// Reads the value, and knows which one it has seen.
#[derive(Clone, Debug)]
pub(crate) struct Receiver<T> {
    inner: watch::Receiver<T>,
    wake: Arc<Notify>,
}

#[derive(Debug)]
struct Wake(Arc<Notify>);

impl Drop for Wake {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

pub(crate) fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

impl<T> Sender<T> {
    pub(crate) fn new(value: T) -> Sender<T> {
        Sender {
            inner: watch::Sender::new(value),
            wake: Wake(Arc::default()),
        }
    }

    pub(crate) fn subscribe(&self) -> Receiver<T> {
        Receiver {
            inner: self.inner.subscribe(),
            wake: self.wake.0.clone(),
        }
    }

    pub(crate) fn borrow(&self) -> watch::Ref<'_, T> {
        self.inner.borrow()
    }

    pub(crate) fn send_replace(&self, value: T) -> T {
        let before = self.inner.send_replace(value);
        self.wake.0.notify_waiters();
        before
    }

    pub(crate) fn send_modify(&self, modify: impl FnOnce(&mut T)) {
        self.inner.send_modify(modify);
        self.wake.0.notify_waiters();
    }

    pub(crate) fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
        let modified = self.inner.send_if_modified(modify);
        if modified {
            self.wake.0.notify_waiters();
        }
        modified
    }
}

impl<T> Receiver<T> {
    pub(crate) fn borrow(&self) -> watch::Ref<'_, T> {
        self.inner.borrow()
    }

    pub(crate) fn borrow_and_update(&mut self) -> watch::Ref<'_, T> {
        self.inner.borrow_and_update()
    }

    /// Whether the sender is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.inner.has_changed().is_err()
    }

    /// Resolves when there is a value that was not seen; fails when there is none and will be none.
    pub(crate) async fn changed(&mut self) -> Result<(), RecvError> {
        let Receiver { inner, wake } = self;
        loop {
            let woken = wake.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            // In this order: what is sent before the end is seen.
            let closed = inner.has_changed();
            if inner.borrow_and_update().has_changed() {
                return Ok(());
            }
            closed?;
            woken.await;
        }
    }

    /// Resolves to the first value from now on that is `wanted`; fails when there will be none.
    pub(crate) async fn wait_for(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Result<T, RecvError>
    where
        T: Clone,
    {
        let Receiver { inner, wake } = self;
        loop {
            let woken = wake.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            let closed = inner.has_changed();
            let found = {
                let value = inner.borrow_and_update();
                wanted(&value).then(|| value.clone())
            };
            if let Some(found) = found {
                return Ok(found);
            }
            closed?;
            woken.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[tokio::test]
    async fn waiters_are_woken_in_their_order() {
        let (sender, receiver) = channel(0);
        let order: Arc<Mutex<Vec<usize>>> = Arc::default();
        let tasks: Vec<_> = (0..50)
            .map(|number| {
                let (mut receiver, order) = (receiver.clone(), order.clone());
                tokio::spawn(async move {
                    assert!(receiver.wait_for(|value| *value == 2).await.is_ok());
                    order.lock().expect("no panic").push(number);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        sender.send_replace(1);
        tokio::task::yield_now().await;
        sender.send_modify(|value| *value = 2);
        for task in tasks {
            task.await.expect("no panic");
        }
        assert_eq!(*order.lock().expect("no panic"), (0..50).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn the_end_is_seen_after_the_last_value() {
        let (sender, mut receiver) = channel(0);
        let mut waiting = receiver.clone();
        let waits = tokio::spawn(async move { waiting.wait_for(|value| *value == 9).await.is_err() });
        tokio::task::yield_now().await;
        assert!(!sender.send_if_modified(|_| false));
        sender.send_replace(1);
        drop(sender);
        assert!(receiver.changed().await.is_ok(), "the last value");
        assert!(receiver.changed().await.is_err() && receiver.is_closed());
        assert!(
            receiver.wait_for(|value| *value == 1).await.is_ok(),
            "a value that is there"
        );
        assert!(waits.await.expect("no panic"));
    }
}
