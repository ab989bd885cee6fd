//! What a drainer process writes, from a thread of its own: a reader that pauses must not pause the drainer.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::Duration,
};

use serde::Serialize;
use tokio::{sync::oneshot, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::Tick;

/// Lines that may wait for the reader. Beyond that they are dropped and counted.
const WAITING: usize = 8_192;
/// How long the last lines may take to be read.
const FINISH_WITHIN: Duration = Duration::from_secs(2);

enum Line {
    /// For a program, on stdout.
    Data(String),
    /// For a person, on stderr.
    Note(String),
}

/// The way to the writing thread.
#[derive(Clone)]
pub(super) struct Output {
    lines: SyncSender<Line>,
    dropped: Arc<AtomicU64>,
    done: Arc<std::sync::Mutex<Option<oneshot::Receiver<()>>>>,
}

/// A tick with the database it was on, where there are several.
#[derive(Serialize)]
struct Record<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    database: Option<&'a str>,
    #[serde(flatten)]
    tick: &'a Tick,
}

impl Output {
    /// Starts the thread. When stdout is closed it cancels `stop`: whoever wanted the drainer is gone.
    pub(super) fn start(stop: CancellationToken) -> Result<Self, String> {
        let (lines, waiting) = sync_channel(WAITING);
        let (tell, done) = oneshot::channel();
        std::thread::Builder::new()
            .name("drainer-output".to_owned())
            .spawn(move || {
                write_all(&waiting, &stop);
                // Nobody may be waiting any more.
                let _ = tell.send(());
            })
            .map_err(|error| format!("no thread for the output: {error}"))?;
        Ok(Self { lines, dropped: Arc::default(), done: Arc::new(std::sync::Mutex::new(Some(done))) })
    }

    /// One JSON line.
    pub(super) fn tick(&self, tick: &Tick, database: Option<&str>) {
        if let Ok(json) = serde_json::to_string(&Record { database, tick }) {
            self.send(Line::Data(json));
        }
    }

    /// One line for a person.
    pub(super) fn note(&self, text: String) {
        self.send(Line::Note(text));
    }

    fn send(&self, line: Line) {
        if self.lines.try_send(line).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until everything is written, for a bounded time. All other clones must be gone by then.
    pub(super) async fn finish(self) {
        let dropped = self.dropped.load(Ordering::Relaxed);
        if dropped > 0 {
            self.note(format!("drainer: {dropped} lines were dropped, because nobody read them in time"));
        }
        let done = self.done.lock().ok().and_then(|mut done| done.take());
        drop(self);
        if let Some(done) = done {
            // In vain when the reader is stuck; then the process ends without its last lines.
            let _ = timeout(FINISH_WITHIN, done).await;
        }
    }
}

fn write_all(waiting: &Receiver<Line>, stop: &CancellationToken) {
    while let Ok(line) = waiting.recv() {
        match line {
            Line::Data(json) => {
                let mut stdout = std::io::stdout().lock();
                if writeln!(stdout, "{json}").and_then(|()| stdout.flush()).is_err() {
                    stop.cancel();
                }
            }
            // Nobody to tell is no reason to stop.
            Line::Note(text) => {
                let _ = writeln!(std::io::stderr(), "{text}");
            }
        }
    }
}
