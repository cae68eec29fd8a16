//! Runs flowops on content: reads, writes, appends, syncs, background writes.

use super::super::aio::WriteRequest;
use super::super::plan::{FlowopFlags, PlannedFlowop};
use super::{FlowopResult, FlowopRunner, LeaveReason, OpenSlot};
use crate::wml::FlowopKind;
use rustix::fs::SeekFrom;
use rustix::io::ReadWriteFlags;
use std::io::IoSlice;
use std::sync::Arc;
use teal_env::Timer;

/// Multiple of the offsets in memory at which direct transfers begin.
const SECTOR: usize = 512;

impl<T: Timer> FlowopRunner<'_, T> {
    /// Returns the open file that a flowop works on; opens one now, if its slot is empty.
    fn file_in_slot(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult<OpenSlot> {
        let slot = self.slot_of(op);
        if self.slots[slot].is_none() {
            let began = self.open_existing(op, slot)?;
            // Filebench counts this as an operation of the flowop; ours stands beside the figures.
            if self.shared.plan.options.strict {
                self.record_operation(at, began, 0);
            } else {
                self.state.tallies[at].note_opened();
            }
        }
        // A reference to the slot would borrow the whole thread. The count of the Arc is not
        // contended.
        self.slots[slot].clone().ok_or(LeaveReason::Stopped)
    }

    /// Returns the length of this transfer; `whole` if the attribute is 0.
    fn transfer_length(&mut self, op: &PlannedFlowop, whole: u64) -> usize {
        match self.draws.draw_whole(op.iosize) {
            0 => whole as usize,
            size => size.min(i32::MAX as u64) as usize,
        }
    }

    /// Returns the offset in memory at which a transfer of this length begins: anywhere in the
    /// thread's own memory, else at its start.
    fn memory_offset(&mut self, op: &PlannedFlowop, len: usize) -> FlowopResult<usize> {
        // Without memory of the thread, the flowop's buffer grows to the largest transfer.
        if self.memsize == 0 {
            self.memory.grow(len, self.seed);
            return Ok(0);
        }
        if len > self.memsize {
            let why = format!(
                "transfers {len} bytes, and its thread has memsize={}",
                self.memsize
            );
            return Err(self.usage_failure(op, &why));
        }
        // Direct transfers need aligned memory.
        let step = if op.has(FlowopFlags::DIRECTIO) {
            len.next_multiple_of(SECTOR)
        } else {
            len
        }
        .max(1);
        debug_assert!(
            len <= self.memsize,
            "a transfer fits into the memory of its thread"
        );
        Ok(self
            .offsets
            .next_below(((self.memsize - len) / step + 1) as u64) as usize
            * step)
    }

    /// Returns a random offset: a multiple of the length within the working set.
    fn random_offset(
        &mut self,
        at: usize,
        op: &PlannedFlowop,
        slot: &OpenSlot,
        len: usize,
    ) -> FlowopResult<u64> {
        let (whole, len) = match self.constants[at].0 {
            0 => (slot.file.size, len as u64),
            set => (set, len as u64),
        };
        if whole < len || len == 0 {
            return Err(self.usage_failure(
                op,
                &format!(
                    "random transfers of {len} bytes do not fit the {whole} bytes they may be in"
                ),
            ));
        }
        debug_assert!(
            len > 0 && whole >= len,
            "the working set has room for a transfer"
        );
        if self.shared.plan.options.strict {
            // Filebench never takes the last block, and each of its processes draws the same
            // offsets.
            let unit = self.shared.offsets[self.state.instance].lock().next_unit();
            return Ok((unit * (whole - len) as f64 / len as f64) as u64 * len);
        }
        Ok(self.offsets.next_below(whole / len) * len)
    }

    pub(super) fn read(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        let slot = self.file_in_slot(at, op)?;
        let len = self.transfer_length(op, slot.file.size);
        let from = self.memory_offset(op, len)?;
        let offset = if op.has(FlowopFlags::RANDOM) {
            Some(self.random_offset(at, op, &slot, len)?)
        } else {
            None
        };
        // Everything before this is preparation, and not part of the latency.
        let target = self.memory.read_target(from, len);
        let began = self.shared.now_nanos();
        let done = match offset {
            Some(offset) => rustix::io::pread(&*slot.descriptor, target, offset),
            None => rustix::io::read(&*slot.descriptor, target),
        };
        let read = done.map_err(|e| self.io_failure(op, "reading", e))?;
        // A sequential read begins anew at the end of the file.
        debug_assert!(
            read <= len,
            "the kernel reads no more than it was asked for"
        );
        if offset.is_none() && read < len {
            rustix::fs::seek(&*slot.descriptor, SeekFrom::Start(0))
                .map_err(|e| self.io_failure(op, "going back to the start", e))?;
        }
        self.record_operation(at, began, read as u64);
        Ok(())
    }

    pub(super) fn write(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        // Sequential writes go on where the descriptor stands.
        let slot = self.file_in_slot(at, op)?;
        let len = self.transfer_length(op, slot.file.size);
        let from = self.memory_offset(op, len)?;
        let offset = if op.has(FlowopFlags::RANDOM) {
            Some(self.random_offset(at, op, &slot, len)?)
        } else {
            None
        };
        // Fresh content, so that nothing can be deduplicated.
        let content = self.memory.fresh_content(from, len);
        let began = self.shared.now_nanos();
        let done = match offset {
            Some(offset) => rustix::io::pwrite(&*slot.descriptor, content, offset),
            None => rustix::io::write(&*slot.descriptor, content),
        };
        let written = done.map_err(|e| self.io_failure(op, "writing", e))?;
        self.record_operation(at, began, written as u64);
        Ok(())
    }

    pub(super) fn read_whole(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        let slot = self.file_in_slot(at, op)?;
        let len = self.transfer_length(op, slot.file.size.max(1));
        let from = self.memory_offset(op, len)?;
        let target = self.memory.read_target(from, len);
        let began = self.shared.now_nanos();
        let mut bytes = 0;
        // Reading a whole file begins at its start, wherever the descriptor stands.
        let mut done = rustix::fs::seek(&*slot.descriptor, SeekFrom::Start(0)).map(|_| ());
        while done.is_ok() {
            match rustix::io::read(&*slot.descriptor, &mut *target) {
                Ok(0) => break,
                Ok(read) => bytes += read as u64,
                Err(e) => done = Err(e),
            }
        }
        done.map_err(|e| self.io_failure(op, "reading", e))?;
        self.record_operation(at, began, bytes);
        Ok(())
    }

    pub(super) fn write_whole(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        let slot = self.file_in_slot(at, op)?;
        // The source gives the length, if one is named.
        let source = self.named[op.srcfd].filter(|_| op.srcfd > 0);
        let whole = source.map_or(slot.file.size, |source| source.size);
        let len = self.transfer_length(op, whole);
        let from = self.memory_offset(op, len)?;
        let strict = self.shared.plan.options.strict && whole > len as u64;
        let began = self.shared.now_nanos();
        let mut bytes = 0;
        while bytes < whole && len > 0 {
            // Filebench writes whole transfers, even where less is left.
            let part = if strict {
                len
            } else {
                (whole - bytes).min(len as u64) as usize
            };
            let content = self.memory.fresh_content(from, part);
            match rustix::io::write(&*slot.descriptor, content) {
                Ok(written) => bytes += written as u64,
                Err(e) => return Err(self.io_failure(op, "writing", e)),
            }
        }
        self.record_operation(at, began, bytes);
        Ok(())
    }

    pub(super) fn append(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        // The length of a random append is drawn each time.
        let slot = self.file_in_slot(at, op)?;
        let most = self.transfer_length(op, 0);
        let len = match op.kind {
            FlowopKind::AppendFile => most,
            _ if self.shared.plan.options.strict => {
                (self.offsets.next_unit() * most.saturating_sub(1) as f64) as usize
            }
            _ => self.offsets.next_below(most as u64) as usize + 1,
        };
        let from = self.memory_offset(op, most)?;
        let content = self.memory.fresh_content(from, len);
        let began = self.shared.now_nanos();
        let written = match len {
            0 => rustix::fs::seek(&*slot.descriptor, SeekFrom::End(0)).map(|_| 0),
            // In Filebench an append of another thread in between is overwritten.
            _ if self.shared.plan.options.strict => {
                rustix::fs::seek(&*slot.descriptor, SeekFrom::End(0))
                    .and_then(|_| rustix::io::write(&*slot.descriptor, content))
            }
            // This appends at the end whatever other threads do. The file offset is behind the data
            // then.
            _ => rustix::io::pwritev2(
                &*slot.descriptor,
                &[IoSlice::new(content)],
                u64::MAX,
                ReadWriteFlags::APPEND,
            ),
        };
        let written = written.map_err(|e| self.io_failure(op, "appending", e))?;
        self.record_operation(at, began, written as u64);
        Ok(())
    }

    pub(super) fn fsync(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        let slot = self.file_in_slot(at, op)?;
        let began = self.now();
        let done = rustix::fs::fsync(&*slot.descriptor);
        self.record_operation(at, began, 0);
        self.unless_strict(op, "syncing", done)
    }

    pub(super) fn fsync_set(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        let began = self.now();
        for slot in self
            .slots
            .iter()
            .flatten()
            .filter(|slot| Some(slot.file.set) == op.set)
        {
            self.unless_strict(op, "syncing", rustix::fs::fsync(&*slot.descriptor))?;
        }
        self.record_operation(at, began, 0);
        Ok(())
    }

    pub(super) fn aio_write(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        let slot = self.file_in_slot(at, op)?;
        let len = self.transfer_length(op, slot.file.size);
        let from = self.memory_offset(op, len)?;
        let offset = self.random_offset(at, op, &slot, len)?;
        // The content is copied, because this thread goes on to change its memory.
        let mut data = self.shared.queue.lend(len);
        data.copy_from_slice(self.memory.fresh_content(from, len));
        let began = self.now();
        self.shared.queue.push(WriteRequest {
            file: slot.descriptor,
            offset,
            data,
            outstanding: Arc::clone(&self.aio),
        });
        // The write counts when it is queued; its errors come with aiowait.
        self.in_flight += 1;
        self.record_operation(at, began, len as u64);
        Ok(())
    }

    pub(super) fn aio_wait(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        let began = self.now();
        if self.in_flight > 0 {
            // Filebench waits for half of the outstanding writes.
            let half = (self.in_flight / 2).max(1);
            let done = self
                .aio
                .reap(half, &self.shared.stop)
                .map_err(|e| self.io_failure(op, "writing in the background", e))?;
            self.in_flight = self.in_flight.saturating_sub(done);
        }
        self.record_operation(at, began, 0);
        Ok(())
    }
}
