//! Batch together with the options of its pass.

use crate::{Gradients, Input, Inputs, Prefetched};

/// Batch of a forward and backward pass, with the options of that pass. [`Trainer::backward`](crate::Trainer::backward)
/// and its non-blocking form take one, or a batch without options.
///
/// ```
/// # use gradscale::{Input, Cpu, Method, Parameters, Pass, Trainer, nn::{Linear, Module}, optim::Sgd};
/// # let mut parameters = Parameters::seeded(0);
/// # let net = Linear::new(&mut parameters.at("net"), 2, 2);
/// # let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.5), Method::mixed())?;
/// let batches = [[1.0, 0.0, 0.0, 1.0], [0.0, 2.0, 2.0, 0.0]];
/// let batch = |i: usize| [Input::f32([2, 2], &batches[i]), Input::u8([2], &[0, 1])];
/// // Two micro-batches of a loss that has scales of its own, under its name.
/// let first = Pass::new(batch(0)).with_loss("critic");
/// let gradients = trainer.backward(first, |[x, labels]| net.forward(x).cross_entropy(labels) * 0.5)?;
/// let second = Pass::new(batch(1)).accumulate(gradients);
/// let gradients = trainer.backward(second, |[x, labels]| net.forward(x).cross_entropy(labels) * 0.5)?;
/// assert_eq!(gradients.micro_batches(), 2);
/// trainer.step(gradients)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a pass runs when Trainer::backward takes it"]
pub struct Pass<'a, const N: usize> {
    pub(in crate::train) batch: Inputs<'a, N>,
    pub(in crate::train) loss: Option<&'a str>,
    pub(in crate::train) gradients: Option<Gradients>,
}

impl<'a, const N: usize> Pass<'a, N> {
    /// Returns a pass over a batch, without options.
    pub fn new(batch: impl Into<Inputs<'a, N>>) -> Self {
        Self { batch: batch.into(), loss: None, gradients: None }
    }

    /// Names one of several losses; each loss has its own scales, under its name.
    pub const fn with_loss(mut self, loss: &'a str) -> Self {
        self.loss = Some(loss);
        self
    }

    /// Adds to the gradients of earlier micro-batches of the step: exponents stay as they are, rows and gradients add.
    /// Losses add too, so divide each by the number of micro-batches. The loss is that of the earlier micro-batches.
    #[doc(alias = "gradient accumulation")]
    pub fn accumulate(mut self, gradients: Gradients) -> Self {
        self.gradients = Some(gradients);
        self
    }
}

impl<'a, const N: usize> From<Inputs<'a, N>> for Pass<'a, N> {
    fn from(batch: Inputs<'a, N>) -> Self {
        Self::new(batch)
    }
}

impl<'a, const N: usize> From<[Input<'a>; N]> for Pass<'a, N> {
    fn from(batch: [Input<'a>; N]) -> Self {
        Self::new(batch)
    }
}

impl<const N: usize> From<Prefetched<N>> for Pass<'_, N> {
    fn from(batch: Prefetched<N>) -> Self {
        Self::new(batch)
    }
}
