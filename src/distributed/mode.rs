//! How gradients travel, and which way is the faster one here.

use super::{Group, ParallelError, Sums, share};
use std::{
    fmt,
    str::FromStr,
    time::{Duration, Instant},
};

/// Values that are sent to try, at most.
const TRIED: usize = 1 << 20;
/// How often; the fastest counts.
const TRIALS: usize = 3;

/// How the gradients of ranks are added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exchange {
    /// As halves, exactly, and rounded once: the same bits for any number of ranks, with half the bytes where each rank
    /// has one part.
    #[default]
    Exact,
    /// In f32, by the engine's own all-reduce: bits depend on the number of ranks, and on the engine.
    Fast,
}

impl Exchange {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Exact, Self::Fast];
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exact => "exact",
            Self::Fast => "fast",
        })
    }
}

impl FromStr for Exchange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|one| one.to_string() == text);
        found.ok_or_else(|| format!("there is no exchange {text}: exact or fast"))
    }
}

/// Weights that travel together, at least and as a share of all: few enough that most are on their way before the backward
/// pass is over, enough that messages are not what takes the time.
const LEAST: usize = 1 << 16;
const SHARE: usize = 16;

/// When gradients travel: bits are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// While the backward pass of a rank's last part goes on, as soon as they are there: 65536 together or a sixteenth of
    /// all, whichever is more.
    #[default]
    On,
    /// The same, so many or more together: the gradient of a parameter is not divided.
    Of(usize),
    /// When the backward pass is over.
    Off,
}

impl Overlap {
    /// How many of so many weights travel together; none where all do.
    pub(crate) fn together(self, weights: usize) -> Option<usize> {
        match self {
            Self::On => Some((weights / SHARE).max(LEAST)),
            Self::Of(count) => Some(count),
            Self::Off => None,
        }
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::On => f.write_str("on"),
            Self::Of(count) => write!(f, "{count}"),
            Self::Off => f.write_str("off"),
        }
    }
}

impl FromStr for Overlap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("on", _) => Ok(Self::On),
            ("off", _) => Ok(Self::Off),
            (_, Ok(count)) if count > 0 => Ok(Self::Of(count)),
            _ => Err(format!("there is no overlap {text}: on, off, or how many weights travel together")),
        }
    }
}

/// What the ways of a group's gradients take, for one step: that of the slowest rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// [`Exchange::Exact`].
    pub exact: Duration,
    /// [`Exchange::Fast`].
    pub fast: Duration,
}

impl Measured {
    /// The faster one.
    #[must_use]
    pub fn fastest(&self) -> Exchange {
        if self.fast < self.exact { Exchange::Fast } else { Exchange::Exact }
    }
}

impl Group {
    /// How long the gradients of so many weights, in so many parts, are on their way, by trying; all ranks get the same
    /// answer. Of many weights some are sent, and their time is taken for a share of the whole.
    ///
    /// # Errors
    /// A rank that is gone or has failed.
    pub fn measure(&self, weights: usize, parts: u32) -> Result<Measured, ParallelError> {
        let tried = weights.clamp(1, TRIED);
        let Measured { exact, fast } = self.race(|exchange| {
            let mut sums = Sums::new(exchange, tried, (parts, self.rank(), self.size()));
            for _ in 0..share(parts, self.rank(), self.size()) {
                sums.add(0, &vec![1.0; tried], Some(0));
            }
            self.mean(sums, parts).map(drop)
        })?;
        let whole = |time: Duration| time.mul_f64(weights as f64 / tried as f64);
        Ok(Measured { exact: whole(exact), fast: whole(fast) })
    }

    /// The least that each way takes, on the slowest rank.
    pub(crate) fn race<E: From<ParallelError>>(
        &self, mut once: impl FnMut(Exchange) -> Result<(), E>,
    ) -> Result<Measured, E> {
        let mut times = [Duration::ZERO; 2];
        for (time, exchange) in times.iter_mut().zip(Exchange::ALL) {
            let mut least = Duration::MAX;
            for _ in 0..TRIALS {
                // All begin together.
                self.numbers(0)?;
                let start = Instant::now();
                once(exchange)?;
                least = least.min(start.elapsed());
            }
            let nanoseconds = u64::try_from(least.as_nanos()).unwrap_or(u64::MAX);
            let slowest = self.numbers(nanoseconds)?.into_iter().max().unwrap_or(nanoseconds);
            *time = Duration::from_nanos(slowest);
        }
        let [exact, fast] = times;
        Ok(Measured { exact, fast })
    }
}
