//! Calls on one file within a visit: whole files, in order, at random, at the end.

use super::{Done, Step};

/// Reads from the beginning on, one behind the other.
#[derive(Debug)]
struct Pass {
    /// What the calls asked for, and what they got.
    asked: Vec<u64>,
    got: Vec<u64>,
    at: u64,
    /// A call got less than it asked for.
    ended: bool,
}

/// What was called.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) steps: Vec<(Step, Done)>,
    /// It was cut to nothing: what is written then is not at the end of a growing file.
    pub(super) truncated: bool,
    pass: Option<Pass>,
    /// Where the last write ended.
    written: Option<u64>,
}

impl Calls {
    /// Another time of a step.
    pub(super) fn step(&mut self, step: Step, size: Option<u64>) {
        let known = self.steps.iter().position(|(of, _)| *of == step);
        let at = known.unwrap_or_else(|| {
            self.steps.push((step, Done::default()));
            self.steps.len() - 1
        });
        let done = &mut self.steps[at].1;
        done.times += 1;
        done.sizes.extend(size);
    }

    /// Returns whether nothing else was done.
    pub(super) fn is_just(&self, step: Step) -> bool {
        matches!(&self.steps[..], [(only, _)] if *only == step) && self.pass.is_none()
    }

    /// Returns how many calls were at random places, if most were.
    pub(super) fn random(&self) -> u64 {
        let is_random = |step| matches!(step, Step::ReadRandom | Step::WriteRandom);
        let random = self
            .steps
            .iter()
            .filter(|(step, _)| is_random(*step))
            .map(|(_, done)| done.times)
            .sum();
        let all = self.steps.iter().map(|(_, done)| done.times).sum::<u64>();
        let in_order = self.pass.as_ref().map_or(0, |pass| pass.got.len() as u64);
        if 2 * random > all + in_order {
            random
        } else {
            0
        }
    }

    /// Returns whether it was made, and nothing else was done but looking at it.
    pub(super) fn is_new(&self) -> bool {
        let mut steps = self.steps.iter().map(|(step, _)| *step);
        steps.next() == Some(Step::Create)
            && steps.all(|step| step == Step::Stat)
            && self.pass.is_none()
    }

    pub(super) fn read(&mut self, offset: u64, asked: u64, got: u64) {
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
            // It has its place among the steps where it begins.
            self.place();
            self.pass = Some(Pass {
                asked: vec![asked],
                got: vec![got],
                at: got,
                ended: got < asked,
            });
        } else if got > 0 {
            self.step(Step::ReadRandom, Some(got));
        }
    }

    /// Keeps the place of a pass among the steps, whatever it will be.
    fn place(&mut self) {
        if !self
            .steps
            .iter()
            .any(|(step, _)| matches!(step, Step::ReadWhole | Step::Read))
        {
            self.steps.push((Step::ReadWhole, Done::default()));
        }
    }

    fn end_pass(&mut self, size: Option<u64>) {
        let Some(pass) = self.pass.take() else { return };
        if pass.ended || size.is_some_and(|size| pass.at >= size) {
            self.step(Step::ReadWhole, pass.asked.iter().copied().max());
        } else {
            pass.got
                .iter()
                .for_each(|got| self.step(Step::Read, Some(*got)));
        }
    }

    pub(super) fn write(&mut self, offset: u64, length: u64, size: Option<u64>) {
        let follows = self.written == Some(offset);
        let step = match size {
            _ if self.truncated => Step::Write,
            Some(size) if size == offset => Step::Append,
            // Where a file ends that nobody has told of is not known: what lies on a multiple of
            // its length is taken for a place.
            None if offset > 0 && length > 0 && !offset.is_multiple_of(length) => Step::Append,
            _ if follows || offset == 0 => Step::Write,
            _ => Step::WriteRandom,
        };
        self.written = Some(offset.saturating_add(length));
        self.step(step, Some(length));
    }

    /// All steps; `size` is that of the file.
    pub(super) fn end(mut self, size: Option<u64>) -> Vec<(Step, Done)> {
        self.end_pass(size);
        self.steps.retain(|(_, done)| done.times > 0);
        self.steps
    }
}
