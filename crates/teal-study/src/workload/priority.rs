//! Sets a thread's priorities: `nice` of its process, `ioprio` of itself.

use super::error::RunError;

/// Value that leaves the I/O priority alone.
const AS_IT_IS: u64 = 8;

/// Sets both priorities of the calling thread.
pub(super) fn set_priorities(nice: u64, ioprio: u64) -> Result<(), RunError> {
    if nice > 0 {
        let asked = rustix::process::getpriority_process(None).and_then(|now| {
            // The kernel takes process 0 for the calling thread.
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
        // The system call has no safe form here; the program ionice makes it for any thread.
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
