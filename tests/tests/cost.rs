//! Bytes and operations of every kind of launch, by hand.

use gradscale_conformance::Reference;
use gradscale_core::{
    backend::{
        AttentionArgs, Backend, Cast, CellArgs, Cost, CrossEntropyArgs, CtcArgs,
        DType::{self, F16, F32, U8, U32},
        Launch, NormSaved, OnDevice, Param, Slot, Store,
    },
    block_format::BlockFormat,
    ops::{
        Attention, AttentionShape, Binary, BinaryOp, Broadcast, Conv2d, CrossEntropy, Ctc, Dim, GatherScatter, Gemm,
        Gru, Lstm, Norm, NormOver, Optimizer, Pass, Pool, PoolOp, Reduce, ReduceOp, RoiAlign, RoiPool, Rows, Rule,
        Softmax, SoftmaxColumns, Strided, Unary,
    },
    scaled::Scaled,
    stats::Detail,
    store_format::StoreFormat,
};

type One<'a> = Launch<OnDevice<'a, Reference>>;
type Memory = <Reference as Backend>::Buffer;

/// A device with a table, and buffers that are long enough for all.
struct Rig {
    device: Reference,
    table: <Reference as Backend>::Table,
}

impl Rig {
    fn new() -> Self {
        let device = Reference::default();
        let table = device.table(4, 4).expect("a table");
        Self { device, table }
    }

    fn store<'a>(&'a self, y: &'a mut Memory) -> Store<'a, Reference> {
        Store::site(Slot::ONE, Slot(1), &self.table, y)
    }

    fn memory(&self, dtype: DType) -> Memory {
        self.device.alloc(dtype, 4096).expect("memory")
    }
}

/// Checks the name and shape, bytes and operations of a launch.
#[track_caller]
fn check(launch: &One<'_>, words: &str, bytes: u64, operations: u64) {
    assert_eq!(format!("{} {}", launch.name(), launch.shape()).trim_end(), words);
    assert_eq!(launch.cost(), Cost { bytes, operations }, "{words}");
}

#[test]
fn element_by_element() {
    let rig = Rig::new();
    let [half, wide, bytes] = [F16, F32, U8].map(|dtype| rig.memory(dtype));
    let mut y = rig.memory(F16);
    // A cast computes nothing; it reads 4 bytes an element and writes 2.
    check(&One::Unary { op: Unary::Id, len: 10, x: &wide, y: rig.store(&mut y) }, "unary cast 10", 60, 0);
    check(&One::Unary { op: Unary::Id, len: 10, x: &bytes, y: rig.store(&mut y) }, "unary cast 10", 30, 0);
    let format = BlockFormat::new(StoreFormat::E4m3, 32).expect("a size");
    let mut blocks = rig.memory(F32);
    let one = One::RoundBlocks { format, rows: 3, columns: 40, x: &wide, y: rig.store(&mut blocks) };
    check(&one, "round_blocks e4m3 by 32 3x40", 2 * 4 * 120, 240);
    let (format, mut codes) = (StoreFormat::E4m3, rig.memory(U8));
    check(&One::Pack { format, len: 10, x: &half, y: &mut codes }, "pack e4m3 10", 30, 0);
    let mut again = rig.memory(F16);
    check(&One::Unpack { format, len: 10, x: &codes, y: &mut again }, "unpack e4m3 10", 30, 0);
    // A destination that is added to is read too.
    let added = Store { add: true, ..rig.store(&mut y) };
    check(&One::Unary { op: Unary::Relu, len: 10, x: &half, y: added }, "unary relu 10", 60, 10);
    let p = Binary::new(BinaryOp::Grad(Unary::Relu), 3, 5, Broadcast::PerColumn).expect("a shape");
    let words = "binary relu_vjp 3x5 by column";
    check(&One::Binary { p, a: &half, b: &wide, y: rig.store(&mut y) }, words, 30 + 20 + 30, 15);
    let terms = [Scaled::new(&half, Slot(1)), Scaled::new(&wide, Slot(1)), Scaled::new(&half, Slot(1))];
    check(&One::Sum { len: 10, terms: &terms, y: rig.store(&mut y) }, "sum 10", 20 + 40 + 20 + 20, 20);
    let p = Reduce::new(ReduceOp::Mean, 2, 3, 4).expect("a shape");
    check(&One::Reduce { p, x: &half, y: rig.store(&mut y) }, "reduce mean 2x3x4", 48 + 16, 24);
    // Each of 4 elements is read once and written 3 times.
    let dims = [Dim { len: 3, x: 0, y: 4 }, Dim { len: 4, x: 1, y: 1 }];
    let p = Strided::new(&dims, 0, 0).expect("a copy");
    check(&One::Copy { p, x: &half, y: rig.store(&mut y) }, "copy 12", 8 + 24, 0);
}

