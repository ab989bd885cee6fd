//! Exit codes: a contract with CI.

/// How a run of `drainbench` ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Every criterion holds.
    Pass = 0,
    /// Usage, configuration or scenario error: nothing was started.
    Usage = 1,
    /// The environment or the run failed.
    Environment = 2,
    /// A criterion failed, or an event was lost.
    Failed = 3,
    /// Worse than the record it was compared with.
    Regression = 4,
    /// Inconclusive or invalid.
    Undecided = 5,
    /// Ctrl-C or SIGTERM; what was measured is recorded as partial.
    Interrupted = 130,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
