//! A small experiment made by hand: a control, an old design that starves its pool, a new one that does not.

use std::{collections::BTreeMap, num::NonZeroU32};

use harness::{
    history::Outcome,
    ledger::synthetic::{Builder, MS, SECOND, cell},
    measure::measure,
    metric::Metric,
    record::{Experiment, Machine, Record},
    rig::{Containers, RigFacts, RigKind, Separation},
    sampler::{State, Who},
    scenario::{CellDesign, Expectation, Limit, Op, Role, Scenario},
    verdict::{MeasuredCell, Verdict, judge},
};

fn expect(metric: &str, op: Op, value: f64) -> Expectation {
    let metric = Metric::lookup(metric).expect("a metric");
    Expectation { metric, limit: Limit { op, value, times: None }, cell: None }
}

/// What is asked.
pub(crate) fn scenario() -> Scenario {
    let mut cells = vec![
        cell("control", Some(Role::Control), CellDesign::None),
        cell("old", Some(Role::Baseline), CellDesign::SingleTx),
        cell("new", Some(Role::Candidate), CellDesign::Lease),
    ];
    for cell in &mut cells {
        cell.settings.load.services = 2;
        cell.settings.suite.cases = 40;
    }
    Scenario {
        name: "by-hand".to_owned(),
        about: "Two services whose drainers share their pools".to_owned(),
        seed: 477,
        rounds: NonZeroU32::MIN,
        containers: Containers::default(),
        cells,
        symptoms: vec![
            expect("persist.p99", Op::Above, 1_000.0),
            expect("idle_in_tx.rows", Op::Above, 0.0),
            expect("suite.failed", Op::Above, 0.0),
        ],
        criteria: vec![
            expect("persist.p99", Op::Below, 50.0),
            expect("persist.p99_worst_service", Op::Below, 50.0),
            expect("idle_in_tx.rows", Op::AtMost, 0.0),
            expect("suite.failed", Op::AtMost, 0.0),
        ],
        text: "name = \"by-hand\"\nseed = 477\n".to_owned(),
        hash: "5f0c".repeat(16),
    }
}

/// All its cells, measured.
pub(crate) fn cells(scenario: &Scenario) -> Vec<MeasuredCell> {
    let mut measured: Vec<MeasuredCell> = Vec::new();
    for cell in &scenario.cells {
        let mut builder = Builder::new(2).with(|history| {
            history.window_ns = SECOND..9 * SECOND;
            history.samples.backend_cpu_seconds = Some(0.3);
            history.samples.own_cpu_seconds = 0.1;
            history.samples.longest_gap_ns = 31 * MS;
            history.database.wal_bytes = Some(match cell.design {
                CellDesign::None => 1_000_000,
                CellDesign::SingleTx => 1_218_000,
                CellDesign::Raw | CellDesign::Lease => 1_349_000,
            });
        });
        let old = cell.design == CellDesign::SingleTx;
        for place in 0..100u64 {
            for service in 0..2u16 {
                let due = place * 100 * MS + u64::from(service) * 50 * MS;
                // The old drainer keeps the connection from 3 s to 8 s.
                let until = if old && (3..8).contains(&(due / SECOND)) { 8 * SECOND } else { due };
                let acquired = until + MS / 5 + place % 7 * MS / 10;
                let (executed, ended) = (acquired + MS / 2, acquired + 2 * MS);
                let write = builder.write(
                    service,
                    [due, due + MS / 10, acquired, executed, ended],
                    Outcome::Committed,
                );
                if cell.design != CellDesign::None {
                    builder.arrive(service, write, 0, ended + 250 * MS, place + 1);
                }
            }
        }
        watch(&mut builder, cell.design);
        let history = builder
            .with(|history| {
                for service in &mut history.plan.services {
                    service.cases = (21..81).step_by(3).collect();
                }
            })
            .build();
        let control = measured.first().map(|control| control.measurements.clone());
        let control = control.as_ref().map(|measurements| (&scenario.cells[0], measurements));
        measured.push(MeasuredCell {
            label: cell.label.clone(),
            role: cell.role,
            design: cell.design,
            round: 1,
            measurements: measure(&history, cell, control),
            troubles: Vec::new(),
            void: Vec::new(),
            misconduct: Vec::new(),
            cut: None,
        });
    }
    measured
}

/// Fifty ticks a second for ten seconds. The old drainer's transaction is idle from 3 s to 8 s.
fn watch(builder: &mut Builder, design: CellDesign) {
    for tick in 0..500u64 {
        let at = tick * 20 * MS;
        builder.sample(at, Who::Foreground, State::Active, Some("IO:WALSync"), Some(1));
        match design {
            CellDesign::None | CellDesign::Raw => {}
            CellDesign::SingleTx if (150..400).contains(&tick) => {
                builder.sample(
                    at,
                    Who::Drainer,
                    State::IdleInTransaction,
                    Some("Client:ClientRead"),
                    Some((tick - 150) * 20),
                );
            }
            CellDesign::SingleTx | CellDesign::Lease => {
                builder.sample(at, Who::Drainer, State::Idle, None, None);
            }
        }
    }
    if design.drains_database() {
        builder.drainer_seen(1);
    }
}

/// A record of some cells.
pub(crate) fn record(
    scenario: &Scenario,
    cells: &[MeasuredCell],
    verdict: Verdict,
    rig: Option<RigFacts>,
) -> Record {
    let experiment = Experiment {
        scenario,
        started_at: jiff::Timestamp::UNIX_EPOCH,
        command: ["drainbench", "verify", "by-hand", "--set", "load.payload=340 B"]
            .map(str::to_owned)
            .to_vec(),
        commit: Some("0ec41e5".to_owned()),
        machine: Machine {
            cpu: "A processor".to_owned(),
            cores: 2,
            memory: 24 << 30,
            kernel: "Linux 6.1.0".to_owned(),
            os: "Debian GNU/Linux 12 (bookworm)".to_owned(),
        },
        rig,
    };
    Record::new(experiment, cells, verdict)
}

/// The whole experiment.
pub(crate) fn experiment() -> Record {
    let scenario = scenario();
    let cells = cells(&scenario);
    let verdict = judge(&scenario, &cells, &[]);
    let settings = [("fsync", "on"), ("synchronous_commit", "on"), ("shared_buffers", "128MB")];
    let rig = RigFacts {
        kind: RigKind::Local,
        why: vec!["docker: no engine answers".to_owned()],
        postgres_version: "15.18".to_owned(),
        rabbitmq_version: "3.10.8".to_owned(),
        postgres_settings: BTreeMap::from(settings.map(|(name, value)| (name.to_owned(), value.to_owned()))),
        separation: Separation::Databases,
        containers: None,
        ready_seconds: 11.5,
    };
    record(&scenario, &cells, verdict, Some(rig))
}
