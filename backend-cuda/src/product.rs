//! Matrix products and convolutions.

use crate::{
    Device, Error,
    driver::{Driver, Params, TensorMap, Tiled, Windows},
    kernels::{BULK, BULK_CONVOLUTIONS, BULK_TILES, CONVOLUTIONS, FINISH, GROUP, Kernel, MATRICES, PLAIN, TILES},
    memory::Memory,
    proof,
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

/// `Bulk` of `boxes.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
struct BulkParams {
    maps: [TensorMap; 2],
    product: ProductParams,
    unused: [u32; 2],
}

// SAFETY: as `boxes.cuh` says; with what is unused a multiple of 64 bytes.
unsafe impl Params for BulkParams {}
const _: () = assert!(size_of::<BulkParams>() == 2 * 128 + size_of::<ProductParams>() + 8);

/// A product, before it is known how it runs.
#[derive(Clone, Copy)]
struct Plan {
    kind: Kind,
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
    /// What moves over x (over dy in the data pass), without address and box, if the copy engine can bring it.
    windows: Option<Windows>,
    /// Elements that a, b, the bias and y must have.
    lens: [usize; 4],
}

/// What a product's operands are, and where they are contiguous.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// Matrices, transposed or not: of [`MATRICES`] and [`BULK`].
    Matrices([bool; 2]),
    /// Of [`CONVOLUTIONS`], [`GROUP`] and [`BULK_CONVOLUTIONS`].
    Convolution(Pass),
}

impl Kind {
    fn index(self) -> usize {
        match self {
            Self::Matrices([a, b]) => usize::from(a) + 2 * usize::from(b),
            Self::Convolution(Pass::Forward) => 0,
            Self::Convolution(Pass::Data) => 1,
            Self::Convolution(Pass::Weight) => 2,
        }
    }

    fn tensor(self) -> &'static [Kernel; 5] {
        match self {
            Self::Matrices(_) => &MATRICES[self.index()],
            Self::Convolution(_) => &CONVOLUTIONS[self.index()],
        }
    }
}

/// How a product runs: the kernel, and the results of one of its blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub kernel: &'static Kernel,
    tile: [u32; 2],
    /// Whether operands come by the copy engine.
    pub bulk: bool,
}

/// Results of the plain kernel's block along each side.
const PLAIN_TILE: [u32; 2] = [64, 64];
/// Longest sum of one block: tensor cores cut what does not fit, so that long sums of one sign drift.
const LONGEST: u32 = 4096;
/// Shortest part of a sum worth a block.
const SHORTEST: u32 = 256;

impl Plan {
    /// How many tiles the results fill.
    fn tiles(&self, [tile_m, tile_n]: [u32; 2]) -> u32 {
        self.mnk[0].div_ceil(tile_m) * self.mnk[1].div_ceil(tile_n) * self.batch
    }

    /// Whether the copy engine can walk through the operands: matrices of a batch lie behind each other.
    fn has_boxes(&self) -> bool {
        self.boxes(PLAIN_TILE, [0; 2]).iter().all(|one| one.strides[1] >= one.strides[0] * u64::from(one.sizes[1]))
    }

    /// Both operands, matrices at these addresses, in boxes of 64 of k.
    fn boxes(&self, tile: [u32; 2], at: [u64; 2]) -> [Tiled; 2] {
        let [m, n, k] = self.mnk;
        let Steps { a, b } = self.steps;
        // Elements from one row (m of a, n of b) and one k to the next, and from matrix to matrix.
        [(at[0], m, a, tile[0]), (at[1], n, [b[1], b[0], b[2]], tile[1])].map(
            |(at, rows, [row, step, matrix], tile)| {
                let along_k = step == 1;
                let (sizes, lead) = if along_k { ([k, rows, self.batch], row) } else { ([rows, k, self.batch], step) };
                // With one matrix the distance to the next is never used, but must be one.
                let [lead, matrix] = [lead, matrix].map(|elements| 2 * u64::from(elements));
                let matrix = if self.batch == 1 { lead * u64::from(sizes[1]) } else { matrix };
                Tiled { at, sizes, strides: [lead, matrix], tile: [64, if along_k { tile } else { 64 }, 1] }
            },
        )
    }

