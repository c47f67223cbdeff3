//! Options of a trainer, which are set when it is created.

use crate::{
    distributed::{BatchNormScope, Overlap, ReduceMode},
    train::Trainer,
};
use gradscale_core::{backend::Backend, step_outcome::SkipLimit};

/// Options of a [`Trainer`], for [`Trainer::with_options`]. An option that is not set keeps its value.
///
/// ```
/// use gradscale::{Cpu, Method, Parameters, Trainer, TrainerOptions, optim::Sgd};
/// let options = TrainerOptions::new().with_skip_limit(0).with_recording(false);
/// let trainer = Trainer::new(Cpu::new(1)?, Parameters::seeded(0), Sgd::new(0.5), Method::mixed())?.with_options(options);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct TrainerOptions {
    skip_limit: Option<u32>,
    statistics_kept: Option<f32>,
    has_statistics_of_each_call: bool,
    average_kept: Option<f32>,
    recording: Option<bool>,
    max_programs: Option<usize>,
    max_program_bytes: Option<u64>,
    max_recorded_launches: Option<usize>,
    keeps_all: bool,
    reduce_mode: Option<ReduceMode>,
    overlap: Option<Overlap>,
    batch_norm_scope: Option<BatchNormScope>,
    is_sharded: bool,
}

impl TrainerOptions {
    /// Returns options of which none is set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of skipped steps in a row after which training ends with an error; 0: never. The default is 100.
    #[must_use]
    pub const fn with_skip_limit(mut self, limit: u32) -> Self {
        self.skip_limit = Some(limit);
        self
    }

    /// Sets the share of batch norm's running statistics that stays in a step; the default is 0.9. PyTorch's momentum is
    /// one minus this.
    #[must_use]
    pub const fn with_statistics_kept(mut self, share: f32) -> Self {
        self.statistics_kept = Some(share);
        self
    }

    /// Lets running statistics follow each call of a layer, and each micro-batch, one after the other, as PyTorch's do. By
    /// default the mean over the calls and micro-batches of a step counts once. Set it before the first step.
    #[must_use]
    pub const fn with_statistics_of_each_call(mut self) -> Self {
        self.has_statistics_of_each_call = true;
        self
    }

    /// Keeps an exponential moving average (EMA) of each weight in f32, beginning with the weights before the first step:
    /// average ← `share`·average + (1 − `share`)·weight, after each step that is taken and whose loss depends on the
    /// weight. Evaluations use it on request ([`EvaluationWeights::select`](crate::EvaluationWeights::select)). Checkpoints contain it; one without it
    /// is loaded too, and the average then begins with its weights. Set it before the first step.
    #[must_use]
    #[doc(alias = "EMA")]
    #[doc(alias = "AveragedModel")]
    pub const fn with_weight_average(mut self, share: f32) -> Self {
        self.average_kept = Some(share);
        self
    }

    /// Sets whether steps are recorded and replayed if the device supports it; the default is `true`. Results are the
    /// same.
    #[must_use]
    pub const fn with_recording(mut self, recording: bool) -> Self {
        self.recording = Some(recording);
        self
    }

    /// Sets how many compiled steps, with their recordings, are cached, at least 2; the default is 256. There is one for
    /// each shape of a batch. A further one replaces the least recently used. They share memory: it is that of the largest.
    #[must_use]
    #[doc(alias = "LRU cache")]
    pub const fn with_programs(mut self, max: usize) -> Self {
        self.max_programs = Some(max);
        self
    }

    /// Sets how many bytes of constants compiled steps keep on the device, besides the memory that they share; the
    /// default is 2^28. Masks of attention and matrices of interpolation are constants, which grow with the square of a
    /// length. Above the limit the least recently used steps are evicted with their constants, but never the one in
    /// progress. Memory that a driver needs for recordings is not counted, because the driver does not report it.
    #[must_use]
    pub const fn with_program_bytes(mut self, max: u64) -> Self {
        self.max_program_bytes = Some(max);
        self
    }

    /// Sets how many launches the recordings of all compiled steps may have together; the default is 2^17. A driver keeps
    /// several kilobytes for each. Beyond the limit the recordings of the least recently used steps are dropped, and made
    /// again when they are used again. A step that has more launches by itself is not recorded.
    #[must_use]
    pub const fn with_recorded_launches(mut self, max: usize) -> Self {
        self.max_recorded_launches = Some(max);
        self
    }

