//! Convolutions for the cases of `conv`: each pass is computed as the sum in its definition.

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
    ops::{Conv2d, Pass, ShapeError},
    stats::Detail,
};

/// x `[images, rows, columns, channels]`, w `[out, kernel rows, kernel columns, channels / groups]`.
#[derive(Clone, Copy, Debug)]
pub struct Convolution {
    pub x: [usize; 4],
    pub out: usize,
    pub kernel: [usize; 2],
    pub stride: [usize; 2],
    pub pad: [usize; 2],
    pub dilation: [usize; 2],
    pub groups: usize,
}

/// The two operands of a pass, and its bias if it has one, on the host.
pub type Operands = [Vec<f32>; 3];

/// The operands of a pass on a device.
pub struct Loaded<B: Backend> {
    p: Conv2d,
    pass: Pass,
    a: B::Buffer,
    b: B::Buffer,
    bias: Option<B::Buffer>,
}

impl<B: Backend> Loaded<B> {
    pub fn run(&self, backend: &B, y: Store<'_, B>) -> DeviceResult<B> {
        backend.launch(Launch::Conv { p: self.p, pass: self.pass, a: &self.a, b: &self.b, bias: self.bias.as_ref(), y })
    }
}

/// Types of a pass's operands and of its bias.
#[derive(Clone, Copy, Debug)]
pub struct Types {
    pub operands: [DType; 2],
    pub bias: Option<DType>,
}

/// Halves without a bias.
pub const HALVES: Types = Types { operands: [DType::F16; 2], bias: None };

impl Convolution {
    /// Stride 1, no padding, no dilation, one group.
    pub const fn new(x: [usize; 4], out: usize, kernel: [usize; 2]) -> Self {
        Self { x, out, kernel, stride: [1; 2], pad: [0; 2], dilation: [1; 2], groups: 1 }
    }

    pub const fn stride(self, stride: [usize; 2]) -> Self {
        Self { stride, ..self }
    }

    pub const fn pad(self, pad: [usize; 2]) -> Self {
        Self { pad, ..self }
    }

    pub const fn dilation(self, dilation: [usize; 2]) -> Self {
        Self { dilation, ..self }
    }

    pub const fn groups(self, groups: usize) -> Self {
        Self { groups, ..self }
    }

    fn w(&self) -> [usize; 4] {
        [self.out, self.kernel[0], self.kernel[1], self.x[3] / self.groups]
    }

    fn y(&self) -> [usize; 4] {
        // Windows start every stride, as long as they end inside the padded image.
        let places = |axis: usize| {
            let (padded, s) = (self.x[1 + axis] + 2 * self.pad[axis], self.stride[axis]);
            let reach = (self.kernel[axis] - 1) * self.dilation[axis];
            (0..).step_by(s).take_while(|start| start + reach < padded).count()
        };
        [self.x[0], places(0), places(1), self.out]
    }

    /// Shapes of the two operands and of the result.
    pub fn shapes(&self, pass: Pass) -> [[usize; 4]; 3] {
        match pass {
            Pass::Forward => [self.x, self.w(), self.y()],
            Pass::Data => [self.y(), self.w(), self.x],
            Pass::Weight => [self.x, self.y(), self.w()],
        }
    }

    /// Elements of the result.
    pub fn len(&self, pass: Pass) -> usize {
        self.shapes(pass)[2].iter().product()
    }

    /// Pairs (tap, place in x) that output `p` reads along an axis.
    fn reads(&self, axis: usize, p: usize) -> Vec<(usize, usize)> {
        let tap = |i: usize| {
            let u = (p * self.stride[axis] + i * self.dilation[axis]).checked_sub(self.pad[axis])?;
            (u < self.x[1 + axis]).then_some((i, u))
        };
        (0..self.kernel[axis]).filter_map(tap).collect()
    }

    /// Pairs (tap, output) by which place `u` of x is read along an axis.
    fn readers(&self, axis: usize, u: usize) -> Vec<(usize, usize)> {
        let tap = |i: usize| {
            let start = (u + self.pad[axis]).checked_sub(i * self.dilation[axis])?;
            let p = start / self.stride[axis];
            (start % self.stride[axis] == 0 && p < self.y()[1 + axis]).then_some((i, p))
        };
        (0..self.kernel[axis]).filter_map(tap).collect()
    }

    /// Returns the pairs (position in x, output) that are multiplied by tap `i` along an axis.
    fn meetings(&self, axis: usize, i: usize) -> Vec<(usize, usize)> {
        let all = (0..self.x[1 + axis]).flat_map(|u| (0..self.y()[1 + axis]).map(move |p| (u, p)));
        all.filter(|(u, p)| u + self.pad[axis] == p * self.stride[axis] + i * self.dilation[axis]).collect()
    }

