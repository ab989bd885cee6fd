//! What draining cost the database.

use super::{Measurements, Paired, count};
use crate::scenario::Cell;

const PAIRED: [&str; 2] = ["db.wal_bytes_per_event", "db.commits_per_event"];

pub(super) fn measure(found: &mut Measurements, cell: &Cell, control: Option<Paired<'_>>) {
    let database = found.database.clone();
    found.set_or("db.dead_tuples_peak", database.dead_tuples_peak.map(count), "this rig does not show it");
    match (database.updates, database.hot_updates) {
        (Some(updates), Some(hot)) if updates > 0 => found.set("db.hot_share", count(hot) / count(updates)),
        (Some(_), Some(_)) => found.miss("db.hot_share", "no row of an outbox was updated"),
        (None, _) | (_, None) => found.miss("db.hot_share", "this rig does not show it"),
    }
    if let Err(why) = per_event(found, cell, control) {
        found.miss_all(&PAIRED, why);
    }
}

/// The difference to the paired control, over the events that were drained.
fn per_event(found: &mut Measurements, cell: &Cell, control: Option<Paired<'_>>) -> Result<(), &'static str> {
    if !cell.design.drains_database() {
        return Err("no drainer works on the database in this cell");
    }
    let (paired, control) = control.ok_or("there is no control of the same round to compare with")?;
    if control.audit.counts.scheduled != found.audit.counts.scheduled {
        return Err("the control attempted another number of writes");
    }
    let foreground = |cell: &Cell| {
        let settings = &cell.settings;
        (settings.load.clone(), settings.service.clone(), settings.database.clone())
    };
    if foreground(paired) != foreground(cell) {
        return Err("the control had another load, service or database");
    }
    let drained = found.audit.tally.delivered + found.audit.tally.recovered;
    if drained == 0 {
        return Err("no event was drained");
    }
    let beyond =
        |of: Option<u64>, control: Option<u64>| Some((count(of?) - count(control?)) / count(drained));
    let wal = beyond(found.database.wal_bytes, control.database.wal_bytes);
    let commits = beyond(found.database.commits, control.database.commits);
    found.set_or("db.wal_bytes_per_event", wal, "this rig does not show it");
    found.set_or(
        "db.commits_per_event",
        commits,
        "this rig does not show it: where services share a database, others commit in it as well",
    );
    Ok(())
}
