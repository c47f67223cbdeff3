//! Element-wise functions of two tensors.

use super::unary::function;
use crate::{
    Error, Memory, Wgpu,
    kernel::{self, function::FunctionText},
    launch::{KernelLaunch, strided_workgroups},
};
use gradscale_core::{
    backend::Store,
    ops::{Binary, BinaryOp, Unary},
};

impl Wgpu {
    pub(crate) fn run_binary(&self, p: &Binary, a: &Memory, b: &Memory, y: &Store<'_, Self>) -> Result<(), Error> {
        let [rows, cols] = p.shape();
        let len = rows * cols;
        if len == 0 {
            return Ok(());
        }
        // Operations that are no gradients have no parameters, like the identity.
        let unary = if let BinaryOp::Grad(unary) = p.op() { unary } else { Unary::Id };
        let call = KernelLaunch::new(&kernel::BINARY).function(FunctionText::for_binary(p.op()));
        let call = call.params(function(unary)).params([len, cols, p.over().code()]).operand(a).operand(b);
        self.launch(call.store(y), strided_workgroups(len.div_ceil(8)))
    }
}
