//! Matrix products for the cases of `gemm`, with their own index arithmetic and exact results.

use super::shared::{Numbers, of};
use crate::{
    case::{Check, Fail},
    compare::{Want, compare, same_numbers},
    data::Random,
    epilogue::{same_row, stored},
    rig::Rig,
};
use gradscale_core::{
    backend::{Backend, DType, DeviceResult, Launch, Slot, Store},
    ops::{Gemm, ShapeError},
    stats::Detail,
};

/// Value of y before a product.
const BEFORE: f32 = -7.25;

/// `y[m, n] = op(a)·op(b) + bias[n]`, several times.
#[derive(Clone, Debug)]
pub struct Product {
    pub mnk: [usize; 3],
    /// True for each of a and b that is stored transposed.
    pub transposed: [bool; 2],
    /// Elements between the end of a stored row and the next row, in a, b, y.
    pub gaps: [usize; 3],
    pub batch: usize,
    /// Elements between matrices, in a, b, y; `None` where all products share one.
    pub apart: [Option<usize>; 3],
    pub types: [DType; 2],
    pub bias: Option<DType>,
    pub add: bool,
}

/// A product's operands on a device.
pub struct Loaded<B: Backend> {
    pub p: Gemm,
    a: B::Buffer,
    b: B::Buffer,
    bias: Option<B::Buffer>,
}

impl<B: Backend> Loaded<B> {
    pub fn run(&self, backend: &B, y: Store<'_, B>) -> DeviceResult<B> {
        backend.launch(Launch::Gemm { p: self.p, a: &self.a, b: &self.b, bias: self.bias.as_ref(), y })
    }
}

impl Product {
    /// One product of dense matrices of halves.
    pub const fn new(m: usize, n: usize, k: usize) -> Self {
        Self {
            mnk: [m, n, k],
            transposed: [false; 2],
            gaps: [0; 3],
            batch: 1,
            apart: [Some(0); 3],
            types: [DType::F16; 2],
            bias: None,
            add: false,
        }
    }

    pub const fn transposed(self, a: bool, b: bool) -> Self {
        Self { transposed: [a, b], ..self }
    }

    /// Stored rows and columns of a, b, y.
    fn stored(&self) -> [[usize; 2]; 3] {
        let ([m, n, k], [ta, tb]) = (self.mnk, self.transposed);
        [if ta { [k, m] } else { [m, k] }, if tb { [n, k] } else { [k, n] }, [m, n]]
    }

    fn lead(&self, i: usize) -> usize {
        self.stored()[i][1] + self.gaps[i]
    }

    fn stride(&self, i: usize) -> usize {
        self.apart[i].map_or(0, |apart| self.stored()[i][0] * self.lead(i) + apart)
    }

    /// Elements from the first to the last.
    fn len(&self, i: usize) -> usize {
        let [rows, cols] = self.stored()[i];
        if rows * cols * self.batch == 0 {
            return 0;
        }
        (self.batch - 1) * self.stride(i) + (rows - 1) * self.lead(i) + cols
    }

    /// Returns the index at which element (`row`, `col`) of matrix `z` is stored.
    fn at(&self, i: usize, z: usize, [row, col]: [usize; 2]) -> usize {
        let [row, col] = if i < 2 && self.transposed[i] { [col, row] } else { [row, col] };
        z * self.stride(i) + row * self.lead(i) + col
    }

    /// Returns the indices at which the results are stored, in order.
    fn places(&self) -> Vec<usize> {
        let [m, n, _] = self.mnk;
        let rows = (0..self.batch).flat_map(|z| (0..m).map(move |i| (z, i)));
        rows.flat_map(|(z, i)| (0..n).map(move |j| self.at(2, z, [i, j]))).collect()
    }

    /// Operands, with NaN in all that is stored and not part of a matrix.
    pub fn operands(&self, seed: u64, numbers: Numbers) -> [Vec<f32>; 3] {
        let mut random = Random(seed);
        let [a, b] = [0, 1].map(|i| {
            let mut values = vec![f32::NAN; self.len(i)];
            let [rows, cols] = self.stored()[i];
            for z in 0..self.batch {
                for row in 0..rows {
                    let start = z * self.stride(i) + row * self.lead(i);
                    for value in values.iter_mut().skip(start).take(cols) {
                        *value = numbers.next(&mut random, self.types[i]);
                    }
                }
            }
            values
        });
        let bias = self.bias.map_or(vec![], |dtype| random.many(self.mnk[1], |random| numbers.next(random, dtype)));
        [a, b, bias]
    }

