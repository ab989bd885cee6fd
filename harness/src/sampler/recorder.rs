//! Turns rows into a [`SampleLog`]. Knows no connection and no clock.

use super::{
    Sample, SampleLog, activity::Session, attribution::Attribution, intern::Interner, services::Services,
    wait_event::canonical,
};

/// Rows kept of one cell: 192 MiB. With 40 rows a tick that is 35 minutes at 50 ticks a second.
const MAX_ROWS: usize = 4 << 20;

/// Wait events told apart; PostgreSQL knows about 300, extensions add theirs.
const MAX_WAIT_EVENTS: usize = 1024;

/// Statements told apart; applications that write values into their statements make a new one each time.
const MAX_STATEMENTS: usize = 4096;

/// Why a tick could not be kept: it counts as missed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum BlindTick {
    /// The server hides a session.
    #[error(
        "the server hides what pid {pid} does (it shows <insufficient privilege>), because its role is another than \
         ours: GRANT pg_monitor TO the role that samples"
    )]
    Masked {
        /// Backend.
        pid: i32,
    },
    /// No more rows are kept.
    #[error("the sample log is full ({MAX_ROWS} rows): lower `sampler.rate` or `load.duration`")]
    Full,
}

/// A log that grows.
#[derive(Debug)]
pub(crate) struct Recorder {
    log: SampleLog,
    services: Services,
    attribution: Attribution,
    wait_events: Interner,
    statements: Interner,
    scratch: Vec<u8>,
    last_sent_ns: u64,
    max_rows: usize,
}

impl Recorder {
    pub(crate) fn new(rate: u32, services: Services) -> Self {
        Self {
            log: SampleLog { rate, ..SampleLog::default() },
            services,
            attribution: Attribution::default(),
            wait_events: Interner::new(MAX_WAIT_EVENTS),
            statements: Interner::new(MAX_STATEMENTS),
            scratch: Vec::with_capacity(64),
            last_sent_ns: 0,
            max_rows: MAX_ROWS,
        }
    }

