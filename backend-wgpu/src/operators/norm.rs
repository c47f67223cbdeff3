//! Normalisations in three passes: partial sums of each group, statistics of each group, elements.

use super::parallel_reduce::ParallelReduce;
use crate::{
    Error, Memory, Wgpu, kernel,
    launch::{KernelLaunch, strided_workgroups},
};
use gradscale_core::{
    backend::{NormSaved, Store},
    ops::{Norm, NormOver},
};

/// Bytes of the statistics of a group (four f32), and of a total of one or of two f32.
const GROUP_STATS_BYTES: u64 = 16;
const ONE_TOTAL_BYTES: u64 = 4;
const TWO_TOTALS_BYTES: u64 = 8;

/// Returns the value of the WGSL constant `BATCH` for a normalisation.
fn batch_constant(p: &Norm) -> u32 {
    u32::from(p.over() == NormOver::Batch)
}

/// Returns the members of `Shape` in norm_groups.wgsl.
fn shape(p: &Norm) -> [u32; 4] {
    let [_, h, w, channels] = p.x();
    let groups = match p.over() {
        NormOver::Batch => 1,
        NormOver::Group(groups) => groups,
    };
    [h * w, channels, groups, p.size()]
}

/// Returns the division of the sums over groups. The groups of batch normalisation are contiguous.
fn group_reduction(p: &Norm) -> ParallelReduce {
    let beside = if p.over() == NormOver::Batch { p.x()[3] } else { 1 };
    ParallelReduce::new(p.groups(), p.size(), beside)
}

/// Binds the scale of channels, or any memory if there is none.
fn scale<'a>(x: &NormSaved<&'a Memory>, call: KernelLaunch<'a>) -> KernelLaunch<'a> {
    match x.weight {
        Some(scale) => call.memory(7, scale),
        None => call.dummy_operand(7, x.x),
    }
}

impl Wgpu {
    pub(crate) fn run_norm(
        &self, p: &Norm, x: &Memory, affine: Option<[&Memory; 2]>, saved: &Memory, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let len = p.x().iter().product::<u32>();
        if p.groups() == 0 {
            return Ok(());
        }
        if !p.is_given() {
            self.compute_and_save(p, x, saved, 0)?;
            self.compute_and_save(p, x, saved, 1)?;
        }
        let group_stats = self.compute_inv_std(p, saved)?;
        let call = KernelLaunch::new(&kernel::NORM)
            .constant("BATCH", batch_constant(p))
            .constant("AFFINE", affine.is_some().into());
        let call = call.params(shape(p)).params([len]).operand(x);
        let call = match affine {
            Some([scale, shift]) => call.memory(6, scale).memory(7, shift),
            None => call.dummy_operand(6, x).dummy_operand(7, x),
        };
        let call = call.buffer(9, &group_stats);
        self.launch(call.store(y), strided_workgroups(len.div_ceil(8)))
    }

    /// Computes and saves means (0) or variances (1).
    fn compute_and_save(&self, p: &Norm, x: &Memory, saved: &Memory, which: u32) -> Result<(), Error> {
        // Without centring, a sum of no terms gives a mean of 0.
        let terms = which == 1 || p.is_centered();
        let reduction = if terms { group_reduction(p) } else { ParallelReduce::new(p.groups(), 0, 1) };
        let partial_totals = self.partial_totals(reduction.bytes(ONE_TOTAL_BYTES))?;
        let (name, contiguous_terms) = reduction.contiguity_constant();
        let call = KernelLaunch::new(&kernel::NORM_STATS_PARTIAL)
            .constant("BATCH", batch_constant(p))
            .constant("SQUARED_DISTANCES", which);
        let call = call.constant(name, contiguous_terms).params(reduction.params()).params(shape(p)).operand(x);
        self.launch(call.memory(7, saved).buffer(8, &partial_totals), reduction.workgroups())?;
        let last_pass = reduction.final_pass();
        let (name, contiguous_terms) = last_pass.contiguity_constant();
        let call =
            KernelLaunch::new(&kernel::NORM_STATS_FINAL).constant(name, contiguous_terms).params(last_pass.params());
        let call = call.params([which * p.groups(), p.size()]).memory(3, saved).buffer(8, &partial_totals);
        self.launch(call, last_pass.workgroups())
    }

