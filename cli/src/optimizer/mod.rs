//! Optimizer options of all commands that train, and how they change if the loss is divided by another number than that of
//! its own pixels or images. Defaults are in each task (`TaskSpec`).

mod rule;
mod schedule;
mod text;

pub use rule::{LEAST_EPS, Moments, Rule};
pub use schedule::Schedule;

use crate::{
    Failure,
    help::{Completed, heading, optimizers, schedules},
};
use clap::Args;
use gradscale::optim::{Adagrad, Adam, AdamW, Lamb, Lion, Optimizer, RmsProp, Sgd};
use gradscale_data::as_text;
use serde::{Deserialize, Serialize};

/// Command-line options of the optimizer. Missing ones have the task's default; results and checkpoints store all of
/// them.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct Updates {
    /// Learning rate, for a mean loss
    ///
    /// The mean is over the pixels or images of a batch. If --pixels sets a larger divisor, gradients are smaller by a
    /// factor; the rate of sgd is multiplied by it, and eps of other rules is divided by it [default: 0.1 for segnet,
    /// 0.05 for classify, 0.02 for two towers, 0.01 for speech, 0.001 for detect, 0.003 for translate and language,
    /// 0.0002 for generate; with --optimizer adam, adamw or lamb 0.001, rmsprop or adagrad 0.01, lion 0.0001, with sgd 0.5
    /// for translate and biglstm, 0.1 for decoders]
    #[arg(long, help_heading = heading::TRAINING, value_name = "RATE", allow_negative_numbers = true, value_parser = |text: &str| number(text, 1e-12, 1e3))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lr: Option<f64>,
    /// Update rule: sgd, adam, adamw, lamb, rmsprop, adagrad or lion, and their options
    ///
    /// sgd[:momentum=0,nesterov=no], adam[:beta1=0.9,beta2=0.999,eps=1e-8], adamw or lamb with the options of adam,
    /// rmsprop[:alpha=0.99,momentum=0,centered=no,eps=1e-8], adagrad[:eps=1e-10], or lion[:beta1=0.9,beta2=0.99]. The last
    /// four take a launch for each operator and weight, the others one for all weights [default: sgd:momentum=0.9; adamw
    /// for translate and language; adam:beta1=0.5 for generate]
    #[arg(long, help_heading = heading::TRAINING, value_name = "RULE", value_parser = Completed::<Rule>::new(optimizers), hide_possible_values = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimizer: Option<Rule>,
    /// Learning rate over time: constant, step, cosine, polynomial
    ///
    /// constant; step:every=N or step:at=N/N/…, which multiply the rate by factor=0.1; cosine or polynomial[:power=1],
    /// which decrease it to 0 at the last step, or at steps=N. All accept warmup=N, the steps of a linear warm-up. Skipped
    /// steps do not count [default: constant]
    #[arg(long, help_heading = heading::TRAINING, value_name = "NAME", value_parser = Completed::<Schedule>::new(schedules), hide_possible_values = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// Weight decay: sgd, adam, rmsprop and adagrad add it to the gradients of a mean loss (see --lr), adamw, lamb and
    /// lion subtract it from the weights [default: 0.0005 with sgd, 0.01 with adamw and lamb, otherwise 0]
    #[arg(long, hide_short_help = true, help_heading = heading::TRAINING, value_name = "X", allow_negative_numbers = true, value_parser = |text: &str| number(text, 0.0, 1e3))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight_decay: Option<f64>,
    /// Maximum norm of all gradients together, for a mean loss (see --lr); larger gradients are scaled down [default:
    /// none; 1 for language]
    #[arg(long, hide_short_help = true, help_heading = heading::TRAINING, value_name = "NORM", allow_negative_numbers = true, value_parser = |text: &str| number(text, 1e-12, 1e12))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip: Option<f64>,
}

/// Parses a number within bounds, which keep every product with a divisor an ordinary f32.
fn number(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("must be a number from {} to {}", text::shortest(least), text::shortest(most)))
}

/// Complete optimizer settings of a training: update rule and learning-rate schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// Learning rate, for a loss that is a mean.
    pub lr: f64,
    /// Update rule, with momentum, decay and other constants.
    pub rule: Rule,
    /// Schedule of the learning rate over the steps.
    pub schedule: Schedule,
    /// Weight decay, for a loss that is a mean.
    pub decay: f64,
    /// Maximum norm of all gradients, for a loss that is a mean.
    pub clip: Option<f64>,
}

/// Default weight decay; the paper states none.
const DECAY: f64 = 5e-4;

