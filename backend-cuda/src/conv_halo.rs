//! Convolutions of few summed channels from halo tiles (`conv_halo.cu`): which ones, and the geometry of their tiles.
//!
//! A tile is 16 × 16 pixels of 64 results. Its halo is what the taps of all its pixels read, in planes of eight channels.
//! A slice is eight channels of a tap, and a K step of the tensor cores multiplies two slices. In shared memory a slice of
//! all pixels of a tile begins at one offset, so two offsets describe a K step. The kernel reads them from a table.

use crate::{
    gemm_problem::{ConvParams, GemmKind, GemmProblem},
    gpu::{Planes, Tiled},
    kernels::{HALO_BYTES, MAX_ACCUMULATION_K, MAX_HALO_STEPS},
};
use gradscale_core::ops::Pass;

#[cfg(test)]
mod tests;

/// Rows and columns of pixels of a tile (`HALO_TILE_SIDE` of conv_halo.cuh).
pub(crate) const TILE_SIDE: u32 = 16;
/// Results of a pixel in a tile.
pub(crate) const TILE_RESULTS: u32 = 64;
/// Columns of a tile that one warpgroup multiplies (`GROUP_COLUMNS` of conv_halo.cuh).
const GROUP_COLUMNS: u32 = 8;
/// Channels of a plane and of a slice: 16 bytes.
const SLICE_CHANNELS: u32 = 8;
/// Maximum number of summed channels: those of one stage of weights.
const MAX_CHANNELS: u32 = 64;
/// Minimum number of results of a pixel: with fewer, less than half of a tile is stored.
const MIN_RESULTS: u32 = 32;
/// Maximum side of a box of TMA.
const MAX_BOX_SIDE: u32 = 256;

/// Convolution of stride 1 from halo tiles. Pairs are of rows and columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HaloConv {
    pass: Pass,
    images: u32,
    /// Pixels of the image that taps read.
    source: [u32; 2],
    /// Pixels of the results of an image.
    pub result_size: [u32; 2],
    /// Summed channels: eight, or a multiple of 16.
    channels: u32,
    results: u32,
    kernel: [u32; 2],
    /// Position of the first tap of the first pixel.
    pub first: [i32; 2],
}

impl HaloConv {
    /// Returns the halo tiles of a problem, or `None` if the kernel does not compute it.
    pub fn new(problem: &GemmProblem) -> Option<Self> {
        let GemmKind::Conv(pass) = problem.kind else { return None };
        let ConvParams { x, y, kernel, stride, pad, dilation, .. } = problem.conv;
        let pad = pad.map(u32::cast_signed);
        let (source, result_size, channels, first) = match pass {
            Pass::Forward => (x, [y[0], y[1]], x[2], pad.map(|pad| -pad)),
            // The last tap reads the first pixel of dy.
            Pass::Data => {
                let last_tap = kernel.map(|taps| taps.cast_signed() - 1);
                (y, [x[0], x[1]], y[2], [pad[0] - last_tap[0], pad[1] - last_tap[1]])
            }
            Pass::Weight => return None,
        };
        let results = problem.shape.n;
        let pixels = result_size[0] * result_size[1];
        let is_whole = problem.batch == 1 && problem.stored_columns == results && problem.min_splits == 1;
        let starts = [results, problem.ldy, problem.placement.start].into_iter().chain(problem.placement.pixel_steps);
        let is_aligned = problem.is_vectorizable && starts.into_iter().all(|elements| elements.is_multiple_of(8));
        let has_channels = channels == SLICE_CHANNELS || channels.is_multiple_of(2 * SLICE_CHANNELS);
        let taps = kernel[0] * kernel[1];
        let is_supported = is_whole
            && is_aligned
            && stride == [1, 1]
            && dilation == [1, 1]
            && has_channels
            && (SLICE_CHANNELS..=MAX_CHANNELS).contains(&channels)
            && results >= MIN_RESULTS
            // One tap reads each pixel once anyway.
            && taps > 1
            && pixels != 0
            && !problem.lens.contains(&0);
        let images = problem.shape.m.checked_div(pixels)?;
        let source = [source[0], source[1]];
        let conv = Self { pass, images, source, result_size, channels, results, kernel, first };
        (is_supported && conv.fits()).then_some(conv)
    }

    /// Returns true if the parameters and two halos have room, and TMA loads a halo as one box.
    fn fits(&self) -> bool {
        let [rows, columns] = self.halo_size();
        rows <= MAX_BOX_SIDE
            && columns <= MAX_BOX_SIDE
            && self.slices() <= 2 * MAX_HALO_STEPS
            && self.slices() * SLICE_CHANNELS <= MAX_ACCUMULATION_K
            && 2 * self.buffer_bytes() <= HALO_BYTES
    }

    /// Returns the number of summed channels.
    pub const fn channels(&self) -> u32 {
        self.channels
    }

