//! For the tests of the crates that make up the API server: a world in which the clock stands still and entropy is
//! counted, and how an answer is compared with a recorded one. No product code calls it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};

use std::time::Duration;

use serde_json::Value;

use crate::env::{BoxFuture, Env};
use crate::user::UserInfo;
use crate::{ServiceRange, StrategyContext};

/// A fake world for tests: [`FakeEnv::advance`] moves the clock and wakes the sleepers.
pub struct FakeEnv {
    seed: AtomicU64,
    now: Mutex<Clock>,
}

struct Clock {
    since_start: Duration,
    sleepers: Vec<Waker>,
}

impl FakeEnv {
    /// A new world.
    pub fn new() -> std::sync::Arc<FakeEnv> {
        std::sync::Arc::new(FakeEnv {
            seed: AtomicU64::new(7),
            now: Mutex::new(Clock {
                since_start: Duration::ZERO,
                sleepers: Vec::new(),
            }),
        })
    }

    /// Moves the clock on, and wakes all sleepers.
    pub fn advance(&self, by: Duration) {
        let mut clock = self.now.lock().expect("no test panics while it holds the clock");
        clock.since_start = clock.since_start.saturating_add(by);
        for waker in clock.sleepers.drain(..) {
            waker.wake();
        }
    }
}

/// The surroundings of a strategy in a test: a fake world, an administrator, and no reserved address.
pub struct Scene {
    env: Shared,
    user: UserInfo,
    search_start: AtomicU64,
}

impl Default for Scene {
    fn default() -> Scene {
        Scene {
            env: Shared(FakeEnv::new()),
            user: UserInfo::admin(),
            search_start: AtomicU64::new(0),
        }
    }
}

impl Scene {
    /// A write that is persisted, of an object that came with labels.
    pub fn context(&self) -> StrategyContext<'_> {
        StrategyContext {
            minor: Default::default(),
            env: &self.env,
            user: &self.user,
            dry_run: false,
            unlabelled: false,
            service_range: ServiceRange::default(),
            reserved_ips: &(),
            search_start: &self.search_start,
        }
    }
}

/// The handle that a test keeps; the server gets a clone of it.
pub struct Shared(pub std::sync::Arc<FakeEnv>);

impl Env for Shared {
    fn now(&self) -> jiff::Timestamp {
        let clock = self.0.now.lock().expect("no test panics while it holds the clock");
        let start = jiff::Timestamp::from_second(1_790_000_000).expect("a time in range");
        let passed = jiff::SignedDuration::try_from(clock.since_start).expect("a short time");
        start.saturating_add(passed).expect("a span of seconds")
    }

    fn random(&self) -> u64 {
        let mut x = self.0.seed.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let env = self.0.clone();
        let until = env
            .now
            .lock()
            .expect("no test panics while it holds the clock")
            .since_start
            .saturating_add(duration);
        Box::pin(std::future::poll_fn(move |cx| {
            let mut clock = env.now.lock().expect("no test panics while it holds the clock");
            if clock.since_start >= until {
                return Poll::Ready(());
            }
            clock.sleepers.push(cx.waker().clone());
            Poll::Pending
        }))
    }
}

/// A text such as `${uid:1}` in a recording stands for anything.
pub fn fits(ours: &Value, recorded: &Value) -> bool {
    match (ours, recorded) {
        (_, Value::String(text)) if text.starts_with("${") => true,
        (Value::Object(ours), Value::Object(recorded)) => {
            ours.len() == recorded.len()
                && recorded
                    .iter()
                    .all(|(key, value)| ours.get(key).is_some_and(|ours| fits(ours, value)))
        }
        (Value::Array(ours), Value::Array(recorded)) => {
            ours.len() == recorded.len() && ours.iter().zip(recorded).all(|(ours, recorded)| fits(ours, recorded))
        }
        _ => ours == recorded,
    }
}
