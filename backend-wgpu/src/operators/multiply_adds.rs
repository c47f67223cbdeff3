//! Multiply-adds without memory, as a baseline of products: what the arithmetic of a device reaches.

use crate::{
    Error, Memory, Wgpu, kernel,
    launch::{KernelLaunch, WORKGROUP_SIZE},
};
use gradscale_core::backend::{Buffer, DType};

/// Chains of an invocation of multiply_adds.wgsl.
const CHAINS: u64 = 32;
/// Factor and term: all values go to 1, so that none grows into ∞ or shrinks to a subnormal.
const FACTOR: f32 = 0.5;
const TERM: f32 = 0.5;

impl Wgpu {
    /// Enqueues a kernel that multiplies and adds in f32, `rounds` times in 32 chains for each element of `y`, an F32
    /// buffer. Returns the number of operations, two for each multiply-add. An element
    /// becomes the sum of its chains.
    ///
    /// # Errors
    /// The device's.
    ///
    /// # Panics
    /// If `y` has another type.
    pub fn multiply_adds_by_kernel(&self, rounds: u32, y: &mut Memory) -> Result<u64, Error> {
        assert!(y.dtype() == DType::F32, "{:?} instead of f32", y.dtype());
        let count = u32::try_from(y.len()).unwrap_or(u32::MAX);
        let params = [rounds, FACTOR.to_bits(), TERM.to_bits(), count];
        let call = KernelLaunch::new(&kernel::MULTIPLY_ADDS).params(params).memory(3, y);
        self.launch(call, count.div_ceil(WORKGROUP_SIZE))?;
        Ok(2 * CHAINS * u64::from(rounds) * y.len() as u64)
    }
}
