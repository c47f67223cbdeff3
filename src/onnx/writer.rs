//! Writer of ONNX nodes, used by operators.

use super::proto::{self, Attribute, DataType};
use crate::{
    Shape, TraceError,
    error::TraceErrorKind,
    graph::{Node, NodeKind, Trace},
};
use half::f16;
use std::collections::HashSet;

/// Value of an attribute of an ONNX node.
#[derive(Clone, Debug)]
pub(crate) enum Is<'a> {
    Int(i64),
    Ints(&'a [i64]),
    Float(f32),
    Text(&'a str),
}

/// Attribute of an ONNX operator: name and value.
pub(crate) type Named<'a> = (&'a str, Is<'a>);

/// Permutation of axes from n, h, w, c to n, c, h, w, and the inverse.
const TO_FIRST: [usize; 4] = [0, 3, 1, 2];
const TO_LAST: [usize; 4] = [0, 2, 3, 1];

/// Names of a value in each form: channels last, as in this engine; channels first, as for ONNX's convolutions; 64-bit
/// integers. A missing form is computed from another by an operator that is written once.
#[derive(Clone, Debug, Default)]
struct Forms {
    last: Option<String>,
    first: Option<String>,
    integers: Option<String>,
    bytes: Option<String>,
}

/// Parameter of the network with its values, to be written to the model.
#[derive(Debug)]
pub(crate) struct Weight {
    pub name: String,
    pub shape: Shape,
    pub values: Vec<f32>,
    /// True if the model may store the parameter in half, because it was learned.
    pub learned: bool,
}

/// Writer of an ONNX model, which converts one node of a trace after the other.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    trace: &'a Trace,
    weights: &'a [Weight],
    half: bool,
    node: usize,
    forms: Vec<Forms>,
    /// Names of the second results of nodes: the positions of a pooling's maxima.
    saved: Vec<Option<String>>,
    names: HashSet<String>,
    pub(super) graph: proto::Graph,
}

impl<'a> Writer<'a> {
    pub(super) fn new(trace: &'a Trace, weights: &'a [Weight], half: bool) -> Self {
        let forms = vec![Forms::default(); trace.nodes.len()];
        let saved = vec![None; trace.nodes.len()];
        let graph = proto::Graph { name: "network".to_owned(), ..proto::Graph::default() };
        Self { trace, weights, half, node: 0, forms, saved, names: HashSet::new(), graph }
    }

    /// Writes the ONNX counterpart of the trace's node with this number.
    pub(super) fn write(&mut self, number: usize) -> Result<(), TraceError> {
        self.node = number;
        match &self.trace.nodes[number].work {
            NodeKind::Operator(operator) => operator.onnx(self),
            // Written on the first read, in the form that is read.
            NodeKind::Input(_) | NodeKind::Parameter(_) | NodeKind::Frozen(_) => Ok(()),
        }
    }

    /// Declares an input of the model that the host provides, with its name.
    pub(super) fn add_input(&mut self, number: usize, name: &str, kind: DataType) {
        self.names.insert(name.to_owned());
        self.graph.input.push(value_info(name, kind, self.trace.nodes[number].shape));
        let forms = &mut self.forms[number];
        let form = match kind {
            DataType::Float | DataType::Float16 => &mut forms.last,
            DataType::Int64 => &mut forms.integers,
            DataType::Uint8 => &mut forms.bytes,
        };
        *form = Some(name.to_owned());
    }

    /// Declares the value of a node as a result of the model.
    pub(super) fn result(&mut self, number: usize, name: &str) -> Result<(), TraceError> {
        let integers = self.trace.nodes[number].operator().is_some_and(|operator| operator.gives_integers());
        let (from, kind) = match integers {
            true => (self.integers_of(number)?, DataType::Int64),
            false => (self.last_of(number)?, DataType::Float),
        };
        let name = self.unique(name);
        self.graph.node.push(proto::Node {
            input: vec![from],
            output: vec![name.clone()],
            name: format!("{name}.identity"),
            op_type: "Identity".to_owned(),
            attribute: Vec::new(),
        });
        self.graph.output.push(value_info(&name, kind, self.trace.nodes[number].shape));
        Ok(())
    }

