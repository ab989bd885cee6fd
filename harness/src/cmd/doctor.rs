//! `drainbench doctor`: which rigs this machine can run, and what is missing for the others.

use std::path::PathBuf;

use crate::{
    exit::Exit,
    rig::{RigChoice, RigRequest, survey::survey},
};

/// What to look for.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder of PostgreSQL's server binaries, instead of looking for them
    #[arg(long, value_name = "DIR")]
    pub pg_bin: Option<PathBuf>,
}

/// Prints what was found. Starts nothing.
pub async fn main(args: Args) -> Exit {
    let request = match RigRequest::from_env(RigChoice::Auto, args.pg_bin) {
        Ok(request) => request,
        Err(error) => {
            eprintln!("drainbench: {error}");
            return Exit::Environment;
        }
    };
    let findings = survey(&request).await;
    let mut taken = None;
    for finding in &findings {
        if finding.works && taken.is_none() {
            taken = Some(finding.kind);
        }
        println!("{}: {}", finding.kind, if finding.works { "works" } else { "not here" });
        for line in &finding.lines {
            println!("    {line}");
        }
    }
    match taken {
        Some(kind) => {
            println!("--rig auto takes {kind}.");
            Exit::Pass
        }
        None => {
            println!("No rig works here.");
            Exit::Environment
        }
    }
}
