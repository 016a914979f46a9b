//! The `kubewright` command.
//!
//! One command, one file below `commands/`: its name, help, arguments and code stand together. Only this crate prints
//! and only it reads signals; the other crates get their settings from it. Results go to standard output, errors to standard
//! error, and the exit status is 0 only when the command did what it promised: 1 is a failure, 2 are arguments that cannot be
//! meant, 3 that `--check` found files that are out of date.
//!
//! # Where to change what
//!
//! | to change | go to | its tests |
//! |---|---|---|
//! | a command: add, change | a file in `commands`, a page in `docs/src/commands` | `book.rs` in `tests/it` types the page's commands |
//! | what `explore` plays | `crates/testing/src/explore`; the command: `commands/explore.rs` | `explore.rs` in `tests/it` |
//! | how a run log is read | `commands/log.rs`; its form: `crates/runlog` | `run_log.rs` in `tests/it` |
//! | which command is in which group of the help | `groups.rs` | the table there |
//! | which values a shell completes | `complete.rs` | `status.rs` in `tests/it` |
//! | what a long step prints meanwhile | `progress.rs` | the tests there |
//! | what `demo` plays | `commands/demo.rs`; the player: `crates/demo` | `demo.rs` in `tests/it` |
//! | what `dev` does next | `commands/dev/lifecycle.rs` | the table there, `dev.rs` in `tests/it` |
//! | what `dev` shows or advises | `commands/dev/renderer.rs`, `screen.rs` and `advice.rs` beside it | the tables and snapshots there |
//! | how the operator is built and asked what it declares | `program` | `attributes.rs` in `tests/it` |
//! | how files are written | `files` | `files/tests.rs` |
//! | which files the command reads | `regular.rs` | the table there, `mistakes/files.rs` in `tests/it` |
//! | how a project is deployed or removed | `rollout` | `deploy.rs` in `tests/it` |
//! | external plug-ins: how they are found and run | `external`; the protocol: `crates/codegen/src/external.rs` | `plugins.rs` in `tests/it` |
//! | the drop-in `kube-apiserver` and `etcd` | `dropin` | `dropin.rs` in `tests/it` |
//! | an error about a project that was edited by hand | the command's error | `mistakes.rs` in `tests/it` |
//! | how the examples are scaffolded | `scaffold.sh` of each in `examples` | `examples.rs` in `tests/it` |
//! | a golden project | a row in `golden/table.rs` of `tests/it` | the tests beside it compare, build and deploy |
//! | the first steps of a beginner | the commands | `walk.rs` in `tests/it` types and records them |
//! | an operator on a real kube-apiserver | `support/real.rs` in `tests/it` | `real.rs` there |
//! | the packages for tests in Go and Python | `clients/go`, `clients/python` | `clients/run` |

#[cfg(not(unix))]
compile_error!("kubewright's cluster and command run on Linux and macOS; on Windows, use WSL 2");

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;

use anstream::ColorChoice;
use clap::{ArgAction, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

mod allocator;
mod audit;
mod commands;
mod complete;
mod confirm;
mod descriptors;
mod dropin;
mod errors;
mod external;
mod files;
mod groups;
mod hints;
mod images;
mod kubeconfig;
mod output;
mod parent;
mod program;
mod progress;
mod project;
mod regular;
mod rest;
mod rollout;
mod scaffolding;
mod signals;
mod target;

use output::Format;

#[global_allocator]
static ALLOCATOR: allocator::BySize = allocator::BySize;

/// The exit status for arguments that cannot be meant, as other commands and our own operators have it; 1 is a failure.
const MISUSED: u8 = 2;

/// The exit status of `--check` when a file is not as the command would write it: no failure of the command.
const OUT_OF_DATE: u8 = 3;

/// Write Kubernetes operators in Rust, with the cluster inside the program.
#[derive(Debug, Parser)]
#[command(name = "kubewright", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    global: Global,
}

/// The options of every command.
#[derive(Clone, Copy, Debug, Args)]
struct Global {
    /// Output format: text for people, json (one object per line) for programs
    #[arg(long, short, global = true, value_enum, default_value_t = Format::Text, value_name = "FORMAT", display_order = 1000)]
    output: Format,

