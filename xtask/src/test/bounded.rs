//! Waiting that ends: time since boot, pauses, and calls into the kernel that may never come back.
//!
//! # Guarantees
//! 1. Nothing here waits longer than it was told, whatever the kernel does to the thread that
//!    works.

use rustix::time::{ClockId, clock_gettime};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Returns the time since an arbitrary moment; it never goes back.
pub(super) fn time_since_boot() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// Waits for a moment.
pub(super) fn pause_briefly() {
    std::thread::park_timeout(Duration::from_millis(20));
}

/// Returns the values that `work` sent within `limit`; a thread that hangs is left behind, with the
/// rest of its work.
pub(super) fn gather_within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce(Sender<T>) + Send + 'static,
) -> Vec<T> {
    let (sender, receiver): (Sender<T>, Receiver<T>) = channel();
    let mut all = Vec::new();
    if std::thread::Builder::new()
        .name("bounded".to_owned())
        .spawn(move || work(sender))
        .is_err()
    {
        return all;
    }
    // The deadline holds for all values together.
    let end = time_since_boot() + limit;
    while let Ok(one) = receiver.recv_timeout(end.saturating_sub(time_since_boot())) {
        all.push(one);
    }
    all
}

/// Returns the result of `work`, if it comes within `limit`.
pub(super) fn run_within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    gather_within(limit, move |sender| drop(sender.send(work()))).pop()
}

/// Returns whether a small program did its work within `limit`.
pub(super) fn is_done(limit: Duration, program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    run_within(limit, move || {
        command.status().is_ok_and(|status| status.success())
    })
    .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_does_not_end_is_left_behind_and_what_it_said_is_kept() {
        let (keep, wait) = channel::<()>();
        let said = gather_within(Duration::from_millis(50), move |sender| {
            sender.send(1).unwrap();
            let _ = wait.recv();
        });
        assert_eq!(said, [1]);
        drop(keep);
        assert_eq!(run_within(Duration::from_secs(60), || 2), Some(2));
        assert!(is_done(Duration::from_secs(60), "true", &[]));
        assert!(!is_done(Duration::from_secs(60), "false", &[]));
    }
}