    /// What the copy engine needs to know of both operands, which lie at these addresses.
    fn maps<D: Driver>(&self, driver: &D, tile: [u32; 2], at: [u64; 2]) -> Result<[TensorMap; 2], Error> {
        let Kind::Convolution(pass) = self.kind else {
            let [a, b] = self.boxes(tile, at);
            return Ok([driver.tensor_map(&a)?, driver.tensor_map(&b)?]);
        };
        let windows = |at, pixels| {
            let moving = self.windows.expect("a convolution that the copy engine can bring");
            driver.window_map(&Windows { at, pixels, ..moving })
        };
        let matrices = |at, sizes: [u32; 3], tile| {
            let row = 2 * u64::from(sizes[0]);
            driver.tensor_map(&Tiled { at, sizes, strides: [row, row * u64::from(sizes[1])], tile })
        };
        let ConvParams { kernel, inputs, outputs, y: [_, _, all], .. } = self.conv;
        let taps = kernel[0] * kernel[1];
        Ok(match pass {
            Pass::Forward => {
                let w = [taps * inputs, outputs, self.batch];
                [windows(at[0], tile[0])?, matrices(at[1], w, [64, tile[1], 1])?]
            }
            Pass::Data => [windows(at[0], tile[0])?, matrices(at[1], [inputs, taps, all], [64, 1, 64])?],
            Pass::Weight => [matrices(at[0], [all, self.mnk[2], 1], [64, 64, 1])?, windows(at[1], 64)?],
        })
    }
}

impl<D: Driver> Device<D> {
    pub(crate) fn run_gemm(
        &self, p: &Gemm, a: &Memory<D>, b: &Memory<D>, bias: Option<&Memory<D>>, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        self.run_product(&Self::plan_gemm(p), a, b, bias, y, None)
    }

    fn plan_gemm(p: &Gemm) -> Plan {
        let ([m, n, k], [ta, tb], lead, strides) = (p.mnk(), p.transposed(), p.lead(), p.strides());
        let [a_len, b_len, y_len] = p.lens().map(|len| len as usize);
        let eights = |sizes: [u32; 3]| sizes.into_iter().all(|size| size.is_multiple_of(8));
        Plan {
            kind: Kind::Matrices([ta, tb]),
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
            windows: None,
            lens: [a_len, b_len, n as usize, y_len],
        }
    }

    pub(crate) fn run_conv(
        &self, p: &Conv2d, pass: Pass, a: &Memory<D>, b: &Memory<D>, bias: Option<&Memory<D>>, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        // a is what gives the rows of the result.
        let (a, b) = if pass == Pass::Weight { (b, a) } else { (a, b) };
        self.run_product(&Self::plan_conv(p, pass), a, b, bias, y, None)
    }

