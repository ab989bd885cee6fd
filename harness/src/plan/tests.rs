use std::{collections::BTreeSet, time::Duration};

use proptest::prelude::*;
use sha2::{Digest, Sha256};

use super::*;
use crate::scenario::{Arrivals, Cell, CellDesign, Settings};

/// A cell of the defaults, its load changed.
fn cell(change: impl FnOnce(&mut Settings)) -> Cell {
    let mut settings = Settings::default();
    settings.load.rate = Some(100.0);
    settings.load.services = 3;
    settings.load.warm_up = Duration::from_secs(1);
    settings.load.duration = Duration::from_secs(9);
    change(&mut settings);
    Cell { label: "new".to_owned(), role: None, design: CellDesign::Lease, faults: Vec::new(), settings }
}

fn plan(change: impl FnOnce(&mut Settings)) -> Plan {
    Plan::new(477, &cell(change), 1)
}

fn all_due(plan: &Plan) -> Vec<u64> {
    let mut due: Vec<u64> = plan.services.iter().flat_map(|service| service.due_ns.clone()).collect();
    due.sort_unstable();
    due
}

#[test]
fn constant_is_even_over_all_services_round_robin() {
    let plan = plan(|_| ());
    assert_eq!(plan.services[0].due_ns[..3], [0, 30_000_000, 60_000_000]);
    assert_eq!(plan.services[1].due_ns[..3], [10_000_000, 40_000_000, 70_000_000]);
    assert_eq!(all_due(&plan), (0..1000).map(|write| write * 10_000_000).collect::<Vec<_>>());
    assert_eq!(plan.services[2].name, "svc02");
}

#[test]
fn rates_below_one_a_second_work() {
    let plan = plan(|settings| settings.load.rate = Some(0.4));
    assert_eq!(all_due(&plan), [0, 2_500_000_000, 5_000_000_000, 7_500_000_000]);
    assert_eq!(plan.services[1].due_ns, [2_500_000_000]);
}

#[test]
fn a_burst_is_due_at_its_periods_start() {
    let every = Duration::from_millis(500);
    let plan = plan(|settings| settings.load.arrivals = Arrivals::Burst { every });
    let due = all_due(&plan);
    assert_eq!(due.len(), 1000);
    for (period, writes) in due.chunks(50).enumerate() {
        assert!(writes.iter().all(|at| *at == period as u64 * 500_000_000), "period {period}: {writes:?}");
    }
}

#[test]
fn a_ramp_grows_linearly() {
    let plan = plan(|settings| settings.load.arrivals = Arrivals::Ramp { from: 0.0 });
    let due = all_due(&plan);
    // 100/s at the end, from 0: half of what a constant rate makes, a quarter of it in the first half.
    assert_eq!(due.len(), 500);
    let half = due.iter().filter(|at| **at < 5_000_000_000).count();
    assert!((124..=126).contains(&half), "{half} in the first half");
    let falling = Plan::new(
        477,
        &cell(|settings| {
            settings.load.rate = Some(1.0);
            settings.load.arrivals = Arrivals::Ramp { from: 99.0 };
        }),
        1,
    );
    assert_eq!(all_due(&falling).len(), 500);
}

#[test]
fn a_poisson_flow_has_the_rate_and_the_scatter_of_one() {
    let plan = plan(|settings| {
        settings.load.arrivals = Arrivals::Poisson;
        settings.load.rate = Some(3000.0);
    });
    let writes = plan.writes() as f64;
    // 30,000 on average; four standard deviations are 693.
    assert!((writes - 30_000.0).abs() < 693.0, "{writes} writes");
    let gaps: Vec<f64> =
        plan.services[0].due_ns.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e6).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
    assert!((0.95..1.05).contains(&mean), "mean gap {mean} ms");
    assert!((0.95..1.05).contains(&(deviation / mean)), "deviation {deviation} of mean {mean}");
}

