//! Attention of language models beside the launches that store its scores, forward and backward. `peers.py attention` has
//! PyTorch's `scaled_dot_product_attention` for the same sizes.

use crate::{
    measure::{Bench, Work},
    products::shape,
};
use gradscale_core::{
    backend::{AttentionArgs, Backend, Cast, DType, Launch, Slot, Store},
    ops::{Attention, AttentionShape, Gemm, Softmax, SoftmaxColumns},
    stats::Detail,
};
use gradscale_cuda::{Cuda, Error, Memory, Table};
use std::cell::RefCell;

/// Sizes that are measured: sequences, heads, queries and keys, elements of a head. The decoder that `networks` trains, and
/// half as many heads of twice the size.
const SIZES: [[u32; 4]; 2] = [[16, 12, 1024, 64], [16, 6, 1024, 128]];
const SMALL_SIZES: [[u32; 4]; 2] = [[1, 2, 40, 64], [1, 1, 40, 128]];

/// Slot of the gradient of results, and of all sites, which share a row.
const DY: Slot = Slot(2);
const SITE: Slot = Slot(3);

/// Operands and results of causal attention, with and without stored scores.
struct Case<'a> {
    device: &'a Cuda,
    table: Table,
    /// Queries, keys, values, and gradient of the results.
    operands: [Memory; 4],
    results: RefCell<Results>,
}

struct Results {
    y: Memory,
    log_sums: Memory,
    gradients: [Memory; 3],
    /// Scores in f32, weights, gradients of weights and gradients of scores.
    stored: [Memory; 4],
}

/// Measures causal attention, if `attention` is requested or everything is.
///
/// # Errors
/// The device's.
pub fn measure(bench: &mut Bench<'_>) -> Result<(), Error> {
    if !bench.wants_group("attention") {
        return Ok(());
    }
    for sizes in bench.size(SIZES, SMALL_SIZES) {
        let [sequences, heads, rows, head] = sizes;
        let case = Case::new(bench, sizes)?;
        let p = AttentionShape { sequences, heads, queries: rows, keys: rows, depth: head, width: head };
        let p = Attention::new(p, SoftmaxColumns::Causal).map_err(shape)?;
        let of_scores = Stored::new(sequences * heads, rows, head)?;
        let works: [Work<'_>; 4] = [
            Box::new(|_| case.forward(p)),
            Box::new(|_| case.backward(p)),
            Box::new(|_| case.stored_forward(&of_scores)),
            Box::new(|_| case.stored_backward(&of_scores)),
        ];
        let times = bench.medians(works.into())?;
        // Pairs of a query and a key that it reads, and multiplications and additions for each: two products forward, and
        // five backward.
        let pairs = f64::from(sequences * heads) * f64::from(rows) * f64::from(rows + 1) / 2.0;
        for (way, products, times) in [("forward", 2.0, [times[0], times[2]]), ("backward", 5.0, [times[1], times[3]])]
        {
            let name = format!("attention {sequences}×{heads}×{rows}×{head} causal {way}: scores on the chip / stored");
            let speed =
                |seconds: f64| format!("{:.1} TFLOP/s", 2.0 * products * f64::from(head) * pairs / seconds / 1e12);
            bench.line(&name, speed(times[0]), speed(times[1]), Some(times[1] / times[0]));
        }
    }
    Ok(())
}

/// Descriptors of the launches that store scores.
struct Stored {
    softmax: Softmax,
    /// Products with depth as the inner size: of rows with rows.
    rows: Gemm,
    /// Products of a matrix of scores, or of its transpose, with rows.
    scores: Gemm,
    transposed: Gemm,
}

impl Stored {
    fn new(batch: u32, rows: u32, head: u32) -> Result<Self, Error> {
        let (of_rows, of_scores) = (rows * head, rows * rows);
        let products = || {
            let of_both = Gemm::new(rows, rows, head)?.transpose_b()?;
            let scores = Gemm::new(rows, head, rows)?;
            Ok(Self {
                softmax: Softmax::new([batch, rows, rows], SoftmaxColumns::Causal)?,
                rows: of_both.batched(batch, [of_rows, of_rows, of_scores])?,
                scores: scores.batched(batch, [of_scores, of_rows, of_rows])?,
                transposed: scores.transpose_a()?.batched(batch, [of_scores, of_rows, of_rows])?,
            })
        };
        products().map_err(|error: gradscale_core::ops::ShapeError| shape(error))
    }
}

