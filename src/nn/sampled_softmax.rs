//! Sampled softmax over many classes.

use super::Module;
use crate::{Init, Parameter, Scope, Var};

/// Mask value for a logit. Its e^x is 0 compared with any other, and it fits in a half.
const HIDDEN: f32 = -3e4;

/// Linear layer to the logits of many classes, whose loss is computed over sampled classes in training: sampled softmax
/// (Jean et al. 2015, section 3.1), like TensorFlow's `sampled_softmax_loss`.
///
/// ```
/// use gradscale::{
///     Input, Cpu, Method, Parameters, Trainer, data::{LogUniform, Random}, nn::{Candidate, SampledSoftmax}, optim::Sgd,
/// };
/// let mut parameters = Parameters::seeded(1);
/// let softmax = SampledSoftmax::new(&mut parameters.at("softmax"), 4, 1000);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
/// let labels = [3, 700];
/// let drawn = LogUniform::new(1000).draw(&mut Random::from_key(&[1]), 20, &labels);
/// let batch = [
///     Input::f32([2, 4], &[0.5; 8]),
///     Input::u32([2], &labels),
///     Input::f32([2], &drawn.of_labels),
///     Input::u32([20], &drawn.classes),
///     Input::f32([20], &drawn.of_classes),
///     Input::u32([2], &drawn.hits),
///     Input::u8([2], &[0; 2]),
/// ];
/// let gradients = trainer.backward(batch, |[x, labels, of_labels, classes, of_classes, hits, first]| {
///     softmax.loss(x, &Candidate { labels, of_labels, classes, of_classes, hits, first })
/// })?;
/// assert!(trainer.step(gradients)?.loss > 0.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SampledSoftmax {
    name: String,
    weight: Parameter,
    bias: Parameter,
}

/// [`Candidates`](crate::data::Candidates) of a batch of n labels, as values of a pass.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'t> {
    /// Labels of the batch, integers `[n]`.
    pub labels: Var<'t>,
    /// Logarithms of the expected counts of the labels among the draws, `[n]`.
    pub of_labels: Var<'t>,
    /// Sampled classes of the softmax, integers `[s]`.
    pub classes: Var<'t>,
    /// Logarithms of the expected counts of the sampled classes among the draws, `[s]`.
    pub of_classes: Var<'t>,
    /// Position of each label among the sampled classes, from 1; s + 1 if it was not sampled. Integers `[n]`.
    pub hits: Var<'t>,
    /// Zeros, integers `[n]`: the index of the label's own logit.
    pub first: Var<'t>,
}

impl SampledSoftmax {
    /// Creates the output layer with a sampled softmax over `classes` classes. Weights and bias are initialised
    /// uniformly in ±1/√width, like those of [`super::Linear`].
    pub fn new(scope: &mut Scope<'_>, width: usize, classes: usize) -> Self {
        let weight = scope.weight("weight", [classes, width], Init::FanIn);
        let bias = scope.weight("bias", [classes], Init::within_root(width));
        Self { name: scope.path().to_owned(), weight, bias }
    }

    /// Computes the mean cross-entropy of x `[…, width]`, n rows, over each label and the sampled classes. The
    /// logarithm of its expected count is subtracted from each logit, and a sampled class that is the label itself is
    /// masked. Only the rows of these classes in the table get a gradient.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn loss<'t>(&self, x: Var<'t>, of: &Candidate<'t>) -> Var<'t> {
        let Candidate { labels, of_labels, classes, of_classes, hits, first } = *of;
        let (n, s, width) = (x.shape().rows(), classes.shape().len(), x.shape().channels());
        let called = |var: Var<'t>, what: &str| var.named(&format!("{}.{what}", self.name));
        let [table, bias] = [&self.weight, &self.bias].map(|one| x.tape().parameter(one));
        let bias = called(bias.reshape([bias.shape().len(), 1]), "biases");
        let rows = |ids: Var<'t>, count: usize, what: &str| {
            let ids = ids.reshape([count]);
            let rows = table.embedding(&format!("{}.{what}", self.name), ids);
            (rows, bias.embedding(&format!("{}.{what}.bias", self.name), ids))
        };
        let x = called(x.reshape([n, width]), "x");
        let (own, own_bias) = rows(labels, n, "label");
        // One product for each row.
        let own = called(x.matmul_transposed(own), "label.logit") + own_bias - of_labels.reshape([n, 1]);
        let (drawn, drawn_bias) = rows(classes, s, "drawn");
        let drawn_bias = called(drawn_bias - of_classes.reshape([s, 1]), "drawn.corrected");
        let drawn = x.linear(&format!("{}.drawn.logits", self.name), drawn, Some(drawn_bias));
        let logits = called(own.concat(&[drawn], 3), "logits");
        let hidden = hits.reshape([n]).one_hot(s + 2).slice(3, 0, s + 1).scale(HIDDEN);
        (logits + called(hidden, "hidden")).cross_entropy(first)
    }
}

/// Impl of the layer for evaluation: computes the logits of all classes.
impl Module for SampledSoftmax {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let [weight, bias] = [&self.weight, &self.bias].map(|one| x.tape().parameter(one));
        x.linear(&self.name, weight, Some(bias))
    }
}