    /// When to use color; `auto` is on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN", display_order = 1001)]
    color: Color,

    /// Print no progress, only results, warnings and errors
    #[arg(long, short, global = true, conflicts_with = "verbose", display_order = 1002)]
    quiet: bool,

    /// Log more to standard error: -v what happens, -vv every step [env: KUBEWRIGHT_LOG, RUST_LOG]
    #[arg(long, short, global = true, action = ArgAction::Count, display_order = 1003)]
    verbose: u8,
}

/// When to use color.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Color {
    /// What a command line says, before it is parsed: errors in it have a color, too.
    fn of(typed: &[OsString]) -> Color {
        let words: Vec<&str> = typed.iter().filter_map(|word| word.to_str()).collect();
        let pairs = words.windows(2).filter(|pair| pair[0] == "--color").map(|pair| pair[1]);
        let joined = words.iter().filter_map(|word| word.strip_prefix("--color="));
        match pairs.chain(joined).last() {
            Some("always") => Color::Always,
            Some("never") => Color::Never,
            _ => Color::Auto,
        }
    }

    fn choice(self) -> ColorChoice {
        match self {
            Color::Auto => ColorChoice::Auto,
            Color::Always => ColorChoice::Always,
            Color::Never => ColorChoice::Never,
        }
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(commands::init::Arguments),
    Edit(commands::edit::Arguments),
    Create(commands::create::Arguments),
    Delete(commands::delete::Arguments),
    Upgrade(commands::upgrade::Arguments),
    Alpha(commands::alpha::Arguments),
    Migrate(commands::migrate::Arguments),
    Manifests(commands::manifests::Arguments),
    Dev(commands::dev::Arguments),
    Run(commands::run::Arguments),
    Test(commands::test::Arguments),
    Install(commands::install::Arguments),
    Uninstall(commands::uninstall::Arguments),
    Deploy(commands::deploy::Arguments),
    Undeploy(commands::undeploy::Arguments),
    Status(commands::status::Arguments),
    BuildInstaller(commands::build_installer::Arguments),
    Bundle(commands::bundle::Arguments),
    /// Write a bundle, or its base, under operator-sdk's names
    #[command(subcommand, hide = true)]
    Generate(commands::bundle::Generate),
    #[command(hide = true)]
    Cleanup(commands::bundle::cleanup::Arguments),
    #[command(hide = true)]
    Scorecard(commands::bundle::scorecard::Arguments),
    Cluster(commands::cluster::Arguments),
    Controllers(commands::controllers::Arguments),
    Assets(commands::assets::Arguments),
    Demo(commands::demo::Arguments),
    Explore(commands::explore::Arguments),
    Log(commands::log::Arguments),
    Doctor(commands::doctor::Arguments),
    HelmOperator(commands::helm_operator::Arguments),
    AnsibleOperator(commands::ansible_operator::Arguments),
    Explain(commands::explain::Arguments),
    Completion(commands::completion::Arguments),
    Man(commands::man::Arguments),
    Version(commands::version::Arguments),
}