impl<'a> Case<'a> {
    fn new(bench: &Bench<'a>, [sequences, heads, rows, head]: [u32; 4]) -> Result<Self, Error> {
        let device = bench.device;
        let [rows, head] = [sequences * heads * rows, head].map(|size| size as usize);
        let scores = rows * rows / (sequences * heads) as usize;
        let operand = || bench.normal(DType::F16, rows * head);
        let result = |dtype, len| device.alloc(dtype, len);
        Ok(Self {
            device,
            table: bench.sites(Detail::Counts)?,
            operands: [operand()?, operand()?, operand()?, operand()?],
            results: RefCell::new(Results {
                y: result(DType::F16, rows * head)?,
                log_sums: result(DType::F32, rows)?,
                gradients: [
                    result(DType::F16, rows * head)?,
                    result(DType::F16, rows * head)?,
                    result(DType::F16, rows * head)?,
                ],
                stored: [
                    result(DType::F32, scores)?,
                    result(DType::F16, scores)?,
                    result(DType::F16, scores)?,
                    result(DType::F16, scores)?,
                ],
            }),
        })
    }

    fn args(&self) -> AttentionArgs<&Memory> {
        let [q, k, v, _] = &self.operands;
        AttentionArgs { q, k, v, lengths: None }
    }

    fn forward(&self, p: Attention) -> Result<(), Error> {
        let Results { y, log_sums, .. } = &mut *self.results.borrow_mut();
        self.device.launch(Launch::Attention { p, x: self.args(), log_sums, y: Store::keep(Slot::ONE, &self.table, y) })
    }

    fn backward(&self, p: Attention) -> Result<(), Error> {
        let Results { y, log_sums, gradients, .. } = &mut *self.results.borrow_mut();
        let ([dq, dk, dv], table) = (gradients, &self.table);
        let cast = |from| Cast { table, from, to: SITE, detail: Detail::Moments };
        self.device.launch(Launch::AttentionVjp {
            p,
            x: self.args(),
            y,
            log_sums,
            dy: &self.operands[3],
            dp: cast(DY),
            ds: cast(SITE),
            dq: Store::site(SITE, SITE, table, dq),
            dk: Store::site(SITE, SITE, table, dk),
            dv: Store::site(DY, SITE, table, dv),
        })
    }

    fn multiply(&self, p: Gemm, a: &Memory, b: &Memory, y: Store<'_, Cuda>) -> Result<(), Error> {
        self.device.launch(Launch::Gemm { p, a, b, bias: None, y })
    }

    fn stored_forward(&self, p: &Stored) -> Result<(), Error> {
        let Results { y, stored: [scores, weights, ..], .. } = &mut *self.results.borrow_mut();
        let ([q, k, v, _], table) = (&self.operands, &self.table);
        self.multiply(p.rows, q, k, Store::keep(Slot::ONE, table, scores))?;
        let y_store = Store::keep(Slot::ONE, table, weights);
        self.device.launch(Launch::Softmax { p: p.softmax, x: scores, selection: None, y: y_store })?;
        self.multiply(p.scores, weights, v, Store::keep(Slot::ONE, table, y))
    }

    fn stored_backward(&self, p: &Stored) -> Result<(), Error> {
        let Results { gradients: [dq, dk, dv], stored: [_, weights, of_weights, of_scores], .. } =
            &mut *self.results.borrow_mut();
        let ([q, k, v, dy], table) = (&self.operands, &self.table);
        self.multiply(p.rows, dy, v, Store::site(DY, SITE, table, of_weights))?;
        self.multiply(p.transposed, weights, dy, Store::site(DY, SITE, table, dv))?;
        let dx = Store::site(SITE, SITE, table, of_scores);
        self.device.launch(Launch::SoftmaxVjp { p: p.softmax, y: weights, dy: of_weights, dx })?;
        self.multiply(p.scores, of_scores, k, Store::site(SITE, SITE, table, dq))?;
        self.multiply(p.transposed, of_scores, q, Store::site(SITE, SITE, table, dk))
    }
}
