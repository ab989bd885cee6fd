use std::time::Duration;

use super::{Measurements, Timing, decode, measure};
use crate::{
    history::{EventRef, Outcome, ProcessUse},
    ledger::synthetic::{Builder, MS, SECOND, cell},
    metric::Metric,
    sampler::{State, Who},
    scenario::{Cell, CellDesign, Placement, Role, WriteKind},
};

fn lease() -> Cell {
    cell("new", Some(Role::Candidate), CellDesign::Lease)
}

fn none() -> Cell {
    cell("control", Some(Role::Control), CellDesign::None)
}

fn value(found: &Measurements, name: &str) -> f64 {
    found.named(name).unwrap_or_else(|| panic!("{name} is not measured: {:?}", found.unmeasured))
}

/// Within the resolution of three significant digits.
fn near(found: &Measurements, name: &str, expected: f64) {
    let value = value(found, name);
    assert!((value - expected).abs() <= expected / 1e3, "{name} is {value}, not {expected}");
}

#[test]
fn every_metric_is_measured_or_says_why_not() {
    for cell in [lease(), none(), cell("raw", None, CellDesign::Raw)] {
        let found = measure(&Builder::new(2).build(), &cell, None);
        for metric in Metric::all() {
            let (measured, why) =
                (found.metrics.contains_key(&metric), found.unmeasured.contains_key(&metric));
            assert!(measured != why, "{metric} of {}: measured {measured}, reason {why}", cell.label);
        }
        assert_eq!(found.facts.broken, Vec::<String>::new());
    }
}

#[test]
fn persist_runs_from_due_and_splits_into_its_parts() {
    let mut builder = Builder::new(1);
    builder.write(
        0,
        [SECOND, SECOND + MS, SECOND + 3 * MS, SECOND + 7 * MS, SECOND + 15 * MS],
        Outcome::Committed,
    );
    let found = measure(&builder.build(), &none(), None);
    for (name, ms) in [
        ("persist", 15.0),
        ("lag", 1.0),
        ("acquire", 2.0),
        ("execute", 4.0),
        ("commit", 8.0),
        ("service", 14.0),
    ] {
        for suffix in ["p50", "p99", "max"] {
            near(&found, &format!("{name}.{suffix}"), ms);
        }
    }
}

#[test]
fn only_writes_due_in_the_window_are_measured() {
    let mut builder = Builder::new(1).with(|history| history.window_ns = SECOND..2 * SECOND);
    builder.backlog(0);
    builder.commit(0, SECOND - 1, 500 * MS);
    builder.commit(0, SECOND, 5 * MS);
    builder.commit(0, 2 * SECOND, 500 * MS);
    let found = measure(&builder.build(), &none(), None);
    near(&found, "persist.max", 5.0);
    assert_eq!(value(&found, "writes.committed"), 1.0);
    assert_eq!(found.distributions[&Timing::Persist].merged.len(), 1);
    assert_eq!(found.audit.counts.committed, 4, "the accounts are of all of them");
}

#[test]
fn what_failed_counts_until_then_and_in_no_part_it_never_came_to() {
    let mut builder = Builder::new(1);
    let at = |ms: u64| SECOND + ms * MS;
    builder.write(0, [at(0), at(0), at(30), at(30), at(30)], Outcome::Failed); // no connection
    builder.write(0, [at(0), at(0), at(1), at(20), at(20)], Outcome::Failed); // a statement
    builder.write(0, [at(0), at(0), at(1), at(2), at(10)], Outcome::Unsure);
    builder.write(0, [at(0), at(0), at(1), at(2), at(900)], Outcome::RolledBack);
    let found = measure(&builder.build(), &none(), None);
    let recorded = |kind| found.distributions.get(&kind).map_or(0, |times| times.merged.len());
    assert_eq!(recorded(Timing::Persist), 3);
    assert_eq!(recorded(Timing::Lag), 4);
    assert_eq!(recorded(Timing::Acquire), 3);
    assert_eq!(recorded(Timing::Execute), 2);
    assert_eq!(recorded(Timing::Commit), 1);
    near(&found, "persist.max", 30.0);
    near(&found, "acquire.max", 30.0);
    near(&found, "commit.max", 8.0);
    for (name, count) in [
        ("writes.failed", 2.0),
        ("writes.unsure", 1.0),
        ("writes.rolled_back", 1.0),
        ("writes.committed", 0.0),
    ] {
        assert_eq!(value(&found, name), count, "{name}");
    }
}

