//! The closed set of metric names: issues may add some, none is ever renamed.

use std::fmt;

use crate::scenario::nearest::{advice, listed, nearest};

/// A metric that exists. Its number is in [`unit`](Self::unit).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Metric(&'static str);

/// What a metric's number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Milliseconds.
    Milliseconds,
    /// Bytes.
    Bytes,
    /// Events, statements or commits a second.
    PerSecond,
    /// Things: writes, events, rows, cases, connections.
    Count,
    /// 0 to 1.
    Share,
    /// Average active sessions.
    Sessions,
    /// CPU seconds a second: 1 is one core, all the time.
    Cores,
    /// Things per event.
    PerEvent,
}

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// The smaller the better.
    Lower,
    /// The bigger the better.
    Higher,
    /// It describes the run and is neither good nor bad.
    Neither,
}

/// A name that is not a metric's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no metric `{name}`: {}", way_out(name))]
pub struct UnknownMetric {
    /// As it was written.
    pub name: String,
    /// The names most like it, the nearest first; empty when none is.
    pub nearest: Vec<&'static str>,
}

struct Entry {
    name: &'static str,
    unit: Unit,
    better: Better,
    about: &'static str,
}

/// The five points of a distribution of times.
macro_rules! times {
    ($family:literal, $about:literal) => {
        [
            time(concat!($family, ".p50"), concat!("median of the ", $about)),
            time(concat!($family, ".p90"), concat!("90th percentile of the ", $about)),
            time(concat!($family, ".p99"), concat!("99th percentile of the ", $about)),
            time(concat!($family, ".p999"), concat!("99.9th percentile of the ", $about)),
            time(concat!($family, ".max"), concat!("longest ", $about)),
        ]
    };
}

const fn time(name: &'static str, about: &'static str) -> Entry {
    Entry { name, unit: Unit::Milliseconds, better: Better::Lower, about }
}

const fn entry(name: &'static str, unit: Unit, better: Better, about: &'static str) -> Entry {
    Entry { name, unit, better, about }
}

/// Distributions of times.
static TIMES: [[Entry; 5]; 10] = [
    times!("persist", "time of a write from the instant it was due to the return of COMMIT"),
    times!("lag", "time a write started late: from due to its start"),
    times!("acquire", "time a write waited for a connection"),
    times!("execute", "time of a write's BEGIN and statements, before COMMIT"),
    times!("commit", "time of a write's COMMIT"),
    times!("service", "time of a write from its start to the return of COMMIT"),
    times!("deliver", "time from the return of COMMIT to the event's first arrival at the sink"),
    times!("confirm", "time from a publish to its confirm, told by the drainer"),
    times!("claim", "time of a drainer's claim, told by the drainer"),
    times!("mark", "time of a drainer's marks, told by the drainer"),
];

