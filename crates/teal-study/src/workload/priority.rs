//! What a thread asks of the schedulers: `nice` of its process, `ioprio` of itself.

use super::error::RunError;

/// Nothing is asked of the I/O scheduler.
const AS_IT_IS: u64 = 8;

/// Sets both for the calling thread.
pub(super) fn set_priorities(nice: u64, ioprio: u64) -> Result<(), RunError> {
    if nice > 0 {
        let asked = rustix::process::getpriority_process(None).and_then(|now| {
            // Of a thread: that is what the kernel takes process 0 for.
            rustix::process::setpriority_process(
                None,
                now.saturating_add(i32::try_from(nice).unwrap_or(i32::MAX)),
            )
        });
        asked.map_err(|e| RunError::from_io(format!("setting nice={nice}"), e))?;
    }
    if ioprio < AS_IT_IS {
        let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
        let class = ioprio.to_string();
        // The call has no safe form; this program makes it for any thread.
        let status = std::process::Command::new("ionice")
            .args(["-c", "2", "-n", &class, "-p", &thread])
            .status();
        let status =
            status.map_err(|e| RunError::from_io("setting ioprio by ionice (of util-linux)", e))?;
        if !status.success() {
            return Err(RunError::Failed(format!(
                "setting ioprio={ioprio}: ionice says {status}"
            )));
        }
    }
    Ok(())
}
