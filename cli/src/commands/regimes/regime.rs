//! Regimes by name: conditions of losses, targets and inputs during a training.

use super::{
    classifier::{BATCH, Damage},
    eight_bits::Spread,
    images::Images,
    learn::Conditions,
    network::Net,
};
use crate::{build_feature::BuildFeature, data::Random};
use serde::{Serialize, Serializer};

/// Fill value of targets: a typical placeholder for missing data.
const FILL: f32 = 1e20;
/// Steps of zeros of a masked loss, and of the others that follow them.
const MASKED: u64 = 100;

/// Course of a regime: the conditions of its batches over the steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Course {
    /// Course in which one batch in `every` has its loss multiplied by 2^power.
    Alternating { every: u64, power: i32 },
    /// Blocks of `length` batches, alternately with 2^power times the loss and with the ordinary one.
    Blocks { length: u64, power: i32 },
    /// Course in which one batch in `every` has a fill value as a target.
    Fill { every: u64 },
    /// Course in which one batch in `every` has `value` as an input.
    NotFinite { every: u64, value: f32 },
    /// Course in which losses are multiplied by 2^power from the middle of the training on.
    Jump { power: i32 },
    /// Course in which losses drift gradually to 2^power times the first.
    Drift { power: i32 },
    /// Course in which losses are zero for [`MASKED`] steps, then unchanged for twice as many.
    Masked,
    /// Course in which losses are multiplied by e^(σ·z), with z from a normal distribution.
    LogNormal { sigma: f64 },
    /// Course in which one batch in `every` has so little contrast that no unit saturates.
    Pale { every: u64 },
    /// Course of constant conditions; the difficulty is in the network.
    Same,
}

impl Course {
    /// Returns the conditions of a step, counted from 0, of a training of `steps` steps.
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

/// Returns true for one step in `every`: the last one of each group, or for large groups a random one, so that it does
/// not coincide with decisions every tenth step.
fn rare(seed: u64, step: u64, every: u64) -> bool {
    let place = if every < 10 {
        every - 1
    } else {
        Random::from_key(&[seed, 11, step / every]).below(usize::try_from(every).unwrap_or(usize::MAX)) as u64
    };
    step % every == place
}

/// Draws from a standard normal distribution (Box and Muller 1958).
fn normal(seed: u64, step: u64) -> f64 {
    let mut random = Random::from_key(&[seed, 12, step]);
    let mut unit = || ((random.word() >> 12) as f64 + 0.5) * 2f64.powi(-52);
    let radius = (-2.0 * unit().ln()).sqrt();
    radius * (std::f64::consts::TAU * unit()).cos()
}

/// Task that a network learns in a regime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Small network whose loss or data follow a synthetic course, for example a loss that alternates by 2^40.
    Constructed(Net),
    /// Classifier of images, one of which is damaged.
    BadSample(Damage),
    /// Speech network with recordings that are shorter than their transcripts.
    ShortRecordings {
        /// Option of the CTC loss: impossible targets have loss 0.
        zero_infinity: bool,
    },
    /// Combination lock that is learned by reinforcement.
    RareReward,
    /// Ordinary classifier that formats of 8 bits store.
    OrdinaryInEightBits,
    /// Five tasks whose gradients differ in magnitude within one tensor.
    TasksInEightBits(Spread),
}

impl Task {
    /// Returns the name and unit of the task's score.
    pub const fn score(self) -> &'static str {
        match self {
            Self::Constructed(net) => net.score(),
            Self::BadSample(_) | Self::OrdinaryInEightBits => "test images classified correctly, in percent",
            Self::TasksInEightBits(_) => "test images classified correctly, mean of five tasks, in percent",
            Self::ShortRecordings { .. } => "characters of the test recordings that are wrong, in percent",
            Self::RareReward => "chance to open the lock, in percent",
        }
    }

    /// Returns true if a higher score is better.
    pub const fn higher_is_better(self) -> bool {
        match self {
            Self::Constructed(net) => net.higher_is_better(),
            Self::BadSample(_) | Self::RareReward | Self::OrdinaryInEightBits | Self::TasksInEightBits(_) => true,
            Self::ShortRecordings { .. } => false,
        }
    }

    /// Returns true for conditions that occur in practice, false for synthetic ones.
    pub const fn is_natural(self) -> bool {
        match self {
            Self::Constructed(_) | Self::OrdinaryInEightBits | Self::TasksInEightBits(_) => false,
            Self::BadSample(_) | Self::ShortRecordings { .. } | Self::RareReward => true,
        }
    }

    /// Returns true for tasks that compare formats of 8 bits.
    pub const fn has_eight_bits(self) -> bool {
        match self {
            Self::OrdinaryInEightBits | Self::TasksInEightBits(_) => true,
            Self::Constructed(_) | Self::BadSample(_) | Self::ShortRecordings { .. } | Self::RareReward => false,
        }
    }
}

/// Length of a regime's training: of a full run, and with `--quick`.
#[derive(Clone, Copy, Debug)]
enum Length {
    Steps([u64; 2]),
    /// Passes over the training images, in batches of [`BATCH`].
    Epochs([u64; 2]),
}

/// Regime: a network that is trained under a synthetic course of conditions.
#[derive(Clone, Debug)]
pub struct Regime {
    /// Name of the regime on the command line.
    pub name: String,
    /// Description of the regime in one sentence.
    pub about: String,
    pub task: Task,
    pub course: Course,
    length: Length,
}

