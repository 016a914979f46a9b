//! Damage of every sort: said, never served, and saved as far as it goes.

use std::fs;

use super::*;

const OBJECTS: u64 = 60;

/// A folder with [`OBJECTS`] objects, closed; and the latest revision.
fn folder() -> (tempfile::TempDir, u64) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let storage = Waiting::open(folder.path());
    for number in 0..OBJECTS {
        let name = format!("n/object-{number:02}");
        let created = storage.create("configmaps", &name, object(number)).expect("it is new");
        let mut value = created.value().clone();
        value["marker"] = json!(format!("latest-{number:02}"));
        storage
            .update("configmaps", &name, created.revision(), value)
            .expect("nobody is faster");
    }
    let revision = storage.revision();
    storage.journal.close();
    (folder, revision)
}

/// Where a text stands last.
fn position(bytes: &[u8], text: &str) -> usize {
    let found = bytes.windows(text.len()).rposition(|window| window == text.as_bytes());
    found.expect("the text stands in the file")
}

/// Changes every place where `text` stands.
fn hit(bytes: &mut [u8], text: &str) {
    let size = text.len();
    for at in 0..bytes.len() - size {
        if &bytes[at..at + size] == text.as_bytes() {
            bytes[at] ^= 0x20;
        }
    }
}