#[test]
fn products() {
    let rig = Rig::new();
    let [half, wide] = [F16, F32].map(|dtype| rig.memory(dtype));
    let mut y = rig.memory(F16);
    let p = Gemm::new(3, 5, 7).and_then(Gemm::transpose_b).expect("a shape");
    // 105 products and additions, and 15 of the bias.
    let launch = One::Gemm { p, a: &half, b: &half, bias: Some(&wide), y: rig.store(&mut y) };
    check(&launch, "gemm 3x5x7 b'", 42 + 70 + 20 + 30, 210 + 15);
    // Four matrices a, one b for all.
    let p = Gemm::new(3, 5, 7).and_then(|p| p.batched(4, [21, 0, 15])).expect("a shape");
    let launch = One::Gemm { p, a: &half, b: &half, bias: None, y: rig.store(&mut y) };
    check(&launch, "gemm 3x5x7 batch 4", 4 * 42 + 70 + 4 * 30, 840);
    // 2 × 5 × 4 pixels of 6 channels in 2 groups, 3 × 3 taps of 3, 8 outputs of 5 × 4 pixels.
    let p = Conv2d::padded([2, 5, 4, 6], 8, [3, 3], [1, 1]).and_then(|p| p.groups(2)).expect("a shape");
    let (x, w, out) = (2 * 240, 2 * 8 * 27, 2 * 320);
    let operations = 2 * 320 * 27;
    for (pass, words, read, written, sums) in [
        (Pass::Forward, "conv forward 2x5x4x6 3x3x8 in 2", x + w + 4 * 8, out, 320),
        (Pass::Data, "conv data 2x5x4x6 3x3x8 in 2", out + w + 4 * 6, x, 240),
        (Pass::Weight, "conv weight 2x5x4x6 3x3x8 in 2", x + out, w, 0),
    ] {
        let bias = (pass != Pass::Weight).then_some(&wide);
        let launch = One::Conv { p, pass, a: &half, b: &half, bias, y: rig.store(&mut y) };
        check(&launch, words, read + written, operations + sums);
    }
}

