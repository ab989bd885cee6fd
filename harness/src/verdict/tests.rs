use std::num::NonZeroU32;

use super::{Cut, MeasuredCell, Outcome, ReasonKind, Standing, Verdict, judge};
use crate::{
    ledger::synthetic::{Builder, MS, SECOND, cell},
    measure::measure,
    metric::Metric,
    sampler::{State, Who},
    scenario::{Cell, CellDesign, Expectation, Limit, Op, Role, Scenario},
};

fn expect(metric: &str, op: Op, value: f64) -> Expectation {
    let metric = Metric::lookup(metric).expect("a metric");
    Expectation { metric, limit: Limit { op, value, times: None }, cell: None }
}

fn times(metric: &str, op: Op, value: f64, other: &str) -> Expectation {
    let mut expectation = expect(metric, op, value);
    expectation.limit.times = Some(other.to_owned());
    expectation
}

/// Control, old and new; no symptom, persist p99 below 50 ms.
fn scenario() -> Scenario {
    Scenario {
        name: "test".to_owned(),
        about: String::new(),
        seed: 1,
        rounds: NonZeroU32::MIN,
        containers: crate::rig::Containers::default(),
        cells: vec![
            cell("control", Some(Role::Control), CellDesign::None),
            cell("old", Some(Role::Baseline), CellDesign::SingleTx),
            cell("new", Some(Role::Candidate), CellDesign::Lease),
        ],
        symptoms: Vec::new(),
        criteria: vec![expect("persist.p99", Op::Below, 50.0)],
        text: String::new(),
        hash: String::new(),
    }
}

/// A run of a cell: every write takes so long, and every event arrives.
fn ran(cell: &Cell, persist_ms: u64, change: impl FnOnce(&mut MeasuredCell)) -> MeasuredCell {
    let mut builder = Builder::new(1);
    for place in 0..100 {
        let due = place * 10 * MS;
        let write = builder.commit(0, due, persist_ms * MS);
        if cell.design != CellDesign::None {
            builder.arrive(0, write, 0, due + (persist_ms + 70) * MS, 1);
        }
    }
    builder.sample(SECOND, Who::Foreground, State::Active, Some("LWLock:WALWrite"), Some(3));
    if cell.design != CellDesign::None {
        builder.sample(SECOND, Who::Drainer, State::Idle, None, None);
    }
    let mut measured = MeasuredCell {
        label: cell.label.clone(),
        role: cell.role,
        design: cell.design,
        round: 1,
        measurements: measure(&builder.build(), cell, None),
        troubles: Vec::new(),
        void: Vec::new(),
        misconduct: Vec::new(),
        cut: None,
    };
    change(&mut measured);
    measured
}

fn set(cell: &mut MeasuredCell, name: &str, value: f64) {
    cell.measurements.metrics.insert(Metric::lookup(name).expect("a metric"), value);
}

/// All three cells with these times, the last one changed.
fn judged(scenario: &Scenario, persist_ms: [u64; 3], change: impl FnOnce(&mut MeasuredCell)) -> Verdict {
    let [control, old, new] = persist_ms;
    let cells = [
        ran(&scenario.cells[0], control, |_| {}),
        ran(&scenario.cells[1], old, |_| {}),
        ran(&scenario.cells[2], new, change),
    ];
    judge(scenario, &cells, &[])
}

fn texts(verdict: &Verdict, kind: ReasonKind) -> Vec<&str> {
    let of_kind = verdict.reasons.iter().filter(|reason| reason.kind == kind);
    of_kind.map(|reason| reason.text.as_str()).collect()
}

#[track_caller]
fn ends(verdict: &Verdict, outcome: Outcome, exit_code: u8) {
    assert_eq!((verdict.outcome, verdict.exit_code), (outcome, exit_code), "{:#?}", verdict.reasons);
    assert_eq!(verdict.exit() as u8, exit_code);
}

