//! Variants of the GEMM kernels: by operand layout, convolution pass, tile and instructions (mma.sync, wgmma, SIMT).

use super::{File, Kernel, Module, STORE};

/// Tile: the rows and columns of results that a block computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileShape {
    /// Number of rows of the result tile that one thread block computes.
    pub m: u32,
    /// Number of columns of the result tile that one thread block computes.
    pub n: u32,
}

impl TileShape {
    pub(crate) const fn new(m: u32, n: u32) -> Self {
        Self { m, n }
    }
}

/// Grid of a block's warps along the rows and columns of its tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarpGrid {
    /// Number of warps along the rows of the tile.
    pub m: u32,
    /// Number of warps along the columns of the tile.
    pub n: u32,
}

impl WarpGrid {
    pub(crate) const fn new(m: u32, n: u32) -> Self {
        Self { m, n }
    }
}

const IMPLICIT_GEMM: File = file!("implicit_gemm.cuh");
const OPERAND_SWAP: File = file!("operand_swap.cuh");
const WARPGROUP: File = file!("warpgroup.cuh");
const WGMMA_STAGES: File = file!("wgmma.cuh");

/// Macro that hands the layout of a product's operands to a macro of kernels: mode, and whether a and b are contiguous
/// along k.
macro_rules! layout {
    ($kernels:ident, $name:literal, $mode:literal, $a:literal, $b:literal) => {
        $kernels!($name, [("MODE", $mode), ("A_K_CONTIGUOUS", $a), ("B_K_CONTIGUOUS", $b)])
    };
}
macro_rules! matrices {
    ($kernels:ident) => {
        [
            layout!($kernels, "gemm", 0, 1, 0),
            layout!($kernels, "gemm_ta", 0, 0, 0),
            layout!($kernels, "gemm_tb", 0, 1, 1),
            layout!($kernels, "gemm_ta_tb", 0, 0, 1),
        ]
    };
}
macro_rules! convolutions {
    ($kernels:ident) => {
        [
            layout!($kernels, "forward", 1, 1, 1),
            layout!($kernels, "data", 2, 1, 0),
            layout!($kernels, "weight", 3, 0, 0),
        ]
    };
}

macro_rules! swapped {
    ($kernel:ident) => {
        $kernel!("weight_t", [("MODE", 3), ("A_K_CONTIGUOUS", 0), ("B_K_CONTIGUOUS", 0), ("SWAP_AB", 1)])
    };
}