fn main() -> ExitCode {
    // The clock of "ready in … ms" starts with the process, not with the command.
    let started = Instant::now();
    leave_out_reported_panics();
    if let Some(code) = kubewright_cluster::processes::called() {
        return ExitCode::from(code);
    }
    if let Some(done) = dropin::called(started) {
        return done;
    }
    // A shell asks here while a person presses Tab.
    clap_complete::CompleteEnv::with_factory(command)
        .bin("kubewright")
        .complete();
    let typed: Vec<OsString> = std::env::args_os().collect();
    Color::of(&typed).choice().write_global();
    let (command, plugins) = external::Chain::prepare(&typed, command());
    let read = command.try_get_matches_from(typed);
    let arguments = match read.and_then(|read| Arguments::from_arg_matches(&read)) {
        Ok(arguments) => arguments,
        Err(wrong) => return misused(&wrong),
    };
    let output = arguments.global.output;
    progress::set(arguments.global.quiet, output == Format::Json);
    // An operator logs by its own flags.
    if !matches!(
        arguments.command,
        Command::AnsibleOperator(_) | Command::HelmOperator(_)
    ) {
        log_to_stderr(arguments.global.verbose);
    }
    descriptors::raise();
    let done = match arguments.command {
        Command::Init(init) => init.run(output, &plugins),
        Command::Edit(edit) => edit.run(output, &plugins),
        Command::Create(create) => create.run(output, &plugins),
        Command::Delete(delete) => delete.run(output),
        Command::Upgrade(upgrade) => upgrade.run(output),
        Command::Alpha(alpha) => alpha.run(output),
        Command::Migrate(migrate) => migrate.run(output),
        Command::Manifests(manifests) => block_on(manifests.run(output)),
        Command::Dev(dev) => block_on(dev.run(output, started)),
        Command::Run(run) => block_on(run.run(output)),
        Command::Test(test) => block_on(test.run(output, started)),
        Command::Install(install) => block_on(install.run(output)),
        Command::Uninstall(uninstall) => block_on(uninstall.run(output)),
        Command::Deploy(deploy) => block_on(deploy.run(output)),
        Command::Undeploy(undeploy) => block_on(undeploy.run(output)),
        Command::Status(status) => block_on(status.run(output)),
        Command::BuildInstaller(build) => build.run(output),
        Command::Bundle(bundle) => block_on(bundle.run(output)),
        Command::Cleanup(cleanup) => block_on(cleanup.run(output)),
        Command::Generate(generate) => generate.run(output),
        Command::Scorecard(scorecard) => scorecard.run(output),
        Command::Cluster(cluster) => block_on_each_processor(cluster.run(output, started)),
        Command::Controllers(controllers) => block_on(controllers.run(output)),
        Command::Assets(assets) => assets.run(output),
        Command::Demo(demo) => block_on(demo.run(output, started)),
        Command::Explore(explore) => return explore.run(output),
        Command::Log(log) => log.run(output),
        Command::HelmOperator(operator) => return run_operator(operator.run(), output),
        Command::AnsibleOperator(operator) => return run_operator(operator.run(output), output),
        Command::Doctor(doctor) => block_on(doctor.run(output)),
        Command::Explain(explain) => explain.run(output),
        Command::Completion(completion) => completion.run(output),
        Command::Man(man) => man.run(output),
        Command::Version(version) => version.run(output),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.failure(&failure);
            match failure.code {
                Some(kubewright_codegen::codes::crds::STALE) => ExitCode::from(OUT_OF_DATE),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// The command line as a whole.
fn command() -> clap::Command {
    groups::grouped(Arguments::command())
}

/// Prints the error in the arguments, or the requested help. Without a command the help is what a person wants.
fn misused(wrong: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    let arguments = std::env::args_os().skip(1);
    let arguments: Vec<String> = arguments
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let is_help = matches!(wrong.kind(), DisplayHelp | DisplayVersion);
    if !is_help && wants_json(&arguments) {
        Format::Json.failure(&misuse(wrong, &arguments));
        return ExitCode::from(MISUSED);
    }
    // The output is gone, so there is no place for the error.
    let _ = wrong.print();
    match wrong.kind() {
        _ if is_help => ExitCode::SUCCESS,
        DisplayHelpOnMissingArgumentOrSubcommand if arguments.is_empty() => ExitCode::SUCCESS,
        _ => {
            if let Some(fix) = hints::instead(wrong, &arguments) {
                output::fix(fix);
            }
            ExitCode::from(MISUSED)
        }
    }
}

/// Whether a command line that clap refused asks for JSON.
fn wants_json(arguments: &[String]) -> bool {
    let mut pairs = arguments.windows(2);
    pairs.any(|pair| ["--output", "-o"].contains(&pair[0].as_str()) && pair[1] == "json")
        || arguments
            .iter()
            .any(|one| ["--output=json", "-ojson", "-o=json"].contains(&one.as_str()))
}

/// An error in the arguments, for machines: clap's first paragraph, and the fix or the usage.
fn misuse(wrong: &clap::Error, arguments: &[String]) -> output::Failure {
    let text = wrong.render().to_string();
    let mut paragraphs = text.trim().split("\n\n");
    let first = paragraphs.next().unwrap_or_default().trim_start_matches("error: ");
    let usage = paragraphs.find(|paragraph| paragraph.starts_with("Usage:"));
    let failure = output::Failure::new(first);
    match hints::instead(wrong, arguments).or(usage) {
        Some(fix) => failure.fix(fix),
        None => failure,
    }
}

/// Prints no panic that is caught and reported as an error.
fn leave_out_reported_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !kubewright_cluster::panic_is_reported() {
            print(panic);
        }
    }));
}