    /// Computes mean and 1 / σ of each group.
    fn compute_inv_std(&self, p: &Norm, saved: &Memory) -> Result<wgpu::Buffer, Error> {
        let group_stats = self.intermediates(GROUP_STATS_BYTES * u64::from(p.groups()))?;
        let call = KernelLaunch::new(&kernel::NORM_INV_STD).params([p.groups(), p.eps().to_bits()]);
        self.launch(call.memory(7, saved).buffer(9, &group_stats), strided_workgroups(p.groups()))?;
        Ok(group_stats)
    }

    pub(crate) fn run_norm_vjp(
        &self, p: &Norm, x: NormSaved<&Memory>, dy: &Memory, dx: &Store<'_, Self>,
        affine: Option<&[Store<'_, Self>; 2]>,
    ) -> Result<(), Error> {
        let [n, h, w, channels] = p.x();
        let len = n * h * w * channels;
        let is_batch = p.over() == NormOver::Batch;
        let scaled = u32::from(x.weight.is_some());
        let group_stats =
            if p.groups() == 0 { self.intermediates(GROUP_STATS_BYTES)? } else { self.compute_inv_std(p, x.saved)? };
        // In batch normalisation a group is a channel, so sums over channels serve as sums over groups.
        let sum_gradients = |reduction: ParallelReduce, over_channels: bool| {
            let partial_totals = self.partial_totals(reduction.bytes(TWO_TOTALS_BYTES))?;
            let (name, contiguous_terms) = reduction.contiguity_constant();
            let call = KernelLaunch::new(&kernel::NORM_GRAD_PARTIAL)
                .constant("BATCH", batch_constant(p))
                .constant("CHANNELS", over_channels.into())
                .constant("SCALED", scaled)
                .constant(name, contiguous_terms);
            let call = call.params(reduction.params()).params(shape(p)).operand(x.x).operand(dy);
            let call = scale(&x, call).buffer(8, &partial_totals).buffer(9, &group_stats);
            self.launch(call, reduction.workgroups())?;
            Ok::<_, Error>(partial_totals)
        };
        if !p.is_given() && p.groups() != 0 {
            let reduction = group_reduction(p);
            let partial_totals = sum_gradients(reduction, is_batch)?;
            let last_pass = reduction.final_pass();
            let (name, contiguous_terms) = last_pass.contiguity_constant();
            let call = KernelLaunch::new(&kernel::NORM_GRAD_MEANS)
                .constant("SCALED", scaled * batch_constant(p))
                .constant("CENTERED", p.is_centered().into())
                .constant(name, contiguous_terms);
            let call = call.params(last_pass.params()).params([p.size()]);
            self.launch(scale(&x, call).buffer(8, &partial_totals).buffer(9, &group_stats), last_pass.workgroups())?;
        }
        if len != 0 {
            let call =
                KernelLaunch::new(&kernel::NORM_VJP).constant("BATCH", batch_constant(p)).constant("SCALED", scaled);
            let call = call.params(shape(p)).params([len]).operand(x.x).operand(dy);
            let call = scale(&x, call).buffer(9, &group_stats);
            self.launch(call.store(dx), strided_workgroups(len.div_ceil(8)))?;
        }
        let Some(stores) = affine.filter(|_| channels != 0) else { return Ok(()) };
        let reduction = ParallelReduce::new(channels, n * h * w, channels);
        // In batch normalisation the sums over channels are already computed.
        let partial_totals = if is_batch && !p.is_given() {
            self.partial_totals(reduction.bytes(TWO_TOTALS_BYTES))?
        } else {
            sum_gradients(reduction, true)?
        };
        let last_pass = reduction.final_pass();
        for (store, is_scale) in stores.iter().zip([1, 0]) {
            let (name, contiguous_terms) = last_pass.contiguity_constant();
            let call = KernelLaunch::new(&kernel::NORM_GRAD_AFFINE)
                .constant("SCALE", is_scale)
                .constant(name, contiguous_terms);
            self.launch(
                call.params(last_pass.params()).buffer(8, &partial_totals).store(store),
                last_pass.workgroups(),
            )?;
        }
        Ok(())
    }
}
