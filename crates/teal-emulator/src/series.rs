//! Power over time: joules by bins of time, in memory that does not grow.
//!
//! # Guarantees
//! 1. *Complete*: the bins hold all energy that was booked since the beginning, to the femtojoule,
//!    each part in the bins of the time in which it was spent. What takes time is spent evenly over
//!    it.
//! 2. *Bounded*: there are never more than [`EnergySeries::BINS_MAX`] bins. When time goes beyond
//!    the last, each two become one, and bins are twice as wide.
//! 3. *Whole*: as microjoules they sum up to the total that they are given, which rounds by use,
//!    not by time; each end of a bin is off by no more than that differs.

#[cfg(test)]
mod tests;

use teal_types::{Energy, Power, TimeSpan};

/// Microwatts times nanoseconds: 10^-15 J.
type Femtojoules = u128;
const PER_MICROJOULE: Femtojoules = 1_000_000_000;

/// Joules over the time since a beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnergySeries {
    /// The time up to which everything is in the bins.
    passed: TimeSpan,
    width: TimeSpan,
    bins: Vec<Femtojoules>,
}

impl Default for EnergySeries {
    fn default() -> Self {
        Self {
            passed: TimeSpan::ZERO,
            width: Self::FIRST_WIDTH,
            bins: Vec::with_capacity(Self::BINS_MAX),
        }
    }
}

impl EnergySeries {
    /// The most bins.
    pub const BINS_MAX: usize = 64;
    /// The width of bins at first.
    pub const FIRST_WIDTH: TimeSpan = TimeSpan::from_millis(1);

    /// Returns the width of the bins. The last ends with the time that has passed.
    pub fn width(&self) -> TimeSpan {
        self.width
    }

    /// Returns the length of the series.
    pub fn passed(&self) -> TimeSpan {
        self.passed
    }

    /// Returns the joules of each bin, in the order of time; they sum up to `total`.
    pub fn bins(&self, total: Energy) -> Vec<Energy> {
        // Sums are rounded instead of bins, so that errors do not add up.
        let (mut sum, mut before) = (0, 0);
        let mut bins = Vec::with_capacity(self.bins.len());
        debug_assert!(self.bins.len() <= Self::BINS_MAX);
        for (at, bin) in self.bins.iter().enumerate() {
            sum += bin;
            let rounded =
                u64::try_from((sum + PER_MICROJOULE / 2) / PER_MICROJOULE).unwrap_or(u64::MAX);
            let until = if at + 1 == self.bins.len() {
                total.get()
            } else {
                rounded.min(total.get())
            };
            bins.push(Energy::from_microjoules(until - before));
            before = until;
        }
        bins
    }

    /// Books `time` at `power`, after all that was booked before.
    pub(crate) fn add_power(&mut self, power: Power, time: TimeSpan) {
        let power = Femtojoules::from(power.get());
        self.distribute(time, |part| power * Femtojoules::from(part.get()));
    }

    /// Books energy that is known as a whole, spent evenly over `time`.
    pub(crate) fn add_energy(&mut self, time: TimeSpan, energy: Energy) {
        let all = Femtojoules::from(energy.get()) * PER_MICROJOULE;
        match Femtojoules::from(time.get()) {
            // Without time, the energy goes to the last moment that has passed.
            0 => self.add_to_bin(self.passed.get().saturating_sub(1) / self.width.get(), all),
            whole => self.distribute(time, |part| all * Femtojoules::from(part.get()) / whole),
        }
    }

    /// Puts energy into the bins of a time. `spent` returns the energy of so much of the time from
    /// its beginning.
    fn distribute(&mut self, time: TimeSpan, spent: impl Fn(TimeSpan) -> Femtojoules) {
        // In nanoseconds, as the widths of bins are.
        let (from, until) = (self.passed.get(), (self.passed + time).get());
        // Widened first: below, each bin is within the limit.
        while until.div_ceil(self.width.get()) > Self::BINS_MAX as u64 {
            self.double_bin_width();
        }
        let (mut at, mut before) = (from, 0);
        while at < until {
            let bin = at / self.width.get();
            at = until.min((bin + 1).saturating_mul(self.width.get()));
            // The difference of two sums, so that the bins together hold all of it.
            let so_far = spent(TimeSpan::from_nanos(at - from));
            self.add_to_bin(bin, so_far - before);
            before = so_far;
        }
        self.passed = TimeSpan::from_nanos(until);
        debug_assert!(self.bins.len() <= Self::BINS_MAX);
    }

    fn add_to_bin(&mut self, bin: u64, energy: Femtojoules) {
        let bin = bin as usize;
        debug_assert!(bin < Self::BINS_MAX, "bin {bin} is beyond the last");
        if bin >= self.bins.len() {
            self.bins.resize(bin + 1, 0);
        }
        self.bins[bin] += energy;
    }

    /// Makes one bin of each two.
    fn double_bin_width(&mut self) {
        for at in 0..self.bins.len().div_ceil(2) {
            self.bins[at] = self.bins[2 * at] + self.bins.get(2 * at + 1).copied().unwrap_or(0);
        }
        self.bins.truncate(self.bins.len().div_ceil(2));
        self.width = self.width * 2;
    }
}