    /// Keeps every buffer of a step to its end, for [`Trainer::scaled_gradients`]. Costs memory.
    #[must_use]
    pub const fn with_all_kept(mut self) -> Self {
        self.keeps_all = true;
        self
    }

    /// Sets the arithmetic of gradient sums over micro-batches and ranks; the default is [`ReduceMode::ExactF16`]. It must be
    /// the same on all ranks, and set before the first step.
    #[must_use]
    pub const fn with_reduce_mode(mut self, mode: ReduceMode) -> Self {
        self.reduce_mode = Some(mode);
        self
    }

    /// Sets the overlap of gradient communication with the backward pass; the default is [`Overlap::Auto`]. It must be the
    /// same on all ranks, and set before [`Trainer::join_group`].
    ///
    /// Weights do not depend on it with [`ReduceMode::ExactF16`], nor with [`ReduceMode::NativeF32`] if the transport adds
    /// each value in a fixed order. Gradients on device transport ([`Trainer::grad_transport`]) are sent after the backward
    /// pass.
    #[must_use]
    pub const fn with_overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = Some(overlap);
        self
    }

    /// Sets the samples over which batch norm computes its statistics in [`Trainer::step_micro_batches`]; the default is
    /// [`BatchNormScope::Rank`]. It must be the same on all ranks, and checkpoints contain it.
    ///
    /// With [`BatchNormScope::World`] (`SyncBatchNorm` in PyTorch) a step has one micro-batch per rank, and micro-batches may
    /// differ in size. Means, variances, running statistics and the two sums of the backward pass are then those of all
    /// micro-batches. Ranks synchronise at each layer once in the forward and once in the backward pass, so all must run the
    /// same layers. A pass outside such a step, for example [`Trainer::update_statistics`], uses its own batch.
    #[must_use]
    #[doc(alias = "SyncBatchNorm")]
    pub const fn with_batch_norm_scope(mut self, scope: BatchNormScope) -> Self {
        self.batch_norm_scope = Some(scope);
        self
    }

    /// Shards the optimizer states over the ranks (ZeRO stage 1); set it before [`Trainer::join_group`].
    ///
    /// Each rank stores the states of some weights, so that with two ranks each needs half the memory for them. Weights,
    /// masters and gradients stay complete on all ranks. Bits and checkpoints are the same as without sharding, and 4 more
    /// bytes per weight are sent. Devices of ranks may then be of several kinds. All ranks have the same weights and
    /// decisions, which depend on the device of each micro-batch.
    #[must_use]
    pub const fn with_sharded_optimizer(mut self) -> Self {
        self.is_sharded = true;
        self
    }
}

impl<B: Backend> Trainer<B> {
    /// Sets these options. Those that are not set keep their values.
    #[must_use]
    pub fn with_options(mut self, options: TrainerOptions) -> Self {
        let TrainerOptions {
            skip_limit,
            statistics_kept,
            has_statistics_of_each_call,
            average_kept,
            recording,
            max_programs,
            max_program_bytes,
            max_recorded_launches,
            keeps_all,
            reduce_mode,
            overlap,
            batch_norm_scope,
            is_sharded,
        } = options;
        if let Some(limit) = skip_limit {
            let so_far = self.counters.skips.in_a_row();
            self.counters.skips = SkipLimit::new(limit);
            self.counters.skips.restore(so_far);
        }
        recording.into_iter().for_each(|recording| self.exec.record(recording));
        max_programs.into_iter().for_each(|max| self.exec.set_capacity(max));
        max_program_bytes.into_iter().for_each(|max| self.exec.set_constant_limit(max));
        max_recorded_launches.into_iter().for_each(|max| self.exec.set_recorded_launches(max));
        let (settings, ranks) = (&mut self.settings, &mut self.ranks);
        settings.momentum = statistics_kept.unwrap_or(settings.momentum);
        settings.each_call |= has_statistics_of_each_call;
        settings.average_kept = average_kept.or(settings.average_kept);
        settings.retain_buffers |= keeps_all;
        settings.batch_norm_scope = batch_norm_scope.unwrap_or(settings.batch_norm_scope);
        ranks.reduce_mode = reduce_mode.unwrap_or(ranks.reduce_mode);
        ranks.overlap = overlap.unwrap_or(ranks.overlap);
        ranks.is_sharded |= is_sharded;
        self
    }
}