#[test]
fn the_worst_service_stands_alone() {
    let mut builder = Builder::new(3);
    for place in 0..200 {
        builder.commit(0, place * 10 * MS, 2 * MS);
        builder.commit(1, place * 10 * MS, 2 * MS);
    }
    for place in 0..2 {
        builder.commit(2, place * 10 * MS, 90 * MS);
    }
    let found = measure(&builder.build(), &none(), None);
    near(&found, "persist.p99", 2.0);
    near(&found, "persist.p99_worst_service", 90.0);
    let services = &found.distributions[&Timing::Persist].services;
    assert_eq!(services.keys().collect::<Vec<_>>(), ["svc00", "svc01", "svc02"]);
    assert_eq!(decode(&services["svc01"]).expect("readable").len(), 200);
}

#[test]
fn an_arrival_before_its_commit_is_early_and_takes_no_time() {
    let mut builder = Builder::new(1);
    let first = builder.commit(0, SECOND, 10 * MS);
    let second = builder.commit(0, SECOND, 10 * MS);
    builder.arrive(0, first, 0, SECOND + 9 * MS, 1);
    builder.arrive(0, second, 0, SECOND + 30 * MS, 2);
    builder.arrive(0, second, 0, SECOND + 900 * MS, 3);
    let found = measure(&builder.build(), &lease(), None);
    assert_eq!(value(&found, "deliver.early"), 1.0);
    near(&found, "deliver.max", 20.0);
    assert_eq!(value(&found, "deliver.p50"), 0.0);
    assert_eq!(value(&found, "audit.duplicated"), 1.0);
}

#[test]
fn the_backlog_is_what_was_committed_and_has_not_arrived() {
    let mut builder = Builder::new(2).with(|history| history.drained_ns = Some(0..20 * SECOND));
    let first = builder.commit(0, SECOND, 0);
    let second = builder.commit(1, 2 * SECOND, 0);
    builder.commit(0, 3 * SECOND, 0);
    let fourth = builder.commit(1, 5 * SECOND, 0);
    builder.arrive(0, first, 0, 4 * SECOND, 1);
    builder.arrive(1, second, 0, 4 * SECOND, 1);
    builder.arrive(1, fourth, 0, 6 * SECOND, 1);
    let found = measure(&builder.build(), &lease(), None);
    assert_eq!(value(&found, "backlog.peak"), 3.0);
    near(&found, "backlog.age_max", 17_000.0); // the third never arrives
    near(&found, "drain.rate", 1.0); // two after the first, in two seconds
    assert_eq!(&found.series.backlog[..7], [0, 1, 2, 3, 1, 2, 1]);
    assert_eq!(found.series.backlog.len(), 21);
}

#[test]
fn a_control_has_no_backlog_and_no_audit() {
    let mut builder = Builder::new(1);
    builder.commit(0, SECOND, MS);
    let found = measure(&builder.build(), &none(), None);
    for name in ["backlog.peak", "audit.waiting", "audit.lost", "idle_in_tx.rows", "drain.rate"] {
        assert_eq!(found.named(name), None, "{name}");
    }
}

