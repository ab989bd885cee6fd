use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    Audit, Offence, audit,
    book::Book,
    synthetic::{Builder, MS},
};
use crate::history::{Arrival, EventRef, History, Outcome, Write};

fn arrival(event: Option<(u32, u16)>, publish: u64, redelivered: bool) -> Arrival {
    let event = event.map(|(write, event)| EventRef { write, event });
    Arrival { at_ns: 50 * MS, event, publish, redelivered }
}

/// Three writes, of two events each: committed, rolled back, unsure.
fn three() -> Builder {
    let mut builder = Builder::new(1).shape(2, 0);
    builder.commit(0, 0, MS);
    builder.write(0, [MS, MS, MS, 2 * MS, 2 * MS], Outcome::RolledBack);
    builder.write(0, [2 * MS, 2 * MS, 2 * MS, 3 * MS, 4 * MS], Outcome::Unsure);
    builder
}

fn audited(change: impl FnOnce(&mut History)) -> Audit {
    audit(&three().with(change).build())
}

#[test]
fn every_kind_of_delivery_has_its_term() {
    let audit = audited(|history| {
        history.services[0].arrivals = vec![
            arrival(Some((0, 0)), 1, false),
            arrival(Some((0, 1)), 2, false),
            arrival(Some((0, 0)), 3, true), // another publish, whatever the broker says
            arrival(Some((0, 0)), 1, true), // the first publish again
            arrival(Some((0, 0)), 1, false), // the broker delivers it for the first time: sent twice, properties and all
            arrival(Some((0, 0)), 3, true),  // the second publish again
            arrival(Some((0, 1)), 0, true),  // no id: the broker's word
            arrival(Some((0, 1)), 0, false),
            arrival(Some((1, 0)), 9, false), // rolled back
            arrival(Some((1, 0)), 9, true),
            arrival(Some((2, 1)), 7, false), // unsure
            arrival(None, 8, false),
            arrival(Some((3, 0)), 8, false), // a write that is not planned
            arrival(Some((0, 2)), 8, false), // an event that no write has
        ];
    });
    let tally = audit.tally;
    assert_eq!((tally.delivered, tally.lost, tally.waiting, tally.dead), (2, 0, 0, 0));
    assert_eq!((tally.duplicated, tally.redelivered), (3, 4));
    assert_eq!((tally.phantom, tally.recovered, tally.foreign), (1, 1, 3));
    assert_eq!(audit.counts.arrivals, 14);
    assert_eq!(audit.check(), Ok(()));
}

#[test]
fn what_did_not_arrive_is_waiting_dead_or_lost() {
    let mut builder = Builder::new(1);
    for write in 0..4 {
        builder.commit(0, write * MS, MS);
    }
    builder.arrive(0, 0, 0, 9 * MS, 1);
    let history = builder
        .with(|history| {
            let row = |write| EventRef { write, event: 0 };
            // The first arrived and was not marked: it is delivered.
            history.services[0].waiting = vec![row(0), row(1)];
            history.services[0].dead = vec![row(2)];
        })
        .build();
    let audit = audit(&history);
    let tally = audit.tally;
    assert_eq!((tally.delivered, tally.waiting, tally.dead, tally.lost), (1, 1, 1, 1));
    assert_eq!(audit.check(), Ok(()));

    let lost: Vec<_> = audit.offenders.iter().filter(|found| found.offence == Offence::Lost).collect();
    assert_eq!(lost.len(), 1);
    assert_eq!((lost[0].service.as_str(), lost[0].write, lost[0].event), ("svc00", Some(3), Some(0)));
    assert_eq!(
        lost[0].story,
        "due 0.003000 s, enqueued from 0.003050 s, committed 0.004000 s, never arrived"
    );
}

