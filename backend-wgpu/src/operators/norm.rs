//! Normalisations: statistics of each group, from partial sums if a group is large, then elements.

use super::parallel_reduce::ParallelReduce;
use crate::{
    Error, Memory, Wgpu,
    kernel::{self, Kernel},
    launch::{KernelLaunch, WORKGROUP_SIZE, strided_workgroups},
};
use gradscale_core::{
    backend::{NormSaved, Store},
    ops::{Norm, NormOver},
};

/// Bytes of the statistics of a group (four f32), and of a total of one or of two f32.
const GROUP_STATS_BYTES: u64 = 16;
const ONE_TOTAL_BYTES: u64 = 4;
const TWO_TOTALS_BYTES: u64 = 8;
/// Number of channels that a kernel loads at once.
const EIGHT: u32 = 8;

/// Returns the value of the WGSL constant `BATCH` for a normalisation.
fn batch_constant(p: &Norm) -> u32 {
    u32::from(p.over() == NormOver::Batch)
}

/// Returns the number of groups of an image: 1 if groups extend over all images.
fn groups_of_image(p: &Norm) -> u32 {
    match p.over() {
        NormOver::Batch => 1,
        NormOver::Group(groups) => groups,
    }
}

/// Returns the members of `Shape` in norm_groups.wgsl.
fn shape(p: &Norm) -> [u32; 4] {
    let [_, h, w, channels] = p.x();
    [h * w, channels, groups_of_image(p), p.size()]
}

/// Returns true if eight channels from a multiple of 8 on are one load, and are in eight groups of a batch normalisation or
/// in one group.
fn has_eights(p: &Norm) -> bool {
    let channels = p.x()[3];
    let width = if p.over() == NormOver::Batch { channels } else { channels / groups_of_image(p) };
    channels != 0 && width.is_multiple_of(EIGHT)
}

/// Sums of a normalisation over the terms of groups or channels: their division, and the kernel that computes them.
struct Sums {
    division: ParallelReduce,
    /// Number of sums that the second pass computes.
    count: u32,
    loads: Loads,
}

/// Terms that an invocation loads at once.
#[derive(Clone, Copy, PartialEq)]
enum Loads {
    One,
    /// Eight terms of one sum.
    EightTerms,
    /// One term of the sums of eight channels.
    EightChannels,
}

impl Sums {
    /// Returns sums over the groups of a normalisation. In batch normalisation a group is a channel.
    fn over_groups(p: &Norm) -> Self {
        if p.over() == NormOver::Batch {
            return Self::over_channels(p);
        }
        let loads = if has_eights(p) { Loads::EightTerms } else { Loads::One };
        let terms = if loads == Loads::EightTerms { p.size() / EIGHT } else { p.size() };
        Self { division: ParallelReduce::new(p.groups(), terms, 1), count: p.groups(), loads }
    }

    fn over_channels(p: &Norm) -> Self {
        let [n, h, w, channels] = p.x();
        let loads = if has_eights(p) { Loads::EightChannels } else { Loads::One };
        let results = if loads == Loads::EightChannels { channels / EIGHT } else { channels };
        Self { division: ParallelReduce::new(results, n * h * w, results), count: channels, loads }
    }

    /// Returns the bytes of all partial sums of `total` bytes each.
    fn bytes(&self, total: u64) -> u64 {
        self.division.with_results(self.count).bytes(total)
    }

    /// Returns the division of the second pass, which adds partial sums.
    fn final_pass(&self) -> ParallelReduce {
        self.division.with_results(self.count).final_pass()
    }

    /// Returns a launch of the kernel for these sums: the first one has a term of one sum in a load.
    fn launch<'a>(&self, kernels: [&'static Kernel; 2]) -> KernelLaunch<'a> {
        let (name, contiguous_terms) = self.division.contiguity_constant();
        let call = match self.loads {
            Loads::One => KernelLaunch::new(kernels[0]).constant("EIGHTS", 0),
            Loads::EightTerms => KernelLaunch::new(kernels[0]).constant("EIGHTS", 1),
            Loads::EightChannels => KernelLaunch::new(kernels[1]),
        };
        call.constant(name, contiguous_terms).params(self.division.params())
    }
}