#[test]
fn no_rate_leaves_the_backlog() {
    let plan = plan(|settings| {
        settings.load.rate = None;
        settings.load.backlog = 100;
        settings.load.events_per_write = 3;
    });
    assert!(all_due(&plan).is_empty());
    // 100 events are 34 writes of 3.
    assert_eq!(plan.services.iter().map(|service| service.backlog).collect::<Vec<_>>(), [12, 11, 11]);
}

#[test]
fn a_part_of_the_services_has_the_schedule_of_the_whole() {
    for arrivals in [Arrivals::Constant, Arrivals::Poisson, Arrivals::Ramp { from: 1.0 }] {
        let whole = plan(|settings| settings.load.arrivals = arrivals);
        let one: Vec<u64> = schedule::due(477, &whole.load, 1).collect();
        assert_eq!(one, whole.services[1].due_ns, "{arrivals:?}");
    }
}

#[test]
fn draws_depend_on_the_seed_and_ids_on_cell_and_round_too() {
    let changed = |settings: &mut Settings| {
        settings.load.arrivals = Arrivals::Poisson;
        settings.suite.cases = 100;
    };
    let first = cell(changed);
    let mut second = cell(changed);
    second.label = "old".to_owned();
    let (one, two) = (Plan::new(1, &first, 1), Plan::new(1, &second, 1));
    assert_eq!(all_due(&one), all_due(&two));
    assert_eq!(one.services[0].cases, two.services[0].cases);
    let event = EventRef { write: 0, event: 0 };
    let other_round = Plan::new(1, &first, 2);
    let ids: BTreeSet<Uuid> = [&one, &two, &other_round].iter().map(|plan| plan.event_id(0, event)).collect();
    assert_eq!(ids.len(), 3);
    assert!(one.decode(0, two.event_id(0, event)).is_none());
    assert_ne!(all_due(&one), all_due(&Plan::new(2, &first, 1)));
}

#[test]
fn rollbacks_have_their_share_and_spare_the_backlog() {
    let plan = plan(|settings| {
        settings.load.rollback_share = 0.1;
        settings.load.rate = Some(10_000.0);
        settings.load.backlog = 3000;
    });
    let backlog = plan.services[0].backlog;
    assert!((0..backlog).all(|write| !plan.rolls_back(0, write)));
    let scheduled = backlog..plan.services[0].writes();
    let share = scheduled.clone().filter(|write| plan.rolls_back(0, *write)).count() as f64
        / f64::from(scheduled.end - scheduled.start);
    assert!((0.09..0.11).contains(&share), "{share}");
}

#[test]
fn keys_are_uniform_or_skewed() {
    let keys = |skew: f64| {
        let plan = plan(|settings| {
            settings.load.keys = 10;
            settings.load.key_skew = skew;
        });
        let mut counts = [0_u32; 10];
        for write in 0..100_000 {
            counts[plan.key(0, EventRef { write, event: 0 }).expect("keys are on") as usize] += 1;
        }
        counts
    };
    let uniform = keys(0.0);
    assert!(uniform.iter().all(|count| (9_500..10_500).contains(count)), "{uniform:?}");
    let skewed = keys(1.0);
    // Key k of 10 has 1/k of 2.929 in all.
    assert!((33_600..34_700).contains(&skewed[0]), "{skewed:?}");
    assert!((3_200..3_650).contains(&skewed[9]), "{skewed:?}");
    let none = plan(|settings| settings.load.keys = 0);
    assert_eq!(none.key(0, EventRef { write: 0, event: 0 }), None);
}

#[test]
fn cases_are_measured_commit_and_are_spread_over_the_services() {
    let plan = plan(|settings| {
        settings.load.rollback_share = 0.3;
        settings.load.backlog = 30;
        settings.suite.cases = 100;
    });
    assert_eq!(plan.services.iter().map(|service| service.cases.len()).collect::<Vec<_>>(), [34, 33, 33]);
    for service in &plan.services {
        assert!(service.cases.is_sorted_by(|a, b| a < b));
        for case in &service.cases {
            assert!(plan.window_ns().contains(&service.due_at_ns(*case)));
            assert!(!plan.rolls_back(service.index, *case));
        }
    }
}

