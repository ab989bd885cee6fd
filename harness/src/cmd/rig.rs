//! `drainbench rig`.
