//! What only one design has, or no design at all.

mod lease;
mod outbox;
mod process;
