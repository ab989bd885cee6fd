//! Something is wrong with the drainers' way to a server. The links count what it did to them.

use super::{Evidence, Ground, Stay};
use crate::{
    rig::link::{Condition, Imposed, Seen},
    scenario::{Server, Weakness},
};

pub(super) async fn worsen(
    ground: Ground<'_, '_>,
    server: Server,
    instance: Option<u16>,
    weakness: Weakness,
    stay: Stay<'_>,
) -> Evidence {
    let links = ground.world.links.to(server, instance);
    let imposed: Vec<Imposed> = links.iter().map(|link| link.impose(condition(weakness))).collect();
    stay.over().await;
    let seen = imposed.iter().map(Imposed::seen).fold(Seen::default(), Seen::and);
    drop(imposed);
    let (hit, said) = judged(weakness, seen);
    ground.saw(hit, said)
}

fn condition(weakness: Weakness) -> Condition {
    match weakness {
        Weakness::Latency { latency, jitter } => Condition { delay: latency, jitter, ..Condition::default() },
        Weakness::Cut => Condition { cut: true, ..Condition::default() },
        Weakness::Stall => Condition { stalled: true, ..Condition::default() },
        Weakness::Reset { after } => Condition { reset_after: Some(after), ..Condition::default() },
        Weakness::Bandwidth { bytes_per_second } => {
            Condition { bandwidth: Some(bytes_per_second), ..Condition::default() }
        }
    }
}

fn judged(weakness: Weakness, seen: Seen) -> (bool, String) {
    match weakness {
        Weakness::Latency { .. } => {
            (seen.delayed > 0, format!("{} messages of the server were late", seen.delayed))
        }
        Weakness::Cut => (
            seen.cut + seen.refused > 0,
            format!("{} connections were cut and {} refused", seen.cut, seen.refused),
        ),
        Weakness::Stall => (seen.withheld > 0, format!("{} bytes were withheld", seen.withheld)),
        Weakness::Reset { .. } => (seen.reset > 0, format!("{} connections were reset", seen.reset)),
        Weakness::Bandwidth { .. } => {
            (seen.throttled > 0, format!("{} bytes had to wait for room", seen.throttled))
        }
    }
}
