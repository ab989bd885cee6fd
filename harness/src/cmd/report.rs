//! `drainbench report`.