/// Macro of an `mma.sync` kernel with one tile: name, rows, columns, warps along each, whether operands come in aligned
/// eights.
macro_rules! mma_sync {
    ($name:literal, [$($layout:expr),*], $tile:literal, $m:literal, $n:literal, $warps:expr, $wide:literal) => {
        Kernel {
            module: &Module {
                defines: &[$($layout,)* ("TILE_M", $m), ("TILE_N", $n), ("WARPS_M", $warps.0), ("WARPS_N", $warps.1),
                    ("VECTORIZED", $wide)],
                threads: 32 * $warps.0 * $warps.1,
                // 128 registers, or 255 where a warp has 64 × 64 sums.
                blocks: if $n == 256 { 1 } else { 16 / ($warps.0 * $warps.1) },
                // Three stages of both operands, each in the larger of its layouts.
                shared: 3 * 80 * ($m + $n),
                // Two stages, because loads wait in registers. So a T4, which has 64 KiB, holds two blocks of 128 × 64.
                shared_sm75: Some(2 * 80 * ($m + $n)),
                arch: [if $n == 256 { 80 } else { 75 }, u32::MAX],
                ..Module::new(concat!("mma_sync_", $name, "_", $tile), &[STORE, IMPLICIT_GEMM, file!("mma_sync.cu")])
            },
            entry: "mma_sync_gemm",
        }
    };
}
macro_rules! tiles {
    ($name:literal, $layout:tt) => {
        [
            mma_sync!($name, $layout, "128x128", 128, 128, (2, 4), 1),
            mma_sync!($name, $layout, "128x64", 128, 64, (2, 2), 1),
            mma_sync!($name, $layout, "64x128", 64, 128, (1, 4), 1),
            mma_sync!($name, $layout, "64x64", 64, 64, (2, 2), 1),
            mma_sync!($name, $layout, "64x64_any", 64, 64, (2, 2), 0),
            mma_sync!($name, $layout, "128x256", 128, 256, (2, 4), 1),
        ]
    };
}
/// Macro of an `mma.sync` kernel of operands of eight bits with one tile: mode (0: matrices, 2: convolution), formats of a
/// and b (1: E4M3), rows, columns, warps along each, blocks of a multiprocessor.
macro_rules! mma_fp8 {
    ($name:literal, $mode:literal, $a:literal, $b:literal, $tile:literal, $m:literal, $n:literal, $warps:expr,
        $blocks:literal) => {
        Kernel {
            module: &Module {
                defines: &[
                    ("MODE", $mode),
                    ("A_IS_E4M3", $a),
                    ("B_IS_E4M3", $b),
                    ("TILE_M", $m),
                    ("TILE_N", $n),
                    ("WARPS_M", $warps.0),
                    ("WARPS_N", $warps.1),
                    ("PROMOTION_PAIRS", PROMOTION_K / 2),
                ],
                threads: 32 * $warps.0 * $warps.1,
                blocks: $blocks,
                // Three stages of both operands: rows of 32 pairs and 16 bytes of padding.
                shared: 3 * 80 * ($m + $n),
                arch: [89, u32::MAX],
                ..Module::new(
                    concat!("mma_fp8_", $name, "_", $tile),
                    &[STORE, IMPLICIT_GEMM, file!("fp8.cuh"), file!("mma_fp8.cu")],
                )
            },
            entry: "mma_fp8_gemm",
        }
    };
}
macro_rules! mma_fp8_tiles {
    ($name:literal, $a:literal, $b:literal) => {
        [
            // A thread has 64 sums of each kind, so one block has all registers.
            mma_fp8!($name, 0, $a, $b, "128x128", 128, 128, (2, 4), 1),
            // 170 registers, because sm_90 unpacks bytes to halves in others.
            mma_fp8!($name, 0, $a, $b, "64x64", 64, 64, (2, 2), 3),
        ]
    };
}
macro_rules! mma_fp8_conv_tiles {
    ($name:literal, $a:literal, $b:literal) => {
        [
            // With the addresses of pixels, 128 columns would spill registers on sm_90.
            mma_fp8!($name, 2, $a, $b, "128x64", 128, 64, (4, 2), 1),
            mma_fp8!($name, 2, $a, $b, "64x64", 64, 64, (2, 2), 3),
        ]
    };
}

macro_rules! simt {
    ($name:literal, [$mode:expr, $a:expr, $b:expr]) => {
        Kernel {
            module: &Module {
                defines: &[$mode],
                ..Module::new(concat!("simt_", $name), &[STORE, IMPLICIT_GEMM, file!("simt.cu")])
            },
            entry: "simt_gemm",
        }
    };
}

macro_rules! simt_vec4 {
    ($name:literal, [("MODE", $mode:literal), $a:expr, $b:expr]) => {
        Kernel {
            module: &Module {
                defines: &[("MODE", $mode), $a, $b],
                // Two blocks leave 128 registers, in which the addresses of a data pass (mode 2) do not fit on sm_100.
                blocks: if $mode == 2 { 1 } else { 2 },
                // Two buffers of both operands, 16 of k.
                shared: 2 * 2 * 16 * (128 + 4) * 4,
                ..Module::new(concat!("simt_vec4_", $name), &[STORE, IMPLICIT_GEMM, file!("simt_vec4.cu")])
            },
            entry: "simt_vec4_gemm",
        }
    };
}

/// Macro of a warpgroup kernel with one tile: as `tensor`, one warpgroup for each 64 rows.
macro_rules! wgmma {
    ($name:literal, [$($layout:expr),*], $tile:literal, $m:literal, $n:literal) => {
        Kernel {
            module: &Module {
                defines: &[$($layout,)* ("TILE_M", $m), ("TILE_N", $n)],
                threads: 2 * $m,
                // Three stages of both operands, 64 of k.
                shared: 3 * 128 * ($m + $n),
                arch: [90, 90],
                ..Module::new(concat!("wgmma_", $name, "_", $tile), &[STORE, WARPGROUP, IMPLICIT_GEMM, OPERAND_SWAP, WGMMA_STAGES, file!("wgmma.cu")])
            },
            entry: "wgmma",
        }
    };
}
macro_rules! wgmmas {
    ($name:literal, $layout:tt) => {
        [wgmma!($name, $layout, "128x128", 128, 128), wgmma_128x64!($name, $layout)]
    };
}
macro_rules! wgmma_128x64 {
    ($name:literal, $layout:tt) => {
        wgmma!($name, $layout, "128x64", 128, 64)
    };
}

