//! How the closed sets of a scenario are written.

use super::{CellDesign, Op, Role};

impl CellDesign {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::None, Self::Raw, Self::SingleTx, Self::Lease];
    /// As scenarios write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Raw => "raw",
            Self::SingleTx => "single-tx",
            Self::Lease => "lease",
        }
    }
    /// Whether somebody carries events to the broker.
    #[must_use]
    pub const fn drains(self) -> bool {
        match self {
            Self::None => false,
            Self::Raw | Self::SingleTx | Self::Lease => true,
        }
    }
    /// Whether its drainer works on the database, so that the sampler must see it.
    #[must_use]
    pub const fn drains_database(self) -> bool {
        self.drainer().is_some()
    }
    /// The drainer crate's design, or `None` for a yardstick.
    #[must_use]
    pub const fn drainer(self) -> Option<drainer::Design> {
        match self {
            Self::None | Self::Raw => None,
            Self::SingleTx => Some(drainer::Design::SingleTx),
            Self::Lease => Some(drainer::Design::Lease),
        }
    }
}

impl Role {
    /// As scenarios write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Baseline => "baseline",
            Self::Candidate => "candidate",
        }
    }
}

impl Op {
    /// As people write it.
    #[must_use]
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Below => "<",
            Self::AtMost => "≤",
            Self::Above => ">",
            Self::AtLeast => "≥",
        }
    }
}
