//! Recurrent cells: one step of a sequence. A cell that is called several times in a training step has each cast site
//! once: its calls share exponents and merge their statistics. If gradients shrink or grow along a long sequence by
//! more than FP16's range, use `gs:calls=each`, which gives each call its own site
//! ([`SharedLayers::Each`](crate::SharedLayers::Each)).

use crate::{Init, Parameter, Scope, Var, ops::StepProducts};
use gradscale_core::ops::Op;

/// Product with a bias in a recurrent cell, in the precision of recurrent cells.
#[derive(Clone, Debug)]
struct Gates {
    name: String,
    weight: Parameter,
    bias: Parameter,
}

impl Gates {
    /// Creates the product of a recurrent cell from `inputs` to `[gates, hidden]` values. All parameters are
    /// initialised uniformly in ±1/√hidden.
    fn new(scope: &mut Scope<'_>, inputs: usize, gates: [usize; 2]) -> Self {
        Self::named(scope, scope.path().to_owned(), ["weight", "bias"], inputs, gates)
    }

    /// Creates the product of a recurrent layer, whose parameters have PyTorch's names.
    fn of_layer(scope: &mut Scope<'_>, part: &str, layer: &str, inputs: usize, gates: [usize; 2]) -> Self {
        let names = ["weight", "bias"].map(|what| format!("{what}_{part}_{layer}"));
        let name = format!("{}.{layer}.{part}", scope.path());
        Self::named(scope, name, names.each_ref().map(String::as_str), inputs, gates)
    }

    fn named(
        scope: &mut Scope<'_>, name: String, [weight, bias]: [&str; 2], inputs: usize, [gates, hidden]: [usize; 2],
    ) -> Self {
        let init = Init::within_root(hidden);
        let weight = scope.weight(weight, [gates * hidden, inputs], init);
        let bias = scope.weight(bias, [gates * hidden], init);
        Self { name, weight, bias }
    }

    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let [weight, bias] = [&self.weight, &self.bias].map(|one| x.tape().parameter(one));
        x.product(&self.name, Op::Recurrent, weight, Some(bias))
    }

    /// Computes the product with the hidden state of a step whose other products are `x`. If `is_sum`, the cell reads only
    /// the sums of both.
    fn of_step<'t>(&self, h: Var<'t>, x: StepProducts<'t>, is_sum: bool) -> Var<'t> {
        let [weight, bias] = [&self.weight, &self.bias].map(|one| h.tape().parameter(one));
        h.step_product(&self.name, x, is_sum, weight, bias)
    }
}

/// Numbers of inputs, hidden units and outputs of a recurrent layer's cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Units {
    /// Number of hidden units of the cell: the values of each gate.
    pub hidden: usize,
    /// Number of values of the cell's result, fewer than `hidden` with a projection.
    pub out: usize,
}

/// Trait of the cell of a recurrent layer, with a state of `STATES` tensors `[n, hidden]`, the first of which is its
/// result.
pub(super) trait Cell<const STATES: usize>: Sized {
    /// Creates the recurrent cell of a layer: `l0`, `l0_reverse`, `l1`, …, after the name of the scope.
    fn of_layer(scope: &mut Scope<'_>, layer: &str, inputs: usize, units: Units) -> Self;

    /// Returns the number of values of each tensor of the cell's state.
    fn widths(units: Units) -> [usize; STATES];

    fn name(&self) -> &str;

    /// Computes the cell's product with x, for one step or for a whole sequence.
    fn of_input<'t>(&self, x: Var<'t>) -> Var<'t>;

    /// Computes the cell's next state from one step of the inputs' product and the state.
    fn step<'t>(&self, of_input: StepProducts<'t>, state: [Var<'t>; STATES]) -> [Var<'t>; STATES];
}

/// LSTM cell, one step of a long short-term memory (Hochreiter and Schmidhuber 1997): from x `[n, inputs]` and the
/// state h, c `[n, hidden]` to the next state.
///
/// i, f, o = sigmoid(…), g = tanh(…) of `ih·x + hh·h`; c′ = f·c + i·g; h′ = o·tanh(c′). The order of the gates is i, f,
/// g, o, with a bias for each product, as in PyTorch.
///
/// ```
/// use gradscale::{Input, Cpu, Method, Parameters, Trainer, nn::LstmCell, optim::Sgd};
/// let mut parameters = Parameters::seeded(1);
/// let cell = LstmCell::new(&mut parameters.at("cell"), 3, 4);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
/// // A sequence of two steps, starting from zeros.
/// let batch = [Input::f32([2, 6], &[0.5; 12]), Input::f32([2, 4], &[0.0; 8])];
/// let gradients = trainer.backward(batch, |[x, zero]| {
///     let mut state = [zero; 2];
///     for step in 0..2 {
///         state = cell.forward(x.slice(3, 3 * step, 3), state);
///     }
///     state[0].square().mean()
/// })?;
/// assert!(trainer.step(gradients)?.skipped.is_none());
/// assert_eq!(trainer.sites().filter(|site| site.name == "cell.hh/dgrad").count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "LSTMCell")]
pub struct LstmCell {
    name: String,
    of_input: Gates,
    of_hidden: Gates,
    /// Name and weight of the projection of the result, if there is one.
    projection: Option<(String, Parameter)>,
}

