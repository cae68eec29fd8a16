//! Describes random variables, and draws from them.
//!
//! # Guarantees
//! 1. The same seed gives the same values. Each thread has a stream of its own, so that no thread
//!    waits for another and the order of threads changes nothing.
//! 2. Drawn values are never negative and always numbers.

use crate::numbers::{SeededNumbers, mix_bits};

/// Names the distribution of values.
#[derive(Debug, Clone, PartialEq)]
pub enum Distribution {
    /// Even between min and 2 mean - min.
    Uniform,
    /// Gamma of this shape; without a mean the mean is the shape.
    Gamma(f64),
    /// A hundred slots of one percent each: low and high.
    Tabular(Vec<(f64, f64)>),
    /// `cvar`: even between two bounds.
    Between(f64, f64),
    /// `cvar`: normal of mean and sigma.
    Normal(f64, f64),
    /// `cvar`: log-normal of sigma and mean of the logarithm.
    LogNormal(f64, f64),
    /// `cvar`: exponential of mean.
    Exponential(f64),
    /// `cvar`: gamma of mean and shape.
    GammaOf(f64, f64),
    /// `cvar`: Erlang of shape and rate.
    Erlang(f64, f64),
    /// `cvar`: Weibull of shape and scale.
    Weibull(f64, f64),
    /// `cvar`: triangular of lower, upper and mode.
    Triangular(f64, f64, f64),
}

/// Describes a random variable.
#[derive(Debug, Clone, PartialEq)]
pub struct RandomVariable {
    /// Name, without `$`.
    pub name: String,
    /// Distribution of its values.
    pub distribution: Distribution,
    /// Least value.
    pub min: f64,
    /// Largest value, of `cvar`.
    pub max: f64,
    /// Mean, of `randvar`.
    pub mean: Option<f64>,
    /// Values are multiples of this; 0 leaves them as they are.
    pub round: f64,
    /// Seed of its streams.
    pub seed: u64,
}

/// Draws a sequence of random numbers.
#[derive(Debug, Clone)]
pub struct RandomStream(SeededNumbers);

impl RandomStream {
    /// Starts the stream of this seed, for this purpose.
    pub fn new(seed: u64, purpose: u64) -> Self {
        Self(SeededNumbers::new(mix_bits(seed) ^ purpose))
    }

    /// Draws from 0 to below 1.
    pub fn next_unit(&mut self) -> f64 {
        // A double holds 53 bits exactly.
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Draws below `end`; 0 if that is 0.
    pub fn next_below(&mut self, end: u64) -> u64 {
        self.0.next_below(end)
    }

    /// Draws any number.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn next_positive(&mut self) -> f64 {
        // Never 0, so that its logarithm is finite.
        1.0 - self.next_unit()
    }

    fn draw_exponential(&mut self) -> f64 {
        -self.next_positive().ln()
    }

    fn draw_normal(&mut self) -> f64 {
        // Box and Muller.
        (2.0 * self.draw_exponential()).sqrt() * (std::f64::consts::TAU * self.next_unit()).cos()
    }

    /// Draws from a gamma distribution of mean `shape` (Marsaglia and Tsang; shapes below 1 by a
    /// power of a uniform number).
    pub fn draw_gamma(&mut self, shape: f64) -> f64 {
        if shape <= 0.0 {
            return 0.0;
        }
        if shape < 1.0 {
            return self.draw_gamma(shape + 1.0) * self.next_positive().powf(1.0 / shape);
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.draw_normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.next_positive().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }
}

impl RandomVariable {
    /// Returns the stream from which one thread draws this variable.
    pub fn stream_for_thread(&self, seed: u64, thread: u64) -> RandomStream {
        RandomStream::new(
            seed ^ mix_bits(self.seed),
            mix_bits(thread.wrapping_add(1)) ^ 0x7661_7261,
        )
    }

