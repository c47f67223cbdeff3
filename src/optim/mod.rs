//! Optimizers: rules on f32 masters, parameter groups, clipping, learning-rate schedules.

mod schedule;

pub use schedule::Schedule;

use gradscale_core::{
    backend::Dial,
    descriptor::{Optimizer as Descriptor, Rule, ShapeError},
};

/// Parameters with a learning rate and weight decay of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// A part of the network, or a parameter: the first words of the names of its parameters.
    pub prefix: String,
    /// Learning rate before the schedule.
    pub lr: f64,
    /// Weight decay.
    pub decay: f32,
}

impl Group {
    /// By whole words; without any, all names.
    fn claims(&self, name: &str) -> bool {
        let prefix = self.prefix.trim_end_matches('.');
        let rest = name.strip_prefix(prefix);
        rest.is_some_and(|rest| prefix.is_empty() || rest.is_empty() || rest.starts_with('.'))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Sgd { momentum: f32, nesterov: bool },
    Adam { beta: [f32; 2], eps: f32, decoupled: bool },
}

/// How parameters are updated. Gradients come in f32 and unscaled; a step whose gradients are not finite changes
/// nothing.
///
/// ```
/// use gradscale::optim::{Optimizer, Schedule};
/// let optimizer = Optimizer::sgd(0.1)
///     .momentum(0.9)
///     .decay(5e-4)
///     .clip_norm(1.0)
///     .schedule(Schedule::Cosine { steps: 1000 })
///     .group("head", 0.01, 0.0);
/// # let _ = optimizer;
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Optimizer {
    kind: Kind,
    lr: f64,
    decay: f32,
    max_norm: Option<f32>,
    max_value: Option<f32>,
    schedule: Schedule,
    groups: Vec<Group>,
}

impl Optimizer {
    const fn new(kind: Kind, lr: f64) -> Self {
        Self { kind, lr, decay: 0.0, max_norm: None, max_value: None, schedule: Schedule::Constant, groups: Vec::new() }
    }

    /// Stochastic gradient descent.
    #[must_use]
    pub const fn sgd(lr: f64) -> Self {
        Self::new(Kind::Sgd { momentum: 0.0, nesterov: false }, lr)
    }

    /// Adam with β 0.9 and 0.999, eps 1e-8. Weight decay adds to the gradient.
    #[must_use]
    pub const fn adam(lr: f64) -> Self {
        Self::new(Kind::Adam { beta: [0.9, 0.999], eps: 1e-8, decoupled: false }, lr)
    }

    /// Adam whose weight decay (0.01) acts on the weights.
    #[must_use]
    pub const fn adamw(lr: f64) -> Self {
        let optimizer = Self::new(Kind::Adam { beta: [0.9, 0.999], eps: 1e-8, decoupled: true }, lr);
        optimizer.decay(0.01)
    }

    /// SGD's momentum, in [0, 1). Without effect on Adam.
    #[must_use]
    pub const fn momentum(mut self, share: f32) -> Self {
        if let Kind::Sgd { momentum, .. } = &mut self.kind {
            *momentum = share;
        }
        self
    }

    /// SGD with Nesterov's look ahead. Without effect on Adam.
    #[must_use]
    pub const fn nesterov(mut self) -> Self {
        if let Kind::Sgd { nesterov, .. } = &mut self.kind {
            *nesterov = true;
        }
        self
    }

    /// Adam's β₁ and β₂, in [0, 1). Without effect on SGD.
    #[must_use]
    pub const fn betas(mut self, betas: [f32; 2]) -> Self {
        if let Kind::Adam { beta, .. } = &mut self.kind {
            *beta = betas;
        }
        self
    }

    /// Adam's eps, at least 10^-17. Without effect on SGD.
    #[must_use]
    pub const fn eps(mut self, value: f32) -> Self {
        if let Kind::Adam { eps, .. } = &mut self.kind {
            *eps = value;
        }
        self
    }

    /// Weight decay of all parameters that no group claims.
    #[must_use]
    pub const fn decay(mut self, decay: f32) -> Self {
        self.decay = decay;
        self
    }

    /// All gradients together are scaled down to this norm where they exceed it.
    #[must_use]
    pub const fn clip_norm(mut self, most: f32) -> Self {
        self.max_norm = Some(most);
        self
    }

    /// Every gradient is cut to ±`most`.
    #[must_use]
    pub const fn clip_value(mut self, most: f32) -> Self {
        self.max_value = Some(most);
        self
    }