    fn plan_conv(p: &Conv2d, pass: Pass) -> Plan {
        let ([images, h, w, c], [_, oh, ow, o]) = (p.x(), p.y());
        let ([_, kh, kw, inputs], groups) = (p.w(), p.group_count());
        let (outputs, taps) = (o / groups, kh * kw);
        let len = |shape: [u32; 4]| shape.into_iter().product::<u32>() as usize;
        let (pixels, x_len, w_len, y_len) = (images * oh * ow, len(p.x()), len(p.w()), len(p.y()));
        // What is contiguous along each operand.
        let [wide_inputs, wide_outputs] = [inputs, outputs].map(|channels| channels.is_multiple_of(8));
        let filter = taps * inputs;
        let (plain, mnk, y_lead, y_stride, steps, aligned, lens) = match pass {
            Pass::Forward => {
                let steps = Steps { b: [1, filter, outputs * filter], ..Steps::default() };
                (1, [pixels, outputs, filter], o, outputs, steps, wide_inputs, [x_len, w_len, o as usize, y_len])
            }
            Pass::Data => {
                let (mnk, aligned) = ([images * h * w, inputs, taps * outputs], wide_inputs && wide_outputs);
                (2, mnk, c, inputs, Steps::default(), aligned, [y_len, w_len, c as usize, x_len])
            }
            Pass::Weight => {
                // Results of a group follow those of the group before.
                let (mnk, aligned) = ([outputs, filter, pixels], wide_inputs && wide_outputs);
                (3, mnk, filter, outputs * filter, Steps::default(), aligned, [y_len, x_len, 0, w_len])
            }
        };
        let windows = windows(p, pass);
        Plan {
            kind: Kind::Convolution(pass),
            plain: &PLAIN[plain],
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
            windows,
            lens,
        }
    }

    /// `by`: the way to compute, if it is not to be chosen.
    fn run_product(
        &self, plan: &Plan, a: &Memory<D>, b: &Memory<D>, bias: Option<&Memory<D>>, y: &Store<'_, Self>,
        by: Option<Choice>,
    ) -> Result<(), Error> {
        let ([m, n, k], batch) = (plan.mnk, plan.batch);
        if m == 0 || n == 0 || batch == 0 {
            return Ok(());
        }
        let halves = a.dtype() == DType::F16 && b.dtype() == DType::F16;
        let choice = match by {
            Some(choice) => choice,
            None if halves => self.choose(plan)?,
            None => Choice { kernel: plan.plain, tile: PLAIN_TILE, bulk: false },
        };
        let tiles = plan.tiles(choice.tile);
        let operands = plan.lens[0] * a.dtype().size() + plan.lens[1] * b.dtype().size();
        let results = m as usize * n as usize * batch as usize;
        let (splits, depth) = self.parts(k, tiles, results, operands);
        // With the copy engine each multiprocessor has one block, which goes from tile to tile.
        let most = if choice.bulk { self.driver().multiprocessors() } else { u32::MAX };
        let blocks = [(tiles * splits).min(most), 1, 1];
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
        // SAFETY: operands and result are as long as their shapes say, the parts as long as all their results; boxes that
        // leave a matrix are cut.
        unsafe {
            if choice.bulk {
                let maps = plan.maps(self.driver(), choice.tile, [params.a, params.b])?;
                self.launch(choice.kernel, blocks, &BulkParams { maps, product: params, unused: [0; 2] })?;
            } else {
                self.launch(choice.kernel, blocks, &params)?;
            }
        }
        if splits > 1 {
            let (_, blocks) = self.dense(results);
            params.y = self.store(y, plan.lens[3], blocks)?;
            // SAFETY: as above.
            unsafe { self.launch(&FINISH, blocks, &params)? };
        }
        Ok(())
    }

    /// The way to multiply halves: the best of those that the device has and that have been seen to be right there.
    fn choose(&self, plan: &Plan) -> Result<Choice, Error> {
        let tensor = plan.kind.tensor();
        let any = Choice { kernel: &tensor[4], tile: TILES[4], bulk: false };
        if !plan.aligned {
            return Ok(any);
        }
        let i = self.tile(plan);
        let here = Choice { kernel: &tensor[i], tile: TILES[i], bulk: false };
        let [m, n, k] = plan.mnk;
        // The copy engine knows no tensors without elements.
        let empty = k == 0 || plan.lens[..2].contains(&0);
        let [mut best, mut better] = [None; 2];
        match plan.kind {
            _ if !self.has_groups() => {}
            Kind::Convolution(_) => {
                let of =
                    |kernels: &'static [Kernel; 2], bulk| kernels.get(i).map(|kernel| Choice { kernel, bulk, ..here });
                best = plan.windows.filter(|_| !empty).and_then(|_| of(&BULK_CONVOLUTIONS[plan.kind.index()], true));
                better = of(&GROUP[plan.kind.index()], false);
            }
            Kind::Matrices(_) if m > 64 && n > 64 && !empty && plan.has_boxes() => {
                let large = n > 128 && plan.tiles(BULK_TILES[0]) >= self.driver().multiprocessors();
                let i = usize::from(!large);
                best = Some(Choice { kernel: &BULK[plan.kind.index()][i], tile: BULK_TILES[i], bulk: true });
            }
            Kind::Matrices(_) => {}
        }
        for choice in [best, better].into_iter().flatten() {
            if self.is_proven(plan.kind, choice)? {
                return Ok(choice);
            }
        }
        Ok(here)
    }

