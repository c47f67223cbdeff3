//! Recurrent layers over time: cells of [`super::recurrent`] along sequences, in several layers and one or both
//! directions.
//!
//! A layer's product with its inputs is computed once for the whole sequence and then split into steps. All steps of a
//! layer share their cast sites, whatever their number; with `gs:calls=each` each step has its own.

use super::{
    GruCell, LstmCell, Module,
    recurrent::{Cell, Units},
};
use crate::{
    Scope, Shape, TraceError, Var,
    error::TraceErrorKind,
    graph::other_shape,
    ops::{Places, StepProducts},
};
use gradscale_core::amp::MAX_INPUTS;

/// LSTM layers over sequences `[n, t, inputs]` to `[n, t, hidden]`, or `[n, t, 2·hidden]` in both directions, forward
/// first. They equal PyTorch's `nn.LSTM` with `batch_first=True`, with the same parameters: `weight_ih_l0`,
/// `weight_hh_l0`, `bias_ih_l0`, `bias_hh_l0`, then `…_l0_reverse`, `…_l1`. So
/// [`Parameters::import_torch`](crate::Parameters::import_torch) imports all of them from one module.
///
/// ```
/// use gradscale::{Input, Cpu, Method, Parameters, Tensor, Trainer, nn::{Linear, Lstm, Module}, optim::Sgd};
/// let mut parameters = Parameters::seeded(1);
/// let memory = Lstm::new(&mut parameters.at("memory"), 3, 4, 2);
/// let head = Linear::new(&mut parameters.at("head"), 4, 1);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
/// // A long series, ten steps at a time: each part starts with the final state of the one before.
/// let mut state = [vec![0.0; 2 * 2 * 4], vec![0.0; 2 * 2 * 4]];
/// for part in 0..3u8 {
///     let x: Vec<f32> = (0..60).map(|i| f32::from(part * 60 + i).sin()).collect();
///     let [h, c] = state.each_ref().map(|one| Input::f32([2, 2, 4], one));
///     let gradients = trainer.backward([Input::f32([2, 10, 3], &x), h, c], |[x, h, c]| {
///         let (y, [h, c]) = memory.sequence(x, Some([h, c]), None);
///         let _ = (h.output("h"), c.output("c"));
///         head.forward(y).square().mean()
///     })?;
///     trainer.step(gradients)?;
///     state = [trainer.output("h")?.data, trainer.output("c")?.data];
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "LSTM")]
pub struct Lstm(Stack<LstmCell>);

impl Lstm {
    /// Creates LSTM layers in forward direction. Weights and biases are initialised uniformly in ±1/√hidden, as in
    /// PyTorch.
    pub fn new(scope: &mut Scope<'_>, inputs: usize, hidden: usize, layers: usize) -> Self {
        Self(Stack::new(scope, inputs, Units { hidden, out: hidden }, layers, 1))
    }

    /// Creates bidirectional LSTM layers, with separate weights for each direction. Each layer reads both directions of
    /// the one before.
    pub fn bidirectional(scope: &mut Scope<'_>, inputs: usize, hidden: usize, layers: usize) -> Self {
        Self(Stack::new(scope, inputs, Units { hidden, out: hidden }, layers, 2))
    }

    /// Creates LSTM layers in forward direction, in which a product without bias projects each layer's `hidden` values
    /// to `out` (Sak, Senior and Beaufays 2014). This is PyTorch's `proj_size`, with weights `weight_hr_l0`, …. Results
    /// and h have `out` values, c has `hidden`. If both are equal, it is [`Lstm::new`].
    pub fn projected(scope: &mut Scope<'_>, inputs: usize, [hidden, out]: [usize; 2], layers: usize) -> Self {
        Self(Stack::new(scope, inputs, Units { hidden, out }, layers, 1))
    }

    /// Sets the dropout probability `p` of the inputs of all layers except the first, in training, like `dropout` of
    /// PyTorch's module.
    #[must_use]
    pub fn dropout(mut self, p: f32) -> Self {
        self.0.dropout = p;
        self
    }

    /// Computes results and the final state from x `[n, t, inputs]` and a state h, c. States are `[layers, n, hidden]`,
    /// in both directions `[2·layers, n, hidden]` with the directions of a layer adjacent. Without a state it starts
    /// from zeros.
    ///
    /// Lengths are integers `[n]` from 0 to t, and steps from a sequence's length on do not exist. Results there are 0,
    /// the final state is that of the sequence's last step, and backward a sequence starts at its own end. Values after
    /// an end, NaN too, are never read. A length beyond t is an error of the step if it comes directly from the host.
    /// These are PyTorch's packed sequences.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn sequence<'t>(
        &self, x: Var<'t>, state: Option<[Var<'t>; 2]>, lengths: Option<Var<'t>>,
    ) -> (Var<'t>, [Var<'t>; 2]) {
        self.0.run(x, state, lengths)
    }
}

