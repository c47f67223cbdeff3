//! Sums of gradients over micro-batches and ranks: on the devices, if those of all ranks reach one another, or on the hosts.

use crate::{
    Error,
    distributed::{
        self, GradSums, GradTransport, Group, MessageTag, PendingCollective, ReduceMode, ReduceTimings, ReducedGrads,
    },
    graph::{Fixed, ParamTensor},
    train::Trainer,
};
use gradscale_core::{
    amp::Precision,
    backend::{Backend, Data, UniqueId},
};
use std::time::Instant;

/// Sums of the gradients of this rank's micro-batches.
#[derive(Debug)]
pub(in crate::train) enum GradAccumulator {
    /// Buckets in host memory, in the order in which they are sent.
    Host(Vec<Bucket>),
    /// Sums in device memory, for collectives between devices.
    Device,
}

/// Gradients that are reduced in one all-reduce.
#[derive(Debug)]
pub(in crate::train) struct Bucket {
    pub weights: Vec<usize>,
    pub state: BucketState,
}

/// State of a bucket in the current step.
#[derive(Debug)]
pub(in crate::train) enum BucketState {
    /// Sums of this rank, whose all-reduce has not started.
    Local(GradSums),
    /// All-reduce that has started and was not awaited yet.
    InFlight(PendingCollective<ReducedGrads>),
}

/// Measures the time of the gradient exchange of a training in each reduce mode, in a step of `micro_batches`
/// micro-batches: see [`Group::measure_reduce_modes`].
///
/// # Errors
/// A rank that is lost or has failed; the device's.
pub fn measure_reduce_modes<B: Backend>(
    trainer: &mut Trainer<B>, micro_batches: u32,
) -> Result<ReduceTimings, Error<B::Error>> {
    let weights: Vec<usize> = trainer.parameters.weights().collect();
    let group = trainer.ranks.group.clone();
    let GradTransport::Device(_) = trainer.ranks.grad_transport else {
        let weights = weights.iter().map(|&id| trainer.parameters.len(id)).sum();
        return Ok(group.measure_reduce_modes(weights, micro_batches)?);
    };
    group.benchmark(|mode| {
        trainer.init_device_sums(&weights, micro_batches, mode)?;
        for _ in 0..distributed::local_micro_batches(micro_batches, group.rank(), group.size()) {
            trainer.accumulate_on_devices(&weights)?;
        }
        trainer.exec.reduce_grad_mean().map_err(Error::Device)
    })
}

impl<B: Backend> Trainer<B> {
    /// Returns the transport of gradients between ranks.
    #[must_use]
    pub const fn grad_transport(&self) -> &GradTransport {
        &self.ranks.grad_transport
    }

    /// Initialises collectives between the devices of all ranks, if their backend has them (NCCL, for example).
    pub(in crate::train) fn init_device_collectives(
        &mut self, group: &Group,
    ) -> Result<GradTransport, Error<B::Error>> {
        if group.has_no_communicator() {
            return Ok(GradTransport::Host(None));
        }
        let backend_name = self.exec.device().collective_backend();
        let supported = group.all_gather_u64(backend_name.is_some().into())?;
        let Some(backend_name) = backend_name.filter(|_| !supported.contains(&0)) else {
            return Ok(GradTransport::Host(None));
        };
        let created = if group.rank() == 0 { self.exec.device().new_unique_id().map(Some) } else { Ok(None) };
        let local = created.as_ref().ok().copied().flatten();
        let unique_id = group.broadcast_from_rank0(local.as_ref().map_or(&[], UniqueId::as_slice))?;
        let joined = match (created, <&UniqueId>::try_from(&unique_id[..])) {
            (Err(error), _) => Err(error.to_string()),
            (Ok(_), Ok(unique_id)) => {
                let to_u32 = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
                let (rank, size) = (to_u32(group.rank()), to_u32(group.size()));
                self.exec.device_mut().init_rank(unique_id, rank, size).map_err(|error| error.to_string())
            }
            // Rank 0 reports the error.
            (Ok(_), Err(_)) => Ok(()),
        };
        let error = joined.err().unwrap_or_default();
        let errors = group.all_gather(MessageTag::Config, error.as_bytes())?;
        let first_error = errors.iter().enumerate().find(|(_, error)| !error.is_empty());
        Ok(match first_error {
            Some((rank, error)) => {
                GradTransport::Host(Some(format!("rank {rank}: {}", String::from_utf8_lossy(error))))
            }
            None => GradTransport::Device(backend_name),
        })
    }