    /// Runs one product twice: as `choice` says, and by the kernel for operands of any alignment, which is the simplest.
    pub(crate) fn run_twice(
        &self, kind: Kind, choice: Choice, [a, b]: [&Memory<D>; 2], y: [Store<'_, Self>; 2],
    ) -> Result<(), Error> {
        let plan = match kind {
            Kind::Matrices(_) => Self::plan_gemm(&proof::gemm(kind)?),
            Kind::Convolution(pass) => Self::plan_conv(&proof::conv(choice, pass)?, pass),
        };
        let plain = Choice { kernel: &kind.tensor()[4], tile: TILES[4], bulk: false };
        self.run_product(&plan, a, b, None, &y[0], Some(choice))?;
        self.run_product(&plan, a, b, None, &y[1], Some(plain))
    }

    /// The tile: the largest that is not mostly empty and fills the device.
    fn tile(&self, plan: &Plan) -> usize {
        let (enough, [m, n, _]) = (self.driver().multiprocessors(), plan.mnk);
        match (m > 64, n > 64) {
            (true, true) if plan.tiles(TILES[0]) >= enough => 0,
            (true, _) if plan.tiles(TILES[1]) >= enough => 1,
            (_, true) if plan.tiles(TILES[2]) >= enough => 2,
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
        let depth = k.div_ceil(wish.min(most).max(1)).next_multiple_of(64).max(64);
        (k.div_ceil(depth).max(1), depth)
    }
}

/// What moves over x, or over dy with taps from the last, if the copy engine can bring it: channels in 64, and in the
/// data pass no gaps between outputs.
fn windows(p: &Conv2d, pass: Pass) -> Option<Windows> {
    let ([images, h, w, c], [_, oh, ow, o], [_, kh, kw, inputs]) = (p.x(), p.y(), p.w());
    let ([stride_h, stride_w], [pad_h, pad_w], [dilation_h, dilation_w]) = (p.strides(), p.padding(), p.dilations());
    let reach = [(kw - 1).checked_mul(dilation_w)?, (kh - 1).checked_mul(dilation_h)?];
    let padding = [i32::try_from(pad_w).ok()?, i32::try_from(pad_h).ok()?];
    let (windows, channels) = if pass == Pass::Data {
        if [stride_h, stride_w] != [1, 1] {
            return None;
        }
        let back = [i32::try_from(reach[0]).ok()?, i32::try_from(reach[1]).ok()?];
        let first = [padding[0].checked_sub(back[0])?, padding[1].checked_sub(back[1])?];
        let windows = Windows { at: 0, sizes: [o, ow, oh, images], first, counts: [w, h], step: [1, 1], pixels: 0 };
        (windows, o / p.group_count())
    } else {
        let (first, step) = (padding.map(|size| -size), [stride_w, stride_h]);
        (Windows { at: 0, sizes: [c, w, h, images], first, counts: [ow, oh], step, pixels: 0 }, inputs)
    };
    (channels.is_multiple_of(64) && windows.fits(reach)).then_some(windows)
}