#[test]
fn it_passes_when_every_criterion_holds() {
    let verdict = judged(&scenario(), [5, 900, 20], |_| {});
    ends(&verdict, Outcome::Pass, 0);
    assert!(verdict.reasons.is_empty());
    let first = &verdict.criteria[0];
    assert_eq!((first.cell.as_str(), first.passed, first.standing), ("new", true, Standing::Held));
    assert_eq!(first.rule(), "persist.p99 < 50 ms");
    let unasked = verdict
        .criteria
        .iter()
        .filter(|held| held.unasked)
        .map(|held| (held.cell.as_str(), held.metric.as_str()));
    assert_eq!(
        unasked.collect::<Vec<_>>(),
        [
            ("old", "audit.lost"),
            ("old", "audit.phantom"),
            ("new", "audit.lost"),
            ("new", "audit.phantom"),
            ("new", "audit.waiting"),
            ("new", "audit.unmarked"),
            ("new", "writes.failed"),
            ("new", "audit.delivered"),
        ]
    );
}

#[test]
fn a_missed_criterion_fails_and_is_named_with_limit_and_value() {
    let verdict = judged(&scenario(), [5, 900, 80], |_| {});
    ends(&verdict, Outcome::Fail, 3);
    let text = texts(&verdict, ReasonKind::Criterion)[0];
    assert!(text.starts_with("`new` misses persist.p99 < 50 ms: it is 80"), "{text}");
    assert!(text.ends_with("90 % of persist is commit, waiting on LWLock:WALWrite"), "{text}");
    assert_eq!(verdict.criteria[0].standing, Standing::Missed);
}

#[test]
fn each_comparison_has_its_edge() {
    let cases = [
        (Op::Below, 2.0, false),
        (Op::Below, 2.1, true),
        (Op::AtMost, 2.0, true),
        (Op::AtMost, 1.9, false),
        (Op::Above, 2.0, false),
        (Op::Above, 1.9, true),
        (Op::AtLeast, 2.0, true),
        (Op::AtLeast, 2.1, false),
    ];
    for (op, limit, holds) in cases {
        let mut scenario = scenario();
        scenario.criteria = vec![expect("drainer.connections", op, limit)];
        let verdict = judged(&scenario, [5, 5, 5], |new| set(new, "drainer.connections", 2.0));
        assert_eq!(verdict.criteria[0].passed, holds, "2 {op:?} {limit}");
        assert_eq!(verdict.outcome == Outcome::Pass, holds);
    }
}

#[test]
fn a_limit_of_zero_passes_at_zero() {
    let mut scenario = scenario();
    scenario.criteria = vec![expect("idle_in_tx.rows", Op::AtMost, 0.0)];
    ends(&judged(&scenario, [5, 5, 5], |_| {}), Outcome::Pass, 0);
    let verdict = judged(&scenario, [5, 5, 5], |new| set(new, "idle_in_tx.rows", 1.0));
    ends(&verdict, Outcome::Fail, 3);
}

#[test]
fn unasked_requirements_fail_too() {
    for (metric, value) in
        [("audit.waiting", 3.0), ("writes.failed", 1.0), ("audit.delivered", 0.0), ("audit.lost", 1.0)]
    {
        let verdict = judged(&scenario(), [5, 5, 5], |new| set(new, metric, value));
        ends(&verdict, Outcome::Fail, 3);
        assert!(
            verdict.reasons[0].text.starts_with(&format!("`new` misses {metric}")),
            "{:?}",
            verdict.reasons
        );
    }
}

#[test]
fn a_baseline_may_be_slow_and_wait_but_not_lose() {
    let scenario = scenario();
    let with_old = |metric: &'static str| {
        let cells = [
            ran(&scenario.cells[0], 5, |_| {}),
            ran(&scenario.cells[1], 900, |old| set(old, metric, 2.0)),
            ran(&scenario.cells[2], 5, |_| {}),
        ];
        judge(&scenario, &cells, &[])
    };
    ends(&with_old("audit.waiting"), Outcome::Pass, 0);
    ends(&with_old("writes.failed"), Outcome::Pass, 0);
    let verdict = with_old("audit.phantom");
    ends(&verdict, Outcome::Fail, 3);
    assert_eq!(verdict.reasons[0].kind, ReasonKind::Safety);
}

