//! A test in a process of its own: this program again, for that test alone. It is for what belongs to a whole process,
//! which the tests beside it would disturb.

use std::process::Command;

/// Set in the process that has one test.
const ALONE: &str = "KUBEWRIGHT_TEST_ALONE";

/// Whether `test`, which asks, ran in a process of its own; in that process it did not, and has to go on.
///
/// # Panics
/// When it fails there.
pub(crate) fn ran<T>(_: &T) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return false;
    }
    let (_, test) = std::any::type_name::<T>()
        .split_once("::")
        .expect("a function of this program");
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{test}:\n{said}{words}"
    );
    true
}
