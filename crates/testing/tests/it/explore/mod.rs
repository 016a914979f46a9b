//! The explorer finds what is wrong with an operator, and nothing where nothing is.

mod blind;
mod classes;
mod corpus;
mod known;
mod unseen;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kubewright::{Action, Context, Controller, Operator, Reconciler, Webhook};
use kubewright_runlog::{Entry, Unpacker, What};
use kubewright_testing::explore::{Explore, Step};
use kubewright_testing::{Cluster, Controllers, Result};
use serde_json::{Value, json};

/// Makes a copy of every ConfigMap with the label `copy`, in a ConfigMap that is called `…-copy`.
struct Copier(Habit);

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Habit {
    /// Nothing.
    Good,
    /// It makes the copy when there is none, and does not look at it again.
    Once,
    /// It makes the copy under a name that the server makes up, and remembers that afterwards.
    MadeUpName,
    /// It writes the time of its last look into the copy.
    Restless,
    /// It gives up when a write fails.
    GivesUp,
    /// It panics when the copy is gone.
    Panics,
    /// It makes the copy anew when it changes: for a moment there is none.
    Replaces,
}

fn owned_by(owner: &ConfigMap) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        name: owner.metadata.name.clone().unwrap_or_default(),
        uid: owner.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

impl Reconciler for Copier {
    type Object = ConfigMap;

    async fn reconcile(&self, object: Arc<ConfigMap>, ctx: Context) -> kubewright::Result<Action> {
        let meta = &object.metadata;
        if meta.labels.as_ref().is_none_or(|labels| !labels.contains_key("copy")) || meta.deletion_timestamp.is_some() {
            return Ok(Action::await_change());
        }
        let (name, namespace) = (
            meta.name.clone().unwrap_or_default(),
            meta.namespace.clone().unwrap_or_default(),
        );
        let made = meta.annotations.as_ref().and_then(|all| all.get("made"));
        let mut copy = ConfigMap::default();
        copy.metadata.name = Some(format!("{name}-copy"));
        copy.metadata.namespace = Some(namespace.clone());
        copy.data = object.data.clone();
        let remember = async |made: String| {
            let mut object = (*object).clone();
            object
                .metadata
                .annotations
                .get_or_insert_default()
                .insert("made".to_owned(), made);
            ctx.client().update(&object).await.map(drop)
        };
        match self.0 {
            Habit::Good => {
                ctx.apply(copy).await?;
            }
            Habit::Once => {
                if made.is_none() {
                    ctx.apply(copy).await?;
                    remember("yes".to_owned()).await?;
                }
            }
            Habit::MadeUpName => {
                if made.is_none() {
                    copy.metadata.generate_name = Some(format!("{name}-copy-"));
                    copy.metadata.name = None;
                    copy.metadata.owner_references = Some(vec![owned_by(&object)]);
                    let copy = ctx.client().create(&copy).await?;
                    remember(copy.metadata.name.clone().unwrap_or_default()).await?;
                }
            }
            Habit::Restless => {
                copy.data
                    .get_or_insert_default()
                    .insert("seen".to_owned(), ctx.now().to_string());
                ctx.apply(copy).await?;
                return Ok(Action::requeue_after(Duration::from_secs(20)));
            }
            Habit::GivesUp => {
                // The error is swallowed: that is what is wrong.
                let _ = ctx.apply(copy).await;
            }
            Habit::Replaces => {
                let known = ctx
                    .client()
                    .get::<ConfigMap>(&namespace, &format!("{name}-copy"))
                    .await?;
                if let Some(known) = known.filter(|known| known.data != copy.data) {
                    ctx.client().delete(&*known).await?;
                }
                ctx.apply(copy).await?;
            }
            Habit::Panics => {
                let known = ctx
                    .client()
                    .get::<ConfigMap>(&namespace, &format!("{name}-copy"))
                    .await?;
                assert!(known.is_some() || made.is_none(), "the copy is gone");
                ctx.apply(copy).await?;
                if made.is_none() {
                    remember("yes".to_owned()).await?;
                }
            }
        }
        Ok(Action::await_change())
    }
}

fn operator(habit: Habit) -> Operator {
    Operator::new("copier").controller(Controller::of(Copier(habit)).owns::<ConfigMap>())
}