    /// Returns the trace's node that is being written.
    pub fn node(&self) -> &'a Node {
        &self.trace.nodes[self.node]
    }

    /// Creates the error that the current node has no ONNX counterpart.
    pub fn unsupported(&self, why: &str) -> TraceError {
        self.node().error(TraceErrorKind::Range(format!("ONNX cannot express this: {why}")))
    }

    /// Returns the shape of the current node's input `i`.
    pub fn shape(&self, i: usize) -> Shape {
        self.trace.nodes[self.node().inputs[i]].shape
    }

    /// Returns the ONNX name of the current node's input `i` as [n, h, w, c].
    pub fn x(&mut self, i: usize) -> Result<String, TraceError> {
        self.last_of(self.node().inputs[i])
    }

    /// Returns the ONNX name of the current node's input `i` as [n, c, h, w].
    pub fn first(&mut self, i: usize) -> Result<String, TraceError> {
        let of = self.node().inputs[i];
        if let Some(name) = &self.forms[of].first {
            return Ok(name.clone());
        }
        let last = self.last_of(of)?;
        let name = self.permuted(&last, TO_FIRST);
        self.forms[of].first = Some(name.clone());
        Ok(name)
    }

    /// Returns the ONNX name of the current node's input `i` as integers.
    pub fn integers(&mut self, i: usize) -> Result<String, TraceError> {
        self.integers_of(self.node().inputs[i])
    }

    /// Returns true if the current node's input `i` exists with channels first.
    pub fn is_first(&self, i: usize) -> bool {
        let forms = &self.forms[self.node().inputs[i]];
        forms.first.is_some() && forms.last.is_none()
    }

    /// Returns the name of input `i` in its present layout, for operators that do not depend on axes, and true if that
    /// is channels first.
    pub fn any(&mut self, i: usize) -> Result<(String, bool), TraceError> {
        if self.is_first(i) { Ok((self.first(i)?, true)) } else { Ok((self.x(i)?, false)) }
    }

    /// Returns the ONNX name of the current node's input `i`, reshaped to `sizes`.
    pub fn shaped(&mut self, i: usize, sizes: &[usize]) -> Result<String, TraceError> {
        let of = self.node().inputs[i];
        if let Some(weight) = self.weight_of(of) {
            return Ok(self.weight(weight, sizes, &weight.values));
        }
        let x = self.last_of(of)?;
        Ok(self.reshape(&x, sizes))
    }

    /// Returns the name of input `i`, transposed and reshaped. A parameter is transposed before it is written.
    pub fn ordered(&mut self, i: usize, order: [usize; 4], sizes: &[usize]) -> Result<String, TraceError> {
        let of = self.node().inputs[i];
        if let Some(weight) = self.weight_of(of) {
            let values = transposed(&weight.values, weight.shape.sizes(), order);
            return Ok(self.weight(weight, sizes, &values));
        }
        let x = self.last_of(of)?;
        let x = self.permuted(&x, order);
        Ok(self.reshape(&x, sizes))
    }

    /// Returns the values of running statistics, or of another parameter that is not an input.
    pub fn parameter(&self, id: usize) -> Option<&'a [f32]> {
        self.weights.get(id).map(|weight| weight.values.as_slice())
    }

    /// Writes an ONNX operator with one result and returns the result's name.
    pub fn emit(&mut self, kind: &str, inputs: &[&str], attributes: &[Named<'_>]) -> String {
        let [result] = self.emit_many(kind, inputs, attributes);
        result
    }

    /// Writes an ONNX operator and returns the names of its results.
    pub fn emit_many<const N: usize>(&mut self, kind: &str, inputs: &[&str], attributes: &[Named<'_>]) -> [String; N] {
        let name = self.node().name.clone();
        let output: [String; N] = std::array::from_fn(|_| self.unique(&name));
        self.graph.node.push(proto::Node {
            input: inputs.iter().map(|&input| input.to_owned()).collect(),
            output: output.to_vec(),
            name: format!("{}.{}", output[0], kind.to_lowercase()),
            op_type: kind.to_owned(),
            attribute: attributes.iter().map(attribute).collect(),
        });
        output
    }

    /// Sets the ONNX name of the current node's result, [n, h, w, c].
    pub fn set_output(&mut self, name: String) {
        self.forms[self.node].last = Some(name);
    }

    /// Sets the ONNX name of the current node's result, [n, c, h, w].
    pub fn set_first_output(&mut self, name: String) {
        self.forms[self.node].first = Some(name);
    }

    /// Sets the ONNX name of the current node's result, in either layout.
    pub fn give_any(&mut self, name: String, first: bool) {
        if first { self.set_first_output(name) } else { self.set_output(name) }
    }

    /// Sets the ONNX name of the current node's result, which is integers.
    pub fn give_integers(&mut self, name: String) {
        self.forms[self.node].integers = Some(name);
    }

    /// Sets input 0 of the current node as its result, so that no operator is written.
    pub fn give_input(&mut self) -> Result<(), TraceError> {
        let of = self.node().inputs[0];
        if self.trace.nodes[of].operator().is_none() {
            self.last_of(of)?;
        }
        self.forms[self.node] = self.forms[of].clone();
        Ok(())
    }

    /// Saves the ONNX name of a second result of the current node.
    pub fn save(&mut self, name: String) {
        self.saved[self.node] = Some(name);
    }

    /// Returns the name of the second result of another node.
    pub fn saved(&self, number: usize) -> Option<String> {
        self.saved[number].clone()
    }

    /// Converts an axis of this engine to an axis of an ONNX layout.
    pub const fn axis(axis: usize, first: bool) -> i64 {
        // The inverse permutation contains the positions of n, h, w and c with channels first.
        (if first { TO_LAST[axis] } else { axis }) as i64
    }

    /// Writes an ONNX reshape of a value and returns its name.
    pub fn reshape(&mut self, x: &str, sizes: &[usize]) -> String {
        let sizes = self.sizes(sizes);
        self.emit("Reshape", &[x, &sizes], &[])
    }

    /// Writes an ONNX transposition of a value and returns its name.
    pub fn permuted(&mut self, x: &str, order: [usize; 4]) -> String {
        let order = order.map(|axis| axis as i64);
        self.emit("Transpose", &[x], &[("perm", Is::Ints(&order))])
    }

    /// Writes constant sizes to the model and returns the name of the tensor.
    pub fn sizes(&mut self, sizes: &[usize]) -> String {
        let sizes: Vec<i64> = sizes.iter().map(|&size| size as i64).collect();
        self.ints(&sizes)
    }

    /// Writes constant integers to the model and returns the name of the tensor.
    pub fn ints(&mut self, values: &[i64]) -> String {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.initializer("numbers", &[values.len()], DataType::Int64, bytes)
    }

    /// Writes a constant number to the model and returns the name of the tensor.
    pub fn number(&mut self, value: f32) -> String {
        self.initializer("number", &[], DataType::Float, value.to_le_bytes().to_vec())
    }

    /// Writes a constant f32 tensor to the model and returns its name.
    pub fn constant(&mut self, sizes: &[usize], values: &[f32]) -> String {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.initializer("constant", sizes, DataType::Float, bytes)
    }

    fn weight_of(&self, of: usize) -> Option<&'a Weight> {
        match self.trace.nodes[of].work {
            NodeKind::Parameter(id) | NodeKind::Frozen(id) => self.weights.get(id),
            NodeKind::Input(_) | NodeKind::Operator(_) => None,
        }
    }

    /// Writes a weight. In a half model it is stored in half and cast where it is read, unless a value is too large.
    fn weight(&mut self, Weight { name, learned, .. }: &Weight, sizes: &[usize], values: &[f32]) -> String {
        let fits = |&value: &f32| f16::from_f32(value).is_finite() || !value.is_finite();
        if !self.half || !learned || !values.iter().all(fits) {
            let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            return self.initializer(name, sizes, DataType::Float, bytes);
        }
        let bytes = values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect();
        let half = self.initializer(name, sizes, DataType::Float16, bytes);
        self.emit("Cast", &[&half], &[("to", Is::Int(DataType::Float as i64))])
    }

    fn initializer(&mut self, name: &str, sizes: &[usize], kind: DataType, bytes: Vec<u8>) -> String {
        let dims: Vec<i64> = sizes.iter().map(|&size| size as i64).collect();
        let (data_type, raw_data) = (kind as i32, Some(bytes));
        // Weights of a shared layer, and equal constants, are written once.
        let known = self
            .graph
            .initializer
            .iter()
            .find(|known| known.data_type == data_type && known.dims == dims && known.raw_data == raw_data);
        if let Some(known) = known {
            return known.name.clone();
        }
        let name = self.unique(name);
        self.graph.initializer.push(proto::Tensor { dims, data_type, name: name.clone(), raw_data });
        name
    }

    fn last_of(&mut self, of: usize) -> Result<String, TraceError> {
        if let Some(name) = &self.forms[of].last {
            return Ok(name.clone());
        }
        let name = if let Some(weight) = self.weight_of(of) {
            self.weight(weight, &weight.shape.sizes(), &weight.values)
        } else if let Some(first) = self.forms[of].first.clone() {
            self.permuted(&first, TO_LAST)
        } else if let Some(integers) = self.forms[of].bytes.clone().or(self.forms[of].integers.clone()) {
            self.emit("Cast", &[&integers], &[("to", Is::Int(DataType::Float as i64))])
        } else {
            return Err(self.unsupported("its input has no producer"));
        };
        self.forms[of].last = Some(name.clone());
        Ok(name)
    }

    fn integers_of(&mut self, of: usize) -> Result<String, TraceError> {
        if let Some(name) = &self.forms[of].integers {
            return Ok(name.clone());
        }
        let from = match self.forms[of].bytes.clone() {
            Some(bytes) => bytes,
            None => self.last_of(of)?,
        };
        let name = self.emit("Cast", &[&from], &[("to", Is::Int(DataType::Int64 as i64))]);
        self.forms[of].integers = Some(name.clone());
        Ok(name)
    }

    fn unique(&mut self, name: &str) -> String {
        let mut unique = name.to_owned();
        let mut number = 1;
        while !self.names.insert(unique.clone()) {
            number += 1;
            unique = format!("{name}.{number}");
        }
        unique
    }
}