#[test]
fn a_lost_event_is_named_with_its_history() {
    let scenario = scenario();
    let mut builder = Builder::new(1);
    builder.commit(0, SECOND, MS);
    let kept = builder.commit(0, SECOND, MS);
    builder.arrive(0, kept, 0, 2 * SECOND, 1);
    builder.sample(SECOND, Who::Drainer, State::Idle, None, None);
    let new = ran(&scenario.cells[2], 5, |new| {
        new.measurements = measure(&builder.build(), &scenario.cells[2], None);
    });
    let cells = [ran(&scenario.cells[0], 5, |_| {}), ran(&scenario.cells[1], 5, |_| {}), new];
    let verdict = judge(&scenario, &cells, &[]);
    ends(&verdict, Outcome::Fail, 3);
    assert_eq!(
        texts(&verdict, ReasonKind::Safety),
        [
            "`new` misses audit.lost ≤ 0: it is 1; the first: svc00 write 0 event 0: due 1.000000 s, enqueued from \
          1.000050 s, committed 1.001000 s, never arrived"
        ]
    );
}

#[test]
fn the_disk_is_not_the_drainer() {
    let verdict = judged(&scenario(), [103, 110, 120], |_| {});
    ends(&verdict, Outcome::Inconclusive, 5);
    assert_eq!(verdict.criteria[0].standing, Standing::Excused);
    let reasons = texts(&verdict, ReasonKind::Inconclusive);
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    assert!(
        reasons[0].starts_with("the control itself misses persist.p99 < 50 ms (103 ms): "),
        "{reasons:?}"
    );
    assert!(
        reasons[0]
            .ends_with("90 % of persist is commit, waiting on LWLock:WALWrite: the disk, not the drainer"),
        "{reasons:?}"
    );
}

#[test]
fn a_control_that_misses_excuses_only_that_criterion() {
    let mut scenario = scenario();
    scenario.criteria.push(expect("idle_in_tx.rows", Op::AtMost, 0.0));
    let verdict = judged(&scenario, [103, 110, 120], |new| set(new, "idle_in_tx.rows", 7.0));
    ends(&verdict, Outcome::Fail, 3);
    assert_eq!(verdict.reasons.len(), 2, "the inconclusive one is listed as well");
}

#[test]
fn a_multiple_of_the_control_is_not_asked_of_the_control() {
    let mut scenario = scenario();
    scenario.criteria = vec![times("persist.p99", Op::AtMost, 0.5, "control")];
    let verdict = judged(&scenario, [100, 100, 40], |_| {});
    ends(&verdict, Outcome::Pass, 0);
    let verdict = judged(&scenario, [100, 100, 60], |_| {});
    ends(&verdict, Outcome::Fail, 3);
}

#[test]
fn a_limit_can_be_a_multiple_of_another_cell() {
    let mut scenario = scenario();
    scenario.criteria = vec![times("drain.rate", Op::AtLeast, 10.0, "old")];
    for (rate, outcome) in [(9_020.0, Outcome::Pass), (9_019.0, Outcome::Fail)] {
        let cells = [
            ran(&scenario.cells[0], 5, |_| {}),
            ran(&scenario.cells[1], 5, |old| set(old, "drain.rate", 902.0)),
            ran(&scenario.cells[2], 5, |new| set(new, "drain.rate", rate)),
        ];
        let verdict = judge(&scenario, &cells, &[]);
        assert_eq!(verdict.outcome, outcome);
        assert_eq!(verdict.criteria[0].rule(), "drain.rate ≥ 10 × old (9,020/s)");
        assert_eq!(verdict.criteria[0].bound, Some(9_020.0));
    }
    let unknown = judge(&scenario, &[ran(&scenario.cells[2], 5, |_| {})], &[]);
    ends(&unknown, Outcome::Invalid, 5);
    assert_eq!(
        texts(&unknown, ReasonKind::Invalid),
        ["drain.rate ≥ 10 × old cannot be judged: `old` did not run"]
    );
}

