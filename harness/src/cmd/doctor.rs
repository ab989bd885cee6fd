//! `drainbench doctor`.
