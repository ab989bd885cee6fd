//! The instrument: brings up real servers, puts a drainer under load, watches, audits and judges.

#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod clock;
pub mod cmd;
pub mod database;
pub mod exit;
pub mod experiment;
mod fault;
pub mod fleet;
pub mod history;
pub mod interrupt;
pub mod ledger;
pub mod live;
pub mod load;
pub mod measure;
pub mod metric;
pub mod plan;
pub mod progress;
pub mod raw;
pub mod record;
pub mod report;
pub mod rig;
pub mod run;
pub mod saboteur;
pub mod sampler;
mod say;
pub mod scenario;
pub mod sink;
pub mod verdict;
pub mod wire;