#[test]
fn a_case_passes_when_it_persists_and_arrives_in_time() {
    let mut builder = Builder::new(1).shape(2, 0);
    let seconds = |n: u64| n * SECOND;
    for _ in 0..5 {
        builder.commit(0, SECOND, 5 * SECOND); // exactly in time
    }
    builder.commit(0, SECOND, 5 * SECOND + MS);
    let failed = [SECOND, SECOND, SECOND, SECOND, SECOND];
    builder.write(0, failed, Outcome::Failed);
    for (write, event, at) in
        [(0, 0, 6), (0, 1, 11), (1, 0, 6), (1, 1, 12), (2, 0, 6), (5, 0, 7), (5, 1, 7), (4, 0, 7), (4, 1, 7)]
    {
        builder.arrive(0, write, event, seconds(at), 1);
    }
    let history = builder.with(|history| history.plan.services[0].cases = vec![0, 1, 2, 5, 6, 99]).build();
    let mut cell = lease();
    cell.settings.suite.cases = 6;
    let found = measure(&history, &cell, None);
    let suite = found.suite.expect("a suite");
    assert_eq!((suite.cases, suite.passed), (5, 1), "99 was not attempted");
    assert_eq!((suite.persisted_late, suite.arrived_late), (2, 2));
    assert_eq!((value(&found, "suite.passed"), value(&found, "suite.failed")), (1.0, 4.0));

    let mut control = none();
    control.settings.suite.cases = 6;
    let found = measure(&history, &control, None);
    assert_eq!(value(&found, "suite.passed"), 3.0, "where nobody drains only persist is judged");
}

#[test]
fn a_suite_deadline_is_inclusive() {
    let mut builder = Builder::new(1).with(|history| history.plan.services[0].cases = vec![0]);
    builder.commit(0, SECOND, MS);
    builder.arrive(0, 0, 0, 3 * SECOND, 1);
    let history = builder.build();
    let mut cell = lease();
    cell.settings.suite.cases = 1;
    for (within, passed) in [(2_000, 1.0), (1_999, 0.0)] {
        cell.settings.suite.arrive_within = Duration::from_millis(within);
        assert_eq!(value(&measure(&history, &cell, None), "suite.passed"), passed);
    }
}

fn sampled() -> Builder {
    let mut builder = Builder::new(1).with(|history| history.window_ns = SECOND..3 * SECOND);
    let wal = Some("LWLock:WALWrite");
    builder.sample(500 * MS, Who::Drainer, State::IdleInTransaction, None, Some(70));
    builder.sample(SECOND, Who::Foreground, State::Active, wal, Some(3));
    builder.sample(SECOND, Who::Drainer, State::Active, None, Some(9));
    builder.sample(2 * SECOND, Who::Foreground, State::Active, wal, Some(3));
    builder.sample(
        2 * SECOND,
        Who::Foreground,
        State::IdleInTransaction,
        Some("Client:ClientRead"),
        Some(99),
    );
    builder.sample(2 * SECOND, Who::Drainer, State::IdleInTransactionAborted, None, Some(20));
    builder.sample(4 * SECOND, Who::Foreground, State::Active, wal, Some(3));
    builder
}

#[test]
fn waits_are_average_active_sessions_in_the_window() {
    let found = measure(&sampled().build(), &lease(), None);
    assert_eq!(found.waits.ticks, 2);
    assert_eq!(value(&found, "waits.lwlock"), 1.0);
    assert_eq!(value(&found, "waits.cpu"), 0.5);
    assert_eq!(value(&found, "waits.client"), 0.0, "an idle session does not wait");
    let first = &found.waits.active[0];
    assert_eq!((first.who, first.event.as_str(), first.sessions), (Who::Foreground, "LWLock:WALWrite", 1.0));
    assert_eq!(found.waits.oldest.drainer_ms, Some(70.0));
    assert_eq!(found.waits.oldest.foreground_ms, Some(99.0));
}

#[test]
fn only_the_drainer_is_accused_of_an_idle_transaction() {
    let found = measure(&sampled().build(), &lease(), None);
    assert_eq!(value(&found, "idle_in_tx.rows"), 2.0, "aborted counts, the foreground's does not");
    assert_eq!(value(&found, "idle_in_tx.age_max"), 70.0);
    assert_eq!(value(&found, "drainer.connections"), 1.0);
    assert_eq!(found.series.drainer_idle_in_tx_rows[..3], [1, 0, 1]);
    assert_eq!(found.facts.unseen, Some(Vec::new()));
}

