//! The `drainbench` binary.

use std::process::ExitCode;

use clap::Parser;
use harness::{cmd, exit::Exit};

#[derive(Parser)]
#[command(name = "drainbench")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    Watch(cmd::watch::Args),
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Pass.into() };
        }
    };
    let exit = match cli.verb {
        Verb::Watch(args) => cmd::watch::main(args).await,
    };
    exit.into()
}