#[test]
fn every_symptom_must_show() {
    let mut scenario = scenario();
    scenario.symptoms =
        vec![expect("persist.p99", Op::Above, 1000.0), expect("idle_in_tx.rows", Op::Above, 0.0)];
    let run = |old_ms: u64, rows: f64| {
        let cells = [
            ran(&scenario.cells[0], 5, |_| {}),
            ran(&scenario.cells[1], old_ms, |old| set(old, "idle_in_tx.rows", rows)),
            ran(&scenario.cells[2], 5, |_| {}),
        ];
        judge(&scenario, &cells, &[])
    };
    let all = run(6_700, 24_372.0);
    ends(&all, Outcome::Pass, 0);
    assert!(all.symptoms.iter().all(|symptom| symptom.passed && symptom.cell == "old"));

    let one = run(6, 24_372.0);
    ends(&one, Outcome::Inconclusive, 5);
    assert_eq!(
        texts(&one, ReasonKind::Inconclusive),
        ["not every symptom shows: persist.p99 > 1,000 ms does not in `old` (6.00 ms); idle_in_tx.rows > 0 \
             does in `old` (24,372)"]
    );
    let note = texts(&one, ReasonKind::Note)[0];
    assert!(note.contains("(24,372 rows") && note.contains("hurts nobody here"), "{note}");
    assert!(note.ends_with("in the control"), "{note}");

    let hurting = run(6_700, 0.0);
    ends(&hurting, Outcome::Inconclusive, 5);
    assert!(texts(&hurting, ReasonKind::Note).is_empty());

    let none = run(6, 0.0);
    ends(&none, Outcome::Inconclusive, 5);
    assert!(texts(&none, ReasonKind::Inconclusive)[0].starts_with("no symptom shows"));
    assert!(texts(&none, ReasonKind::Note).is_empty());
}

#[test]
fn a_failed_criterion_weighs_more_than_a_missing_symptom() {
    let mut scenario = scenario();
    scenario.symptoms = vec![expect("persist.p99", Op::Above, 1000.0)];
    let verdict = judged(&scenario, [5, 6, 80], |_| {});
    ends(&verdict, Outcome::Fail, 3);
    assert_eq!(verdict.reasons.len(), 2);
}

#[test]
fn an_expectation_may_name_its_cell() {
    let mut scenario = scenario();
    scenario.criteria[0].cell = Some("old".to_owned());
    let verdict = judged(&scenario, [5, 900, 900], |_| {});
    ends(&verdict, Outcome::Fail, 3);
    assert_eq!(verdict.criteria[0].cell, "old");
    scenario.criteria[0].cell = Some("control".to_owned());
    let verdict = judged(&scenario, [60, 5, 5], |_| {});
    ends(&verdict, Outcome::Fail, 3);
}

#[test]
fn a_cell_without_a_role_is_not_judged() {
    let mut scenario = scenario();
    scenario.cells.push(cell("extra", None, CellDesign::Lease));
    let mut cells: Vec<_> = scenario.cells.iter().map(|cell| ran(cell, 5, |_| {})).collect();
    cells[3] = ran(&scenario.cells[3], 900, |extra| set(extra, "audit.waiting", 4.0));
    ends(&judge(&scenario, &cells, &[]), Outcome::Pass, 0);
    set(&mut cells[3], "audit.lost", 1.0);
    ends(&judge(&scenario, &cells, &[]), Outcome::Fail, 3);
}

#[test]
fn an_unmeasured_metric_is_invalid_and_says_why() {
    let mut scenario = scenario();
    scenario.criteria = vec![expect("drainer.cpu", Op::Below, 1.0)];
    let verdict = judged(&scenario, [5, 5, 5], |_| {});
    ends(&verdict, Outcome::Invalid, 5);
    assert_eq!(
        texts(&verdict, ReasonKind::Invalid),
        [
            "drainer.cpu < 1 cores cannot be judged: drainer.cpu was not measured in `new`: the drainers have no \
          process of their own"
        ]
    );
    assert_eq!(verdict.criteria[0].standing, Standing::Unmeasured);
}

