//! All integration tests as one program: every program that links the harness generates its code again.

#![expect(clippy::unwrap_used, reason = "a test tells by panicking")]

// What they share.
mod by_hand;
mod rigs;
mod scenarios;

mod check;
mod compose;
mod docker;
mod external;
mod faults;
mod leftovers;
mod pooler;
mod record;
mod report;
mod rig;
mod run;
mod saboteurs;
mod sampler;
mod tls;
mod verify;
mod versions;
