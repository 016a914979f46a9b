//! The budget of one request, in steps of work and in bytes that it makes.
//!
//! Many small rules walk over a client's data, and some of them look at pairs of items, or make something larger out of
//! something small. Each has its own bound where Kubernetes has one; this is the bound of all of them together. Code
//! that walks over a client's data says so ([`spend`]), code that makes a lot out of little says how much
//! ([`produce`]), and the code that answers the request sets the limits ([`within`], [`Metered`]). Beyond them the
//! request is cancelled: its stack is unwound, and the caller gets [`Exhausted`].
//!
//! Invariants:
//! - the same request costs the same steps on every machine: there is no clock here;
//! - without limits nothing is counted and nothing is cancelled;
//! - a commit is never cancelled, nor the steps that must follow it, nor the making of shared values: a `LazyLock`
//!   whose making was cancelled would stay broken ([`unlimited`], [`commit`]);
//! - work on [`Trial`] is cancelled only while it has had no effect outside, so that it may begin again on another
//!   thread.
//!
//! A cancellation is an unwinding without a panic's message (`resume_unwind`), as language servers cancel their
//! queries: a check in every loop would otherwise turn each function that can only succeed into one that can fail.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use crate::stack::with_room;

/// How much something may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Steps of work: about one for each value that is looked at, or for every 32 bytes of a text.
    pub steps: u64,
    /// Bytes made beyond the request's own, all together, whether they are still held or not.
    pub bytes: u64,
}

impl Limits {
    /// The limits of a request: some 250 ms of one processor, and 32 MiB of made values.
    pub const REQUEST: Limits = Limits {
        steps: 20_000_000,
        bytes: 32 * 1024 * 1024,
    };
}

/// Which of the [`Limits`] was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exhausted {
    /// [`Limits::steps`].
    Steps,
    /// [`Limits::bytes`].
    Bytes,
    /// The steps of a [`Trial`]: begin again where it may take longer.
    Trial,
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Exhausted::Steps => "it takes more work than one request may cause",
            Exhausted::Bytes => "it makes more out of what was sent than one request may",
            Exhausted::Trial => "it takes longer than it may where it was tried",
        })
    }
}

impl std::error::Error for Exhausted {}

/// The rest of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    limits: Limits,
    /// Steps of a trial.
    trial: Option<u64>,
    /// Whether an outbound call was made.
    called: bool,
    /// Bytes that were made so far.
    made: u64,
}

impl Left {
    const fn of(limits: Limits) -> Left {
        Left {
            limits,
            trial: None,
            called: false,
            made: 0,
        }
    }

    /// Counts steps of a trial; `false` when there are not so many left.
    #[inline]
    fn tries(&mut self, steps: u64) -> bool {
        let Some(trial) = &mut self.trial else { return true };
        let enough = *trial >= steps;
        *trial = trial.saturating_sub(steps);
        enough
    }
}

thread_local! {
    /// The rest of the limits that are in force on this thread.
    static LEFT: Cell<Option<Left>> = const { Cell::new(None) };
}

/// Says that something was done: one step for each value that is looked at.
///
/// Cheap enough for every turn of a loop. A loop whose turns are long says it with their length.
#[inline]
pub fn spend(steps: usize) {
    LEFT.with(|left| {
        let Some(mut now) = left.get() else { return };
        let steps = steps as u64;
        if !now.tries(steps) {
            cancel(left, Exhausted::Trial);
        }
        if now.limits.steps < steps {
            cancel(left, Exhausted::Steps);
        }
        now.limits.steps -= steps;
        left.set(Some(now));
    });
}

/// Says that a text of so many bytes was read through.
#[inline]
pub fn spend_on_text(bytes: usize) {
    spend(1 + bytes / 32);
}

/// Says that a selector of so many bytes is read: each two of them may be a requirement of their own.
pub fn spend_on_selector(bytes: usize) {
    spend(8 * bytes);
}

/// Says that so many bytes were made, or will be, which were not sent.
#[inline]
pub fn produce(bytes: usize) {
    LEFT.with(|left| {
        let Some(mut now) = left.get() else { return };
        let bytes = bytes as u64;
        if now.limits.bytes < bytes {
            cancel(left, Exhausted::Bytes);
        }
        now.limits.bytes -= bytes;
        now.made += bytes;
        left.set(Some(now));
    });
}

