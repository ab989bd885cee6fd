//! What a cell is meant to do: a pure function of scenario, seed and cell.

use crate::{history::EventRef, scenario::Load};

/// Everything a cell will attempt.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The load it was made from.
    pub load: Load,
    /// One for each service.
    pub services: Vec<ServicePlan>,
    /// Marks this cell's ids.
    pub tag: u64,
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

impl Plan {
    /// Events of each write.
    #[must_use]
    pub fn events_per_write(&self) -> u16 {
        self.load.events_per_write
    }
    /// Key of an event (0-based), or `None` when events have none.
    #[must_use]
    pub fn key(&self, service: u16, event: EventRef) -> Option<u32> {
        let _ = (service, event);
        todo!()
    }
    /// Whether a write is to roll back.
    #[must_use]
    pub fn rolls_back(&self, service: u16, write: u32) -> bool {
        let _ = (service, write);
        todo!()
    }
}

impl ServicePlan {
    /// Backlog and schedule.
    #[must_use]
    pub fn writes(&self) -> u32 {
        self.backlog + u32::try_from(self.due_ns.len()).unwrap_or(u32::MAX)
    }
}
