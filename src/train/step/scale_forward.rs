//! Change of a training to programs whose forward stores have exponents.
//!
//! Until an activation overflows, programs are those of a training without such exponents: the same launches, bits and
//! memory. The overflow makes forward stores sites ([`crate::sites::Sites`]). The batch then runs again in a program of
//! its own, compiled from the same trace. Its inputs pass through the host, because both programs may have them at
//! exchanged places. This happens once in a training.

use crate::{
    Error,
    graph::{BufferId, NodeKind, Purpose, Trace},
    train::{Gradients, Trainer},
};
use gradscale_core::{
    amp::Precision,
    backend::{Backend, DType, Data},
};
use half::f16;
use std::sync::Arc;

/// Input of a program in host memory.
enum HostInput {
    F32(Vec<f32>),
    F16(Vec<f16>),
    U8(Vec<u8>),
    U32(Vec<u32>),
}

impl<B: Backend> Trainer<B> {
    /// Replaces the program of a batch that is to be repeated by the one with exponents of forward stores, if these have
    /// become sites in the failed attempt.
    pub(in crate::train) async fn scale_forward(&mut self, gradients: &mut Gradients) -> Result<(), Error<B::Error>> {
        let program = self.exec.program(gradients.program);
        if program.scales_forward == self.sites.forward_active() {
            return Ok(());
        }
        let (trace, purpose, inputs) = (program.trace.clone(), program.purpose, program.inputs.clone());
        let mut values = Vec::new();
        for (&buf, node) in inputs.iter().zip(&trace.nodes) {
            if let NodeKind::Input(dtype) = node.work {
                values.push(self.read_input(buf, dtype, node.shape.len()).await.map_err(Error::Device)?);
            }
        }
        let index = self.program(&trace, purpose, &gradients.loss)?;
        self.exec.begin(index);
        self.live_backward = Some(index);
        let program = self.exec.program(index);
        (gradients.order, gradients.program) = (program.order.clone(), index);
        for (buf, value) in program.inputs.clone().into_iter().zip(&values) {
            let data = match value {
                HostInput::F32(data) => Data::F32(data),
                HostInput::F16(data) => Data::F16(data),
                HostInput::U8(data) => Data::U8(data),
                HostInput::U32(data) => Data::U32(data),
            };
            self.exec.write(buf, data).map_err(Error::Device)?;
        }
        Ok(())
    }

    async fn read_input(&self, buf: BufferId, dtype: DType, len: usize) -> Result<HostInput, B::Error> {
        Ok(match dtype {
            DType::F32 => HostInput::F32(self.exec.read(buf, Precision::Single, len).await?),
            DType::F16 => {
                let values = self.exec.read(buf, Precision::Half, len).await?;
                HostInput::F16(values.into_iter().map(f16::from_f32).collect())
            }
            DType::U8 => HostInput::U8(self.exec.read_bytes(buf, len).await?),
            DType::U32 => HostInput::U32(self.exec.read_words(buf, len).await?),
        })
    }

    /// Compiles the training programs again that a step may still need after forward stores have become sites, before
    /// its first pass. A later micro-batch may need a program of its own, and the table cannot grow inside a step.
    pub(in crate::train) fn compile_scaled_programs(&mut self) -> Result<(), Error<B::Error>> {
        let replaced: Vec<(Arc<Trace>, Purpose, String)> = self.exec.unscaled_training_programs();
        if !self.sites.forward_active() || replaced.is_empty() {
            return Ok(());
        }
        for (trace, purpose, prefix) in &replaced {
            self.program(trace, *purpose, prefix.trim_end_matches(':'))?;
        }
        self.exec.remove_programs(|program| program.is_unscaled_training());
        // The outputs of these programs are gone.
        (self.live_backward, self.last_run) = (None, None);
        Ok(())
    }
}
