use super::*;

/// name, version
type Object = (&'static str, u64, String);

struct ObjectMeta;

impl Meta<Object> for ObjectMeta {
    fn key(object: &Object) -> Option<ObjectKey> {
        (!object.0.is_empty()).then(|| ObjectKey::cluster(object.0))
    }
    fn uid(_: &Object) -> Option<&str> {
        None
    }
    fn resource_version(object: &Object) -> Option<&str> {
        Some(object.2.as_str()).filter(|version| *version != "0")
    }
}

fn object(name: &'static str, version: u64) -> Arc<Object> {
    Arc::new((name, version, version.to_string()))
}

fn modified(name: &'static str, version: u64) -> Input<Object> {
    Input::Event(WatchEvent::Modified(object(name, version)))
}

fn bookmark(version: &str, initial_events_end: bool) -> Input<Object> {
    Input::Event(WatchEvent::Bookmark {
        version: version.into(),
        initial_events_end,
    })
}

fn failed(kind: FailureKind) -> Input<Object> {
    Input::Failed(Failure::new(kind, format!("{kind:?}")))
}

fn in_stream(kind: FailureKind) -> Input<Object> {
    Input::Event(WatchEvent::Error(Failure::new(kind, format!("{kind:?}"))))
}

fn page(names: &[&'static str], version: &str, token: Option<&str>) -> Input<Object> {
    Input::Page(ListPage {
        items: names.iter().map(|name| object(name, 1)).collect(),
        unreadable: Vec::new(),
        resource_version: Some(version.into()),
        continue_token: token.map(str::to_owned),
    })
}

/// A reflector with a clock; `check` feeds one input and compares the actions in words.
struct Bench {
    reflector: Reflector<Object, ObjectMeta>,
    now: Instant,
}

impl Bench {
    fn new(watch_list: bool) -> Bench {
        let config = Config {
            watch_list,
            page_size: Some(2),
            ..Config::default()
        };
        Bench {
            reflector: Reflector::new(config),
            now: Instant::ZERO,
        }
    }

    /// Started, listed at version 10, watching.
    fn watching() -> Bench {
        let mut bench = Bench::new(false);
        bench.check(Input::Start, "Syncing; begin; LIST newest limit 2");
        bench.check(
            page(&["a"], "10", None),
            "items 1; end 10 authoritative; Synced; WATCH 10",
        );
        bench.check(Input::Started, "");
        bench
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }

    #[track_caller]
    fn check(&mut self, input: Input<Object>, want: &str) {
        let name = format!("{input:?}");
        let actions = self.reflector.handle(input, self.now, 0);
        let got: Vec<String> = actions.iter().map(words).collect();
        assert_eq!(got.join("; "), want, "after {name}");
    }

    /// The wait is not over before its time, and then `want` follows.
    #[track_caller]
    fn check_wait(&mut self, want: &str) {
        let deadline = self.reflector.deadline().expect("something is waited for");
        assert!(deadline > self.now);
        self.check(Input::Timer, "");
        self.now = deadline;
        self.check(Input::Timer, want);
    }

    fn version(&self) -> &str {
        self.reflector
            .resource_version()
            .map_or("none", ResourceVersion::as_str)
    }
}

fn words(action: &Action<Object>) -> String {
    match action {
        Action::List {
            version,
            limit,
            continue_token,
        } => {
            let version = match version {
                ListVersion::Newest => "newest".to_owned(),
                ListVersion::NotOlderThan(version) => format!(">={version}"),
            };
            let limit = limit.map_or(String::new(), |limit| format!(" limit {limit}"));
            format!(
                "LIST {version}{limit}{}",
                continue_token.as_ref().map_or(String::new(), |t| format!(" from {t}"))
            )
        }
        Action::Watch {
            version,
            send_initial_events,
            ..
        } => {
            let initial = if *send_initial_events { " initial" } else { "" };
            format!(
                "WATCH {}{initial}",
                version.as_ref().map_or("unset", ResourceVersion::as_str)
            )
        }
        Action::Apply(delta) => match delta {
            Delta::Added(object) => format!("added {}", object.0),
            Delta::Modified(object) => format!("modified {}", object.0),
            Delta::Deleted(object) => format!("deleted {}", object.0),
            Delta::ReplaceBegin => "begin".into(),
            Delta::ReplaceItems(items) => format!("items {}", items.len()),
            Delta::ReplaceUnreadable(objects) => format!("unreadable items {}", objects.len()),
            Delta::ReplaceDeleted(key) => format!("unlisted {key}"),
            Delta::Unreadable(object) => format!("unreadable {}", object.key),
            Delta::UnreadableDeleted(object) => format!("deleted unreadable {}", object.key),
            Delta::ReplaceAborted => "abort".into(),
            Delta::ReplaceEnd {
                resource_version,
                authoritative,
            } => {
                format!(
                    "end {resource_version}{}",
                    if *authoritative { " authoritative" } else { "" }
                )
            }
            Delta::Bookmark(version) => format!("bookmark {version}"),
        },
        Action::Wait(wait) => format!("wait {}ms", wait.as_millis()),
        Action::Health(Health::Degraded(_)) => "Degraded".into(),
        Action::Health(health) => format!("{health:?}"),
        Action::Stopped => "Stopped".into(),
    }
}

#[test]
fn lists_page_by_page_then_watches() {
    let mut bench = Bench::new(false);
    bench.check(Input::Start, "Syncing; begin; LIST newest limit 2");
    bench.check(
        page(&["a", "b"], "10", Some("t")),
        "items 2; LIST newest limit 2 from t",
    );
    bench.check(
        page(&["c"], "10", Some("")),
        "items 1; end 10 authoritative; Synced; WATCH 10",
    );
    bench.check(modified("a", 12), "modified a");
    assert_eq!(bench.version(), "12");
}

#[test]
fn watch_list_is_tried_first_and_its_stream_goes_on() {
    let mut bench = Bench::new(true);
    bench.check(Input::Start, "Syncing; begin; WATCH unset initial");
    bench.check(Input::Started, "");
    bench.check(Input::Event(WatchEvent::Added(object("a", 3))), "items 1");
    bench.check(Input::Event(WatchEvent::Deleted(object("a", 11))), "unlisted a");
    bench.check(bookmark("11", false), "");
    bench.check(bookmark("11", true), "end 11 authoritative; Synced");
    bench.check(modified("b", 12), "modified b");
    bench.check(in_stream(FailureKind::Expired), "wait 800ms");
    bench.check_wait("begin; WATCH 12 initial");
    bench.check(bookmark("15", true), "end 15");
}

#[test]
fn rf1_list_older_than_the_store_is_refused() {
    let mut bench = Bench::watching();
    bench.check(modified("a", 20), "modified a");
    bench.check(in_stream(FailureKind::Expired), "wait 800ms");
    bench.check_wait("begin; LIST >=20 limit 2");
    bench.check(page(&["a"], "15", None), "items 1; abort; Degraded; wait 1600ms");
    assert_eq!(bench.version(), "20");
    bench.check_wait("begin; LIST newest limit 2");
    bench.check(
        page(&["a"], "21", None),
        "items 1; end 21 authoritative; Synced; WATCH 21",
    );
}

#[test]
fn rf3_initial_events_do_not_move_the_resume_version() {
    let mut bench = Bench::new(true);
    bench.check(Input::Start, "Syncing; begin; WATCH unset initial");
    bench.check(Input::Event(WatchEvent::Added(object("a", 900))), "items 1");
    assert_eq!(bench.version(), "none");
    bench.check(Input::Ended { clean: true }, "abort; Degraded; wait 800ms");
    bench.check_wait("begin; WATCH unset initial");
}

#[test]
fn rf4_broken_list_is_aborted() {
    let mut bench = Bench::new(false);
    bench.check(Input::Start, "Syncing; begin; LIST newest limit 2");
    bench.check(
        page(&["a", "b"], "10", Some("t")),
        "items 2; LIST newest limit 2 from t",
    );
    bench.check(failed(FailureKind::Connection), "abort; Degraded; wait 800ms");
    bench.check(page(&["late"], "10", None), "");
    bench.check_wait("begin; LIST newest limit 2");
}

#[test]
fn rf5_missing_end_of_initial_events_falls_back_and_is_remembered() {
    let mut bench = Bench::new(true);
    bench.check(Input::Start, "Syncing; begin; WATCH unset initial");
    bench.pass(9);
    bench.check(Input::Event(WatchEvent::Added(object("a", 3))), "items 1");
    bench.check_wait("abort; begin; LIST newest limit 2");
    bench.check(
        page(&["a"], "10", None),
        "items 1; end 10 authoritative; Synced; WATCH 10",
    );
    bench.check(modified("a", 11), "modified a");
    bench.check(in_stream(FailureKind::Expired), "wait 800ms");
    bench.check_wait("begin; LIST >=11 limit 2");
    assert!(bench.reflector.watch_list_refused);
}

#[test]
fn rf5_endless_initial_events_fall_back_too() {
    let mut bench = Bench::new(true);
    bench.check(Input::Start, "Syncing; begin; WATCH unset initial");
    for _ in 0..37 {
        bench.pass(8);
        bench.check(Input::Event(WatchEvent::Modified(object("a", 3))), "items 1");
    }
    assert_eq!(
        bench.reflector.deadline(),
        Some(Instant::ZERO + Duration::from_secs(300))
    );
    bench.check_wait("abort; begin; LIST newest limit 2");
}

#[test]
fn rf5_refused_initial_events_fall_back_at_once() {
    let mut bench = Bench::new(true);
    bench.check(Input::Start, "Syncing; begin; WATCH unset initial");
    bench.check(failed(FailureKind::Invalid), "abort; begin; LIST newest limit 2");
    assert!(bench.reflector.watch_list_refused, "and it is remembered");
    bench.check(
        page(&["a"], "10", None),
        "items 1; end 10 authoritative; Synced; WATCH 10",
    );
    bench.check(modified("a", 11), "modified a");
    bench.check(in_stream(FailureKind::Expired), "wait 800ms");
    bench.check_wait("begin; LIST >=11 limit 2");
}

#[test]
fn rf5_streams_that_break_off_again_and_again_are_listed_once() {
    let mut bench = Bench::new(true);
    bench.check(Input::Start, "Syncing; begin; WATCH unset initial");
    bench.check(Input::Ended { clean: false }, "abort; Degraded; wait 800ms");
    bench.check_wait("begin; WATCH unset initial");
    bench.check(Input::Ended { clean: false }, "abort; wait 1600ms");
    bench.check_wait("begin; WATCH unset initial");
    bench.check(failed(FailureKind::Server), "abort; Degraded; wait 3200ms");
    bench.check_wait("begin; LIST newest limit 2");
    assert!(!bench.reflector.watch_list_refused, "breaking off is not refusing");
}

#[test]
fn rf6_clean_end_watches_again_without_list_or_wait() {
    let mut bench = Bench::watching();
    bench.pass(400);
    bench.check(Input::Ended { clean: true }, "WATCH 10");
    bench.check(modified("a", 11), "modified a");
    bench.check(Input::Ended { clean: true }, "WATCH 11");
}

#[test]
fn rf6_very_short_watch_backs_off() {
    let mut bench = Bench::watching();
    bench.check(bookmark("10", false), "bookmark 10");
    bench.check(Input::Ended { clean: true }, "Degraded; wait 800ms");
    bench.check_wait("WATCH 10");
    bench.check(Input::Ended { clean: true }, "wait 1600ms");
}

#[test]
fn rf6_stream_that_expires_right_after_its_initial_events_backs_off() {
    let mut bench = Bench::new(true);
    bench.check(Input::Start, "Syncing; begin; WATCH unset initial");
    bench.check(bookmark("10", true), "end 10 authoritative; Synced");
    bench.check(in_stream(FailureKind::Expired), "Degraded; wait 800ms");
    bench.check_wait("begin; WATCH 10 initial");
}

#[test]
fn rf6_failures_of_a_watch_back_off_and_resume() {
    use FailureKind::{Connection, Forbidden, NotFound, Server, TooManyRequests};
    for (kind, next) in [
        (Server, "WATCH 10"),
        (Connection, "WATCH 10"),
        (TooManyRequests, "WATCH 10"),
        (NotFound, "begin; LIST >=10 limit 2"),
        (Forbidden, "begin; LIST >=10 limit 2"),
    ] {
        for input in [failed(kind), in_stream(kind)] {
            let mut bench = Bench::watching();
            bench.check(input, "Degraded; wait 800ms");
            bench.check_wait(next);
        }
    }
}

#[test]
fn rf6_retry_after_is_honoured() {
    let mut bench = Bench::watching();
    let mut failure = Failure::new(FailureKind::TooManyRequests, "slow down");
    failure.retry_after = Some(Duration::from_secs(7));
    bench.check(Input::Failed(failure), "Degraded; wait 7000ms");
}

#[test]
fn rf6_silent_watch_is_given_up() {
    let mut bench = Bench::watching();
    bench.pass(329);
    bench.check(Input::Timer, "");
    bench.pass(1);
    bench.check(Input::Timer, "Degraded; wait 800ms");
    bench.check_wait("WATCH 10");
}

#[test]
fn rf13_a_watch_without_its_pulse_is_asked_for_again() {
    // A server whose bookmarks were never seen may have none: its watch is let be until its timeout.
    let mut bench = Bench::watching();
    bench.check(modified("a", 12), "modified a");
    bench.pass(329);
    bench.check(Input::Timer, "");

    let mut bench = Bench::watching();
    bench.pass(60);
    bench.check(bookmark("20", false), "bookmark 20");
    bench.pass(60);
    bench.check(modified("a", 30), "modified a");
    // Half a minute after the bookmark would have come; no list, no wait, no report.
    bench.check_wait("WATCH 30");
    assert_eq!(bench.now, Instant::ZERO + Duration::from_secs(60 + 60 + 75));
    // The next one is dead as well.
    bench.check(failed(FailureKind::Connection), "Degraded; wait 800ms");
    bench.check_wait("WATCH 30");
    // And the one after it is silent from the beginning.
    bench.check(Input::Started, "Synced");
    bench.check_wait("WATCH 30");
}

#[test]
fn rf7_expired_watch_lists_at_the_last_version() {
    for input in [failed(FailureKind::Expired), in_stream(FailureKind::Expired)] {
        let mut bench = Bench::watching();
        bench.check(modified("a", 12), "modified a");
        // Not at once: all clients of a server expire together.
        bench.check(input.clone(), "wait 800ms");
        bench.check_wait("begin; LIST >=12 limit 2");
        bench.check(page(&["a"], "30", None), "items 1; end 30; WATCH 30");
        bench.check(input, "Degraded; wait 1600ms"); // at birth, without progress: RF6
        bench.check_wait("begin; LIST >=30 limit 2");
    }
}

#[test]
fn rf7_unavailable_version_lists_the_newest() {
    for kind in [FailureKind::Expired, FailureKind::TooLargeResourceVersion] {
        let mut bench = Bench::watching();
        bench.check(modified("a", 12), "modified a");
        bench.check(in_stream(FailureKind::Expired), "wait 800ms");
        bench.check_wait("begin; LIST >=12 limit 2");
        bench.check(failed(kind), "abort; begin; LIST newest limit 2");
        bench.check(page(&["a"], "3", None), "items 1; end 3 authoritative; WATCH 3");
        assert_eq!(
            bench.version(),
            "3",
            "the newest state of the server counts, even if its history was replaced"
        );
    }
}

#[test]
fn rf7_expired_continue_token_lists_everything_in_one() {
    let mut bench = Bench::new(false);
    bench.check(Input::Start, "Syncing; begin; LIST newest limit 2");
    bench.check(
        page(&["a", "b"], "10", Some("t")),
        "items 2; LIST newest limit 2 from t",
    );
    bench.check(failed(FailureKind::Expired), "abort; begin; LIST newest");
    bench.check(failed(FailureKind::Expired), "abort; Degraded; wait 800ms");
}

#[test]
fn rf7_unavailable_version_of_an_initial_stream() {
    let mut bench = Bench::new(true);
    bench.check(Input::Start, "Syncing; begin; WATCH unset initial");
    bench.check(failed(FailureKind::Expired), "abort; Degraded; wait 800ms");
    bench.check_wait("begin; WATCH unset initial");
    bench.check(bookmark("10", true), "end 10 authoritative; Synced");
    bench.check(modified("a", 12), "modified a");
    bench.check(in_stream(FailureKind::Expired), "wait 1600ms");
    bench.check_wait("begin; WATCH 12 initial");
    bench.check(
        failed(FailureKind::TooLargeResourceVersion),
        "abort; begin; WATCH unset initial",
    );
}

#[test]
fn rf7_server_behind_the_watch_is_waited_for_then_listed() {
    let mut bench = Bench::watching();
    bench.check(in_stream(FailureKind::TooLargeResourceVersion), "Degraded; wait 800ms");
    bench.check_wait("WATCH 10");
    bench.check(failed(FailureKind::TooLargeResourceVersion), "wait 1600ms");
    bench.check_wait("WATCH 10");
    bench.check(failed(FailureKind::TooLargeResourceVersion), "wait 3200ms");
    bench.check_wait("begin; LIST >=10 limit 2");
}

#[test]
fn rf8_stop_in_every_state() {
    type Start = fn() -> Bench;
    let starts: [(&str, Start); 4] = [
        ("Stopped", || Bench::new(false)),
        ("abort; Stopped", || {
            let mut bench = Bench::new(true);
            bench.check(Input::Start, "Syncing; begin; WATCH unset initial");
            bench
        }),
        ("Stopped", Bench::watching),
        ("Stopped", || {
            let mut bench = Bench::watching();
            bench.check(failed(FailureKind::Server), "Degraded; wait 800ms");
            bench
        }),
    ];
    for (want, start) in starts {
        let mut bench = start();
        bench.check(Input::Stop, want);
        assert_eq!(bench.reflector.deadline(), None);
        for input in [Input::Start, Input::Timer, Input::Stop, modified("a", 99)] {
            bench.check(input, "");
        }
    }
}

#[test]
fn rf10_bookmark_moves_versions() {
    let mut bench = Bench::watching();
    bench.check(bookmark("25", false), "bookmark 25");
    assert_eq!(bench.version(), "25");
    bench.check(bookmark("24", false), "bookmark 24");
    assert_eq!(bench.version(), "25", "never back");
}

#[test]
fn rf11_bad_frame_resumes_before_it() {
    let bad: [fn() -> Input<Object>; 3] = [
        || failed(FailureKind::Decode),
        || Input::Event(WatchEvent::Added(object("", 13))),
        || Input::Event(WatchEvent::Added(object("a", 0))),
    ];
    for bad in bad {
        let mut bench = Bench::watching();
        bench.check(modified("a", 12), "modified a");
        for wait in ["Degraded; wait 800ms", "wait 1600ms"] {
            bench.check(bad(), wait);
            bench.check_wait("WATCH 12");
        }
        bench.check(bad(), "wait 3200ms");
        bench.check_wait("begin; LIST >=12 limit 2");
    }
}

#[test]
fn list_with_a_nameless_object_or_without_version_is_refused() {
    let mut bench = Bench::new(false);
    bench.check(Input::Start, "Syncing; begin; LIST newest limit 2");
    bench.check(page(&["a", ""], "10", None), "abort; Degraded; wait 800ms");
    bench.check_wait("begin; LIST newest limit 2");
    let page = ListPage {
        unreadable: Vec::new(),
        items: vec![],
        resource_version: None,
        continue_token: None,
    };
    bench.check(Input::Page(page), "items 0; abort; Degraded; wait 1600ms");
}

#[test]
fn watch_timeouts_are_spread() {
    let reflector = Bench::watching().reflector;
    for (entropy, seconds) in [(0, 300), (300, 600), (301, 300), (u64::MAX, 300 + u64::MAX % 301)] {
        assert_eq!(reflector.watch_timeout(entropy), Duration::from_secs(seconds));
    }
}

#[test]
fn rf11_an_unreadable_object_passes_like_any_other() {
    let bad = |version: &str| crate::Unreadable {
        key: ObjectKey::cluster("bad"),
        uid: None,
        resource_version: Some(version.into()),
        message: "spec: invalid type".to_owned(),
    };
    let mut bench = Bench::new(true);
    bench.check(Input::Start, "Syncing; begin; WATCH unset initial");
    bench.check(Input::Event(WatchEvent::Unreadable(bad("3"))), "unreadable items 1");
    bench.check(Input::Event(WatchEvent::UnreadableDeleted(bad("4"))), "unlisted bad");
    bench.check(bookmark("10", true), "end 10 authoritative; Synced");
    bench.check(Input::Event(WatchEvent::Unreadable(bad("12"))), "unreadable bad");
    assert_eq!(bench.version(), "12", "it is not asked for again");
    bench.check(
        Input::Event(WatchEvent::UnreadableDeleted(bad("13"))),
        "deleted unreadable bad",
    );

    let mut bench = Bench::new(false);
    bench.check(Input::Start, "Syncing; begin; LIST newest limit 2");
    let page = Input::Page(ListPage {
        items: vec![object("a", 1)],
        unreadable: vec![bad("1")],
        resource_version: Some("10".into()),
        continue_token: None,
    });
    bench.check(
        page,
        "items 1; unreadable items 1; end 10 authoritative; Synced; WATCH 10",
    );
}
