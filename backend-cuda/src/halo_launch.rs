//! Launch of convolutions from halo tiles.

use crate::{
    Cuda, Error,
    conv_halo::HaloConv,
    gemm::{GemmParams, Operands},
    gemm_problem::GemmProblem,
    gpu::TensorMap,
    kernel_selection::{KernelConfig, SplitK},
    kernels::MAX_HALO_STEPS,
    memory::Memory,
};
use bytemuck::{Pod, Zeroable};
use gradscale_core::backend::Store;

/// Parameters of the kernel: `HaloParams` of `conv_halo.cuh`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct HaloParams {
    tensor_maps: [TensorMap; 2],
    gemm: GemmParams,
    tile_grid: [u32; 2],
    result_blocks: u32,
    tiles: u32,
    result_size: [u32; 2],
    first: [i32; 2],
    pitch: u32,
    buffer_bytes: u32,
    load_bytes: u32,
    zero_vec8s: u32,
    steps: u32,
    unused: u32,
    step_offsets: [u32; MAX_HALO_STEPS as usize],
}

const _: () =
    assert!(size_of::<HaloParams>() == 2 * 128 + size_of::<GemmParams>() + 14 * 4 + 4 * MAX_HALO_STEPS as usize);

impl Cuda {
    /// Launches the kernel of halo tiles, one block for each multiprocessor.
    pub(crate) fn launch_halo(
        &self, problem: &GemmProblem, config: KernelConfig, x: &Operands, bias: Option<&Memory>, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let conv = HaloConv::new(problem).expect("a convolution that halo tiles compute");
        let blocks = [conv.tiles().min(self.gpu().multiprocessors()), 1, 1];
        let gemm = self.gemm_params(&conv.placed(problem), &SplitK::unsplit(problem.shape.k), x, bias, y, blocks)?;
        let (pixels, weights) = (conv.pixels(x.at[0]), conv.weights(problem, x.at[1]));
        let params = HaloParams {
            tensor_maps: [self.gpu().planes_map(&pixels)?, self.gpu().tensor_map(&weights)?],
            gemm,
            tile_grid: conv.tile_grid(),
            result_blocks: conv.result_blocks(),
            tiles: conv.tiles(),
            result_size: conv.result_size,
            first: conv.first,
            pitch: conv.halo_size()[1],
            buffer_bytes: conv.buffer_bytes(),
            load_bytes: 16 * conv.load_vec8s(),
            zero_vec8s: conv.zero_vec8s(),
            steps: conv.steps(),
            unused: 0,
            step_offsets: conv.step_offsets(),
        };
        // SAFETY: operands and result have the lengths of their shapes; TMA fills zeros outside of them, and results outside
        // are not stored.
        unsafe { self.launch(config.kernel, blocks, &params) }
    }
}
