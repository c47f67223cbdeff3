//! Update rules as text.

use super::text::{ParsedOptions, Text, shortest};
use gradscale::optim::{Adagrad, Adam, Lamb, Lion, RmsProp};
use std::{fmt, str::FromStr};

/// Update rule of an optimizer with its coefficients, except learning rate and weight decay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Stochastic gradient descent, with momentum.
    Sgd {
        /// Momentum coefficient of SGD, in [0, 1).
        momentum: f32,
        /// True for Nesterov momentum (as PyTorch's `nesterov`).
        nesterov: bool,
    },
    /// Adam, whose weight decay is added to the gradient.
    Adam(Moments),
    /// Adam, whose weight decay acts on the weights.
    AdamW(Moments),
    /// Adam, whose update of each weight has a norm in proportion to the weight's.
    Lamb(Moments),
    /// RMSprop, whose weight decay is added to the gradient.
    RmsProp {
        /// Decay rate of the mean square, in [0, 1).
        alpha: f32,
        /// Momentum coefficient of the normalised gradient, in [0, 1).
        momentum: f32,
        /// True if the mean square is centered, so that it is a variance.
        centered: bool,
        /// Constant in the denominator, from [`LEAST_EPS`] to 1.
        eps: f32,
    },
    /// Adagrad, whose weight decay is added to the gradient.
    Adagrad {
        /// Constant in the denominator, from [`LEAST_EPS`] to 1.
        eps: f32,
    },
    /// Signs of a momentum; weight decay acts on the weights.
    Lion {
        /// Coefficients of update and momentum, in [0, 1).
        betas: [f32; 2],
    },
}

/// Coefficients of Adam: decays of the moments, and epsilon.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    /// Decay rates of both moments, in [0, 1).
    pub betas: [f32; 2],
    /// Constant eps that Adam adds to its denominator, from [`LEAST_EPS`] to 1.
    pub eps: f32,
}

/// Minimum epsilon: with a smaller one, updates explode where devices flush f32 subnormals.
pub const LEAST_EPS: f32 = 1e-17;

/// Names of all rules, for messages.
const NAMES: &str = "sgd, adam, adamw, lamb, rmsprop, adagrad or lion";

const SHARE: &str = "a number from 0 to below 1";

fn is_share(number: &f32) -> bool {
    (0.0..1.0).contains(number)
}

impl Default for Rule {
    /// Returns SGD with the momentum of the paper.
    fn default() -> Self {
        Self::Sgd { momentum: 0.9, nesterov: false }
    }
}

impl Default for Moments {
    fn default() -> Self {
        let Adam { betas, eps, .. } = Adam::default();
        Self { betas, eps }
    }
}

impl FromStr for Rule {
    type Err = String;

    /// Parses a rule's name, and its options after a colon: `sgd`, `sgd:momentum=0.9,nesterov=yes`,
    /// `adam:beta1=0.9,beta2=0.999,eps=1e-8`, `adamw` and `lamb` with the same options,
    /// `rmsprop:alpha=0.99,momentum=0.9,centered=yes,eps=1e-8`, `adagrad:eps=1e-10`, `lion:beta1=0.9,beta2=0.99`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = ParsedOptions::parse(text)?;
        match parts.name {
            "sgd" => {
                let momentum = parts.share("momentum", 0.0)?;
                let nesterov = parts.flag("nesterov")?;
                if nesterov && momentum == 0.0 {
                    return Err("nesterov needs sgd with momentum".to_owned());
                }
                parts.end("momentum, nesterov")?;
                Ok(Self::Sgd { momentum, nesterov })
            }
            "adam" => Moments::default().parse(parts).map(Self::Adam),
            "adamw" => Moments::default().parse(parts).map(Self::AdamW),
            "lamb" => Moments::of_lamb().parse(parts).map(Self::Lamb),
            "rmsprop" => {
                let usual = RmsProp::default();
                let alpha = parts.share("alpha", usual.alpha)?;
                let momentum = parts.share("momentum", usual.momentum)?;
                let centered = parts.flag("centered")?;
                let eps = parts.eps(usual.eps)?;
                parts.end("alpha, momentum, centered, eps")?;
                Ok(Self::RmsProp { alpha, momentum, centered, eps })
            }
            "adagrad" => {
                let eps = parts.eps(Adagrad::default().eps)?;
                parts.end("eps")?;
                Ok(Self::Adagrad { eps })
            }
            "lion" => {
                let betas = parts.betas(Lion::default().betas)?;
                parts.end("beta1, beta2")?;
                Ok(Self::Lion { betas })
            }
            other => Err(format!("{other:?} is not an optimizer; choose {NAMES}")),
        }
    }
}

