//! Checks that each flowop has what it needs.

use super::{FlowopFlags, PlannedFlowop, PlannedThread, WorkloadPlan};
use crate::wml::{FlowopKind, WmlError, WorkloadScript};
use crate::workload::random::FixedOrDrawn;

/// Limits the threads of a run.
pub(crate) const THREADS_MAX: u64 = 1 << 16;
/// Bytes that direct transfers are multiples of.
const SECTOR: u64 = 512;

pub(super) fn check_plan(script: &WorkloadScript, plan: &WorkloadPlan) -> Result<(), WmlError> {
    let threads = plan.thread_count();
    if threads > THREADS_MAX {
        let message = format!("{threads} threads are more than {THREADS_MAX}; lower instances=");
        let kinds = plan.processes.iter().flat_map(|p| {
            p.threads
                .iter()
                .map(|t| (p.instances.saturating_mul(t.instances), t))
        });
        let most = kinds
            .max_by_key(|(count, _)| *count)
            .and_then(|(_, thread)| thread.ops.first());
        // The position is that of the most numerous kind of thread.
        return Err(script.error_at(most.map_or_else(Default::default, |op| op.place), message));
    }
    for thread in plan.processes.iter().flat_map(|process| &process.threads) {
        for op in &thread.ops {
            // The first fault of a flowop is told; later ones may follow from it.
            if let Some(message) = missing_attribute(op)
                .or_else(|| wrong_size(op))
                .or_else(|| exceeds_memory(op, thread))
                .or_else(|| unfit_fileset(op, plan))
            {
                return Err(script.error_at(
                    op.place,
                    format!("{} '{}' {message}", op.kind.name(), op.name),
                ));
            }
        }
        if thread.ioprio > 8 {
            let message = format!(
                "thread '{}': ioprio is 0 to 7, or 8 to leave it alone",
                thread.name
            );
            return Err(script.error_at(thread.ops[0].place, message));
        }
    }
    Ok(())
}

fn missing_attribute(op: &PlannedFlowop) -> Option<String> {
    // Each kind of flowop needs its object: a set, a file, a target or a value.
    use FlowopKind::*;
    let no_set = op.set.is_none();
    match op.kind {
        OpenFile | CreateFile | MakeDir | RemoveDir | ListDir | FsyncSet if no_set => {
            Some("needs a fileset: filesetname=…".into())
        }
        DeleteFile | StatFile | Read | Write | ReadWholeFile | WriteWholeFile | AppendFile
        | AppendFileRand | AioWrite
            if no_set && op.fd == 0 =>
        {
            Some("needs a file: filesetname=… or fd=N of one that is open".into())
        }
        AioWrite if !op.has(FlowopFlags::RANDOM) => {
            Some("writes at random places only: say random".into())
        }
        Wakeup | SemPost if op.target.is_none() => Some("needs a target: target=…".into()),
        SemBlock | SemPost if op.value.is_zero() => {
            Some("needs a value of at least 1: value=…".into())
        }
        _ => None,
    }
}

fn wrong_size(op: &PlannedFlowop) -> Option<String> {
    // Only fixed sizes can be checked before the run.
    use FlowopKind::*;
    let transfers = matches!(
        op.kind,
        Read | Write | AppendFile | AppendFileRand | AioWrite
    );
    if transfers && op.iosize.is_zero() {
        return Some("has iosize 0 and would transfer nothing: say iosize=4k".into());
    }
    match op.iosize {
        FixedOrDrawn::Fixed(size) if size > i32::MAX as u64 => Some(format!(
            "has iosize {size}; a transfer is smaller than 2 GiB"
        )),
        FixedOrDrawn::Fixed(size) if op.has(FlowopFlags::DIRECTIO) && size % SECTOR != 0 => Some(
            format!("has directio and iosize {size}, which is no multiple of {SECTOR}"),
        ),
        _ => None,
    }
}

fn exceeds_memory(op: &PlannedFlowop, thread: &PlannedThread) -> Option<String> {
    let spare = if op.has(FlowopFlags::DIRECTIO) {
        SECTOR
    } else {
        0
    };
    match (thread.memsize, op.iosize) {
        (FixedOrDrawn::Fixed(memory @ 1..), FixedOrDrawn::Fixed(size)) if size + spare > memory => {
            Some(format!(
                "has iosize {size}, more than the memory of its thread: say memsize={} for thread \
                 '{}'",
                size + spare,
                thread.name
            ))
        }
        _ => None,
    }
}

/// Returns whether some flowop makes files of a set longer.
fn is_written(set: usize, plan: &WorkloadPlan) -> bool {
    use FlowopKind::*;
    let ops = plan
        .processes
        .iter()
        .flat_map(|process| &process.threads)
        .flat_map(|thread| &thread.ops);
    let writes = |op: &&PlannedFlowop| {
        matches!(
            op.kind,
            Write | WriteWholeFile | AppendFile | AppendFileRand | AioWrite
        )
    };
    // A flowop that writes to a descriptor may write to any set.
    ops.filter(writes)
        .any(|op| op.set.is_none_or(|other| other == set))
}

fn unfit_fileset(op: &PlannedFlowop, plan: &WorkloadPlan) -> Option<String> {
    // Leaf directories and files are different pools of a set.
    let set = &plan.filesets[op.set?];
    let dirs = matches!(op.kind, FlowopKind::MakeDir | FlowopKind::RemoveDir);
    if dirs && set.leafdirs == 0 {
        return Some(format!(
            "needs leaf directories: define fileset '{}' with leafdirs=…",
            set.name
        ));
    }
    let files = !dirs && !matches!(op.kind, FlowopKind::ListDir | FlowopKind::FsyncSet);
    if files && set.entries == 0 {
        return Some(format!(
            "needs files: define fileset '{}' with entries=…",
            set.name
        ));
    }
    // Reading empty files would measure nothing.
    let reads = matches!(op.kind, FlowopKind::Read | FlowopKind::ReadWholeFile);
    if reads && set.size.is_zero() && op.set.is_some_and(|set| !is_written(set, plan)) {
        return Some(format!(
            "reads nothing: the files of '{}' have size=0, and no flowop writes them",
            set.name
        ));
    }
    // Drawn sizes are checked when they are drawn.
    let (FixedOrDrawn::Fixed(size), FixedOrDrawn::Fixed(transfer)) = (set.size, op.iosize) else {
        return None;
    };
    let whole = match op.workingset {
        FixedOrDrawn::Fixed(0) => (size as f64 * set.size_scale) as u64,
        FixedOrDrawn::Fixed(set) => set,
        FixedOrDrawn::Drawn(_) => return None,
    };
    let random = op.has(FlowopFlags::RANDOM)
        && matches!(
            op.kind,
            FlowopKind::Read | FlowopKind::Write | FlowopKind::AioWrite
        );
    (random && whole < transfer).then(|| {
        format!(
            "has iosize {transfer}, more than the {whole} bytes it may work on: \
            lower it, or scale less"
        )
    })
}
