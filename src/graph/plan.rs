//! Precision plan: the precision of every operator of a trace.

use super::{NodeKind, Trace, Value};
use crate::{Layers, TraceError, method::is_of};
use gradscale_core::{
    amp::{AmpPolicy, Input, List, Node, PlanError, Planned, Precision, plan_with},
    backend::DType,
    ops::Op,
};
use std::fmt;

/// Planned precision of one operator of a network.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PlanRow {
    /// Name of the planned layer or operator.
    pub name: String,
    /// Operator whose precision is planned.
    pub op: Op,
    /// Precision in which the operator reads its inputs and stores its result.
    pub precision: Precision,
    /// Number of inputs that are cast for the operator.
    pub casts: u32,
    /// Type of the buffer of the operator's result; `None` if it was never run.
    pub stored: Option<DType>,
    node: usize,
}

impl PlanRow {
    /// Returns true if this operator is or belongs to the layer of that name, as [`Layers`] defines it.
    #[must_use]
    pub fn is_of(&self, layer: &str) -> bool {
        is_of(&self.name, layer)
    }

    pub(super) fn stored(self, values: &[Option<Value>]) -> Self {
        Self { stored: values[self.node].map(|value| value.dtype), ..self }
    }
}

impl fmt::Display for PlanRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:32} {:20} {:4}", self.name, self.op, self.precision)?;
        if self.casts != 0 { write!(f, "  {} cast", self.casts) } else { Ok(()) }
    }
}

/// Returns true if some operator reads the node `id` as coordinates.
fn are_coordinates(trace: &Trace, id: usize) -> bool {
    let reads = |node: &crate::graph::Node| {
        let which = node.operator().and_then(|operator| operator.coordinates());
        which.is_some_and(|i| node.inputs.get(i) == Some(&id))
    };
    trace.nodes.iter().any(reads)
}

/// Plans a trace with `core`, and returns the precision of each node (`None` for integers).
pub(crate) fn plan(
    policy: &AmpPolicy, layers: &Layers, trace: &Trace,
) -> Result<(Vec<PlanRow>, Vec<Option<Precision>>), TraceError> {
    let settings = policy.level().settings();
    let mut precision: Vec<Option<Precision>> = vec![None; trace.nodes.len()];
    // Row of the plan of each operator.
    let mut rows: Vec<usize> = vec![usize::MAX; trace.nodes.len()];
    let mut inputs: Vec<(usize, Vec<Input>)> = Vec::new();
    for (id, node) in trace.nodes.iter().enumerate() {
        match &node.work {
            NodeKind::Input(DType::U8 | DType::U32) => {}
            NodeKind::Input(DType::F32) if are_coordinates(trace, id) => precision[id] = Some(Precision::Single),
            NodeKind::Input(DType::F32 | DType::F16) => precision[id] = Some(settings.data),
            NodeKind::Parameter(_) | NodeKind::Frozen(_) => precision[id] = Some(settings.parameters),
            NodeKind::Operator(operator) if operator.gives_integers() => {}
            NodeKind::Operator(operator) => {
                let no_source = [operator.integers(), operator.coordinates()];
                let inside = node
                    .inputs
                    .iter()
                    .enumerate()
                    .filter(|&(i, _)| !no_source.contains(&Some(i)) && !operator.lengths().contains(&i));
                let sources = inside.map(|(_, &input)| match &trace.nodes[input].work {
                    NodeKind::Input(_) => Input::Data,
                    NodeKind::Parameter(_) | NodeKind::Frozen(_) => Input::Parameter,
                    NodeKind::Operator(operator) if operator.gives_integers() => Input::Data,
                    NodeKind::Operator(_) => Input::Node(rows[input]),
                });
                let sources = sources.collect();
                rows[id] = inputs.len();
                inputs.push((id, sources));
            }
        }
    }
    let nodes: Vec<Node<'_>> = inputs
        .iter()
        .map(|(id, inputs)| Node { name: &trace.nodes[*id].name, op: trace.nodes[*id].op, inputs })
        .collect();
    let mut planned = vec![Planned::default(); nodes.len()];
    let own = |node: &Node<'_>| {
        layers.precision_of(node.name).map(|precision| match precision {
            Precision::Half => List::Allow,
            Precision::Single => List::Deny,
        })
    };
    plan_with(policy, own, &nodes, &mut planned).map_err(|error| {
        // Reports the operator by its name instead of its index.
        let at = match error {
            PlanError::Inputs { node } | PlanError::Order { node } => nodes.get(node),
            _ => None,
        };
        TraceError::new(at.map_or("plan", |node| node.name), error)
    })?;
    let mut table = Vec::new();
    for ((id, _), planned) in inputs.iter().zip(&planned) {
        precision[*id] = planned.precision;
        let node = &trace.nodes[*id];
        table.push(PlanRow {
            name: node.name.clone(),
            op: node.op,
            precision: planned.precision.unwrap_or(Precision::Single),
            casts: planned.casts.count_ones(),
            stored: None,
            node: *id,
        });
    }
    Ok((table, precision))
}