fn steps() -> Vec<Step> {
    let source = |text: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "source", "namespace": "default", "labels": {"copy": "yes"}},
            "data": {"text": text},
        })
    };
    vec![
        Step::apply("create the source", source("one")),
        Step::apply("change the source", source("two")),
        Step::delete("delete the source", "v1", "ConfigMap", "default", "source"),
    ]
}

fn explore(habit: Habit) -> Explore {
    let only = || {
        Controllers::Only(
            ["namespace", "serviceaccount", "garbage-collector"]
                .map(str::to_owned)
                .into(),
        )
    };
    Explore::of(move || operator(habit))
        .cluster(move || Cluster::builder().controllers(only()))
        .steps(steps())
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() -> Result<()> {
    let report = explore(Habit::Good).exhaustive().run()?;
    report.assert_none();
    assert!(report.played > 50 && report.played == report.faults, "{report}");
    assert_eq!(report.missed, 0, "{report}");
    Ok(())
}

/// Refuses no source.
struct Polite;

impl kubewright::Validator for Polite {
    type Object = ConfigMap;
}

/// The good operator, with a webhook for its sources: the API server takes none while no process serves it.
fn with_webhook() -> Operator {
    let labels = std::collections::BTreeMap::from([("copy".to_owned(), "yes".to_owned())]);
    let sources = LabelSelector {
        match_labels: Some(labels),
        ..LabelSelector::default()
    };
    let webhook = Webhook::of::<ConfigMap>()
        .validator(Polite)
        .validating(|registration| registration.object_selector(sources));
    operator(Habit::Good).webhook(webhook)
}

#[test]
fn a_user_asks_again_for_what_a_webhook_refused_that_was_not_there() -> Result<()> {
    for fault in ["down@1", "down@2"] {
        let report = Explore::of(with_webhook).steps(steps()).replay(fault)?.run()?;
        report.assert_none();
        assert_eq!((report.played, report.missed), (1, 0), "{fault}: {report}");
    }
    Ok(())
}

#[test]
fn what_is_wrong_is_found() -> Result<()> {
    // A fault that shows it, or none where the undisturbed run does, and a part of the sentence.
    let check = |habit: Habit, fault: Option<&str>, what: &str| -> Result<()> {
        let report = explore(habit).replay(fault.unwrap_or("crash-before@1"))?.run()?;
        let found = report.findings.iter().find(|finding| finding.what.contains(what));
        let found = found.unwrap_or_else(|| panic!("{habit:?}: {what:?} is not among\n{report}"));
        let faults: Vec<String> = found.faults.iter().map(ToString::to_string).collect();
        assert_eq!(faults, Vec::from_iter(fault.map(str::to_owned)), "{habit:?}\n{report}");
        Ok(())
    };
    check(
        Habit::Once,
        Some("deleted@1#1"),
        "configmaps default/source-copy is missing after step 1",
    )?;
    check(
        Habit::MadeUpName,
        Some("crash-after@1"),
        "configmaps default/source-copy-* is there 2 times after step 1",
    )?;
    check(Habit::Restless, None, "it writes again and again")?;
    check(
        Habit::GivesUp,
        Some("outage@1"),
        "configmaps default/source-copy is missing after step 1",
    )?;
    check(Habit::Panics, Some("deleted@1#1"), "a reconcile panicked")?;
    Ok(())
}

#[test]
fn an_operator_that_looks_no_further_misses_each_of_its_children() -> Result<()> {
    let report = explore(Habit::Once).run()?;
    let found = report
        .findings
        .iter()
        .find(|finding| finding.what.ends_with("is missing after step 1"));
    let found = found.unwrap_or_else(|| panic!("{report}"));
    assert!(found.faults.iter().any(|fault| fault.class() == "deleted"), "{report}");
    Ok(())
}

#[test]
fn what_holds_at_the_end_of_each_step_may_not_hold_all_the_time() -> Result<()> {
    const COPIED: &str = "what was copied once has a copy";
    let has_copy = |objects: &[Value]| {
        let named = |name: &str| objects.iter().any(|object| object["metadata"]["name"] == name);
        let mut source = objects.iter().filter(|object| object["metadata"]["name"] == "source");
        let was_copied = source.any(|source| source["data"]["text"] == "two");
        !was_copied || named("source-copy")
    };
    for (habit, is_found) in [(Habit::Good, false), (Habit::Replaces, true)] {
        let report = explore(habit).invariant(COPIED, has_copy).replay("slow@1")?.run()?;
        let found = report.findings.iter().any(|finding| finding.what.ends_with(COPIED));
        assert_eq!(found, is_found, "{habit:?}\n{report}");
    }
    Ok(())
}

#[test]
fn a_report_tells_what_happened() -> Result<()> {
    let report = explore(Habit::MadeUpName).replay("crash-after@1/1")?.run()?;
    let text = report.to_string();
    let lines = [
        "1. configmaps default/source-copy-* is there 2 times after step 1 (high; crash-after@1)",
        "step 1: create the source",
        "proc 1    hears ADDED configmaps default/source",
        "proc 1  configmap reconciles default/source: ConfigMap default/source created",
        "→ carried out, no answer",
        "✗ the operator dies; it never sees the answer (crash-after@1)",
        "proc 2    create configmaps default/source-copy-",
        "again: .replay(\"crash-after@1/1\")",
    ];
    // In this order.
    let mut rest = text.as_str();
    for line in lines {
        let at = rest
            .find(line)
            .unwrap_or_else(|| panic!("{line:?} is missing here:\n{text}"));
        rest = &rest[at..];
    }
    check_book(&text);
    Ok(())
}

#[test]
fn every_run_is_written_down_behind_what_is_there() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder for the log");
    let path = folder.path().join("run.log");
    let mut expected = BTreeSet::new();
    for fault in ["crash-after@1", "forbidden@1"] {
        explore(Habit::Good).log(&path)?.replay(fault)?.run()?.assert_none();
        expected.extend([fault.to_owned(), "undisturbed".to_owned()]);
        let mut entries = Vec::new();
        let log = std::fs::read(&path).expect("there is a log");
        let whole = Unpacker::default().add(&log, |entry| entries.push(entry));
        whole.expect("the log can be read");
        let runs: BTreeSet<String> = entries.iter().map(|entry| entry.run.clone()).collect();
        assert_eq!(runs, expected);
        let ends = |entry: &Entry, how: &str| {
            let of = format!("configmap ends default/source: {how}");
            matches!(&entry.what, What::Reconcile { begins: false, text } if text.starts_with(&of))
        };
        for run in &runs {
            let mut of_run = entries.iter().filter(|entry| entry.run == *run);
            let created = of_run.find(|entry| entry.is_effective());
            assert_eq!(
                created.map(Entry::object).as_deref(),
                Some("configmaps default/source-copy"),
                "{run}"
            );
            assert!(of_run.any(|entry| ends(entry, "done")), "{run}");
        }
        let failed = |entry: &Entry| entry.run == "forbidden@1" && ends(entry, "failed");
        assert_eq!(entries.iter().any(failed), fault == "forbidden@1");
    }
    std::fs::write(&path, "no log").expect("a file");
    assert!(explore(Habit::Good).log(&path).is_err());
    Ok(())
}

