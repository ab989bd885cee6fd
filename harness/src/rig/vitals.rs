//! What must not change under a cell: the settings that decide what is measured, and the server itself.

use std::collections::BTreeMap;

use sqlx::Connection;

use super::{RigError, endpoints::Endpoints, provision::SETTINGS};

/// Settings of PostgreSQL and since when it runs, at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vitals {
    settings: BTreeMap<String, String>,
    since: String,
}

impl Vitals {
    pub(super) async fn read(endpoints: &Endpoints) -> Result<Self, RigError> {
        // After a crash the postmaster is the same and all its processes are new. Who may not see those sees less.
        const SINCE: &str = "SELECT concat_ws(' ', pg_postmaster_start_time(), \
                             (SELECT max(backend_start) FROM pg_stat_activity WHERE backend_type = 'checkpointer'))";
        let refused = || RigError::refused::<sqlx::Error>("read PostgreSQL's settings");
        let mut connection = endpoints.connect().await?;
        let since = sqlx::query_scalar(SINCE).fetch_one(&mut connection).await.map_err(refused())?;
        let settings: Vec<(String, String)> =
            sqlx::query_as("SELECT name, current_setting(name) FROM unnest($1) AS name")
                .bind(&SETTINGS[..])
                .fetch_all(&mut connection)
                .await
                .map_err(refused())?;
        let _ = connection.close().await;
        Ok(Self { settings: settings.into_iter().collect(), since })
    }

    /// The settings, by name.
    pub(super) fn into_settings(self) -> BTreeMap<String, String> {
        self.settings
    }

    /// What is another `later`: one sentence each, that says why the cell between them proves nothing.
    #[must_use]
    pub fn changes(&self, later: &Self) -> Vec<String> {
        let mut changes: Vec<String> = self
            .settings
            .iter()
            .filter_map(|(name, before)| {
                let after = later.settings.get(name).filter(|after| *after != before)?;
                Some(format!(
                    "PostgreSQL's {name} was {before} when the cell began and {after} when it ended"
                ))
            })
            .collect();
        if self.since != later.since {
            changes
                .push("PostgreSQL was started anew while the cell ran, or recovered from a crash".to_owned());
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_named_with_both_values() {
        let vitals = |fsync: &str, since: &str| Vitals {
            settings: BTreeMap::from([("fsync".to_owned(), fsync.to_owned())]),
            since: since.to_owned(),
        };
        assert_eq!(vitals("on", "1").changes(&vitals("on", "1")), Vec::<String>::new());
        let changes = vitals("on", "1").changes(&vitals("off", "2"));
        assert_eq!(changes[0], "PostgreSQL's fsync was on when the cell began and off when it ended");
        assert_eq!(changes.len(), 2);
    }
}
