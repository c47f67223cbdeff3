//! Steps of several micro-batches, which the ranks of a group share.
//!
//! Each micro-batch runs as if it were the whole step, but at the exponents of the first one, and its statistics rows
//! are added. Weight gradients are rounded to FP16, summed exactly and rounded once, even with a single rank, so
//! results do not depend on the number of ranks. Rows, losses and running statistics of all ranks are exchanged before
//! any decision, and merged in the order of the micro-batches. Therefore all ranks take the same decisions, and retry
//! together.

use super::{MicroBatch, MicroBatchState, step_report::StepReport};
use crate::{
    Error,
    distributed::{self, BatchNormScope, DistributedError, MAX_MICRO_BATCHES, MessageTag, ReduceMode},
    graph::{BufferId, Fixed, ParamTensor},
    train::{
        Gradients, StepOutcome, Trainer,
        step::{Failed, StepReadback},
    },
};
use gradscale_core::{
    amp::Precision,
    backend::{Backend, Data},
    stats::Stats,
};
use pollster::block_on;
use std::fmt;

/// Results of the micro-batches of this rank.
struct LocalResult {
    /// Gradients of this rank's last micro-batch, which name all parameters that have gradients.
    gradients: Gradients,
    /// Digest of the parameters and slots that they concern.
    digest: u32,
    /// Loss and pending running statistics of each micro-batch.
    values: Vec<f32>,
}

/// Results of all ranks, merged.
struct MergedReport {
    /// Statistics row of each slot, summed over all ranks.
    rows: Vec<Stats>,
    /// Loss and pending running statistics of each micro-batch, in order.
    values: Vec<f32>,
}

impl<B: Backend> Trainer<B> {
    /// Takes a step over `micro_batches` micro-batches, with the mean of their gradients. The loss of the outcome is
    /// the mean of their losses.
    ///
    /// `pass` runs the forward and backward pass of the micro-batch with the given index once, for example by
    /// [`Trainer::backward`], and returns its gradients. Each rank calls it for its own micro-batches only: index i belongs
    /// to rank i modulo the number of ranks. Weights depend on the number of micro-batches, but not on that of ranks.
    ///
    /// If a step is retried, `pass` is called again with the same dropout seed, and must compute the same. Gradient clipping
    /// uses the gradients of all micro-batches; running statistics are the mean over all of them.
    ///
    /// # Errors
    /// Those of `pass` on any rank; fewer micro-batches than ranks, or more than [`MAX_MICRO_BATCHES`]; micro-batches with
    /// other networks, or of more than one pass; with [`BatchNormScope::World`] another number than one per rank; those of
    /// [`Trainer::step`].
    #[doc(alias = "gradient accumulation")]
    pub fn step_micro_batches<E: From<Error<B::Error>> + fmt::Display>(
        &mut self, micro_batches: u32, mut pass: impl FnMut(&mut Self, u32) -> Result<Gradients, E>,
    ) -> Result<StepOutcome, E> {
        let ranks = self.ranks.group.size();
        let has_too_few = usize::try_from(micro_batches).is_ok_and(|count| count < ranks);
        if has_too_few || !(1..=MAX_MICRO_BATCHES).contains(&micro_batches) {
            return Err(distributed_error(DistributedError::MicroBatchCount { micro_batches, ranks }));
        }
        if self.settings.batch_norm_scope == BatchNormScope::World && micro_batches as usize != ranks {
            return Err(distributed_error(DistributedError::SyncBatchNormMicroBatches { micro_batches, ranks }));
        }
        if self.settings.each_call {
            let reason = "cannot have running statistics for each call; use one set for each layer";
            return Err(distributed_error(DistributedError::InvalidMicroBatch(reason)));
        }
        self.attempts.clear();
        let seed = self.counters.seed;
        let mut failed = Failed::default();
        loop {
            let result = self.attempt_micro_batches(micro_batches, &mut pass, &mut failed);
            self.ranks.micro_batch = MicroBatch::Single;
            self.ranks.micro_batches.accumulator = None;
            match result {
                Ok(Some(outcome)) => return Ok(outcome),
                Ok(None) => self.counters.seed = seed,
                Err(error) => {
                    self.counters.seed = seed;
                    self.ranks.group.abort(&error.to_string());
                    return Err(error);
                }
            }
        }
    }

    /// Runs one attempt. Returns `None` if the step must be retried.
    fn attempt_micro_batches<E: From<Error<B::Error>>>(
        &mut self, micro_batches: u32, pass: &mut impl FnMut(&mut Self, u32) -> Result<Gradients, E>,
        failed: &mut Failed,
    ) -> Result<Option<StepOutcome>, E> {
        let seed = self.counters.seed;
        let local = self.run_local_micro_batches(micro_batches, pass)?;
        self.counters.seed = seed + u64::from(micro_batches);
        Ok(self.conclude_micro_batches(micro_batches, local, failed)?)
    }

