//! Tests whose pods really run: the main function of a test program, and the case that a program is not on this
//! machine.
//!
//! A cluster that runs processes starts its own program again, as the shim of each of them; so the main function must
//! be ours, and Cargo is told `harness = false`. Arguments are those of Rust's own harness, as far as `cargo test` and
//! people use them: filters, `--exact`, `--list`, `--skip`.
//!
//! Not here: several tests at the same time. Databases want the whole machine.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a main function")]

use std::error::Error;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::process::ExitCode;

/// The type of a test.
pub type Test = fn() -> Pin<Box<dyn Future<Output = Result<(), Box<dyn Error>>>>>;

/// The main function of a test program whose clusters run pods as processes: [`process_tests!`](crate::process_tests)
/// makes it.
pub fn main(tests: &[(&str, Test)]) -> ExitCode {
    if let Some(code) = kubewright_cluster::processes::called() {
        return ExitCode::from(code);
    }
    let asked = Arguments::of(std::env::args().skip(1));
    let chosen = tests.iter().filter(|(name, _)| asked.means(name));
    if asked.list {
        chosen.for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let (mut passed, mut failed) = (0, Vec::new());
    for (name, test) in chosen {
        match catch_unwind(AssertUnwindSafe(|| run(*test))) {
            Ok(Ok(())) => {
                passed += 1;
                println!("test {name} ... ok");
            }
            Ok(Err(why)) => {
                eprintln!("{name}: {why}");
                failed.push(name);
            }
            Err(_) => failed.push(name), // its words are on the terminal already
        }
    }
    for name in &failed {
        println!("test {name} ... FAILED");
    }
    println!("\ntest result: {passed} passed; {} failed", failed.len());
    match failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(101),
    }
}

fn run(test: Test) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(test())
}

#[derive(Default)]
struct Arguments {
    filters: Vec<String>,
    skipped: Vec<String>,
    exact: bool,
    list: bool,
}

impl Arguments {
    fn of(mut arguments: impl Iterator<Item = String>) -> Arguments {
        let mut asked = Arguments::default();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--exact" => asked.exact = true,
                "--list" => asked.list = true,
                "--skip" => asked.skipped.extend(arguments.next()),
                "--test-threads" | "--format" | "--color" => drop(arguments.next()),
                flag if flag.starts_with('-') => {}
                _ => asked.filters.push(argument),
            }
        }
        asked
    }

    fn means(&self, name: &str) -> bool {
        let fits = |filter: &String| match self.exact {
            true => name == filter,
            false => name.contains(filter.as_str()),
        };
        (self.filters.is_empty() || self.filters.iter().any(fits)) && !self.skipped.iter().any(fits)
    }
}

/// Makes the main function of a test program whose clusters run pods as processes. Each test is an `async fn() ->
/// Result<(), Box<dyn Error>>`.
///
/// ```no_run
/// async fn s01_it_works() -> Result<(), Box<dyn std::error::Error>> { Ok(()) }
///
/// kubewright_testing::process_tests!(s01_it_works);
/// ```
///
/// Cargo must leave the main function to it:
///
/// ```toml
/// [[test]]
/// name = "databases"
/// harness = false
/// ```
#[macro_export]
macro_rules! process_tests {
    ($($test:ident),* $(,)?) => {
        fn main() -> std::process::ExitCode {
            $crate::processes::main(&[$((stringify!($test), || Box::pin($test()))),*])
        }
    };
}

/// Whether a program is on this machine: on the search path or in one of these folders, in which `*` stands for a
/// version. When it is not, prints that the test did not run and which package to install; with
/// `KUBEWRIGHT_REQUIRE_DATABASES` in the environment that is a failure.
///
/// # Panics
/// When it is not there and is required.
pub fn is_there(program: &str, folders: &[&str], install: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<std::path::PathBuf> = std::env::split_paths(&path).collect();
    places.push("/usr/sbin".into());
    for folder in folders {
        let Some((before, after)) = folder.split_once('*') else {
            places.push(folder.into());
            continue;
        };
        let versions = std::fs::read_dir(before).into_iter().flatten().flatten();
        places.extend(versions.map(|version| version.path().join(after.trim_start_matches('/'))));
    }
    let found = places.iter().any(|place| place.join(program).is_file());
    if !found {
        let required = std::env::var_os("KUBEWRIGHT_REQUIRE_DATABASES").is_some();
        assert!(!required, "{program} is not on this machine: {install}");
        eprintln!("NOT RUN: {program} is not on this machine: {install}");
    }
    found
}

/// [`is_there`] for PostgreSQL.
pub fn postgres_is_there() -> bool {
    is_there("postgres", &["/usr/lib/postgresql/*/bin"], "apt-get install postgresql")
}

/// [`is_there`] for MariaDB, with which it is set up.
pub fn mariadb_is_there() -> bool {
    let install = "apt-get install mariadb-server-core mariadb-client-core";
    is_there("mariadbd", &[], install) && is_there("my_print_defaults", &[], install)
}
