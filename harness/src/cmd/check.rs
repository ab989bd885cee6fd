//! `drainbench check`.