#[test]
fn each_validity_rule_makes_it_invalid() {
    type Change = fn(&mut MeasuredCell);
    let cases: [(&str, Change); 6] = [
        ("the generator was late: lag p99 is 14 ms, validity.lag_p99 is 10 ms", |cell| {
            cell.measurements.facts.lag_p99_ms = Some(14.0);
        }),
        ("the sink was behind: a marker took 1,500 ms", |cell| {
            cell.measurements.facts.sink_behind_ms = 1_500.0;
        }),
        ("the sampler missed 6 % of its ticks, sampler.max_missed is 5 %; its last error: gone", |cell| {
            cell.measurements.facts.sampler_missed = 0.06;
            cell.measurements.facts.sampler_error = Some("gone".to_owned());
        }),
        ("the sampler is blind", |cell| cell.measurements.facts.unseen = Some(vec!["svc00".to_owned()])),
        ("3 foreign messages", |cell| cell.measurements.facts.foreign = 3),
        ("the accounting is broken: a is not b", |cell| {
            cell.measurements.facts.broken = vec!["a is not b".to_owned()];
        }),
    ];
    for (expected, change) in cases {
        let verdict = judged(&scenario(), [5, 5, 5], change);
        ends(&verdict, Outcome::Invalid, 5);
        let text = texts(&verdict, ReasonKind::Invalid)[0];
        assert!(text.starts_with("`new`: ") && text.contains(expected), "{text}");
    }
}

#[test]
fn at_its_limit_a_run_is_valid() {
    let verdict = judged(&scenario(), [5, 5, 5], |cell| {
        let facts = &mut cell.measurements.facts;
        facts.lag_p99_ms = Some(10.0);
        facts.sink_behind_ms = 1_000.0;
        facts.sampler_missed = 0.05;
    });
    ends(&verdict, Outcome::Pass, 0);
}

#[test]
fn an_invalid_rig_is_the_only_reason() {
    let verdict = judge(&scenario(), &[], &["fsync is off".to_owned()]);
    ends(&verdict, Outcome::Invalid, 5);
    assert_eq!(texts(&verdict, ReasonKind::Invalid), ["fsync is off"]);
    assert_eq!(verdict.reasons.len(), 1);
}

#[test]
fn loss_weighs_more_than_invalid_and_invalid_more_than_a_criterion() {
    let lost = judged(&scenario(), [5, 5, 80], |cell| {
        set(cell, "audit.lost", 1.0);
        cell.measurements.facts.foreign = 1;
    });
    ends(&lost, Outcome::Fail, 3);
    let kinds: Vec<_> = lost.reasons.iter().map(|reason| reason.kind).collect();
    assert_eq!(kinds, [ReasonKind::Safety, ReasonKind::Invalid, ReasonKind::Criterion]);
    let invalid = judged(&scenario(), [5, 5, 80], |cell| cell.measurements.facts.foreign = 1);
    ends(&invalid, Outcome::Invalid, 5);
}

#[test]
fn a_broken_run_weighs_more_than_loss_and_an_interruption_more_than_all() {
    let broken = judged(&scenario(), [5, 5, 5], |cell| {
        set(cell, "audit.lost", 1.0);
        cell.troubles = vec!["the broker went away".to_owned()];
    });
    ends(&broken, Outcome::Invalid, 2);
    assert_eq!(texts(&broken, ReasonKind::Environment), ["`new`: the broker went away"]);

    let interrupted = judged(&scenario(), [5, 5, 5], |cell| {
        cell.troubles = vec!["the broker went away".to_owned()];
        cell.cut = Some(Cut::Interrupted);
        set(cell, "audit.lost", 9.0);
        cell.measurements.facts.lag_p99_ms = Some(900.0);
    });
    ends(&interrupted, Outcome::Inconclusive, 130);
    assert!(texts(&interrupted, ReasonKind::Safety).is_empty(), "what was not read to the end is not lost");
    assert!(texts(&interrupted, ReasonKind::Invalid).is_empty());
    let first = ran(&scenario().cells[0], 5, |cell| cell.cut = Some(Cut::Interrupted));
    let early = judge(&scenario(), &[first], &[]);
    ends(&early, Outcome::Inconclusive, 130);
    assert_eq!(early.reasons.len(), 1, "cells that did not run need no reason of their own");
}

