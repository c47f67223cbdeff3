//! Softmax of rows and its logarithm: against f64, over every choice of columns, and with values that are not finite.

use super::Case;
use crate::{
    case::{Check, Fail},
    compare::{Want, compare, same_bits},
    data::{Random, held, readable},
    epilogue,
    property::merge,
    rig::Rig,
};
use gradscale_core::{
    backend::{Backend, DType, Launch, Slot, Store},
    ops::{Softmax, SoftmaxColumns},
    stats::Detail,
};

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    for kind in KINDS {
        cases.push(Case::new(format!("softmax::{}", kind.name()), move |b: &B| {
            let (rig, mut measured) = (Rig::new(b)?, vec![]);
            for rows in all_rows(kind) {
                merge(&mut measured, &check(&rig, &rows)?);
            }
            Ok(measured)
        }));
    }
    cases.push(Case::new("softmax::hidden_columns_may_be_anything", hidden::<B>));
    cases.push(Case::new("softmax::rows_without_columns", without_columns::<B>));
    cases.push(Case::new("softmax::not_finite", not_finite::<B>));
    cases.push(Case::new("softmax::large_scores", large::<B>));
    cases.push(Case::new("softmax::shift_invariant", shift_invariant::<B>));
    cases.push(Case::new("softmax::epilogue", stores::<B>));
}

/// Columns that rows read, or the logarithm over all columns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Columns(SoftmaxColumns),
    Logarithm,
}

pub(super) const KINDS: [Kind; 5] = [
    Kind::Columns(SoftmaxColumns::All),
    Kind::Columns(SoftmaxColumns::Causal),
    Kind::Columns(SoftmaxColumns::Within),
    Kind::Columns(SoftmaxColumns::Masked),
    Kind::Logarithm,
];

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Columns(SoftmaxColumns::All) => "all_columns",
            Self::Columns(SoftmaxColumns::Causal) => "causal",
            Self::Columns(SoftmaxColumns::Within) => "within_lengths",
            Self::Columns(SoftmaxColumns::Masked) => "masked",
            Self::Logarithm => "logarithm",
        }
    }
}

/// Scores, and the columns that each row reads.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    kind: Kind,
    pub(super) shape: [usize; 3],
    pub(super) dtype: DType,
    pub(super) x: Vec<f32>,
    /// Type of the lengths or of the mask, and their values.
    selection_type: DType,
    selection: Vec<f32>,
}

impl Rows {
    pub(super) fn new(kind: Kind, shape: [usize; 3], dtype: DType, seed: u64) -> Self {
        let mut random = Random(seed);
        let len: usize = shape.iter().product();
        let x = readable(dtype, &random.many(len, |random| random.normal() * 3.1));
        let (selection_type, selection) = match kind {
            Kind::Columns(SoftmaxColumns::Within) => {
                let lengths = random.many(shape[0], |random| (1 + random.below(shape[2] as u64 + 1)) as f32);
                (if shape[2] < 255 && dtype == DType::F16 { DType::U8 } else { DType::U32 }, lengths)
            }
            Kind::Columns(SoftmaxColumns::Masked) => {
                let values = [0.0, 1.0, -1.0, 2.0];
                let bits = random.many(len, |random| values[random.below(4) as usize]);
                if dtype == DType::F16 {
                    (DType::U8, bits.iter().map(|&v| v.max(0.0)).collect())
                } else {
                    ([DType::F32, DType::F16][len % 2], bits)
                }
            }
            Kind::Columns(SoftmaxColumns::All | SoftmaxColumns::Causal) | Kind::Logarithm => (DType::U8, vec![]),
        };
        Self { kind, shape, dtype, x, selection_type, selection }
    }

    pub(super) fn build(&self) -> Softmax {
        let shape = self.shape.map(|size| size as u32);
        let p = match self.kind {
            Kind::Columns(columns) => Softmax::new(shape, columns),
            Kind::Logarithm => Softmax::logarithm(shape[0] * shape[1], shape[2]),
        };
        p.expect("a valid shape")
    }

    /// Returns true if the row of an element reads it, by the definition of the columns.
    pub(super) fn reads(&self, i: usize) -> bool {
        let [_, rows, columns] = self.shape;
        let (row, column) = (i / columns, i % columns);
        match self.kind {
            Kind::Columns(SoftmaxColumns::All) | Kind::Logarithm => true,
            Kind::Columns(SoftmaxColumns::Causal) => column <= row % rows,
            Kind::Columns(SoftmaxColumns::Within) => (column as f32) < self.selection[row / rows],
            Kind::Columns(SoftmaxColumns::Masked) => self.selection[i] > 0.0,
        }
    }

