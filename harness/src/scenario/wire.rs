//! The file's own shape. Every key may be left out; what is in it is proved elsewhere.

use serde::Deserialize;
use toml::Spanned;

use super::value::{Given, Key};

/// A key as it is written: one that is a word of Rust's (`for`) has a mark before it here.
const fn plain(key: &'static str) -> &'static str {
    match key.as_bytes() {
        [b'r', b'#', ..] => key.split_at(2).1,
        _ => key,
    }
}

/// A table of plain keys: the struct that it is read into, the names of its keys, and its keys with their paths.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident = $path:literal { $($key:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name { $($key: Given),* }

        impl $name {
            pub(super) const KEYS: &'static [&'static str] = &[$(plain(stringify!($key))),*];
            $(pub(super) fn $key(&self) -> Key<'_> {
                Key { path: plain(concat!($path, stringify!($key))), given: self.$key.as_ref() }
            })*
        }
    };
}

/// A table of which there is one, that the command line may change.
macro_rules! single {
    ($(#[$doc:meta])* $name:ident = $path:literal { $($key:ident),* $(,)? }) => {
        table! { $(#[$doc])* $name = $path { $($key),* } }

        impl $name {
            /// What is given here, and else what is given in `base`.
            fn over(self, base: Self) -> Self {
                Self { $($key: self.$key.or(base.$key)),* }
            }
        }
    };
}

/// A table that a cell may override.
macro_rules! section {
    ($(#[$doc:meta])* $name:ident = $path:literal { $($key:ident),* $(,)? }) => {
        single! { $(#[$doc])* $name = $path { $($key),* } }

        impl $name {
            /// The keys that are given.
            fn given(&self) -> impl Iterator<Item = Key<'_>> {
                [$(self.$key()),*].into_iter().filter(|key| key.given.is_some())
            }
        }
    };
}

section! {
    /// `[load]`
    LoadWire = "load." {
        services, rate, arrivals, burst_every, ramp_from, payload, events_per_write, rollback_share, keys, key_skew,
        write, warm_up, duration, drain_deadline, backlog,
    }
}
section! {
    /// `[service]`
    ServiceWire = "service." { pool, acquire_timeout }
}
section! {
    /// `[drainer]`
    DrainerWire = "drainer." {
        placement, command, pool, instances, batch_size, pipeline_depth, lease_ttl, poll_interval, confirm_timeout, stop_within,
    }
}
section! {
    /// `[broker]`
    BrokerWire = "broker." { latency, queue, max_length }
}
section! {
    /// `[database]`
    DatabaseWire = "database." { commit_delay, full_page_writes }
}
section! {
    /// `[sampler]`
    SamplerWire = "sampler." { rate, max_missed, witness }
}
section! {
    /// `[validity]`
    ValidityWire = "validity." { lag_p99, sink_behind }
}
section! {
    /// `[suite]`
    SuiteWire = "suite." { cases, persist_within, arrive_within }
}
single! {
    /// `[rig]`: of the experiment, and so of the file alone
    RigWire = "rig." { postgres_image, rabbitmq_image, cpus, memory }
}
table! {
    /// `[[symptom]]` and `[[criterion]]`
    ExpectationWire = "" { metric, above, below, at_most, at_least, times, cell }
}

table! {
    /// `[[fault]]`
    FaultWire = "" {
        kind, target, at, r#for, every, cell, instance, point, when, nth, latency, jitter, after, bandwidth, rate, commit_delay, events,
    }
}

/// The tables that a cell may override, the structs that read them, and what both the file and its cells have.
macro_rules! sections {
    ($($section:ident: $wire:ident),* $(,)?) => {
        /// What a scenario or one of its cells says.
        #[derive(Debug, Clone, Default)]
        pub(super) struct Sections { $(pub(super) $section: $wire),* }

        /// Their names and keys.
        pub(super) const SECTIONS: &[(&str, &[&str])] = &[$((stringify!($section), $wire::KEYS)),*];

        impl Sections {
            pub(super) fn over(self, base: Self) -> Self {
                Self { $($section: self.$section.over(base.$section)),* }
            }
            /// The keys that are given, of all tables.
            pub(super) fn given(&self) -> impl Iterator<Item = Key<'_>> {
                std::iter::empty()$(.chain(self.$section.given()))*
            }
        }

        /// The whole file.
        #[derive(Debug, Clone, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct ScenarioWire {
            name: Given,
            about: Given,
            seed: Given,
            rounds: Given,
            #[serde(default)]
            pub(super) rig: RigWire,
            $(#[serde(default)] $section: $wire,)*
            #[serde(default)]
            pub(super) cell: Vec<Spanned<CellWire>>,
            #[serde(default)]
            pub(super) fault: Vec<Spanned<FaultWire>>,
            #[serde(default)]
            pub(super) symptom: Vec<Spanned<ExpectationWire>>,
            #[serde(default)]
            pub(super) criterion: Vec<Spanned<ExpectationWire>>,
        }

        /// `[[cell]]`
        #[derive(Debug, Clone, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct CellWire {
            label: Given,
            role: Given,
            design: Given,
            $(#[serde(default)] $section: $wire,)*
        }

        impl ScenarioWire {
            pub(super) fn sections(&self) -> Sections {
                Sections { $($section: self.$section.clone()),* }
            }
            /// What is given here, and else what is given in `base`. Lists are replaced whole.
            pub(super) fn over(self, base: Self) -> Self {
                Self {
                    name: self.name.or(base.name),
                    about: self.about.or(base.about),
                    seed: self.seed.or(base.seed),
                    rounds: self.rounds.or(base.rounds),
                    rig: self.rig.over(base.rig),
                    $($section: self.$section.over(base.$section),)*
                    cell: if self.cell.is_empty() { base.cell } else { self.cell },
                    fault: if self.fault.is_empty() { base.fault } else { self.fault },
                    symptom: if self.symptom.is_empty() { base.symptom } else { self.symptom },
                    criterion: if self.criterion.is_empty() { base.criterion } else { self.criterion },
                }
            }
        }

        impl CellWire {
            pub(super) fn sections(&self) -> Sections {
                Sections { $($section: self.$section.clone()),* }
            }
        }
    };
}

sections! {
    load: LoadWire,
    service: ServiceWire,
    drainer: DrainerWire,
    broker: BrokerWire,
    database: DatabaseWire,
    sampler: SamplerWire,
    validity: ValidityWire,
    suite: SuiteWire,
}

/// Tables of the file that no cell has.
pub(super) const OF_THE_FILE: &[(&str, &[&str])] = &[("rig", RigWire::KEYS)];
/// Keys of the file that belong to no table.
pub(super) const TOP: &[&str] = &["name", "about", "seed", "rounds"];
/// Keys of a cell that are its own.
pub(super) const CELL: &[&str] = &["label", "role", "design"];

impl ScenarioWire {
    pub(super) fn name(&self) -> Key<'_> {
        Key { path: "name", given: self.name.as_ref() }
    }
    pub(super) fn about(&self) -> Key<'_> {
        Key { path: "about", given: self.about.as_ref() }
    }
    pub(super) fn seed(&self) -> Key<'_> {
        Key { path: "seed", given: self.seed.as_ref() }
    }
    pub(super) fn rounds(&self) -> Key<'_> {
        Key { path: "rounds", given: self.rounds.as_ref() }
    }
}

impl CellWire {
    pub(super) fn new(label: Given, role: Given, design: Given) -> Self {
        Self { label, role, design, ..Self::default() }
    }
    pub(super) fn label(&self) -> Key<'_> {
        Key { path: "label", given: self.label.as_ref() }
    }
    pub(super) fn role(&self) -> Key<'_> {
        Key { path: "role", given: self.role.as_ref() }
    }
    pub(super) fn design(&self) -> Key<'_> {
        Key { path: "design", given: self.design.as_ref() }
    }
}