/// Impl of the layer as a module: applies all steps, starting from a state of zeros.
impl Module for Lstm {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        self.sequence(x, None, None).0
    }
}

/// GRU layers over sequences `[n, t, inputs]` to `[n, t, hidden]`, or `[n, t, 2·hidden]` in both directions, forward
/// first. They equal PyTorch's `nn.GRU` with `batch_first=True`, with the same parameters, see [`Lstm`].
///
/// ```
/// use gradscale::{Input, Cpu, Method, Parameters, Trainer, nn::Gru, optim::Sgd};
/// let mut parameters = Parameters::seeded(1);
/// let gru = Gru::bidirectional(&mut parameters.at("gru"), 3, 4, 2);
/// assert_eq!(parameters.names().take(2).collect::<Vec<_>>(), ["gru.weight_ih_l0", "gru.bias_ih_l0"]);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
/// // Two sequences, of five steps and of three.
/// let batch = [Input::f32([2, 5, 3], &[0.5; 30]), Input::u32([2], &[5, 3])];
/// let y = trainer.evaluate(batch, |[x, lengths]| gru.sequence(x, None, Some(lengths)).0)?;
/// assert_eq!(y.shape.sizes(), [2, 1, 5, 8]);
/// assert!(y.data[8 * 8..].iter().all(|value| *value == 0.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "GRU")]
pub struct Gru(Stack<GruCell>);

impl Gru {
    /// Creates GRU layers in forward direction. Weights and biases are initialised uniformly in ±1/√hidden, as in
    /// PyTorch.
    pub fn new(scope: &mut Scope<'_>, inputs: usize, hidden: usize, layers: usize) -> Self {
        Self(Stack::new(scope, inputs, Units { hidden, out: hidden }, layers, 1))
    }

    /// Creates bidirectional GRU layers, with separate weights for each direction. Each layer reads both directions of
    /// the one before.
    pub fn bidirectional(scope: &mut Scope<'_>, inputs: usize, hidden: usize, layers: usize) -> Self {
        Self(Stack::new(scope, inputs, Units { hidden, out: hidden }, layers, 2))
    }

    /// Sets the dropout probability `p` of the inputs of all layers except the first, in training, like `dropout` of
    /// PyTorch's module.
    #[must_use]
    pub fn dropout(mut self, p: f32) -> Self {
        self.0.dropout = p;
        self
    }

    /// Computes results and the final state from x `[n, t, inputs]` and a state h; shapes and lengths are those of
    /// [`Lstm::sequence`].
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn sequence<'t>(&self, x: Var<'t>, state: Option<Var<'t>>, lengths: Option<Var<'t>>) -> (Var<'t>, Var<'t>) {
        let (y, [h]) = self.0.run(x, state.map(|h| [h]), lengths);
        (y, h)
    }
}

/// Impl of the layer as a module: applies all steps, starting from a state of zeros.
impl Module for Gru {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        self.sequence(x, None, None).0
    }
}

/// Stack of recurrent layers: the cells of each, in one or both directions.
#[derive(Clone, Debug)]
struct Stack<C> {
    name: String,
    layers: Vec<Vec<C>>,
    directions: usize,
    units: Units,
    /// Fraction of a layer's outputs that dropout keeps in training.
    dropout: f32,
}