impl Regime {
    /// Returns the number of steps of a training on these images.
    pub fn steps(&self, quick: bool, images: &Images) -> u64 {
        match self.length {
            Length::Steps(steps) => steps[usize::from(quick)],
            Length::Epochs(epochs) => {
                let count = images.labels.len();
                epochs[usize::from(quick)] * (count / BATCH.min(count).max(1)) as u64
            }
        }
    }

    /// Returns true if this build can train the regime.
    pub const fn is_built(&self) -> bool {
        match self.task {
            Task::ShortRecordings { .. } => BuildFeature::Speech.is_built(),
            Task::Constructed(_)
            | Task::BadSample(_)
            | Task::RareReward
            | Task::OrdinaryInEightBits
            | Task::TasksInEightBits(_) => true,
        }
    }

    /// Returns true if no exponent fits all batches, so that each rare batch is retried whatever the site remembers.
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

    /// Returns true if targets can be fill values.
    pub const fn fills(&self) -> bool {
        matches!(self.course, Course::Fill { .. })
    }

    /// Returns true if `name` is this regime's name or the part before its colon.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.family() == name
    }

    /// Returns the regime's family, the part of its name before the colon.
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
            is_natural: bool,
        }
        let Self { name, about, task, .. } = self;
        let (score, higher_is_better) = (task.score(), task.higher_is_better());
        File { name, about, score, higher_is_better, is_natural: task.is_natural() }.serialize(serializer)
    }
}

/// Maximum spread of the sites' ceilings that one loss scale in FP16 can serve, in bits.
const MAX_CEILING_SPREAD: i32 = 24;

/// Returns all regimes that the program knows.
pub fn list_regimes() -> Vec<Regime> {
    let regime = |name: String, about: String, net: Net, course: Course, steps: [u64; 2]| Regime {
        name,
        about,
        task: Task::Constructed(net),
        course,
        length: Length::Steps(steps),
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
            let about = format!("one input of one batch in {every} is {what}, which no scale can fix");
            let course = Course::NotFinite { every, value };
            all.push(regime(format!("{name}:1in{every}"), about, Net::Curve, course, [4000, 1000]));
        }
    }
    for power in [-12, 12, 40] {
        let about = format!("from the middle on, losses are multiplied by 2^{power}");
        let course = Course::Jump { power };
        all.push(regime(format!("jump:2^{power}"), about, Net::Perceptron, course, [1500, 200]));
    }
    let rest = [
        ("drift:2^-30", "losses fall to 2^-30 of the first", Course::Drift { power: -30 }, [1500, 300]),
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
    all.extend(natural());
    all.extend(eight_bits());
    all
}

/// Returns the regimes that compare formats of 8 bits.
fn eight_bits() -> [Regime; 3] {
    let regime = |name: &str, about: &str, task: Task| Regime {
        name: name.to_owned(),
        about: about.to_owned(),
        task,
        course: Course::Same,
        length: Length::Steps([1500, 200]),
    };
    [
        regime("eight-bits:ordinary", "an ordinary classifier of images", Task::OrdinaryInEightBits),
        regime(
            "eight-bits:examples",
            "five tasks on one trunk, whose losses count 1, 1e-3, 1e-6, 1e-9 and 1e-12, under Adam; each image has one",
            Task::TasksInEightBits(Spread::Examples),
        ),
        regime(
            "eight-bits:outputs",
            "the same five tasks, and each image has all of them",
            Task::TasksInEightBits(Spread::Outputs),
        ),
    ]
}

/// Epochs of a training with a bad sample. One bit an epoch takes a scale from 2^16 to 2^-44, as in public reports.
const EPOCHS: [u64; 2] = [60, 60];

/// Returns the natural regimes, with networks and settings that are common for them.
fn natural() -> Vec<Regime> {
    let regime = |name: &str, about: &str, task: Task, length: Length| Regime {
        name: name.to_owned(),
        about: about.to_owned(),
        task,
        course: Course::Same,
        length,
    };
    let bad = |name: &str, about: &str, damage| regime(name, about, Task::BadSample(damage), Length::Epochs(EPOCHS));
    let short = |name: &str, about: &str, zero_infinity| {
        regime(name, about, Task::ShortRecordings { zero_infinity }, Length::Steps([800, 300]))
    };
    vec![
        bad("bad-sample:nan", "one training image is NaN, in each of 60 epochs", Damage::Nan),
        bad(
            "bad-sample:infinite",
            "one pixel of one training image is infinite, in each of 60 epochs",
            Damage::Infinite,
        ),
        bad(
            "bad-sample:corrupt",
            "one training image is read from a corrupt file, in each of 60 epochs",
            Damage::Corrupt,
        ),
        short(
            "short-recordings",
            "some recordings are shorter than their transcript, so CTC has a loss of ∞ by PyTorch's default",
            false,
        ),
        short("short-recordings:zero-infinity", "the same with the right option of the loss, zero_infinity", true),
        regime(
            "rare-reward",
            "a combination lock of 5 digits, by REINFORCE: one update in about 4000 has a reward",
            Task::RareReward,
            Length::Steps([20_000, 6000]),
        ),
    ]
}
