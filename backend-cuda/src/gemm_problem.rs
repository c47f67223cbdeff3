//! Description of a product that is independent of its kernel: sizes, strides and addresses of its operands, as kernels
//! and TMA need them.

use crate::{
    Error,
    gpu::{Gpu, Im2col, TensorMap, Tiled},
    kernels::{Kernel, MMA_SYNC_CONV, MMA_SYNC_GEMM, SIMT, SIMT_VEC4_CONV, SIMT_VEC4_GEMM, TileShape},
};
use bytemuck::{Pod, Zeroable};
use gradscale_core::ops::{Conv2d, Gemm, GemmShape, Pass};

#[cfg(test)]
mod tests;

/// Elements from one m, k, z to the next in a, and from one k, n, z in b.
#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub struct OperandStrides {
    pub a: [u32; 3],
    pub b: [u32; 3],
}

/// Parameters of a convolution, in the layout that kernels read.
#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub struct ConvParams {
    pub x: [u32; 3],
    pub y: [u32; 3],
    pub kernel: [u32; 2],
    pub stride: [u32; 2],
    pub pad: [u32; 2],
    pub dilation: [u32; 2],
    pub inputs: u32,
    pub outputs: u32,
}

/// Where results are in y, in elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResultPlacement {
    /// First result.
    pub start: u32,
    /// Elements from pixel to pixel of a row, from row to row and from image to image, if results are every stride-th
    /// pixel of x; otherwise zeros.
    pub pixel_steps: [u32; 3],
}

/// Product or convolution to be computed, before its kernel is selected.
#[derive(Clone, Copy)]
pub struct GemmProblem {
    pub kind: GemmKind,
    /// Kernel of [`SIMT`] for this kind of product.
    pub simt: &'static Kernel,
    pub shape: GemmShape,
    /// Columns of the result: n, or fewer where x was padded to more channels than it has.
    pub stored_columns: u32,
    /// Minimum number of splits of the sums over k.
    pub min_splits: u32,
    pub batch: u32,
    pub ldy: u32,
    pub y_stride: u32,
    pub bias_stride: u32,
    pub placement: ResultPlacement,
    pub strides: OperandStrides,
    pub conv: ConvParams,
    /// Groups of eight contiguous elements are aligned and either all inside the operand or all outside.
    pub is_vectorizable: bool,
    /// The same for groups of four, of 16 bytes in f32.
    pub is_vec4: bool,
    /// Im2col window over x (over dy in the data pass), without address and pixels, if TMA can load it.
    pub im2col: Option<Im2col>,
    /// Minimum number of elements of a, b, the bias and y.
    pub lens: [usize; 4],
}

/// Kind of a product's operands, and their contiguous dimension.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GemmKind {
    /// Matrices, transposed or not: of [`MMA_SYNC_GEMM`] and [`crate::kernels::WGMMA_TMA_GEMM`].
    Matmul([bool; 2]),
    /// Convolution, by [`MMA_SYNC_CONV`], [`crate::kernels::WGMMA_CONV`] or [`crate::kernels::WGMMA_TMA_CONV`].
    Conv(Pass),
}

impl GemmKind {
    pub fn index(self) -> usize {
        match self {
            Self::Matmul([a, b]) => usize::from(a) + 2 * usize::from(b),
            Self::Conv(Pass::Forward) => 0,
            Self::Conv(Pass::Data) => 1,
            Self::Conv(Pass::Weight) => 2,
        }
    }

    /// Returns the kernel of aligned f32 operands of this kind.
    pub fn simt_vec4_kernel(self) -> &'static Kernel {
        match self {
            Self::Matmul(_) => &SIMT_VEC4_GEMM[self.index()],
            Self::Conv(_) => &SIMT_VEC4_CONV[self.index()],
        }
    }

    /// Returns the `mma.sync` kernels of this kind, which run on every device with tensor cores.
    pub fn mma_sync_kernels(self) -> &'static [Kernel; 6] {
        match self {
            Self::Matmul(_) => &MMA_SYNC_GEMM[self.index()],
            Self::Conv(_) => &MMA_SYNC_CONV[self.index()],
        }
    }
}

