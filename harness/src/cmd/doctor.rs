//! `drainbench doctor`: which rigs this machine can run, and what is missing for the others.

use std::path::PathBuf;

use crate::say::{complain, tell};
use crate::{
    cmd::args::ContainerArgs,
    exit::Exit,
    rig::{RigChoice, RigKind, RigRequest, survey::survey},
};

/// What to look for.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder of PostgreSQL's server binaries, instead of looking for them
    #[arg(long, value_name = "DIR")]
    pg_bin: Option<PathBuf>,
    #[command(flatten)]
    containers: ContainerArgs,
}

/// Prints what was found. Starts nothing.
pub async fn main(args: Args) -> Exit {
    let request = match RigRequest::from_env(RigChoice::Auto, args.pg_bin) {
        Ok(mut request) => {
            request.wishes.arguments = args.containers.into();
            request
        }
        Err(error) => {
            complain!("drainbench: {error}");
            return error.exit();
        }
    };
    let findings = survey(&request).await;
    for finding in &findings {
        tell!("{}: {}", finding.kind, if finding.works { "works" } else { "not here" });
        for line in &finding.lines {
            tell!("    {line}");
        }
    }
    // As `auto` does it: servers that somebody named are meant, whether they answer or not.
    let named = request.external.0.is_some() && request.external.1.is_some();
    match findings.iter().find(|finding| finding.works || named && finding.kind == RigKind::External) {
        Some(taken) if taken.works => {
            tell!("--rig auto takes {}.", taken.kind);
            Exit::Pass
        }
        Some(taken) => {
            tell!("--rig auto takes {}, because it is named, and fails.", taken.kind);
            Exit::Environment
        }
        None => {
            tell!("No rig works here.");
            Exit::Environment
        }
    }
}