#[test]
fn all_candidates_can_be_cases_and_no_more() {
    let mut with_cases = cell(|settings| settings.load.rollback_share = 0.3);
    let counts = counts(477, &with_cases.settings.load);
    assert_eq!((counts.scheduled, counts.measured), (1000, 900));
    assert!((570..690).contains(&counts.candidates), "{counts:?}");
    with_cases.settings.suite.cases = u32::try_from(counts.candidates).expect("few") + 50;
    let plan = Plan::new(477, &with_cases, 1);
    let drawn: usize = plan.services.iter().map(|service| service.cases.len()).sum();
    assert_eq!(drawn as u64, counts.candidates);
}

#[test]
fn cases_that_one_service_lacks_come_from_the_others() {
    assert_eq!(shared_out(10, &[1, 100, 100]), [1, 5, 4]);
    assert_eq!(shared_out(2, &[0, 0, 7]), [0, 0, 2]);
    assert_eq!(shared_out(9, &[1, 1]), [1, 1]);
}

#[test]
fn payloads_are_json_of_the_exact_size() {
    for bytes in [2, 3, 10, 11, 12, 340, 65_536, 1 << 20] {
        let payloads = Payloads::new(477, bytes);
        for write in 0..50 {
            let data = payloads.get(0, EventRef { write, event: 0 });
            assert_eq!(data.len(), bytes as usize);
            serde_json::from_str::<serde_json::Value>(data).expect("JSON");
        }
    }
    let payloads = Payloads::new(477, 340);
    let different: BTreeSet<&str> =
        (0..1000).map(|write| payloads.get(3, EventRef { write, event: 0 })).collect();
    assert!(different.len() > 500, "{} different values", different.len());
}