impl GemmProblem {
    /// Describes a matrix product as a problem for kernel selection.
    pub fn gemm(p: &Gemm) -> Self {
        let (shape, [ta, tb], lead, strides) = (p.shape(), p.transposed(), p.lead(), p.strides());
        let GemmShape { m, n, k } = shape;
        let [a_len, b_len, y_len] = p.lens().map(|len| len as usize);
        let rows = [[if ta { m } else { k }, lead[0], strides[0]], [if tb { k } else { n }, lead[1], strides[1]]];
        let is_aligned = |len: u32| rows.as_flattened().iter().all(|size| size.is_multiple_of(len));
        Self {
            kind: GemmKind::Matmul([ta, tb]),
            simt: &SIMT[0],
            shape,
            stored_columns: n,
            min_splits: 1,
            batch: p.batch(),
            ldy: lead[2],
            y_stride: strides[2],
            bias_stride: 0,
            placement: ResultPlacement::default(),
            strides: OperandStrides {
                a: if ta { [1, lead[0], strides[0]] } else { [lead[0], 1, strides[0]] },
                b: if tb { [1, lead[1], strides[1]] } else { [lead[1], 1, strides[1]] },
            },
            conv: ConvParams::default(),
            is_vectorizable: is_aligned(8),
            is_vec4: is_aligned(4),
            im2col: None,
            lens: [a_len, b_len, n as usize, y_len],
        }
    }

    /// Describes a convolution, or one of its gradients, as a problem for kernel selection.
    pub fn conv(p: &Conv2d, pass: Pass) -> Self {
        let ([images, h, w, c], [_, oh, ow, o]) = (p.x(), p.y());
        let ([_, kh, kw, inputs], groups) = (p.w(), p.group_count());
        let (outputs, taps) = (o / groups, kh * kw);
        let len = |shape: [u32; 4]| shape.into_iter().product::<u32>() as usize;
        let (pixels, x_len, w_len, y_len) = (images * oh * ow, len(p.x()), len(p.w()), len(p.y()));
        // True if each operand's contiguous elements can be read as vectors. Forward, only inputs are contiguous.
        let contiguous = if pass == Pass::Forward { [inputs; 2] } else { [inputs, outputs] };
        let is_aligned = |len: u32| contiguous.iter().all(|channels| channels.is_multiple_of(len));
        let filter = taps * inputs;
        let (simt, shape, ldy, y_stride, strides, lens) = match pass {
            Pass::Forward => {
                let strides = OperandStrides { b: [1, filter, outputs * filter], ..OperandStrides::default() };
                (
                    1,
                    GemmShape { m: pixels, n: outputs, k: filter },
                    o,
                    outputs,
                    strides,
                    [x_len, w_len, o as usize, y_len],
                )
            }
            Pass::Data => {
                let shape = GemmShape { m: images * h * w, n: inputs, k: taps * outputs };
                (2, shape, c, inputs, OperandStrides::default(), [y_len, w_len, c as usize, x_len])
            }
            Pass::Weight => {
                // Results of a group follow those of the group before.
                let shape = GemmShape { m: outputs, n: filter, k: pixels };
                (3, shape, filter, outputs * filter, OperandStrides::default(), [y_len, x_len, 0, w_len])
            }
        };
        let im2col = im2col(p, pass);
        Self {
            kind: GemmKind::Conv(pass),
            simt: &SIMT[simt],
            shape,
            stored_columns: shape.n,
            min_splits: 1,
            batch: groups,
            ldy,
            y_stride,
            bias_stride: y_stride,
            placement: ResultPlacement::default(),
            strides,
            conv: ConvParams {
                x: [h, w, c],
                y: [oh, ow, o],
                kernel: [kh, kw],
                stride: p.strides(),
                pad: p.padding(),
                dilation: p.dilations(),
                inputs,
                outputs,
            },
            is_vectorizable: is_aligned(8),
            is_vec4: is_aligned(4),
            im2col,
            lens,
        }
    }