impl LstmCell {
    /// Creates the LSTM cell. Weights and biases are initialised uniformly in ±1/√hidden, as in PyTorch.
    pub fn new(scope: &mut Scope<'_>, inputs: usize, hidden: usize) -> Self {
        let of_input = Gates::new(&mut scope.at("ih"), inputs, [4, hidden]);
        let of_hidden = Gates::new(&mut scope.at("hh"), hidden, [4, hidden]);
        Self { name: scope.path().to_owned(), of_input, of_hidden, projection: None }
    }

    /// Computes the next state [h, c] of the LSTM cell from x and [h, c].
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn forward<'t>(&self, x: Var<'t>, state: [Var<'t>; 2]) -> [Var<'t>; 2] {
        self.step(StepProducts { all: self.of_input(x), step: None, is_first: true }, state)
    }
}

impl Cell<2> for LstmCell {
    fn of_layer(scope: &mut Scope<'_>, layer: &str, inputs: usize, Units { hidden, out }: Units) -> Self {
        let of_input = Gates::of_layer(scope, "ih", layer, inputs, [4, hidden]);
        let of_hidden = Gates::of_layer(scope, "hh", layer, out, [4, hidden]);
        let name = format!("{}.{layer}", scope.path());
        let weight = |scope: &mut Scope<'_>| {
            let weight = scope.weight(&format!("weight_hr_{layer}"), [out, hidden], Init::within_root(hidden));
            (format!("{name}.hr"), weight)
        };
        let projection = (out != hidden).then(|| weight(scope));
        Self { name, of_input, of_hidden, projection }
    }

    fn widths(Units { hidden, out }: Units) -> [usize; 2] {
        [out, hidden]
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn of_input<'t>(&self, x: Var<'t>) -> Var<'t> {
        self.of_input.forward(x)
    }

    fn step<'t>(&self, of_input: StepProducts<'t>, [h, c]: [Var<'t>; 2]) -> [Var<'t>; 2] {
        // Named after the cell, so that all calls have the same sites.
        let [h, c] = self.of_hidden.of_step(h, of_input, true).lstm_step(&self.name, of_input, c);
        let project =
            |(name, weight): &(String, Parameter)| h.product(name, Op::Recurrent, h.tape().parameter(weight), None);
        [self.projection.as_ref().map_or(h, project), c]
    }
}

/// GRU cell, one step of a gated recurrent unit (Cho et al. 2014): from x `[n, inputs]` and the state h `[n, hidden]`
/// to the next state.
///
/// r, z = sigmoid(…) of `ih·x + hh·h`; n = tanh(`ih·x` + r·`hh·h`); h′ = n + z·(h − n). The order of the gates is r, z,
/// n, with a bias for each product, as in PyTorch.
///
/// ```
/// use gradscale::{Input, Cpu, Method, Parameters, Trainer, nn::GruCell, optim::Sgd};
/// let mut parameters = Parameters::seeded(1);
/// let cell = GruCell::new(&mut parameters.at("cell"), 3, 4);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
/// let batch = [Input::f32([2, 3], &[0.5; 6]), Input::f32([2, 4], &[0.0; 8])];
/// let h = trainer.evaluate(batch, |[x, h]| cell.forward(x, cell.forward(x, h)))?;
/// assert_eq!(h.shape.sizes(), [2, 1, 1, 4]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "GRUCell")]
pub struct GruCell {
    name: String,
    of_input: Gates,
    of_hidden: Gates,
}

impl GruCell {
    /// Creates the GRU cell. Weights and biases are initialised uniformly in ±1/√hidden, as in PyTorch.
    pub fn new(scope: &mut Scope<'_>, inputs: usize, hidden: usize) -> Self {
        let of_input = Gates::new(&mut scope.at("ih"), inputs, [3, hidden]);
        let of_hidden = Gates::new(&mut scope.at("hh"), hidden, [3, hidden]);
        Self { name: scope.path().to_owned(), of_input, of_hidden }
    }

    /// Computes the next state h of the GRU cell from x and h.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn forward<'t>(&self, x: Var<'t>, h: Var<'t>) -> Var<'t> {
        let [h] = self.step(StepProducts { all: self.of_input(x), step: None, is_first: true }, [h]);
        h
    }
}

impl Cell<1> for GruCell {
    fn of_layer(scope: &mut Scope<'_>, layer: &str, inputs: usize, Units { hidden, .. }: Units) -> Self {
        let of_input = Gates::of_layer(scope, "ih", layer, inputs, [3, hidden]);
        let of_hidden = Gates::of_layer(scope, "hh", layer, hidden, [3, hidden]);
        Self { name: format!("{}.{layer}", scope.path()), of_input, of_hidden }
    }

    fn widths(Units { hidden, .. }: Units) -> [usize; 1] {
        [hidden]
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn of_input<'t>(&self, x: Var<'t>) -> Var<'t> {
        self.of_input.forward(x)
    }

    fn step<'t>(&self, of_input: StepProducts<'t>, [h]: [Var<'t>; 1]) -> [Var<'t>; 1] {
        // Named after the cell, so that all calls have the same sites. The candidate reads its product with h through the
        // reset gate.
        [self.of_hidden.of_step(h, of_input, false).gru_step(&self.name, of_input, h)]
    }
}
