//! Compiled program of a trace: its launches, buffers and synchronisation points.

use super::{
    BucketPlan, BufferId, DistributedPlan, Gradient, Launch, ParamTensor, PlanRow, StatsSync, SyncPoint, Trace, Value,
};
use crate::{Shape, parameters::Role};
use gradscale_core::backend::{DType, Slot};
use std::{ops::Range, sync::Arc};

/// Purpose for which a trace is compiled to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// Training step: forward and backward pass. Gradients overwrite (first micro-batch) or accumulate (`later`).
    Train { later: bool },
    /// Statistics alone: forward pass in training mode, only for running statistics.
    Statistics,
    /// Evaluation: forward pass in evaluation mode, without gradients.
    Evaluate,
    /// Evaluation with the moving averages of the weights in place of the weights.
    EvaluateAverage,
    /// Update of weights by a custom optimizer's rule.
    Update,
}

impl Purpose {
    pub const fn is_training(self) -> bool {
        matches!(self, Self::Train { .. } | Self::Statistics)
    }

    /// Returns the part of a parameter in which batch statistics are stored until the update. Passes for statistics
    /// alone use another part than a step in progress.
    pub const fn statistics(self) -> ParamTensor {
        match self {
            Self::Statistics => ParamTensor::State1,
            Self::Train { .. } | Self::Evaluate | Self::EvaluateAverage | Self::Update => ParamTensor::Gradient,
        }
    }

    /// Returns the parts of a weight that a program reads, in f32 and in half.
    pub const fn weights(self) -> [ParamTensor; 2] {
        match self {
            Self::EvaluateAverage => [ParamTensor::Average, ParamTensor::AverageHalf],
            Self::Train { .. } | Self::Statistics | Self::Evaluate | Self::Update => {
                [ParamTensor::Master, ParamTensor::Half]
            }
        }
    }
}

/// Properties of a parameter that the compiler needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParameterInfo {
    pub role: Role,
    pub slot: Slot,
    pub len: usize,
}

/// Named gradient of an intermediate value, for inspection of a step.
#[derive(Clone, Debug)]
pub(crate) struct Traced {
    pub name: String,
    pub gradient: Gradient,
    pub shape: Shape,
}

/// Named value of a network, besides its output, that can be read after a program has run.
#[derive(Clone, Debug)]
pub(crate) struct AuxOutput {
    pub name: String,
    pub value: Value,
    pub shape: Shape,
}

/// Compiled trace: launches, buffers and synchronisation points.
#[derive(Debug)]
pub(crate) struct Program {
    pub trace: Arc<Trace>,
    pub purpose: Purpose,
    pub prefix: String,
    pub distributed: DistributedPlan,
    /// True if forward stores have exponents.
    pub scales_forward: bool,
    /// Numbers of the constants that the program reads.
    pub constants: Vec<usize>,
    /// True if the program may run again on the same inputs, as a repeat.
    pub repeats: bool,
    pub inputs: Vec<BufferId>,
    pub launches: Vec<Launch>,
    /// Layers at which ranks combine batch statistics, in the order of launches.
    pub stats_syncs: Vec<StatsSync>,
    /// Buckets of gradients that are reduced over ranks together.
    pub buckets: Vec<BucketPlan>,
    /// Points at which ranks synchronise, in the order of launches.
    pub sync_points: Vec<SyncPoint>,
    /// Node from which each launch was emitted, with true for launches of the backward pass.
    pub origins: Vec<(usize, bool)>,
    pub output: Value,
    /// Named values of the program that can be read besides its output.
    pub aux_outputs: Vec<AuxOutput>,
    /// Indices of the weights for which the program computes a gradient.
    pub contributes: Vec<usize>,
    /// Running statistics that are updated, and the number of calls that update them.
    pub statistics: Vec<(usize, u32)>,
    /// Indices of the parameters whose half copy the program reads.
    pub halves: Vec<usize>,
    /// Slots of the statistics rows, in the order of their stores.
    pub order: Vec<Slot>,
    /// Type and length of each buffer of the arena that the program uses.
    pub arena: Vec<(DType, usize)>,
    pub gradients: Vec<Traced>,
    pub plan: Vec<PlanRow>,
}

impl Program {
    /// Returns true if a buffer of the arena must keep its content until the next step starts, whatever runs in
    /// between. These are inputs that a repeat reads again, and values that a training step lets the caller read.
    pub fn holds(&self, i: usize) -> bool {
        let beside = || self.aux_outputs.iter().any(|beside| beside.value.buf == BufferId::Arena(i));
        self.repeats && self.inputs.contains(&BufferId::Arena(i))
            || matches!(self.purpose, Purpose::Train { .. }) && beside()
    }

    /// Returns true for a training program whose forward stores have no exponents.
    pub const fn is_unscaled_training(&self) -> bool {
        matches!(self.purpose, Purpose::Train { .. }) && !self.scales_forward
    }

    /// Replaces the index of each arena buffer in the program by another.
    pub fn rename(&mut self, place: impl Fn(usize) -> usize) {
        let name = |buf: BufferId| match buf {
            BufferId::Arena(i) => BufferId::Arena(place(i)),
            BufferId::Persistent(_) | BufferId::PrefetchedInput(_) | BufferId::HostScalar(_) | BufferId::Unfused(_) => {
                buf
            }
        };
        self.launches.iter_mut().for_each(|launch| launch.rename(name));
        self.stats_syncs.iter_mut().flat_map(StatsSync::buffers).for_each(|buf| *buf = name(*buf));
        let gradients = self.gradients.iter_mut().map(|traced| &mut traced.gradient.value.buf);
        let beside = self.aux_outputs.iter_mut().map(|beside| &mut beside.value.buf);
        let read = beside.chain([&mut self.output.buf]).chain(gradients);
        self.inputs.iter_mut().chain(read).for_each(|buf| *buf = name(*buf));
    }

    /// Returns the number of the program's segments: launches between synchronisation points.
    pub const fn segment_count(&self) -> usize {
        self.sync_points.len() + 1
    }

    /// Returns the range of launches of the program's segment.
    pub fn segment(&self, segment: usize) -> Range<usize> {
        let before = |point: &SyncPoint| point.before;
        let start = segment.checked_sub(1).and_then(|last| self.sync_points.get(last)).map_or(0, before);
        start..self.sync_points.get(segment).map_or(self.launches.len(), before)
    }
}
