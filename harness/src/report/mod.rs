//! From a record to what people read. Pure.

mod junit;
mod markdown;
mod results;
mod spark;
mod terminal;
mod view;

pub use junit::{JunitError, junit};
pub use markdown::markdown;
pub use results::{MarkerError, RESULTS_BEGIN, RESULTS_END, into_markers, results_table};
pub use terminal::{Look, terminal};