    /// Returns the rows and columns of a halo.
    pub fn halo_size(&self) -> [u32; 2] {
        self.kernel.map(|taps| TILE_SIDE + taps - 1)
    }

    const fn planes(&self) -> u32 {
        self.channels / SLICE_CHANNELS
    }

    /// Returns the number of slices of K.
    const fn slices(&self) -> u32 {
        self.kernel[0] * self.kernel[1] * self.planes()
    }

    /// Returns the number of K steps.
    pub const fn steps(&self) -> u32 {
        self.slices().div_ceil(2)
    }

    /// Returns the number of 16-byte vectors of a plane.
    fn plane_vec8s(&self) -> u32 {
        let [rows, columns] = self.halo_size();
        rows * columns
    }

    /// Returns the number of 16-byte vectors that TMA loads for a tile: pixels of a plane.
    pub fn load_vec8s(&self) -> u32 {
        self.planes() * self.plane_vec8s()
    }

    /// Returns the number of 16-byte vectors of zeros beside the last of an odd number of slices: as far as the rows of
    /// a tile and the columns of both warpgroups reach.
    pub fn zero_vec8s(&self) -> u32 {
        let [_, columns] = self.halo_size();
        if self.slices().is_multiple_of(2) { 0 } else { (TILE_SIDE - 1) * columns + 2 * GROUP_COLUMNS }
    }

    /// Returns the bytes of one of the two buffers, which begin at multiples of 128, as TMA requires.
    pub fn buffer_bytes(&self) -> u32 {
        (16 * (self.load_vec8s() + self.zero_vec8s())).next_multiple_of(128)
    }

    /// Returns the number of tiles along rows and columns of an image.
    pub fn tile_grid(&self) -> [u32; 2] {
        self.result_size.map(|size| size.div_ceil(TILE_SIDE))
    }

    pub const fn result_blocks(&self) -> u32 {
        self.results.div_ceil(TILE_RESULTS)
    }

    /// Returns the number of tiles of all images.
    pub fn tiles(&self) -> u32 {
        let [rows, columns] = self.tile_grid();
        self.images * rows * columns * self.result_blocks()
    }

    /// Returns the offsets of both slices of each K step, in 16-byte vectors: of the first one in the low half of a word,
    /// and the distance to the second one in the high half. This is the low word of a matrix descriptor (PTX ISA, "Matrix
    /// descriptor format").
    pub fn step_offsets(&self) -> [u32; MAX_HALO_STEPS as usize] {
        let [_, pitch] = self.halo_size();
        let mut slices = (0..self.kernel[0])
            .flat_map(|i| (0..self.kernel[1]).map(move |j| i * pitch + j))
            .flat_map(|tap| (0..self.planes()).map(move |plane| tap + plane * self.plane_vec8s()));
        let mut offsets = [0; MAX_HALO_STEPS as usize];
        for offset in &mut offsets {
            let Some(slice) = slices.next() else { break };
            let next = slices.next().unwrap_or(self.load_vec8s());
            *offset = slice | (next - slice) << 16;
        }
        offsets
    }

    /// Returns the problem with the distances of its pixels in y, which the kernel always reads.
    pub fn placed(&self, problem: &GemmProblem) -> GemmProblem {
        let mut placed = *problem;
        if placed.placement.pixel_steps == [0; 3] {
            let ([rows, columns], ldy) = (self.result_size, problem.ldy);
            placed.placement.pixel_steps = [ldy, columns * ldy, rows * columns * ldy];
        }
        placed
    }

    /// Returns the pixels of the operand at an address, as TMA loads them.
    pub fn pixels(&self, at: u64) -> Planes {
        let ([source_rows, source_columns], [rows, columns]) = (self.source, self.halo_size());
        Planes { at, sizes: [self.channels, source_columns, source_rows, self.images], tile: [columns, rows] }
    }

    /// Returns the weights at an address, as TMA loads those of 64 results.
    pub fn weights(&self, problem: &GemmProblem, at: u64) -> Tiled {
        let (ConvParams { inputs, y: [_, _, outputs], .. }, taps) = (problem.conv, self.kernel[0] * self.kernel[1]);
        match self.pass {
            Pass::Data => {
                let row = 2 * u64::from(inputs);
                // Outputs of one tap that a K step multiplies.
                let rows = self.channels.min(2 * SLICE_CHANNELS);
                let strides = [row, row * u64::from(taps)];
                Tiled { at, sizes: [inputs, taps, self.channels], strides, tile: [64, 1, rows] }
            }
            Pass::Forward | Pass::Weight => {
                let row = taps * self.channels;
                let strides = [2 * u64::from(row), 2 * u64::from(row) * u64::from(outputs)];
                Tiled { at, sizes: [row, outputs, 1], strides, tile: [64, TILE_RESULTS, 1] }
            }
        }
    }
}
