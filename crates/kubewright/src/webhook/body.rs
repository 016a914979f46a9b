//! Reading the body of a request within bounds of size and of memory.
//!
//! Idea: a body holds memory of a common budget as it arrives, block by block, and keeps it until its request is
//! answered. A client that announces much and sends little holds little. When the budget is used up, readers wait until
//! others are answered, or until their deadline.
//!
//! Invariants: no body is longer than its limit; all bodies together hold no more than the budget and one free block
//! for each.
//!
//! Not here: deadlines, they are the server's.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Incoming};
use kube::core::Status;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The unit of the budget, and the bytes that each body may hold without asking.
const BLOCK: usize = 64 << 10;

/// The memory that bodies share.
#[derive(Clone)]
pub(super) struct Budget(Arc<Semaphore>);

impl Budget {
    pub(super) fn new(bytes: usize) -> Budget {
        Budget(Arc::new(Semaphore::new(bytes / BLOCK)))
    }

    /// Reads a body of at most `limit` bytes. Its part of the budget is given back when the second part is dropped.
    pub(super) async fn read(
        &self,
        body: Incoming,
        limit: usize,
    ) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Status> {
        self.read_any(body, limit).await
    }

    async fn read_any<B>(&self, mut body: B, limit: usize) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Status>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let too_large = || {
            let message = format!("request entity is too large; limit is {limit} bytes");
            Status::failure(&message, "RequestEntityTooLarge").with_code(413)
        };
        if body.size_hint().lower() > limit as u64 {
            return Err(too_large());
        }
        let mut held: Option<OwnedSemaphorePermit> = None;
        let mut read: Vec<u8> = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                Status::failure(&format!("cannot read the body: {error}"), "BadRequest").with_code(400)
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if read.len() + data.len() > limit {
                return Err(too_large());
            }
            self.hold(&mut held, read.len() + data.len()).await?;
            read.extend_from_slice(&data);
        }
        Ok((read.into(), held))
    }

    /// Takes as much of the budget as `bytes` need.
    async fn hold(&self, held: &mut Option<OwnedSemaphorePermit>, bytes: usize) -> Result<(), Status> {
        let blocks = bytes.saturating_sub(1) / BLOCK;
        let more = blocks.saturating_sub(held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits));
        if more == 0 {
            return Ok(());
        }
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let permit =
            self.0.clone().acquire_many_owned(more).await.map_err(|closed| {
                Status::failure(&format!("the server ends: {closed}"), "InternalError").with_code(500)
            })?;
        match held {
            Some(held) => held.merge(permit),
            None => *held = Some(permit),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;

    async fn read(budget: &Budget, bytes: usize, limit: usize) -> Result<(Bytes, Option<OwnedSemaphorePermit>), u16> {
        let body = Full::new(Bytes::from(vec![b'x'; bytes]));
        budget.read_any(body, limit).await.map_err(|status| status.code)
    }

    #[tokio::test]
    async fn bodies_hold_the_budget_until_they_are_answered() {
        let budget = Budget::new(4 * BLOCK);
        let (small, free) = read(&budget, BLOCK, BLOCK).await.expect("it is small");
        assert!(small.len() == BLOCK && free.is_none());
        let large = read(&budget, 4 * BLOCK, 4 * BLOCK).await.expect("it fits");
        assert_eq!(budget.0.available_permits(), 1);
        let mut waiting = Box::pin(read(&budget, 3 * BLOCK, 4 * BLOCK));
        assert!(futures::poll!(&mut waiting).is_pending(), "there is not enough left");
        drop(large);
        assert!(waiting.await.is_ok());
        assert_eq!(read(&budget, 2 * BLOCK, BLOCK).await.err(), Some(413));
        assert_eq!(budget.0.available_permits(), 4);
    }
}