/// Cancels the request when so many bytes are not left, before something as large is made ([`produce`]). Nothing is
/// counted.
#[inline]
pub fn require(bytes: usize) {
    LEFT.with(|left| {
        if left.get().is_some_and(|now| now.limits.bytes < bytes as u64) {
            cancel(left, Exhausted::Bytes);
        }
    });
}

/// Whether so much more may be done with a reserve left for the code that answers the request. Without limits everything
/// may.
fn affords(steps: usize, bytes: usize) -> bool {
    /// One part in so many of the limits of a request is not for them.
    const KEPT_BACK: u64 = 8;
    LEFT.with(Cell::get).is_none_or(|Left { limits: left, .. }| {
        let (steps, bytes) = (steps as u64, bytes as u64);
        left.steps >= steps.saturating_add(Limits::REQUEST.steps / KEPT_BACK)
            && left.bytes >= bytes.saturating_add(Limits::REQUEST.bytes / KEPT_BACK)
    })
}

/// What is left of the limits in force; all there is without any.
pub fn left() -> Limits {
    const ALL: Limits = Limits {
        steps: u64::MAX,
        bytes: u64::MAX,
    };
    LEFT.with(Cell::get).map_or(ALL, |left| left.limits)
}

/// Whether what was done since there was so much left may be done once more, and a reserve is left.
pub fn affords_again(before: Limits) -> bool {
    let now = left();
    let cost = |before: u64, now: u64| usize::try_from(before.saturating_sub(now)).unwrap_or(usize::MAX);
    affords(cost(before.steps, now.steps), cost(before.bytes, now.bytes))
}

/// Raises the limits by the cost of a stored object of so many bytes: it is the server's to read, however many there
/// are.
#[inline]
pub fn allow_stored(bytes: usize) {
    const EACH: u64 = 1000;
    LEFT.with(|left| {
        let Some(mut now) = left.get() else { return };
        let bytes = bytes as u64;
        // A trial is about time, so the server's own work counts, too.
        if !now.tries(1 + bytes / 32) {
            cancel(left, Exhausted::Trial);
        }
        now.limits.steps = now.limits.steps.saturating_add(EACH + bytes / 8);
        now.limits.bytes = now.limits.bytes.saturating_add(bytes);
        left.set(Some(now));
    });
}

/// Says that so many steps will follow the first change, before it: a [`Trial`] that has not so many left ends while it
/// may. Nothing is counted.
pub fn announce(steps: usize) {
    LEFT.with(|left| {
        let short = |now: Left| now.trial.is_some_and(|trial| trial < steps as u64);
        if left.get().is_some_and(short) {
            cancel(left, Exhausted::Trial);
        }
    });
}

/// Reports an outbound call, which should not be made twice: from here on work on [`Trial`] goes on to its end.
pub fn call_out() {
    LEFT.with(|left| {
        let Some(mut now) = left.get() else { return };
        now.trial = None;
        now.called = true;
        left.set(Some(now));
    });
}