fn attribute((name, is): &Named<'_>) -> Attribute {
    let all = Attribute { name: (*name).to_owned(), ..Attribute::default() };
    match *is {
        Is::Float(f) => Attribute { f: Some(f), r#type: 1, ..all },
        Is::Int(i) => Attribute { i: Some(i), r#type: 2, ..all },
        Is::Text(text) => Attribute { s: Some(text.as_bytes().to_vec()), r#type: 3, ..all },
        Is::Ints(ints) => Attribute { ints: ints.to_vec(), r#type: 7, ..all },
    }
}

fn value_info(name: &str, kind: DataType, shape: Shape) -> proto::ValueInfo {
    let dimension = |size: usize| proto::Dimension { dim_value: Some(size as i64) };
    let shape = Some(proto::TensorShape { dim: shape.sizes().map(dimension).to_vec() });
    let tensor_type = Some(proto::TensorType { elem_type: kind as i32, shape });
    proto::ValueInfo { name: name.to_owned(), r#type: Some(proto::Type { tensor_type }) }
}

/// Returns the values of a parameter with its axes permuted.
fn transposed(values: &[f32], sizes: [usize; 4], order: [usize; 4]) -> Vec<f32> {
    let mut strides = [1; 4];
    for axis in (0..3).rev() {
        strides[axis] = strides[axis + 1] * sizes[axis + 1];
    }
    let [a, b, c, d] = order.map(|axis| sizes[axis]);
    let [of_a, of_b, of_c, of_d] = order.map(|axis| strides[axis]);
    let mut all = Vec::with_capacity(values.len());
    for i in 0..a {
        for j in 0..b {
            for k in 0..c {
                all.extend((0..d).map(|l| values[i * of_a + j * of_b + k * of_c + l * of_d]));
            }
        }
    }
    all
}