    /// How learning rates change. It advances with steps that are taken.
    #[must_use]
    pub const fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// The parameters of the part of the network called `prefix` (or that one parameter) get a learning rate and a
    /// weight decay of their own: `block1` claims `block1.weight`, and not `block10.weight`. The first group that fits
    /// counts. A group that no parameter fits is an error of [`Trainer::new`](crate::Trainer::new).
    #[must_use]
    pub fn group(mut self, prefix: &str, lr: f64, decay: f32) -> Self {
        self.groups.push(Group { prefix: prefix.to_owned(), lr, decay });
        self
    }

    /// Number of groups, the rest included.
    pub(crate) const fn group_count(&self) -> usize {
        self.groups.len() + 1
    }

    /// The group of a parameter; the last is the rest.
    pub(crate) fn group_of(&self, name: &str) -> usize {
        self.groups.iter().position(|group| group.claims(name)).unwrap_or(self.groups.len())
    }

    /// A group that claims none of these parameters.
    pub(crate) fn idle_group<'a>(&self, names: impl Iterator<Item = &'a str> + Clone) -> Option<&str> {
        let idle = self.groups.iter().find(|group| !names.clone().any(|name| group.claims(name)));
        idle.map(|group| group.prefix.as_str())
    }

    /// Adam's eps; 0 without.
    pub(crate) const fn eps_in_force(&self) -> f32 {
        match self.kind {
            Kind::Adam { eps, .. } => eps,
            Kind::Sgd { .. } => 0.0,
        }
    }

    pub(crate) const fn clips_norm(&self) -> bool {
        self.max_norm.is_some()
    }

    /// Dials: the share that running statistics keep, Adam's two corrections, then the learning rate of each group.
    pub(crate) fn dials(&self, step: u64, keep: f32) -> Vec<f32> {
        let mut dials = vec![keep, 1.0, 1.0];
        if let Kind::Adam { beta, .. } = self.kind {
            let t = i32::try_from(step.saturating_add(1)).unwrap_or(i32::MAX);
            #[expect(clippy::cast_possible_truncation, reason = "rounded")]
            for (dial, beta) in dials[1..].iter_mut().zip(beta) {
                *dial = (1.0 - f64::from(beta).powi(t)) as f32;
            }
        }
        let factor = self.schedule.factor(step);
        #[expect(clippy::cast_possible_truncation, reason = "rounded")]
        dials.extend(self.groups.iter().map(|group| group.lr).chain([self.lr]).map(|lr| (lr * factor) as f32));
        dials
    }

    /// Whether all numbers make sense.
    pub(crate) fn check(&self) -> Result<(), ShapeError> {
        for lr in self.groups.iter().map(|group| group.lr).chain([self.lr]) {
            #[expect(clippy::cast_possible_truncation, reason = "as it will be used, and for a message")]
            let rounded = lr as f32;
            if !(lr >= 0.0 && rounded.is_finite()) {
                return Err(ShapeError::Value(rounded));
            }
        }
        (0..self.group_count()).try_for_each(|group| self.descriptor(group).map(|_| ()))
    }

    /// The launch of a group.
    pub(crate) fn descriptor(&self, group: usize) -> Result<Descriptor, ShapeError> {
        let rule = match self.kind {
            Kind::Sgd { momentum, nesterov } => Rule::Sgd { momentum, nesterov },
            Kind::Adam { beta, eps, decoupled } => Rule::Adam { beta, eps, correction: [Dial(1), Dial(2)], decoupled },
        };
        let lr = Dial(u16::try_from(3 + group).map_err(|_| ShapeError::TooLarge)?);
        let decay = self.groups.get(group).map_or(self.decay, |group| group.decay);
        let mut descriptor = Descriptor::new(rule, lr)?.decay(decay)?;
        if let Some(most) = self.max_value {
            descriptor = descriptor.max_value(most)?;
        }
        if let Some(most) = self.max_norm {
            descriptor = descriptor.max_norm(most)?;
        }
        Ok(descriptor)
    }

    /// Running statistics.
    pub(crate) const fn statistics() -> Descriptor {
        Descriptor::running_statistics(Dial(0))
    }

    /// States that the rule keeps for each parameter.
    pub(crate) const fn states(&self) -> usize {
        match self.kind {
            Kind::Sgd { momentum, .. } => {
                if momentum == 0.0 {
                    0
                } else {
                    1
                }
            }
            Kind::Adam { .. } => 2,
        }
    }
}