#[test]
fn windows_rows_and_boxes() {
    let rig = Rig::new();
    let [half, bytes, places, boxes] = [F16, U8, U32, F32].map(|dtype| rig.memory(dtype));
    let (mut y, mut offsets, mut tokens) = (rig.memory(F16), rig.memory(U8), rig.memory(U32));
    // 96 elements, 24 windows of four.
    let p = Pool::new(PoolOp::Max, [1, 4, 8, 3], [2, 2]).expect("a shape");
    let launch = One::Pool { p, x: &half, indices: Some(&mut offsets), y: rig.store(&mut y) };
    check(&launch, "pool 1x4x8x3 2x2", 192 + 24 + 48, 96);
    for (way, words, operations) in [
        (GatherScatter::Scatter, "unpool scatter 1x4x8x3 2x2", 24),
        (GatherScatter::Gather, "unpool gather 1x4x8x3 2x2", 0),
    ] {
        let launch = One::Unpool { p, way, x: &half, indices: Some(&bytes), y: rig.store(&mut y) };
        check(&launch, words, 192 + 24 + 48, operations);
    }
    let p = Pool::new(PoolOp::Average, [1, 4, 8, 3], [2, 2]).expect("a shape");
    let launch = One::Unpool { p, way: GatherScatter::Scatter, x: &half, indices: None, y: rig.store(&mut y) };
    check(&launch, "unpool scatter 1x4x8x3 2x2", 192 + 48, 96);
    let p = Rows::new(5, 9, 4).expect("a shape");
    let launch = One::Rows { p, way: GatherScatter::Gather, x: &half, indices: &places, y: rig.store(&mut y) };
    check(&launch, "rows gather 5x4 of 9", 40 + 20 + 40, 0);
    let launch = One::Rows { p, way: GatherScatter::Scatter, x: &half, indices: &places, y: rig.store(&mut y) };
    check(&launch, "rows scatter 5x4 of 9", 40 + 20 + 72, 20);
    // 2 boxes of 3 × 2 bins of 4 points in images of 150 elements; 3 channels.
    let p = RoiAlign::new([2, 5, 5, 3], 2, [3, 2], 1.0, 2).expect("a shape");
    for (way, words) in
        [(GatherScatter::Gather, "roi_align gather 2x3x2x3"), (GatherScatter::Scatter, "roi_align scatter 2x3x2x3")]
    {
        let launch = One::RoiAlign { p, way, x: &half, boxes: &boxes, y: rig.store(&mut y) };
        check(&launch, words, 300 + 40 + 72, 8 * 4 * 36);
    }
    let p = RoiPool::new([2, 5, 5, 3], 2, [3, 2], 1.0).expect("a shape");
    let launch = One::RoiPool { p, x: &half, boxes: &boxes, indices: &mut tokens, y: rig.store(&mut y) };
    check(&launch, "roi_pool 2x3x2x3", 300 + 40 + 144 + 72, 0);
    let launch = One::RoiUnpool { p, x: &half, boxes: &boxes, indices: &places, y: rig.store(&mut y) };
    check(&launch, "roi_unpool 2x3x2x3", 300 + 40 + 144 + 72, 36);
}

