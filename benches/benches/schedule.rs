//! Making the plan of a cell: its schedule, and the ids that the sink decodes. A million writes each.

use std::{hint::black_box, time::Duration};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use harness::{
    history::EventRef,
    plan::{Payloads, Plan},
    scenario::{Arrivals, Cell, CellDesign, Settings},
};

const SERVICES: u16 = 19;
const WRITES: u64 = 1_000_000;

/// 19 services, 10,000 writes a second for 100 s.
fn cell(arrivals: Arrivals) -> Cell {
    let mut settings = Settings::default();
    settings.load.services = SERVICES;
    settings.load.rate = Some(10_000.0);
    settings.load.arrivals = arrivals;
    settings.load.warm_up = Duration::ZERO;
    settings.load.duration = Duration::from_secs(100);
    settings.suite.cases = 1725;
    Cell { label: "bench".to_owned(), role: None, design: CellDesign::Lease, faults: Vec::new(), settings }
}

fn plan(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan");
    group.throughput(Throughput::Elements(WRITES)).sample_size(10);
    for (name, arrivals) in [
        ("constant", Arrivals::Constant),
        ("poisson", Arrivals::Poisson),
        ("ramp", Arrivals::Ramp { from: 10_000.0 }),
    ] {
        let cell = cell(arrivals);
        group.bench_function(name, |bencher| bencher.iter(|| Plan::new(477, black_box(&cell), 1)));
    }
    group.finish();
}

fn ids(criterion: &mut Criterion) {
    let plan = Plan::new(477, &cell(Arrivals::Constant), 1);
    let payloads = Payloads::new(477, plan.load.payload_bytes);
    let events = || {
        plan.services.iter().flat_map(|service| {
            (0..service.writes()).map(|write| (service.index, EventRef { write, event: 0 }))
        })
    };
    let mut group = criterion.benchmark_group("ids");
    group.throughput(Throughput::Elements(WRITES)).sample_size(10);
    group.bench_function("encode", |bencher| {
        bencher.iter(|| {
            for (service, event) in events() {
                black_box(plan.event_id(service, event));
            }
        });
    });
    group.bench_function("encode and decode", |bencher| {
        bencher.iter(|| {
            let found = events()
                .filter(|(service, event)| {
                    plan.decode(*service, black_box(plan.event_id(*service, *event))) == Some(*event)
                })
                .count();
            assert_eq!(found as u64, WRITES);
        });
    });
    group.bench_function("payload and key", |bencher| {
        bencher.iter(|| {
            for (service, event) in events() {
                black_box(payloads.get(service, event));
                black_box(plan.key(service, event));
            }
        });
    });
    group.finish();
}

criterion_group!(benches, plan, ids);
criterion_main!(benches);
