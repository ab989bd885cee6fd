//! The `drainbench` binary: reads the command line, hands over to a verb.

use std::{io::Write as _, process::ExitCode};

use clap::{Parser, Subcommand};
use harness::{cmd, exit::Exit, rig, saboteur};

/// Proves what the way you drain your outbox costs the people who commit, and that it loses nothing.
#[derive(Debug, Parser)]
#[command(name = "drainbench", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

/// Set by the Makefile. Read here and not in the library, so that a new commit compiles only this program again.
const COMMIT: Option<&str> = option_env!("DRAINBENCH_COMMIT");

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run all cells of a scenario on one rig and judge them
    Verify(cmd::verify::Args),
    /// Run one cell of a scenario: the candidate, or --design
    Run(cmd::run::Args),
    /// Render a record again
    Report(cmd::report::Args),
    /// Watch the wait events of any PostgreSQL, without load
    Watch(cmd::watch::Args),
    /// Validate scenarios and print what they would do
    Check(cmd::check::Args),
    /// Say which rigs this machine can run, and what is missing
    Doctor(cmd::doctor::Args),
    /// Bring a rig up, run a command against it, tear it down
    Rig(cmd::rig::Args),
    /// What a rig leaves to clean up after its harness was killed
    #[command(hide = true)]
    Guard,
    /// A drainer as a child
    #[command(hide = true)]
    DrainerChild,
    /// A drainer that does wrong on purpose
    #[command(hide = true)]
    Saboteur(saboteur::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors; everything else is usage, whose code is 1 by contract.
            let code = if error.use_stderr() { Exit::Usage } else { Exit::Pass };
            // Where even this cannot be printed there is nobody to tell.
            let _ = error.print();
            return code.into();
        }
    };
    match cli.verb {
        // Small, single-threaded, and before any runtime: they must work when nothing else does.
        Verb::Guard => rig::guard::main().into(),
        Verb::Report(args) => cmd::report::main(args).into(),
        Verb::Check(args) => cmd::check::main(args).into(),
        verb => on_runtime(verb),
    }
}

fn on_runtime(verb: Verb) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "drainbench: cannot start its threads: {error}");
            return Exit::Environment.into();
        }
    };
    let code = runtime.block_on(async {
        match verb {
            Verb::Verify(args) => cmd::verify::main(args, COMMIT).await.into(),
            Verb::Run(args) => cmd::run::main(args, COMMIT).await.into(),
            Verb::Watch(args) => cmd::watch::main(args).await.into(),
            Verb::Doctor(args) => cmd::doctor::main(args).await.into(),
            Verb::Rig(args) => cmd::rig::main(args).await,
            Verb::DrainerChild => drainer::process::run_as_child().await,
            Verb::Saboteur(args) => {
                saboteur::main(args).await;
                ExitCode::SUCCESS
            }
            Verb::Guard | Verb::Report(_) | Verb::Check(_) => unreachable!("handled before the runtime"),
        }
    });
    // A read of standard input that never ends must not keep the process.
    runtime.shutdown_background();
    code
}
