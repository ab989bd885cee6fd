//! Which service a session works for.

use std::collections::HashMap;

use super::activity::Session;

/// Places in the plan.
#[derive(Debug, Default)]
pub(crate) struct Services {
    /// Of services that have a database of their own, by its oid.
    alone: HashMap<u32, u16>,
    /// Of services that share one, by its oid and their tag.
    sharing: HashMap<u32, HashMap<Vec<u8>, u16>>,
}

impl Services {
    /// Adds one. Where two can't be told apart the first counts.
    pub(crate) fn add(&mut self, database: u32, tag: Option<&str>, place: u16) {
        match tag {
            None => self.alone.entry(database).or_insert(place),
            Some(tag) => {
                let tags = self.sharing.entry(database).or_default();
                tags.entry(tag.as_bytes().to_owned()).or_insert(place)
            }
        };
    }

    /// Oids of all databases.
    pub(crate) fn databases(&self) -> impl Iterator<Item = u32> {
        self.alone.keys().chain(self.sharing.keys()).copied()
    }

    /// The service that a session works for; `None` for sessions of others.
    pub(crate) fn of(&self, session: &Session<'_>) -> Option<u16> {
        if let Some(place) = self.alone.get(&session.database) {
            return Some(*place);
        }
        self.sharing.get(&session.database)?.get(tag(session.application)?).copied()
    }
}

/// `ab12cd34:svc07` of `drainbench:ab12cd34:svc07` and of `drainer:ab12cd34:svc07:0`.
fn tag(application: &[u8]) -> Option<&[u8]> {
    let own = [b"drainbench:".as_slice(), b"drainer:"];
    let rest = own.iter().find_map(|prefix| application.strip_prefix(*prefix))?;
    let mut colons = rest.iter().enumerate().filter(|(_, byte)| **byte == b':').map(|(place, _)| place);
    let (_, end) = (colons.next()?, colons.next().unwrap_or(rest.len()));
    Some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_of_its_own_is_the_services_whoever_works_in_it() {
        let mut services = Services::default();
        services.add(7, None, 3);
        let session = |database, application| Session { database, application, ..Session::default() };
        assert_eq!(services.of(&session(7, b"psql")), Some(3));
        assert_eq!(services.of(&session(8, b"psql")), None);
    }

    #[test]
    fn in_a_shared_database_only_the_tag_tells() {
        let mut services = Services::default();
        services.add(7, Some("ab12cd34:svc00"), 0);
        services.add(7, Some("ab12cd34:svc01"), 1);
        let of = |application| services.of(&Session { database: 7, application, ..Session::default() });
        assert_eq!(of(b"drainbench:ab12cd34:svc00"), Some(0));
        assert_eq!(of(b"drainer:ab12cd34:svc01:12"), Some(1));
        let others: [&[u8]; 6] = [
            b"drainbench:ab12cd34:svc02",
            b"drainbench:other123:svc00",
            b"drainbench:ab12cd34",
            b"drainbench rig",
            b"psql",
            b"",
        ];
        for other in others {
            assert_eq!(of(other), None, "{}", String::from_utf8_lossy(other));
        }
        assert_eq!(services.databases().collect::<Vec<_>>(), [7]);
    }
}