#[test]
fn normalisation_and_losses() {
    let rig = Rig::new();
    let [half, wide, bytes, tokens] = [F16, F32, U8, U32].map(|dtype| rig.memory(dtype));
    let (mut y, mut saved, mut gradient) = (rig.memory(F16), rig.memory(F32), rig.memory(F32));
    let mut parameters = [F32, F32].map(|dtype| rig.memory(dtype));
    // 120 elements of 5 channels.
    let p = Norm::new([2, 3, 4, 5], NormOver::Batch, 1e-5).expect("a shape");
    let launch = One::Norm { p, x: &half, affine: Some([&wide; 2]), saved: &mut saved, y: rig.store(&mut y) };
    check(&launch, "norm batch 2x3x4x5", 240 + 40 + 40 + 240, 7 * 120);
    let launch = One::Norm { p: p.given(), x: &half, affine: None, saved: &mut saved, y: rig.store(&mut y) };
    check(&launch, "norm batch 2x3x4x5", 240 + 40 + 240, 2 * 120);
    let x = NormSaved { x: &half, saved: &wide, weight: Some(&wide) };
    let affine = Some(parameters.each_mut().map(|y| Store::param(Slot(1), Slot(2), false, &rig.table, y)));
    let launch = One::NormVjp { p, x, dy: &half, dx: rig.store(&mut y), affine };
    check(&launch, "norm_vjp batch 2x3x4x5", 3 * 240 + 40 + 20 + 2 * 20, 9 * 120);
    let p = Norm::new([2, 3, 4, 6], NormOver::Group(3), 1e-5).expect("a shape");
    let launch = One::Norm { p, x: &half, affine: None, saved: &mut saved, y: rig.store(&mut y) };
    check(&launch, "norm 3 groups 2x3x4x6", 288 + 48 + 288, 5 * 144);
    // 2 matrices of 3 rows of 5 columns: 30 scores.
    let shape = [2, 3, 5];
    for (columns, words, selection, selected) in [
        (SoftmaxColumns::All, "2x3x5", None, 0),
        (SoftmaxColumns::Causal, "2x3x5 causal", None, 0),
        (SoftmaxColumns::Within, "2x3x5 within", Some(&tokens), 8),
        (SoftmaxColumns::Masked, "2x3x5 masked", Some(&bytes), 30),
    ] {
        let p = Softmax::new(shape, columns).expect("a shape");
        let launch = One::Softmax { p, x: &half, selection, y: rig.store(&mut y) };
        check(&launch, &format!("softmax {words}"), 60 + selected + 60, 5 * 30);
        let launch = One::SoftmaxVjp { p, y: &wide, dy: &half, dx: rig.store(&mut y) };
        check(&launch, &format!("softmax_vjp {words}"), 120 + 60 + 60, 4 * 30);
    }
    let p = Softmax::logarithm(6, 5).expect("a shape");
    let launch = One::Softmax { p, x: &half, selection: None, y: rig.store(&mut y) };
    check(&launch, "softmax 1x6x5 logarithm", 60 + 60, 5 * 30);
    // 2 sequences of 3 heads: 6 matrices of 4 queries and 5 keys of 7 elements, and values of 9. 120 scores.
    let shape = AttentionShape { sequences: 2, heads: 3, queries: 4, keys: 5, depth: 7, width: 9 };
    let [q, k, v, results] = [6 * 4 * 7, 6 * 5 * 7, 6 * 5 * 9, 6 * 4 * 9];
    let (mut dq, mut dv) = (rig.memory(F16), rig.memory(F32));
    for (columns, words, lengths, selected) in [
        (SoftmaxColumns::All, "6x4x5 7x9", None, 0),
        (SoftmaxColumns::Causal, "6x4x5 7x9 causal", None, 0),
        (SoftmaxColumns::Within, "6x4x5 7x9 within", Some(&tokens), 8),
    ] {
        let p = Attention::new(shape, columns).expect("a shape");
        let x = AttentionArgs { q: &half, k: &half, v: &wide, lengths };
        let read = 2 * q + 2 * k + 4 * v + selected;
        let launch = One::Attention { p, x, log_sums: &mut saved, y: rig.store(&mut y) };
        let operations = (2 * 7 + 2 * 9 + 5) * 120;
        check(&launch, &format!("attention {words}"), read + 4 * 24 + 2 * results, operations);
        let [dp, ds] = [1, 2].map(|to| Cast { table: &rig.table, from: Slot(1), to: Slot(to), detail: Detail::Full });
        let [dq, dk, dv] = [rig.store(&mut dq), rig.store(&mut y), rig.store(&mut dv)];
        let (y, log_sums, dy) = (&half, &wide, &wide);
        let launch = One::AttentionVjp { p, x, y, log_sums, dy, dp, ds, dq, dk, dv };
        let bytes = read + 2 * results + 4 * 24 + 4 * results + 2 * q + 2 * k + 4 * v;
        let operations = (3 * 14 + 2 * 18 + 4) * 120 + 2 * results;
        check(&launch, &format!("attention_vjp {words}"), bytes, operations);
    }
    // 2 rows of 3 units: 6 units, 24 sums, of which each step of x has as many.
    let p = Lstm::new(2, 3).and_then(|p| p.of_step(1, 5)).expect("a shape");
    let x = CellArgs { x: &half, h: &half, state: &wide };
    let launch = One::Lstm { p, x, y: rig.store(&mut y), state: &mut saved };
    check(&launch, "lstm 2x3", 48 + 48 + 24 + 12 + 24, 13 * 6);
    let launch = One::LstmVjp { p, x, dh: &half, dc: None, y: rig.store(&mut y), state: &mut saved };
    check(&launch, "lstm_vjp 2x3", 48 + 48 + 24 + 12 + 48 + 24, 34 * 6);
    let dc = Some(Scaled::new(&wide, Slot::ONE));
    let launch = One::LstmVjp { p, x, dh: &half, dc, y: rig.store(&mut y), state: &mut saved };
    check(&launch, "lstm_vjp 2x3", 48 + 48 + 24 + 12 + 24 + 48 + 24, 34 * 6);
    // 6 units of 18 products.
    let p = Gru::new(2, 3).and_then(|p| p.of_step(1, 5)).expect("a shape");
    let launch = One::Gru { p, x, y: rig.store(&mut y) };
    check(&launch, "gru 2x3", 36 + 36 + 24 + 12, 10 * 6);
    let dx = Scaled::new(&mut gradient, Slot::ONE);
    let launch = One::GruVjp { p, x, dh: &half, y: rig.store(&mut y), dx, state: &mut saved };
    check(&launch, "gru_vjp 2x3", 36 + 36 + 24 + 12 + 36 + 72 + 24, 23 * 6);
    let p = CrossEntropy::new(6, 4).expect("a shape");
    let x = CrossEntropyArgs { logits: &wide, labels: &bytes, weights: Some(&wide) };
    check(&One::CrossEntropy { p, x, out: &mut saved }, "cross_entropy 6x4", 96 + 6 + 16 + 32, 96);
    let launch = One::CrossEntropyVjp { p, x, out: &wide, g: &wide, dx: rig.store(&mut y) };
    check(&launch, "cross_entropy_vjp 6x4", 96 + 6 + 16 + 32 + 4 + 48, 96);
    // 2 sequences of 5 frames and 4 classes, 3 letters: 7 states.
    let p = Ctc::new([2, 5, 4], 3, 0).expect("a shape");
    let x = CtcArgs { logits: &wide, targets: &tokens, input_lengths: &tokens, target_lengths: &tokens };
    let read = 160 + 24 + 16 + 8;
    let launch = One::Ctc { p, x, losses: &mut saved, gradient: None };
    check(&launch, "ctc 2x5x4 3", read, 4 * 40 + 9 * 70);
    let launch = One::Ctc { p, x, losses: &mut saved, gradient: Some(&mut gradient) };
    check(&launch, "ctc 2x5x4 3", read + 160, 4 * 40 + 18 * 70);
}

