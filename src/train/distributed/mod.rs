//! Distributed training: joining a group of ranks, and the state that a trainer keeps for it.

mod buckets;
mod grad_reduce;
mod micro_batches;
mod sharded_optimizer;
mod step_report;
mod sync_batch_norm;

use crate::{
    Error,
    distributed::{DistributedError, GradTransport, Group, MessageTag, Overlap, ReduceMode, Traffic},
    graph::{Fixed, ParamTensor},
    parameters::Role,
    sites::Decided,
    train::Trainer,
};
pub use grad_reduce::measure_reduce_modes;

use grad_reduce::GradAccumulator;
use gradscale_core::{
    amp::Precision,
    backend::{Backend, Data, EngineAvailability, Slot},
    solve::{Choice, LimitedBy, NoDecision},
};
use pollster::block_on;
use serde::{Deserialize, Serialize};

/// State of a trainer that concerns the other ranks.
#[derive(Debug)]
pub(in crate::train) struct Ranks {
    pub group: Group,
    /// Exponent at which each parameter's gradients are encoded in the next step; `None` before the first gradients.
    pub grad_exponents: Vec<Option<i32>>,
    /// Position of the current micro-batch in its step.
    pub micro_batch: MicroBatch,
    pub reduce_mode: ReduceMode,
    pub overlap: Overlap,
    /// Progress of this rank's micro-batches in the current step.
    pub micro_batches: MicroBatchState,
    pub grad_transport: GradTransport,
    /// Optimizer states are sharded over the ranks (ZeRO stage 1).
    pub is_sharded: bool,
    /// Owner of each weight, if optimizer states are sharded.
    pub shard_map: sharded_optimizer::ShardMap,
    /// Devices of the ranks are of several kinds, which round sums differently.
    pub has_mixed_devices: bool,
}

/// Position of a micro-batch in its step, on this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::train) enum MicroBatch {
    /// The step has a single micro-batch.
    Single,
    /// First micro-batch of this rank. That of rank 0 is the first of the step, in which sites decide.
    First,
    /// Any later micro-batch of this rank.
    Subsequent,
}

/// Progress of the micro-batches of the current step.
#[derive(Debug, Default)]
pub(in crate::train) struct MicroBatchState {
    /// Number of micro-batches of the step, on all ranks together.
    pub count: u32,
    /// The last micro-batch of this rank is running.
    pub is_last: bool,
    /// Sums of this rank's gradients, after its first backward pass.
    pub accumulator: Option<GradAccumulator>,
}

/// Decision about one site inside the step, as rank 0 sends it to the other ranks.
#[derive(Serialize, Deserialize)]
struct DecisionMessage {
    slot: u16,
    /// Exponent at which the statistics row was observed.
    row_exponent: i32,
    /// Exponent of the values that the site received.
    incoming_exponent: i32,
    decision: Result<ChoiceMessage, ReasonIndex>,
}

/// Exponent that a site has chosen ([`Choice`]), in the form that ranks send.
#[derive(Serialize, Deserialize)]
struct ChoiceMessage {
    exponent_delta: i32,
    /// Index of the limiting constraint in [`LimitedBy::ALL`].
    limited_by: usize,
    /// Bits of the predicted share of underflow, because a float in text might be rounded.
    underflow_bits: u64,
}

/// Index of the reason for no decision in [`NoDecision::ALL`].
type ReasonIndex = usize;

impl DecisionMessage {
    fn encode(&Decided { slot, verdict, measured_at, incoming }: &Decided) -> Self {
        let index = |found: Option<usize>| found.unwrap_or(usize::MAX);
        let choice = |Choice { k, held, gamma }: Choice| ChoiceMessage {
            exponent_delta: k,
            limited_by: index(LimitedBy::ALL.iter().position(|&limit| limit == held)),
            underflow_bits: gamma.to_bits(),
        };
        let reason = |reason: NoDecision| index(NoDecision::ALL.iter().position(|&other| other == reason));
        let decision = verdict.map(choice).map_err(reason);
        Self { slot: slot.0, row_exponent: measured_at, incoming_exponent: incoming, decision }
    }

