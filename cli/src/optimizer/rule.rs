//! Update rules as text.

use super::text::{ParsedOptions, Text, shortest};
use gradscale::optim::Adam;
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

const SHARE: &str = "a number from 0 to below 1";

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

    /// Parses `sgd`, `sgd:momentum=0.9,nesterov=yes`, `adam:beta1=0.9,beta2=0.999,eps=1e-8`, `adamw` with the same
    /// options.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = ParsedOptions::parse(text)?;
        match parts.name {
            "sgd" => {
                let share = |number: &f32| (0.0..1.0).contains(number);
                let momentum = parts.number("momentum", SHARE, share)?.unwrap_or(0.0);
                let nesterov = match parts.take("nesterov") {
                    None | Some("no") => false,
                    Some("yes") if momentum == 0.0 => return Err("nesterov needs sgd with momentum".to_owned()),
                    Some("yes") => true,
                    Some(other) => return Err(format!("nesterov is yes or no, not {other:?}")),
                };
                parts.end("momentum, nesterov")?;
                Ok(Self::Sgd { momentum, nesterov })
            }
            "adam" => Moments::parse(parts).map(Self::Adam),
            "adamw" => Moments::parse(parts).map(Self::AdamW),
            other => Err(format!("{other:?} is not an optimizer; choose sgd, adam or adamw")),
        }
    }
}

impl Moments {
    fn parse(mut parts: ParsedOptions<'_>) -> Result<Self, String> {
        let share = |number: &f32| (0.0..1.0).contains(number);
        let Self { betas: [beta1, beta2], eps } = Self::default();
        let betas = [
            parts.number("beta1", SHARE, share)?.unwrap_or(beta1),
            parts.number("beta2", SHARE, share)?.unwrap_or(beta2),
        ];
        let fits = |eps: &f32| (LEAST_EPS..=1.0).contains(eps);
        let eps = parts.number("eps", "a number from 1e-17 to 1", fits)?.unwrap_or(eps);
        parts.end("beta1, beta2, eps")?;
        Ok(Self { betas, eps })
    }
}

/// Implementation of `Display` by the shortest text that is parsed as this rule.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, moments) = match self {
            Self::Sgd { momentum, nesterov } => {
                let mut text = Text::new(f, "sgd")?;
                text.unless(&0.0, "momentum", momentum, shortest(*momentum))?;
                return text.unless(&false, "nesterov", nesterov, "yes");
            }
            Self::Adam(moments) => ("adam", moments),
            Self::AdamW(moments) => ("adamw", moments),
        };
        let (mut text, usual) = (Text::new(f, name)?, Moments::default());
        for (i, key) in ["beta1", "beta2"].into_iter().enumerate() {
            text.unless(&usual.betas[i], key, &moments.betas[i], shortest(moments.betas[i]))?;
        }
        text.unless(&usual.eps, "eps", &moments.eps, shortest(moments.eps))
    }
}
