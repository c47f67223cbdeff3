//! Matrix products and convolutions.

use crate::{
    Device, Error,
    driver::{Driver, Params},
    kernels::{FINISH, GROUP, Kernel, PLAIN, TENSOR, TILES},
    memory::Memory,
    scratch::Use,
    store::StoreParams,
};
use gradscale_core::{
    backend::{Buffer, DType, Store},
    descriptor::{Conv2d, Gemm, Pass},
};

/// `Product` of `product.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
struct ProductParams {
    y: StoreParams,
    a: u64,
    b: u64,
    bias: u64,
    parts: u64,
    kinds: [u32; 3],
    mnk: [u32; 3],
    batch: u32,
    splits: u32,
    depth: u32,
    y_lead: u32,
    y_stride: u32,
    bias_stride: u32,
    steps: Steps,
    conv: ConvParams,
    wide: u32,
}

// SAFETY: as `product.cuh` says, without padding: 4 · 8 bytes, then 13 + 6 + 16 words.
unsafe impl Params for ProductParams {}
const _: () = assert!(size_of::<ProductParams>() == size_of::<StoreParams>() + 4 * 8 + 36 * 4);

/// Elements from one m, k, z to the next in a, and from one k, n, z in b.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Steps {
    a: [u32; 3],
    b: [u32; 3],
}

/// Shape of a convolution.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct ConvParams {
    x: [u32; 3],
    y: [u32; 3],
    kernel: [u32; 2],
    stride: [u32; 2],
    pad: [u32; 2],
    dilation: [u32; 2],
    inputs: u32,
    outputs: u32,
}

/// A product, before it is known how it runs.
struct Plan {
    /// Of [`TENSOR`] and [`GROUP`].
    layout: usize,
    /// Of [`PLAIN`].
    plain: &'static Kernel,
    mnk: [u32; 3],
    batch: u32,
    y_lead: u32,
    y_stride: u32,
    bias_stride: u32,
    steps: Steps,
    conv: ConvParams,
    /// Whether eight elements side by side, in the direction in which operands are contiguous, are all there or none,
    /// and aligned.
    aligned: bool,
    /// Elements that a, b, the bias and y must have.
    lens: [usize; 4],
}

/// Results of the plain kernel's block along each side.
const PLAIN_TILE: [u32; 2] = [64, 64];
/// Longest sum of one block: tensor cores cut what does not fit, so that long sums of one sign drift.
const LONGEST: u32 = 4096;
/// Shortest part of a sum worth a block.
const SHORTEST: u32 = 256;

impl<D: Driver> Device<D> {
    pub(crate) fn run_gemm(
        &self, p: &Gemm, a: &Memory<D>, b: &Memory<D>, bias: Option<&Memory<D>>, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let ([m, n, k], [ta, tb], lead, strides) = (p.mnk(), p.transposed(), p.lead(), p.strides());
        let [a_len, b_len, y_len] = p.lens().map(|len| len as usize);
        let eights = |sizes: [u32; 3]| sizes.into_iter().all(|size| size.is_multiple_of(8));
        let plan = Plan {
            layout: usize::from(ta) + 2 * usize::from(tb),
            plain: &PLAIN[0],
            mnk: [m, n, k],
            batch: p.batch(),
            y_lead: lead[2],
            y_stride: strides[2],
            bias_stride: 0,
            steps: Steps {
                a: if ta { [1, lead[0], strides[0]] } else { [lead[0], 1, strides[0]] },
                b: if tb { [1, lead[1], strides[1]] } else { [lead[1], 1, strides[1]] },
            },
            conv: ConvParams::default(),
            aligned: eights([if ta { m } else { k }, lead[0], strides[0]])
                && eights([if tb { k } else { n }, lead[1], strides[1]]),
            lens: [a_len, b_len, n as usize, y_len],
        };
        self.run_product(&plan, a, b, bias, y)
    }

