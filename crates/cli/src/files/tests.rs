//! Writes that succeed, are refused, fail on the way, or are interrupted: afterwards everything is there, or everything
//! is as it was.

use std::collections::BTreeMap;

use super::*;

/// All files of a folder with their texts.
fn tree(root: &Path) -> BTreeMap<String, String> {
    let disk = Disk::new(root);
    let files = disk.list("").unwrap();
    files
        .into_iter()
        .map(|path| (path.clone(), fs::read_to_string(root.join(path)).unwrap()))
        .collect()
}

fn before(root: &Path) {
    for (path, text) in [
        ("kept", "k"),
        ("changed", "1"),
        ("gone/deep/er", "x"),
        ("in/the/way", "w"),
    ] {
        let place = root.join(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, text).unwrap();
    }
}

fn edits(plan: &mut Plan<'_>) {
    plan.write("changed", "2").unwrap();
    plan.write("new/one", "n").unwrap();
    plan.remove("gone/deep/er").unwrap();
    plan.write("zzz/last", "z").unwrap();
}

/// Makes a folder, plans the edits, lets `happen` happen, writes, and compares.
fn check(happen: impl FnOnce(&Path), expected: Option<&str>) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    before(root);
    let disk = Disk::new(root);
    let mut plan = Plan::new(&disk);
    edits(&mut plan);
    happen(root);
    let then = tree(root);
    match (disk.write(&plan), expected) {
        (Ok(()), None) => {
            let now = tree(root);
            assert_eq!((now["changed"].as_str(), now["new/one"].as_str()), ("2", "n"));
            assert!(!root.join("gone").exists(), "empty folders go");
            let mut again = Plan::new(&disk);
            edits(&mut again);
            assert!(again.is_empty());
        }
        (Err(wrong), Some(part)) => {
            assert!(wrong.to_string().contains(part), "{wrong}");
            assert_eq!(tree(root), then, "nothing changed");
        }
        (outcome, expected) => panic!("{outcome:?}, expected {expected:?}"),
    }
    assert!(!root.join(STAGE).exists(), "nothing is left behind");
}

#[test]
fn a_plan_is_written_whole_or_not_at_all() {
    check(|_| {}, None);
    check(
        |root| fs::write(root.join("changed"), "mine").unwrap(),
        Some("changed while the command"),
    );
    check(
        |root| fs::write(root.join("new"), "a file where a folder belongs").unwrap(),
        Some("at: new/one"),
    );
    // The last step fails, after all others were carried out.
    check(|root| fs::write(root.join("zzz"), "x").unwrap(), Some("at: zzz/last"));
    check(
        |root| fs::create_dir_all(root.join("zzz/last/x")).unwrap(),
        Some("zzz/last"),
    );
}

#[cfg(unix)]
#[test]
fn links_are_not_followed_and_paths_stay_inside() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().to_owned();
    check(
        move |root| std::os::unix::fs::symlink(&target, root.join("new")).unwrap(),
        Some("symbolic link"),
    );
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    let disk = Disk::new(outside.path());
    for path in ["../x", "/x", "a/../../x", ""] {
        assert!(disk.read(path).is_err(), "{path}");
    }
}

#[test]
fn an_interrupted_write_is_finished_or_forgotten() {
    for decided in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        before(root);
        let then = tree(root);
        let disk = Disk::new(root);
        let mut plan = Plan::new(&disk);
        edits(&mut plan);
        // The process ends here: the folder stays, the lock is free.
        let staged = Staged::prepare(&disk, &plan).unwrap();
        if decided {
            staged.decide().unwrap();
        }
        drop(staged);
        assert_eq!(tree(root), then);
        assert_eq!(disk.recover().unwrap(), decided);
        let now = tree(root);
        assert_eq!(now.get("new/one").map(String::as_str), decided.then_some("n"));
        assert_eq!(now["changed"], if decided { "2" } else { "1" });
        assert!(!root.join(STAGE).exists());
    }
}

#[test]
fn a_journal_from_elsewhere_writes_nothing() {
    let outside = tempfile::tempdir().unwrap();
    let absolute = outside.path().join("evil").display().to_string();
    for path in [
        absolute.as_str(),
        "../evil",
        "in/../../evil",
        "link/evil",
        ".git/hooks/post-commit",
        ".kubewright-write/1",
    ] {
        let folder = tempfile::tempdir().unwrap();
        before(folder.path());
        std::os::unix::fs::symlink(outside.path(), folder.path().join("link")).unwrap();
        let stage = folder.path().join(STAGE);
        fs::create_dir(&stage).unwrap();
        fs::write(stage.join("0"), "evil").unwrap();
        let steps = serde_json::json!([{"path": path, "before": false, "after": true}]);
        fs::write(stage.join("journal"), steps.to_string()).unwrap();
        let there = tree(folder.path());
        let disk = Disk::new(folder.path());
        for told in [disk.recover().map(|_| ()), {
            let mut plan = Plan::new(&disk);
            edits(&mut plan);
            disk.write(&plan)
        }] {
            let told = told.unwrap_err().to_string();
            assert!(
                told.contains("no kubewright command wrote this journal"),
                "{path}: {told}"
            );
        }
        assert_eq!(tree(folder.path()), there, "{path}");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0, "{path}");
    }
}

#[test]
fn two_commands_do_not_write_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::new(folder.path());
    let mut plan = Plan::new(&disk);
    plan.write("a", "1").unwrap();
    let held = Staged::prepare(&disk, &plan).unwrap();
    let wrong = disk.write(&plan).unwrap_err();
    assert!(wrong.to_string().contains("another kubewright command"), "{wrong}");
    held.commit().unwrap();
    assert_eq!(tree(folder.path())["a"], "1");
}

/// An edit of one command is never lost to another: each write that was reported as done is in the file.
#[test]
fn many_commands_at_once_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::new(folder.path());
    fs::write(folder.path().join("count"), "0").unwrap();
    let add_one = || {
        let mut plan = Plan::new(&disk);
        let count: u32 = plan.read("count").unwrap().unwrap().parse().unwrap();
        plan.write("count", (count + 1).to_string()).unwrap();
        disk.write(&plan).is_ok()
    };
    let done: u32 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| (0..40).map(|_| u32::from(add_one())).sum::<u32>()))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(done > 0);
    assert_eq!(tree(folder.path())["count"], done.to_string());
}
