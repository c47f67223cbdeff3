//! Export of networks as ONNX models.
//!
//! An evaluation is traced as usual, and each of its operators writes its ONNX counterpart ([`Writer`]). Values are
//! channels last by default, and channels first after a convolution or pooling. Transpositions are inserted where an
//! operator needs the other layout.

mod proto;
mod writer;

pub(crate) use writer::{Is, Weight, Writer};

/// ONNX element type `TensorProto.FLOAT` (f32), as attribute of casts.
pub(crate) const FLOAT: i64 = DataType::Float as i64;
/// ONNX element type `TensorProto.INT64`, as attribute of casts.
pub(crate) const INT64: i64 = DataType::Int64 as i64;

use crate::{
    TraceError,
    error::TraceErrorKind,
    graph::{NodeKind, Trace},
};
use gradscale_core::backend::DType;
use prost::Message;
use proto::DataType;

/// Version of ONNX's operator set: the last whose RoiAlign is implemented in ONNX Runtime 1.32.
const OPSET: i64 = 21;
/// Version of ONNX's file format that belongs to the operator set.
const IR: i64 = 10;
/// Size limit of a protocol buffers file in bytes.
const LIMIT: usize = (1 << 31) - 1;

/// Exports the trace of an evaluation as an ONNX model and returns the bytes of its file.
pub(crate) fn model(trace: &Trace, weights: &[Weight], half: bool) -> Result<Vec<u8>, TraceError> {
    let used = used(trace);
    let mut writer = Writer::new(trace, weights, half);
    let inputs = trace.nodes.iter().enumerate().filter_map(|(number, node)| match node.work {
        NodeKind::Input(dtype) => Some((number, dtype)),
        NodeKind::Parameter(_) | NodeKind::Frozen(_) | NodeKind::Operator(_) => None,
    });
    let inputs: Vec<(usize, DType)> = inputs.collect();
    for (i, &(number, dtype)) in inputs.iter().enumerate() {
        let kind = match dtype {
            DType::F32 | DType::F16 => DataType::Float,
            DType::U8 => DataType::Uint8,
            DType::U32 => DataType::Int64,
        };
        let name = if inputs.len() == 1 { "input".to_owned() } else { format!("input{i}") };
        writer.add_input(number, &name, kind);
    }
    for number in (0..trace.nodes.len()).filter(|&number| used[number]) {
        writer.write(number)?;
    }
    writer.result(trace.output, "output")?;
    for (name, number) in &trace.aux_outputs {
        writer.result(*number, name)?;
    }
    let model = proto::Model {
        ir_version: IR,
        producer_name: "gradscale".to_owned(),
        producer_version: env!("CARGO_PKG_VERSION").to_owned(),
        graph: Some(writer.graph),
        opset_import: vec![proto::OperatorSet { domain: Some(String::new()), version: OPSET }],
        metadata_props: Vec::new(),
    };
    let len = model.encoded_len();
    if len > LIMIT {
        let words = format!("the model has {len} bytes, but an ONNX file must be smaller than 2 GiB");
        return Err(TraceError::new("onnx", TraceErrorKind::Range(words)));
    }
    Ok(model.encode_to_vec())
}

/// Adds an entry to the metadata (`metadata_props`) of a model that [`crate::Trainer::onnx`] exported, for example the
/// names of classes.
pub fn onnx_metadata(model: &mut Vec<u8>, key: &str, value: &str) {
    let entry = proto::StringStringEntry { key: key.to_owned(), value: value.to_owned() };
    let more = proto::Model { metadata_props: vec![entry], ..proto::Model::default() };
    // Protocol buffers merge a message that follows another: its lists are appended.
    model.extend(more.encode_to_vec());
}

/// Returns true for each node of a trace on which some result depends.
fn used(trace: &Trace) -> Vec<bool> {
    let mut used = vec![false; trace.nodes.len()];
    used[trace.output] = true;
    trace.aux_outputs.iter().for_each(|(_, number)| used[*number] = true);
    // Nodes read only earlier nodes.
    for number in (0..trace.nodes.len()).rev() {
        if used[number] {
            trace.nodes[number].inputs.iter().for_each(|&input| used[input] = true);
        }
    }
    used
}
