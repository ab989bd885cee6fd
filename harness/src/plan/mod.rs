//! What a cell is meant to do: a pure function of seed and cell. No clock, no environment.
//!
//! What is *drawn* (instants, rollbacks, keys, cases, payloads) depends on the seed alone, so that every cell and
//! round of an experiment meets the same load and nothing but the design differs. The *ids* differ between cells
//! and rounds, so that a message which strays from one into another is recognised as foreign.

mod draw;
mod id;
mod payload;
mod schedule;
#[cfg(test)]
mod tests;

use std::{ops::Range, sync::Arc};

use uuid::Uuid;

pub use self::{id::MAX_PLACES, payload::Payloads};
use crate::{
    history::EventRef,
    scenario::{Cell, Load},
};

/// Most writes of one cell: beyond it the harness would need more than 6 GB for their instants alone.
pub const MAX_WRITES: u64 = 100_000_000;

/// Everything a cell will attempt.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The load it was made from.
    pub load: Load,
    /// One for each service.
    pub services: Vec<ServicePlan>,
    /// Marks this cell's ids: 50 bits.
    pub tag: u64,
    /// Everything drawn is a function of it.
    pub seed: u64,
    /// When the schedule starts, nanoseconds since the origin.
    pub start_ns: u64,
    /// Cumulative shares of the keys, ascending to 1; empty where they are uniform or there are none.
    key_shares: Arc<[f64]>,
}

/// One service's writes: the backlog first, then the schedule.
#[derive(Debug, Clone)]
pub struct ServicePlan {
    /// Place in the plan.
    pub index: u16,
    /// Name, such as `svc07`; also the last part of database, exchange and queue.
    pub name: String,
    /// Writes before the drainers start; they have no due instant.
    pub backlog: u32,
    /// When each scheduled write is due, nanoseconds since the origin, ascending.
    pub due_ns: Vec<u64>,
    /// Suite cases: places of scheduled writes (counted with the backlog, as everywhere), ascending.
    pub cases: Vec<u32>,
}

/// How much a load comes to, all services together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Writes before the drainers start.
    pub backlog: u64,
    /// Writes of the schedule, warm-up included.
    pub scheduled: u64,
    /// Those that are due in the window.
    pub measured: u64,
    /// Those of the window that don't roll back, so that they can be suite cases.
    pub candidates: u64,
}

impl Plan {
    /// The plan of `cell` in `round`. Takes about 30 ns a write where this was built (`benches/schedule.rs`), and 8 to
    /// 16 bytes.
    #[must_use]
    pub fn new(seed: u64, cell: &Cell, round: u32) -> Self {
        let load = cell.settings.load.clone();
        let mut services: Vec<ServicePlan> = (0..load.services)
            .map(|index| ServicePlan {
                index,
                name: service_name(load.services, index),
                backlog: backlog_writes(&load, index),
                due_ns: schedule::due(seed, &load, index).collect(),
                cases: Vec::new(),
            })
            .collect();
        draw_cases(seed, &load, cell.settings.suite.cases, &mut services);
        let key_shares = zipf(load.keys, load.key_skew).into();
        Self { tag: id::tag(seed, &cell.label, round), load, services, seed, start_ns: 0, key_shares }
    }
    /// A plan of services that were made by hand, for histories that no run wrote.
    #[must_use]
    pub fn by_hand(load: Load, services: Vec<ServicePlan>, tag: u64) -> Self {
        let key_shares = zipf(load.keys, load.key_skew).into();
        Self { load, services, tag, seed: 0, start_ns: 0, key_shares }
    }
    /// The same plan, its schedule `later_ns` nanoseconds later.
    #[must_use]
    pub fn starting_later(mut self, later_ns: u64) -> Self {
        self.start_ns += later_ns;
        for due_ns in self.services.iter_mut().flat_map(|service| &mut service.due_ns) {
            *due_ns += later_ns;
        }
        self
    }
    /// Events of each write.
    #[must_use]
    pub fn events_per_write(&self) -> u16 {
        self.load.events_per_write
    }
    /// The measured window, nanoseconds since the origin.
    #[must_use]
    pub fn window_ns(&self) -> Range<u64> {
        let window = window_ns(&self.load);
        window.start + self.start_ns..window.end + self.start_ns
    }
    /// All writes, backlogs included.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.services.iter().map(|service| u64::from(service.writes())).sum()
    }
    /// Key of an event (0-based), or `None` when events have none.
    #[must_use]
    pub fn key(&self, service: u16, event: EventRef) -> Option<u32> {
        if self.load.keys == 0 {
            return None;
        }
        let drawn = draw::word(self.seed, draw::Purpose::Key, service, event.write, event.event);
        if self.key_shares.is_empty() {
            // Multiply and shift: uniform to within keys / 2^64.
            return u32::try_from((u128::from(drawn) * u128::from(self.load.keys)) >> 64).ok();
        }
        let place = self.key_shares.partition_point(|share| *share <= draw::unit(drawn));
        u32::try_from(place).ok().map(|key| key.min(self.load.keys - 1))
    }
    /// Whether a write is to roll back. A backlog never does.
    #[must_use]
    pub fn rolls_back(&self, service: u16, write: u32) -> bool {
        let backlog = self.services.get(usize::from(service)).map_or(0, |plan| plan.backlog);
        write >= backlog && rolls_back(self.seed, &self.load, service, write)
    }
    /// Id of an event: UUIDv8, ascending with the place of the write and of the event in it.
    #[must_use]
    pub fn event_id(&self, service: u16, event: EventRef) -> Uuid {
        id::encode(id::Parts { row: false, write: event.write, event: event.event, service, tag: self.tag })
    }
    /// Id of a write's business row: UUIDv8, ascending with the place of the write, never an event's.
    #[must_use]
    pub fn write_id(&self, service: u16, write: u32) -> Uuid {
        id::encode(id::Parts { row: true, write, event: 0, service, tag: self.tag })
    }
    /// Whose id it is, or `None` when no event of this service in this cell and round has it.
    #[must_use]
    pub fn decode(&self, service: u16, id: Uuid) -> Option<EventRef> {
        let parts = id::decode(id)?;
        let writes = self.services.get(usize::from(service))?.writes();
        let ours = !parts.row && parts.service == service && parts.tag == self.tag;
        let planned = parts.write < writes && parts.event < self.load.events_per_write;
        (ours && planned).then_some(EventRef { write: parts.write, event: parts.event })
    }
}

