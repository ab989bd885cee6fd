//! `drainbench verify`.
