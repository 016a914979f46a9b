//! `kubewright log`: a run log as a timeline, all of it or what is asked for.
//!
//! What a commit changes is said by comparing it with the one before of its object, so the log needs no differences. Not
//! here: the form of a run log (`kubewright-runlog`), and who writes it (`cluster --log`, `explore --log`).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use kubewright::changes_between;
use kubewright_cluster::{RunLog, require_regular};
use kubewright_runlog::{Entry, LogError, Named, Unpacker, What};
use serde_json::{Value, json};

use crate::output::{Failure, Format, count};

/// How many changes of an object stand in a line.
const CHANGES: usize = 4;
/// How often a log that grows is looked at.
const INTERVAL: Duration = Duration::from_millis(100);

/// Read a run log: who asked for what, what was written, what watches delivered
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The file that `cluster --log` or `explore --log` writes
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Only this run of an exploration, such as `undisturbed` or `crash-after@3`
    #[arg(long, value_name = "NAME")]
    run: Option<String>,

    /// Only what is of these kinds
    #[arg(long, value_name = "KIND,…", value_delimiter = ',', value_enum)]
    only: Vec<Kind>,

    /// Only requests and events of clients whose user or program contains this text
    #[arg(long, value_name = "TEXT")]
    client: Option<String>,

    /// Only what is about objects whose `RESOURCE NAMESPACE/NAME` contains this text
    #[arg(long, value_name = "TEXT")]
    object: Option<String>,

    /// Go on as the log grows, until Ctrl-C
    #[arg(long, short)]
    follow: bool,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Requests that may change something
    Writes,
    /// Other requests, and the begin of watches
    Reads,
    /// Changes of objects, each with the fields that differ
    Commits,
    /// What watches delivered
    Events,
    /// Reconciles
    Reconciles,
    /// Steps and faults of an exploration
    Steps,
    /// What the operator printed in an exploration
    Output,
}

impl Kind {
    /// The kind of an entry; that something is missing is always told.
    fn of(entry: &Entry) -> Option<Kind> {
        match entry.what {
            What::Write { .. } => Some(Kind::Writes),
            What::Read { .. } => Some(Kind::Reads),
            What::Commit { .. } => Some(Kind::Commits),
            What::Event { .. } => Some(Kind::Events),
            What::Reconcile { .. } => Some(Kind::Reconciles),
            What::Told(_) => Some(Kind::Steps),
            What::Printed(_) => Some(Kind::Output),
            What::Missed { .. } => None,
        }
    }
}

impl Arguments {
    pub(crate) fn run(self, output: Format) -> Result<(), Failure> {
        let failed = |why: Box<dyn std::error::Error + Send + Sync>, fix: &str| {
            Failure::new(format!("cannot read the run log {}", self.file.display()))
                .because(why)
                .fix(fix)
        };
        let fix = "name a file that `kubewright cluster --log FILE` or `kubewright explore --log FILE` has written";
        let unreadable = |why: std::io::Error| failed(why.into(), fix);
        let mut known = BTreeMap::new();
        let mut each = |entry: Entry| self.tell(output, &mut known, entry);
        let opened = |path: &Path| -> std::io::Result<File> {
            require_regular(std::fs::metadata(path)?.file_type())?;
            File::open(path)
        };
        let mut file = opened(&self.file).map_err(unreadable)?;
        let mut unpacker = Unpacker::default();
        let mut piece = vec![0; 64 * 1024];
        let mut take = |file: &mut File, unpacker: &mut Unpacker| -> Result<bool, Failure> {
            let read = file.read(&mut piece).map_err(unreadable)?;
            let added = unpacker.add(&piece[..read], &mut each);
            added.map_err(|why| match &why {
                LogError::Newer(_) => failed(why.into(), "read it with the kubewright that wrote it, or a newer one"),
                _ => failed(why.into(), fix),
            })?;
            Ok(read > 0)
        };
        match opened(&RunLog::old(&self.file)) {
            Ok(mut old) => {
                let mut unpacker = Unpacker::default();
                while take(&mut old, &mut unpacker)? {}
            }
            Err(why) if why.kind() == ErrorKind::NotFound => {}
            Err(why) => return Err(unreadable(why)),
        }
        loop {
            if take(&mut file, &mut unpacker)? {
                continue;
            }
            if !self.follow {
                break;
            }
            std::thread::sleep(INTERVAL);
            // A full one gives way to a new one, when all of it is written.
            let present = std::fs::metadata(&self.file);
            if present.is_ok_and(|present| file.metadata().is_ok_and(|file| file.ino() != present.ino())) {
                while take(&mut file, &mut unpacker)? {}
                file = opened(&self.file).map_err(unreadable)?;
                unpacker = Unpacker::default();
            }
        }
        if unpacker.waiting() > 0 {
            let bytes = count(unpacker.waiting(), "byte");
            output.warning(
                &format!("{bytes} at the end are not whole: they are being written, or their writer was killed"),
                &json!({"event": "note", "note": "the end is not whole", "bytes": unpacker.waiting()}),
            );
        }
        Ok(())
    }

    /// Prints an entry, if it is asked for.
    fn tell(&self, output: Format, known: &mut BTreeMap<Named, Value>, entry: Entry) {
        let mut changes = Vec::new();
        let mut event = Value::Null;
        if let What::Commit { kind, object, .. } = &entry.what {
            let object: Value = serde_json::from_str(object).unwrap_or_default();
            event = object.clone();
            let before = match kind.as_str() {
                "DELETED" => known.remove(&entry.named()),
                _ => known.insert(entry.named(), object.clone()),
            };
            if let Some(before) = before {
                changes = changes_between(&before, &object);
            }
        }
        if !self.wants(&entry) {
            return;
        }
        let mut text = entry.line();
        for (at, change) in changes.iter().take(CHANGES).enumerate() {
            text.push_str(if at == 0 { ": " } else { "; " });
            text.push_str(&change.to_string());
        }
        if changes.len() > CHANGES {
            text.push_str(&format!("; and {} more", changes.len() - CHANGES));
        }
        let mut line = json!(entry);
        line["event"] = json!("entry");
        if !event.is_null() {
            line["what"]["commit"]["object"] = event;
            line["changes"] = json!(changes.iter().map(ToString::to_string).collect::<Vec<_>>());
        }
        output.say(&text, &line);
    }

    fn wants(&self, entry: &Entry) -> bool {
        let Some(kind) = Kind::of(entry) else { return true };
        let has = |text: &str, part: &Option<String>| part.as_ref().is_none_or(|part| text.contains(part));
        let is_of_client = self.client.is_none() || has(&entry.user, &self.client) || has(&entry.agent, &self.client);
        (self.only.is_empty() || self.only.contains(&kind))
            && self.run.as_ref().is_none_or(|run| *run == entry.run)
            && is_of_client
            && (self.object.is_none() || has(&entry.object(), &self.object))
    }
}
