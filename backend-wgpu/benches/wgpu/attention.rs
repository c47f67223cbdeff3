//! Attention by kernels that do not store scores and weights, beside the products and the softmax that do.

use crate::{Bench, row};
use gradscale_core::{
    backend::{AttentionArgs, Backend, Cast, DType, Launch, Slot, Store},
    ops::{Attention, AttentionShape, Gemm, Softmax, SoftmaxColumns},
    stats::Detail,
};
use gradscale_wgpu::{Error, Memory, Table, Wgpu};
use std::time::Duration;

/// Sizes of attention: heads of all sequences, queries and keys of each, and elements of a query, key or value.
#[derive(Clone, Copy, Debug)]
pub struct AttentionScale {
    pub heads: u32,
    pub positions: u32,
    pub depth: u32,
}

/// Tensors of an attention and of its gradients: halves, but for the logarithms of sums.
struct Tensors {
    q: Memory,
    k: Memory,
    v: Memory,
    dy: Memory,
    y: Memory,
    log_sums: Memory,
    gradients: [Memory; 3],
    scores: Memory,
    weights: Memory,
    weight_gradients: Memory,
}

/// Descriptors of the launches that store scores and weights.
struct StoredPath {
    softmax: Softmax,
    /// Products with a result for each score: of two operands with a row for each position.
    scores: Gemm,
    /// Products of scores, or of their transpose, with such an operand.
    rows: Gemm,
    columns: Gemm,
}

impl StoredPath {
    fn new(scale: AttentionScale, read: SoftmaxColumns) -> Self {
        let AttentionScale { heads, positions, depth } = scale;
        let (small, large) = (positions * depth, positions * positions);
        let scores = Gemm::new(positions, positions, depth).and_then(Gemm::transpose_b).unwrap();
        let rows = Gemm::new(positions, depth, positions).unwrap();
        let columns = rows.transpose_a().unwrap();
        Self {
            softmax: Softmax::new([heads, positions, positions], read).unwrap(),
            scores: scores.batched(heads, [small, small, large]).unwrap(),
            rows: rows.batched(heads, [large, small, small]).unwrap(),
            columns: columns.batched(heads, [large, small, small]).unwrap(),
        }
    }

    fn multiply(
        &self, device: &Wgpu, p: Gemm, [a, b]: [&Memory; 2], table: &Table, y: &mut Memory,
    ) -> Result<(), Error> {
        device.launch(Launch::Gemm { p, a, b, bias: None, y: Store::site(Slot(2), Slot(3), table, y) })
    }

    fn forward(&self, device: &Wgpu, t: &mut Tensors, table: &Table) -> Result<(), Error> {
        self.multiply(device, self.scores, [&t.q, &t.k], table, &mut t.scores)?;
        let y = Store::site(Slot(2), Slot(3), table, &mut t.weights);
        device.launch(Launch::Softmax { p: self.softmax, x: &t.scores, selection: None, y })?;
        self.multiply(device, self.rows, [&t.weights, &t.v], table, &mut t.y)
    }

    fn backward(&self, device: &Wgpu, t: &mut Tensors, table: &Table) -> Result<(), Error> {
        let [dq, dk, dv] = &mut t.gradients;
        self.multiply(device, self.scores, [&t.dy, &t.v], table, &mut t.weight_gradients)?;
        self.multiply(device, self.columns, [&t.weights, &t.dy], table, dv)?;
        let dx = Store::site(Slot(2), Slot(3), table, &mut t.scores);
        device.launch(Launch::SoftmaxVjp { p: self.softmax, y: &t.weights, dy: &t.weight_gradients, dx })?;
        self.multiply(device, self.rows, [&t.scores, &t.k], table, dq)?;
        self.multiply(device, self.columns, [&t.scores, &t.q], table, dk)
    }
}

fn fused_forward(device: &Wgpu, p: Attention, t: &mut Tensors, table: &Table) -> Result<(), Error> {
    let x = AttentionArgs { q: &t.q, k: &t.k, v: &t.v, lengths: None };
    let y = Store::site(Slot(2), Slot(3), table, &mut t.y);
    device.launch(Launch::Attention { p, x, log_sums: &mut t.log_sums, y })
}

fn fused_backward(device: &Wgpu, p: Attention, t: &mut Tensors, table: &Table) -> Result<(), Error> {
    let x = AttentionArgs { q: &t.q, k: &t.k, v: &t.v, lengths: None };
    let [dq, dk, dv] = t.gradients.each_mut().map(|y| Store::site(Slot(2), Slot(3), table, y));
    let cast = || Cast { table, from: Slot(2), to: Slot(3), detail: Detail::Moments };
    device.launch(Launch::AttentionVjp {
        p,
        x,
        y: &t.y,
        log_sums: &t.log_sums,
        dy: &t.dy,
        dp: cast(),
        ds: cast(),
        dq,
        dk,
        dv,
    })
}

impl Bench {
    /// Measures attention forward and backward with counts, by both paths in turn.
    pub fn attention(&self, scale: AttentionScale) {
        let AttentionScale { heads, positions, depth } = scale;
        let shape =
            AttentionShape { sequences: heads, heads: 1, queries: positions, keys: positions, depth, width: depth };
        let (small, large) = ((heads * positions * depth) as usize, (heads * positions * positions) as usize);
        let filled = || self.filled(DType::F16, small);
        let empty = |dtype, len| self.device.alloc(dtype, len).unwrap();
        let mut t = Tensors {
            q: filled(),
            k: filled(),
            v: filled(),
            dy: filled(),
            y: empty(DType::F16, small),
            log_sums: empty(DType::F32, (heads * positions) as usize),
            gradients: [small; 3].map(|len| empty(DType::F16, len)),
            scores: empty(DType::F16, large),
            weights: empty(DType::F16, large),
            weight_gradients: empty(DType::F16, large),
        };
        let table = self.table(Detail::Counts);
        for (read, name) in [(SoftmaxColumns::All, ""), (SoftmaxColumns::Causal, " causal")] {
            let (p, stored) = (Attention::new(shape, read).unwrap(), StoredPath::new(scale, read));
            let forward = [
                self.operator(|| fused_forward(&self.device, p, &mut t, &table)),
                self.operator(|| stored.forward(&self.device, &mut t, &table)),
            ];
            let backward = [
                self.operator(|| fused_backward(&self.device, p, &mut t, &table)),
                self.operator(|| stored.backward(&self.device, &mut t, &table)),
            ];
            for (pass, [fused, stored]) in [("forward", forward), ("backward", backward)] {
                let what = format!("attention{name} {heads}x{positions}x{depth} {pass} / by products");
                let milliseconds = |time: Duration| format!("{:.3} ms", time.as_secs_f64() * 1e3);
                let ratio = stored.as_secs_f64() / fused.as_secs_f64();
                row(&what, &milliseconds(fused), &milliseconds(stored), Some(ratio), "");
            }
        }
    }
}