#[test]
fn a_zero_counts_only_if_the_drainer_was_seen() {
    let mut blind = Builder::new(1);
    blind.sample(SECOND, Who::Foreground, State::Active, None, None);
    let found = measure(&blind.build(), &lease(), None);
    assert_eq!(found.facts.unseen, Some(vec!["svc00".to_owned()]));
    assert_eq!(found.named("idle_in_tx.rows"), None);

    let mut idle = Builder::new(1);
    idle.sample(SECOND, Who::Drainer, State::Idle, None, None);
    let found = measure(&idle.build(), &lease(), None);
    assert_eq!(found.facts.unseen, Some(Vec::new()));
    assert_eq!(value(&found, "idle_in_tx.rows"), 0.0);
    assert_eq!(measure(&Builder::new(1).build(), &none(), None).facts.unseen, None);
}

#[test]
fn a_zero_needs_every_services_drainer_to_have_been_seen() {
    let mut builder = Builder::new(2);
    builder.sample(SECOND, Who::Drainer, State::Idle, None, None);
    let found = measure(&builder.build(), &lease(), None);
    assert_eq!(found.facts.unseen, Some(vec!["svc01".to_owned()]));
    assert_eq!(found.named("idle_in_tx.rows"), None, "one drainer's zero says nothing of the other");
}

#[test]
fn a_single_statement_has_no_commit_to_time() {
    let mut builder = Builder::new(1).with(|history| history.plan.load.write = WriteKind::Statement);
    builder.write(0, [0, 0, MS, 9 * MS, 9 * MS], Outcome::Committed);
    let found = measure(&builder.build(), &lease(), None);
    assert_eq!(found.named("commit.p99"), None, "its zeros would pass every limit");
    assert!((value(&found, "execute.max") - 8.0).abs() < 0.02);
}

/// A session of a pool that both use is the drainer's only while it works for it: the last statement of an idle one
/// says who had it last.
#[test]
fn an_idle_session_of_a_shared_pool_is_nobodys_connection() {
    let history = |placement| {
        let mut builder = Builder::new(1);
        builder.sample(SECOND, Who::Drainer, State::Idle, None, None);
        let mut cell = lease();
        cell.settings.drainer.placement = placement;
        value(&measure(&builder.build(), &cell, None), "drainer.connections")
    };
    assert_eq!(history(Placement::InService), 0.0);
    assert_eq!(history(Placement::Process), 1.0);
}

#[test]
fn the_samplers_own_cost_and_misses_are_shares() {
    let history = sampled()
        .with(|history| {
            let log = &mut history.samples;
            log.missed = 1;
            log.own_cpu_seconds = 0.2;
            log.backend_cpu_seconds = Some(0.4);
            log.wall_seconds = 12.0;
        })
        .build();
    let found = measure(&history, &lease(), None);
    assert_eq!(value(&found, "sampler.missed"), 0.2, "one of five");
    assert!((value(&found, "sampler.cost") - 0.05).abs() < 1e-9);
    let unseen = measure(&Builder::new(1).build(), &lease(), None);
    assert_eq!(value(&unseen, "sampler.missed"), 1.0);
    assert_eq!(unseen.named("sampler.cost"), None);
}

#[test]
fn drainers_tell_what_only_they_can_know() {
    let mut builder = Builder::new(1).with(|history| history.drained_ns = Some(0..10 * SECOND));
    let mut tick = drainer::Tick { statements: 40, ..drainer::Tick::default() };
    tick.stats.failed = 3;
    tick.claim_us = Some(2_000);
    tick.mark_us = Some(4_000);
    tick.confirm_us = vec![67_000, 68_000];
    builder.told(SECOND, tick.clone());
    builder.told(2 * SECOND, tick);
    builder.process(ProcessUse {
        service: 0,
        cpu_seconds: 2.0,
        rss_peak_bytes: 5_000_000,
        wall_seconds: 10.0,
    });
    builder.process(ProcessUse {
        service: 0,
        cpu_seconds: 1.0,
        rss_peak_bytes: 9_000_000,
        wall_seconds: 10.0,
    });
    let found = measure(&builder.build(), &lease(), None);
    near(&found, "claim.p50", 2.0);
    near(&found, "mark.max", 4.0);
    near(&found, "confirm.p50", 67.0);
    assert_eq!(found.distributions[&Timing::Confirm].merged.len(), 4);
    assert_eq!(value(&found, "drain.failed"), 6.0);
    assert_eq!(value(&found, "drainer.statements_per_sec"), 8.0);
    assert!((value(&found, "drainer.cpu") - 0.3).abs() < 1e-9);
    assert_eq!(value(&found, "drainer.rss_peak"), 9_000_000.0);
}