/// Returns the workgroups for the elements of a normalisation. They divide into whole pixels, because then an invocation of
/// a batch normalisation has the same channels each time.
fn workgroups(p: &Norm, len: u32) -> u32 {
    let most = strided_workgroups(len.div_ceil(EIGHT));
    let channels = p.x()[3].max(1);
    let shared = 1 << channels.trailing_zeros().min((EIGHT * WORKGROUP_SIZE).trailing_zeros());
    let unit = channels / shared;
    if unit <= most { most / unit * unit } else { most }
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
        let group_stats = self.intermediates(GROUP_STATS_BYTES * u64::from(p.groups()))?;
        if p.is_given() {
            self.compute_inv_std(p, saved, &group_stats)?;
        } else {
            self.compute_and_save(p, x, saved, &group_stats)?;
        }
        let call = KernelLaunch::new(&kernel::NORM)
            .constant("BATCH", batch_constant(p))
            .constant("AFFINE", affine.is_some().into());
        let call = call.params(shape(p)).params([len]).operand(x);
        let call = match affine {
            Some([scale, shift]) => call.memory(6, scale).memory(7, shift),
            None => call.dummy_operand(6, x).dummy_operand(7, x),
        };
        let call = call.buffer(9, &group_stats);
        self.launch(call.store(y), workgroups(p, len))
    }

    /// Computes and saves means and variances.
    fn compute_and_save(&self, p: &Norm, x: &Memory, saved: &Memory, group_stats: &wgpu::Buffer) -> Result<(), Error> {
        let sums = Sums::over_groups(p);
        let partial_totals = self.partial_totals(sums.bytes(ONE_TOTAL_BYTES))?;
        let is_whole = sums.division.is_whole();
        // Stages 0 (means) and 1 (variances): both at once, unless there are partial sums. Without centring, means are 0.
        let launches: &[[u32; 2]] = match (p.is_centered(), is_whole) {
            (true, true) => &[[0, 2]],
            (true, false) => &[[0, 1], [1, 2]],
            (false, true | false) => &[[1, 2]],
        };
        for &stages in launches {
            let call = sums
                .launch([&kernel::NORM_STATS_GROUPS, &kernel::NORM_STATS_CHANNELS])
                .constant("BATCH", batch_constant(p))
                .params(shape(p))
                .params(stages)
                .params([p.eps().to_bits(), p.is_centered().into(), p.groups()])
                .operand(x);
            let call = call.memory(3, saved).buffer(8, &partial_totals).buffer(9, group_stats);
            self.launch(call, sums.division.workgroups())?;
            if is_whole {
                continue;
            }
            let last_pass = sums.final_pass();
            let (name, contiguous_terms) = last_pass.contiguity_constant();
            let call = KernelLaunch::new(&kernel::NORM_STATS_FINAL)
                .constant(name, contiguous_terms)
                .params(last_pass.params())
                .params([stages[0], p.size(), p.eps().to_bits(), p.is_centered().into()]);
            let call = call.memory(3, saved).buffer(8, &partial_totals).buffer(9, group_stats);
            self.launch(call, last_pass.workgroups())?;
        }
        Ok(())
    }

    /// Computes mean and 1 / σ of each group from given statistics.
    fn compute_inv_std(&self, p: &Norm, saved: &Memory, group_stats: &wgpu::Buffer) -> Result<(), Error> {
        let call = KernelLaunch::new(&kernel::NORM_INV_STD).params([p.groups(), p.eps().to_bits()]);
        self.launch(call.memory(7, saved).buffer(9, group_stats), strided_workgroups(p.groups()))
    }

    pub(crate) fn run_norm_vjp(
        &self, p: &Norm, x: NormSaved<&Memory>, dy: &Memory, dx: &Store<'_, Self>,
        affine: Option<&[Store<'_, Self>; 2]>,
    ) -> Result<(), Error> {
        let [n, h, w, channels] = p.x();
        let len = n * h * w * channels;
        let is_batch = p.over() == NormOver::Batch;
        let scaled = u32::from(x.weight.is_some());
        let group_stats = self.intermediates(GROUP_STATS_BYTES * u64::from(p.groups().max(1)))?;
        let mean_params = [p.size(), p.groups(), p.eps().to_bits(), p.is_centered().into()];
        // In batch normalisation a group is a channel, so sums over channels serve as sums over groups.
        let sum_gradients = |sums: &Sums, over_channels: bool, has_means: bool| {
            let partial_totals = self.partial_totals(sums.bytes(TWO_TOTALS_BYTES))?;
            let call = sums
                .launch([&kernel::NORM_GRAD_GROUPS, &kernel::NORM_GRAD_CHANNELS])
                .constant("BATCH", batch_constant(p))
                .constant("CHANNELS", over_channels.into())
                .constant("SCALED", scaled);
            let call = call.params(shape(p)).params(mean_params).params([has_means.into()]).operand(x.x).operand(dy);
            let call = scale(&x, call).memory(3, x.saved).buffer(8, &partial_totals).buffer(9, &group_stats);
            self.launch(call, sums.division.workgroups())?;
            Ok::<_, Error>(partial_totals)
        };
        if p.is_given() && p.groups() != 0 {
            self.compute_inv_std(p, x.saved, &group_stats)?;
        } else if p.groups() != 0 {
            let sums = Sums::over_groups(p);
            let partial_totals = sum_gradients(&sums, is_batch, true)?;
            if !sums.division.is_whole() {
                let last_pass = sums.final_pass();
                let (name, contiguous_terms) = last_pass.contiguity_constant();
                let call = KernelLaunch::new(&kernel::NORM_GRAD_MEANS)
                    .constant("BATCH", batch_constant(p))
                    .constant("SCALED", scaled)
                    .constant(name, contiguous_terms)
                    .params(last_pass.params())
                    .params(mean_params);
                let call = scale(&x, call).memory(3, x.saved).buffer(8, &partial_totals).buffer(9, &group_stats);
                self.launch(call, last_pass.workgroups())?;
            }
        }
        if len != 0 {
            let call =
                KernelLaunch::new(&kernel::NORM_VJP).constant("BATCH", batch_constant(p)).constant("SCALED", scaled);
            let call = call.params(shape(p)).params([len]).operand(x.x).operand(dy);
            let call = scale(&x, call).buffer(9, &group_stats);
            self.launch(call.store(dx), workgroups(p, len))?;
        }
        let Some(stores) = affine.filter(|_| channels != 0) else { return Ok(()) };
        let sums = Sums::over_channels(p);
        // In batch normalisation the sums over channels are already computed.
        let partial_totals = if is_batch && !p.is_given() {
            self.partial_totals(sums.bytes(TWO_TOTALS_BYTES))?
        } else {
            sum_gradients(&sums, true, false)?
        };
        let last_pass = sums.final_pass();
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
