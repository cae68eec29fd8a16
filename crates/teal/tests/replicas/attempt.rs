//! Lives under seeds, each on a thread of its own: a panic or a hang is an error.

use crate::run::{Counts, Run, Stage};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// A life takes far less.
const DEADLINE: Duration = Duration::from_secs(60);

/// A whole life; its messages as one number.
fn life(stage: Stage, seed: u64, is_printed: bool) -> (u64, Counts) {
    let mut run = Run::new(stage, seed, is_printed);
    run.live();
    run.heal();
    run.restore();
    run.settle();
    run.poison();
    run.settle();
    run.judge();
    (run.world.trace.digest(), run.counts)
}

pub(crate) fn attempt(stage: Stage, seed: u64, is_printed: bool) -> Result<(u64, Counts), String> {
    let (say, hear) = channel();
    let thread = std::thread::Builder::new()
        .name(format!("{stage:?}-{seed}"))
        .spawn(move || {
            let lived = std::panic::catch_unwind(|| life(stage, seed, is_printed));
            let words = |panic: Box<dyn std::any::Any + Send>| {
                let said = panic.downcast_ref::<String>().cloned();
                said.unwrap_or_else(|| {
                    panic
                        .downcast_ref::<&str>()
                        .map_or("a panic", |said| said)
                        .to_owned()
                })
            };
            let _ = say.send(lived.map_err(words));
        });
    let lived = hear.recv_timeout(DEADLINE);
    if !matches!(lived, Err(RecvTimeoutError::Timeout)) {
        let _ = thread.unwrap().join();
    }
    match lived {
        Ok(lived) => lived.map_err(|words| format!("{stage:?}, seed {seed}: {words}")),
        Err(_) => Err(format!("{stage:?}, seed {seed}, hangs")),
    }
}
