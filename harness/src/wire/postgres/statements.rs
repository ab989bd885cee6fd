//! Which name stands for a statement of which phase.

use std::collections::BTreeMap;

use super::{Phase, Reason};

/// Statements, and portals, that are remembered at once. Only those with a phase are: a client's cache of a thousand
/// other statements takes no room.
const MAX_NAMES: usize = 1024;

/// Prepared statements and portals of one connection.
///
/// What the client asked for, not what the server did: a Parse that failed is remembered as well, but then nothing of
/// that name can be executed. SQL's own PREPARE and EXECUTE are not looked into.
#[derive(Debug, Default)]
pub(super) struct Statements {
    prepared: BTreeMap<Box<[u8]>, Phase>,
    portals: BTreeMap<Box<[u8]>, Phase>,
}

impl Statements {
    pub(super) fn parse(&mut self, statement: &[u8], phase: Phase) -> Result<(), Reason> {
        remember(&mut self.prepared, statement, phase)
    }

    pub(super) fn bind(&mut self, portal: &[u8], statement: &[u8]) -> Result<(), Reason> {
        remember(&mut self.portals, portal, look_up(&self.prepared, statement))
    }

    pub(super) fn portal(&self, portal: &[u8]) -> Phase {
        look_up(&self.portals, portal)
    }

    pub(super) fn close_statement(&mut self, statement: &[u8]) {
        self.prepared.remove(statement);
    }

    pub(super) fn close_portal(&mut self, portal: &[u8]) {
        self.portals.remove(portal);
    }

    /// Portals end with their transaction.
    pub(super) fn forget_portals(&mut self) {
        self.portals.clear();
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.prepared.len() + self.portals.len()
    }
}

fn look_up(names: &BTreeMap<Box<[u8]>, Phase>, name: &[u8]) -> Phase {
    names.get(name).copied().unwrap_or(Phase::Other)
}

fn remember(names: &mut BTreeMap<Box<[u8]>, Phase>, name: &[u8], phase: Phase) -> Result<(), Reason> {
    if phase == Phase::Other {
        names.remove(name);
    } else if let Some(known) = names.get_mut(name) {
        *known = phase;
    } else if names.len() == MAX_NAMES {
        return Err(Reason::TooMany);
    } else {
        names.insert(name.into(), phase);
    }
    Ok(())
}
