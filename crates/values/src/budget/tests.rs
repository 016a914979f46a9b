//! What is counted, and when work is cancelled.

use std::task::Waker;

use super::*;

const LIMITS: Limits = Limits { steps: 10, bytes: 10 };

#[test]
fn work_is_done_again_while_the_limits_allow_it() {
    let again = |steps: usize, bytes: usize| {
        let before = left();
        spend(steps);
        produce(bytes);
        affords_again(before)
    };
    let check = |steps: usize, bytes: usize, expected: usize| {
        let times = || (0..100).take_while(|_| again(steps, bytes)).count();
        assert_eq!(
            within(Limits::REQUEST, times),
            Ok(expected),
            "{steps} steps, {bytes} bytes"
        );
    };
    // An eighth is kept back, so seven eighths are for the repetitions and the first time.
    check(20_000_000 / 8, 0, 6);
    check(0, 32 * 1024 * 1024 / 8, 6);
    check(20_000_000, 0, 0);
    check(1, 1, 100);
    assert!(again(usize::MAX, usize::MAX), "there are no limits here");
}

#[test]
fn what_is_left_is_counted_and_put_back() {
    let check = |work: fn(), expected: Result<(), Exhausted>| {
        assert_eq!(within(LIMITS, work), expected);
        assert_eq!(LEFT.get(), None, "limits stayed behind");
    };
    check(|| spend(10), Ok(()));
    check(|| (0..11).for_each(|_| spend(1)), Err(Exhausted::Steps));
    check(|| spend_on_text(32 * 9), Ok(()));
    check(|| spend_on_text(32 * 10), Err(Exhausted::Steps));
    check(|| spend(usize::MAX), Err(Exhausted::Steps));
    check(|| produce(11), Err(Exhausted::Bytes));
    check(|| unlimited(|| spend(11)), Ok(()));
    check(
        || {
            allow_stored(80);
            spend(1020);
            produce(90);
        },
        Ok(()),
    );
    check(
        || {
            unlimited(|| spend(11));
            spend(10);
            produce(10);
        },
        Ok(()),
    );
    check(
        || {
            assert_eq!(
                within(Limits { steps: 1, bytes: 0 }, || spend(2)),
                Err(Exhausted::Steps)
            );
        },
        Ok(()),
    );
    spend(usize::MAX);
    produce(usize::MAX);
}

#[test]
fn a_panic_is_no_cancellation() {
    let caught = catch_unwind(|| within(LIMITS, || resume_unwind(Box::new("a defect"))));
    assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "a defect");
    assert_eq!(LEFT.get(), None);
}

#[test]
fn a_trial_ends_before_anything_shows() {
    let check = |work: fn(), expected: Result<(), Exhausted>, called: bool| {
        let trial = Trial::new(10);
        let limits = Limits { steps: 100, bytes: 100 };
        let mut metered = Metered::new(limits, async { work() }).on(&trial);
        let polled = Pin::new(&mut metered).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready(expected));
        assert_eq!(trial.has_called(), called);
        assert_eq!(LEFT.get(), None, "limits stayed behind");
    };
    let trial = Err(Exhausted::Trial);
    check(|| spend(10), Ok(()), false);
    check(|| (0..11).for_each(|_| spend(1)), trial, false);
    // It is about steps only.
    check(|| produce(100), Ok(()), false);
    check(|| produce(101), Err(Exhausted::Bytes), false);
    // `affords` does not ask the trial.
    check(|| assert!(!affords(90, 0) && LEFT.get().is_some()), Ok(()), false);
    // The server's own work takes time as well.
    check(|| (0..11).for_each(|_| allow_stored(8)), trial, false);
    check(|| allow_stored(320), trial, false);
    // What is to come ends it before anything is done, and is not counted.
    check(|| announce(11), trial, false);
    check(
        || {
            announce(10);
            spend(10);
            commit(|| spend(1000));
            announce(1000);
        },
        Ok(()),
        false,
    );
    // Constants end no trial, a commit and a call do; the limits stay.
    check(
        || {
            unlimited(|| spend(1000));
            spend(11);
        },
        trial,
        false,
    );
    check(
        || {
            commit(|| spend(1000));
            spend(100);
        },
        Ok(()),
        false,
    );
    check(
        || {
            commit(|| spend(1000));
            spend(101);
        },
        Err(Exhausted::Steps),
        false,
    );
    check(
        || {
            call_out();
            spend(100);
        },
        Ok(()),
        true,
    );
}

