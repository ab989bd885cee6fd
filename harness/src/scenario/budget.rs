//! What a scenario needs before it can start: connections and time.

use super::{Breaks, Cell, CellDesign, Placement, Scenario};

/// Connections that are not a service's: the sampler's, and ours for making and dropping databases.
const OURS: u32 = 1 + 3;
/// CREATE DATABASE took 0.1 s and DROP DATABASE 0.2 s where this was built.
const DATABASE_SECONDS: f64 = 0.3;

impl Cell {
    /// Database connections that are open at once in this cell: each service's pool and one that inspects its
    /// outbox, the pools of drainer processes, the sampler's and ours.
    #[must_use]
    pub fn connections_needed(&self) -> u32 {
        let services = u32::from(self.settings.load.services);
        let drainer = &self.settings.drainer;
        let own = match (drainer.placement, self.design.drainer()) {
            (Placement::Process, Some(_)) => drainer.instances.get().saturating_mul(drainer.pool.get()),
            (Placement::InService, _) | (Placement::Process, None) => 0,
        };
        let each = self.settings.service.pool.get().saturating_add(own).saturating_add(1);
        // A held transaction takes a connection in each database, the others one at a time.
        let faults =
            self.faults.iter().map(|fault| if fault.breaks == Breaks::HeldXmin { services } else { 1 });
        services.saturating_mul(each).saturating_add(OURS).saturating_add(faults.sum())
    }
    /// Seconds that one round of it takes, at least and at most: when its drainers keep up, and when they use their
    /// drain deadline and all of their time to stop.
    #[must_use]
    pub fn planned_seconds(&self) -> (f64, f64) {
        let load = &self.settings.load;
        let healed = self.faults.iter().map(|fault| fault.ends(self)).max().unwrap_or_default();
        let window = self.schedule_ends().max(healed).as_secs_f64();
        let at_least = window + f64::from(load.services) * DATABASE_SECONDS;
        // The last write may wait for a connection as long as it is allowed to.
        let late = self.settings.service.acquire_timeout;
        let after = match self.design {
            CellDesign::None => late,
            CellDesign::Raw | CellDesign::SingleTx | CellDesign::Lease => {
                late + load.drain_deadline + self.settings.drainer.stop_within
            }
        };
        (at_least, at_least + after.as_secs_f64())
    }
}

impl Scenario {
    /// The most that any of its cells needs.
    #[must_use]
    pub fn connections_needed(&self) -> u32 {
        self.cells.iter().map(Cell::connections_needed).max().unwrap_or(0)
    }
    /// Seconds that all cells in all rounds take beyond the rig's start, at least and at most.
    #[must_use]
    pub fn planned_seconds(&self) -> (f64, f64) {
        let rounds = f64::from(self.rounds.get());
        let cells = self.cells.iter().map(Cell::planned_seconds);
        cells.fold((0.0, 0.0), |sum, cell| (sum.0 + rounds * cell.0, sum.1 + rounds * cell.1))
    }
}