    pub(crate) fn run_conv(
        &self, p: &Conv2d, pass: Pass, a: &Memory<D>, b: &Memory<D>, bias: Option<&Memory<D>>, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let ([images, h, w, c], [_, oh, ow, o]) = (p.x(), p.y());
        let ([_, kh, kw, inputs], groups) = (p.w(), p.group_count());
        let (outputs, taps) = (o / groups, kh * kw);
        let len = |shape: [u32; 4]| shape.into_iter().product::<u32>() as usize;
        let (pixels, x_len, w_len, y_len) = (images * oh * ow, len(p.x()), len(p.w()), len(p.y()));
        // What is contiguous along each operand.
        let [wide_inputs, wide_outputs] = [inputs, outputs].map(|channels| channels.is_multiple_of(8));
        let filter = taps * inputs;
        let (layout, mnk, y_lead, y_stride, steps, aligned, lens) = match pass {
            Pass::Forward => {
                let steps = Steps { b: [1, filter, outputs * filter], ..Steps::default() };
                (4, [pixels, outputs, filter], o, outputs, steps, wide_inputs, [x_len, w_len, o as usize, y_len])
            }
            Pass::Data => {
                let (mnk, aligned) = ([images * h * w, inputs, taps * outputs], wide_inputs && wide_outputs);
                (5, mnk, c, inputs, Steps::default(), aligned, [y_len, w_len, c as usize, x_len])
            }
            Pass::Weight => {
                // Results of a group follow those of the group before.
                let (mnk, aligned) = ([outputs, filter, pixels], wide_inputs && wide_outputs);
                (6, mnk, filter, outputs * filter, Steps::default(), aligned, [y_len, x_len, 0, w_len])
            }
        };
        let plan = Plan {
            layout,
            plain: &PLAIN[layout - 3],
            mnk,
            batch: groups,
            y_lead,
            y_stride,
            bias_stride: y_stride,
            steps,
            conv: ConvParams {
                x: [h, w, c],
                y: [oh, ow, o],
                kernel: [kh, kw],
                stride: p.strides(),
                pad: p.padding(),
                dilation: p.dilations(),
                inputs,
                outputs,
            },
            aligned,
            lens,
        };
        // a is what gives the rows of the result.
        let (a, b) = if pass == Pass::Weight { (b, a) } else { (a, b) };
        self.run_product(&plan, a, b, bias, y)
    }

    fn run_product(
        &self, plan: &Plan, a: &Memory<D>, b: &Memory<D>, bias: Option<&Memory<D>>, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let ([m, n, k], batch) = (plan.mnk, plan.batch);
        if m == 0 || n == 0 || batch == 0 {
            return Ok(());
        }
        let halves = a.dtype() == DType::F16 && b.dtype() == DType::F16;
        let tiles = |[tile_m, tile_n]: [u32; 2]| m.div_ceil(tile_m) * n.div_ceil(tile_n) * batch;
        let (kernel, tile) = if halves {
            let i = if plan.aligned { self.tile(m, n, tiles) } else { 4 };
            let group = GROUP[plan.layout].get(i).filter(|_| self.has_groups());
            (group.unwrap_or(&TENSOR[plan.layout][i]), TILES[i])
        } else {
            (plan.plain, PLAIN_TILE)
        };
        let operands = plan.lens[0] * a.dtype().size() + plan.lens[1] * b.dtype().size();
        let results = m as usize * n as usize * batch as usize;
        let (splits, depth) = self.parts(k, tiles(tile), results, operands);
        let blocks = [tiles(tile) * splits, 1, 1];
        let wide = [n, plan.y_lead, plan.y_stride].into_iter().all(|size| size.is_multiple_of(8));
        let part = if splits > 1 { self.scratch(Use::Work, splits as usize * results * 4)? } else { 0 };
        let mut params = ProductParams {
            y: self.store(y, plan.lens[3], blocks)?,
            a: a.holds(plan.lens[0]).at(),
            b: b.holds(plan.lens[1]).at(),
            bias: bias.map_or(0, |bias| bias.holds(plan.lens[2]).at()),
            parts: part,
            kinds: [a.kind(), b.kind(), bias.map_or(0, Memory::kind)],
            mnk: plan.mnk,
            batch,
            splits,
            depth,
            y_lead: plan.y_lead,
            y_stride: plan.y_stride,
            bias_stride: plan.bias_stride,
            steps: plan.steps,
            conv: plan.conv,
            wide: u32::from(wide),
        };
        // SAFETY: operands and result are as long as their shapes say, the parts as long as all their results.
        unsafe { self.launch(kernel, blocks, &params)? };
        if splits > 1 {
            let (_, blocks) = self.dense(results);
            params.y = self.store(y, plan.lens[3], blocks)?;
            // SAFETY: as above.
            unsafe { self.launch(&FINISH, blocks, &params)? };
        }
        Ok(())
    }

    /// The tile: the largest that is not mostly empty and fills the device.
    fn tile(&self, m: u32, n: u32, tiles: impl Fn([u32; 2]) -> u32) -> usize {
        let enough = self.driver().multiprocessors();
        match (m > 64, n > 64) {
            (true, true) if tiles(TILES[0]) >= enough => 0,
            (true, _) if tiles(TILES[1]) >= enough => 1,
            (_, true) if tiles(TILES[2]) >= enough => 2,
            (true, false) => 1,
            (false, true) => 2,
            _ => 3,
        }
    }

    /// In how many parts a sum is cut, and their length: so that the device is full and no sum is too long, as far as
    /// memory for the parts goes, which is little beside the operands.
    fn parts(&self, k: u32, tiles: u32, results: usize, operands: usize) -> (u32, u32) {
        let room = (operands / 16).max(256 << 10) / (4 * results);
        let most = u32::try_from(room).unwrap_or(u32::MAX).min(k.div_ceil(SHORTEST));
        let wish = (2 * self.driver().multiprocessors() / tiles).max(k.div_ceil(LONGEST));
        // Whole stages of the kernels.
        let depth = k.div_ceil(wish.min(most).max(1)).next_multiple_of(32).max(32);
        (k.div_ceil(depth).max(1), depth)
    }
}
