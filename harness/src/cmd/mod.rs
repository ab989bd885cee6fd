//! One file a verb.

pub mod check;
pub mod doctor;
pub mod report;
pub mod rig;
pub mod run;
pub mod verify;
pub mod watch;
