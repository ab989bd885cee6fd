//! From a record to what people read. Pure.

mod faults;
mod junit;
mod markdown;
mod results;
mod spark;
mod terminal;
mod view;

pub use faults::faults_table;
pub use junit::{JunitError, junit};
pub use markdown::markdown;
pub use results::{MarkerError, Place, into_markers, results_table};
pub use terminal::{Look, terminal};
