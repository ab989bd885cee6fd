//! Drainer processes are killed, stopped or started again. The kernel says whether it hit.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::MutexGuard;

use super::{Evidence, Ground, Stay};
use crate::{fleet::Child, rig::link::Trap};

/// SIGKILL; where it heals they are started again under the same id.
pub(super) async fn kill(
    ground: Ground<'_, '_>,
    instance: Option<u16>,
    lasts: Option<Duration>,
    stay: Stay<'_>,
) -> Evidence {
    let mut children = of(ground, instance).await;
    let killed = join_all(children.iter_mut().map(|child| child.kill())).await;
    let hits = killed.iter().filter(|by_us| **by_us).count();
    let said = format!("{hits} of {} processes ended by signal 9", killed.len());
    if lasts.is_none() {
        return ground.saw(hits > 0, said);
    }
    stay.over().await;
    started_again(ground, &mut children, hits > 0, said)
}

/// SIGSTOP, SIGCONT.
pub(super) async fn pause(ground: Ground<'_, '_>, instance: Option<u16>, stay: Stay<'_>) -> Evidence {
    // Continued on drop, whatever becomes of this.
    let mut children: Vec<Paused<'_, '_>> = of(ground, instance).await.into_iter().map(Paused).collect();
    join_all(children.iter_mut().map(|Paused(child)| child.pause())).await;
    stay.over().await;
    let still = children.iter().filter(|Paused(child)| child.stands_still()).count();
    let said = format!("{still} of {} processes stood still to the end of it", children.len());
    drop(children);
    ground.saw(still > 0, said)
}

/// SIGTERM, and started again under the same id.
pub(super) async fn restart(ground: Ground<'_, '_>, instance: Option<u16>, stay: Stay<'_>) -> Evidence {
    let mut children = of(ground, instance).await;
    let within = tokio::time::Instant::now() + ground.cell.settings.drainer.stop_within + super::STOP_MARGIN;
    let stopped = join_all(children.iter_mut().map(async |child| {
        let asked = child.ask_to_stop();
        child.has_stopped(within).await;
        asked
    }))
    .await;
    let hits = stopped.iter().filter(|asked| **asked).count();
    stay.over().await;
    started_again(ground, &mut children, hits > 0, format!("{hits} of {} processes stopped", stopped.len()))
}

/// SIGKILL at a point of its work, which the links of each drainer see; where it heals it is started again under the same
/// id.
pub(super) async fn crash(
    ground: Ground<'_, '_>,
    instance: Option<u16>,
    trap: Trap,
    lasts: Option<Duration>,
) -> Evidence {
    let Some(fleet) = ground.fleet else { return ground.saw(false, "there is no drainer".to_owned()) };
    let crashes = fleet.processes().map(async |child| {
        let (service, at) = {
            let child = child.lock().await;
            (child.service(), child.instance())
        };
        if instance.is_some_and(|instance| instance != at) {
            return None;
        }
        let link = ground.world.links.of(trap.point.way(), service, at)?;
        let trapped = link.trap(trap);
        tokio::select! {
            () = trapped.sprung() => {}
            () = ground.gives_up().over() => return Some(Crashed { at_ns: None, started: Ok(()) }),
        }
        let mut child = child.lock().await;
        let at_ns = ground.clock.now_ns();
        let killed = child.kill().await;
        // What it held back never arrives: who was to say it is dead.
        drop(trapped);
        let at_ns = killed.then_some(at_ns);
        if let Some(lasts) = lasts {
            Stay { until: tokio::time::Instant::now() + lasts, stop: ground.stop }.over().await;
            let started = child.start_again().map_err(|error| error.to_string());
            return Some(Crashed { at_ns, started });
        }
        Some(Crashed { at_ns, started: Ok(()) })
    });
    let crashed: Vec<Crashed> = join_all(crashes).await.into_iter().flatten().collect();
    if let Some(error) = crashed.iter().find_map(|crashed| crashed.started.as_ref().err()) {
        return ground.could_not("start a drainer process again", error);
    }
    let hits = crashed.iter().filter(|crashed| crashed.at_ns.is_some()).count();
    let said =
        format!("{hits} of {} drainers stood at that point on the wire and ended by signal 9", crashed.len());
    let began_ns = crashed.iter().filter_map(|crashed| crashed.at_ns).min();
    Evidence { began_ns, ..ground.saw(hits > 0, said) }
}

struct Crashed {
    /// When it was killed where it should be.
    at_ns: Option<u64>,
    started: Result<(), String>,
}

struct Paused<'l, 'a>(MutexGuard<'l, Child<'a>>);

impl Drop for Paused<'_, '_> {
    fn drop(&mut self) {
        self.0.go_on();
    }
}

fn started_again(
    ground: Ground<'_, '_>,
    children: &mut [MutexGuard<'_, Child<'_>>],
    hit: bool,
    said: String,
) -> Evidence {
    for child in children {
        if let Err(error) = child.start_again() {
            return ground.could_not(&format!("start drainer process {} again", child.name()), &error);
        }
    }
    ground.saw(hit, said)
}

/// The drainers that are struck. Another fault that holds one of them goes first.
async fn of<'a, 'f>(ground: Ground<'a, 'f>, instance: Option<u16>) -> Vec<MutexGuard<'a, Child<'f>>> {
    let mut children = Vec::new();
    for child in ground.fleet.iter().flat_map(|fleet| fleet.processes()) {
        let child = child.lock().await;
        if instance.is_none_or(|instance| child.instance() == instance) {
            children.push(child);
        }
    }
    children
}
