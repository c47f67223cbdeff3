//! Stores in blocks of 8 bits: memory that would hold halves holds f32, and launches that round do so in blocks.
//!
//! A value times the exponent of its block may exceed every half. So the program is compiled as for formats with one
//! exponent for each tensor, whose exponents all stay 0, and its buffers of halves are widened in the end.

use super::{BufferId, Compiler, Operation, Value};
use crate::{Shape, method::BlockScaling};
use gradscale_core::backend::DType;

/// Returns the size of the last axis with more than one value, along which a tensor is divided into blocks.
pub(super) fn columns_of(shape: Shape) -> usize {
    shape.sizes().into_iter().rev().find(|&size| size != 1).unwrap_or(1)
}

impl Compiler<'_, '_> {
    /// Changes the program and its outputs to stores in blocks if the method has these. Inputs keep the type in which they
    /// are uploaded.
    pub(super) fn store_blocks<'v>(&mut self, inputs: &[BufferId], outputs: impl Iterator<Item = &'v mut Value>) {
        let Some(scaling) = self.shared.sites.block_scaling() else { return };
        let widened = |buf: BufferId, dtype: DType| {
            if dtype == DType::F16 && !inputs.contains(&buf) { DType::F32 } else { dtype }
        };
        let widen = |value: &mut Value| value.dtype = widened(value.buf, value.dtype);
        for (i, (dtype, _)) in self.buffers.iter_mut().enumerate() {
            *dtype = widened(BufferId::Arena(i), *dtype);
        }
        for launch in &mut self.launches {
            let operation = launch.with_stores(|mut y| {
                widen(&mut y.y);
                y
            });
            launch.operation = in_blocks(scaling, operation);
        }
        outputs.for_each(widen);
        self.values.iter_mut().flatten().for_each(widen);
        self.traced.iter_mut().for_each(|traced| widen(&mut traced.gradient.value));
    }
}

/// Returns a launch that rounds to a format of the method as one that rounds in blocks.
fn in_blocks(scaling: BlockScaling, operation: Operation) -> Operation {
    let Operation::Round { format, len, x, y } = operation else { return operation };
    let (Some(blocks), Ok(columns)) = (scaling.blocks_of(format), u32::try_from(y.columns.max(1))) else {
        return Operation::Round { format, len, x, y };
    };
    Operation::RoundBlocks { format: blocks, rows: len / columns, columns, x, y }
}
