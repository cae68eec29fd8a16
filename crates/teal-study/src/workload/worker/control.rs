//! Runs flowops without a file: waiting for each other, limits, ends, time, load.

use super::super::plan::{FlowopFlags, PlannedFlowop};
use super::super::shared::MeetingPoint;
use super::super::waiting::WaitOutcome;
use super::{FlowopResult, FlowopRunner, LeaveReason};
use crate::wml::FlowopKind;
use std::time::Duration;
use teal_env::Timer;

/// Bytes that `bwlimit` takes for one event.
const EVENT_BYTES: u64 = 1 << 20;

impl<T: Timer> FlowopRunner<'_, T> {
    fn check_wait(&self, op: &PlannedFlowop, waited: WaitOutcome) -> FlowopResult {
        match waited {
            WaitOutcome::Got => Ok(()),
            WaitOutcome::Stopped => Err(LeaveReason::Stopped),
            WaitOutcome::TimedOut => {
                Err(self.usage_failure(op, "nobody has posted in ten minutes"))
            }
        }
    }

    pub(super) fn block(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        let began = self.now();
        if let Some(MeetingPoint::Gate(gate)) = &self.state.meetings[at] {
            self.check_wait(op, gate.wait_for_opening(&self.shared.stop))?;
        }
        self.record_operation(at, began, 0);
        Ok(())
    }

    pub(super) fn wake_up(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        let began = self.now();
        for meeting in self.shared.meeting_points(&op.targets) {
            if let MeetingPoint::Gate(gate) = meeting {
                gate.open();
            }
        }
        self.record_operation(at, began, 0);
        Ok(())
    }

    pub(super) fn sem_block(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        let value = self.draws.draw_whole(op.value);
        let began = self.now();
        if let Some(MeetingPoint::Semaphore(semaphore)) = &self.state.meetings[at] {
            self.check_wait(op, semaphore.block(value, &self.shared.stop))?;
        }
        self.record_operation(at, began, 0);
        Ok(())
    }

    pub(super) fn sem_post(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        let value = self.draws.draw_whole(op.value);
        let began = self.now();
        for meeting in self.shared.meeting_points(&op.targets) {
            if let MeetingPoint::Semaphore(semaphore) = meeting {
                self.check_wait(
                    op,
                    semaphore.post(value, op.has(FlowopFlags::BLOCKING), &self.shared.stop),
                )?;
            }
        }
        self.record_operation(at, began, 0);
        Ok(())
    }

    /// Waits until this number of events has happened; without a source, not at all.
    fn wait_for_events(&mut self, count: u64) -> FlowopResult {
        let Some(rate) = self.shared.plan.rate else {
            return Ok(());
        };
        let rate = self.draws.draw_real(rate);
        if rate > 0.0 && count > 0 {
            // The lock of the source is not held while this thread sleeps.
            let wait = self.shared.events.take_events(count, rate, self.now());
            self.sleep_for(wait)?;
        }
        Ok(())
    }

    fn sleep_for(&self, time: Duration) -> FlowopResult {
        let until = self.shared.clock.monotonic_time() + time;
        // The end of the run wakes the sleeper, and so may a spurious wake-up.
        loop {
            if self.shared.stop.is_set() {
                return Err(LeaveReason::Stopped);
            }
            match until.checked_sub(self.shared.clock.monotonic_time()) {
                Some(left) if !left.is_zero() => self.shared.stop.sleep_for(left),
                _ => return Ok(()),
            }
        }
    }

    pub(super) fn event_limit(&mut self, at: usize) -> FlowopResult {
        let began = self.now();
        self.wait_for_events(1)?;
        self.record_operation(at, began, 0);
        Ok(())
    }

    /// Waits for as many events as this thread has done operations since this limit last looked:
    /// those of its target, or all. Filebench lets a limit without a target charge the operations
    /// of the whole process to each of its threads.
    pub(super) fn apply_limit(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        let began = self.now();
        let done = self.done_before_limit(op);
        // `bwlimit` counts megabytes, the others operations.
        let unit = if op.kind == FlowopKind::BwLimit {
            EVENT_BYTES
        } else {
            1
        };
        // The first look charges nothing: the limit begins here.
        let seen = self.seen[at].unwrap_or(done);
        let events = done.saturating_sub(seen) / unit;
        // The remainder below one event is charged the next time.
        self.seen[at] = Some(seen + events * unit);
        self.wait_for_events(events)?;
        self.record_operation(at, began, 0);
        Ok(())
    }

    /// Returns the work that a limit charges: that of its targets, or else everything that the
    /// thread has done.
    fn done_before_limit(&self, op: &PlannedFlowop) -> u64 {
        // A limit with a target counts its bytes or its operations, whatever kind it is of.
        let mut done = 0;
        if !op.targets.is_empty() {
            for target in &op.targets {
                let tally = &self.state.tallies[target.op];
                done += match op.kind {
                    FlowopKind::BwLimit => tally.bytes(),
                    _ => tally.count(),
                };
            }
            return done;
        }
        let threads = if self.shared.plan.options.strict {
            self.shared.process_of(self.state)
        } else {
            std::slice::from_ref(self.state)
        };
        for thread in threads {
            done += match op.kind {
                FlowopKind::IopsLimit => thread.totals.transfers(),
                FlowopKind::OpsLimit => thread.totals.operations(),
                _ => thread.totals.bytes(),
            };
        }
        done
    }

    pub(super) fn finish_on(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        let began = self.now();
        // The look comes before the record: the rule itself is no work of its target.
        let (operations, bytes) = self.done_before_end(op);
        self.record_operation(at, began, 0);
        // Filebench ends at the count, but only beyond the bytes.
        let value = self.constants[at].1;
        let is_reached = match op.kind {
            FlowopKind::FinishOnCount => operations >= value,
            _ => bytes > value,
        };
        if !is_reached {
            return Ok(());
        }
        Err(LeaveReason::Done(format!(
            "flowop '{}' has reached {value}",
            op.name
        )))
    }

    /// Returns operations and bytes of all instances of the targets, or else of the process.
    fn done_before_end(&self, op: &PlannedFlowop) -> (u64, u64) {
        let (mut operations, mut bytes) = (0, 0);
        if op.targets.is_empty() {
            for thread in self.shared.process_of(self.state) {
                operations += thread.totals.operations();
                bytes += thread.totals.bytes();
            }
        }
        for target in &op.targets {
            for thread in self.shared.threads_running(*target) {
                let tally = &thread.tallies[target.op];
                operations += tally.count();
                bytes += tally.bytes();
            }
        }
        (operations, bytes)
    }

    pub(super) fn hog(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        let times = if self.memsize == 0 {
            0
        } else {
            self.draws.draw_whole(op.value)
        };
        // Drawing the number is not part of the work.
        let began = self.now();
        self.memory.store_byte(0, times);
        self.record_operation(at, began, 0);
        Ok(())
    }

    pub(super) fn delay(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        let seconds = self.draws.draw_whole(op.value);
        let began = self.now();
        self.sleep_for(Duration::from_secs(seconds))?;
        self.record_operation(at, began, 0);
        Ok(())
    }

    pub(super) fn print(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        let began = self.now();
        (self.shared.say)(op.message.as_deref().unwrap_or_default());
        self.record_operation(at, began, 0);
        Ok(())
    }

    pub(super) fn test_random(&mut self, at: usize, op: &PlannedFlowop) -> FlowopResult {
        let began = self.now();
        let drawn = self.draws.draw_real(op.value);
        self.shared
            .tested
            .lock()
            .entry(op.name.clone())
            .or_default()
            .add_draw(drawn);
        self.record_operation(at, began, 0);
        Ok(())
    }
}
