//! The body of a watch, cut into lines as it arrives; each line is an event.

use std::io::BufRead as _;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kubewright_engine::reflector::{Failure, FailureKind, Input, WatchEvent};

use super::{Into, MAX_FRAME, Reader, Target, broken};
use crate::form::Cached;

/// The body of a watch, cut into lines.
pub(in crate::cache) struct Frames {
    body: Body,
    buffer: BytesMut,
    /// Up to here the buffer is known to hold no line end.
    scanned: usize,
    /// These are the initial events.
    initial: bool,
    target: Arc<Target>,
    scratch: Vec<u8>,
}

impl Frames {
    /// `initial`: it begins with everything that there is.
    pub(super) fn new(body: Body, target: Arc<Target>, initial: bool) -> Frames {
        Frames {
            body,
            buffer: BytesMut::new(),
            scanned: 0,
            initial,
            target,
            scratch: Vec::new(),
        }
    }

    /// The next event, or how the stream ended.
    pub(in crate::cache) async fn next(&mut self) -> Input<dyn Cached> {
        loop {
            if let Some(end) = line_end(&self.buffer[self.scanned..]) {
                let line = self.buffer.split_to(self.scanned + end);
                self.buffer.advance(1);
                self.scanned = 0;
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                let event = Reader::new(Into::Cache(&self.target), &mut self.scratch, self.initial).event(&line);
                if let Input::Event(WatchEvent::Bookmark { initial_events_end, .. }) = &event {
                    self.initial &= !initial_events_end;
                }
                return event;
            }
            self.scanned = self.buffer.len();
            if self.scanned > MAX_FRAME {
                return Input::Failed(Failure::new(
                    FailureKind::Decode,
                    format!("a watch frame is longer than {MAX_FRAME} bytes"),
                ));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Input::Failed(broken(&error)),
                None => {
                    return Input::Ended {
                        clean: self.buffer.iter().all(u8::is_ascii_whitespace),
                    };
                }
            }
        }
    }
}

/// Where the first line ends. By the library's search, which looks at many bytes at once.
fn line_end(bytes: &[u8]) -> Option<usize> {
    let mut rest = bytes;
    let length = rest.skip_until(b'\n').ok()?; // a slice is always read
    let end = length.checked_sub(1)?;
    (bytes[end] == b'\n').then_some(end)
}