    /// The descriptor.
    pub fn describe(&self) -> Result<Gemm, ShapeError> {
        let size = |n: usize| u32::try_from(n).map_err(|_| ShapeError::TooLarge);
        let [m, n, k] = self.mnk;
        let mut p = Gemm::new(size(m)?, size(n)?, size(k)?)?;
        if self.transposed[0] {
            p = p.transpose_a()?;
        }
        if self.transposed[1] {
            p = p.transpose_b()?;
        }
        if self.gaps != [0; 3] {
            p = p.leading([size(self.lead(0))?, size(self.lead(1))?, size(self.lead(2))?])?;
        }
        if self.batch != 1 {
            p = p.batched(size(self.batch)?, [size(self.stride(0))?, size(self.stride(1))?, size(self.stride(2))?])?;
        }
        Ok(p)
    }

    /// Uploads operands, each followed by NaN.
    pub fn load<B: Backend>(&self, rig: &Rig<'_, B>, [a, b, bias]: &[Vec<f32>; 3]) -> Result<Loaded<B>, Fail> {
        let p = self.describe().map_err(|error| Fail::new(format!("{self:?}: {error}")))?;
        let lens = [0, 1, 2].map(|i| self.len(i));
        if p.lens().map(|len| len as usize) != lens {
            return Err(Fail::new(format!("{self:?} takes {lens:?} elements, its descriptor {:?}", p.lens())));
        }
        Ok(Loaded {
            p,
            a: rig.padded(self.types[0], a)?,
            b: rig.padded(self.types[1], b)?,
            bias: self.bias.map(|dtype| rig.padded(dtype, bias)).transpose()?,
        })
    }

    /// The exact results.
    pub fn want(&self, [a, b, bias]: &[Vec<f32>; 3]) -> Vec<Want> {
        let [m, n, k] = self.mnk;
        let mut want = Vec::with_capacity(self.batch * m * n);
        for z in 0..self.batch {
            for i in 0..m {
                for j in 0..n {
                    let product = |l| f64::from(a[self.at(0, z, [i, l])]) * f64::from(b[self.at(1, z, [l, j])]);
                    let others = bias.get(j).copied().into_iter().chain(self.add.then_some(BEFORE));
                    want.push(Want::sum((0..k).map(product).chain(others.map(f64::from))));
                }
            }
        }
        want
    }

    /// Runs the product into its own slot at exponent 0, checks that nothing else has changed, and returns the results.
    pub fn results<B: Backend>(&self, rig: &Rig<'_, B>, loaded: &Loaded<B>, dtype: DType) -> Result<Vec<f32>, Fail> {
        let mut y = rig.output_over(dtype, &vec![BEFORE; self.len(2)])?;
        let site = Store::site(Slot::ONE, Slot::FIRST_SITE, &rig.table, &mut y.buffer);
        loaded.run(rig.backend, Store { detail: Detail::Full, add: self.add, ..site })?;
        let mut all = rig.take(&y)?;
        let results = self.places().iter().map(|&at| core::mem::replace(&mut all[at], BEFORE)).collect();
        match all.iter().position(|&v| v != BEFORE) {
            None => Ok(results),
            Some(at) => Err(Fail::new(format!("element {at} between results became {:e}", all[at]))),
        }
    }

    /// Compares the product with exact results, stored as f32 and as half. Results of integers must be equal. The row
    /// must be equal too, because it counts only results, not the padding of a last tile.
    pub fn check<B: Backend>(&self, backend: &B, seed: u64, numbers: Numbers) -> Check {
        self.check_with(backend, &self.operands(seed, numbers), numbers)
    }

    /// Compares the product as [`Product::check`] does, with given operands.
    pub fn check_with<B: Backend>(&self, backend: &B, operands: &[Vec<f32>; 3], numbers: Numbers) -> Check {
        let mut rig = Rig::new(backend)?;
        let loaded = self.load(&rig, operands)?;
        let want = self.want(operands);
        let mut measured = vec![];
        for dtype in [DType::F32, DType::F16] {
            rig.upload()?;
            let named = of(format!("{self:?} as {dtype:?}"));
            let got = self.results(&rig, &loaded, dtype).map_err(&named)?;
            if numbers == Numbers::Integers {
                let exact: Vec<f32> = want.iter().map(|want| want.value as f32).collect();
                same_numbers("gemm", &got, &stored(&rig, dtype, &exact)).map_err(&named)?;
                same_row("gemm", &rig, Slot::FIRST_SITE, &exact, Detail::Full).map_err(&named)?;
            } else {
                measured.push(compare("gemm", dtype, &backend.caps(), &got, &want).map_err(&named)?);
            }
        }
        Ok(measured)
    }
}