    /// Merges the results of all ranks, and updates the parameters if all gradients are finite.
    fn conclude_micro_batches(
        &mut self, micro_batches: u32, local: LocalResult, failed: &mut Failed,
    ) -> Result<Option<StepOutcome>, Error<B::Error>> {
        let StepReadback { rows, .. } = block_on(self.collect(false))?;
        let MergedReport { rows, values } = self.gather_reports(&local, &rows, micro_batches)?;
        let LocalResult { mut gradients, .. } = local;
        let accumulator = self.ranks.micro_batches.accumulator.take().ok_or(Error::Gradients)?;
        gradients.micro = micro_batches;
        self.generations.gradients += 1;
        let stats_len: usize = gradients.statistics.iter().map(|&(id, _)| self.parameters.len(id)).sum();
        let losses = values.chunks_exact(stats_len + 1).map(|values| f64::from(values[0]));
        #[expect(clippy::cast_possible_truncation, reason = "rounded")]
        let loss = (losses.sum::<f64>() / f64::from(micro_batches)) as f32;
        let mut norm = None;
        let before = failed.before(self.counters.failed);
        let guard = self.update_guard(&gradients, before);
        if !guard.blocks_update(&rows) {
            let is_exact = self.ranks.reduce_mode == ReduceMode::ExactF16;
            if is_exact && !self.refit_exponents(&gradients, &rows) {
                return Ok(None);
            }
            self.write_reduced(&gradients.contributes, accumulator)?;
            self.write_statistics(&mut gradients, &values, stats_len)?;
            if self.update(&gradients, guard)? {
                norm = Some(block_on(self.read_scalar(self.parameters.fixed().norm()))?);
            }
            self.broadcast_updated(&gradients)?;
            if is_exact {
                self.update_exponents(&gradients, &rows);
            }
        }
        let (finished, scalars) = self.decide(&gradients, &StepReadback { rows, loss, norm }, before, true);
        self.conclude(&gradients, finished, scalars, failed)
    }

    /// Runs the micro-batches that belong to this rank.
    fn run_local_micro_batches<E: From<Error<B::Error>>>(
        &mut self, micro_batches: u32, pass: &mut impl FnMut(&mut Self, u32) -> Result<Gradients, E>,
    ) -> Result<LocalResult, E> {
        let (rank, size, seed) = (self.ranks.group.rank(), self.ranks.group.size(), self.counters.seed);
        let mut result: Option<LocalResult> = None;
        self.ranks.micro_batches = MicroBatchState { count: micro_batches, ..MicroBatchState::default() };
        for index in (0..micro_batches).skip(rank).step_by(size) {
            self.ranks.micro_batches.is_last = index as usize + size >= micro_batches as usize;
            self.ranks.micro_batch = if result.is_none() { MicroBatch::First } else { MicroBatch::Subsequent };
            self.counters.seed = seed + u64::from(index);
            let mut gradients = pass(self, index)?;
            self.check_gradients(&gradients)?;
            if gradients.micro != 1 {
                let reason = "must be one backward pass; divide the step into more micro-batches";
                return Err(distributed_error(DistributedError::InvalidMicroBatch(reason)));
            }
            gradients.contributes.sort_unstable();
            gradients.statistics.sort_unstable();
            let result = match &mut result {
                Some(result) if result.digest != digest_gradients(&gradients) => {
                    let reason = "must run the same network as the other micro-batches of the step";
                    return Err(distributed_error(DistributedError::InvalidMicroBatch(reason)));
                }
                Some(result) => {
                    result.gradients = gradients;
                    result
                }
                None => {
                    let digest = digest_gradients(&gradients);
                    result.insert(LocalResult { digest, gradients, values: Vec::new() })
                }
            };
            self.accumulate_result(result)?;
        }
        if let Some(mut accumulator) = self.ranks.micro_batches.accumulator.take() {
            self.launch_remaining(&mut accumulator);
            self.ranks.micro_batches.accumulator = Some(accumulator);
        }
        result.ok_or_else(|| distributed_error(DistributedError::MicroBatchCount { micro_batches, ranks: size }))
    }

    /// Accumulates gradients of a micro-batch, and reads its loss and statistics from the device.
    fn accumulate_result(&mut self, result: &mut LocalResult) -> Result<(), Error<B::Error>> {
        self.accumulate_gradients(&result.gradients)?;
        result.values.push(block_on(self.read_scalar(self.parameters.fixed().loss()))?);
        for &(id, _) in &result.gradients.statistics {
            result.values.extend(self.read_gradient(id)?);
        }
        Ok(())
    }