#[test]
fn updates() {
    let rig = Rig::new();
    let [norm, grad] = [F32, F32].map(|dtype| rig.memory(dtype));
    let mut out = rig.memory(F32);
    check(&One::GlobalNorm { gradients: &[&grad, &norm], norm: &mut out }, "global_norm", 2 * 4 * 4096 + 4, 4 * 4096);
    let mut buffers = [F32, F32, F32, F16].map(|dtype| rig.memory(dtype));
    let hyperparameter = gradscale_core::backend::Hyperparameter;
    for (rule, words, states, half, each) in [
        (Rule::Sgd { momentum: 0.0, nesterov: false }, "optimize sgd", 0, false, 4),
        (Rule::Sgd { momentum: 0.9, nesterov: true }, "optimize sgd", 1, true, 6),
        (
            Rule::Adam {
                beta: [0.9, 0.99],
                eps: 1e-8,
                correction: [hyperparameter(1), hyperparameter(2)],
                decoupled: true,
            },
            "optimize adamw",
            2,
            true,
            13,
        ),
    ] {
        let p = Optimizer::new(rule, hyperparameter(0)).expect("a rule");
        let [master, first, second, copy] = buffers.each_mut();
        let states_of = [Some(first).filter(|_| states > 0), Some(second).filter(|_| states > 1)];
        let one = Param { len: 10, master, grad: &grad, state: states_of, half: Some(copy).filter(|_| half) };
        let mut parameters = [one];
        let launch = One::Optimize {
            p,
            table: &rig.table,
            guard: (0..4).into(),
            norm: Some(&norm),
            parameters: &mut parameters,
        };
        let bytes = 10 * (12 + 8 * states + if half { 2 } else { 0 }) + 4;
        check(&launch, words, bytes, 10 * each);
    }
}
