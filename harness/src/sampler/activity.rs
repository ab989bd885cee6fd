//! One row of the server's activity, as it came over the wire.

use sqlx::{Row, postgres::PgRow};

use super::State;

/// What the server writes in place of a statement that we may not read.
const MASKED: &[u8] = b"<insufficient privilege>";

/// One session at one instant. Columns 0 to 9 of every statement that reads activity, in this order. Borrows from the
/// row: nothing is copied for sessions that are thrown away.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Session<'r> {
    /// Oid of its database.
    pub(crate) database: u32,
    /// Backend.
    pub(crate) pid: i32,
    /// `application_name`.
    pub(crate) application: &'r [u8],
    /// `state`; empty when we may not read it.
    pub(crate) state: &'r [u8],
    /// `wait_event_type`; empty: it does not wait.
    pub(crate) wait_class: &'r [u8],
    /// `wait_event`.
    pub(crate) wait_event: &'r [u8],
    /// Start of its transaction, microseconds since 2000-01-01 on the server's clock.
    pub(crate) xact_start: Option<i64>,
    /// When it entered this state, the same clock.
    pub(crate) state_change: Option<i64>,
    /// The server's clock when the row was read.
    pub(crate) now: i64,
    /// Its current or last statement, cut by the query that reads it.
    pub(crate) query: &'r [u8],
}

impl<'r> Session<'r> {
    /// Reads the columns without checking their types: the statement is ours.
    ///
    /// # Errors
    /// When the row has other columns.
    pub(crate) fn read(row: &'r PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            database: number(bytes(row, 0)?).map_or(0, u32::from_be_bytes),
            pid: number(bytes(row, 1)?).map_or(0, i32::from_be_bytes),
            application: bytes(row, 2)?,
            state: bytes(row, 3)?,
            wait_class: bytes(row, 4)?,
            wait_event: bytes(row, 5)?,
            xact_start: number(bytes(row, 6)?).map(i64::from_be_bytes),
            state_change: number(bytes(row, 7)?).map(i64::from_be_bytes),
            now: number(bytes(row, 8)?).map_or(0, i64::from_be_bytes),
            query: bytes(row, 9)?,
        })
    }

    /// Whether the server hides what this session does from us.
    pub(crate) fn is_masked(&self) -> bool {
        self.state.is_empty() && self.query == MASKED
    }

    /// Its state, as the closed set that everything below works with.
    pub(crate) fn state(&self) -> State {
        match self.state {
            b"active" => State::Active,
            b"idle" => State::Idle,
            b"idle in transaction" => State::IdleInTransaction,
            b"idle in transaction (aborted)" => State::IdleInTransactionAborted,
            _ => State::Other,
        }
    }

    /// Age of its transaction in microseconds.
    pub(crate) fn xact_age_us(&self) -> Option<u64> {
        self.xact_start.map(|start| self.since(start))
    }

    /// Time in its state in microseconds.
    pub(crate) fn state_age_us(&self) -> u64 {
        self.state_change.map_or(0, |change| self.since(change))
    }

    fn since(&self, instant: i64) -> u64 {
        u64::try_from(self.now.saturating_sub(instant)).unwrap_or(0)
    }
}

/// Bytes of a column; NULL is empty.
///
/// # Errors
/// When there is no such column.
pub(crate) fn bytes(row: &PgRow, column: usize) -> Result<&[u8], sqlx::Error> {
    let value = row.try_get_raw(column)?;
    // The only error is NULL.
    Ok(value.as_bytes().unwrap_or_default())
}

/// A column of a fixed width; `None` for NULL.
pub(crate) fn number<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.try_into().ok()
}

/// The statement of a `.sql` file without the header that explains it.
pub(crate) fn statement(file: &'static str) -> &'static str {
    let mut rest = file;
    while rest.starts_with("--") || rest.starts_with('\n') {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    }
    rest.trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_not_sent() {
        assert_eq!(statement("-- why\n--\n\n-- more\nSELECT 1 -- one\nFROM t\n"), "SELECT 1 -- one\nFROM t");
        assert!(statement(include_str!("tick.sql")).starts_with("SELECT"));
    }

    #[test]
    fn a_clock_that_steps_back_gives_no_age() {
        let session =
            Session { now: 1_000, xact_start: Some(2_000), state_change: Some(400), ..Session::default() };
        assert_eq!(session.xact_age_us(), Some(0));
        assert_eq!(session.state_age_us(), 600);
    }

    #[test]
    fn a_hidden_session_is_told_from_one_that_says_so() {
        assert!(Session { query: MASKED, ..Session::default() }.is_masked());
        assert!(!Session { query: MASKED, state: b"active", ..Session::default() }.is_masked());
    }
}
