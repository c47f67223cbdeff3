//! Attention: against f64, exactly where weights are exact, and with values that are not finite.

use super::Case;
use crate::{
    case::{Check, Fail},
    compare::{Want, compare, same_bits},
    data::{Random, is_small, readable},
    epilogue::{same_row, stored},
    property::merge,
    rig::Rig,
};
use core::ops::Range;
use gradscale_core::{
    backend::{AttentionArgs, Backend, DType, Launch, Slot, Store},
    ops::{Attention, AttentionShape, SoftmaxColumns},
    stats::Detail,
};

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    for read in READS {
        let name = format!("attention::{}", name_of(read));
        cases.push(Case::new(name, move |b: &B| each(b, read, |rig, problem| check(rig, problem))));
    }
    cases.push(Case::new("attention::equal_scores", equal_scores::<B>));
    cases.push(Case::new("attention::hidden_columns", hidden::<B>));
    cases.push(Case::new("attention::not_finite", not_finite::<B>));
    cases.push(Case::new("attention::store", store::<B>));
}

/// Columns that attention can read.
pub const READS: [SoftmaxColumns; 3] = [SoftmaxColumns::All, SoftmaxColumns::Causal, SoftmaxColumns::Within];

/// Sequences, heads, queries, keys, depth, width: sizes of 1, odd ones, whole tiles, and more than a tile. Every third one has
/// halves alone.
const SHAPES: [[u32; 6]; 10] = [
    [1, 1, 1, 1, 1, 1],
    [2, 2, 5, 7, 3, 5],
    [4, 1, 17, 33, 16, 16],
    [2, 1, 130, 65, 33, 31],
    [1, 3, 33, 1, 5, 2],
    [4, 1, 1, 100, 64, 64],
    [1, 1, 70, 131, 128, 128],
    [3, 2, 9, 40, 8, 24],
    [2, 1, 3, 5, 100, 128],
    [1, 2, 64, 64, 64, 64],
];

/// Factor from the unit of the tolerance table to 2^-12. Weights and gradients are rounded to halves before a product, and
/// two devices may round one of them to neighbouring halves.
pub const OF_HALVES: f64 = 4096.0;

pub const fn name_of(read: SoftmaxColumns) -> &'static str {
    match read {
        SoftmaxColumns::All => "all_columns",
        SoftmaxColumns::Causal => "causal",
        SoftmaxColumns::Within => "within_lengths",
        SoftmaxColumns::Masked => "masked",
    }
}

