//! Operators of users: a forward pass in the operators of networks, and a gradient of its own.

use crate::{
    Shape, TraceError, Var,
    error::TraceErrorKind,
    graph::{Context, Gradient, Operator, ScaleRule, Tape, cast, other_shape},
};
use gradscale_core::ops::{ActivationFlow, GradientFlow, Op};

/// Trait of a custom operator: a forward pass in the operators of networks, and its gradient, which need not be the
/// derivative. For example, a straight-through estimator rounds values and passes gradients, and a fused formula of the
/// gradient is more accurate than that of the parts. [`Tape::custom`] applies it.
///
/// The forward pass is planned, stored and counted like any part of a network. The backward pass runs in f32 on the true
/// gradient: its exponent is removed exactly before, and each result is a cast site with an exponent of its own, named
/// after the operator. So gradients of any magnitude may pass.
///
/// ```
/// use gradscale::{
///     Cpu, CustomGradient, CustomOperator, Input, Method, Parameters, Trainer, Var, nn::{Linear, Module}, optim::Sgd,
/// };
///
/// /// Sign of x, with the gradient of x where |x| ≤ `width` (Hubara et al. 2016).
/// struct Binarize { width: f32 }
///
/// impl CustomOperator for Binarize {
///     fn forward<'t>(&self, inputs: &[Var<'t>]) -> Var<'t> {
///         inputs[0].sign()
///     }
///     fn backward<'t>(&self, of: CustomGradient<'t>) -> Vec<Var<'t>> {
///         let inside = self.width - of.inputs[0].unary(gradscale::gradscale_core::ops::Unary::Abs);
///         vec![inside.where_cond(of.gradient, of.gradient * 0.0)]
///     }
/// }
///
/// let mut parameters = Parameters::seeded(0);
/// let net = Linear::new(&mut parameters.at("net"), 2, 2);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.5), Method::mixed())?;
/// trainer.set_parameter("net.weight", &[0.5, 0.0, 0.0, 3.0])?;
/// trainer.set_parameter("net.bias", &[0.0, 0.0])?;
/// let gradients = trainer.backward([Input::f32([1, 2], &[1.0, 1.0])], |[x]| {
///     let y = net.forward(x);
///     y.tape().custom("binarize", &Binarize { width: 1.0 }, &[y]).sum()
/// })?;
/// // The second value, 3, is outside.
/// assert_eq!(trainer.gradient(&gradients, "net.bias")?.expect("a gradient").data, [1.0, 0.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "autograd.Function")]
pub trait CustomOperator {
    /// Records the forward pass on the tape of the inputs, and returns its result. No gradient flows through what it
    /// records, so pass parameters as inputs too.
    fn forward<'t>(&self, inputs: &[Var<'t>]) -> Var<'t>;

    /// Records the gradients of all inputs, in their order and shapes. It is called while the network is traced, so it
    /// cannot depend on values. A gradient of an input that needs none is not computed.
    fn backward<'t>(&self, of: CustomGradient<'t>) -> Vec<Var<'t>>;
}

/// Values from which a custom operator computes its gradient.
#[derive(Clone, Debug)]
pub struct CustomGradient<'t> {
    /// Inputs of the operator, as its forward pass has read them.
    pub inputs: Vec<Var<'t>>,
    /// Result of the operator's forward pass.
    pub output: Var<'t>,
    /// Gradient of that result, f32 and unscaled, in its shape.
    pub gradient: Var<'t>,
}

impl Tape {
    /// Applies a custom operator to at least one input. Its gradient's sites are named after `name`. In evaluation only its
    /// forward pass is recorded.
    ///
    /// # Errors
    /// No inputs, or other gradients than one of the shape of each input.
    pub fn custom<'t>(&'t self, name: &str, operator: &impl CustomOperator, inputs: &[Var<'t>]) -> Var<'t> {
        let refused = |words: String| TraceError::new(name, TraceErrorKind::Range(words));
        let Some(&first) = inputs.first() else {
            return self.zeros(Shape::SCALAR).bail(name, "a custom operator needs an input");
        };
        let constants: Vec<Var<'t>> = inputs.iter().map(|input| input.detach()).collect();
        let output = operator.forward(&constants);
        if !self.training() {
            return output;
        }
        first.try_record(|| {
            let gradient = self.record_source("gradient", Op::Custom, GivenGradient, output.shape());
            let given = gradient.id();
            let results =
                self.record_gradient(|| operator.backward(CustomGradient { inputs: constants, output, gradient }));
            if results.len() != inputs.len() {
                return Err(refused(format!("returns {} gradients of {} inputs", results.len(), inputs.len())));
            }
            for (result, input) in results.iter().zip(inputs) {
                if result.shape() != input.shape() {
                    return Err(other_shape(name, "gradient", *result, input.shape()));
                }
            }
            let work = Custom { given, results: results.into_iter().map(Var::id).collect() };
            let others: Vec<Var<'t>> = inputs[1..].iter().copied().chain([output]).collect();
            Ok(first.record_named_op(name.to_owned(), Op::Custom, work, &others, output.shape()))
        })
    }
}

/// Gradient that the backward pass of a custom operator receives.
#[derive(Clone, Copy, Debug, PartialEq)]
struct GivenGradient;

impl Operator for GivenGradient {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let words = "a gradient of a custom operator is read outside of its backward pass";
        Err(at.node.error(TraceErrorKind::Range(words.to_owned())))
    }

    fn is_differentiable(&self) -> bool {
        false
    }

    fn vjp(&self, _: &mut Context<'_, '_, '_>, _: Gradient) -> Result<(), TraceError> {
        Ok(())
    }
}

/// Custom operator, whose inputs are those of the user and then the result of its forward pass.
#[derive(Clone, Debug, PartialEq)]
struct Custom {
    /// Node of the gradient that its backward pass receives.
    given: usize,
    /// Nodes of the gradients that its backward pass returns.
    results: Vec<usize>,
}

impl Operator for Custom {
    /// Values keep their exponents, because the operator's result is that of its forward pass.
    fn activation_flow(&self, op: Op) -> ActivationFlow {
        op.activation_flow()
    }

    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        for i in 0..self.results.len() {
            at.read_in(i, None)?;
        }
        let output = at.read_in(self.results.len(), None)?;
        at.set_output(output);
        Ok(())
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let wanted: Vec<(usize, usize)> =
            self.results.iter().copied().enumerate().filter(|&(i, _)| at.needs_grad(i)).collect();
        let nodes: Vec<usize> = wanted.iter().map(|&(_, node)| node).collect();
        let values = at.evaluate_gradient(self.given, dy, &nodes)?;
        for ((i, _), dx) in wanted.into_iter().zip(values) {
            let x = dx.value.buf;
            at.emit_gradient(i, dx, GradientFlow::Cast, ScaleRule::FromValues, |y| cast(x, y))?;
        }
        Ok(())
    }
}