impl<C> Stack<C> {
    fn new<const S: usize>(scope: &mut Scope<'_>, inputs: usize, units: Units, layers: usize, directions: usize) -> Self
    where
        C: Cell<S>,
    {
        let of_layer = |layer: usize| {
            let inputs = if layer == 0 { inputs } else { directions * units.out };
            let ends = ["", "_reverse"].into_iter().take(directions);
            ends.map(|end| C::of_layer(scope, &format!("l{layer}{end}"), inputs, units)).collect()
        };
        let layers = (0..layers).map(of_layer).collect();
        Self { name: scope.path().to_owned(), layers, directions, units, dropout: 0.0 }
    }

    fn run<'t, const S: usize>(
        &self, x: Var<'t>, state: Option<[Var<'t>; S]>, lengths: Option<Var<'t>>,
    ) -> (Var<'t>, [Var<'t>; S])
    where
        C: Cell<S>,
    {
        if let Err(error) = self.check(x, state.as_ref().map_or(&[], |state| state.as_slice())) {
            let nothing = x.try_record(|| Err(error));
            return (nothing, [nothing; S]);
        }
        let [n, _, steps, _] = x.shape().sizes();
        let called = |what: &str| format!("{}.{what}", self.name);
        let widths = C::widths(self.units);
        let state = state.unwrap_or_else(|| self.states(n).map(|shape| x.tape().zeros(shape)));
        let first = state.map(|one| one.unbind_as(&called("first"), 0));
        let mut last: [Vec<Var<'t>>; S] = [(); S].map(|()| Vec::new());
        // Values after the end of a sequence are zeroed before any product, because 0 times NaN is NaN.
        let mut x = match lengths {
            Some(lengths) => x.select(&called("inputs"), lengths, steps, Places::All),
            None => x,
        };
        for (layer, cells) in self.layers.iter().enumerate() {
            if layer > 0 && self.dropout > 0.0 && x.tape().training() {
                x = x.dropout(self.dropout).named(&called("dropout"));
            }
            let mut sides = Vec::new();
            for (side, cell) in cells.iter().enumerate() {
                let mut begin = [x; S];
                for ((one, all), &width) in begin.iter_mut().zip(&first).zip(&widths) {
                    // If there are too many zeros for a device, a scalar replaces them.
                    let of_cell = all.get(last[0].len()).copied().unwrap_or(x);
                    *one = of_cell.reshape([n, width]).named(&called("begin"));
                }
                let (out, end) = over_time(cell, x, begin, lengths, side == 1);
                sides.push(joined(&out, 2, &format!("{}.out", cell.name())));
                last.iter_mut().zip(end).for_each(|(all, one)| all.push(one));
            }
            x = joined(&sides, 3, &called("out"));
        }
        let mut ends = widths.iter();
        let last = last.map(|all| {
            let width = ends.next().copied().unwrap_or(0);
            let part = |one: Var<'t>| one.reshape([1, n, width]).named(&called("end"));
            joined(&all.into_iter().map(part).collect::<Vec<_>>(), 0, &called("last"))
        });
        (x, last)
    }

    /// Returns the shapes of the recurrent state of n sequences.
    fn states<const S: usize>(&self, n: usize) -> [Shape; S]
    where
        C: Cell<S>,
    {
        C::widths(self.units).map(|width| Shape::from([self.layers.len() * self.directions, n, width]))
    }

    fn check<const S: usize>(&self, x: Var<'_>, state: &[Var<'_>]) -> Result<(), TraceError>
    where
        C: Cell<S>,
    {
        let [n, h, steps, _] = x.shape().sizes();
        let error = |words: String| TraceError::new(&self.name, TraceErrorKind::Range(words));
        if self.layers.is_empty() {
            return Err(error("a recurrent network needs at least one layer".to_owned()));
        }
        if h != 1 || steps == 0 {
            return Err(error(format!(
                "a sequence must be n × 1 × t × inputs with at least one step, not {}",
                x.shape()
            )));
        }
        let wrong = state.iter().zip(self.states(n)).find(|(one, right)| one.shape() != *right);
        match wrong {
            Some((one, right)) => Err(other_shape(&self.name, "state", *one, right)),
            None => Ok(()),
        }
    }
}

/// Applies one cell along a whole sequence, forward or backward. Returns its results in the sequence's order, and its
/// final state.
fn over_time<'t, const S: usize>(
    cell: &impl Cell<S>, x: Var<'t>, mut state: [Var<'t>; S], lengths: Option<Var<'t>>, back: bool,
) -> (Vec<Var<'t>>, [Var<'t>; S]) {
    let all = cell.of_input(x).unbound_as(&format!("{}.steps", cell.name()), 2);
    let count = all.shape().sizes()[2];
    let mut out = Vec::with_capacity(count);
    let mut order: Vec<(usize, u32)> = (0..count).zip(0..).collect();
    if back {
        order.reverse();
    }
    for (i, (step, place)) in order.into_iter().enumerate() {
        let next = cell.step(StepProducts { all, step: Some(step), is_first: i == 0 }, state);
        let Some(lengths) = lengths else {
            state = next;
            out.push(next[0]);
            continue;
        };
        let called = |i: usize, what: &str| format!("{}.{what}{i}", cell.name());
        let select = |one: Var<'t>, name: &str, places| one.select(name, lengths, count, places);
        let mut moved = next;
        for i in 0..S {
            // After the end of a sequence its state is kept.
            moved[i] = select(moved[i], &called(i, "moved"), Places::Before(place));
            let still = select(state[i], &called(i, "still"), Places::Behind(place));
            state[i] = (moved[i] + still).named(&called(i, "state"));
        }
        out.push(moved[0]);
    }
    if back {
        out.reverse();
    }
    (out, state)
}

/// Concatenates parts along an axis, in groups of the maximum size of the operator. All operators have one name, so
/// that sites are the same for any number of parts.
fn joined<'t>(parts: &[Var<'t>], axis: usize, name: &str) -> Var<'t> {
    if let [one] = parts {
        return *one;
    }
    let join = |some: &[Var<'t>]| match some {
        [one] => *one,
        _ => some[0].concat(&some[1..], axis).named(name),
    };
    let some: Vec<Var<'t>> = parts.chunks(MAX_INPUTS).map(join).collect();
    joined(&some, axis, name)
}