#[test]
fn the_bytes_made_so_far_are_told() {
    let made = AtomicU64::new(0);
    let mut turns = 0;
    let work = std::future::poll_fn(|_| {
        produce(3);
        // A part with limits of its own counts as well, one that is given up with all of them; what is stored
        // does not.
        share(2, || produce(2));
        share(2, || produce(usize::MAX));
        allow_stored(100);
        turns += 1;
        if turns == 2 { Poll::Ready(()) } else { Poll::Pending }
    });
    let mut metered = Metered::new(LIMITS, work).telling(&made);
    for told in [7, 14] {
        let _ = Pin::new(&mut metered).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(made.load(Ordering::Relaxed), told);
    }
}

#[test]
fn a_future_takes_its_limits_along() {
    let check = |steps: [usize; 3], expected: Result<u8, Exhausted>| {
        let mut turn = 0;
        let work = std::future::poll_fn(|cx| {
            spend(steps[turn]);
            turn += 1;
            if turn == steps.len() {
                return Poll::Ready(7);
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        let mut metered = Metered::new(LIMITS, work);
        let mut cx = Context::from_waker(Waker::noop());
        let output = loop {
            if let Poll::Ready(output) = Pin::new(&mut metered).poll(&mut cx) {
                break output;
            }
            // The work of others on this thread meanwhile is not counted.
            spend(1000);
        };
        assert_eq!(output, expected);
    };
    check([5, 5, 0], Ok(7));
    check([5, 5, 1], Err(Exhausted::Steps));
    check([11, 0, 0], Err(Exhausted::Steps));
}

/// The items of a collection have limits of their own, and share the trial of the request.
#[test]
fn items_do_not_pay_for_each_other() {
    fn ready<F: Future>(work: F) -> F::Output {
        let mut work = std::pin::pin!(work);
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("nothing waits here"),
        }
    }
    let spending = |steps: &'static [usize]| async move {
        let mut done = Vec::new();
        for steps in steps {
            let mut one = item(LIMITS, async { spend(*steps) });
            let result = (&mut one).await;
            done.push((result.is_ok(), one.spent()));
        }
        // The rest of the request has what it had.
        spend(10);
        done
    };
    // Without limits there are none for the items either.
    assert_eq!(ready(spending(&[11])), [(true, 0)]);
    let metered = |steps| ready(Metered::new(LIMITS, spending(steps)));
    assert_eq!(metered(&[9, 9, 9]), Ok(vec![(true, 9), (true, 9), (true, 9)]));
    assert_eq!(metered(&[9, 11, 9]), Ok(vec![(true, 9), (false, 0), (true, 9)]));

    let tried = |before_it: fn(), steps: usize| {
        let trial = Trial::new(5);
        let work = item(LIMITS, async move {
            before_it();
            spend(steps);
        });
        ready(Metered::new(LIMITS, work).on(&trial))
    };
    let nothing = || {};
    assert_eq!(tried(nothing, 5), Ok(Ok(())));
    assert_eq!(
        tried(nothing, 6),
        Err(Exhausted::Trial),
        "the whole request begins again"
    );
    assert_eq!(tried(|| commit(|| ()), 6), Ok(Ok(())), "it may not begin again");
    assert_eq!(tried(call_out, 11), Ok(Err(Exhausted::Steps)), "only the item ends");
}