impl ServicePlan {
    /// Backlog and schedule.
    #[must_use]
    pub fn writes(&self) -> u32 {
        self.backlog + u32::try_from(self.due_ns.len()).unwrap_or(u32::MAX)
    }
    /// When a write is due; 0 for the backlog and for what is not planned.
    #[must_use]
    pub fn due_at_ns(&self, write: u32) -> u64 {
        let scheduled = write.checked_sub(self.backlog);
        scheduled.and_then(|place| self.due_ns.get(place as usize)).copied().unwrap_or(0)
    }
}

/// How much `load` comes to, without keeping it. Where `rate` and durations come to more than [`MAX_WRITES`], call
/// it not: it walks through every write.
#[must_use]
pub fn counts(seed: u64, load: &Load) -> Counts {
    let window = window_ns(load);
    let mut counts = Counts::default();
    for service in 0..load.services {
        let backlog = backlog_writes(load, service);
        counts.backlog += u64::from(backlog);
        for (place, due) in (backlog..).zip(schedule::due(seed, load, service)) {
            let measured = window.contains(&due);
            counts.scheduled += 1;
            counts.measured += u64::from(measured);
            counts.candidates += u64::from(measured && !rolls_back(seed, load, service, place));
        }
    }
    counts
}

/// Scheduled writes that `load` comes to on average, whatever its seed.
#[must_use]
pub fn expected_writes(load: &Load) -> f64 {
    schedule::expected(load)
}

fn window_ns(load: &Load) -> Range<u64> {
    schedule::nanos(load.warm_up)..schedule::nanos(load.warm_up + load.duration)
}

/// Name of a service; also the last part of database, exchange and queue.
#[must_use]
pub fn service_name(services: u16, index: u16) -> String {
    let width = services.saturating_sub(1).to_string().len().max(2);
    format!("svc{index:0width$}")
}

/// The service's share of the backlog, in whole writes: the events are rounded up to these.
fn backlog_writes(load: &Load, service: u16) -> u32 {
    let writes = load.backlog.div_ceil(u32::from(load.events_per_write));
    let services = u32::from(load.services);
    writes / services + u32::from(u32::from(service) < writes % services)
}

fn rolls_back(seed: u64, load: &Load, service: u16, write: u32) -> bool {
    load.rollback_share > 0.0
        && draw::unit(draw::word(seed, draw::Purpose::Rollback, service, write, 0)) < load.rollback_share
}

/// Cumulative shares of `keys` keys, the k-th as likely as 1 / k^skew; empty without a skew.
fn zipf(keys: u32, skew: f64) -> Vec<f64> {
    if skew == 0.0 {
        return Vec::new();
    }
    let mut sum = 0.0;
    let mut shares: Vec<f64> = (1..=keys)
        .map(|key| {
            sum += f64::from(key).powf(-skew);
            sum
        })
        .collect();
    for share in &mut shares {
        *share /= sum;
    }
    shares
}

/// Draws `cases` of the writes that are due in the window and don't roll back: as many from each service as from
/// any other (give or take one), and where a service has too few, the rest from those with more.
fn draw_cases(seed: u64, load: &Load, cases: u32, services: &mut [ServicePlan]) {
    if cases == 0 {
        return;
    }
    let window = window_ns(load);
    let can_be = |service: &ServicePlan, place: u32| {
        window.contains(&service.due_at_ns(place)) && !rolls_back(seed, load, service.index, place)
    };
    let room: Vec<u32> = services
        .iter()
        .map(|service| {
            let count = (service.backlog..service.writes()).filter(|place| can_be(service, *place)).count();
            u32::try_from(count).unwrap_or(u32::MAX)
        })
        .collect();
    for (service, (room, quota)) in services.iter_mut().zip(room.iter().zip(shared_out(cases, &room))) {
        let mut rng = draw::generator(seed, draw::Purpose::Cases, service.index);
        // Selection sampling (Knuth 3.4.2, algorithm S): one pass, ascending, each candidate as likely as any.
        let (mut left, mut wanted) = (*room, quota);
        let mut drawn = Vec::with_capacity(quota as usize);
        for place in (service.backlog..service.writes()).filter(|place| can_be(service, *place)) {
            if draw::next_unit(&mut rng) * f64::from(left) < f64::from(wanted) {
                drawn.push(place);
                wanted -= 1;
            }
            left -= 1;
        }
        service.cases = drawn;
    }
}

/// Splits `cases` as evenly as `room` lets, the remainder to the first.
fn shared_out(cases: u32, room: &[u32]) -> Vec<u32> {
    let mut quotas = vec![0; room.len()];
    let mut left = cases;
    loop {
        let open = quotas.iter().zip(room).filter(|(quota, room)| quota < room).count();
        let Ok(open @ 1..) = u32::try_from(open) else { return quotas };
        if left == 0 {
            return quotas;
        }
        let each = (left / open).max(1);
        for (quota, room) in quotas.iter_mut().zip(room) {
            let more = each.min(room - *quota).min(left);
            *quota += more;
            left -= more;
        }
    }
}
