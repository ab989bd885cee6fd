//! `drainbench watch`.
