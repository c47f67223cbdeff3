//! Matrix products and convolutions.

use crate::{
    Cuda, Error,
    gemm_problem::{ConvParams, Kind, Plan, Steps},
    gpu::TensorMap,
    kernel_selection::{Choice, Demand},
    kernels::FINISH,
    memory::Memory,
    self_test,
    store::StoreParams,
    workspace::{Use, partials_room},
};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{
    backend::{Buffer, DType, Store},
    ops::{Conv2d, Gemm, Pass},
};

/// `Product` of `implicit_gemm.cuh`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ProductParams {
    y: StoreParams,
    a: u64,
    b: u64,
    bias: u64,
    partials: u64,
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

/// `TmaProduct` of `tma.cuh`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct TmaParams {
    maps: [TensorMap; 2],
    product: ProductParams,
    unused: [u32; 2],
}

const _: () = assert!(size_of::<TmaParams>() == 2 * 128 + size_of::<ProductParams>() + 8);

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
        let ([m, n, _], batch) = (plan.mnk, plan.batch);
        if m == 0 || n == 0 || batch == 0 {
            return Ok(());
        }
        let demand = Demand::of(plan, partials_room(self.gpu().memory()));
        let choice = match by {
            Some(choice) => choice,
            None if x.types == [DType::F16; 2] => self.choose(plan, &demand)?,
            None => Choice::plain(plan.plain),
        };
        let cut = choice.cut(&demand, self.gpu().multiprocessors());
        let blocks = [choice.blocks(&demand, &cut, self.gpu().multiprocessors()), 1, 1];
        let wide = [n, plan.y_lead, plan.y_stride].into_iter().all(|size| size.is_multiple_of(8));
        let partials =
            if cut.splits > 1 { self.scratch(Use::Partials, cut.splits as usize * demand.results() * 4)? } else { 0 };
        let mut params = ProductParams {
            y: self.store(y, plan.lens[3], blocks)?,
            a: x.at[0],
            b: x.at[1],
            bias: bias.map_or(0, |bias| bias.holds(plan.lens[2]).at()),
            partials,
            kinds: [x.types[0].code(), x.types[1].code(), bias.map_or(0, Memory::kind)],
            mnk: plan.mnk,
            batch,
            splits: cut.splits,
            depth: cut.depth,
            y_lead: plan.y_lead,
            y_stride: plan.y_stride,
            bias_stride: plan.bias_stride,
            steps: plan.steps,
            conv: plan.conv,
            wide: u32::from(wide),
            unused: 0,
        };
        // SAFETY: operands and result are as long as their shapes say, the partial sums as long as all their results; TMA tiles
        // that leave a matrix are cut.
        unsafe {
            if choice.is_tma() {
                let maps = plan.maps(self.gpu(), choice.tma_tile(), [params.a, params.b])?;
                self.launch(choice.kernel, blocks, &TmaParams { maps, product: params, unused: [0; 2] })?;
            } else {
                self.launch(choice.kernel, blocks, &params)?;
            }
        }
        if cut.splits > 1 {
            if plan.kept < n {
                // Parts have all channels of a pixel, the result those that x has.
                params.conv.x[2] = plan.kept / (n / plan.conv.inputs);
                (params.mnk[1], params.wide) = (plan.kept, 0);
            }
            let (_, blocks) = self.dense(&FINISH, demand.results())?;
            params.y = self.store(y, plan.lens[3], blocks)?;
            // SAFETY: as above.
            unsafe { self.launch(&FINISH, blocks, &params)? };
        }
        Ok(())
    }

    /// The way to multiply halves: the best of those that the device has and that have been seen to be right there.
    fn choose(&self, plan: &Plan, demand: &Demand) -> Result<Choice, Error> {
        let ways = Choice::ways(plan, demand, self.gpu().multiprocessors(), self.has_warpgroups());
        for &way in &ways {
            if !way.is_own() || self.is_proven(plan.kind, way)? {
                return Ok(way);
            }
        }
        Ok(Choice::any(plan.kind))
    }

    /// Runs one product twice: as `choice` says, and by the kernel for operands of any alignment, which is the simplest.
    pub(crate) fn run_twice(
        &self, kind: Kind, choice: Choice, [a, b]: [&Memory; 2], y: [Store<'_, Self>; 2],
    ) -> Result<(), Error> {
        let plan = match kind {
            Kind::Matrices(_) => Plan::gemm(&self_test::gemm(kind)?),
            Kind::Convolution(pass) => Plan::conv(&self_test::conv(choice, pass)?, pass),
        };
        let operands = Operands::of(&plan, a, b);
        self.run_product(&plan, &operands, None, &y[0], Some(choice))?;
        self.run_product(&plan, &operands, None, &y[1], Some(Choice::any(kind)))
    }
}