/// Everything else.
static OTHERS: &[Entry] = &[
    time("persist.p99_worst_service", "99th percentile of persist in the service where it is highest"),
    entry(
        "deliver.early",
        Unit::Count,
        Better::Neither,
        "events that arrived before their COMMIT had returned",
    ),
    entry(
        "drain.rate",
        Unit::PerSecond,
        Better::Higher,
        "events a second between the first and the last arrival",
    ),
    entry(
        "drain.failed",
        Unit::Count,
        Better::Lower,
        "events a drainer reported as failed, each attempt counted",
    ),
    entry("backlog.peak", Unit::Count, Better::Lower, "most events committed and not yet arrived"),
    time("backlog.age_max", "longest time a committed event had not arrived"),
    entry("idle_in_tx.rows", Unit::Count, Better::Lower, "sampled drainer sessions idle in transaction"),
    time("idle_in_tx.age_max", "oldest transaction of a drainer session sampled idle in transaction"),
    entry(
        "idle_in_tx.exact_ms",
        Unit::Milliseconds,
        Better::Lower,
        "time that drainer sessions sat in a transaction while they did something else, all together, read on the wire",
    ),
    entry("waits.cpu", Unit::Sessions, Better::Lower, "average sessions active and not waiting"),
    entry("waits.lwlock", Unit::Sessions, Better::Lower, "average sessions waiting for a lightweight lock"),
    entry("waits.lock", Unit::Sessions, Better::Lower, "average sessions waiting for a heavyweight lock"),
    entry("waits.bufferpin", Unit::Sessions, Better::Lower, "average sessions waiting for a buffer's pin"),
    entry(
        "waits.activity",
        Unit::Sessions,
        Better::Lower,
        "average sessions waiting in a server's main loop",
    ),
    entry("waits.extension", Unit::Sessions, Better::Lower, "average sessions waiting in an extension"),
    entry("waits.client", Unit::Sessions, Better::Lower, "average active sessions waiting for their client"),
    entry("waits.ipc", Unit::Sessions, Better::Lower, "average sessions waiting for another process"),
    entry("waits.timeout", Unit::Sessions, Better::Lower, "average sessions waiting for a time-out"),
    entry("waits.io", Unit::Sessions, Better::Lower, "average sessions waiting for the disk"),
    entry("audit.delivered", Unit::Count, Better::Higher, "committed events that arrived"),
    entry(
        "audit.waiting",
        Unit::Count,
        Better::Lower,
        "committed events still unpublished at the drain deadline",
    ),
    entry("audit.dead", Unit::Count, Better::Lower, "committed events set aside as dead letters"),
    entry("audit.lost", Unit::Count, Better::Lower, "committed events neither arrived, waiting nor dead"),
    entry(
        "audit.duplicated",
        Unit::Count,
        Better::Lower,
        "arrivals of another publish of an event that had arrived",
    ),
    entry(
        "audit.redelivered",
        Unit::Count,
        Better::Lower,
        "arrivals of a publish that the broker delivered again",
    ),
    entry(
        "audit.phantom",
        Unit::Count,
        Better::Lower,
        "arrivals of events whose write rolled back or failed",
    ),
    entry("audit.recovered", Unit::Count, Better::Neither, "arrivals of events whose write was unsure"),
    entry("audit.foreign", Unit::Count, Better::Lower, "arrivals that nobody of the cell wrote"),
    entry(
        "audit.reordered",
        Unit::Count,
        Better::Lower,
        "events that arrived before an earlier event of their key",
    ),
    entry(
        "audit.unmarked",
        Unit::Count,
        Better::Lower,
        "committed events that arrived and are still unpublished in the outbox",
    ),
    entry("writes.committed", Unit::Count, Better::Neither, "writes due in the window whose COMMIT returned"),
    entry(
        "writes.rolled_back",
        Unit::Count,
        Better::Neither,
        "writes due in the window that rolled back on purpose",
    ),
    entry("writes.failed", Unit::Count, Better::Lower, "writes due in the window that persisted nothing"),
    entry("writes.unsure", Unit::Count, Better::Lower, "writes due in the window whose COMMIT had no reply"),
    entry("suite.passed", Unit::Count, Better::Higher, "suite cases that persisted and arrived in time"),
    entry("suite.failed", Unit::Count, Better::Lower, "suite cases that did not"),
    entry(
        "db.wal_bytes_per_event",
        Unit::Bytes,
        Better::Lower,
        "WAL beyond the paired control's, a drained event",
    ),
    entry("db.commits_per_event", Unit::PerEvent, Better::Lower, "transactions committed, a drained event"),
    entry(
        "db.dead_tuples_peak",
        Unit::Count,
        Better::Lower,
        "most dead tuples of all outbox tables together",
    ),
    entry("db.hot_share", Unit::Share, Better::Higher, "updates of the outbox that were heap-only"),
    entry(
        "drainer.connections",
        Unit::Count,
        Better::Lower,
        "most database sessions sampled as a drainer's at once",
    ),
    entry(
        "drainer.statements_per_sec",
        Unit::PerSecond,
        Better::Lower,
        "statements a second sent by all drainers",
    ),
    entry("drainer.cpu", Unit::Cores, Better::Lower, "CPU of all drainer processes"),
    entry("drainer.rss_peak", Unit::Bytes, Better::Lower, "most resident memory of one drainer process"),
    time("recovery.time", "longest time from a fault's healing until the backlog is as small as before"),
    entry(
        "recovery.rate_share",
        Unit::Share,
        Better::Higher,
        "arrivals a second after the last recovery, as a share of those before the first fault",
    ),
    entry("sampler.missed", Unit::Share, Better::Lower, "ticks that were due and not made"),
    entry("sampler.cost", Unit::Cores, Better::Lower, "CPU of the sampler and of its backend"),
];

/// The nearest names, or else the families, because a hundred names are no help.
fn way_out(name: &str) -> String {
    if nearest(name, entries().map(|entry| entry.name), 1).is_empty() {
        let mut families: Vec<&str> = entries().filter_map(|entry| entry.name.split('.').next()).collect();
        families.sort_unstable();
        families.dedup();
        return format!("metrics begin with {}", listed(&families));
    }
    advice(name, entries().map(|entry| entry.name))
}

fn entries() -> impl Iterator<Item = &'static Entry> + Clone {
    TIMES.iter().flatten().chain(OTHERS)
}

