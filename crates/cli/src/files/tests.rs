//! Writes that succeed, are refused, or fail on the way: afterwards everything is there, or everything is as it was, or
//! the error says what is written.

use std::collections::BTreeMap;

use super::write::Prepared;
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
    let is_left = |path: &&String| path.contains(".kubewright-");
    assert_eq!(tree(root).keys().find(is_left), None, "nothing is left behind");
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

/// The last rename fails after the others are done.
#[test]
fn a_write_that_fails_on_the_way_says_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    before(root);
    let disk = Disk::new(root);
    let mut plan = Plan::new(&disk);
    edits(&mut plan);
    plan.write("zzz/more", "m").unwrap();
    let prepared = Prepared::of(&disk, &plan).unwrap();
    fs::create_dir_all(root.join("zzz/last/in/the/way")).unwrap();
    let told = prepared.carry_out().unwrap_err().to_string();
    for part in [
        "at: zzz/last\n",
        "written: changed, gone/deep/er, new/one; not written: zzz/last, zzz/more;",
        "git restore",
    ] {
        assert!(told.contains(part), "{told}");
    }
    let files = [("changed", "2"), ("in/the/way", "w"), ("kept", "k"), ("new/one", "n")];
    let expected = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
    assert_eq!(tree(root), BTreeMap::from(expected));
}

/// The first rename fails: nothing is written, and nothing is left of what was prepared.
#[test]
fn a_write_that_fails_at_once_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::new(folder.path());
    let mut plan = Plan::new(&disk);
    plan.write("a/b", "1").unwrap();
    plan.write("c/d", "2").unwrap();
    let prepared = Prepared::of(&disk, &plan).unwrap();
    fs::create_dir_all(folder.path().join("a/b/x")).unwrap();
    let told = prepared.carry_out().unwrap_err().to_string();
    assert!(told.contains("nothing was changed"), "{told}");
    assert_eq!(tree(folder.path()), BTreeMap::new());
    assert!(!folder.path().join("c").exists());
}

#[test]
fn a_file_keeps_its_mode() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mode = |name: &str| fs::metadata(path(name)).unwrap().permissions().mode() & 0o777;
    fs::write(path("run"), "1").unwrap();
    fs::set_permissions(path("run"), fs::Permissions::from_mode(0o751)).unwrap();
    // As the umask of this process has it.
    fs::write(path("usual"), "").unwrap();
    let disk = Disk::new(folder.path());
    let mut plan = Plan::new(&disk);
    plan.write("run", "2").unwrap();
    plan.write("new", "n").unwrap();
    disk.write(&plan).unwrap();
    assert_eq!((mode("run"), mode("new")), (0o751, mode("usual")));
}

#[test]
fn a_temporary_folder_is_private_and_goes() {
    let folder = temporary_folder().unwrap();
    let path = folder.path().to_path_buf();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    assert_ne!(temporary_folder().unwrap().path(), path);
    fs::write(path.join("x"), "x").unwrap();
    drop(folder);
    assert!(!path.exists());
}

#[test]
fn two_commands_do_not_write_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::new(folder.path());
    let mut plan = Plan::new(&disk);
    plan.write("a", "1").unwrap();
    let held = Prepared::of(&disk, &plan).unwrap();
    let wrong = disk.write(&plan).unwrap_err();
    assert!(wrong.to_string().contains("another kubewright command"), "{wrong}");
    held.carry_out().unwrap();
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
