//! Matrix products and convolutions.

use crate::{
    Cuda, Error,
    gpu::TensorMap,
    kernels::{BULK, BULK_CONVOLUTIONS, BULK_TILES, FINISH, GROUP, Kernel, TILES},
    memory::Memory,
    plan::{ConvParams, Kind, Plan, Steps},
    proof,
    scratch::Use,
    store::StoreParams,
};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{
    backend::{Buffer, DType, Store},
    ops::{Conv2d, Gemm, Pass},
};

/// `Product` of `product.cuh`.
#[derive(Clone, Copy, Pod, Zeroable)]
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
    unused: u32,
}

const _: () = assert!(size_of::<ProductParams>() == size_of::<StoreParams>() + 4 * 8 + 36 * 4);

/// `Bulk` of `boxes.cuh`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct BulkParams {
    maps: [TensorMap; 2],
    product: ProductParams,
    unused: [u32; 2],
}

const _: () = assert!(size_of::<BulkParams>() == 2 * 128 + size_of::<ProductParams>() + 8);

/// How a product runs: the kernel, and the results of one of its blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub kernel: &'static Kernel,
    tile: [u32; 2],
    /// Whether operands come by the copy engine.
    pub bulk: bool,
}

impl Choice {
    /// The ways of matrices by TMA, as [`BULK_TILES`].
    pub fn bulk_matrices(kind: Kind) -> [Self; 2] {
        [0, 1].map(|i| Self { kernel: &BULK[kind.index()][i], tile: BULK_TILES[i], bulk: true })
    }

    /// The ways of a convolution by warpgroups, by TMA and without, in the first two of [`TILES`].
    pub fn convolutions_by_groups(kind: Kind) -> [Self; 4] {
        let of = |kernels: &'static [[Kernel; 2]; 3], i: usize, bulk| Self {
            kernel: &kernels[kind.index()][i],
            tile: TILES[i],
            bulk,
        };
        [of(&BULK_CONVOLUTIONS, 0, true), of(&BULK_CONVOLUTIONS, 1, true), of(&GROUP, 0, false), of(&GROUP, 1, false)]
    }
}

/// What is multiplied: addresses and types.
pub(crate) struct Operands {
    pub at: [u64; 2],
    types: [DType; 2],
}

impl Operands {
    /// Those of a plan; panics unless they are as long as it says.
    pub fn of(plan: &Plan, a: &Memory, b: &Memory) -> Self {
        Self { at: [a.holds(plan.lens[0]).at(), b.holds(plan.lens[1]).at()], types: [a.dtype(), b.dtype()] }
    }
}

/// Results of the plain kernel's block along each side.
const PLAIN_TILE: [u32; 2] = [64, 64];
/// Longest sum of one block: tensor cores cut what does not fit, so that long sums of one sign drift.
const LONGEST: u32 = 4096;
/// Shortest part of a sum worth a block.
const SHORTEST: u32 = 256;

impl Cuda {
    pub(crate) fn run_gemm(
        &self, p: &Gemm, a: &Memory, b: &Memory, bias: Option<&Memory>, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let plan = Plan::gemm(p);
        self.run_product(&plan, &Operands::of(&plan, a, b), bias, y, None)
    }

    pub(crate) fn run_conv(
        &self, p: &Conv2d, pass: Pass, a: &Memory, b: &Memory, bias: Option<&Memory>, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        // a is what gives the rows of the result.
        let (a, b) = if pass == Pass::Weight { (b, a) } else { (a, b) };
        if self.run_padded(p, pass, [a, b], bias, y)? {
            return Ok(());
        }
        let plan = Plan::conv(p, pass);
        self.run_product(&plan, &Operands::of(&plan, a, b), bias, y, None)
    }