/// Whoever changes one of these breaks "same scenario, seed and version give the same schedule, ids and payloads":
/// say so in the changelog.
#[test]
fn fingerprint_of_schedule_ids_and_payloads() {
    let mut hash = Sha256::new();
    let kinds = [
        Arrivals::Constant,
        Arrivals::Poisson,
        Arrivals::Burst { every: Duration::from_secs(1) },
        Arrivals::Ramp { from: 10.0 },
    ];
    for arrivals in kinds {
        let plan = plan(|settings| {
            settings.load.arrivals = arrivals;
            settings.load.rollback_share = 0.05;
            settings.load.keys = 100;
            settings.load.key_skew = 1.1;
            settings.load.events_per_write = 2;
            settings.load.backlog = 20;
            settings.suite.cases = 50;
        });
        for service in &plan.services {
            for write in 0..service.writes() {
                // Microseconds: a maths library may round the last bits of a logarithm otherwise.
                hash.update((service.due_at_ns(write) / 1000).to_be_bytes());
                hash.update([u8::from(plan.rolls_back(service.index, write))]);
                hash.update(plan.write_id(service.index, write).as_bytes());
                for event in 0..plan.events_per_write() {
                    let event = EventRef { write, event };
                    hash.update(plan.event_id(service.index, event).as_bytes());
                    hash.update(plan.key(service.index, event).expect("keys are on").to_be_bytes());
                }
            }
            service.cases.iter().for_each(|case| hash.update(case.to_be_bytes()));
        }
    }
    insta::assert_snapshot!(hex(hash.finalize().as_slice()), @"d5185aed7ef513edf67c3ec5efe7fbde831009898b7261cf8d9ed4bc61dbe547");

    let payloads = Payloads::new(477, 340);
    insta::assert_snapshot!(payloads.get(1, EventRef { write: 2, event: 3 })[..60], @r#"{"text":"oHqFpWsM7WRT8zlEeOpTpikaKqRi0F82qyMKLmpvrahdQ6bTALo"#);
    let mut hash = Sha256::new();
    (0..1000).for_each(|write| hash.update(payloads.get(0, EventRef { write, event: 0 })));
    insta::assert_snapshot!(hex(hash.finalize().as_slice()), @"6719eae86df7babd6cf6261b8f84655d75019b96bd0dbec3f2b958c3b1d22e4a");

    let plan = plan(|_| ());
    insta::assert_snapshot!(plan.event_id(2, EventRef { write: 300, event: 7 }), @"00000000-012c-8007-800b-4d89c34ad6d1");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn arrivals() -> impl Strategy<Value = Arrivals> {
    prop_oneof![
        Just(Arrivals::Constant),
        Just(Arrivals::Poisson),
        (1_u64..5000).prop_map(|every| Arrivals::Burst { every: Duration::from_millis(every) }),
        (0.0..500.0).prop_map(|from| Arrivals::Ramp { from }),
    ]
}

proptest! {
    #[test]
    fn an_id_says_whose_it_is(
        services in 1_u16..=4096, events in 1_u16..=4096, seed: u64, round in 1_u32..9,
        service: prop::sample::Index, write in 0_u32..500, event: prop::sample::Index,
    ) {
        let cell = cell(|settings| {
            settings.load.services = services;
            settings.load.events_per_write = events;
            settings.load.rate = Some(0.5);
        });
        let mut plan = Plan::new(seed, &cell, round);
        for service in &mut plan.services {
            service.backlog = 500;
        }
        let service = service.index(usize::from(services)) as u16;
        let event = EventRef { write, event: event.index(usize::from(events)) as u16 };
        let id = plan.event_id(service, event);
        prop_assert_eq!(id.get_version_num(), 8);
        prop_assert_eq!(id.get_variant(), uuid::Variant::RFC4122);
        prop_assert_eq!(plan.decode(service, id), Some(event));
        prop_assert_eq!(plan.decode((service + 1) % services.max(2), id), None);
        prop_assert_eq!(plan.decode(service, plan.write_id(service, write)), None);
        let beyond = plan.services[usize::from(service)].writes();
        prop_assert_eq!(plan.decode(service, plan.event_id(service, EventRef { write: beyond, ..event })), None);
        prop_assert_eq!(plan.decode(service, Plan::new(seed, &cell, round + 1).event_id(service, event)), None);
    }

    #[test]
    fn ids_ascend_with_the_schedule(
        a in any::<(u32, u16)>(), b in any::<(u32, u16)>(), service in 0_u16..3,
    ) {
        let plan = plan(|_| ());
        let at = |place: (u32, u16)| EventRef { write: place.0, event: place.1 % 4096 };
        let (a, b) = (at(a), at(b));
        prop_assert_eq!(a.cmp(&b), plan.event_id(service, a).cmp(&plan.event_id(service, b)));
        prop_assert_eq!(a.write.cmp(&b.write), plan.write_id(service, a.write).cmp(&plan.write_id(service, b.write)));
    }

    #[test]
    fn strange_ids_are_foreign(bytes: [u8; 16]) {
        prop_assert_eq!(plan(|_| ()).decode(0, Uuid::from_bytes(bytes)), None);
        prop_assert_eq!(plan(|_| ()).decode(0, uuid::Builder::from_custom_bytes(bytes).into_uuid()), None);
    }

    #[test]
    fn a_schedule_ascends_ends_in_time_and_has_the_rate(
        seed: u64, arrivals in arrivals(), services in 1_u16..40, rate in 0.05_f64..2000.0,
        seconds in 1_u64..20,
    ) {
        let cell = cell(|settings| {
            settings.load.services = services;
            settings.load.rate = Some(rate);
            settings.load.arrivals = arrivals;
            settings.load.duration = Duration::from_secs(seconds);
        });
        let plan = Plan::new(seed, &cell, 1);
        for service in &plan.services {
            prop_assert!(service.due_ns.is_sorted());
            prop_assert!(service.due_ns.iter().all(|due| *due < plan.window_ns().end));
        }
        let counts = counts(seed, &plan.load);
        prop_assert_eq!(counts.scheduled, plan.writes());
        let expected = expected_writes(&plan.load);
        let scatter = match arrivals {
            Arrivals::Poisson => 6.0 * expected.sqrt() + 6.0,
            Arrivals::Constant | Arrivals::Ramp { .. } | Arrivals::Burst { .. } => 1.0,
        };
        prop_assert!((counts.scheduled as f64 - expected).abs() <= scatter, "{counts:?}, not {expected}");
    }
}
