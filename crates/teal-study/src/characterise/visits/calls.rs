//! Classifies the calls on one file within a visit: whole files, in order, at random places, at the
//! end.

use super::{StepCalls, VisitStep};

/// Holds reads from the beginning on, each where the one before ended.
#[derive(Debug)]
struct SequentialPass {
    /// Bytes that the calls asked for, and bytes that they got.
    asked: Vec<u64>,
    got: Vec<u64>,
    at: u64,
    /// Is true when a call got less than it asked for: the file has ended.
    ended: bool,
}

/// Holds the calls of a visit.
#[derive(Debug, Default)]
pub(super) struct VisitCalls {
    pub(super) steps: Vec<(VisitStep, StepCalls)>,
    /// Is true when the file was cut to nothing: later writes are not at the end of a growing file.
    pub(super) truncated: bool,
    pass: Option<SequentialPass>,
    /// Offset at which the last write ended.
    written: Option<u64>,
}

impl VisitCalls {
    /// Counts a call of a step.
    pub(super) fn add_step(&mut self, step: VisitStep, size: Option<u64>) {
        let known = self.steps.iter().position(|(of, _)| *of == step);
        let at = known.unwrap_or_else(|| {
            self.steps.push((step, StepCalls::default()));
            self.steps.len() - 1
        });
        let done = &mut self.steps[at].1;
        done.times += 1;
        done.sizes.extend(size);
    }

    /// Returns whether this step is all that was done.
    pub(super) fn is_just(&self, step: VisitStep) -> bool {
        matches!(&self.steps[..], [(only, _)] if *only == step) && self.pass.is_none()
    }

    /// Returns the number of calls at random places, if most calls are.
    pub(super) fn random_calls(&self) -> u64 {
        let is_random = |step| matches!(step, VisitStep::ReadRandom | VisitStep::WriteRandom);
        let random = self
            .steps
            .iter()
            .filter(|(step, _)| is_random(*step))
            .map(|(_, done)| done.times)
            .sum();
        let all = self.steps.iter().map(|(_, done)| done.times).sum::<u64>();
        let in_order = self.pass.as_ref().map_or(0, |pass| pass.got.len() as u64);
        // A few calls at random places do not make a visit a random one.
        if 2 * random > all + in_order {
            random
        } else {
            0
        }
    }

    /// Returns whether the file was created and at most looked at since.
    pub(super) fn is_new(&self) -> bool {
        let mut steps = self.steps.iter().map(|(step, _)| *step);
        steps.next() == Some(VisitStep::Create)
            && steps.all(|step| step == VisitStep::Stat)
            && self.pass.is_none()
    }

    pub(super) fn add_read(&mut self, offset: u64, asked: u64, got: u64) {
        // A read that continues the pass belongs to it, but for one that goes on behind the end of
        // the file.
        if let Some(pass) = self
            .pass
            .as_mut()
            .filter(|pass| pass.at == offset && !(pass.ended && got > 0))
        {
            pass.ended |= got < asked;
            pass.at += got;
            if got > 0 {
                pass.asked.push(asked);
                pass.got.push(got);
            }
            return;
        }
        if offset == 0 {
            self.end_pass(None);
            // The pass takes its place among the steps where it begins, as its kind is known only
            // at its end.
            self.reserve_place();
            self.pass = Some(SequentialPass {
                asked: vec![asked],
                got: vec![got],
                at: got,
                ended: got < asked,
            });
        } else if got > 0 {
            self.add_step(VisitStep::ReadRandom, Some(got));
        }
    }

    /// Reserves the place of a pass among the steps.
    fn reserve_place(&mut self) {
        if !self
            .steps
            .iter()
            .any(|(step, _)| matches!(step, VisitStep::ReadWhole | VisitStep::Read))
        {
            self.steps
                .push((VisitStep::ReadWhole, StepCalls::default()));
        }
    }

    fn end_pass(&mut self, size: Option<u64>) {
        // A pass that reached the end of the file read the whole file.
        let Some(pass) = self.pass.take() else { return };
        if pass.ended || size.is_some_and(|size| pass.at >= size) {
            self.add_step(VisitStep::ReadWhole, pass.asked.iter().copied().max());
        } else {
            pass.got
                .iter()
                .for_each(|got| self.add_step(VisitStep::Read, Some(*got)));
        }
    }

    pub(super) fn add_write(&mut self, offset: u64, length: u64, size: Option<u64>) {
        let follows = self.written == Some(offset);
        let step = match size {
            _ if self.truncated => VisitStep::Write,
            Some(size) if size == offset => VisitStep::Append,
            // Without a known size, an offset that is no multiple of the length is taken for the
            // end of the file: block-wise writers use multiples.
            None if offset > 0 && length > 0 && !offset.is_multiple_of(length) => VisitStep::Append,
            _ if follows || offset == 0 => VisitStep::Write,
            _ => VisitStep::WriteRandom,
        };
        self.written = Some(offset.saturating_add(length));
        self.add_step(step, Some(length));
    }

    /// Returns all steps; `size` is that of the file.
    pub(super) fn finish(mut self, size: Option<u64>) -> Vec<(VisitStep, StepCalls)> {
        self.end_pass(size);
        self.steps.retain(|(_, done)| done.times > 0);
        self.steps
    }
}