/// Checks random problems of all shapes, with operands of several types.
pub fn each<B: Backend>(b: &B, read: SoftmaxColumns, check: impl Fn(&mut Rig<'_, B>, &Problem) -> Check) -> Check {
    let (mut rig, mut measured) = (Rig::new(b)?, vec![]);
    for (i, shape) in SHAPES.into_iter().enumerate() {
        let types = [[DType::F16; 3], [DType::F32; 3], [DType::F16, DType::F32, DType::F16]][i % 3];
        let problem = Problem::new(shape, read, types, 200 + i as u64);
        if is_small(problem.rows() * problem.shape.keys as usize) {
            let named = |fail: Fail| match fail {
                Fail::Failed(why) => Fail::new(format!("{shape:?} of {types:?}: {why}")),
                Fail::Unsupported(operator) => Fail::Unsupported(operator),
            };
            merge(&mut measured, &check(&mut rig, &problem).map_err(named)?);
        }
    }
    Ok(measured)
}

/// Operands of an attention.
#[derive(Clone, Debug)]
pub struct Problem {
    pub shape: AttentionShape,
    pub read: SoftmaxColumns,
    pub types: [DType; 3],
    pub q: Vec<f32>,
    pub k: Vec<f32>,
    pub v: Vec<f32>,
    lengths: Vec<f32>,
}

/// Results in f64.
pub struct Exact {
    pub y: Vec<Want>,
    pub log_sums: Vec<Want>,
}

/// Buffers of a problem.
pub struct Buffers<B: Backend> {
    q: B::Buffer,
    k: B::Buffer,
    v: B::Buffer,
    lengths: Option<B::Buffer>,
}

/// Row `row` of a matrix.
pub fn row_of(matrix: &[f32], row: usize, width: u32) -> &[f32] {
    &matrix[row * width as usize..(row + 1) * width as usize]
}

impl Problem {
    /// Random operands.
    pub fn new(sizes: [u32; 6], read: SoftmaxColumns, types: [DType; 3], seed: u64) -> Self {
        let [sequences, heads, queries, keys, depth, width] = sizes;
        let shape = AttentionShape { sequences, heads, queries, keys, depth, width };
        let (batch, mut random) = ((sequences * heads) as usize, Random(seed));
        let mut many = |dtype, rows: u32, width: u32| {
            let len = batch * (rows * width) as usize;
            readable(dtype, &random.many(len, Random::normal))
        };
        let mut q = many(types[0], queries, depth);
        // Scores of about spread 1, as attention has them. A quarter of a value is normal in half.
        let scale = if depth > 8 { 0.25 } else { 1.0 };
        q.iter_mut().for_each(|q| *q *= scale);
        let (k, v) = (many(types[1], keys, depth), many(types[2], keys, width));
        // Some sequences are empty, and some lengths are beyond the end.
        let length = |i: u32| [keys.div_ceil(2), 0, keys + 3, 1][i as usize % 4] as f32;
        Self { shape, read, types, q, k, v, lengths: (0..sequences).map(length).collect() }
    }

    /// Operands whose scores are exactly 0, or −131072 with about a quarter of the keys if `weightless`. The first element of
    /// a query and of a key yields the score; others of queries are 0 where those of keys are not. Elements are small
    /// integers, those of values multiples of 2^-6.
    pub fn with_exact_weights(sizes: [u32; 6], read: SoftmaxColumns, weightless: bool, seed: u64) -> Self {
        let mut problem = Self::new(sizes, read, [DType::F16; 3], seed);
        let (depth, mut random) = (problem.shape.depth as usize, Random(seed + 1));
        for (i, q) in problem.q.iter_mut().enumerate() {
            *q = match i % depth {
                0 => 256.0,
                place if place % 2 == 1 => random.integer(4),
                _ => 0.0,
            };
        }
        for (i, k) in problem.k.iter_mut().enumerate() {
            *k = match i % depth {
                0 if weightless && random.below(4) == 0 => -512.0,
                place if place % 2 == 0 && place > 0 => random.integer(4),
                _ => 0.0,
            };
        }
        problem.v.iter_mut().for_each(|v| *v = random.integer(256) / 64.0);
        problem
    }

    pub fn build(&self) -> Attention {
        Attention::new(self.shape, self.read).expect("a head of at most 128 elements")
    }

    /// Number of rows of scores.
    pub fn rows(&self) -> usize {
        (self.shape.sequences * self.shape.heads * self.shape.queries) as usize
    }

    /// The matrix of a row of scores.
    fn matrix(&self, row: usize) -> usize {
        row / self.shape.queries as usize
    }

    /// Keys that a row of scores reads, among those of all matrices.
    pub fn keys(&self, row: usize) -> Range<usize> {
        let AttentionShape { heads, queries, keys, .. } = self.shape;
        let keys = keys as usize;
        let end = match self.read {
            SoftmaxColumns::All | SoftmaxColumns::Masked => keys,
            SoftmaxColumns::Causal => row % queries as usize + 1,
            SoftmaxColumns::Within => self.lengths[self.matrix(row) / heads as usize] as usize,
        };
        let start = self.matrix(row) * keys;
        start..start + end.min(keys)
    }

    /// Score of a row and a key.
    pub fn score(&self, row: usize, key: usize) -> Want {
        let depth = self.shape.depth;
        let pairs = row_of(&self.q, row, depth).iter().zip(row_of(&self.k, key, depth));
        Want::sum(pairs.map(|(&q, &k)| f64::from(q) * f64::from(k)))
    }

    /// By the definition, in f64.
    pub fn exact(&self) -> Exact {
        let (mut y, mut log_sums) = (vec![], vec![]);
        let width = self.shape.width;
        for row in 0..self.rows() {
            let scores: Vec<Want> = self.keys(row).map(|key| self.score(row, key)).collect();
            let most = scores.iter().fold(f64::NEG_INFINITY, |most, score| most.max(score.value));
            let is_nan = scores.iter().any(|score| score.value.is_nan());
            let sum: f64 = scores.iter().map(|score| (score.value - most).exp()).sum();
            let log_sum = if is_nan { f64::NAN } else { most + sum.ln() };
            let scale = scores.iter().fold(1.0, |scale: f64, score| scale.max(score.scale)) + log_sum.abs();
            log_sums.push(Want { value: log_sum, scale, terms: self.shape.depth as usize });
            let weights: Vec<f64> = scores.iter().map(|score| (score.value - log_sum).exp()).collect();
            for column in 0..width as usize {
                let values = self.keys(row).map(|key| f64::from(row_of(&self.v, key, width)[column]));
                let terms = weights.iter().zip(values).map(|(weight, v)| weight * v);
                let sum = Want::sum(terms);
                y.push(Want { scale: OF_HALVES * sum.scale, terms: 1, ..sum });
            }
        }
        Exact { y, log_sums }
    }
}

impl<B: Backend> Buffers<B> {
    pub fn new(rig: &Rig<'_, B>, problem: &Problem) -> Result<Self, Fail> {
        let [q, k, v] = problem.types;
        let lengths = match problem.read {
            SoftmaxColumns::Within => {
                let dtype = if problem.shape.heads == 1 { DType::U8 } else { DType::U32 };
                Some(rig.padded(dtype, &problem.lengths)?)
            }
            SoftmaxColumns::All | SoftmaxColumns::Causal | SoftmaxColumns::Masked => None,
        };
        Ok(Self {
            q: rig.padded(q, &problem.q)?,
            k: rig.padded(k, &problem.k)?,
            v: rig.padded(v, &problem.v)?,
            lengths,
        })
    }

    pub fn args(&self) -> AttentionArgs<&B::Buffer> {
        AttentionArgs { q: &self.q, k: &self.k, v: &self.v, lengths: self.lengths.as_ref() }
    }
}

/// Results and logarithms of sums.
fn run<B: Backend>(rig: &Rig<'_, B>, problem: &Problem) -> Result<[Vec<f32>; 2], Fail> {
    let (buffers, p) = (Buffers::new(rig, problem)?, problem.build());
    let mut sums = rig.output(DType::F32, problem.rows())?;
    let log_sums = &mut sums.buffer;
    let y =
        rig.plain(p.y_len() as usize, |y| rig.backend.launch(Launch::Attention { p, x: buffers.args(), log_sums, y }))?;
    Ok([y, rig.take(&sums)?])
}

fn check<B: Backend>(rig: &Rig<'_, B>, problem: &Problem) -> Check {
    let ([y, sums], want, caps) = (run(rig, problem)?, problem.exact(), rig.backend.caps());
    let again = run(rig, problem)?;
    same_bits("the same results again", &again[0], &y)?;
    same_bits("the same sums again", &again[1], &sums)?;
    Ok(vec![
        compare("attention", DType::F32, &caps, &y, &want.y)?,
        compare("attention_sums", DType::F32, &caps, &sums, &want.log_sums)?,
    ])
}

/// A row of 2^n equal scores has the mean of its values, exactly. Scores without weight do not count.
fn equal_scores<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    for (sizes, read) in [
        ([2, 1, 3, 1, 7, 9], SoftmaxColumns::All),
        ([1, 2, 20, 64, 16, 8], SoftmaxColumns::All),
        ([1, 1, 9, 128, 64, 128], SoftmaxColumns::All),
        ([4, 1, 5, 32, 3, 3], SoftmaxColumns::Within),
        ([1, 2, 2, 5, 8, 16], SoftmaxColumns::Causal),
    ] {
        let mut problem = Problem::with_exact_weights(sizes, read, false, 220);
        let exact: Vec<f32> = problem.exact().y.iter().map(|want| want.value as f32).collect();
        same_bits("mean of the values", &run(&rig, &problem)?[0], &exact)?;
        if read == SoftmaxColumns::All && problem.shape.keys > 1 {
            let depth = problem.shape.depth as usize;
            problem.k.chunks_mut(2 * depth).for_each(|keys| keys[0] = -512.0);
            let exact: Vec<f32> = problem.exact().y.iter().map(|want| want.value as f32).collect();
            same_bits("mean of every other value", &run(&rig, &problem)?[0], &exact)?;
        }
    }
    Ok(vec![])
}

