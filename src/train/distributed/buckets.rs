//! Gradient buckets, whose all-reduce overlaps with the backward pass (as in PyTorch's DDP).
//!
//! The last micro-batch of a rank pauses when the gradients of a bucket are complete, adds them to those of its other
//! micro-batches, and starts their all-reduce at the exponents of the last step. Only the end of the step decides whether
//! these exponents fit, and whether the step is taken at all. If not, the reduced gradients are discarded.
//!
//! All ranks start buckets in the same order and before they compare statistics. A bucket without exponents, as in the first
//! step, is reduced after the backward pass.

use crate::{
    Error,
    distributed::{BatchNormScope, DistributedError, GradSums, GradTransport, ReduceMode},
    graph::{DistributedPlan, Purpose},
    train::{
        Gradients, Trainer,
        distributed::{
            MicroBatch,
            grad_reduce::{Bucket, BucketState, GradAccumulator},
        },
    },
};
use gradscale_core::backend::Backend;
use pollster::block_on;

impl<B: Backend> Trainer<B> {
    /// Returns the settings of distributed training that change a program.
    pub(in crate::train) fn distributed_plan(&self) -> DistributedPlan {
        if self.ranks.group.size() == 1 {
            return DistributedPlan::default();
        }
        let weights = self.parameters.weights().map(|id| self.parameters.len(id)).sum();
        let bucket_size = match self.ranks.grad_transport {
            GradTransport::Host(_) => self.ranks.overlap.bucket_size(weights),
            GradTransport::Device(_) => None,
        };
        DistributedPlan { sync_batch_norm: self.settings.batch_norm_scope == BatchNormScope::World, bucket_size }
    }

    /// Checks that a micro-batch is a single backward pass if its buckets were reduced during that pass.
    pub(in crate::train) fn check_single_pass(&self, program: usize) -> Result<(), Error<B::Error>> {
        let Some(GradAccumulator::Host(buckets)) = &self.ranks.micro_batches.accumulator else { return Ok(()) };
        let trains = matches!(self.exec.program(program).purpose, Purpose::Train { .. });
        if trains && buckets.iter().any(|bucket| matches!(bucket.state, BucketState::InFlight(_))) {
            return Err(DistributedError::InvalidMicroBatch(
                "must be one backward pass; divide the step into more micro-batches",
            )
            .into());
        }
        Ok(())
    }

    /// Starts the all-reduce of a complete bucket, if this is the last micro-batch of the rank.
    pub(in crate::train) async fn launch_bucket(
        &mut self, program: usize, bucket: usize,
    ) -> Result<(), Error<B::Error>> {
        if self.ranks.micro_batch == MicroBatch::Single || !self.ranks.micro_batches.is_last {
            return Ok(());
        }
        let mut accumulator = match self.ranks.micro_batches.accumulator.take() {
            Some(accumulator) => accumulator,
            None => self.new_accumulator(program)?,
        };
        if let GradAccumulator::Host(buckets) = &mut accumulator {
            // Micro-batches of other shapes may have another order of gradients. Then all buckets are sent at the end.
            let planned = self.exec.program(program).buckets.iter().map(|bucket| &bucket.weights);
            let has_same_order = buckets.iter().map(|bucket| &bucket.weights).eq(planned);
            if has_same_order && self.is_sendable(&buckets[bucket].weights) {
                self.accumulate_bucket(&mut buckets[bucket]).await?;
                self.start_all_reduce(&mut buckets[bucket]);
            }
        }
        self.ranks.micro_batches.accumulator = Some(accumulator);
        Ok(())
    }

    /// Starts the all-reduce of all buckets that can be sent and were not.
    pub(in crate::train) fn launch_remaining(&self, accumulator: &mut GradAccumulator) {
        let GradAccumulator::Host(buckets) = accumulator else { return };
        if self.distributed_plan().bucket_size.is_some() {
            let rest = buckets.iter_mut().filter(|bucket| self.is_sendable(&bucket.weights));
            rest.for_each(|bucket| self.start_all_reduce(bucket));
        }
    }

    /// Adds the gradients of a completed micro-batch, except for buckets in flight.
    pub(in crate::train) fn accumulate_gradients(&mut self, gradients: &Gradients) -> Result<(), Error<B::Error>> {
        let mut accumulator = match self.ranks.micro_batches.accumulator.take() {
            Some(accumulator) => accumulator,
            None => self.new_accumulator(gradients.program)?,
        };
        match &mut accumulator {
            GradAccumulator::Host(buckets) => {
                buckets.iter_mut().try_for_each(|bucket| block_on(self.accumulate_bucket(bucket)))?
            }
            GradAccumulator::Device => self.accumulate_on_devices(&gradients.contributes)?,
        }
        self.ranks.micro_batches.accumulator = Some(accumulator);
        Ok(())
    }

    /// Returns `true` if these gradients can be encoded: their exponents are known, or none is needed. The result is the
    /// same on all ranks.
    fn is_sendable(&self, weights: &[usize]) -> bool {
        self.ranks.reduce_mode == ReduceMode::NativeF32
            || weights.iter().all(|&id| self.ranks.grad_exponents[id].is_some())
    }

    /// Starts the all-reduce of a bucket, unless it has started already.
    fn start_all_reduce(&self, bucket: &mut Bucket) {
        if let BucketState::Local(sums) = &mut bucket.state {
            let weights: Vec<u8> = bucket.weights.iter().flat_map(|id| id.to_le_bytes()).collect();
            let sums = std::mem::replace(sums, GradSums::empty());
            let pending =
                self.ranks.group.start_all_reduce_mean(crc32c::crc32c(&weights), sums, self.ranks.micro_batches.count);
            bucket.state = BucketState::InFlight(pending);
        }
    }
}
