//! What many ticks come to: average active sessions a wait class, and the oldest transactions.

use std::{collections::BTreeMap, fmt::Write as _};

use serde::Serialize;

use crate::sampler::State;

use super::view::{View, clip};

/// Transactions shown.
const OLDEST: usize = 5;

/// Wait events shown beside their class.
const EVENTS_SHOWN: usize = 4;

/// Wait events told apart; PostgreSQL knows about 300, extensions add theirs.
const MAX_EVENTS: usize = 1024;

/// Class of an active session that waits for nothing the server knows of: it computes, or waits for a processor.
const CPU: &str = "CPU";

/// Counts of an interval.
#[derive(Debug, Default)]
pub(super) struct Summary {
    ticks: u64,
    missed: u64,
    active: u64,
    idle_in_transaction: u64,
    events: BTreeMap<String, u64>,
    oldest: Vec<View>,
}

/// A summary as a program reads it. Averages are sessions, over the ticks that were made.
#[derive(Debug, Serialize)]
struct Wire<'s> {
    kind: &'static str,
    at: &'s str,
    seconds: f64,
    ticks: u64,
    missed: u64,
    active_sessions: f64,
    idle_in_transaction: f64,
    classes: BTreeMap<&'s str, f64>,
    events: BTreeMap<&'s str, f64>,
    oldest_transactions: &'s [View],
}

impl Summary {
    /// Adds one tick.
    pub(super) fn tick(&mut self, views: &[View]) {
        self.ticks += 1;
        for view in views {
            match view.state {
                State::Active => {
                    self.active += 1;
                    self.event(view.wait_event.as_deref().unwrap_or(CPU));
                }
                State::IdleInTransaction | State::IdleInTransactionAborted => self.idle_in_transaction += 1,
                State::Idle | State::Other => {}
            }
            self.transaction(view);
        }
    }

    /// Adds ticks that were due and not made.
    pub(super) fn miss(&mut self, ticks: u64) {
        self.missed += ticks;
    }

    /// For people. `seconds` is the interval's length.
    pub(super) fn text(&self, time: &str, seconds: f64, width: Option<usize>) -> String {
        let mut text = format!("{time}  {seconds:.1} s, {} ticks, {} missed\n", self.ticks, self.missed);
        if self.ticks == 0 {
            return text;
        }
        let mut row = |name: &str, sessions: u64, events: &str| {
            let line = format!("  {name:<25}{:>8.2}  {events}", self.average(sessions));
            let _ = writeln!(text, "{}", clip(line.trim_end(), width));
        };
        row("average active sessions", self.active, "");
        for (class, sessions) in by_size(self.classes()) {
            row(&format!("  {class}"), sessions, &self.events_of(class));
        }
        row("idle in transaction", self.idle_in_transaction, "");
        if self.oldest.is_empty() {
            text.push_str("  no transaction was seen\n");
        } else {
            text.push_str("  oldest transactions\n");
        }
        for view in &self.oldest {
            let _ = writeln!(text, "{}", clip(&transaction_line(view), width));
        }
        text
    }

    /// For programs: one line.
    pub(super) fn json(&self, at: &str, seconds: f64) -> String {
        let average = |(name, sessions)| (name, self.average(sessions));
        let wire = Wire {
            kind: "summary",
            at,
            seconds: (seconds * 1000.0).round() / 1000.0,
            ticks: self.ticks,
            missed: self.missed,
            active_sessions: self.average(self.active),
            idle_in_transaction: self.average(self.idle_in_transaction),
            classes: self.classes().into_iter().map(average).collect(),
            events: self.events.iter().map(|(name, sessions)| average((name.as_str(), *sessions))).collect(),
            oldest_transactions: &self.oldest,
        };
        // Numbers and texts only: it cannot fail.
        serde_json::to_string(&wire).unwrap_or_default() + "\n"
    }

    fn event(&mut self, name: &str) {
        if let Some(count) = self.events.get_mut(name) {
            *count += 1;
        } else {
            let name = if self.events.len() < MAX_EVENTS { name } else { "(other)" };
            *self.events.entry(name.to_owned()).or_default() += 1;
        }
    }

    /// Keeps the oldest, each transaction once, as it was last seen.
    fn transaction(&mut self, view: &View) {
        let Some(start) = view.xact_start else { return };
        let known = self.oldest.iter_mut().find(|old| (old.pid, old.xact_start) == (view.pid, Some(start)));
        match known {
            Some(old) => view.clone_into(old),
            None => self.oldest.push(view.clone()),
        }
        self.oldest.sort_by_key(|old| (std::cmp::Reverse(old.xact_age_us), old.pid));
        self.oldest.truncate(OLDEST);
    }

    fn classes(&self) -> BTreeMap<&str, u64> {
        let mut classes = BTreeMap::new();
        for (event, count) in &self.events {
            *classes.entry(class_of(event)).or_default() += count;
        }
        classes
    }

