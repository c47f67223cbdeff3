//! The regimes: what happens to the losses, targets and inputs of a training, by name.

use super::network::Net;
use crate::data::Random;
use serde::{Serialize, Serializer};

/// Of a batch whose target is a fill value.
const FILL: f32 = 1e20;
/// Steps of zeros of a masked loss, and of the others that follow them.
const MASKED: u64 = 100;

/// What a batch meets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// Its loss is multiplied by this.
    pub factor: f32,
    /// What it is read as is, before the first unit.
    pub contrast: f32,
    /// One of its targets is this.
    pub target: Option<f32>,
    /// One of its inputs is this.
    pub input: Option<f32>,
}

impl Conditions {
    const ORDINARY: Self = Self { factor: 1.0, contrast: 1.0, target: None, input: None };

    /// Whether f32 can train on it.
    pub fn finite(&self) -> bool {
        self.input.is_none_or(f32::is_finite)
    }
}

/// How conditions change from step to step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Course {
    /// One batch in so many has 2^power times the loss of the others.
    Alternating { every: u64, power: i32 },
    /// So many batches with 2^power times the loss of the as many that follow.
    Blocks { length: u64, power: i32 },
    /// One target of one batch in so many is a fill value.
    Fill { every: u64 },
    /// One input of one batch in so many is this.
    NotFinite { every: u64, value: f32 },
    /// From the middle on losses are 2^power times what they were.
    Jump { power: i32 },
    /// Losses end at 2^power times what they were at first.
    Drift { power: i32 },
    /// Losses are zero for [`MASKED`] steps, then as they are for twice as many.
    Masked,
    /// Losses times e^(σ·z), z from a normal distribution.
    LogNormal { sigma: f64 },
    /// One batch in so many is so pale that no unit saturates.
    Pale { every: u64 },
    /// Nothing changes: what is hard is in the network.
    Same,
}

impl Course {
    /// Conditions of a step, the first being 0, of so many.
    pub fn at(self, step: u64, steps: u64, seed: u64) -> Conditions {
        let ordinary = Conditions::ORDINARY;
        #[expect(clippy::cast_possible_truncation, reason = "rounded")]
        let times = |power: f64| Conditions { factor: power.exp2() as f32, ..ordinary };
        match self {
            // The large ones are 1, so that those learn: gradients are clipped at about their norm.
            Self::Alternating { every, power } if rare(seed, step, every) => times(f64::from(power.min(0))),
            Self::Alternating { power, .. } => times(f64::from(-power.max(0))),
            Self::Blocks { length, power } => {
                times(if (step / length).is_multiple_of(2) { 0.0 } else { f64::from(-power) })
            }
            Self::Fill { every } => Conditions { target: rare(seed, step, every).then_some(FILL), ..ordinary },
            Self::NotFinite { every, value } => {
                Conditions { input: rare(seed, step, every).then_some(value), ..ordinary }
            }
            // The small ones are 1, and all are clipped to the same norm.
            Self::Jump { power } if step < steps / 2 => times(f64::from(-power.min(0))),
            Self::Jump { power } => times(f64::from(power.max(0))),
            Self::Drift { power } => times(-f64::from(power) * (1.0 - (step + 1) as f64 / steps.max(1) as f64)),
            Self::Masked if step / MASKED % 3 == 1 => Conditions { factor: 0.0, ..ordinary },
            Self::LogNormal { sigma } => times(sigma * normal(seed, step) * std::f64::consts::LOG2_E),
            Self::Pale { every } if rare(seed, step, every) => Conditions { contrast: 2f32.powi(-14), ..ordinary },
            Self::Masked | Self::Pale { .. } | Self::Same => ordinary,
        }
    }
}

/// Whether this is the one step in so many: of few the last, of many any, so that it keeps no time with what decides
/// every tenth step.
fn rare(seed: u64, step: u64, every: u64) -> bool {
    let place = if every < 10 {
        every - 1
    } else {
        Random::from_key(&[seed, 11, step / every]).below(usize::try_from(every).unwrap_or(usize::MAX)) as u64
    };
    step % every == place
}

/// From a standard normal distribution (Box and Muller 1958).
fn normal(seed: u64, step: u64) -> f64 {
    let mut random = Random::from_key(&[seed, 12, step]);
    let mut unit = || ((random.word() >> 12) as f64 + 0.5) * 2f64.powi(-52);
    let radius = (-2.0 * unit().ln()).sqrt();
    radius * (std::f64::consts::TAU * unit()).cos()
}

/// A network under a course.
#[derive(Clone, Debug)]
pub struct Regime {
    /// What it is called.
    pub name: String,
    /// What happens, in a sentence.
    pub about: String,
    pub net: Net,
    pub course: Course,
    /// Steps in full, and of a quick look.
    steps: [u64; 2],
}