#[test]
fn contradictions_break_the_accounting() {
    let row = EventRef { write: 0, event: 0 };
    let both = audited(|history| {
        history.services[0].waiting = vec![row, EventRef { write: 0, event: 1 }];
        history.services[0].dead = vec![row];
    });
    let broken = both.check().expect_err("an event is waiting and dead");
    assert!(broken[0].contains("2 is not 0 + 2 + 1 + 0"), "{broken:?}");
    assert!(broken[1].contains("has event 0 of write 0 twice"), "{broken:?}");

    let of_rollback = audited(|history| history.services[0].waiting = vec![EventRef { write: 1, event: 0 }]);
    let broken = of_rollback.check().expect_err("an outbox row of a rolled back write");
    assert!(broken.iter().any(|sentence| sentence.contains("write 1, which did not commit")), "{broken:?}");

    let unknown = audited(|history| history.services[0].waiting = vec![EventRef { write: 9, event: 0 }]);
    assert!(unknown.check().is_err());

    let short = audited(|history| {
        history.services[0].writes.pop();
    });
    let broken = short.check().expect_err("a write is missing");
    assert!(broken[0].starts_with("scheduled = "), "{broken:?}");
}

#[test]
fn an_interrupted_run_owes_only_what_it_attempted() {
    let audit = audited(|history| {
        history.services[0].writes.pop();
        history.interrupted = true;
    });
    assert_eq!(audit.counts.scheduled, 2);
    assert_eq!(audit.check(), Ok(()));
}

#[test]
fn twenty_of_a_kind_are_named() {
    let mut builder = Builder::new(2);
    for write in 0..30 {
        builder.commit(0, write * MS, MS);
        builder.commit(1, write * MS, MS);
    }
    let audit = audit(&builder.build());
    assert_eq!(audit.tally.lost, 60);
    assert_eq!(audit.offenders.len(), super::NAMED);
}

#[test]
fn a_lost_reply_that_waits_is_nobodys_debt() {
    let audit = audited(|history| {
        history.services[0].waiting = vec![EventRef { write: 2, event: 0 }];
        history.services[0].dead = vec![EventRef { write: 0, event: 0 }, EventRef { write: 0, event: 1 }];
    });
    assert_eq!((audit.tally.waiting, audit.tally.dead, audit.tally.lost), (0, 2, 0));
    assert_eq!(audit.check(), Ok(()));
}

/// Writes at (began, ended), one event each, all of one key, arriving in the given order.
fn reordered(writes: &[(u64, u64)], order: &[u32]) -> (u64, Audit) {
    let mut builder = Builder::new(1);
    for (began, ended) in writes {
        builder.write(0, [*began, *began, *began, *ended, *ended], Outcome::Committed);
    }
    for (place, write) in order.iter().enumerate() {
        builder.arrive(0, *write, 0, 100 * MS + place as u64, 1);
    }
    let history = builder.build();
    let mut audit = Audit::default();
    let mut book = Book::new(&history.plan.services[0], &history.services[0], 1);
    book.enter_arrivals(&mut audit);
    book.find_reordered(&mut audit, |_| Some(7));
    (audit.tally.reordered, audit)
}

#[test]
fn only_what_began_after_the_other_had_ended_can_overtake() {
    assert_eq!(reordered(&[(0, 10), (11, 20)], &[1, 0]).0, 1);
    assert_eq!(reordered(&[(0, 10), (11, 20)], &[0, 1]).0, 0);
    // The enqueue began at the instant the other ended: not after.
    assert_eq!(reordered(&[(0, 10), (10, 20)], &[1, 0]).0, 0);
    // Overlapping: the first to begin may commit last.
    assert_eq!(reordered(&[(0, 30), (11, 20)], &[1, 0]).0, 0);
    // A repeat is no inversion.
    assert_eq!(reordered(&[(0, 10), (11, 20)], &[0, 1, 0]).0, 0);
    // Two overtook the one.
    assert_eq!(reordered(&[(0, 10), (11, 20), (21, 30)], &[1, 2, 0]).0, 2);
    // The first never arrived.
    assert_eq!(reordered(&[(0, 10), (11, 20)], &[1]).0, 0);
}