/// Macro of a warpgroup kernel whose operands four additional warps load by TMA. Its parameters are the blocks of a
/// cluster, the number of threads that store, and the columns of a tile that are in shared memory for the store:
/// epilogue warps and all columns, or the multiplying warps and some columns.
macro_rules! wgmma_tma {
    ($name:literal, [$($layout:expr),*], $tile:literal, $m:literal, $n:literal, $stages:literal, $cluster:literal,
        $threads:literal, $storers:literal, $columns:literal) => {
        Kernel {
            module: &Module {
                defines: &[$($layout,)* ("TILE_M", $m), ("TILE_N", $n), ("STAGES", $stages), ("CONSUMER_THREADS", 2 * $m),
                    ("EPILOGUE_THREADS", $storers), ("MAX_ACCUMULATION_K", MAX_ACCUMULATION_K), ("CLUSTER", $cluster)],
                threads: $threads,
                blocks: 1,
                // Stages of both operands, 64 of k; results of each warp on their way out, in the larger of their
                // layouts; two barriers for each of these.
                shared: $stages * (128 * ($m + $n) + 16) + $m / 16 * ($columns * 20 * 4 + 16),
                arch: [90, 90],
                ..Module::new(
                    concat!("wgmma_tma_", $name, "_", $tile),
                    &[
                        STORE,
                        WARPGROUP,
                        file!("cluster.cuh"),
                        IMPLICIT_GEMM,
                        OPERAND_SWAP,
                        WGMMA_STAGES,
                        file!("tma.cuh"),
                        file!("epilogue_pipeline.cuh"),
                        file!("wgmma_tma.cu"),
                    ],
                )
            },
            entry: "wgmma_tma",
        }
    };
}
/// Macro of a warpgroup kernel of operands of eight bits that TMA loads: formats of a and b (1: E4M3). Its tile is 128 × 128,
/// as in [`wgmma_tma_128x128`].
macro_rules! wgmma_fp8 {
    ($name:literal, $a:literal, $b:literal) => {
        Kernel {
            module: &Module {
                defines: &[
                    ("MODE", 0),
                    ("A_K_CONTIGUOUS", 1),
                    ("B_K_CONTIGUOUS", 1),
                    ("A_IS_E4M3", $a),
                    ("B_IS_E4M3", $b),
                    ("TILE_M", 128),
                    ("TILE_N", 128),
                    ("STAGES", 4),
                    ("CONSUMER_THREADS", 256),
                    ("EPILOGUE_THREADS", 128),
                    ("CLUSTER", 1),
                    ("PROMOTION_PAIRS", PROMOTION_K / 2),
                    ("CONSUMER_REGISTERS", 168),
                ],
                threads: 512,
                blocks: 1,
                shared: 4 * (128 * (128 + 128) + 16) + 128 / 16 * (128 * 20 * 4 + 16),
                arch: [90, 90],
                ..Module::new(
                    concat!("wgmma_fp8_", $name),
                    &[
                        STORE,
                        WARPGROUP,
                        file!("fp8.cuh"),
                        file!("cluster.cuh"),
                        IMPLICIT_GEMM,
                        OPERAND_SWAP,
                        WGMMA_STAGES,
                        file!("tma.cuh"),
                        file!("epilogue_pipeline.cuh"),
                        file!("wgmma_tma.cu"),
                    ],
                )
            },
            entry: "wgmma_tma",
        }
    };
}
/// Macro of a warpgroup kernel of f32 operands, as three bfloat16 each, that TMA loads: 128 rows, and columns.
macro_rules! wgmma_bf16x6 {
    ($name:literal, [$($layout:expr),*], $tile:literal, $n:literal) => {
        Kernel {
            module: &Module {
                defines: &[$($layout,)* ("TILE_M", 128), ("TILE_N", $n), ("STAGES", 2), ("CONSUMER_THREADS", 256),
                    ("EPILOGUE_THREADS", 256), ("CLUSTER", 1), ("OPERAND_PARTS", OPERAND_PARTS),
                    ("CONSUMER_REGISTERS", 224), ("PRODUCER_REGISTERS", 56)],
                threads: 384,
                blocks: 1,
                // Two stages of three parts of both operands; for the store, 32 columns as in `wgmma_tma`.
                shared: 2 * (OPERAND_PARTS * 128 * (128 + $n) + 16) + 128 / 16 * 32 * 20 * 4,
                arch: [90, 90],
                ..Module::new(
                    concat!("wgmma_bf16x6_", $name, "_", $tile),
                    &[
                        STORE,
                        WARPGROUP,
                        file!("cluster.cuh"),
                        IMPLICIT_GEMM,
                        OPERAND_SWAP,
                        WGMMA_STAGES,
                        file!("tma.cuh"),
                        file!("epilogue_pipeline.cuh"),
                        file!("wgmma_tma.cu"),
                    ],
                )
            },
            entry: "wgmma_tma",
        }
    };
}
macro_rules! wgmma_bf16x6_128x128 {
    ($name:literal, $layout:tt) => {
        wgmma_bf16x6!($name, $layout, "128x128", 128)
    };
}
macro_rules! wgmma_bf16x6_128x64 {
    ($name:literal, $layout:tt) => {
        wgmma_bf16x6!($name, $layout, "128x64", 64)
    };
}
macro_rules! wgmma_bf16x6_tiles {
    ($name:literal, $layout:tt) => {
        [wgmma_bf16x6_128x128!($name, $layout), wgmma_bf16x6_128x64!($name, $layout)]
    };
}
macro_rules! wgmma_tma_128x128 {
    ($name:literal, $layout:tt) => {
        wgmma_tma!($name, $layout, "128x128", 128, 128, 4, 1, 512, 128, 128)
    };
}
macro_rules! wgmma_tma_128x64 {
    ($name:literal, $layout:tt) => {
        wgmma_tma!($name, $layout, "128x64", 128, 64, 7, 1, 512, 128, 64)
    };
}
macro_rules! wgmma_tmas {
    ($name:literal, $layout:tt) => {
        [wgmma_tma!($name, $layout, "128x256", 128, 256, 4, 2, 384, 256, 32), wgmma_tma_128x128!($name, $layout)]
    };
}
macro_rules! wgmma_tma_convolutions {
    ($name:literal, $layout:tt) => {
        [wgmma_tma_128x128!($name, $layout), wgmma_tma_128x64!($name, $layout)]
    };
}

