//! Flowops without a file: waiting for each other, limits, ends, time, noise.

use super::super::plan::Op;
use super::super::shared::Meeting;
use super::super::waiting::Waited;
use super::{Leave, Went, Worker};
use crate::wml::Kind;
use std::time::Duration;
use teal_env::Timer;

/// Bytes that `bwlimit` takes for one event.
const EVENT_BYTES: u64 = 1 << 20;

impl<T: Timer> Worker<'_, T> {
    fn waited(&self, op: &Op, waited: Waited) -> Went {
        match waited {
            Waited::Got => Ok(()),
            Waited::Stopped => Err(Leave::Stopped),
            Waited::TimedOut => Err(self.refused(op, "nobody has posted in ten minutes")),
        }
    }

    pub(super) fn block(&mut self, at: usize, op: &Op) -> Went {
        let began = self.now();
        if let Some(Meeting::Gate(gate)) = &self.me.meetings[at] {
            self.waited(op, gate.pass(&self.shared.stop))?;
        }
        self.did(at, began, 0);
        Ok(())
    }

    pub(super) fn wake_up(&mut self, at: usize, op: &Op) -> Went {
        let began = self.now();
        for meeting in self.shared.meetings(&op.targets) {
            if let Meeting::Gate(gate) = meeting {
                gate.open();
            }
        }
        self.did(at, began, 0);
        Ok(())
    }

    pub(super) fn sem_block(&mut self, at: usize, op: &Op) -> Went {
        let value = self.draws.whole(op.value);
        let began = self.now();
        if let Some(Meeting::Semaphore(semaphore)) = &self.me.meetings[at] {
            self.waited(op, semaphore.block(value, &self.shared.stop))?;
        }
        self.did(at, began, 0);
        Ok(())
    }

    pub(super) fn sem_post(&mut self, at: usize, op: &Op) -> Went {
        let value = self.draws.whole(op.value);
        let began = self.now();
        for meeting in self.shared.meetings(&op.targets) {
            if let Meeting::Semaphore(semaphore) = meeting {
                self.waited(op, semaphore.post(value, op.blocking, &self.shared.stop))?;
            }
        }
        self.did(at, began, 0);
        Ok(())
    }

    /// Waits until so many events have happened; without a source, not at all.
    fn events(&mut self, count: u64) -> Went {
        let Some(rate) = self.shared.plan.rate else {
            return Ok(());
        };
        let rate = self.draws.real(rate);
        if rate > 0.0 && count > 0 {
            let wait = self.shared.events.take(count, rate, self.now());
            self.sleep(wait)?;
        }
        Ok(())
    }

    fn sleep(&self, time: Duration) -> Went {
        let until = self.shared.clock.monotonic() + time;
        loop {
            if self.shared.stop.is_set() {
                return Err(Leave::Stopped);
            }
            match until.checked_sub(self.shared.clock.monotonic()) {
                Some(left) if !left.is_zero() => self.shared.stop.sleep(left),
                _ => return Ok(()),
            }
        }
    }

    pub(super) fn event_limit(&mut self, at: usize) -> Went {
        let began = self.now();
        self.events(1)?;
        self.did(at, began, 0);
        Ok(())
    }

    /// Returns what this thread (by its target, or by all it does) has done since this limit last
    /// looked is waited for. Filebench lets a limit without a target charge what the whole process
    /// has done to each of its threads.
    pub(super) fn limit(&mut self, at: usize, op: &Op) -> Went {
        let began = self.now();
        let done = if op.targets.is_empty() {
            let strict = self.shared.plan.options.strict;
            let threads = if strict {
                self.shared.process_of(self.me)
            } else {
                std::slice::from_ref(self.me)
            };
            threads
                .iter()
                .map(|thread| match op.kind {
                    Kind::IopsLimit => thread.totals.transfers(),
                    Kind::OpsLimit => thread.totals.operations(),
                    _ => thread.totals.bytes(),
                })
                .sum()
        } else {
            let tallies = op.targets.iter().map(|id| &self.me.tallies[id.op]);
            tallies
                .map(|tally| {
                    if op.kind == Kind::BwLimit {
                        tally.bytes()
                    } else {
                        tally.count()
                    }
                })
                .sum::<u64>()
        };
        let unit = if op.kind == Kind::BwLimit {
            EVENT_BYTES
        } else {
            1
        };
        let seen = self.seen[at].unwrap_or(done);
        let events = done.saturating_sub(seen) / unit;
        // What is less than an event is charged the next time.
        self.seen[at] = Some(seen + events * unit);
        self.events(events)?;
        self.did(at, began, 0);
        Ok(())
    }

    pub(super) fn finish_on(&mut self, at: usize, op: &Op) -> Went {
        let began = self.now();
        let count = op.kind == Kind::FinishOnCount;
        let done: u64 = if op.targets.is_empty() {
            let threads = self.shared.process_of(self.me).iter();
            threads
                .map(|thread| {
                    if count {
                        thread.totals.operations()
                    } else {
                        thread.totals.bytes()
                    }
                })
                .sum()
        } else {
            let tallies = op.targets.iter().flat_map(|id| {
                self.shared
                    .instances(*id)
                    .map(|thread| &thread.tallies[id.op])
            });
            tallies
                .map(|tally| if count { tally.count() } else { tally.bytes() })
                .sum()
        };
        self.did(at, began, 0);
        let value = self.constants[at].1;
        if if count { done >= value } else { done > value } {
            return Err(Leave::Done(format!(
                "flowop '{}' has reached {value}",
                op.name
            )));
        }
        Ok(())
    }

    pub(super) fn hog(&mut self, at: usize, op: &Op) -> Went {
        let times = if self.memsize == 0 {
            0
        } else {
            self.draws.whole(op.value)
        };
        let began = self.now();
        (0..times).for_each(|_| self.memory.touch(0));
        self.did(at, began, 0);
        Ok(())
    }

    pub(super) fn delay(&mut self, at: usize, op: &Op) -> Went {
        let seconds = self.draws.whole(op.value);
        let began = self.now();
        self.sleep(Duration::from_secs(seconds))?;
        self.did(at, began, 0);
        Ok(())
    }

    pub(super) fn print(&mut self, at: usize, op: &Op) -> Went {
        let began = self.now();
        (self.shared.say)(op.message.as_deref().unwrap_or_default());
        self.did(at, began, 0);
        Ok(())
    }

    pub(super) fn test_random(&mut self, at: usize, op: &Op) -> Went {
        let began = self.now();
        let drawn = self.draws.real(op.value);
        self.shared
            .tested
            .lock()
            .entry(op.name.clone())
            .or_default()
            .add(drawn);
        self.did(at, began, 0);
        Ok(())
    }
}