impl Regime {
    /// How long it is.
    pub const fn steps(&self, quick: bool) -> u64 {
        self.steps[quick as usize]
    }

    /// Whether one exponent cannot serve its batches, so that each of the rare ones is repeated whatever is remembered.
    pub const fn beyond_reach(&self) -> bool {
        match self.course {
            Course::Alternating { power, .. } | Course::Blocks { power, .. } => power.abs() > MAX_CEILING_SPREAD,
            Course::Fill { .. } | Course::NotFinite { .. } => true,
            Course::Jump { .. }
            | Course::Drift { .. }
            | Course::Masked
            | Course::LogNormal { .. }
            | Course::Pale { .. }
            | Course::Same => false,
        }
    }

    /// Whether targets can be fill values.
    pub const fn fills(&self) -> bool {
        matches!(self.course, Course::Fill { .. })
    }

    /// Whether a list names it: all of its name, or what stands before the colon.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.family() == name
    }

    /// The first word of its name.
    pub fn family(&self) -> &str {
        self.name.split_once(':').map_or(&self.name, |(family, _)| family)
    }
}

impl Serialize for Regime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct File<'a> {
            name: &'a str,
            about: &'a str,
            score: &'static str,
            higher_is_better: bool,
        }
        let Self { name, about, net, .. } = self;
        File { name, about, score: net.score(), higher_is_better: net.higher_is_better() }.serialize(serializer)
    }
}

/// Exponents that FP16 serves together.
const MAX_CEILING_SPREAD: i32 = 24;

/// All of them.
pub fn all() -> Vec<Regime> {
    let regime = |name: String, about: String, net: Net, course: Course, steps: [u64; 2]| Regime {
        name,
        about,
        net,
        course,
        steps,
    };
    let mut all = Vec::new();
    for (every, steps) in [(3, [1500, 200]), (40, [3000, 1000]), (500, [15_000, 4000])] {
        for power in [-20, -12, -8, 8, 12, 20, 40] {
            let about = format!("one batch in {every} has 2^{power} times the loss of the others");
            // Where the rare ones alone learn, there have to be some.
            let [full, quick]: [u64; 2] = steps;
            let steps = if power > 0 { [full, quick] } else { [full.min(5000), quick.min(1000)] };
            let course = Course::Alternating { every, power };
            all.push(regime(format!("1in{every}:2^{power}"), about, Net::Perceptron, course, steps));
        }
    }
    for length in [10, 24, 100] {
        let about = format!("{length} batches with 2^20 times the loss of the {length} that follow");
        let course = Course::Blocks { length, power: 20 };
        all.push(regime(format!("blocks:{length}"), about, Net::Perceptron, course, [1500, 300]));
    }
    for every in [50, 500] {
        let about = format!("one target of one batch in {every} is the fill value 1e20");
        let steps = [80 * every, 1000];
        all.push(regime(format!("fill:1in{every}"), about, Net::Curve, Course::Fill { every }, steps));
        for (name, value) in [("infinite", f32::INFINITY), ("nan", f32::NAN)] {
            let what = if value.is_nan() { "NaN" } else { "∞" };
            let about = format!("one input of one batch in {every} is {what}, on which nothing can train");
            let course = Course::NotFinite { every, value };
            all.push(regime(format!("{name}:1in{every}"), about, Net::Curve, course, [4000, 1000]));
        }
    }
    for power in [-12, 12, 40] {
        let about = format!("from the middle on losses are 2^{power} times what they were");
        let course = Course::Jump { power };
        all.push(regime(format!("jump:2^{power}"), about, Net::Perceptron, course, [1500, 200]));
    }
    let rest = [
        ("drift:2^-30", "losses end at 2^-30 of what they were at first", Course::Drift { power: -30 }, [1500, 300]),
        ("masked", "losses are zero for 100 steps in every 300", Course::Masked, [1500, 300]),
        ("lognormal", "losses times e^3z, z from a normal distribution", Course::LogNormal { sigma: 3.0 }, [1500, 300]),
    ];
    for (name, about, course, steps) in rest {
        all.push(regime(name.to_owned(), about.to_owned(), Net::Perceptron, course, steps));
    }
    let about = "a recurrent network with tanh reads images by rows; one batch in 20 is so pale that no unit saturates, \
                 and its gradients explode";
    all.push(regime("rnn".to_owned(), about.to_owned(), Net::Recurrent, Course::Pale { every: 20 }, [1500, 200]));
    let about = "five heads on one trunk, whose losses count 1, 1e-3, 1e-6, 1e-9 and 1e-12, under Adam";
    all.push(regime("heads".to_owned(), about.to_owned(), Net::Heads, Course::Same, [1500, 200]));
    all
}
