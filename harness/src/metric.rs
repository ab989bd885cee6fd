//! The closed set of metric names.

/// A metric that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Metric(&'static str);

impl Metric {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.0
    }
}