/// Lets other requests run between two parts of a long one: its turn ends where it waits.
pub async fn give_way() {
    let mut waited = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Unwinds to the code that set the limits. From then on nothing is counted, so that destructors are not cancelled.
#[cold]
fn cancel(left: &Cell<Option<Left>>, why: Exhausted) -> ! {
    left.set(None);
    resume_unwind(Box::new(Cancelled(why)));
}

/// The payload of a cancellation.
struct Cancelled(Exhausted);

/// Puts the limits that were in force before back when it goes, however it goes.
struct Before(Option<Left>);

impl Before {
    fn replaced_by(left: Option<Left>) -> Before {
        Before(LEFT.replace(left))
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        LEFT.set(self.0);
    }
}

/// Runs `work` with limits of its own.
///
/// ```
/// use kubewright_values::budget::{self, Exhausted, Limits};
/// let limits = Limits { steps: 10, bytes: 100 };
/// assert_eq!(budget::within(limits, || budget::spend(10)), Ok(()));
/// assert_eq!(budget::within(limits, || budget::spend(11)), Err(Exhausted::Steps));
/// assert_eq!(budget::within(limits, || budget::produce(101)), Err(Exhausted::Bytes));
/// ```
///
/// # Errors
/// When it costs more. A panic of another kind goes on.
pub fn within<T>(limits: Limits, work: impl FnOnce() -> T) -> Result<T, Exhausted> {
    let _before = Before::replaced_by(Some(Left::of(limits)));
    catch_unwind(AssertUnwindSafe(work)).map_err(of_payload)
}

/// Runs a part that may fail alone, with a share of the rest: a quarter of the rest beyond half of a request's limits,
/// and `least` steps at all events. However many parts use up their shares, something is left for the others. Without
/// limits a part has a share of those of a request.
///
/// ```
/// use kubewright_values::budget::{self, Limits};
/// let work = || (0..1000).map(|_| budget::share(10, || budget::spend(usize::MAX / 2))).filter(Option::is_some).count();
/// assert_eq!(budget::within(Limits::REQUEST, work), Ok(0));
/// ```
pub fn share<T>(least: u64, work: impl FnOnce() -> T) -> Option<T> {
    let outer = LEFT.with(Cell::get);
    let of = |left: u64, request: u64| left.saturating_sub(request / 2) / 4;
    let whole = outer.map_or(Limits::REQUEST, |left| left.limits);
    let given = Limits {
        steps: of(whole.steps, Limits::REQUEST.steps).max(least.min(whole.steps)),
        bytes: of(whole.bytes, Limits::REQUEST.bytes).max(least.min(whole.bytes)),
    };
    let before = Before::replaced_by(Some(Left {
        limits: given,
        ..outer.unwrap_or(Left::of(given))
    }));
    let done = catch_unwind(AssertUnwindSafe(work));
    let after = LEFT.with(Cell::get);
    drop(before);
    let left = after.map_or(Limits { steps: 0, bytes: 0 }, |left| left.limits);
    if let Some(mut now) = outer {
        let steps = given.steps.saturating_sub(left.steps);
        now.limits.steps = now.limits.steps.saturating_sub(steps);
        let made = given.bytes.saturating_sub(left.bytes);
        now.limits.bytes = now.limits.bytes.saturating_sub(made);
        now.made += made;
        now.called |= after.is_some_and(|after| after.called);
        let enough = now.tries(steps);
        LEFT.set(Some(now));
        if !enough {
            LEFT.with(|left| cancel(left, Exhausted::Trial));
        }
    }
    match done.map_err(of_payload) {
        Ok(done) => Some(done),
        // The caller that tries it begins again, on another thread.
        Err(Exhausted::Trial) => LEFT.with(|left| cancel(left, Exhausted::Trial)),
        Err(Exhausted::Steps | Exhausted::Bytes) => None,
    }
}

/// The work on one item of a collection, with a budget of its own: whether the third object may be deleted must not
/// depend on the cost of the first two. Steps and bytes are the item's; a [`Trial`] is the whole request's. Without
/// limits in force the item has none either.
///
/// The result is [`Exhausted`] when the item costs more.
#[derive(Debug)]
pub struct Item<F> {
    /// Dropped when it is cancelled, as a panicking future may not be polled again.
    future: Option<Pin<Box<F>>>,
    limits: Limits,
    left: Limits,
}

/// `future`, the work on one item, which may cost so much ([`Item`]).
pub fn item<F: Future>(limits: Limits, future: F) -> Item<F> {
    Item {
        future: Some(Box::pin(future)),
        limits,
        left: limits,
    }
}

impl<F> Item<F> {
    /// The steps that the item has cost so far.
    pub fn spent(&self) -> u64 {
        self.limits.steps.saturating_sub(self.left.steps)
    }
}

impl<F: Future> Future for Item<F> {
    type Output = Result<F::Output, Exhausted>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(future) = &mut this.future else {
            return Poll::Pending;
        };
        let Some(mut outer) = LEFT.get() else {
            return future.as_mut().poll(cx).map(Ok);
        };
        let before = Before::replaced_by(Some(Left {
            limits: this.left,
            ..outer
        }));
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
        let after = LEFT.get();
        drop(before);
        if let Some(after) = after {
            this.left = after.limits;
            outer = Left {
                limits: outer.limits,
                ..after
            };
            LEFT.set(Some(outer));
        }
        let polled = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(output)) => Ok(output),
            Err(payload) => Err(of_payload(payload)),
        };
        this.future = None;
        match polled {
            // The whole request begins again, on another thread.
            Err(Exhausted::Trial) => LEFT.with(|left| cancel(left, Exhausted::Trial)),
            Err(why) => {
                // It may have called out before it was cancelled, which must not happen twice.
                LEFT.set(Some(Left { trial: None, ..outer }));
                Poll::Ready(Err(why))
            }
            done => Poll::Ready(done),
        }
    }
}

