//! Element by element: unary and binary functions, sums of several sources.

use crate::{
    Device, Error,
    driver::{Driver, Params},
    kernels,
    memory::Memory,
    store::StoreParams,
};
use gradscale_core::{
    backend::{Buffer, Store},
    descriptor::{Unary, dropout_threshold},
};

/// `Function` of `functions.cuh`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Function {
    code: u32,
    numbers: [f32; 2],
    stream: u32,
    threshold: u32,
    unused: u32,
}

impl Function {
    pub fn of(op: Unary) -> Self {
        let (stream, threshold) = match op {
            Unary::Dropout { keep, stream } => (stream, dropout_threshold(keep)),
            _ => (0, 0),
        };
        Self { code: op.code(), numbers: op.parameters(), stream, threshold, unused: 0 }
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct UnaryParams {
    y: StoreParams,
    x: u64,
    kind: u32,
    len: u32,
    f: Function,
}

// SAFETY: as `unary.cu` says, without padding.
unsafe impl Params for UnaryParams {}

impl<D: Driver> Device<D> {
    pub(crate) fn run_unary(&self, op: Unary, x: &Memory<D>, y: &Store<'_, Self>) -> Result<(), Error> {
        let (len, blocks) = self.dense(x.len());
        let y = self.store(y, x.len(), blocks)?;
        let params = UnaryParams { y, x: x.at(), kind: x.kind(), len, f: Function::of(op) };
        // SAFETY: x and y hold `len` elements.
        unsafe { self.launch(&kernels::UNARY, blocks, &params) }
    }
}