    /// Results in f64.
    pub(super) fn exact(&self) -> Vec<Want> {
        let columns = self.shape[2];
        let row = |r: usize| {
            let read = (r * columns..(r + 1) * columns).filter(|&i| self.reads(i));
            let scores: Vec<f64> = read.map(|i| f64::from(self.x[i])).collect();
            let has_nan = scores.iter().any(|v| v.is_nan());
            let most = if has_nan { f64::NAN } else { scores.iter().copied().fold(f64::NEG_INFINITY, f64::max) };
            let sum: f64 = scores.iter().map(|v| (v - most).exp()).sum();
            (r * columns..(r + 1) * columns).map(move |i| {
                let below = f64::from(self.x[i]) - most;
                let distance = if below.is_finite() { below.abs() } else { 0.0 };
                if !self.reads(i) {
                    Want::sum([])
                } else if self.kind == Kind::Logarithm {
                    // The sum has a relative error, which is an absolute one of its logarithm.
                    Want { value: below - sum.ln(), scale: distance + sum.ln().abs() + 1.0, terms: columns }
                } else {
                    // An exponential has the absolute error of its argument.
                    let value = below.exp() / sum;
                    Want { value, scale: value * (1.0 + distance), terms: columns }
                }
            })
        };
        (0..self.shape[0] * self.shape[1]).flat_map(row).collect()
    }
}

/// Shapes × types: short and long rows, of multiples of eight columns and others, and more columns than a block of
/// threads keeps.
pub(super) fn all_rows(kind: Kind) -> impl Iterator<Item = Rows> {
    let shapes = [
        [1, 1, 1],
        [1, 3, 7],
        [2, 5, 11],
        [3, 33, 64],
        [5, 12, 33],
        [1, 40, 256],
        [2, 3, 1000],
        [3, 1, 2048],
        [1, 2, 9001],
        [1, 2, 9008],
        [0, 4, 5],
        [2, 0, 5],
        [2, 900, 2],
    ];
    let all = shapes.into_iter().flat_map(|shape| [(shape, DType::F32), (shape, DType::F16)]);
    all.map(move |(shape, dtype)| Rows::new(kind, shape, dtype, 80))
}

/// Operands in a device's memory.
struct Buffers<B: Backend> {
    x: B::Buffer,
    selection: Option<B::Buffer>,
}

impl<B: Backend> Buffers<B> {
    fn new(rig: &Rig<'_, B>, rows: &Rows) -> Result<Self, Fail> {
        let selects = matches!(rows.build().read(), SoftmaxColumns::Within | SoftmaxColumns::Masked);
        let selection = selects.then(|| rig.padded(rows.selection_type, &rows.selection)).transpose()?;
        Ok(Self { x: rig.padded(rows.dtype, &rows.x)?, selection })
    }

    fn launch(&self, b: &B, p: Softmax, y: Store<'_, B>) -> Result<(), B::Error> {
        b.launch(Launch::Softmax { p, x: &self.x, selection: self.selection.as_ref(), y })
    }
}

fn run<B: Backend>(rig: &Rig<'_, B>, rows: &Rows) -> Result<Vec<f32>, Fail> {
    let buffers = Buffers::new(rig, rows)?;
    rig.plain(rows.x.len(), |y| buffers.launch(rig.backend, rows.build(), y))
}

fn check<B: Backend>(rig: &Rig<'_, B>, rows: &Rows) -> Check {
    let (got, want) = (run(rig, rows)?, rows.exact());
    same_bits("the same rows again", &run(rig, rows)?, &got)?;
    let named = |fail: Fail| match fail {
        Fail::Failed(why) => Fail::new(format!("{:?} {:?} of {:?}: {why}", rows.kind, rows.shape, rows.dtype)),
        Fail::Unsupported(operator) => Fail::Unsupported(operator),
    };
    let measured = compare("softmax", DType::F32, &rig.backend.caps(), &got, &want).map_err(named)?;
    let mut y = rig.output(DType::F16, got.len())?;
    let site = Store::site(Slot::ONE, Slot::FIRST_SITE, &rig.table, &mut y.buffer);
    Buffers::new(rig, rows)?.launch(rig.backend, rows.build(), Store { detail: Detail::Counts, ..site })?;
    // One rounding behind the f32 result.
    same_bits("halves", &rig.take(&y)?, &epilogue::stored(rig, DType::F16, &got)).map_err(named)?;
    Ok(vec![measured])
}

