//! The body of a request: read within bounds, and counted while it is there.
//!
//! Invariants: at most [`MAX_BODY`] bytes are read of any body, of a user no more than its share of [`BODIES`], in at
//! most [`MAX_PIECES`](crate::pieces::MAX_PIECES) pieces. A body whose client is not authenticated is not read at all.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use kubewright_apiserver::MAX_BODY;
use kubewright_apiserver::shares::{Ledger, NoShare, Share};

use crate::pieces::{MIN_PIECE, Pieces};

/// How many bytes the bodies of all requests under way may take together, of which a user gets a share.
pub(super) const BODIES: usize = 256 * 1024 * 1024;

/// How much of a body that is too large is read and thrown away, so that the client gets to read the answer: many see
/// nothing but a broken connection or stream when we end it while they still send.
const DRAIN_BYTES: usize = 64 * 1024 * 1024;
/// And for how long.
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// A body that was read, which counts as one under way for as long as this is there.
#[derive(Default)]
pub(super) struct RequestBody {
    pub(super) bytes: Bytes,
    /// `None`: there is none.
    share: Option<Share>,
}

impl RequestBody {
    /// Nothing so far, behind a head of so many bytes.
    ///
    /// # Errors
    /// When there is no room for the head.
    pub(super) fn behind(head: usize, bodies: &Arc<Ledger>, user: &str) -> Result<RequestBody, NoShare> {
        Ok(RequestBody {
            bytes: Bytes::new(),
            share: Some(bodies.take(user, head)?),
        })
    }
}

/// The outcome of reading a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Collected {
    Whole,
    /// It is larger than [`MAX_BODY`].
    TooLarge,
    /// Its user has no room for it beside the bodies of other requests.
    TooMany(NoShare),
    /// It comes in more than [`MAX_PIECES`](crate::pieces::MAX_PIECES).
    TooFine,
}

/// Reads all of a body into `held`, as far as that is allowed.
pub(super) async fn collect<B>(body: &mut B, held: &mut RequestBody) -> Result<Collected, B::Error>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let mut pieces = Pieces::default();
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        if !pieces.admit() {
            return Ok(Collected::TooFine);
        }
        let Ok(data) = frame.into_data() else { continue };
        if pieces.len() + data.len() > MAX_BODY {
            return Ok(Collected::TooLarge);
        }
        if let Some(share) = &mut held.share
            && let Err(full) = share.grow(data.len())
        {
            return Ok(Collected::TooMany(full));
        }
        pieces.add(data);
    }
    held.bytes = pieces.whole();
    Ok(Collected::Whole)
}

/// Reads on without keeping anything.
pub(super) async fn drain<B>(mut body: B)
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let reading = async {
        let mut seen = 0;
        while let Some(Ok(frame)) = body.frame().await {
            seen += MIN_PIECE + frame.data_ref().map_or(0, Bytes::len);
            if seen > DRAIN_BYTES {
                break;
            }
        }
    };
    // Whether it ended or not, the answer is the same; only the connection's fate differs.
    let _ = tokio::time::timeout(DRAIN_TIME, reading).await;
}

#[cfg(test)]
mod tests {
    use http_body::Frame;

    use super::*;
    use crate::pieces::MAX_PIECES;

    /// The result of [`collect`] for a body that comes in pieces of these sizes, where there is room for so many bytes.
    async fn check(sizes: &[usize], room: usize, expected: Result<usize, Collected>) {
        check_behind(0, sizes, room, expected).await;
    }

    /// The same behind a head of so many bytes.
    async fn check_behind(head: usize, sizes: &[usize], room: usize, expected: Result<usize, Collected>) {
        let pieces = sizes
            .iter()
            .map(|size| Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from(vec![b'x'; *size]))));
        let mut body = http_body_util::StreamBody::new(futures::stream::iter(pieces));
        let bodies = Ledger::new(room);
        let found = match RequestBody::behind(head, &bodies, "a") {
            Ok(mut held) => {
                let Ok(collected) = collect(&mut body, &mut held).await;
                match collected {
                    Collected::Whole => Ok(held.bytes.len()),
                    refused => Err(refused),
                }
            }
            Err(full) => Err(Collected::TooMany(full)),
        };
        assert_eq!(found, expected, "{sizes:?}");
        assert_eq!(bodies.held(), (0, room), "{sizes:?}: the room is given back");
    }

    #[tokio::test]
    async fn bodies_are_read_up_to_the_limit() {
        check(&[], BODIES, Ok(0)).await;
        check(&[7], BODIES, Ok(7)).await;
        check(&[0, 7, 0, 8], BODIES, Ok(15)).await;
        check(&[MAX_BODY], BODIES, Ok(MAX_BODY)).await;
        check(&[MAX_BODY, 1], BODIES, Err(Collected::TooLarge)).await;
        check(&[1, MAX_BODY - 2, 1], BODIES, Ok(MAX_BODY)).await;
        check(&[MAX_BODY + 1], BODIES, Err(Collected::TooLarge)).await;
        check(&[1; MAX_PIECES], BODIES, Ok(MAX_PIECES)).await;
        check(&[1; MAX_PIECES + 1], BODIES, Err(Collected::TooFine)).await;
    }

    #[tokio::test]
    async fn bodies_are_read_as_far_as_there_is_room_beside_others() {
        let full = || Err(Collected::TooMany(NoShare { retry_after_seconds: 1 }));
        check(&[7, 3], 20, Ok(10)).await;
        check(&[7, 4], 17, full()).await;
        check(&[21], 20, full()).await;
        check_behind(3, &[7], 20, Ok(7)).await;
        check_behind(4, &[7], 14, full()).await;
        check_behind(21, &[], 20, full()).await;
    }
}