/// For a command that is an operator: its exit status is the operator's.
fn run_operator<F: Future<Output = Result<ExitCode, output::Failure>>>(work: F, output: Format) -> ExitCode {
    match on(tokio::runtime::Builder::new_multi_thread().worker_threads(2), work) {
        Ok(code) => code,
        Err(failure) => {
            output.failure(&failure);
            ExitCode::FAILURE
        }
    }
}

/// Waits for work that has a result, within a command that is not asynchronous itself.
fn block_on_any<T, F: Future<Output = Result<T, output::Failure>>>(work: F) -> Result<T, output::Failure> {
    on(&mut tokio::runtime::Builder::new_current_thread(), work)
}

fn block_on<F: Future<Output = Result<(), output::Failure>>>(work: F) -> Result<(), output::Failure> {
    // Two threads, so that a cluster answers while a command is busy; one more would only be woken in vain on a small
    // machine.
    on(tokio::runtime::Builder::new_multi_thread().worker_threads(2), work)
}

/// For a command whose cluster may have much to do: its controllers run on as many threads as clients are served by.
fn block_on_each_processor<F: Future<Output = Result<(), output::Failure>>>(work: F) -> Result<(), output::Failure> {
    let threads = commands::cluster::serving_threads();
    on(
        tokio::runtime::Builder::new_multi_thread().worker_threads(threads),
        work,
    )
}

/// For an API server without controllers, which serves clients on threads of its own.
fn block_on_one_thread<F: Future<Output = Result<(), output::Failure>>>(work: F) -> Result<(), output::Failure> {
    on(&mut tokio::runtime::Builder::new_current_thread(), work)
}

fn on<T, F: Future<Output = Result<T, output::Failure>>>(
    runtime: &mut tokio::runtime::Builder,
    work: F,
) -> Result<T, output::Failure> {
    let runtime = runtime
        .enable_all()
        .build()
        .map_err(|why| output::Failure::new("cannot start the asynchronous runtime").because(why))?;
    runtime.spawn(allocator::give_back());
    let done = runtime.block_on(work);
    // Tasks that still run are cancelled; the command has printed everything by now.
    runtime.shutdown_background();
    done
}

/// Errors of the libraries go to standard error; `-v`, or `KUBEWRIGHT_LOG` or `RUST_LOG` (`kubewright=debug`), shows
/// more.
fn log_to_stderr(verbose: u8) {
    // The command that made a request reports the API's answer, once.
    let quiet = Targets::new().with_target("kube_client", LevelFilter::OFF);
    let mut variables = ["KUBEWRIGHT_LOG", "RUST_LOG"].into_iter();
    let mut chosen = || variables.find_map(|name| std::env::var(name).ok()?.parse().ok());
    let filter: Targets = match verbose {
        0 => chosen().unwrap_or_else(|| quiet.with_default(LevelFilter::ERROR)),
        1 => quiet.with_default(LevelFilter::INFO),
        _ => Targets::new().with_default(LevelFilter::DEBUG),
    };
    let colored = anstream::AutoStream::choice(&std::io::stderr()) != ColorChoice::Never;
    let printed = tracing_subscriber::fmt::layer()
        .with_ansi(colored)
        .with_writer(|| commands::dev::screen::Log);
    tracing_subscriber::registry().with(printed.with_filter(filter)).init();
}
