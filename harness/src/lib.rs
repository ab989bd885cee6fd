//! The instrument: brings up real servers, puts a drainer under load, watches, audits and judges.

pub mod cmd;
pub mod database;
pub mod exit;
pub mod fleet;
pub mod history;
pub mod ledger;
pub mod load;
pub mod measure;
pub mod metric;
pub mod plan;
pub mod record;
pub mod report;
pub mod rig;
pub mod run;
pub mod sampler;
pub mod scenario;
pub mod sink;
pub mod verdict;