/// Macro of a convolution from halo tiles: four stages of weights of 64 results and 64 of k, sums of 256 pixels × 64 results, 256
/// bytes of barriers, and two halos.
macro_rules! conv_halo {
    ($name:literal, [$($layout:expr),*]) => {
        Kernel {
            module: &Module {
                defines: &[$($layout,)* ("TILE_M", 64), ("TILE_N", 128), ("STAGES", 4), ("CONSUMER_THREADS", 256),
                    ("EPILOGUE_THREADS", 128), ("HALO_BYTES", HALO_BYTES), ("MAX_HALO_STEPS", MAX_HALO_STEPS)],
                threads: 512,
                blocks: 1,
                shared: 4 * 8192 + 256 * 64 * 4 + 256 + HALO_BYTES,
                arch: [90, 90],
                ..Module::new(
                    concat!("conv_halo_", $name),
                    &[
                        STORE,
                        WARPGROUP,
                        IMPLICIT_GEMM,
                        WGMMA_STAGES,
                        file!("conv_halo.cuh"),
                        file!("epilogue_pipeline.cuh"),
                        file!("conv_halo.cu"),
                    ],
                )
            },
            entry: "conv_halo",
        }
    };
}

/// Bytes of shared memory for the two halos of [`CONV_HALO`]: what a block of 227 KiB has beside 99 KiB of weights, sums,
/// barriers and 3 KiB of statistics.
pub const HALO_BYTES: u32 = 130_816;
/// Maximum number of K steps of [`CONV_HALO`], whose offsets are parameters of the kernel: 64 taps of 64 channels.
pub const MAX_HALO_STEPS: u32 = 256;
/// Kernels of convolutions of up to 64 summed channels from halo tiles (sm_90a alone): forward, data.
pub static CONV_HALO: [Kernel; 2] = [
    conv_halo!("forward", [("MODE", 1), ("A_K_CONTIGUOUS", 1), ("B_K_CONTIGUOUS", 1)]),
    conv_halo!("data", [("MODE", 2), ("A_K_CONTIGUOUS", 0), ("B_K_CONTIGUOUS", 1)]),
];
/// Maximum number of terms in one accumulator of tensor cores. Accumulators truncate, so long sums of one sign drift.
pub const MAX_ACCUMULATION_K: u32 = 4096;
/// Number of products of eight bits that tensor cores add before their sum is added in f32 registers. Their accumulators keep
/// about 14 bits (DeepSeek-V3 technical report, section 3.3.2, which promotes after as many).
pub const PROMOTION_K: u32 = 128;
/// Kernels of products of operands of eight bits by `mma.sync`: by format of a and of b (E5M2, E4M3) and tile.
pub static MMA_FP8: [[[Kernel; 2]; 2]; 2] = [
    [mma_fp8_tiles!("e5m2_e5m2", 0, 0), mma_fp8_tiles!("e5m2_e4m3", 0, 1)],
    [mma_fp8_tiles!("e4m3_e5m2", 1, 0), mma_fp8_tiles!("e4m3_e4m3", 1, 1)],
];
/// Kernels of convolutions of such operands, of the forward and the data pass: by format of the image and of the weights
/// (E5M2, E4M3) and tile.
pub static MMA_FP8_CONV: [[[Kernel; 2]; 2]; 2] = [
    [mma_fp8_conv_tiles!("conv_e5m2_e5m2", 0, 0), mma_fp8_conv_tiles!("conv_e5m2_e4m3", 0, 1)],
    [mma_fp8_conv_tiles!("conv_e4m3_e5m2", 1, 0), mma_fp8_conv_tiles!("conv_e4m3_e4m3", 1, 1)],
];
/// Kernels of such products by warpgroups and TMA (sm_90a alone): by format of a and of b (E5M2, E4M3).
pub static WGMMA_FP8: [[Kernel; 2]; 2] = [
    [wgmma_fp8!("e5m2_e5m2", 0, 0), wgmma_fp8!("e5m2_e4m3", 0, 1)],
    [wgmma_fp8!("e4m3_e5m2", 1, 0), wgmma_fp8!("e4m3_e4m3", 1, 1)],
];
/// Rows and columns of the tile of [`WGMMA_FP8`].
pub const WGMMA_FP8_TILE: TileShape = TileShape::new(128, 128);
/// Tiles of [`MMA_FP8`] and the warps along their rows and columns.
pub const FP8_TILES: [(TileShape, WarpGrid); 2] =
    [(TileShape::new(128, 128), WarpGrid::new(2, 4)), (TileShape::new(64, 64), WarpGrid::new(2, 2))];