#[test]
fn the_writes_of_a_backlog_come_one_after_another() {
    let mut builder = Builder::new(1);
    builder.backlog(0);
    builder.backlog(0);
    builder.commit(0, 0, MS);
    for (place, write) in [1, 2, 0].into_iter().enumerate() {
        builder.arrive(0, write, 0, 5 * MS + place as u64, 1);
    }
    let history = builder.build();
    let mut audit = Audit::default();
    let mut book = Book::new(&history.plan.services[0], &history.services[0], 1);
    book.enter_arrivals(&mut audit);
    book.find_reordered(&mut audit, |_| Some(7));
    assert_eq!(audit.tally.reordered, 2, "both came before the first");
}

#[test]
fn what_arrived_and_was_not_marked_is_told() {
    let mut builder = Builder::new(1);
    builder.commit(0, 0, MS);
    builder.commit(0, 0, MS);
    builder.arrive(0, 0, 0, 5 * MS, 1);
    let unpublished = vec![EventRef { write: 0, event: 0 }, EventRef { write: 1, event: 0 }];
    let audit = audit(&builder.with(|history| history.services[0].waiting = unpublished).build());
    let tally = audit.tally;
    assert_eq!((tally.delivered, tally.unmarked, tally.waiting, tally.lost), (1, 1, 1, 0));
    assert_eq!(audit.check(), Ok(()));
}

#[test]
fn events_of_one_transaction_have_an_order() {
    let mut builder = Builder::new(1).shape(3, 0);
    builder.commit(0, 0, MS);
    for event in [2, 0, 1] {
        builder.arrive(0, 0, event, 5 * MS, 1);
    }
    let history = builder.build();
    let mut audit = Audit::default();
    let mut book = Book::new(&history.plan.services[0], &history.services[0], 3);
    book.enter_arrivals(&mut audit);
    book.find_reordered(&mut audit, |_| Some(0));
    assert_eq!(audit.tally.reordered, 1, "only the third came before its elders");
}

#[test]
fn first_arrivals_are_found_by_event() {
    let mut builder = three();
    builder.arrive(0, 0, 1, 7 * MS, 1);
    builder.arrive(0, 0, 1, 8 * MS, 2);
    let history = builder.build();
    let firsts = &audit(&history).firsts[0];
    let arrivals = &history.services[0].arrivals;
    assert_eq!(firsts.at_ns(arrivals, EventRef { write: 0, event: 1 }), Some(7 * MS));
    assert_eq!(firsts.at_ns(arrivals, EventRef { write: 0, event: 0 }), None);
    assert_eq!(firsts.at_ns(arrivals, EventRef { write: 0, event: 2 }), None);
    assert_eq!(firsts.at_ns(arrivals, EventRef { write: 9, event: 0 }), None);
}

// A naive model: lists, searches and the definitions as they stand in the design.

#[derive(Debug, Clone)]
struct World {
    events_per_write: u16,
    writes: Vec<(u64, u64, Outcome)>,
    arrivals: Vec<(u32, u16, u64, bool)>,
    outbox: Vec<(u32, u16, bool)>,
}

fn world() -> impl Strategy<Value = World> {
    let outcome = prop_oneof![
        4 => Just(Outcome::Committed),
        1 => Just(Outcome::RolledBack),
        1 => Just(Outcome::Failed),
        1 => Just(Outcome::Unsure),
    ];
    (1u16..4).prop_flat_map(move |events_per_write| {
        (
            prop::collection::vec((0u64..40, 0u64..10, outcome.clone()), 0..14),
            prop::collection::vec((0u32..16, 0..events_per_write + 1, 0u64..4, any::<bool>()), 0..60),
            prop::collection::btree_map((0u32..14, 0..events_per_write), any::<bool>(), 0..10),
        )
            .prop_map(move |(writes, arrivals, outbox)| World {
                events_per_write,
                writes: writes.into_iter().map(|(began, took, how)| (began, began + took, how)).collect(),
                arrivals,
                outbox: outbox.into_iter().map(|((write, event), dead)| (write, event, dead)).collect(),
            })
    })
}

/// Two keys: even events and odd ones.
fn key(event: EventRef) -> Option<u32> {
    Some((event.write + u32::from(event.event)) % 2)
}

