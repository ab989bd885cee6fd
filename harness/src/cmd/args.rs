//! Arguments that several verbs share.

use std::path::PathBuf;

use crate::rig::{RigChoice, RigRequest};

/// Which rig.
#[derive(Debug, Clone, clap::Args)]
pub struct RigArgs {
    /// Where the servers come from
    #[arg(long, value_enum, default_value_t)]
    rig: RigChoice,
    /// Folder of PostgreSQL's server binaries, for the local rig
    #[arg(long, value_name = "DIR")]
    pg_bin: Option<PathBuf>,
}