    /// Returns the decision; `None` for a limit or reason that this version does not know.
    fn decode(&self) -> Option<Result<Choice, NoDecision>> {
        Some(match &self.decision {
            Ok(ChoiceMessage { exponent_delta, limited_by, underflow_bits }) => Ok(Choice {
                k: *exponent_delta,
                held: *LimitedBy::ALL.get(*limited_by)?,
                gamma: f64::from_bits(*underflow_bits),
            }),
            Err(reason) => Err(*NoDecision::ALL.get(*reason)?),
        })
    }
}

impl Ranks {
    /// Creates the state of a trainer without other ranks.
    pub fn single(parameters: usize) -> Self {
        Self {
            group: Group::single_rank(),
            grad_exponents: vec![None; parameters],
            micro_batch: MicroBatch::Single,
            reduce_mode: ReduceMode::ExactF16,
            overlap: Overlap::default(),
            micro_batches: MicroBatchState::default(),
            grad_transport: GradTransport::Host(None),
            is_sharded: false,
            shard_map: sharded_optimizer::ShardMap::default(),
            has_mixed_devices: false,
        }
    }

    /// Returns `true` if sites decide on this rank inside a step.
    pub fn decides_in_step(&self) -> bool {
        self.micro_batch == MicroBatch::Single || self.group.rank() == 0
    }
}

impl<B: Backend> Trainer<B> {
    /// Joins a group of ranks for distributed training, see [`crate::distributed`]. Parameters and optimizer states become
    /// those of rank 0. All later steps must be [`Trainer::step_micro_batches`], and a checkpoint is loaded on every rank.
    ///
    /// # Errors
    /// Ranks that differ in version, network, method, optimizer, reduce mode or sharding; devices of another kind, unless
    /// the optimizer is sharded; a rank that cannot be reached.
    pub fn join_group(mut self, group: Group) -> Result<Self, Error<B::Error>> {
        let joined = self.synchronize_setup(&group);
        if let Err(error) = &joined
            && !matches!(error, Error::Distributed(_))
        {
            group.abort(&error.to_string());
        }
        joined?;
        self.ranks.group = group;
        Ok(self)
    }

    /// Selects the GEMM engine of rank 0 on all ranks, because each rank may have timed its own device.
    fn select_engine_of_rank0(&mut self, group: &Group) -> Result<(), Error<B::Error>> {
        let name = |device: &B| device.product_engine().map(str::to_owned);
        // Devices are of one kind, so either all ranks return here or none.
        let Some(local) = name(self.exec.device()) else { return Ok(()) };
        let first = group.all_gather(MessageTag::Config, local.as_bytes())?.into_iter().next().unwrap_or_default();
        let first = String::from_utf8_lossy(&first).into_owned();
        let availability = self.exec.device().product_engine_availability(&first);
        if first != local && availability == EngineAvailability::Available {
            self.exec.select_product_engine(&first).map_err(Error::Device)?;
        }
        // Fails on a rank whose device lacks the engine, or that has pinned another one.
        Ok(group.check_equal("GEMM engine", &name(self.exec.device()).unwrap_or_default())?)
    }

    fn synchronize_setup(&mut self, group: &Group) -> Result<(), Error<B::Error>> {
        if self.settings.each_call {
            return Err(DistributedError::InvalidMicroBatch(
                "cannot have running statistics for each call; use one set for each layer",
            )
            .into());
        }
        group.check_equal("version", env!("CARGO_PKG_VERSION"))?;
        let parameters = self.parameters.all.iter().map(|parameter| format!("{} {}", parameter.name, parameter.shape));
        group.check_equal("network", &parameters.collect::<Vec<_>>().join(", "))?;
        match group.check_equal("device", device_kind(self.exec.device().caps().name)) {
            // With sharding each weight has one owner, whose device updates it for all ranks.
            Err(DistributedError::ConfigMismatch { .. }) if self.ranks.is_sharded => {
                self.ranks.has_mixed_devices = true
            }
            compared => compared?,
        }
        if !self.ranks.has_mixed_devices {
            self.select_engine_of_rank0(group)?;
        }
        self.settings_as_text().iter().try_for_each(|(name, text)| group.check_equal(name, text))?;
        group.check_equal("overlap", &self.ranks.overlap.to_string())?;
        group.check_equal("optimizer", if self.ranks.is_sharded { "divided" } else { "whole" })?;
        self.allocate_average()?;
        for id in 0..self.parameters.all.len() {
            let constant = self.parameters.all[id].role == Role::Constant;
            let saved = self.saved_parts(id).into_iter().map(|(part, _)| part);
            for part in constant.then_some(ParamTensor::Master).into_iter().chain(saved) {
                let (buf, len) = (Fixed::tensor(id, part), self.part_shape(id, part).len());
                let mut local = Vec::new();
                if group.rank() == 0 {
                    let values = block_on(self.exec.read(buf, Precision::Single, len)).map_err(Error::Device)?;
                    local = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                }
                let messages = group.all_gather(MessageTag::ParamInit, &local)?;
                let values = sharded_optimizer::decode_f32s(messages.first().map_or(&[], Vec::as_slice));
                if values.len() != len {
                    return Err(DistributedError::CollectiveMismatch(0).into());
                }
                self.exec.write(buf, Data::F32(&values)).map_err(Error::Device)?;
            }
        }
        self.refresh_halves().map_err(Error::Device)?;
        self.ranks.grad_transport = self.init_device_collectives(group)?;
        self.shard_states((group.rank(), group.size()))
    }