    fn events_of(&self, class: &str) -> String {
        let of_class = |event: &&String| class_of(event) == class && event.contains(':');
        let events = self.events.keys().filter(of_class).map(|event| (event.as_str(), self.events[event]));
        let events = by_size(events.collect());
        let shown: Vec<_> = events
            .iter()
            .take(EVENTS_SHOWN)
            .map(|(event, count)| {
                let name = event.split_once(':').map_or(*event, |(_, name)| name);
                format!("{name} {:.2}", self.average(*count))
            })
            .collect();
        let more = events.len().saturating_sub(EVENTS_SHOWN);
        if more > 0 { format!("{}, {more} more", shown.join(", ")) } else { shown.join(", ") }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    fn average(&self, sessions: u64) -> f64 {
        if self.ticks == 0 { 0.0 } else { (sessions as f64 / self.ticks as f64 * 1000.0).round() / 1000.0 }
    }
}

fn class_of(event: &str) -> &str {
    event.split_once(':').map_or(event, |(class, _)| class)
}

fn by_size(counts: BTreeMap<&str, u64>) -> Vec<(&str, u64)> {
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
    counts
}

/// `pid=638  canopy_appeals  6.7 s  idle in transaction  xid=1234  xmin=-  UPDATE ...`
fn transaction_line(view: &View) -> String {
    let id = |id: Option<u32>| id.map_or_else(|| "-".to_owned(), |id| id.to_string());
    let age = match view.xact_age_us.unwrap_or(0) {
        us @ 0..1_000_000 => format!("{} ms", us / 1000),
        us => format!("{}.{} s", us / 1_000_000, us / 100_000 % 10),
    };
    format!(
        "    pid={}  {}  {age}  {}  xid={}  xmin={}  {}",
        view.pid,
        view.database,
        view.doing(),
        id(view.xid),
        id(view.xmin),
        view.query,
    )
}

#[cfg(test)]
mod tests {
    use super::{super::view::tests::view, *};

    fn transaction(pid: i32, start: i64, age_us: u64, state: &str) -> View {
        let base = view(pid, "canopy_appeals", state, "", "UPDATE event_outbox SET published_at = now()");
        View { xact_start: Some(start), xact_age_us: Some(age_us), xid: Some(770), ..base }
    }

    fn summary() -> Summary {
        let mut summary = Summary::default();
        let commit =
            View { xact_start: None, ..view(92, "canopy_appeals", "active", "IO:WALSync", "COMMIT") };
        let queued =
            View { xact_start: None, ..view(93, "canopy_persons", "active", "LWLock:WALWrite", "COMMIT") };
        let written =
            View { xact_start: None, ..view(94, "canopy_persons", "active", "IO:WALWrite", "COMMIT") };
        let busy = View { xact_start: None, ..view(95, "canopy_persons", "active", "", "SELECT 1") };
        summary.tick(&[commit.clone(), queued.clone(), transaction(7, 1, 100_000, "idle in transaction")]);
        summary.tick(&[commit.clone(), queued, written, transaction(7, 1, 6_750_000, "idle in transaction")]);
        summary.tick(&[commit, busy, transaction(8, 1, 2_000_000, "idle in transaction (aborted)")]);
        summary.tick(&[]);
        summary.miss(2);
        summary
    }

    #[test]
    fn people_read_averages_and_the_oldest_transactions() {
        insta::assert_snapshot!(summary().text("22:55:20.491", 30.04, None), @"
        22:55:20.491  30.0 s, 4 ticks, 2 missed
          average active sessions      1.75
            IO                         1.00  WalSync 0.75, WalWrite 0.25
            LWLock                     0.50  WALWrite 0.50
            CPU                        0.25
          idle in transaction          0.75
          oldest transactions
            pid=7  canopy_appeals  6.7 s  idle in transaction  xid=770  xmin=-  UPDATE event_outbox SET published_at = now()
            pid=8  canopy_appeals  2.0 s  idle in transaction (aborted)  xid=770  xmin=-  UPDATE event_outbox SET published_at = now()
        ");
    }

    #[test]
    fn programs_read_the_same() {
        insta::assert_snapshot!(summary().json("2026-01-01T22:55:20.491Z", 30.04), @r#"{"kind":"summary","at":"2026-01-01T22:55:20.491Z","seconds":30.04,"ticks":4,"missed":2,"active_sessions":1.75,"idle_in_transaction":0.75,"classes":{"CPU":0.25,"IO":1.0,"LWLock":0.5},"events":{"CPU":0.25,"IO:WalSync":0.75,"IO:WalWrite":0.25,"LWLock:WALWrite":0.5},"oldest_transactions":[{"pid":7,"database":"canopy_appeals","application":"","state":"idle-in-transaction","wait_event":null,"query":"UPDATE event_outbox SET published_at = now()","state_age_ms":0,"xact_age_ms":6750,"xid":770,"xmin":null},{"pid":8,"database":"canopy_appeals","application":"","state":"idle-in-transaction-aborted","wait_event":null,"query":"UPDATE event_outbox SET published_at = now()","state_age_ms":0,"xact_age_ms":2000,"xid":770,"xmin":null}]}"#);
    }

    #[test]
    fn nothing_seen_is_said() {
        let mut summary = Summary::default();
        insta::assert_snapshot!(summary.text("22:55:20.491", 1.0, None), @"22:55:20.491  1.0 s, 0 ticks, 0 missed");
        summary.tick(&[]);
        insta::assert_snapshot!(summary.text("22:55:20.491", 1.0, None), @"
        22:55:20.491  1.0 s, 1 ticks, 0 missed
          average active sessions      0.00
          idle in transaction          0.00
          no transaction was seen
        ");
    }

    #[test]
    fn only_the_oldest_are_kept_each_once() {
        let mut summary = Summary::default();
        for pid in 0..20 {
            let age = u64::try_from(pid).unwrap() * 1_000_000;
            summary.tick(&[transaction(pid, 1, age, "active"), transaction(pid, 1, age + 1, "active")]);
        }
        let pids: Vec<_> = summary.oldest.iter().map(|view| view.pid).collect();
        assert_eq!(pids, [19, 18, 17, 16, 15]);
    }

    #[test]
    fn a_terminal_gets_no_longer_line_than_it_has_room_for() {
        let text = summary().text("22:55:20.491", 30.04, Some(40));
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
    }
}