/// Damage to a folder, the error of the next start, and the objects that a repair saves: how many, and how many of them
/// certainly.
fn check(what: &str, damage: impl FnOnce(&Path), says: &[&str], saved: Option<(u64, u64)>) {
    let (folder, revision) = folder();
    damage(folder.path());
    let Err(error) = super::super::open(folder.path(), true, Default::default()) else {
        panic!("{what}: the damage is not noticed")
    };
    let text = error.to_string();
    for part in says {
        assert!(text.contains(part), "{what}: should say {part:?}, says: {text}");
    }
    let Some((least, certain)) = saved else { return };
    let report = repair(folder.path()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let saved = u64::try_from(report.saved).expect("not many");
    let uncertain = u64::try_from(report.uncertain.len()).expect("not many");
    assert!(!report.damage.is_empty(), "{what}: {report:?}");
    assert!(saved >= least, "{what}: {report:?}");
    assert!(saved - uncertain >= certain, "{what}: {report:?}");
    assert!(
        report.kept.as_ref().is_some_and(|kept| kept.exists()),
        "{what}: {report:?}"
    );
    let storage = Waiting::open(folder.path());
    assert!(storage.revision() > revision, "{what}: revisions never go back");
    let listed = storage
        .list("configmaps", &ListRequest::default())
        .expect("now is never compacted");
    assert_eq!(listed.items.len(), report.saved, "{what}");
    for (key, object) in &listed.items {
        let certain = !report.uncertain.iter().any(|name| name.ends_with(&**key));
        let latest = object.value()["marker"] == format!("latest-{}", &key[key.len() - 2..]).as_str();
        assert!(
            latest || !certain,
            "{what}: {key} is an old version, and is said to be the latest"
        );
    }
    storage
        .create("configmaps", "n/new", object(1))
        .expect("it works again");
    storage.journal.close();
    let again = repair(folder.path()).expect("nothing is damaged now");
    assert!(again.damage.is_empty() && again.kept.is_none(), "{what}: {again:?}");
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let file = path.join(OBJECTS_FILE);
    let mut bytes = fs::read(&file).expect("it is there");
    change(&mut bytes);
    fs::write(file, bytes).expect("it can be written");
}

#[test]
fn damage_is_said_and_repaired() {
    let rescue = "`kubewright cluster --data-dir … --repair` saves them";
    check(
        "a flipped bit in an object",
        |path| {
            change(path, |bytes| {
                hit(bytes, "latest-17");
            });
        },
        &[
            OBJECTS_FILE,
            "is damaged",
            "the record at byte",
            "configmaps n/object-17",
            "fails its checksum",
            "objects can be saved",
            rescue,
        ],
        Some((OBJECTS - 1, OBJECTS - 1)),
    );
    check(
        "several objects",
        |path| {
            change(path, |bytes| {
                (20..30).for_each(|number| hit(bytes, &format!("latest-{number}")));
            });
        },
        &["n/object-20", "objects can be saved", rescue],
        Some((OBJECTS - 10, OBJECTS - 10)),
    );
    check(
        // How much of the rest is certain differs: a debug build of the database refuses such a file altogether.
        "a page of zeros in the middle",
        |path| {
            change(path, |bytes| {
                let at = position(bytes, "latest-30") / 4096 * 4096;
                bytes[at..at + 4096].fill(0);
            });
        },
        &["is damaged", "objects can be saved", rescue],
        Some((OBJECTS - 20, 0)),
    );
    check(
        "a file that is cut off",
        |path| {
            change(path, |bytes| {
                let at = position(bytes, "latest-59");
                bytes.truncate(at - 4096);
            });
        },
        &["is damaged", rescue],
        Some((1, 0)),
    );
    check(
        "a header of zeros",
        |path| change(path, |bytes| bytes[..4096].fill(0)),
        &["is damaged", "objects can be saved", rescue],
        Some((OBJECTS, 0)),
    );
}

#[test]
fn what_is_no_folder_of_ours_is_refused() {
    check(
        "an empty file",
        |path| change(path, Vec::clear),
        &["is damaged", "no object can be saved"],
        None,
    );
    check(
        "a foreign file",
        |path| change(path, |bytes| *bytes = b"SQLite format 3\0".repeat(1000)),
        &["is damaged", "no object can be saved"],
        None,
    );
    check(
        "no file",
        |path| fs::remove_file(path.join(OBJECTS_FILE)).expect("it is there"),
        &["objects.redb is missing"],
        None,
    );
    check(
        "a newer format",
        |path| fs::write(path.join("kubewright.json"), r#"{"format": 3}"#).expect("it can be written"),
        &[
            "kubewright.json has format 3",
            "knows formats up to 2",
            "use the version that wrote it",
        ],
        None,
    );
    check(
        "a mark that is no mark",
        |path| fs::write(path.join("kubewright.json"), "{").expect("it can be written"),
        &["kubewright.json is damaged", "does not say which format"],
        None,
    );
    check(
        "a foreign folder",
        |path| {
            for name in ["kubewright.json", OBJECTS_FILE] {
                fs::remove_file(path.join(name)).expect("it is there");
            }
            fs::write(path.join("thesis.tex"), "").expect("it can be written");
        },
        &["is not the folder of a cluster", "holds thesis.tex"],
        None,
    );
}

#[test]
fn files_without_an_end_are_refused() {
    for name in [OBJECTS_FILE, "kubewright.json", "lock", "pki/sa.key", "pki/ca.crt"] {
        let (folder, _) = folder();
        let path = folder.path().join(name);
        let open = || -> Result<(), String> {
            let opened =
                super::super::open(folder.path(), true, Default::default()).map_err(|error| error.to_string())?;
            let secret = || Ok::<_, DataDirError>("secret".to_owned());
            let kept = ["pki/sa.key", "pki/ca.crt"].map(|name| opened.folder.keep(name, secret));
            opened.journal.close();
            for kept in kept {
                kept.map_err(|error| error.to_string())?;
            }
            Ok(())
        };
        open().expect("the folder is intact");
        for (kind, said) in [("fifo", "it is a FIFO"), ("/dev/zero", "it is a device")] {
            fs::remove_file(&path).expect("it is there");
            if kind == "fifo" {
                rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).expect("a FIFO");
            } else {
                std::os::unix::fs::symlink(kind, &path).expect("a link");
            }
            let error = open().expect_err("it has no end");
            let file = path.file_name().expect("it has a name").to_string_lossy();
            assert!(
                error.contains(said) && error.contains(&*file),
                "{name}, {kind}: {error}"
            );
        }
    }
}

#[test]
fn nothing_is_acknowledged_in_a_file_that_is_gone() {
    let outer = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| outer.path().join(name);
    let rename = |from: &str, to: &str| fs::rename(at(from), at(to)).expect("it can be moved");
    let storage = Waiting::open(&at("data"));
    let refused = |said: &str| {
        // Writes are refused from the first one on that cannot be kept.
        let error = storage
            .create("s", "lost", object(1))
            .map(drop)
            .expect_err("it cannot be kept");
        assert!(matches!(error, StorageError::Unavailable(_)), "{error:?}");
        let trouble = storage.storage.trouble().expect("the reason is reported");
        assert!(trouble.contains(said) && trouble.contains("put it back"), "{trouble}");
        assert_eq!(storage.content(), [("kept".to_owned(), 2, json!(0))]);
    };
    storage.create("s", "kept", object(0)).expect("the folder is there");
    rename("data", "elsewhere");
    refused("objects.redb was moved or removed");
    rename("elsewhere", "data");
    storage.recover();
    rename("data/objects.redb", "mine");
    fs::write(at("data/objects.redb"), "").expect("it can be written");
    refused("objects.redb was replaced");
    rename("mine", "data/objects.redb");
    storage.recover();
    storage.create("s", "late", object(2)).expect("the folder is back");
    let content = storage.content();
    storage.journal.close();
    let again = Waiting::open(&at("data"));
    assert_eq!(again.content(), content);
    again.journal.close();
}

#[test]
fn what_is_not_there_is_not_repaired() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let missing = folder.path().join("mistyped");
    let error = repair(&missing).expect_err("nothing is there");
    assert!(error.to_string().starts_with("cannot find "), "{error}");
    assert!(!missing.exists());
}

#[test]
fn a_folder_serves_one_process() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let first = Waiting::open(folder.path());
    let error = super::super::open(folder.path(), true, Default::default())
        .map(drop)
        .expect_err("it is in use");
    let text = format!("is in use by process {}", std::process::id());
    assert!(error.to_string().contains(&text), "{error}");
    assert!(matches!(repair(folder.path()), Err(DataDirError::InUse { .. })));
    first.journal.close();
    Waiting::open(folder.path()).journal.close();
}