    /// Returns the bytes and time of communication between ranks so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.ranks.group.traffic()
    }

    /// Sends the decisions inside the step from rank 0 to all ranks, except the first `known` ones, which all have.
    pub(in crate::train) fn broadcast_decisions(&mut self, known: usize) -> Result<(), Error<B::Error>> {
        let decided: Vec<_> = self.sites.decided().iter().skip(known).map(DecisionMessage::encode).collect();
        let local = serde_json::to_vec(&decided).unwrap_or_default();
        let messages = self.ranks.group.all_gather(MessageTag::ScaleDecisions, &local)?;
        let message = messages.into_iter().next().unwrap_or_default();
        if self.ranks.group.rank() == 0 {
            return Ok(());
        }
        let decided: Vec<DecisionMessage> =
            serde_json::from_slice(&message).map_err(|_| DistributedError::CollectiveMismatch(0))?;
        for message in decided {
            let verdict = message.decode().filter(|_| usize::from(message.slot) < self.sites.len());
            let verdict = verdict.ok_or_else(|| DistributedError::CollectiveMismatch(self.ranks.group.rank()))?;
            self.sites.decide(Slot(message.slot), verdict, message.row_exponent, message.incoming_exponent);
        }
        Ok(())
    }
}

/// Returns the part of a device's name that determines its arithmetic: without the threads of a CPU and the index of a GPU.
fn device_kind(name: &str) -> &str {
    let numbered = name.strip_prefix("CUDA ").and_then(|name| name.split_once(", "));
    let threaded = name.strip_suffix(" threads").and_then(|name| name.rsplit_once(", "));
    numbered.map(|(_, kind)| kind).or(threaded.map(|(kind, _)| kind)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_devices_compute_alike() {
        assert_eq!(device_kind("CPU, AVX-512, 12 threads"), "CPU, AVX-512");
        assert_eq!(
            device_kind("CUDA 3, NVIDIA H100, sm_90, 132 multiprocessors"),
            "NVIDIA H100, sm_90, 132 multiprocessors"
        );
        assert_eq!(device_kind("llvmpipe (LLVM 15.0.6, 256 bits)"), "llvmpipe (LLVM 15.0.6, 256 bits)");
    }

    #[test]
    fn decisions_are_decoded_as_they_were_encoded() {
        let choice = |held| Ok(Choice { k: -7, held, gamma: 0.125 });
        let verdicts = LimitedBy::ALL.into_iter().map(choice).chain(NoDecision::ALL.into_iter().map(Err));
        for verdict in verdicts {
            let message = DecisionMessage::encode(&Decided { slot: Slot(3), verdict, measured_at: 5, incoming: -2 });
            let message = serde_json::to_vec(&message).expect("JSON");
            let message: DecisionMessage = serde_json::from_slice(&message).expect("JSON");
            let DecisionMessage { slot, row_exponent, incoming_exponent, .. } = message;
            assert_eq!((slot, row_exponent, incoming_exponent, message.decode()), (3, 5, -2, Some(verdict)));
        }
        let decision = Err(NoDecision::ALL.len());
        let unknown = DecisionMessage { slot: 3, row_exponent: 5, incoming_exponent: -2, decision };
        assert_eq!(unknown.decode(), None);
    }
}
