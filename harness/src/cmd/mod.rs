//! One file a verb.

pub mod args;
pub mod check;
pub mod doctor;
mod present;
pub mod report;
pub mod rig;
pub mod run;
pub mod verify;
pub mod watch;
