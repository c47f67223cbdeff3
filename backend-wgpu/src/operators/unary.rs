//! Element-wise functions of one tensor.

use crate::{
    Error, Memory, Wgpu,
    kernel::{self, function::FunctionText},
    launch::{KernelLaunch, strided_workgroups},
};
use gradscale_core::{
    backend::Store,
    ops::{Unary, dropout_threshold},
    store_format::StoreFormat,
};

/// Returns the four words of `Function` in function.wgsl for a unary operator.
pub(crate) fn function(op: Unary) -> [u32; 4] {
    let [a, b] = op.parameters();
    let (stream, threshold) = match op {
        Unary::Dropout { keep, stream } => (stream, dropout_threshold(keep)),
        _ => (0, 0),
    };
    [a.to_bits(), b.to_bits(), stream, threshold]
}

impl Wgpu {
    pub(crate) fn run_unary(&self, op: Unary, len: u32, x: &Memory, y: &Store<'_, Self>) -> Result<(), Error> {
        self.apply_unary(FunctionText::for_unary(op), function(op), len, x, y)
    }

    pub(crate) fn run_round(
        &self, format: StoreFormat, len: u32, x: &Memory, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        self.apply_unary(FunctionText::for_format(format), function(Unary::Id), len, x, y)
    }

    fn apply_unary(
        &self, text: FunctionText, function: [u32; 4], len: u32, x: &Memory, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        if len == 0 {
            return Ok(());
        }
        let call = KernelLaunch::new(&kernel::UNARY).function(text).params(function).params([len]);
        self.launch(call.operand(x).store(y), strided_workgroups(len.div_ceil(8)))
    }
}