#[test]
fn what_a_candidates_drainer_does_is_held_against_it() {
    let died = |cell: &mut MeasuredCell| cell.misconduct = vec!["drainer svc00:0 panicked".to_owned()];
    let verdict = judged(&scenario(), [5, 5, 5], |cell| {
        died(cell);
        set(cell, "audit.lost", 1.0);
    });
    ends(&verdict, Outcome::Fail, 3);
    assert_eq!(
        texts(&verdict, ReasonKind::Safety).len(),
        1,
        "a loss is told, whatever the drainer did besides"
    );
    assert_eq!(texts(&verdict, ReasonKind::Criterion), ["`new`: drainer svc00:0 panicked"]);
    let mut cells: Vec<MeasuredCell> = scenario().cells.iter().map(|cell| ran(cell, 5, |_| {})).collect();
    died(&mut cells[1]);
    ends(&judge(&scenario(), &cells, &[]), Outcome::Invalid, 5);
}

#[test]
fn a_candidate_that_carries_nothing_fails() {
    let mut scenario = scenario();
    scenario.criteria.push(expect("deliver.p99", Op::Below, 1_000.0));
    scenario.criteria.push(expect("idle_in_tx.rows", Op::AtMost, 0.0));
    let verdict = judged(&scenario, [5, 5, 5], |cell| {
        let tally = &mut cell.measurements.audit.tally;
        (tally.waiting, tally.delivered) = (tally.delivered, 0);
        set(cell, "audit.delivered", 0.0);
        cell.measurements.facts.unseen = Some(vec!["svc00".to_owned()]);
        for name in ["deliver.p99", "idle_in_tx.rows"] {
            cell.measurements.metrics.remove(&Metric::lookup(name).expect("a metric"));
        }
    });
    ends(&verdict, Outcome::Fail, 3);
    assert!(texts(&verdict, ReasonKind::Invalid).is_empty(), "{:?}", verdict.reasons);
}

#[test]
fn a_candidate_that_never_marks_fails() {
    let verdict = judged(&scenario(), [5, 5, 5], |cell| set(cell, "audit.unmarked", 3.0));
    ends(&verdict, Outcome::Fail, 3);
}

#[test]
fn what_ran_out_of_time_is_no_interruption() {
    let verdict = judged(&scenario(), [5, 5, 5], |cell| {
        cell.cut = Some(Cut::OutOfTime);
        set(cell, "audit.waiting", 9.0);
    });
    ends(&verdict, Outcome::Invalid, 2);
    assert_eq!(texts(&verdict, ReasonKind::Environment), ["`new` was cut off: its numbers are partial"]);
    assert!(texts(&verdict, ReasonKind::Criterion).is_empty(), "its drain was cut off as well");
}

#[test]
fn a_phantom_counts_even_when_interrupted() {
    let verdict = judged(&scenario(), [5, 5, 5], |cell| {
        cell.cut = Some(Cut::Interrupted);
        set(cell, "audit.phantom", 1.0);
    });
    ends(&verdict, Outcome::Inconclusive, 130);
    assert_eq!(texts(&verdict, ReasonKind::Safety).len(), 1);
}

/// The candidate in three rounds.
fn rounds(persist_ms: [u64; 3]) -> Verdict {
    let scenario = scenario();
    let mut cells = Vec::new();
    for (round, ms) in (1..).zip(persist_ms) {
        for (cell, ms) in scenario.cells.iter().zip([5, 900, ms]) {
            cells.push(ran(cell, ms, |cell| cell.round = round));
        }
    }
    judge(&scenario, &cells, &[])
}

#[test]
fn limits_judge_the_median_and_a_round_on_the_other_side_is_inconclusive() {
    ends(&rounds([20, 30, 40]), Outcome::Pass, 0);

    let split = rounds([20, 61, 40]);
    ends(&split, Outcome::Inconclusive, 5);
    assert_eq!(split.criteria[0].standing, Standing::Split);
    let text = texts(&split, ReasonKind::Inconclusive)[0];
    assert!(text.starts_with("rounds disagree on persist.p99 < 50 ms in `new`: the median 40"), "{text}");

    let failed = rounds([61, 20, 70]);
    ends(&failed, Outcome::Fail, 3);
    let text = texts(&failed, ReasonKind::Criterion)[0];
    assert!(text.contains("the median of 3 rounds"), "{text}");
}

#[test]
fn loss_in_any_round_is_loss() {
    let scenario = scenario();
    let mut cells = Vec::new();
    for round in 1..=3 {
        for cell in &scenario.cells {
            cells.push(ran(cell, 5, |cell| cell.round = round));
        }
    }
    set(&mut cells[5], "audit.lost", 1.0);
    ends(&judge(&scenario, &cells, &[]), Outcome::Fail, 3);
}