/// Columns that a row does not read have no influence, and are 0, bit for bit.
fn hidden<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    for kind in KINDS {
        for (shape, dtype) in [([3, 17, 20], DType::F16), ([3, 17, 24], DType::F32)] {
            let clean = Rows::new(kind, shape, dtype, 81);
            let mut wild = clean.clone();
            for (i, x) in wild.x.iter_mut().enumerate().filter(|&(i, _)| !clean.reads(i)) {
                *x = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 60_000.0][i % 4];
            }
            let got = run(&rig, &wild)?;
            same_bits(kind.name(), &got, &run(&rig, &clean)?)?;
            if let Some(i) = (0..got.len()).find(|&i| !clean.reads(i) && got[i].to_bits() != 0) {
                return Err(Fail::new(format!("{}: hidden element {i} is {}", kind.name(), got[i])));
            }
        }
    }
    Ok(vec![])
}

/// Sequences of length 0 and masks of nothing.
fn without_columns<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    for (kind, shape) in [SoftmaxColumns::Within, SoftmaxColumns::Masked]
        .into_iter()
        .flat_map(|columns| [[4, 3, 9], [4, 3, 16]].map(|shape| (Kind::Columns(columns), shape)))
    {
        let mut rows = Rows::new(kind, shape, DType::F16, 82);
        let part = rows.selection.len() / 4;
        rows.selection[part..2 * part].fill(0.0);
        let (got, elements) = (run(&rig, &rows)?, shape[1] * shape[2]);
        same_bits(kind.name(), &got[elements..2 * elements], &vec![0.0; elements])?;
        compare("softmax", DType::F32, &b.caps(), &got, &rows.exact())?;
    }
    Ok(vec![])
}

/// NaN and +∞ make the columns of their row NaN, and no others. −∞ has no weight, but a row of nothing else is NaN.
fn not_finite<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    for kind in KINDS {
        for (shape, dtype) in [([1, 21, 30], DType::F16), ([1, 21, 32], DType::F32)] {
            let mut rows = Rows::new(kind, shape, dtype, 83);
            let columns = shape[2];
            let first = |rows: &Rows, r: usize| (r * columns..(r + 1) * columns).find(|&i| rows.reads(i));
            for (r, bad) in [(3, f32::NAN), (4, f32::INFINITY), (5, f32::NEG_INFINITY), (20, -f32::NAN)] {
                if let Some(i) = first(&rows, r) {
                    rows.x[i] = bad;
                }
            }
            rows.x[9 * columns..10 * columns].fill(f32::NEG_INFINITY);
            let (got, want) = (run(&rig, &rows)?, rows.exact());
            // −∞ is the logarithm of no weight.
            compare("softmax", DType::F32, &b.caps(), &got, &want)?;
            if let Some(i) = (9 * columns..10 * columns).find(|&i| got[i].is_nan() != rows.reads(i)) {
                return Err(Fail::new(format!("{}: element {i} of a row of −∞ is {}", kind.name(), got[i])));
            }
        }
    }
    Ok(vec![])
}

/// Scores at the ends of half's range, where an exponential without the maximum would overflow.
fn large<B: Backend>(b: &B) -> Check {
    let (rig, mut measured) = (Rig::new(b)?, vec![]);
    let values = [60_000.0, -60_000.0, 0.0, 65_504.0, -65_504.0, 12.0, f32::NEG_INFINITY];
    for kind in KINDS {
        for dtype in [DType::F16, DType::F32] {
            let mut rows = Rows::new(kind, [2, 20, 19], dtype, 84);
            rows.x = Random(85).many(2 * 20 * 19, |random| values[random.below(7) as usize]);
            merge(&mut measured, &check(&rig, &rows)?);
        }
    }
    Ok(measured)
}

/// Scores that are all larger by the same number have the same weights: differences of multiples of 2^-6 are exact.
fn shift_invariant<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    for kind in KINDS {
        let mut rows = Rows::new(kind, [2, 15, 50], DType::F32, 86);
        rows.x.iter_mut().for_each(|v| *v = (*v * 64.0).round() / 64.0);
        let got = run(&rig, &rows)?;
        for shift in [8.0, -1000.0] {
            let moved = Rows { x: rows.x.iter().map(|v| v + shift).collect(), ..rows.clone() };
            same_bits(&format!("{} moved by {shift}", kind.name()), &run(&rig, &moved)?, &got)?;
        }
    }
    Ok(vec![])
}

fn stores<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    for kind in KINDS {
        for shape in [[2, 17, 23], [3, 5, 40]] {
            let mut rows = Rows::new(kind, shape, DType::F16, 87);
            rows.x = held(DType::F16, &rows.x);
            let (buffers, p) = (Buffers::new(&rig, &rows)?, rows.build());
            epilogue::check(&mut rig, rows.x.len(), |b, y| buffers.launch(b, p, y))?;
        }
    }
    Ok(vec![])
}
