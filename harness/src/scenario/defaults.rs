//! What a scenario means by what it leaves out. `scenarios/README.md` lists these, and a test compares.

use std::{num::NonZeroU32, time::Duration};

use super::{
    Arrivals, BrokerSettings, DatabaseSettings, DrainerSettings, Load, Placement, QueueKind, SamplerSettings,
    Service, Settings, Suite, Validity, WriteKind,
};

/// For constants that are not zero.
const fn count(number: u32) -> NonZeroU32 {
    match NonZeroU32::new(number) {
        Some(count) => count,
        None => NonZeroU32::MIN,
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            load: Load {
                services: 1,
                rate: None,
                arrivals: Arrivals::Constant,
                payload_bytes: 340,
                events_per_write: 1,
                rollback_share: 0.0,
                keys: 1000,
                key_skew: 0.0,
                write: WriteKind::Transaction,
                warm_up: Duration::from_secs(5),
                duration: Duration::from_secs(30),
                drain_deadline: Duration::from_secs(60),
                backlog: 0,
            },
            service: Service { pool: count(5), acquire_timeout: Duration::from_secs(30) },
            drainer: DrainerSettings {
                placement: Placement::InService,
                command: None,
                pool: count(2),
                instances: count(1),
                batch_size: count(100),
                pipeline_depth: count(32),
                lease_ttl: Duration::from_secs(30),
                poll_interval: Duration::from_millis(200),
                confirm_timeout: Duration::from_secs(30),
                stop_within: Duration::from_secs(15),
            },
            broker: BrokerSettings { latency: Duration::ZERO, queue: QueueKind::Classic, max_length: 0 },
            database: DatabaseSettings { commit_delay: Duration::ZERO, full_page_writes: true },
            sampler: SamplerSettings { rate: count(50), max_missed: 0.05, witness: false },
            validity: Validity { lag_p99: Duration::from_millis(10), sink_behind: Duration::from_secs(1) },
            suite: Suite {
                cases: 0,
                persist_within: Duration::from_secs(5),
                arrive_within: Duration::from_secs(10),
            },
        }
    }
}
