//! Whose session a row is.

use std::collections::HashMap;

use super::{Who, activity::Session};

/// Statements of a drainer start with it.
const TAG: &[u8] = b"/* drainer:";

/// Sessions of a drainer's own are named so.
const APPLICATION: &[u8] = b"drainer";

/// Transactions remembered; with more, those not seen in the last tick are forgotten. A server has fewer backends.
const MAX_TRANSACTIONS: usize = 4096;

/// Remembers transactions that were a drainer's, because a later statement of one need not carry the tag (a client
/// library sends a bare COMMIT) and yet holds the same locks.
#[derive(Debug, Default)]
pub(crate) struct Attribution {
    /// Start of the drainer's transaction of each backend, and the tick it was last seen in.
    transactions: HashMap<i32, (i64, u32)>,
}

impl Attribution {
    /// Drainer or foreground. Rows of one tick carry its number.
    pub(crate) fn who(&mut self, session: &Session<'_>, tick: u32) -> Who {
        let own = session.query.starts_with(TAG) || session.application.starts_with(APPLICATION);
        let Some(start) = session.xact_start else {
            self.transactions.remove(&session.pid);
            return if own { Who::Drainer } else { Who::Foreground };
        };
        let seen = self.transactions.get(&session.pid).is_some_and(|known| known.0 == start);
        if own || seen {
            self.transactions.insert(session.pid, (start, tick));
            self.forget(tick);
            return Who::Drainer;
        }
        self.transactions.remove(&session.pid);
        Who::Foreground
    }

    fn forget(&mut self, tick: u32) {
        if self.transactions.len() > MAX_TRANSACTIONS {
            self.transactions.retain(|_, (_, seen)| *seen == tick);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session<'r>(pid: i32, query: &'r [u8], xact_start: Option<i64>) -> Session<'r> {
        Session { pid, query, xact_start, ..Session::default() }
    }

    #[test]
    fn a_transaction_stays_the_drainers_after_an_untagged_statement() {
        let mut attribution = Attribution::default();
        assert_eq!(attribution.who(&session(7, b"/* drainer:claim */ SELECT", Some(10)), 0), Who::Drainer);
        assert_eq!(attribution.who(&session(7, b"COMMIT", Some(10)), 1), Who::Drainer);
        // The pool hands the connection to a foreground write.
        assert_eq!(attribution.who(&session(7, b"BEGIN", Some(20)), 2), Who::Foreground);
        assert_eq!(attribution.who(&session(7, b"INSERT", Some(20)), 3), Who::Foreground);
    }

    #[test]
    fn a_transaction_that_ended_is_forgotten() {
        let mut attribution = Attribution::default();
        attribution.who(&session(7, b"/* drainer:mark */ UPDATE", Some(10)), 0);
        assert_eq!(attribution.who(&session(7, b"COMMIT", None), 1), Who::Foreground);
        assert!(attribution.transactions.is_empty());
    }

    #[test]
    fn a_tag_elsewhere_is_no_tag() {
        let mut attribution = Attribution::default();
        let query = b"SELECT '/* drainer:claim */'";
        assert_eq!(attribution.who(&session(7, query, Some(10)), 0), Who::Foreground);
    }

    #[test]
    fn a_session_of_its_own_is_the_drainers_whatever_it_says() {
        let mut attribution = Attribution::default();
        let named = Session { application: b"drainer svc07", query: b"LISTEN outbox", ..Session::default() };
        assert_eq!(attribution.who(&named, 0), Who::Drainer);
    }

    #[test]
    fn its_memory_is_bounded() {
        let mut attribution = Attribution::default();
        for pid in 0..20_000 {
            attribution.who(&session(pid, b"/* drainer:claim */", Some(1)), u32::try_from(pid).unwrap());
        }
        assert!(attribution.transactions.len() <= MAX_TRANSACTIONS + 1);
    }
}