/// Tiles of [`MMA_FP8_CONV`] and the warps along their rows and columns.
pub const FP8_CONV_TILES: [(TileShape, WarpGrid); 2] =
    [(TileShape::new(128, 64), WarpGrid::new(4, 2)), (TileShape::new(64, 64), WarpGrid::new(2, 2))];
/// Rows and columns of the tiles of [`MMA_SYNC_GEMM`] and [`MMA_SYNC_CONV`]; that of [`UNALIGNED_TILE`] takes operands of any
/// alignment.
pub const TILE_SHAPES: [TileShape; 6] = [
    TileShape::new(128, 128),
    TileShape::new(128, 64),
    TileShape::new(64, 128),
    TileShape::new(64, 64),
    TileShape::new(64, 64),
    TileShape::new(128, 256),
];
/// Index of the tile for operands of any alignment.
pub const UNALIGNED_TILE: usize = 4;
/// Index of the tile that has 64 × 64 results for each warp, from sm_80 on.
pub const LARGEST_TILE: usize = 5;
/// Warps along rows and columns of each tile in [`TILE_SHAPES`].
pub const TILE_WARPS: [WarpGrid; 6] = [
    WarpGrid::new(2, 4),
    WarpGrid::new(2, 2),
    WarpGrid::new(1, 4),
    WarpGrid::new(2, 2),
    WarpGrid::new(2, 2),
    WarpGrid::new(2, 4),
];
/// Kernels of matrix products of halves by `mma.sync`: by transposition (none, a, b, both) and tile.
pub static MMA_SYNC_GEMM: [[Kernel; 6]; 4] = matrices!(tiles);
/// Kernels of convolutions of halves by `mma.sync`: by pass (forward, data, weight) and tile.
pub static MMA_SYNC_CONV: [[Kernel; 6]; 3] = convolutions!(tiles);
/// Kernels of convolutions of halves by warpgroups (sm_90a alone), in the first two tiles.
pub static WGMMA_CONV: [[Kernel; 2]; 3] = convolutions!(wgmmas);
/// Products of matrices of halves by warpgroups and TMA (sm_90a alone), in the tiles of [`WGMMA_TMA_TILE_SHAPES`].
pub static WGMMA_TMA_GEMM: [[Kernel; 2]; 4] = matrices!(wgmma_tmas);
/// Convolutions of halves in the same way, in the first two tiles of [`TILE_SHAPES`].
pub static WGMMA_TMA_CONV: [[Kernel; 2]; 3] = convolutions!(wgmma_tma_convolutions);
/// Kernel of the gradient of weights with rows and columns exchanged, for few outputs, in the second tile of
/// [`TILE_SHAPES`].
pub static WGMMA_CONV_SWAPPED: [Kernel; 1] = [swapped!(wgmma_128x64)];
/// Kernels of swapped convolutions whose operands are loaded by TMA.
pub static WGMMA_TMA_CONV_SWAPPED: [Kernel; 1] = [swapped!(wgmma_tma_128x64)];
/// bfloat16 values whose sum is an f32 operand (`split_bf16.cu`).
pub const OPERAND_PARTS: u32 = 3;
/// Products of f32 matrices by six products of bfloat16 (sm_90a alone): by transposition (none, a, b, both) and tile.
pub static WGMMA_BF16X6_GEMM: [[Kernel; 2]; 4] = matrices!(wgmma_bf16x6_tiles);
/// Convolutions of f32 operands in the same way: by pass (forward, data, weight) and tile.
pub static WGMMA_BF16X6_CONV: [[Kernel; 2]; 3] = convolutions!(wgmma_bf16x6_tiles);
/// Kernel of the gradient of weights in the same way with rows and columns exchanged.
pub static WGMMA_BF16X6_CONV_SWAPPED: [Kernel; 1] = [swapped!(wgmma_bf16x6_128x64)];
/// Rows and columns of the tiles of [`WGMMA_TMA_GEMM`].
pub const WGMMA_TMA_TILE_SHAPES: [TileShape; 2] = [TileShape::new(128, 256), TileShape::new(128, 128)];
/// Blocks of a cluster for each tile in [`WGMMA_TMA_TILE_SHAPES`].
pub const WGMMA_TMA_CLUSTER_BLOCKS: [u32; 2] = [2, 1];
/// Kernels of products of any types without tensor cores, by kind: matrices, forward, data, weight.
pub static SIMT: [Kernel; 4] = [
    layout!(simt, "gemm", 0, 0, 0),
    layout!(simt, "forward", 1, 0, 0),
    layout!(simt, "data", 2, 0, 0),
    layout!(simt, "weight", 3, 0, 0),
];
/// Kernels of products of aligned f32 matrices without tensor cores: by transposition (none, a, b, both).
pub static SIMT_VEC4_GEMM: [Kernel; 4] = matrices!(simt_vec4);
/// Kernels of convolutions of aligned f32 operands without tensor cores: by pass (forward, data, weight).
pub static SIMT_VEC4_CONV: [Kernel; 3] = convolutions!(simt_vec4);
const SPLIT_K_REDUCE_MODULE: Module = Module {
    defines: &[("MODE", 0), ("ANY_MODE", 1)],
    // A thread has 256 bytes of partial sums in flight, and registers for them: one block suffices for the memory.
    blocks: 1,
    ..Module::new("split_k_reduce", &[STORE, IMPLICIT_GEMM, file!("split_k_reduce.cu")])
};
/// Kernel that adds the partial sums of a product whose k is split.
pub static SPLIT_K_REDUCE: Kernel = Kernel { module: &SPLIT_K_REDUCE_MODULE, entry: "split_k_reduce" };