    /// Describes one phase of the gradient of a strided convolution with respect to its input.
    pub fn data_phase(p: &Conv2d, phase: &DataPhase) -> Self {
        let ([images, h, w, c], [rows, columns]) = (p.x(), phase.size);
        let problem = Self::conv(p, Pass::Data);
        let ConvParams { outputs, .. } = problem.conv;
        // Negative paddings wrap, and wrap back in the kernels' signed sums.
        let pad = phase.pad.map(i32::cast_unsigned);
        let conv = ConvParams {
            x: [rows, columns, c],
            kernel: phase.kernel,
            stride: [1, 1],
            pad,
            dilation: phase.dilation,
            ..problem.conv
        };
        let [stride_h, stride_w] = p.strides();
        let placement = ResultPlacement {
            start: (phase.first[0] * w + phase.first[1]) * c,
            pixel_steps: [stride_w * c, stride_h * w * c, h * w * c],
        };
        let k = phase.kernel[0] * phase.kernel[1] * outputs;
        let shape = GemmShape { m: images * rows * columns, k, ..problem.shape };
        Self { shape, placement, conv, im2col: phase.im2col(p), ..problem }
    }

    /// Returns the same problem with channels rounded up to whole boxes of TMA, which fills zeros. Kernels that load by
    /// TMA take this one.
    ///
    /// The terms of the additional channels are zeros. The additional columns of a weight gradient are dropped by the
    /// reduction of split-K.
    pub fn in_whole_boxes(&self) -> Self {
        let GemmKind::Conv(pass) = self.kind else { return *self };
        let mut whole = *self;
        let taps = self.conv.kernel[0] * self.conv.kernel[1];
        match pass {
            Pass::Forward => {
                whole.conv.inputs = self.conv.inputs.next_multiple_of(BOX_CHANNELS);
                whole.shape.k = taps * whole.conv.inputs;
            }
            Pass::Data => {
                whole.conv.outputs = self.conv.outputs.next_multiple_of(BOX_CHANNELS);
                whole.shape.k = taps * whole.conv.outputs;
            }
            Pass::Weight => {
                whole.conv.inputs = self.conv.inputs.next_multiple_of(BOX_CHANNELS);
                whole.shape.n = taps * whole.conv.inputs;
            }
        }
        whole
    }

    /// Returns the number of results of all matrices of the batch, with columns of padding.
    pub fn result_count(&self) -> usize {
        self.shape.m as usize * self.shape.n as usize * self.batch as usize
    }

    /// Returns true if results follow each other in y without gaps.
    pub fn is_dense(&self) -> bool {
        let GemmShape { m, n, .. } = self.shape;
        self.placement.pixel_steps == [0; 3]
            && self.placement.start.is_multiple_of(8)
            && self.ldy == n
            && (self.batch == 1 || self.y_stride == m * n)
    }

    /// Returns true if a box of TMA has channels that the tensor does not have.
    pub fn has_partial_boxes(&self) -> bool {
        let whole = self.in_whole_boxes();
        [whole.shape.n, whole.shape.k] != [self.shape.n, self.shape.k]
    }

    /// Returns true if TMA can load the operands: the matrices of a batch are contiguous.
    pub fn has_tma_tiles(&self) -> bool {
        self.tma_tiles(TileShape::new(64, 64), [0; 2])
            .iter()
            .all(|one| one.strides[1] >= one.strides[0] * u64::from(one.sizes[1]))
    }

    /// Returns both operands, matrices at these addresses, as TMA tiles of 64 of k.
    fn tma_tiles(&self, tile: TileShape, at: [u64; 2]) -> [Tiled; 2] {
        let GemmShape { m, n, k } = self.shape;
        let OperandStrides { a, b } = self.strides;
        // Elements from one row (m of a, n of b) and one k to the next, and from matrix to matrix.
        [(at[0], m, a, tile.m), (at[1], n, [b[1], b[0], b[2]], tile.n)].map(|(at, rows, [row, step, matrix], tile)| {
            let along_k = step == 1;
            let (sizes, lead) = if along_k { ([k, rows, self.batch], row) } else { ([rows, k, self.batch], step) };
            // With one matrix the distance to the next is never used, but must be one.
            let [lead, matrix] = [lead, matrix].map(|elements| 2 * u64::from(elements));
            let matrix = if self.batch == 1 { lead * u64::from(sizes[1]) } else { matrix };
            Tiled { at, sizes, strides: [lead, matrix], tile: [64, if along_k { tile } else { 64 }, 1] }
        })
    }