    /// Returns `true` if all gradients fit FP16 at their exponents. Otherwise sets new exponents, and the step must be
    /// retried; this happens in the first step, and when gradients grow suddenly.
    fn refit_exponents(&mut self, gradients: &Gradients, rows: &[Stats]) -> bool {
        let mut all_fit = true;
        for &id in &gradients.contributes {
            let amax = rows[usize::from(self.parameters.infos[id].slot.0)].counts().amax;
            let exponent = &mut self.ranks.grad_exponents[id];
            if !distributed::fits_f16(amax, *exponent) {
                *exponent = distributed::choose_exponent(amax);
                all_fit = false;
            }
        }
        all_fit
    }

    /// Sets the exponents of the next step; parameters whose gradients are all zero keep theirs.
    fn update_exponents(&mut self, gradients: &Gradients, rows: &[Stats]) {
        for &id in &gradients.contributes {
            let amax = rows[usize::from(self.parameters.infos[id].slot.0)].counts().amax;
            let exponent = &mut self.ranks.grad_exponents[id];
            *exponent = distributed::choose_exponent(amax).or(*exponent);
        }
    }

    /// Writes the sums of the pending running statistics, in the order of the micro-batches. `values` has for each
    /// micro-batch its loss and then `stats_len` statistics.
    fn write_statistics(
        &mut self, gradients: &mut Gradients, values: &[f32], stats_len: usize,
    ) -> Result<(), Error<B::Error>> {
        let mut start = 1;
        for (id, calls) in &mut gradients.statistics {
            let mut sum = vec![0f32; self.parameters.len(*id)];
            for values in values.chunks_exact(stats_len + 1) {
                sum.iter_mut().zip(&values[start..]).for_each(|(sum, value)| *sum += value);
            }
            start += sum.len();
            *calls *= gradients.micro;
            self.exec.write(Fixed::tensor(*id, ParamTensor::Gradient), Data::F32(&sum)).map_err(Error::Device)?;
        }
        Ok(())
    }

    fn read_gradient(&self, id: usize) -> Result<Vec<f32>, Error<B::Error>> {
        let (buf, len) = (Fixed::tensor(id, ParamTensor::Gradient), self.parameters.len(id));
        block_on(self.exec.read(buf, Precision::Single, len)).map_err(Error::Device)
    }

    /// Reads the first f32 value of a buffer on the device.
    pub(in crate::train) async fn read_scalar(&self, buf: BufferId) -> Result<f32, Error<B::Error>> {
        let value = self.exec.read(buf, Precision::Single, 1).await.map_err(Error::Device)?;
        Ok(value.first().copied().unwrap_or(f32::NAN))
    }

    /// Exchanges the reports of all ranks, and merges them.
    fn gather_reports(
        &self, local: &LocalResult, rows: &[Stats], micro_batches: u32,
    ) -> Result<MergedReport, Error<B::Error>> {
        let group = &self.ranks.group;
        let convention = rows.first().map(|row| format!("{:?}", row.convention())).unwrap_or_default();
        let convention = format!("{convention} {}", self.ranks.reduce_mode);
        let digest = crc32c::crc32c_append(local.digest ^ self.sites.fingerprint(), convention.as_bytes());
        let messages = group.all_gather(MessageTag::StepReport, &StepReport::encode(digest, &local.values, rows))?;
        let count_of = |rank| distributed::local_micro_batches(micro_batches, rank, group.size()) as usize;
        let values_each = local.values.len() / count_of(group.rank()).max(1);
        let decode = |(rank, bytes): (usize, &Vec<u8>)| {
            StepReport::decode(bytes, digest, count_of(rank) * values_each, rows)
                .ok_or(DistributedError::CollectiveMismatch(rank))
        };
        let reports = messages.iter().enumerate().map(decode).collect::<Result<Vec<_>, _>>()?;
        let rows = StepReport::merge(&reports, rows).ok_or(DistributedError::CollectiveMismatch(group.rank()))?;
        // Micro-batch i belongs to rank i modulo the number of ranks.
        let values_of =
            |index: usize| reports[index % group.size()].values.chunks_exact(values_each).nth(index / group.size());
        let values = (0..micro_batches as usize).filter_map(values_of).flatten().copied().collect();
        Ok(MergedReport { rows, values })
    }
}

fn distributed_error<E, F: From<Error<E>>>(error: DistributedError) -> F {
    Error::Distributed(error).into()
}

/// Returns a digest that is equal if the same parameters have gradients, and the same slots have rows.
fn digest_gradients(gradients: &Gradients) -> u32 {
    let Gradients { contributes, statistics, order, clip, loss, .. } = gradients;
    let clip = clip.map(f32::to_bits);
    crc32c::crc32c(format!("{contributes:?} {statistics:?} {order:?} {clip:?} {loss}").as_bytes())
}
