//! The accounts of a million events: how long they take and what they keep in memory.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use harness::{
    history::History,
    ledger::{
        BYTES_AN_EVENT, audit,
        synthetic::{Builder, MS},
    },
};

const EVENTS: u64 = 1_000_000;
const SERVICES: u16 = 19;

/// A million writes of one event, all delivered, one in a thousand published twice; arrivals are a little out of order,
/// as with a window of publishes.
fn history(keys: u32) -> History {
    let mut builder = Builder::new(SERVICES).shape(1, keys);
    let each = EVENTS / u64::from(SERVICES);
    for service in 0..SERVICES {
        for place in 0..each {
            builder.commit(service, place * MS, 3 * MS);
        }
        for place in 0..each {
            let write = u32::try_from((place ^ 7).min(each - 1)).unwrap_or(u32::MAX);
            builder.arrive(service, write, 0, (place + 90) * MS, place + 1);
            if place % 1_000 == 0 {
                builder.arrive(service, write, 0, (place + 95) * MS, place + 2);
            }
        }
    }
    builder.build()
}

fn bench(criterion: &mut Criterion) {
    println!("audit: {BYTES_AN_EVENT} bytes an event are kept");
    let mut group = criterion.benchmark_group("audit");
    group.throughput(Throughput::Elements(EVENTS)).sample_size(20);
    for (name, keys) in [("1M events", 0), ("1M events, 1000 keys", 1_000)] {
        let history = history(keys);
        group.bench_function(name, |bencher| {
            bencher.iter_batched(|| (), |()| black_box(audit(&history)), BatchSize::PerIteration);
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