    /// Creates zero sums for the gradients of a step with this program.
    pub(in crate::train) fn new_accumulator(&mut self, program: usize) -> Result<GradAccumulator, Error<B::Error>> {
        let program = self.exec.program(program);
        let mut weights = program.contributes.clone();
        weights.sort_unstable();
        if let GradTransport::Device(_) = self.ranks.grad_transport {
            self.init_device_sums(&weights, self.ranks.micro_batches.count, self.ranks.reduce_mode)?;
            return Ok(GradAccumulator::Device);
        }
        let mut buckets: Vec<Vec<usize>> = program.buckets.iter().map(|bucket| bucket.weights.clone()).collect();
        if buckets.is_empty() {
            buckets.push(weights);
        }
        let counts = (self.ranks.micro_batches.count, self.ranks.group.rank(), self.ranks.group.size());
        let new_bucket = |weights: Vec<usize>| {
            let len = weights.iter().map(|&id| self.parameters.len(id)).sum();
            Bucket { weights, state: BucketState::Local(GradSums::new(self.ranks.reduce_mode, len, counts)) }
        };
        Ok(GradAccumulator::Host(buckets.into_iter().map(new_bucket).collect()))
    }

    /// Allocates gradient sums in device memory, and sets them to zero.
    fn init_device_sums(
        &mut self, weights: &[usize], micro_batches: u32, mode: ReduceMode,
    ) -> Result<(), Error<B::Error>> {
        let len = weights.iter().map(|&id| self.parameters.len(id)).sum();
        self.exec.init_grad_reduce(len, micro_batches, mode == ReduceMode::ExactF16).map_err(Error::Device)
    }

    /// Adds the gradients of the last backward pass to the sums in device memory.
    pub(in crate::train) fn accumulate_on_devices(&mut self, weights: &[usize]) -> Result<(), Error<B::Error>> {
        let mut at = 0;
        for &id in weights {
            let (buf, len) = (Fixed::tensor(id, ParamTensor::Gradient), self.parameters.len(id));
            self.exec.accumulate_grad_reduce((at, len), buf, self.ranks.grad_exponents[id]).map_err(Error::Device)?;
            at += len;
        }
        Ok(())
    }

    /// Adds the gradients of the last backward pass to a bucket, unless it is in flight.
    pub(in crate::train) async fn accumulate_bucket(&self, bucket: &mut Bucket) -> Result<(), Error<B::Error>> {
        let BucketState::Local(sums) = &mut bucket.state else { return Ok(()) };
        let mut at = 0;
        for &id in &bucket.weights {
            let (buf, len) = (Fixed::tensor(id, ParamTensor::Gradient), self.parameters.len(id));
            let values = self.exec.read(buf, Precision::Single, len).await.map_err(Error::Device)?;
            sums.accumulate(at, &values, self.ranks.grad_exponents[id]);
            at += len;
        }
        Ok(())
    }

    /// Waits for the mean gradients over all micro-batches, and writes them to the gradient buffers.
    pub(in crate::train) fn write_reduced(
        &mut self, contributes: &[usize], accumulator: GradAccumulator,
    ) -> Result<(), Error<B::Error>> {
        let (group, micro_batches) = (self.ranks.group.clone(), self.ranks.micro_batches.count);
        match accumulator {
            GradAccumulator::Host(buckets) => {
                for Bucket { weights, state } in buckets {
                    let means = match state {
                        BucketState::Local(sums) => group.all_reduce_mean(sums, micro_batches)?,
                        BucketState::InFlight(pending) => pending.wait()?,
                    };
                    self.write_bucket(&weights, &means)?;
                }
            }
            GradAccumulator::Device => {
                let start = Instant::now();
                self.exec.reduce_grad_mean().map_err(Error::Device)?;
                group.add_device_traffic(self.device_traffic_bytes(contributes, micro_batches), start);
                let mut at = 0;
                for &id in contributes {
                    let (buf, len) = (Fixed::tensor(id, ParamTensor::Gradient), self.parameters.len(id));
                    let exponent = self.ranks.grad_exponents[id].unwrap_or(0);
                    self.exec.read_grad_reduce((at, len), buf, exponent).map_err(Error::Device)?;
                    at += len;
                }
            }
        }
        Ok(())
    }

    /// Writes a bucket's mean gradients to the gradient buffers of its weights.
    fn write_bucket(&mut self, weights: &[usize], means: &ReducedGrads) -> Result<(), Error<B::Error>> {
        let mut at = 0;
        for &id in weights {
            let (buf, len) = (Fixed::tensor(id, ParamTensor::Gradient), self.parameters.len(id));
            let values = means.decode_range(at..at + len, self.ranks.grad_exponents[id].unwrap_or(0));
            self.exec.write(buf, Data::F32(&values)).map_err(Error::Device)?;
            at += len;
        }
        Ok(())
    }

    /// Returns the bytes to other ranks with device transport. Per value these are an f16 (with several micro-batches per rank
    /// a sum of 8 bytes) and the f16 mean, or two f32.
    fn device_traffic_bytes(&self, contributes: &[usize], micro_batches: u32) -> u64 {
        let size = self.ranks.group.size();
        let bytes = match self.ranks.reduce_mode {
            ReduceMode::ExactF16 if micro_batches as usize == size => 2 + 2,
            ReduceMode::ExactF16 => 8 + 2,
            ReduceMode::NativeF32 => 4 + 4,
        };
        let len: usize = contributes.iter().map(|&id| self.parameters.len(id)).sum();
        (len * bytes * (size - 1) / size) as u64
    }
}