impl Rule {
    /// Returns true if the rule adds weight decay to the gradient, and false if it subtracts it from the weight.
    #[must_use]
    pub const fn adds_decay(&self) -> bool {
        match self {
            Self::Sgd { .. } | Self::Adam(_) | Self::RmsProp { .. } | Self::Adagrad { .. } => true,
            Self::AdamW(_) | Self::Lamb(_) | Self::Lion { .. } => false,
        }
    }
}

impl ParsedOptions<'_> {
    fn share(&mut self, key: &str, usual: f32) -> Result<f32, String> {
        Ok(self.number(key, SHARE, is_share)?.unwrap_or(usual))
    }

    fn betas(&mut self, [beta1, beta2]: [f32; 2]) -> Result<[f32; 2], String> {
        Ok([self.share("beta1", beta1)?, self.share("beta2", beta2)?])
    }

    fn eps(&mut self, usual: f32) -> Result<f32, String> {
        let fits = |eps: &f32| (LEAST_EPS..=1.0).contains(eps);
        Ok(self.number("eps", "a number from 1e-17 to 1", fits)?.unwrap_or(usual))
    }

    fn flag(&mut self, key: &str) -> Result<bool, String> {
        match self.take(key) {
            None | Some("no") => Ok(false),
            Some("yes") => Ok(true),
            Some(other) => Err(format!("{key} is yes or no, not {other:?}")),
        }
    }
}

impl Moments {
    /// Returns the usual coefficients of LAMB.
    fn of_lamb() -> Self {
        let Lamb { betas, eps, .. } = Lamb::default();
        Self { betas, eps }
    }

    /// Parses the coefficients that differ from these.
    fn parse(self, mut parts: ParsedOptions<'_>) -> Result<Self, String> {
        let (betas, eps) = (parts.betas(self.betas)?, parts.eps(self.eps)?);
        parts.end("beta1, beta2, eps")?;
        Ok(Self { betas, eps })
    }

    /// Writes the coefficients that differ from the usual ones.
    fn write(&self, text: &mut Text<'_, '_>, usual: &Self) -> fmt::Result {
        write_betas(text, self.betas, usual.betas)?;
        text.unless(&usual.eps, "eps", &self.eps, shortest(self.eps))
    }
}

fn write_betas(text: &mut Text<'_, '_>, betas: [f32; 2], usual: [f32; 2]) -> fmt::Result {
    text.unless(&usual[0], "beta1", &betas[0], shortest(betas[0]))?;
    text.unless(&usual[1], "beta2", &betas[1], shortest(betas[1]))
}

/// Implementation of `Display` by the shortest text that is parsed as this rule.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Sgd { momentum, nesterov } => {
                let mut text = Text::new(f, "sgd")?;
                text.unless(&0.0, "momentum", &momentum, shortest(momentum))?;
                text.unless(&false, "nesterov", &nesterov, "yes")
            }
            Self::Adam(moments) => moments.write(&mut Text::new(f, "adam")?, &Moments::default()),
            Self::AdamW(moments) => moments.write(&mut Text::new(f, "adamw")?, &Moments::default()),
            Self::Lamb(moments) => moments.write(&mut Text::new(f, "lamb")?, &Moments::of_lamb()),
            Self::RmsProp { alpha, momentum, centered, eps } => {
                let (mut text, usual) = (Text::new(f, "rmsprop")?, RmsProp::default());
                text.unless(&usual.alpha, "alpha", &alpha, shortest(alpha))?;
                text.unless(&usual.momentum, "momentum", &momentum, shortest(momentum))?;
                text.unless(&false, "centered", &centered, "yes")?;
                text.unless(&usual.eps, "eps", &eps, shortest(eps))
            }
            Self::Adagrad { eps } => {
                Text::new(f, "adagrad")?.unless(&Adagrad::default().eps, "eps", &eps, shortest(eps))
            }
            Self::Lion { betas } => write_betas(&mut Text::new(f, "lion")?, betas, Lion::default().betas),
        }
    }
}
