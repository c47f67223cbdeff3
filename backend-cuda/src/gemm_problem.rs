//! Description of a product that is independent of its kernel: sizes, strides and addresses of its operands, as kernels
//! and TMA need them.

use crate::{
    Error,
    gpu::{Gpu, Im2col, TensorMap, Tiled},
    kernels::{Kernel, MMA_SYNC_CONV, MMA_SYNC_GEMM, SIMT, TileShape},
};
use bytemuck::{Pod, Zeroable};
use gradscale_core::ops::{Conv2d, Gemm, GemmShape, Pass};

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

/// Product or convolution to be computed, before its kernel is selected.
#[derive(Clone, Copy)]
pub struct GemmProblem {
    pub kind: GemmKind,
    /// Kernel of [`SIMT`] for this kind of product.
    pub simt: &'static Kernel,
    pub shape: GemmShape,
    /// Columns of the result: n, or fewer where x was padded to more channels than it has.
    pub stored_columns: u32,
    pub batch: u32,
    pub ldy: u32,
    pub y_stride: u32,
    pub bias_stride: u32,
    pub strides: OperandStrides,
    pub conv: ConvParams,
    /// Groups of eight contiguous elements are aligned and either all inside the operand or all outside.
    pub is_vectorizable: bool,
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

    /// Returns the `mma.sync` kernels of this kind, which run on every device with tensor cores.
    pub fn mma_sync_kernels(self) -> &'static [Kernel; 5] {
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
        let all_multiples_of_8 = |sizes: [u32; 3]| sizes.into_iter().all(|size| size.is_multiple_of(8));
        Self {
            kind: GemmKind::Matmul([ta, tb]),
            simt: &SIMT[0],
            shape,
            stored_columns: n,
            batch: p.batch(),
            ldy: lead[2],
            y_stride: strides[2],
            bias_stride: 0,
            strides: OperandStrides {
                a: if ta { [1, lead[0], strides[0]] } else { [lead[0], 1, strides[0]] },
                b: if tb { [1, lead[1], strides[1]] } else { [lead[1], 1, strides[1]] },
            },
            conv: ConvParams::default(),
            is_vectorizable: all_multiples_of_8([if ta { m } else { k }, lead[0], strides[0]])
                && all_multiples_of_8([if tb { k } else { n }, lead[1], strides[1]]),
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
        // True if each operand's contiguous elements can be read as vectors of eight.
        let [wide_inputs, wide_outputs] = [inputs, outputs].map(|channels| channels.is_multiple_of(8));
        let filter = taps * inputs;
        let (simt, shape, ldy, y_stride, strides, is_vectorizable, lens) = match pass {
            Pass::Forward => {
                let strides = OperandStrides { b: [1, filter, outputs * filter], ..OperandStrides::default() };
                (
                    1,
                    GemmShape { m: pixels, n: outputs, k: filter },
                    o,
                    outputs,
                    strides,
                    wide_inputs,
                    [x_len, w_len, o as usize, y_len],
                )
            }
            Pass::Data => {
                let (shape, is_vectorizable) =
                    (GemmShape { m: images * h * w, n: inputs, k: taps * outputs }, wide_inputs && wide_outputs);
                (2, shape, c, inputs, OperandStrides::default(), is_vectorizable, [y_len, w_len, c as usize, x_len])
            }
            Pass::Weight => {
                // Results of a group follow those of the group before.
                let (shape, is_vectorizable) =
                    (GemmShape { m: outputs, n: filter, k: pixels }, wide_inputs && wide_outputs);
                (
                    3,
                    shape,
                    filter,
                    outputs * filter,
                    OperandStrides::default(),
                    is_vectorizable,
                    [y_len, x_len, 0, w_len],
                )
            }
        };
        let im2col = im2col(p, pass);
        Self {
            kind: GemmKind::Conv(pass),
            simt: &SIMT[simt],
            shape,
            stored_columns: shape.n,
            batch: groups,
            ldy,
            y_stride,
            bias_stride: y_stride,
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
            is_vectorizable,
            im2col,
            lens,
        }
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
        let ConvParams { kernel, inputs, outputs, y: [_, _, all], .. } = self.conv;
        let taps = kernel[0] * kernel[1];
        Ok(match pass {
            Pass::Forward => {
                let w = [taps * inputs, outputs, self.batch];
                [im2col(at[0], tile.m)?, matrices(at[1], w, [64, tile.n, 1])?]
            }
            Pass::Data => [im2col(at[0], tile.m)?, matrices(at[1], [inputs, taps, all], [64, 1, 64])?],
            Pass::Weight => [matrices(at[0], [all, self.shape.k, 1], [64, 64, 1])?, im2col(at[1], 64)?],
        })
    }
}

/// Returns the im2col window over x, or over dy with reversed taps, if TMA can load it. That needs multiples of 64
/// channels, and stride 1 in the data pass.
fn im2col(p: &Conv2d, pass: Pass) -> Option<Im2col> {
    let ([images, h, w, c], [_, oh, ow, o], [_, kh, kw, inputs]) = (p.x(), p.y(), p.w());
    let ([stride_h, stride_w], [pad_h, pad_w], [dilation_h, dilation_w]) = (p.strides(), p.padding(), p.dilations());
    let kernel_reach = [(kw - 1).checked_mul(dilation_w)?, (kh - 1).checked_mul(dilation_h)?];
    let padding = [i32::try_from(pad_w).ok()?, i32::try_from(pad_h).ok()?];
    let (pixels, channels) = if pass == Pass::Data {
        if [stride_h, stride_w] != [1, 1] {
            return None;
        }
        let back = [i32::try_from(kernel_reach[0]).ok()?, i32::try_from(kernel_reach[1]).ok()?];
        let first = [padding[0].checked_sub(back[0])?, padding[1].checked_sub(back[1])?];
        let pixels = Im2col { at: 0, sizes: [o, ow, oh, images], first, counts: [w, h], step: [1, 1], pixels: 0 };
        (pixels, o / p.group_count())
    } else {
        let (first, step) = (padding.map(|size| -size), [stride_w, stride_h]);
        (Im2col { at: 0, sizes: [c, w, h, images], first, counts: [ow, oh], step, pixels: 0 }, inputs)
    };
    (channels.is_multiple_of(64) && pixels.fits(kernel_reach)).then_some(pixels)
}
