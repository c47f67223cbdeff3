//! Variants of the kernels of attention: by width of a row, and by architecture.

use super::{File, Kernel, Module, STORE};
use gradscale_core::ops::{Attention, AttentionShape};

const ATTENTION_FILE: File = file!("attention.cuh");
const TILES_FILE: File = file!("attention_tiles.cuh");

/// Kernels of attention and of its gradient for one kind of operands.
#[derive(Debug)]
pub struct AttentionKernels {
    /// Kernel of the result and of the logarithms of the rows' sums.
    pub forward: Kernel,
    /// Kernel of the gradient of the queries, which observes the gradients of weights and scores.
    pub vjp_queries: Kernel,
    /// Kernel of the gradients of keys and values.
    pub vjp_keys: Kernel,
    /// Maximum number of queries of a block of `forward` and `vjp_queries`, and of keys of a block of `vjp_keys`.
    pub rows: u32,
}

/// Number of rows of a block on tensor cores: 16 for each warp.
const TILE_ROWS: u32 = 64;
const TILE_THREADS: u32 = TILE_ROWS * 2;

/// Macro of the kernels of attention on tensor cores: name, halves of a row, stages in shared memory, architectures, then rows
/// of a step and blocks of a multiprocessor, forward and backward.
macro_rules! attention {
    ($name:literal, $head:literal, $stages:literal, $arch:expr, $steps:expr, $blocks:expr) => {{
        const FORWARD: Module = Module {
            defines: &[("HEAD", $head), ("STEP", $steps.0), ("STAGES", $stages)],
            threads: TILE_THREADS,
            blocks: $blocks.0,
            shared: 2 * ($head + 8) * (TILE_ROWS + 2 * $stages * $steps.0),
            arch: $arch,
            ..Module::new(concat!("attention_", $name), &[STORE, ATTENTION_FILE, TILES_FILE, file!("attention.cu")])
        };
        const VJP: Module = Module {
            defines: &[("HEAD", $head), ("STEP", $steps.1), ("STAGES", $stages)],
            blocks: $blocks.1,
            // Tiles of both operands, and two numbers for each query of two steps.
            shared: 2 * ($head + 8) * (2 * TILE_ROWS + 2 * $stages * $steps.1) + 2 * 2 * $steps.1 * 4,
            files: &[STORE, ATTENTION_FILE, TILES_FILE, file!("attention_vjp.cu")],
            name: concat!("attention_vjp_", $name),
            ..FORWARD
        };
        AttentionKernels {
            forward: Kernel { module: &FORWARD, entry: "attention" },
            vjp_queries: Kernel { module: &VJP, entry: "attention_vjp_queries" },
            vjp_keys: Kernel { module: &VJP, entry: "attention_vjp_keys" },
            rows: TILE_ROWS,
        }
    }};
}

/// Kernels of attention of halves, by the width of a row: 64 or 128. Those of sm_75 have one stage, since it has neither
/// asynchronous copies nor more than 64 KiB of shared memory. Steps are as long as registers and shared memory allow.
static HALVES: [[AttentionKernels; 2]; 2] = [
    [
        attention!("64", 64, 2, [80, u32::MAX], (64, 32), (4, 3)),
        attention!("128", 128, 2, [80, u32::MAX], (32, 32), (3, 2)),
    ],
    [
        attention!("64_sm75", 64, 1, [75, 79], (64, 32), (1, 1)),
        attention!("128_sm75", 128, 1, [75, 79], (32, 32), (1, 1)),
    ],
];

/// Number of warps of a block of the kernels for operands of any type, each of which has a row.
const WARPS: u32 = 8;
const ANY_MODULE: Module = Module {
    defines: &[("ATTENTION_MAX_HEAD", Attention::MAX_HEAD)],
    threads: 32 * WARPS,
    ..Module::new("attention_any", &[STORE, ATTENTION_FILE, file!("attention_any.cu")])
};
static ANY: AttentionKernels = AttentionKernels {
    forward: Kernel { module: &ANY_MODULE, entry: "attention_any" },
    vjp_queries: Kernel { module: &ANY_MODULE, entry: "attention_any_vjp_queries" },
    vjp_keys: Kernel { module: &ANY_MODULE, entry: "attention_any_vjp_keys" },
    rows: WARPS,
};

impl AttentionKernels {
    /// Returns the kernels for an attention, on tensor cores if all operands are halves.
    pub fn new(p: &Attention, are_halves: bool, arch: u32) -> &'static Self {
        if !are_halves {
            return &ANY;
        }
        let by_width = &HALVES[usize::from(arch < 80)];
        let AttentionShape { depth, width, .. } = p.shape();
        &by_width[usize::from(depth.max(width) > 64)]
    }

    /// Returns the number of blocks for this number of rows of each matrix.
    pub fn blocks(&self, batch: u32, rows: u32) -> u32 {
        batch * rows.div_ceil(self.rows)
    }

    /// Returns all kernels of attention.
    pub(super) fn list_all() -> impl Iterator<Item = &'static Kernel> {
        let all = HALVES.as_flattened().iter().chain([&ANY]);
        all.flat_map(|kernels| [&kernels.forward, &kernels.vjp_queries, &kernels.vjp_keys])
    }
}