    /// Returns the tensor maps of both operands at these addresses.
    pub fn tensor_maps(&self, gpu: &Gpu, tile: TileShape, at: [u64; 2]) -> Result<[TensorMap; 2], Error> {
        let GemmKind::Conv(pass) = self.kind else {
            let [a, b] = self.tma_tiles(tile, at);
            return Ok([gpu.tensor_map(&a)?, gpu.tensor_map(&b)?]);
        };
        let im2col = |at, pixels| {
            let moving = self.im2col.expect("a convolution that TMA can bring");
            gpu.im2col_map(&Im2col { at, pixels, ..moving })
        };
        let matrices = |at, sizes: [u32; 3], tile| {
            let row = 2 * u64::from(sizes[0]);
            gpu.tensor_map(&Tiled { at, sizes, strides: [row, row * u64::from(sizes[1])], tile })
        };
        let ConvParams { kernel, inputs, y: [_, _, all], .. } = self.conv;
        let taps = kernel[0] * kernel[1];
        // Channels that the tensors have, which may be fewer than those of whole boxes.
        let channels = self.im2col.map_or(0, |window| window.sizes[0]);
        Ok(match pass {
            Pass::Forward => {
                let w = [channels / self.batch, taps, all];
                [im2col(at[0], tile.m)?, matrices(at[1], w, [64, 1, tile.n])?]
            }
            Pass::Data => [im2col(at[0], tile.m)?, matrices(at[1], [inputs, taps, channels], [64, 1, 64])?],
            Pass::Weight => [matrices(at[0], [all, self.shape.k, 1], [64, 64, 1])?, im2col(at[1], 64)?],
        })
    }
}

/// Channels of a box that TMA loads in im2col mode: 128 bytes, its widest swizzle.
const BOX_CHANNELS: u32 = 64;
/// Pixels above which a sum over pixels can have two splits, which are multiples of 64. A weight gradient with columns of
/// padding needs them, because the reduction drops these.
pub const MIN_SPLIT_PIXELS: u32 = 128;

/// Returns true if TMA can load that many channels of a group. Beyond the channels of one group of several are those of
/// the next instead of zeros.
fn fits_boxes(channels: u32, groups: u32) -> bool {
    channels != 0 && channels.is_multiple_of(if groups == 1 { 8 } else { BOX_CHANNELS })
}

/// Returns the im2col window over x, or over dy with reversed taps, if TMA can load it. That needs multiples of 8
/// channels (of 64 with groups), and stride 1 in the data pass.
fn im2col(p: &Conv2d, pass: Pass) -> Option<Im2col> {
    let ([images, h, w, c], [_, oh, ow, _], [_, kh, kw, inputs]) = (p.x(), p.y(), p.w());
    let ([stride_h, stride_w], [pad_h, pad_w], [dilation_h, dilation_w]) = (p.strides(), p.padding(), p.dilations());
    let padding = [i32::try_from(pad_h).ok()?, i32::try_from(pad_w).ok()?];
    if pass == Pass::Data {
        let axis = |axis: usize| AxisPhase {
            first: 0,
            size: [h, w][axis],
            taps: [kh, kw][axis],
            first_tap: 0,
            tap_step: 1,
            pad: padding[axis],
            dilation: [dilation_h, dilation_w][axis],
        };
        return DataPhase::new([axis(0), axis(1)]).im2col(p).filter(|_| [stride_h, stride_w] == [1, 1]);
    }
    if pass == Pass::Weight && !inputs.is_multiple_of(BOX_CHANNELS) && images * oh * ow <= MIN_SPLIT_PIXELS {
        return None;
    }
    let reach = [(kw - 1).checked_mul(dilation_w)?, (kh - 1).checked_mul(dilation_h)?];
    let (first, step) = ([-padding[1], -padding[0]], [stride_w, stride_h]);
    let window = Im2col { at: 0, sizes: [c, w, h, images], first, counts: [ow, oh], step, pixels: 0 };
    (fits_boxes(inputs, p.group_count()) && window.fits(reach)).then_some(window)
}

/// Rows (or columns) of x at one distance from a multiple of the stride, and the taps that read them.
///
/// The gradient of row u is the sum over taps i of dy at (u + pad - dilation · i) / stride, where the division has no
/// remainder. All rows of a phase have the same taps, and there the division is a shift: a convolution of stride 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct AxisPhase {
    first: u32,
    size: u32,
    taps: u32,
    first_tap: u32,
    tap_step: u32,
    pad: i32,
    dilation: u32,
}