    /// Sampling begins now, nanoseconds on the sampler's own clock: the first gap is counted from here.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        self.last_sent_ns = now_ns;
    }

    /// Keeps one tick, whole or not at all. `sent_ns` and `returned_ns` are on the sampler's own clock, `origin_ns` is
    /// the return on the cell's.
    ///
    /// # Errors
    /// When it cannot be kept; the log is as before, and the tick is to be counted with [`miss`](Self::miss).
    pub(crate) fn tick(
        &mut self,
        sent_ns: u64,
        returned_ns: u64,
        origin_ns: u64,
        sessions: &[Session<'_>],
    ) -> Result<(), BlindTick> {
        let before = self.log.rows.len();
        let tick = u32::try_from(self.log.ticks_ns.len()).unwrap_or(u32::MAX);
        for session in sessions {
            if let Err(blind) = self.row(session, tick) {
                self.log.rows.truncate(before);
                return Err(blind);
            }
        }
        self.log.ticks_ns.push(origin_ns);
        self.gap(returned_ns);
        self.last_sent_ns = sent_ns;
        Ok(())
    }

    /// Counts ticks that were due and not made.
    pub(crate) fn miss(&mut self, ticks: u64) {
        self.log.missed += ticks;
    }

    /// Remembers what cost a tick.
    pub(crate) fn error(&mut self, error: String) {
        self.log.last_error = Some(error);
    }

    /// Ends the log: what happened after the last tick was not seen either.
    pub(crate) fn finish(mut self, now_ns: u64) -> SampleLog {
        self.gap(now_ns);
        self.log.wait_events = self.wait_events.into_texts();
        self.log.statements = self.statements.into_texts();
        self.log
    }

    /// An episode may begin just after one statement took its picture and end just before the next one does. When
    /// within the statement the picture is taken is not known, so the gap runs from the sending of one to the return
    /// of the next.
    fn gap(&mut self, returned_ns: u64) {
        let gap = returned_ns.saturating_sub(self.last_sent_ns);
        self.log.longest_gap_ns = self.log.longest_gap_ns.max(gap);
    }

    fn row(&mut self, session: &Session<'_>, tick: u32) -> Result<(), BlindTick> {
        let Some(service) = self.services.of(session) else { return Ok(()) };
        if session.is_masked() {
            return Err(BlindTick::Masked { pid: session.pid });
        }
        if self.log.rows.len() >= self.max_rows {
            return Err(BlindTick::Full);
        }
        let sample = Sample {
            tick,
            pid: session.pid,
            service,
            who: self.attribution.who(session, tick),
            state: session.state(),
            wait_event: self.wait_event(session),
            statement: self.statements.place(session.query, |text| text),
            xact_age_us: session.xact_age_us(),
            state_age_us: session.state_age_us(),
        };
        self.log.rows.push(sample);
        Ok(())
    }

    fn wait_event(&mut self, session: &Session<'_>) -> Option<u16> {
        if session.wait_class.is_empty() {
            return None;
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(session.wait_class);
        self.scratch.push(b':');
        self.scratch.extend_from_slice(session.wait_event);
        u16::try_from(self.wait_events.place(&self.scratch, canonical)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::{State, Who};

    const MS: u64 = 1_000_000;

    fn recorder() -> Recorder {
        let mut services = Services::default();
        services.add(16_384, None, 3);
        Recorder::new(50, services)
    }

    fn session<'r>(state: &'r [u8], query: &'r [u8]) -> Session<'r> {
        Session {
            database: 16_384,
            pid: 638,
            state,
            query,
            now: 5_000_000,
            xact_start: Some(1_000_000),
            state_change: Some(4_200_000),
            ..Session::default()
        }
    }

    #[test]
    fn a_row_says_who_where_and_how_long() {
        let mut recorder = recorder();
        let waits = Session {
            wait_class: b"IO",
            wait_event: b"WALSync",
            ..session(b"active", b"/* drainer:mark */ COMMIT")
        };
        recorder.tick(0, MS, 7, &[waits]).unwrap();
        let log = recorder.finish(MS);
        let row = log.rows[0];
        assert_eq!((row.tick, row.pid, row.service), (0, 638, 3));
        assert_eq!((row.who, row.state), (Who::Drainer, State::Active));
        assert_eq!((row.xact_age_us, row.state_age_us), (Some(4_000_000), 800_000));
        assert_eq!(log.wait_events[usize::from(row.wait_event.unwrap())], "IO:WalSync");
        assert_eq!(log.statements[row.statement as usize], "/* drainer:mark */ COMMIT");
        assert_eq!(log.ticks_ns, [7]);
    }

    #[test]
    fn a_hidden_session_blinds_the_tick_and_leaves_no_row() {
        let mut recorder = recorder();
        let hidden = Session { xact_start: None, ..session(b"", b"<insufficient privilege>") };
        let rows = [session(b"active", b"SELECT 1"), hidden];
        assert_eq!(recorder.tick(0, MS, 0, &rows), Err(BlindTick::Masked { pid: 638 }));
        let log = recorder.finish(MS);
        assert!(log.rows.is_empty() && log.ticks_ns.is_empty());
    }

    #[test]
    fn a_full_log_keeps_no_half_tick() {
        let mut recorder = recorder();
        recorder.max_rows = 3;
        let two = || [session(b"active", b"SELECT 1"), session(b"active", b"SELECT 2")];
        recorder.tick(0, MS, 0, &two()).unwrap();
        assert_eq!(recorder.tick(0, MS, 0, &two()), Err(BlindTick::Full));
        assert_eq!(recorder.finish(MS).rows.len(), 2);
    }

    #[test]
    fn the_gap_runs_from_sending_to_the_next_return_and_counts_both_ends() {
        let gap = |ticks: &[(u64, u64)], end: u64| {
            let mut recorder = recorder();
            recorder.begin(0);
            for (sent, returned) in ticks {
                recorder.tick(sent * MS, returned * MS, 0, &[]).unwrap();
            }
            recorder.finish(end * MS).longest_gap_ns / MS
        };
        assert_eq!(gap(&[(0, 1), (20, 23), (40, 41)], 45), 23);
        // The first tick came late.
        assert_eq!(gap(&[(90, 91), (100, 101)], 110), 91);
        // Nothing was seen at the end.
        assert_eq!(gap(&[(0, 1), (20, 21)], 500), 480);
    }
}