    /// `by`: the way to compute, if it is not to be chosen.
    pub(crate) fn run_product(
        &self, plan: &Plan, x: &Operands, bias: Option<&Memory>, y: &Store<'_, Self>, by: Option<Choice>,
    ) -> Result<(), Error> {
        let ([m, n, k], batch) = (plan.mnk, plan.batch);
        if m == 0 || n == 0 || batch == 0 {
            return Ok(());
        }
        let halves = x.types == [DType::F16; 2];
        let choice = match by {
            Some(choice) => choice,
            None if halves => self.choose(plan)?,
            None => Choice { kernel: plan.plain, tile: PLAIN_TILE, bulk: false },
        };
        let tiles = plan.tiles(choice.tile);
        let operands = plan.lens[0] * x.types[0].size() + plan.lens[1] * x.types[1].size();
        let results = m as usize * n as usize * batch as usize;
        let (splits, depth) = self.parts(k, tiles, results, operands, if plan.kept < n { 2 } else { 1 });
        // With the copy engine each multiprocessor has one block, which goes from tile to tile.
        let most = if choice.bulk { self.gpu().multiprocessors() } else { u32::MAX };
        let blocks = [(tiles * splits).min(most), 1, 1];
        let wide = [n, plan.y_lead, plan.y_stride].into_iter().all(|size| size.is_multiple_of(8));
        let part = if splits > 1 { self.scratch(Use::Work, splits as usize * results * 4)? } else { 0 };
        let mut params = ProductParams {
            y: self.store(y, plan.lens[3], blocks)?,
            a: x.at[0],
            b: x.at[1],
            bias: bias.map_or(0, |bias| bias.holds(plan.lens[2]).at()),
            parts: part,
            kinds: [x.types[0].code(), x.types[1].code(), bias.map_or(0, Memory::kind)],
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
            unused: 0,
        };
        // SAFETY: operands and result are as long as their shapes say, the parts as long as all their results; boxes that
        // leave a matrix are cut.
        unsafe {
            if choice.bulk {
                let maps = plan.maps(self.gpu(), choice.tile, [params.a, params.b])?;
                self.launch(choice.kernel, blocks, &BulkParams { maps, product: params, unused: [0; 2] })?;
            } else {
                self.launch(choice.kernel, blocks, &params)?;
            }
        }
        if splits > 1 {
            if plan.kept < n {
                // Parts have all channels of a pixel, the result those that x has.
                params.conv.x[2] = plan.kept / (n / plan.conv.inputs);
                (params.mnk[1], params.wide) = (plan.kept, 0);
            }
            let (_, blocks) = self.dense(&FINISH, results)?;
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
                let ways = Choice::convolutions_by_groups(plan.kind);
                let (by_tma, by_threads) = ways.split_at(2);
                best = plan.windows.filter(|_| !empty).and_then(|_| by_tma.get(i).copied());
                better = by_threads.get(i).copied();
            }
            Kind::Matrices(_) if m > 64 && n > 64 && !empty && plan.has_boxes() => {
                let large = n > 128 && plan.tiles(BULK_TILES[0]) >= self.gpu().multiprocessors();
                best = Some(Choice::bulk_matrices(plan.kind)[usize::from(!large)]);
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
        &self, kind: Kind, choice: Choice, [a, b]: [&Memory; 2], y: [Store<'_, Self>; 2],
    ) -> Result<(), Error> {
        let plan = match kind {
            Kind::Matrices(_) => Plan::gemm(&proof::gemm(kind)?),
            Kind::Convolution(pass) => Plan::conv(&proof::conv(choice, pass)?, pass),
        };
        let plain = Choice { kernel: &kind.tensor()[4], tile: TILES[4], bulk: false };
        let operands = Operands::of(&plan, a, b);
        self.run_product(&plan, &operands, None, &y[0], Some(choice))?;
        self.run_product(&plan, &operands, None, &y[1], Some(plain))
    }

    /// The tile: the largest that is not mostly empty and fills the device.
    fn tile(&self, plan: &Plan) -> usize {
        let (enough, [m, n, _]) = (self.gpu().multiprocessors(), plan.mnk);
        match (m > 64, n > 64) {
            (true, true) if plan.tiles(TILES[0]) >= enough => 0,
            (true, _) if plan.tiles(TILES[1]) >= enough => 1,
            (_, true) if plan.tiles(TILES[2]) >= enough => 2,
            (true, false) => 1,
            (false, true) => 2,
            _ => 3,
        }
    }

    /// In how many parts a sum is cut, and their length: so that no sum is too long, and the device is full as far as
    /// memory for the parts goes, which is little beside the operands; and so that there are at least so many.
    fn parts(&self, k: u32, tiles: u32, results: usize, operands: usize, least: u32) -> (u32, u32) {
        let room = (operands / 16).max(256 << 10) / (4 * results);
        let most = u32::try_from(room).unwrap_or(u32::MAX).min(k.div_ceil(SHORTEST));
        let wish = (2 * self.gpu().multiprocessors() / tiles).min(most).max(k.div_ceil(LONGEST)).max(least);
        // Whole stages of the kernels: a multiple of 64, as is the longest.
        let depth = k.div_ceil(wish).next_multiple_of(64).max(64);
        (k.div_ceil(depth).max(1), depth)
    }
}
