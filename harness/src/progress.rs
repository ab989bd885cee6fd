//! What a person sees while an experiment runs: one line on a terminal, a line a cell elsewhere.

use std::{
    io::IsTerminal as _,
    sync::Arc,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::task::JoinHandle;

use crate::say::complain;
use crate::{live::Live, scenario::Cell};

/// How often the counts are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often a log that nobody watches live gets a line.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// Writes to standard error only: standard output is the report's.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    terminal: bool,
}

/// One cell's line; ends when dropped.
#[derive(Debug)]
pub struct CellProgress {
    ticker: JoinHandle<()>,
}

impl Drop for CellProgress {
    fn drop(&mut self) {
        self.ticker.abort();
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Progress {
    /// Draws where standard error is a terminal.
    #[must_use]
    pub fn new() -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = ProgressBar::with_draw_target(
            None,
            if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() },
        );
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            bar.set_style(style);
        }
        Self { bar, terminal }
    }

    /// Says what happens now.
    pub fn say(&self, what: impl Into<String>) {
        let what = what.into();
        if self.terminal {
            self.bar.enable_steady_tick(Duration::from_millis(200));
            self.bar.set_message(what);
        } else {
            complain!("{what}");
        }
    }

    /// Says something that stays.
    pub fn keep(&self, what: impl AsRef<str>) {
        self.bar.suspend(|| complain!("{}", what.as_ref()));
    }

    /// Follows a cell.
    #[must_use]
    pub fn cell(&self, place: &str, cell: &Cell, live: &Arc<Live>) -> CellProgress {
        let load = &cell.settings.load;
        let planned = (load.warm_up + load.duration).as_secs();
        let design = cell.design.name();
        self.say(format!("{place} {} ({design}): {planned} s of load", cell.label));
        let (bar, live, label) =
            (self.bar.clone(), Arc::clone(live), format!("{place} {} ({design})", cell.label));
        let started = Instant::now();
        let terminal = self.terminal;
        let ticker = tokio::spawn(async move {
            let mut every = tokio::time::interval(LOOK_EVERY);
            let mut next_line = Duration::ZERO;
            loop {
                every.tick().await;
                let (committed, other, arrived) = live.read();
                let seconds = started.elapsed().as_secs();
                let counts = format!("{committed} committed, {other} not, {arrived} arrived");
                if terminal {
                    bar.set_message(format!("{label}: {seconds} s (load {planned} s), {counts}"));
                } else if committed > 0 && next_line.is_zero() {
                    complain!("{label}: the first write is committed");
                    next_line = LINE_EVERY;
                } else if committed > 0 && started.elapsed() > next_line {
                    complain!("{label}: {seconds} s, {counts}");
                    next_line += LINE_EVERY;
                }
            }
        });
        CellProgress { ticker }
    }

    /// Takes the line away.
    pub fn done(&self) {
        self.bar.finish_and_clear();
    }
}
