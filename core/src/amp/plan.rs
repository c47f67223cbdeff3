//! Precision plan of a network, made before the network runs: precision and input casts of every operator.

use super::{AmpPolicy, List, Precision};
use crate::ops::Op;
use core::fmt;
use heapless::Vec;

/// Maximum number of inputs of one operator in a precision plan.
pub const MAX_INPUTS: usize = 8;

/// Source of one input of an operator in a precision plan: the batch, a parameter or an earlier node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// Batch that is fed to the network.
    Data,
    /// A parameter of the network. A half-precision copy of an f32 parameter is made once a step and cached.
    Parameter,
    /// Output of an earlier node of the network, by its index.
    Node(usize),
}

/// Operator of a network for which a precision is to be planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node<'a> {
    /// Display name of the node in a precision plan.
    pub name: &'a str,
    /// Kind of the operator at the node.
    pub op: Op,
    /// Sources of the inputs of the node, at most [`MAX_INPUTS`].
    pub inputs: &'a [Input],
}

/// Planned precision of a node, and the casts of its inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planned {
    /// Precision in which the node reads its inputs and stores its output; `None` in an unused row.
    pub precision: Option<Precision>,
    /// Bit mask of casts: bit i is set if input i must first be cast to the node's precision.
    pub casts: u8,
}

impl Planned {
    /// Returns true if the plan casts input `i` of the node to another precision.
    #[must_use]
    pub const fn is_cast(&self, i: usize) -> bool {
        i < MAX_INPUTS && self.casts >> i & 1 == 1
    }
}

/// Plans `nodes`, which are in execution order, and writes the result to the start of `out`.
///
/// # Errors
/// [`PlanError`] if `out` is too short, or if a node refers to itself or a later one, or has too many inputs.
///
/// ```
/// use gradscale_core::{amp::{AmpPolicy, Input, Level, Node, Planned, Precision, plan}, ops::Op};
/// let nodes = [
///     Node { name: "conv", op: Op::Conv, inputs: &[Input::Data, Input::Parameter] },
///     Node { name: "relu", op: Op::Relu, inputs: &[Input::Node(0)] },
///     Node { name: "loss", op: Op::CrossEntropy, inputs: &[Input::Node(1)] },
/// ];
/// let mut planned = [Planned::default(); 3];
/// plan(&AmpPolicy::new(Level::O1), &nodes, &mut planned)?;
/// assert_eq!(planned.map(|row| row.casts), [0b11, 0b0, 0b1]);
/// assert_eq!(planned[2].precision, Some(Precision::Single));
/// # Ok::<(), gradscale_core::amp::PlanError>(())
/// ```
pub fn plan(policy: &AmpPolicy, nodes: &[Node<'_>], out: &mut [Planned]) -> Result<(), PlanError> {
    plan_with(policy, |_| None, nodes, out)
}

/// Plans `nodes` as [`plan`] does, but `own` can assign a list to single nodes, for example to layers by name. Like the
/// policy's lists, these assignments apply under O1 and O2 only.
///
/// # Errors
/// See [`plan`].
///
/// ```
/// use gradscale_core::{amp::{AmpPolicy, Input, Level, List, Node, Planned, Precision, plan_with}, ops::Op};
/// let nodes = [
///     Node { name: "first", op: Op::Linear, inputs: &[Input::Data, Input::Parameter] },
///     Node { name: "second", op: Op::Linear, inputs: &[Input::Node(0), Input::Parameter] },
/// ];
/// let mut planned = [Planned::default(); 2];
/// let own = |node: &Node<'_>| (node.name == "first").then_some(List::Deny);
/// plan_with(&AmpPolicy::new(Level::O1), own, &nodes, &mut planned)?;
/// assert_eq!(planned.map(|row| row.precision), [Some(Precision::Single), Some(Precision::Half)]);
/// # Ok::<(), gradscale_core::amp::PlanError>(())
/// ```
pub fn plan_with(
    policy: &AmpPolicy, own: impl Fn(&Node<'_>) -> Option<List>, nodes: &[Node<'_>], out: &mut [Planned],
) -> Result<(), PlanError> {
    if out.len() < nodes.len() {
        return Err(PlanError::Space { nodes: nodes.len(), rows: out.len() });
    }
    let settings = policy.level().settings();
    for (index, node) in nodes.iter().enumerate() {
        // Normalisations compute in f32 internally and read their scale and shift without a cast.
        let inside = policy.list(node.op) == List::Inside;
        let decides = |input: &Input| !(inside && matches!(input, Input::Parameter));
        let mut types = [Precision::Half; MAX_INPUTS];
        let types = types.get_mut(..node.inputs.len()).ok_or(PlanError::Inputs { node: index })?;
        for (kind, input) in types.iter_mut().zip(node.inputs) {
            *kind = match *input {
                Input::Data => settings.data,
                Input::Parameter => settings.parameters,
                Input::Node(source) if source < index => {
                    out.get(source).and_then(|row| row.precision).ok_or(PlanError::Order { node: index })?
                }
                Input::Node(_) => return Err(PlanError::Order { node: index }),
            };
        }
        let mut live: Vec<Precision, MAX_INPUTS> = Vec::new();
        for (&kind, input) in types.iter().zip(node.inputs) {
            if decides(input) && live.push(kind).is_err() {
                return Err(PlanError::Inputs { node: index });
            }
        }
        let precision = policy.precision_on(own(node).unwrap_or(policy.list(node.op)), &live);
        let casts = types
            .iter()
            .zip(node.inputs)
            .rev()
            .fold(0, |bits, (&kind, input)| bits << 1 | u8::from(kind != precision && decides(input)));
        if let Some(row) = out.get_mut(index) {
            *row = Planned { precision: Some(precision), casts };
        }
    }
    Ok(())
}

/// Reason why the precision of a network cannot be planned.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// The output slice has fewer rows than the network has nodes.
    Space {
        /// Number of nodes of the network that was to be planned.
        nodes: usize,
        /// Number of rows in the output slice, which is too small.
        rows: usize,
    },
    /// A node has more than [`MAX_INPUTS`] inputs.
    Inputs {
        /// Index of the node with too many inputs.
        node: usize,
    },
    /// A node refers to itself or to a later node.
    Order {
        /// Index of the node that refers to itself or to a later one.
        node: usize,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Space { nodes, rows } => write!(f, "{nodes} operators do not fit a workspace of {rows} rows"),
            Self::Inputs { node } => write!(f, "operator {node} has more than {MAX_INPUTS} inputs"),
            Self::Order { node } => write!(f, "operator {node} has an input that is computed after it"),
        }
    }
}

crate::sentence!(PlanError);

impl core::error::Error for PlanError {}