/// The book shows this report. How long it took, and what the server appends to a name, is another each time.
fn check_book(text: &str) {
    const STEM: &str = "source-copy-";
    let mut shown = String::new();
    for line in text.lines() {
        let mut line = line.to_owned();
        if let Some((before, after)) = line.split_once(" fault in ")
            && let Some((_, after)) = after.split_once(" s, ")
        {
            line = format!("{before} fault in 0.9 s, {after}");
        }
        let mut from = 0;
        while let Some(at) = line[from..].find(STEM) {
            from += at + STEM.len();
            let made_up = line[from..].bytes().take_while(u8::is_ascii_alphanumeric).count();
            line.replace_range(from..from + made_up, &"x".repeat(made_up));
        }
        shown.push_str(line.trim_end());
        shown.push('\n');
    }
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // The first page has some of its lines.
    let readme = std::fs::read_to_string(root.join("README.md")).expect("there is a README");
    let (_, block) = readme.split_once("```text\n1. ").expect("README shows a finding");
    let mut rest = shown.lines();
    for line in format!("1. {block}").lines().take_while(|line| *line != "```") {
        assert!(
            rest.any(|shown| shown == line),
            "README: {line:?} is not in this order in\n{shown}"
        );
    }
    let page = root.join("docs/src/pictures/finding.txt");
    if std::env::var_os("KUBEWRIGHT_UPDATE_BOOK").is_some() {
        std::fs::write(&page, &shown).expect("the book can be written");
    }
    let present = std::fs::read_to_string(&page).unwrap_or_default();
    assert_eq!(
        present, shown,
        "docs/src/pictures/finding.txt is not what a report says: KUBEWRIGHT_UPDATE_BOOK=1"
    );
}
