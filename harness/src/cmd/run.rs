//! `drainbench run`.
