//! Everything that watches a database from outside, against a real one: the sampler, the inspector, `watch`.

mod inspector;
mod sampler;
mod support;
mod watch;
