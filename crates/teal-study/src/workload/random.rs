//! Random variables: what they are, and drawing them.
//!
//! # Guarantees
//! 1. The same seed gives the same values; who draws has a stream of its own, so that no thread
//!    waits for another and the order of threads changes nothing.
//! 2. What is drawn is never negative and never not a number.

use crate::numbers::{Numbers, mix};

/// How values are spread.
#[derive(Debug, Clone, PartialEq)]
pub enum Spread {
    /// Between min and 2 mean - min.
    Uniform,
    /// Gamma of this shape; without a mean the mean is the shape.
    Gamma(f64),
    /// A hundred parts of one percent each: low and high.
    Tabular(Vec<(f64, f64)>),
    /// Of `cvar`: between two bounds.
    Between(f64, f64),
    /// Of `cvar`: mean and sigma.
    Normal(f64, f64),
    /// Of `cvar`: sigma and mean of the logarithm.
    LogNormal(f64, f64),
    /// Of `cvar`: mean.
    Exponential(f64),
    /// Of `cvar`: mean and shape.
    GammaOf(f64, f64),
    /// Of `cvar`: shape and rate.
    Erlang(f64, f64),
    /// Of `cvar`: shape and scale.
    Weibull(f64, f64),
    /// Of `cvar`: lower, upper, mode.
    Triangular(f64, f64, f64),
}

/// A random variable.
#[derive(Debug, Clone, PartialEq)]
pub struct Random {
    /// Its name, without `$`.
    pub name: String,
    /// How its values are spread.
    pub spread: Spread,
    /// Least value.
    pub min: f64,
    /// Largest value, of `cvar`.
    pub max: f64,
    /// Mean, of `randvar`.
    pub mean: Option<f64>,
    /// Values are multiples of this; 0: as they are.
    pub round: f64,
    /// What its streams begin with.
    pub seed: u64,
}

/// A sequence of random numbers.
#[derive(Debug, Clone)]
pub struct Stream(Numbers);

impl Stream {
    /// The stream of this seed, for this purpose.
    pub fn new(seed: u64, purpose: u64) -> Self {
        Self(Numbers::new(mix(seed) ^ purpose))
    }

    /// Below 1, from 0 on.
    pub fn unit(&mut self) -> f64 {
        (self.0.any() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Below `end`; 0 if that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    /// A number of all there are.
    pub fn any(&mut self) -> u64 {
        self.0.any()
    }

    fn positive(&mut self) -> f64 {
        1.0 - self.unit()
    }

    fn exponential(&mut self) -> f64 {
        -self.positive().ln()
    }

    fn normal(&mut self) -> f64 {
        (2.0 * self.exponential()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Of mean `shape` (Marsaglia and Tsang; shapes below 1 by a power of a uniform number).
    pub fn gamma(&mut self, shape: f64) -> f64 {
        if shape <= 0.0 {
            return 0.0;
        }
        if shape < 1.0 {
            return self.gamma(shape + 1.0) * self.positive().powf(1.0 / shape);
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.positive().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }
}

impl Random {
    /// The stream that one thread draws this variable from.
    pub fn stream(&self, seed: u64, thread: u64) -> Stream {
        Stream::new(
            seed ^ mix(self.seed),
            mix(thread.wrapping_add(1)) ^ 0x7661_7261,
        )
    }

    /// A value.
    pub fn draw(&self, from: &mut Stream) -> f64 {
        let value = match &self.spread {
            Spread::Uniform => {
                self.min + from.unit() * 2.0 * (self.mean.unwrap_or(self.min) - self.min)
            }
            Spread::Gamma(shape) => {
                let mean = self.mean.unwrap_or(*shape);
                self.min + from.gamma(*shape) * (mean - self.min) / shape
            }
            Spread::Tabular(slots) => self.tabular(slots, from),
            Spread::Between(low, high) => low + from.unit() * (high - low),
            Spread::Normal(mean, sigma) => mean + sigma * from.normal(),
            Spread::LogNormal(shape, scale) => (scale + shape * from.normal()).exp(),
            Spread::Exponential(mean) => mean * from.exponential(),
            Spread::GammaOf(mean, shape) => from.gamma(*shape) * mean / shape,
            Spread::Erlang(shape, rate) => {
                (0..(*shape as u64).max(1))
                    .map(|_| from.exponential())
                    .sum::<f64>()
                    / rate
            }
            Spread::Weibull(shape, scale) => scale * from.exponential().powf(1.0 / shape),
            Spread::Triangular(low, high, mode) => {
                let (unit, width) = (from.unit(), high - low);
                if unit * width < mode - low {
                    low + (unit * width * (mode - low)).sqrt()
                } else {
                    high - ((1.0 - unit) * width * (high - mode)).sqrt()
                }
            }
        };
        self.settle(value)
    }

    /// Slot and position are drawn evenly; then the table is stretched to the mean and least value
    /// asked for.
    fn tabular(&self, slots: &[(f64, f64)], from: &mut Stream) -> f64 {
        let Some((low, high)) = slots.get(from.below(slots.len() as u64) as usize) else {
            return self.min;
        };
        let drawn = low + from.unit() * (high - low);
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
    fn settle(&self, value: f64) -> f64 {
        let custom = !matches!(
            self.spread,
            Spread::Uniform | Spread::Gamma(_) | Spread::Tabular(_)
        );
        let rounded = match self.round {
            round if round <= 0.0 => value,
            // A half goes down.
            round if custom => (value / round - 0.5).ceil() * round,
            round => (value / round).round() * round,
        };
        let bounded = if custom {
            rounded.min(self.max).max(self.min)
        } else {
            rounded
        };
        // What is not a number is taken for 0.
        bounded.max(0.0)
    }
}

/// A number that is fixed or drawn anew at each use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    /// Always this.
    Fixed(u64),
    /// Drawn from the random variable of this index.
    Drawn(usize),
}

impl Default for Number {
    fn default() -> Self {
        Self::Fixed(0)
    }
}

impl Number {
    /// Returns whether it is 0 for certain.
    pub fn is_zero(self) -> bool {
        self == Self::Fixed(0)
    }
}

/// The streams of one thread: one for each random variable.
#[derive(Debug)]
pub struct Draws<'a> {
    randoms: &'a [Random],
    streams: Vec<Stream>,
}

impl<'a> Draws<'a> {
    /// Those of one thread of a run.
    pub fn new(randoms: &'a [Random], seed: u64, thread: u64) -> Self {
        Self {
            randoms,
            streams: randoms
                .iter()
                .map(|random| random.stream(seed, thread))
                .collect(),
        }
    }

    /// The value now.
    pub fn real(&mut self, number: Number) -> f64 {
        match number {
            Number::Fixed(n) => n as f64,
            Number::Drawn(which) => self.randoms[which].draw(&mut self.streams[which]),
        }
    }

    /// The value now, its integer part.
    pub fn whole(&mut self, number: Number) -> u64 {
        match number {
            Number::Fixed(n) => n,
            Number::Drawn(_) => self.real(number) as u64,
        }
    }
}

#[cfg(test)]
mod tests;