/// Keys and values that a row does not read do not matter to it.
fn hidden<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    for read in [SoftmaxColumns::Causal, SoftmaxColumns::Within] {
        let problem = Problem::new([2, 2, 13, 37, 16, 24], read, [DType::F16; 3], 230);
        let AttentionShape { keys, depth, width, .. } = problem.shape;
        let mut other = problem.clone();
        // Causal rows read at most 13 columns, and the first sequence 19.
        for key in 0..4 * keys as usize {
            let is_read = (0..problem.rows()).any(|row| problem.keys(row).contains(&key));
            if !is_read {
                other.k[key * depth as usize..][..depth as usize].fill(60_000.0);
                other.v[key * width as usize..][..width as usize].fill(-60_000.0);
            }
        }
        let ([y, sums], [want, want_sums]) = (run(&rig, &other)?, run(&rig, &problem)?);
        same_bits(name_of(read), &y, &want)?;
        same_bits(name_of(read), &sums, &want_sums)?;
    }
    Ok(vec![])
}

/// A score of NaN or +∞ makes its row NaN, and so do scores that are all −∞. One of −∞ has no weight.
fn not_finite<B: Backend>(b: &B) -> Check {
    let (rig, mut measured) = (Rig::new(b)?, vec![]);
    for read in READS {
        for (value, columns) in [
            (f32::NAN, [3].as_slice()),
            (f32::INFINITY, &[3]),
            (f32::NEG_INFINITY, &[3]),
            (f32::NEG_INFINITY, &[0, 1, 2, 3, 4]),
        ] {
            let mut problem = Problem::new([1, 2, 7, 5, 4, 6], read, [DType::F16; 3], 240);
            // Queries of the first head are positive in front, so the score is the key's value.
            let depth = problem.shape.depth as usize;
            problem.q.iter_mut().step_by(depth).for_each(|q| *q = 1.0);
            for &column in columns {
                problem.k[column * depth] = value;
            }
            merge(&mut measured, &check(&rig, &problem)?);
        }
        let mut problem = Problem::new([1, 2, 7, 5, 4, 6], read, [DType::F16; 3], 241);
        problem.q[9] = f32::NAN;
        merge(&mut measured, &check(&rig, &problem)?);
    }
    Ok(measured)
}