impl Updates {
    /// Returns the settings with defaults filled in; `lr` is the task's rate for SGD.
    ///
    /// # Errors
    /// A warm-up that is as long as the training.
    pub fn recipe(&self, lr: f64, iters: u64) -> Result<Recipe, Failure> {
        let rule = self.optimizer.unwrap_or_default();
        let (usual_lr, usual_decay) = match rule {
            Rule::Sgd { .. } => (lr, DECAY),
            Rule::Adam(_) => (Adam::default().lr, f64::from(Adam::default().weight_decay)),
            // As PyTorch; 0.01 in f32 is another number.
            Rule::AdamW(_) => (AdamW::default().lr, 0.01),
            Rule::Lamb(_) => (Lamb::default().lr, 0.01),
            Rule::RmsProp { .. } => (RmsProp::default().lr, f64::from(RmsProp::default().weight_decay)),
            Rule::Adagrad { .. } => (Adagrad::default().lr, f64::from(Adagrad::default().weight_decay)),
            Rule::Lion { .. } => (Lion::default().lr, f64::from(Lion::default().weight_decay)),
        };
        let schedule = self.schedule.clone().unwrap_or_default();
        let place = format!("--schedule {schedule}");
        Ok(Recipe {
            lr: self.lr.unwrap_or(usual_lr),
            rule,
            schedule: schedule.over(iters).map_err(|cause| Failure::at(place, cause))?,
            decay: self.weight_decay.unwrap_or(usual_decay),
            clip: self.clip,
        })
    }
}

impl Recipe {
    /// Returns the settings as fully specified options.
    #[must_use]
    pub fn to_updates(&self) -> Updates {
        let Self { lr, rule, schedule, decay, clip } = self;
        Updates {
            lr: Some(*lr),
            optimizer: Some(*rule),
            schedule: Some(schedule.clone()),
            weight_decay: Some(*decay),
            clip: *clip,
        }
    }

    /// Creates the optimizer for a loss that is `ratio` times smaller than a mean, so that training in f32 does not
    /// change. SGD gets a learning rate that is `ratio` times as large. The other rules divide gradients by their size, so
    /// their eps is divided by `ratio`; Lion reads only signs. Weight decay that is added to gradients, and limits that gradients are compared with,
    /// are divided by `ratio` too.
    ///
    /// # Errors
    /// An eps that is too small then.
    pub fn optimizer(&self, ratio: f64) -> Result<Optimizer, Failure> {
        let eps = |eps: f32| {
            let divided = single(f64::from(eps) / ratio);
            if divided >= LEAST_EPS {
                return Ok(divided);
            }
            let cause = format!("because the loss is {ratio:.1e} times smaller than a mean, eps becomes {divided:.1e}");
            Err(Failure::at(format!("--optimizer {}", self.rule), format!("{cause}, below {LEAST_EPS:e}")))
        };
        let weight_decay = if self.rule.adds_decay() { self.decay(ratio) } else { single(self.decay) };
        let lr = self.lr;
        let optimizer: Optimizer = match self.rule {
            Rule::Sgd { momentum, nesterov } => Sgd { lr: lr * ratio, momentum, nesterov, weight_decay }.into(),
            Rule::Adam(Moments { betas, eps: usual }) => Adam { lr, betas, eps: eps(usual)?, weight_decay }.into(),
            Rule::AdamW(Moments { betas, eps: usual }) => AdamW { lr, betas, eps: eps(usual)?, weight_decay }.into(),
            Rule::Lamb(Moments { betas, eps: usual }) => Lamb { lr, betas, eps: eps(usual)?, weight_decay }.into(),
            Rule::RmsProp { alpha, momentum, centered, eps: usual } => {
                RmsProp { lr, alpha, eps: eps(usual)?, momentum, centered, weight_decay }.into()
            }
            Rule::Adagrad { eps: usual } => Adagrad { eps: eps(usual)?, weight_decay, ..Adagrad::new(lr) }.into(),
            Rule::Lion { betas } => Lion { lr, betas, weight_decay }.into(),
        };
        let optimizer = optimizer.schedule(self.schedule.engine());
        Ok(match self.clip {
            Some(norm) => optimizer.clip_norm(single(norm / ratio)),
            None => optimizer,
        })
    }

    /// Returns the weight decay for gradients that are `ratio` times smaller.
    #[must_use]
    pub fn decay(&self, ratio: f64) -> f32 {
        single(self.decay / ratio)
    }

    /// Describes the optimizer's settings in a sentence.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { lr, rule, schedule, decay, clip } = self;
        let clipped = clip.map_or(String::new(), |norm| format!(", gradients clipped to a norm of {norm}"));
        format!("Optimizer {rule}, learning rate {lr} ({schedule}), weight decay {decay}{clipped}.")
    }
}

#[expect(clippy::cast_possible_truncation, reason = "rounded")]
fn single(number: f64) -> f32 {
    number as f32
}

as_text!(Rule, Schedule);
