//! The `drainbench` binary.

fn main() {}