/// A store at another exponent with a statistics row.
fn store<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    for (sizes, read) in [([2, 1, 3, 16, 7, 9], SoftmaxColumns::All), ([1, 2, 70, 64, 16, 80], SoftmaxColumns::All)] {
        let problem = Problem::with_exact_weights(sizes, read, false, 250);
        let (buffers, p) = (Buffers::new(&rig, &problem)?, problem.build());
        for (exponent, dtype, detail) in [
            (0, DType::F16, Detail::Moments),
            (5, DType::F16, Detail::Counts),
            (-20, DType::F16, Detail::Full),
            (16, DType::F16, Detail::None),
            (9, DType::F32, Detail::Moments),
        ] {
            rig.set(&[exponent])?;
            let (mut y, mut sums) = (rig.output(dtype, p.y_len() as usize)?, rig.output(DType::F32, problem.rows())?);
            let site = Store { detail, ..Store::site(Slot::ONE, Slot(2), &rig.table, &mut y.buffer) };
            b.launch(Launch::Attention { p, x: buffers.args(), log_sums: &mut sums.buffer, y: site })?;
            let scaled = |want: &Want| (want.value * 2f64.powi(exponent)) as f32;
            let values: Vec<f32> = problem.exact().y.iter().map(scaled).collect();
            same_bits("stored results", &rig.take(&y)?, &stored(&rig, dtype, &values))?;
            if detail != Detail::None {
                same_row("results", &rig, Slot(2), &values, detail)?;
            }
        }
    }
    Ok(vec![])
}
