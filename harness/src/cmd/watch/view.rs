//! One sampled session as a person or a program reads it.

use serde::Serialize;
use sqlx::postgres::PgRow;

use crate::sampler::{
    State,
    activity::{Session, bytes, number},
    wait_event::canonical,
};

/// States older than this show their age.
const AGED_US: u64 = 500_000;

/// One session of one tick. Its texts are other people's: they hold no control characters and no line break.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct View {
    /// Backend.
    pub(super) pid: i32,
    /// Name of its database.
    pub(super) database: String,
    /// `application_name`.
    pub(super) application: String,
    /// Its state.
    pub(super) state: State,
    /// `class:event` as PostgreSQL 17 spells it; `None`: it does not wait.
    pub(super) wait_event: Option<String>,
    /// Its current or last statement.
    pub(super) query: String,
    /// How long it has been in this state.
    #[serde(rename = "state_age_ms", serialize_with = "millis")]
    pub(super) state_age_us: u64,
    /// Age of its transaction.
    #[serde(rename = "xact_age_ms", serialize_with = "some_millis")]
    pub(super) xact_age_us: Option<u64>,
    /// Its transaction id, once it has written.
    pub(super) xid: Option<u32>,
    /// The oldest transaction it still has to see: what vacuum must leave alone.
    pub(super) xmin: Option<u32>,
    /// Tells two transactions of one backend apart.
    #[serde(skip)]
    pub(super) xact_start: Option<i64>,
    /// What the server calls its state.
    #[serde(skip)]
    pub(super) state_name: String,
}

impl View {
    /// Reads a row of `sessions.sql`.
    ///
    /// # Errors
    /// When the row has other columns.
    pub(super) fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        let session = Session::read(row)?;
        let view = Self::new(&session, bytes(row, 10)?);
        let xid = |column| bytes(row, column).map(|bytes| number(bytes).map(u32::from_be_bytes));
        Ok(Self { xid: xid(11)?, xmin: xid(12)?, ..view })
    }

    /// Of a session in the database of this name.
    pub(super) fn new(session: &Session<'_>, database: &[u8]) -> Self {
        let wait_event = (!session.wait_class.is_empty()).then(|| {
            let name = format!("{}:{}", one_line(session.wait_class), one_line(session.wait_event));
            canonical(&name).to_owned()
        });
        Self {
            pid: session.pid,
            database: one_line(database),
            application: one_line(session.application),
            state: session.state(),
            wait_event,
            query: one_line(session.query),
            state_age_us: session.state_age_us(),
            xact_age_us: session.xact_age_us(),
            xid: None,
            xmin: None,
            xact_start: session.xact_start,
            state_name: one_line(session.state),
        }
    }

    /// What it does, in one word or two: the wait of an active session, else the state. Rows are torn (a wait event may
    /// stand beside `idle in transaction`), so the state is the truth.
    pub(super) fn doing(&self) -> &str {
        match self.state {
            State::Active => self.wait_event.as_deref().unwrap_or("active"),
            State::Idle => "idle",
            State::IdleInTransaction => "idle in transaction",
            State::IdleInTransactionAborted => "idle in transaction (aborted)",
            State::Other if self.state_name.is_empty() => "unknown",
            State::Other => &self.state_name,
        }
    }

    /// Age of an old state, in whole 100 ms, rounded down.
    fn age(&self) -> String {
        if self.state_age_us <= AGED_US {
            return String::new();
        }
        format!("  (>{}ms)", self.state_age_us / 100_000 * 100)
    }
}

/// Widths of the columns: they grow and never shrink, so that lines stay aligned.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Columns {
    pid: usize,
    database: usize,
    doing: usize,
}

impl Columns {
    /// Makes room for these.
    pub(super) fn fit<'v>(&mut self, views: impl IntoIterator<Item = &'v View>) {
        for view in views {
            self.pid = self.pid.max(view.pid.to_string().len());
            self.database = self.database.max(view.database.chars().count());
            self.doing = self.doing.max(view.doing().chars().count());
        }
    }

    /// `22:54:50.491  pid=638  canopy_appeals  IO:WalSync  COMMIT`, at most `width` characters where that is known.
    pub(super) fn line(&self, time: &str, view: &View, width: Option<usize>) -> String {
        let head = format!(
            "{time}  pid={:<pid$}  {:<database$}  {:<doing$}  ",
            view.pid,
            view.database,
            view.doing(),
            pid = self.pid,
            database = self.database,
            doing = self.doing,
        );
        let age = view.age();
        let room = width.map(|width| width.saturating_sub(head.chars().count() + age.chars().count()));
        format!("{head}{}{age}", clip(&view.query, room)).trim_end().to_owned()
    }
}

/// The first `room` characters, the last of them an ellipsis where something is missing.
pub(super) fn clip(text: &str, room: Option<usize>) -> String {
    let Some(room) = room else { return text.to_owned() };
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let kept: String = text.chars().take(room.saturating_sub(1)).collect();
    if room == 0 { kept } else { kept + "…" }
}