#[test]
fn wal_is_what_goes_beyond_the_paired_control() {
    let cell_with = |wal, commits, arrivals: u32| {
        let mut builder = Builder::new(1);
        for place in 0..10 {
            builder.commit(0, place * MS, MS);
        }
        for write in 0..arrivals {
            builder.arrive(0, write, 0, SECOND, 1);
        }
        builder.with(|history| {
            history.database.wal_bytes = Some(wal);
            history.database.commits = Some(commits);
            history.database.updates = Some(20);
            history.database.hot_updates = Some(5);
        })
    };
    let control = measure(&cell_with(10_000, 10, 0).build(), &none(), None);
    let history = cell_with(24_000, 30, 8).build();
    let found = measure(&history, &lease(), Some((&none(), &control)));
    assert_eq!(value(&found, "db.wal_bytes_per_event"), 1_750.0);
    assert_eq!(value(&found, "db.commits_per_event"), 2.5);
    assert_eq!(value(&found, "db.hot_share"), 0.25);

    assert_eq!(measure(&history, &lease(), None).named("db.wal_bytes_per_event"), None);
    let mut other = Builder::new(1);
    other.commit(0, MS, MS);
    let other = measure(&other.with(|history| history.database.wal_bytes = Some(1)).build(), &none(), None);
    let unpaired = measure(&history, &lease(), Some((&none(), &other)));
    let metric = Metric::lookup("db.wal_bytes_per_event").expect("a metric");
    assert_eq!(unpaired.unmeasured[&metric], "the control attempted another number of writes");
}

#[test]
fn a_stopped_database_shows_in_its_seconds() {
    let mut builder = Builder::new(1);
    for place in 0..500 {
        let due = place * 10 * MS;
        // Nothing commits from 2 s to 4 s.
        let end = if (2 * SECOND..4 * SECOND).contains(&due) { 4 * SECOND } else { due + MS };
        builder.commit(0, due, end - due);
    }
    let found = measure(&builder.build(), &none(), None);
    let series = &found.series;
    assert_eq!(series.due[..5], [100; 5]);
    assert_eq!(series.committed[..5], [100, 100, 0, 0, 300]);
    assert_eq!(series.persist_max_ms[2], Some(2_000.0));
    assert_eq!(series.persist_p50_ms[3], Some(500.0));
    assert_eq!(series.persist_p99_ms[1], Some(1.0));
    assert_eq!(series.persist_p50_ms[9], None);
    let slow = found.distributions[&Timing::Persist].merged.count_between(5_000, 10_000_000);
    assert_eq!(slow, 200, "two seconds times the rate are slow, however few could be tried");
}

#[test]
fn a_time_beyond_a_day_is_counted_as_saturated() {
    let mut builder = Builder::new(1);
    builder.commit(0, SECOND, 90_000 * SECOND);
    let found = measure(&builder.build(), &none(), None);
    assert_eq!(found.distributions[&Timing::Persist].saturated, 1);
    near(&found, "persist.max", 86_400_000.0);
}

#[test]
fn events_that_never_arrived_deliver_nothing() {
    let mut builder = Builder::new(1);
    builder.commit(0, SECOND, MS);
    let history =
        builder.with(|history| history.services[0].waiting = vec![EventRef { write: 0, event: 0 }]).build();
    let found = measure(&history, &lease(), None);
    assert_eq!(found.named("deliver.p99"), None);
    assert_eq!(found.named("deliver.early"), None);
    assert_eq!(value(&found, "audit.waiting"), 1.0);
}
