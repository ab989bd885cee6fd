//! Everything that watches a database from outside, against a real one: the sampler, the inspector, `watch`.
#![expect(clippy::unwrap_used, reason = "what the tests share stands outside of them")]

mod inspector;
mod sampler;
mod support;
mod watch;