#[test]
fn a_multiple_is_of_the_same_round() {
    let mut scenario = scenario();
    scenario.criteria = vec![times("persist.p99", Op::AtMost, 2.0, "control")];
    let mut cells = Vec::new();
    // A noisy machine: everything takes longer in the second round.
    for (round, ms) in [(1, 10), (2, 100)] {
        for (cell, ms) in scenario.cells.iter().zip([ms, ms, ms + ms / 2]) {
            cells.push(ran(cell, ms, |cell| cell.round = round));
        }
    }
    ends(&judge(&scenario, &cells, &[]), Outcome::Pass, 0);
}

#[test]
fn diagnoses_name_the_mechanism() {
    let scenario = scenario();
    let slow = |instants: [u64; 5]| {
        let mut builder = Builder::new(1);
        builder.write(0, instants.map(|ms| ms * MS), crate::history::Outcome::Committed);
        let control = ran(&scenario.cells[0], 5, |control| {
            control.measurements = measure(&builder.build(), &scenario.cells[0], None);
            control.measurements.facts.lag_p99_ms = None;
            control.measurements.facts.sampler_missed = 0.0;
        });
        let cells = [control, ran(&scenario.cells[1], 5, |_| {}), ran(&scenario.cells[2], 5, |_| {})];
        let verdict = judge(&scenario, &cells, &[]);
        ends(&verdict, Outcome::Inconclusive, 5);
        texts(&verdict, ReasonKind::Inconclusive)[0].to_owned()
    };
    let cases = [
        ([0, 90, 91, 92, 100], "90 % of persist is lag: the generator is late, not the drainer"),
        (
            [0, 1, 91, 92, 100],
            "90 % of persist is acquire: the services' pools are too small for this load, with or without a drainer",
        ),
        ([0, 1, 2, 92, 100], "90 % of persist is execute: the database, not the drainer"),
        ([0, 1, 2, 10, 100], "90 % of persist is commit: the database, not the drainer"),
    ];
    for (instants, expected) in cases {
        let text = slow(instants);
        assert!(text.ends_with(expected), "{text}");
    }
}

#[test]
fn what_the_numbers_cannot_know_is_added_afterwards() {
    let verdict = judged(&scenario(), [5, 5, 80], |_| {});
    let verdict = verdict.because(ReasonKind::Environment, "`extra` did not start: no connection");
    ends(&verdict, Outcome::Invalid, 2);
    assert_eq!(verdict.reasons.len(), 2);
    assert_eq!(verdict.criteria.len(), 9);
}

/// What a cell with a fault shows, it shows only where somebody saw the fault.
#[test]
fn a_fault_that_nobody_saw_makes_a_run_invalid() {
    let mut scenario = scenario();
    let breaks = crate::scenario::Breaks::Pause { instance: None };
    let second = std::time::Duration::from_secs(1);
    scenario.cells[2].faults =
        vec![crate::scenario::Fault { breaks, at: second, lasts: Some(second), every: None, cell: None }];
    let span = |hit| crate::history::FaultSpan {
        fault: 0,
        kind: "pause",
        target: "drainer",
        began_ns: 1,
        healed_ns: 2,
        hit,
        evidence: "0 of 1 processes stood still".to_owned(),
    };
    for (spans, reason) in [
        (vec![], Some("`new`: the pause of the drainer never hit: it never struck")),
        (vec![span(false)], Some("`new`: the pause of the drainer never hit: 0 of 1 processes stood still")),
        // One of several strikes is enough.
        (vec![span(true), span(false)], None),
    ] {
        let verdict = judged(&scenario, [5, 900, 20], |new| new.measurements.faults.clone_from(&spans));
        assert_eq!(texts(&verdict, ReasonKind::Invalid), reason.into_iter().collect::<Vec<_>>(), "{spans:?}");
        let (outcome, code) = if reason.is_some() { (Outcome::Invalid, 5) } else { (Outcome::Pass, 0) };
        ends(&verdict, outcome, code);
    }
}