impl AxisPhase {
    /// Returns the phase of the rows first, first + stride, …; `None` if a number does not fit.
    fn new(first: u32, size: u32, taps: u32, [stride, dilation, pad]: [u32; 3]) -> Option<Self> {
        let shared = greatest_common_divisor(stride, dilation);
        let tap_step = stride / shared;
        let distance = |tap: u32| i64::from(first) + i64::from(pad) - i64::from(tap) * i64::from(dilation);
        let first_tap = (0..taps.min(tap_step)).find(|&tap| distance(tap).rem_euclid(i64::from(stride)) == 0);
        let size = size.saturating_sub(first).div_ceil(stride);
        let none = Self { first, size, tap_step, dilation: 1, ..Self::default() };
        let Some(first_tap) = first_tap else { return Some(none) };
        let pad = i32::try_from(distance(first_tap) / i64::from(stride)).ok()?;
        let taps = (taps - first_tap).div_ceil(tap_step);
        Some(Self { taps, first_tap, pad, dilation: dilation / shared, ..none })
    }
}

const fn greatest_common_divisor(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// One phase of the gradient of a strided convolution with respect to its input: the pixels of x at one distance from
/// multiples of the stride. Pairs are of rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataPhase {
    /// First pixel.
    pub first: [u32; 2],
    /// Number of rows and columns of the phase.
    pub size: [u32; 2],
    /// Number of taps that read its pixels.
    pub kernel: [u32; 2],
    /// First of these taps.
    pub first_tap: [u32; 2],
    /// Distance to the next.
    pub tap_step: [u32; 2],
    /// Padding of the phase's convolution of stride 1; negative if it reads dy further on.
    pub pad: [i32; 2],
    /// Dilation of the phase's convolution.
    pub dilation: [u32; 2],
}

impl DataPhase {
    fn new([rows, columns]: [AxisPhase; 2]) -> Self {
        Self {
            first: [rows.first, columns.first],
            size: [rows.size, columns.size],
            kernel: [rows.taps, columns.taps],
            first_tap: [rows.first_tap, columns.first_tap],
            tap_step: [rows.tap_step, columns.tap_step],
            pad: [rows.pad, columns.pad],
            dilation: [rows.dilation, columns.dilation],
        }
    }

    /// Returns the phases of a convolution that have pixels, or `None` if a number does not fit.
    pub fn of_conv(p: &Conv2d) -> Option<Vec<Self>> {
        let ([_, h, w, _], [_, kh, kw, _]) = (p.x(), p.w());
        let ([stride_h, stride_w], [pad_h, pad_w], [dilation_h, dilation_w]) =
            (p.strides(), p.padding(), p.dilations());
        let mut phases = vec![];
        for first_row in 0..stride_h.min(h) {
            let rows = AxisPhase::new(first_row, h, kh, [stride_h, dilation_h, pad_h])?;
            for first_column in 0..stride_w.min(w) {
                let columns = AxisPhase::new(first_column, w, kw, [stride_w, dilation_w, pad_w])?;
                phases.push(Self::new([rows, columns]));
            }
        }
        Some(phases)
    }

    /// Returns the im2col window over dy with reversed taps, if TMA can load it.
    fn im2col(&self, p: &Conv2d) -> Option<Im2col> {
        let ([images, ..], [_, oh, ow, o]) = (p.x(), p.y());
        let reach = [1, 0].map(|axis| self.kernel[axis].checked_sub(1)?.checked_mul(self.dilation[axis]));
        let reach = [reach[0]?, reach[1]?];
        let first = |axis: usize| self.pad[1 - axis].checked_sub(i32::try_from(reach[axis]).ok()?);
        let window = Im2col {
            at: 0,
            sizes: [o, ow, oh, images],
            first: [first(0)?, first(1)?],
            counts: [self.size[1], self.size[0]],
            step: [1, 1],
            pixels: 0,
        };
        let outputs = o / p.group_count();
        (fits_boxes(outputs, p.group_count()) && window.fits(reach)).then_some(window)
    }
}