/// On one line, without anything that moves a cursor, hides or reverses text. Bytes that are no UTF-8 are replaced; a
/// character cut at the end is dropped.
pub(super) fn one_line(raw: &[u8]) -> String {
    let text = String::from_utf8_lossy(raw);
    let mut line = String::with_capacity(text.len());
    for c in text.trim_end_matches(char::REPLACEMENT_CHARACTER).chars() {
        if c.is_whitespace() {
            if !line.is_empty() && !line.ends_with(' ') {
                line.push(' ');
            }
        } else if !c.is_control() && !is_invisible(c) {
            line.push(c);
        }
    }
    line.truncate(line.trim_end().len());
    line
}

/// Marks that show nothing themselves and change how the rest is shown.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn millis<S: serde::Serializer>(us: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(us / 1000)
}

#[expect(clippy::ref_option, reason = "serde's signature")]
fn some_millis<S: serde::Serializer>(us: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
    us.map(|us| us / 1000).serialize(to)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A session as the reference shows it.
    pub(in super::super) fn view(pid: i32, database: &str, state: &str, wait: &str, query: &str) -> View {
        let (class, event) = wait.split_once(':').unwrap_or_default();
        let session = Session {
            pid,
            state: state.as_bytes(),
            wait_class: class.as_bytes(),
            wait_event: event.as_bytes(),
            query: query.as_bytes(),
            xact_start: Some(0),
            state_change: Some(0),
            ..Session::default()
        };
        View::new(&session, database.as_bytes())
    }

    fn lines(views: &[View], width: Option<usize>) -> String {
        let mut columns = Columns::default();
        columns.fit(views);
        let lines: Vec<_> = views.iter().map(|view| columns.line("22:54:50.491", view, width)).collect();
        lines.join("\n")
    }

    #[test]
    fn a_line_has_the_references_shape() {
        let commit = view(638, "canopy_appeals", "active", "IO:WALSync", "COMMIT");
        insta::assert_snapshot!(lines(&[commit], None), @"22:54:50.491  pid=638  canopy_appeals  IO:WalSync  COMMIT");
    }

    #[test]
    fn columns_are_aligned_and_old_states_show_their_age() {
        let update = "UPDATE event_outbox\n   SET published_at = now()\n WHERE id = $1";
        let views = [
            view(92, "canopy_appeals", "active", "LWLock:WALWrite", "COMMIT"),
            view(638, "canopy_persons", "idle in transaction", "Client:ClientRead", update),
            View { state_age_us: 899_999, ..view(1066, "canopy_security", "active", "IO:WalSync", "COMMIT") },
            View { state_age_us: 500_000, ..view(7, "a", "active", "", "SELECT 1") },
            view(8, "a", "idle in transaction (aborted)", "", "SELECT 1/0"),
            view(9, "a", "fastpath function call", "", ""),
        ];
        insta::assert_snapshot!(lines(&views, None), @"
        22:54:50.491  pid=92    canopy_appeals   LWLock:WALWrite                COMMIT
        22:54:50.491  pid=638   canopy_persons   idle in transaction            UPDATE event_outbox SET published_at = now() WHERE id = $1
        22:54:50.491  pid=1066  canopy_security  IO:WalSync                     COMMIT  (>800ms)
        22:54:50.491  pid=7     a                active                         SELECT 1
        22:54:50.491  pid=8     a                idle in transaction (aborted)  SELECT 1/0
        22:54:50.491  pid=9     a                fastpath function call
        ");
    }

    #[test]
    fn a_terminal_gets_no_longer_line_than_it_has_room_for() {
        let query = "SELECT 'ä' FROM a_table_with_a_long_name";
        let old = View { state_age_us: 6_789_000, ..view(638, "canopy", "active", "", query) };
        let shown = lines(&[old.clone(), view(639, "canopy", "active", "", "COMMIT")], Some(64));
        insta::assert_snapshot!(shown, @"
        22:54:50.491  pid=638  canopy  active  SELECT 'ä' FR…  (>6700ms)
        22:54:50.491  pid=639  canopy  active  COMMIT
        ");
        assert!(shown.lines().all(|line| line.chars().count() <= 64));
        // Not even room for the columns: what they say is not cut.
        assert!(lines(&[old], Some(10)).contains("(>6700ms)"));
    }

    #[test]
    fn a_statement_cannot_move_the_cursor_or_hide() {
        let evil = "SELECT\t1;\r\n\x1b[2J\x07\u{9b}31m -- \u{202e}live\u{200b}\u{2028}x ";
        assert_eq!(one_line(evil.as_bytes()), "SELECT 1; [2J31m -- live x");
        assert_eq!(one_line(&"SELECT 'ä".as_bytes()[..9]), "SELECT '");
    }

    #[test]
    fn json_names_units_and_says_what_is_missing() {
        let waits = View {
            state_age_us: 899_999,
            xid: Some(1234),
            xact_age_us: None,
            ..view(638, "canopy_appeals", "active", "IO:WALSync", "COMMIT")
        };
        insta::assert_snapshot!(serde_json::to_string(&waits).unwrap(), @r#"{"pid":638,"database":"canopy_appeals","application":"","state":"active","wait_event":"IO:WalSync","query":"COMMIT","state_age_ms":899,"xact_age_ms":null,"xid":1234,"xmin":null}"#);
    }
}