impl Metric {
    /// Finds a metric by its name.
    ///
    /// # Errors
    /// When there is none of that name; the error names the nearest.
    pub fn lookup(name: &str) -> Result<Self, UnknownMetric> {
        entries().find(|entry| entry.name == name).map(|entry| Self(entry.name)).ok_or_else(|| {
            UnknownMetric {
                name: name.to_owned(),
                nearest: nearest(name, entries().map(|entry| entry.name), 3),
            }
        })
    }
    /// Every metric, in the order reports list them.
    pub fn all() -> impl Iterator<Item = Self> + Clone {
        entries().map(|entry| Self(entry.name))
    }
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.0
    }
    /// What its number counts.
    #[must_use]
    pub fn unit(self) -> Unit {
        self.entry().map_or(Unit::Count, |entry| entry.unit)
    }
    /// Which way is better.
    #[must_use]
    pub fn better(self) -> Better {
        self.entry().map_or(Better::Neither, |entry| entry.better)
    }
    /// What it is, a sentence without its full stop.
    #[must_use]
    pub fn about(self) -> &'static str {
        self.entry().map_or("", |entry| entry.about)
    }
    fn entry(self) -> Option<&'static Entry> {
        entries().find(|entry| entry.name == self.0)
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

impl Unit {
    /// As it stands after a number; empty for plain counts and shares.
    #[must_use]
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::Bytes => "B",
            Self::PerSecond => "/s",
            Self::Sessions => "sessions",
            Self::Cores => "cores",
            Self::Count | Self::Share | Self::PerEvent => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_name_is_found_and_only_once() {
        let names: BTreeSet<&str> = Metric::all().map(Metric::name).collect();
        assert_eq!(names.len(), Metric::all().count());
        assert_eq!(names.len(), 10 * 5 + OTHERS.len());
        for metric in Metric::all() {
            assert_eq!(Metric::lookup(metric.name()), Ok(metric));
            assert!(!metric.about().is_empty() && !metric.about().ends_with('.'), "{metric}");
        }
    }

    /// The names are a contract with scenarios and records, so they stand here in full.
    #[test]
    fn the_closed_set() {
        let families = "persist lag acquire execute commit service deliver confirm claim mark";
        let mut wanted: Vec<String> = families
            .split(' ')
            .flat_map(|family| ["p50", "p90", "p99", "p999", "max"].map(|point| format!("{family}.{point}")))
            .collect();
        let others = "persist.p99_worst_service deliver.early drain.rate drain.failed backlog.peak backlog.age_max \
             idle_in_tx.rows idle_in_tx.age_max idle_in_tx.exact_ms \
             waits.cpu waits.lwlock waits.lock waits.bufferpin waits.activity \
             waits.extension waits.client waits.ipc waits.timeout waits.io audit.delivered audit.waiting audit.dead \
             audit.lost audit.duplicated audit.redelivered audit.phantom audit.recovered audit.foreign \
             audit.reordered audit.unmarked writes.committed writes.rolled_back writes.failed writes.unsure suite.passed \
             suite.failed db.wal_bytes_per_event db.commits_per_event db.dead_tuples_peak db.hot_share \
             drainer.connections drainer.statements_per_sec drainer.cpu drainer.rss_peak recovery.time recovery.rate_share \
             sampler.missed sampler.cost";
        wanted.extend(others.split_whitespace().map(str::to_owned));
        assert_eq!(Metric::all().map(|metric| metric.name().to_owned()).collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn an_unknown_name_offers_the_nearest() {
        let error = Metric::lookup("persist.p9").expect_err("no such metric");
        assert!(error.nearest.contains(&"persist.p99"), "{error}");
        let error = Metric::lookup("idle_in_transaction.rows").expect_err("no such metric");
        assert_eq!(error.nearest.first(), Some(&"idle_in_tx.rows"), "{error}");
        assert!(error.to_string().starts_with("there is no metric `idle_in_transaction.rows`: the nearest"));
    }

    #[test]
    fn units_follow_the_kind_of_metric() {
        let unit = |name| Metric::lookup(name).expect("a metric").unit();
        assert_eq!(unit("persist.p99"), Unit::Milliseconds);
        assert_eq!(unit("db.wal_bytes_per_event"), Unit::Bytes);
        assert_eq!(unit("drain.rate"), Unit::PerSecond);
        assert_eq!(unit("audit.lost"), Unit::Count);
        assert_eq!(Metric::lookup("drain.rate").expect("a metric").better(), Better::Higher);
        assert_eq!(Metric::lookup("persist.p99").expect("a metric").better(), Better::Lower);
    }
}