fn naive(world: &World) -> super::Tally {
    let mut tally = super::Tally::default();
    let exists =
        |write: u32, event: u16| (write as usize) < world.writes.len() && event < world.events_per_write;
    let mut first: BTreeMap<(u32, u16), usize> = BTreeMap::new();
    let mut publishes: BTreeMap<(u32, u16), Vec<u64>> = BTreeMap::new();
    for (place, (write, event, publish, again)) in world.arrivals.iter().enumerate() {
        if !exists(*write, *event) {
            tally.foreign += 1;
            continue;
        }
        let seen = publishes.entry((*write, *event)).or_default();
        if seen.is_empty() {
            first.insert((*write, *event), place);
            match world.writes[*write as usize].2 {
                Outcome::Committed => tally.delivered += 1,
                Outcome::Unsure => tally.recovered += 1,
                Outcome::RolledBack | Outcome::Failed => tally.phantom += 1,
            }
        } else if *again && (*publish == 0 || seen.contains(publish)) {
            tally.redelivered += 1;
        } else {
            tally.duplicated += 1;
        }
        seen.push(*publish);
    }
    for (write, (.., how)) in world.writes.iter().enumerate() {
        for event in 0..world.events_per_write {
            let id = (u32::try_from(write).expect("few"), event);
            if *how != Outcome::Committed {
                continue;
            }
            if first.contains_key(&id) {
                let row = world.outbox.iter().find(|(write, event, _)| (*write, *event) == id);
                tally.unmarked += u64::from(row.is_some_and(|(.., dead)| !dead));
                continue;
            }
            match world.outbox.iter().find(|(write, event, _)| (*write, *event) == id) {
                Some((.., false)) => tally.waiting += 1,
                Some((.., true)) => tally.dead += 1,
                None => tally.lost += 1,
            }
        }
    }
    for (b, b_place) in &first {
        let overtakes = first.iter().any(|(a, a_place)| {
            let (a_write, b_write) = (&world.writes[a.0 as usize], &world.writes[b.0 as usize]);
            let judged = |how: Outcome| how == Outcome::Committed || how == Outcome::Unsure;
            let same = a.0 == b.0 && a.1 < b.1 && judged(b_write.2);
            let after = a_write.2 == Outcome::Committed && a_write.1 < b_write.0 && judged(b_write.2);
            let of_key = |id: &(u32, u16)| key(EventRef { write: id.0, event: id.1 });
            of_key(a) == of_key(b) && (same || after) && a_place > b_place
        });
        tally.reordered += u64::from(overtakes);
    }
    tally
}

fn history(world: &World) -> History {
    let mut builder = Builder::new(1).shape(world.events_per_write, 0);
    for (began, ended, how) in &world.writes {
        builder.write(0, [*began, *began, *began, *ended, *ended], *how);
    }
    builder
        .with(|history| {
            let facts = &mut history.services[0];
            facts.arrivals = world
                .arrivals
                .iter()
                .map(|(write, event, publish, again)| arrival(Some((*write, *event)), *publish, *again))
                .collect();
            for (write, event, dead) in &world.outbox {
                let row = EventRef { write: *write, event: *event };
                let committed = |write: &Write| matches!(write.outcome, Outcome::Committed | Outcome::Unsure);
                if facts.writes.get(*write as usize).is_some_and(committed) {
                    if *dead { facts.dead.push(row) } else { facts.waiting.push(row) }
                }
            }
        })
        .build()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_ledger_agrees_with_the_definitions(world in world()) {
        let history = history(&world);
        let mut found = audit(&history);
        let mut book = Book::new(&history.plan.services[0], &history.services[0], world.events_per_write);
        let mut of_keys = Audit::default();
        book.enter_arrivals(&mut of_keys);
        book.find_reordered(&mut of_keys, key);
        found.tally.reordered = of_keys.tally.reordered;
        prop_assert_eq!(found.tally, naive(&world));
        prop_assert_eq!(found.check(), Ok(()));
    }
}