/// Runs a commit and its necessary effects, without limits. A [`Trial`] is over: a commit may not be repeated.
pub fn commit<T>(work: impl FnOnce() -> T) -> T {
    LEFT.with(|left| left.set(left.get().map(|now| Left { trial: None, ..now })));
    unlimited(work)
}

/// Runs work that may not be cancelled, such as the making of shared values.
pub fn unlimited<T>(work: impl FnOnce() -> T) -> T {
    let _before = Before::replaced_by(None);
    work()
}

fn of_payload(payload: Box<dyn Any + Send>) -> Exhausted {
    match payload.downcast::<Cancelled>() {
        Ok(cancelled) => cancelled.0,
        Err(other) => resume_unwind(other),
    }
}

/// Work that is tried where it may take little time only, and begins again elsewhere when it takes more
/// ([`Exhausted::Trial`]).
///
/// The trial is over with the first [`commit`], and with the first [`call_out`].
#[derive(Debug)]
pub struct Trial {
    steps: u64,
    called: AtomicBool,
}

impl Trial {
    /// A trial of so many steps.
    pub fn new(steps: u64) -> Trial {
        Trial {
            steps,
            called: AtomicBool::new(false),
        }
    }

    /// Whether the work has made an outbound call: it cannot begin again, and its length follows from the answer.
    pub fn has_called(&self) -> bool {
        self.called.load(Ordering::Relaxed)
    }
}

/// A future with limits, wherever and however often it is polled; and with room on the stack for nested values.
pub struct Metered<'t, F> {
    /// Dropped when it is cancelled, as a panicking future may not be polled again.
    future: Option<Pin<Box<F>>>,
    left: Left,
    trial: Option<&'t Trial>,
    made: Option<&'t AtomicU64>,
}

impl<'t, F: Future> Metered<'t, F> {
    /// `future`, which may cost so much.
    pub fn new(limits: Limits, future: F) -> Metered<'t, F> {
        Metered {
            future: Some(Box::pin(future)),
            left: Left::of(limits),
            trial: None,
            made: None,
        }
    }

    /// The same, and whenever it waits `made` has the bytes that it has made ([`produce`]).
    #[must_use]
    pub fn telling(mut self, made: &'t AtomicU64) -> Metered<'t, F> {
        self.made = Some(made);
        self
    }

    /// The same on trial.
    #[must_use]
    pub fn on(mut self, trial: &'t Trial) -> Metered<'t, F> {
        self.left.trial = Some(trial.steps);
        self.trial = Some(trial);
        self
    }

    /// Whether the work may still begin again.
    pub fn is_on_trial(&self) -> bool {
        self.left.trial.is_some()
    }
}

impl<F: Future> Future for Metered<'_, F> {
    type Output = Result<F::Output, Exhausted>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(future) = &mut this.future else {
            return Poll::Pending;
        };
        let before = Before::replaced_by(Some(this.left));
        let polled = catch_unwind(AssertUnwindSafe(|| with_room(|| future.as_mut().poll(cx))));
        this.left = LEFT.get().unwrap_or(this.left);
        drop(before);
        if let Some(made) = this.made {
            made.store(this.left.made, Ordering::Relaxed);
        }
        if let (Some(trial), true) = (this.trial, this.left.called) {
            trial.called.store(true, Ordering::Relaxed);
        }
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => {
                this.future = None;
                Poll::Ready(Ok(output))
            }
            Err(payload) => {
                this.future = None;
                Poll::Ready(Err(of_payload(payload)))
            }
        }
    }
}

#[cfg(test)]
mod tests;