    /// The exact results of a pass.
    pub fn want(&self, pass: Pass, [a, b, bias]: &Operands) -> Vec<Want> {
        let [shape_a, shape_b, result] = self.shapes(pass);
        let (depth, share) = (self.x[3] / self.groups, self.out / self.groups);
        let at = |shape: [usize; 4], [n, r, s, c]: [usize; 4]| ((n * shape[1] + r) * shape[2] + s) * shape[3] + c;
        let product = |i, j| f64::from(a[at(shape_a, i)]) * f64::from(b[at(shape_b, j)]);
        let along = [0, 1].map(|axis| {
            let pairs = |place| match pass {
                Pass::Forward => self.reads(axis, place),
                Pass::Data => self.readers(axis, place),
                Pass::Weight => self.meetings(axis, place),
            };
            (0..result[1 + axis]).map(pairs).collect::<Vec<_>>()
        });
        let one = |[n, r, s, c]: [usize; 4]| {
            let mut terms: Vec<f64> = bias.get(c).map(|&bias| f64::from(bias)).into_iter().collect();
            for &(i, u) in &along[0][r] {
                for &(j, v) in &along[1][s] {
                    match pass {
                        // c is an output; l runs over the inputs of its group.
                        Pass::Forward => {
                            terms.extend((0..depth).map(|l| product([n, u, v, c / share * depth + l], [c, i, j, l])))
                        }
                        // c is an input; o runs over the outputs of its group; (u, v) is a place in y.
                        Pass::Data => {
                            let outs = c / depth * share..(c / depth + 1) * share;
                            terms.extend(outs.map(|o| product([n, u, v, o], [o, i, j, c % depth])));
                        }
                        // n is an output, c an input of its group; (i, j) is a place in x, (u, v) one in y.
                        Pass::Weight => terms
                            .extend((0..self.x[0]).map(|l| product([l, i, j, n / share * depth + c], [l, u, v, n]))),
                    }
                }
            }
            Want::sum(terms)
        };
        let [images, rows, columns, channels] = result;
        let places = (0..images).flat_map(|n| (0..rows).map(move |r| (n, r)));
        let places = places.flat_map(|(n, r)| (0..columns).map(move |s| (n, r, s)));
        places.flat_map(|(n, r, s)| (0..channels).map(move |c| [n, r, s, c])).map(one).collect()
    }

    /// The descriptor.
    pub fn describe(&self) -> Result<Conv2d, ShapeError> {
        let size = |n: usize| u32::try_from(n).map_err(|_| ShapeError::TooLarge);
        let pair = |[a, b]: [usize; 2]| Ok::<_, ShapeError>([size(a)?, size(b)?]);
        let [n, h, w, c] = self.x;
        let x = [size(n)?, size(h)?, size(w)?, size(c)?];
        Conv2d::padded(x, size(self.out)?, pair(self.kernel)?, pair(self.pad)?)?
            .stride(pair(self.stride)?)?
            .dilation(pair(self.dilation)?)?
            .groups(size(self.groups)?)
    }

    /// Operands and bias of a pass.
    pub fn operands(&self, pass: Pass, types: Types, seed: u64, numbers: Numbers) -> Operands {
        let mut random = Random(seed);
        let [a, b, result] = self.shapes(pass);
        let mut many = |len: usize, dtype| random.many(len, |random| numbers.next(random, dtype));
        let [a, b] = [(a, types.operands[0]), (b, types.operands[1])].map(|(a, dtype)| many(a.iter().product(), dtype));
        [a, b, types.bias.map_or(vec![], |dtype| many(result[3], dtype))]
    }

    /// Uploads operands, each followed by NaN.
    pub fn load<B: Backend>(
        &self, rig: &Rig<'_, B>, pass: Pass, types: Types, [a, b, bias]: &Operands,
    ) -> Result<Loaded<B>, Fail> {
        let p = self.describe().map_err(|error| Fail::new(format!("{self:?}: {error}")))?;
        let shapes = [p.x(), p.w(), p.y()].map(|shape| shape.map(|size| size as usize));
        if shapes != [self.x, self.w(), self.y()] {
            return Err(Fail::new(format!("{self:?}: the descriptor says {shapes:?}, y is {:?}", self.y())));
        }
        Ok(Loaded {
            p,
            pass,
            a: rig.padded(types.operands[0], a)?,
            b: rig.padded(types.operands[1], b)?,
            bias: types.bias.map(|dtype| rig.padded(dtype, bias)).transpose()?,
        })
    }

    /// Compares a pass with its exact results, stored as f32 and as half. Those of integers must be equal, and so
    /// must the row, which counts nothing else.
    pub fn check<B: Backend>(&self, backend: &B, pass: Pass, types: Types, seed: u64, numbers: Numbers) -> Check {
        self.check_with(backend, pass, types, &self.operands(pass, types, seed, numbers), numbers)
    }

    /// Checks the pass as [`Convolution::check`] does, with given operands.
    pub fn check_with<B: Backend>(
        &self, backend: &B, pass: Pass, types: Types, operands: &Operands, numbers: Numbers,
    ) -> Check {
        let mut rig = Rig::new(backend)?;
        let loaded = self.load(&rig, pass, types, operands)?;
        let want = self.want(pass, operands);
        let mut measured = vec![];
        for dtype in [DType::F32, DType::F16] {
            rig.upload()?;
            let mut y = rig.output(dtype, want.len())?;
            let site = Store::site(Slot::ONE, Slot::FIRST_SITE, &rig.table, &mut y.buffer);
            loaded.run(backend, Store { detail: Detail::Full, ..site })?;
            let named = of(format!("{pass:?} of {self:?}, {types:?} as {dtype:?}"));
            let got = rig.take(&y).map_err(&named)?;
            if numbers == Numbers::Integers {
                let exact: Vec<f32> = want.iter().map(|want| want.value as f32).collect();
                same_numbers("conv", &got, &stored(&rig, dtype, &exact)).map_err(&named)?;
                same_row("conv", &rig, Slot::FIRST_SITE, &exact, Detail::Full).map_err(&named)?;
            } else {
                measured.push(compare("conv", dtype, &backend.caps(), &got, &want).map_err(&named)?);
            }
        }
        Ok(measured)
    }
}