    /// Draws a value.
    pub fn draw(&self, from: &mut RandomStream) -> f64 {
        let value = match &self.distribution {
            Distribution::Uniform => {
                self.min + from.next_unit() * 2.0 * (self.mean.unwrap_or(self.min) - self.min)
            }
            Distribution::Gamma(shape) => {
                let mean = self.mean.unwrap_or(*shape);
                self.min + from.draw_gamma(*shape) * (mean - self.min) / shape
            }
            Distribution::Tabular(slots) => self.draw_tabular(slots, from),
            Distribution::Between(low, high) => low + from.next_unit() * (high - low),
            Distribution::Normal(mean, sigma) => mean + sigma * from.draw_normal(),
            Distribution::LogNormal(shape, scale) => (scale + shape * from.draw_normal()).exp(),
            Distribution::Exponential(mean) => mean * from.draw_exponential(),
            Distribution::GammaOf(mean, shape) => from.draw_gamma(*shape) * mean / shape,
            // A sum of exponential values; the shape is limited where it is parsed.
            Distribution::Erlang(shape, rate) => {
                (0..(*shape as u64).max(1))
                    .map(|_| from.draw_exponential())
                    .sum::<f64>()
                    / rate
            }
            Distribution::Weibull(shape, scale) => {
                scale * from.draw_exponential().powf(1.0 / shape)
            }
            Distribution::Triangular(low, high, mode) => {
                // The inverse of the distribution, on both sides of the mode.
                let (unit, width) = (from.next_unit(), high - low);
                if unit * width < mode - low {
                    low + (unit * width * (mode - low)).sqrt()
                } else {
                    high - ((1.0 - unit) * width * (high - mode)).sqrt()
                }
            }
        };
        self.round_and_bound(value)
    }

    /// Draws from a table: slot and position are even. Then the table is stretched to the mean and
    /// least value that are asked for.
    fn draw_tabular(&self, slots: &[(f64, f64)], from: &mut RandomStream) -> f64 {
        // The slot is even, as each holds one percent.
        let Some((low, high)) = slots.get(from.next_below(slots.len() as u64) as usize) else {
            return self.min;
        };
        let drawn = low + from.next_unit() * (high - low);
        // The table's own least value and mean are moved to those that were asked for.
        let least = slots
            .iter()
            .map(|(low, _)| *low)
            .fold(f64::INFINITY, f64::min);
        let mean = slots
            .iter()
            .map(|(low, high)| (low + high) / 2.0)
            .sum::<f64>()
            / slots.len() as f64;
        match self.mean {
            Some(wanted) if mean > least => {
                (drawn - least) / (mean - least) * (wanted - self.min) + self.min
            }
            _ => drawn,
        }
    }

    /// Rounds, then keeps within the bounds.
    fn round_and_bound(&self, value: f64) -> f64 {
        let custom = !matches!(
            self.distribution,
            Distribution::Uniform | Distribution::Gamma(_) | Distribution::Tabular(_)
        );
        let rounded = match self.round {
            round if round <= 0.0 => value,
            // cvar rounds a half down, randvar up.
            round if custom => (value / round - 0.5).ceil() * round,
            round => (value / round).round() * round,
        };
        let bounded = if custom {
            rounded.min(self.max).max(self.min)
        } else {
            rounded
        };
        // `max` turns a value that is not a number into 0.
        bounded.max(0.0)
    }
}

/// Holds a number that is fixed, or drawn anew at each use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FixedOrDrawn {
    /// Always this number.
    Fixed(u64),
    /// Drawn from the random variable of this index.
    Drawn(usize),
}

impl Default for FixedOrDrawn {
    fn default() -> Self {
        Self::Fixed(0)
    }
}

impl FixedOrDrawn {
    /// Returns whether it is 0 for certain.
    pub fn is_zero(self) -> bool {
        self == Self::Fixed(0)
    }
}

/// Holds the streams of one thread: one for each random variable.
#[derive(Debug)]
pub struct ThreadDraws<'a> {
    randoms: &'a [RandomVariable],
    streams: Vec<RandomStream>,
}

impl<'a> ThreadDraws<'a> {
    /// Starts the streams of one thread of a run.
    pub fn new(randoms: &'a [RandomVariable], seed: u64, thread: u64) -> Self {
        Self {
            randoms,
            streams: randoms
                .iter()
                .map(|random| random.stream_for_thread(seed, thread))
                .collect(),
        }
    }

    /// Returns the value now.
    pub fn draw_real(&mut self, number: FixedOrDrawn) -> f64 {
        match number {
            FixedOrDrawn::Fixed(n) => n as f64,
            FixedOrDrawn::Drawn(which) => self.randoms[which].draw(&mut self.streams[which]),
        }
    }

    /// Returns the integer part of the value now.
    pub fn draw_whole(&mut self, number: FixedOrDrawn) -> u64 {
        match number {
            FixedOrDrawn::Fixed(n) => n,
            FixedOrDrawn::Drawn(_) => self.draw_real(number) as u64,
        }
    }
}

#[cfg(test)]
mod tests;
