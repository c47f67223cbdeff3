//! Functions of two numbers.

use super::unary::function;
use crate::{
    Error, Memory, Wgpu, kernel,
    launch::{Call, strided},
};
use gradscale_core::{
    backend::Store,
    descriptor::{Binary, BinaryOp, Over, Unary},
};

impl Wgpu {
    pub(crate) fn run_binary(&self, p: &Binary, a: &Memory, b: &Memory, y: &Store<'_, Self>) -> Result<(), Error> {
        let [rows, cols] = p.shape();
        let len = rows * cols;
        if len == 0 {
            return Ok(());
        }
        let (kind, unary) = match p.op() {
            BinaryOp::Grad(unary) => (BinaryOp::Grad(Unary::Id).code(), unary),
            op => (op.code(), Unary::Id),
        };
        let over = match p.over() {
            Over::All => 0,
            Over::PerColumn => 1,
            Over::PerRow => 2,
            Over::One => 3,
        };
        let call = Call::new(&kernel::BINARY).constant("KIND", kind).constant("OP", unary.code());
        let call = call.params(function(unary)).params([len, cols, over]).operand(a).operand(b);
        self.launch(call.store(y), strided(len.div_ceil(8)))
    }
}
