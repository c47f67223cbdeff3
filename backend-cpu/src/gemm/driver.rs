//! Driver of one product: divides its rows into tasks of some blocks, multiplies them, and stores them through the
//! epilogue.

#[cfg(target_arch = "x86_64")]
use super::amx;
#[cfg(target_arch = "x86_64")]
use super::blocking::TARGET_BLOCKS;
use super::{
    pack::{Matrix, Packed},
    sizes,
};
use crate::{
    Cpu,
    epilogue::{Epilogue, OutputSlice},
    stats_accumulator::StatsAccumulator,
    threading::Cost,
};
use gradscale_core::ops::GemmShape;
#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;

/// Matrix B of a product, packed for the kernel that reads it.
pub enum PackedB<'a> {
    F32(Packed<'a>),
    /// Pairs of bf16 for AMX. The f32 panels are packed on first use, for blocks of A that are not finite.
    #[cfg(target_arch = "x86_64")]
    Bf16Pairs(crate::arch::amx::Amx, amx::Bf16Panels<'a>, OnceLock<Packed<'a>>),
}

impl<'a> PackedB<'a> {
    /// Packs the matrix B for AMX where that is worthwhile, otherwise as f32.
    pub fn new(cpu: &'a Cpu, b: Matrix<'_>, shape: GemmShape) -> Self {
        let [_, n, k] = sizes(shape);
        #[cfg(target_arch = "x86_64")]
        if let Some(unit) = cpu.isa().amx()
            && amx::is_worthwhile(shape)
            && let Some(halves) = amx::F16Matrix::from_matrix(b)
            && let Some(panels) = amx::Bf16Panels::new(cpu, unit, halves, k, n)
        {
            return Self::Bf16Pairs(unit, panels, OnceLock::new());
        }
        Self::F32(Packed::new(cpu, &[b], k, n))
    }
}

/// Driver of one matrix product: operands, bias and epilogue.
pub struct GemmDriver<'a, 'cpu> {
    pub cpu: &'cpu Cpu,
    pub a: Matrix<'a>,
    pub b: &'a PackedB<'cpu>,
    /// Matrix B as it is stored, not packed.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only the matrix unit comes back to it"))]
    pub stored_b: Matrix<'a>,
    pub m: usize,
    pub n: usize,
    pub bias: Option<&'a [f32]>,
    /// Number of elements from one row of the result to the next.
    pub ldy: usize,
    pub epilogue: &'a Epilogue,
}

impl GemmDriver<'_, '_> {
    /// Computes and stores the product. Returns the statistics of its blocks in order, which are the same for every
    /// number of threads.
    pub fn multiply_and_store(&self, y: OutputSlice<'_>, cost: Cost) -> Vec<StatsAccumulator> {
        let (block, threads) = (self.mc(), if self.cpu.is_serial(cost) { 1 } else { self.cpu.thread_pool().count() });
        let [first, rows] = self.blocks_per_task(block, threads).map(|blocks| block * blocks);
        let task = |i: usize, part: OutputSlice<'_>| {
            let start = if i == 0 { 0 } else { first + (i - 1) * rows };
            self.run_task(start, if i == 0 { first.min(self.m) } else { rows.min(self.m - start) }, block, part)
        };
        y.par_chunks_with_first(self.cpu, cost, [first * self.ldy, rows * self.ldy], task)
            .into_iter()
            .flatten()
            .collect()
    }

    /// Returns the number of rows of A in a block of the GEMM.
    fn mc(&self) -> usize {
        match self.b {
            PackedB::F32(b) => b.mc(self.cpu.isa(), self.m),
            #[cfg(target_arch = "x86_64")]
            PackedB::Bf16Pairs(..) => self.m.div_ceil(TARGET_BLOCKS).next_multiple_of(amx::MR).min(amx::MC),
        }
    }

    /// Returns the number of blocks of the product's first task, and of every other task, distributed evenly over the
    /// threads. The first task takes fewer where they do not divide evenly, because the last block is already short.
    fn blocks_per_task(&self, block: usize, threads: usize) -> [usize; 2] {
        let max_blocks = match self.b {
            PackedB::F32(b) => (b.rows_per_task() / block).max(1),
            #[cfg(target_arch = "x86_64")]
            PackedB::Bf16Pairs(..) => 1,
        };
        let blocks = self.m.div_ceil(block);
        let blocks_per_task = blocks.div_ceil(blocks.div_ceil(max_blocks).next_multiple_of(threads));
        [(blocks - 1) % blocks_per_task + 1, blocks_per_task]
    }

    /// Multiplies and stores `rows` rows of the result from `start` on, block by block.
    fn run_task(&self, start: usize, rows: usize, block: usize, mut y: OutputSlice<'_>) -> Vec<StatsAccumulator> {
        let isa = self.cpu.isa();
        let subblock = match self.b {
            PackedB::F32(b) => b.rows_per_subblock(isa, self.a, block),
            #[cfg(target_arch = "x86_64")]
            PackedB::Bf16Pairs(..) => None,
        };
        let [span, subblock] = subblock.map_or([rows; 2], |height| [block, height.min(rows)]);
        let packed_len = match self.b {
            PackedB::F32(b) => b.packed_a_len(isa, self.a, subblock),
            #[cfg(target_arch = "x86_64")]
            PackedB::Bf16Pairs(..) => 0,
        };
        let (mut sums, mut packed) = (self.cpu.workspace(subblock * self.n), self.cpu.workspace(packed_len));
        let mut stats = Vec::new();
        for first in (0..rows).step_by(span) {
            let end = rows.min(first + span);
            for from in (first..end).step_by(subblock) {
                let sums = &mut sums[..subblock.min(end - from) * self.n];
                self.multiply_rows(start + from, &mut packed, sums);
                for (from, sums) in (from..).step_by(block).zip(sums.chunks_mut(block * self.n)) {
                    // Sums of values depend on how rows are grouped, counts do not.
                    if stats.is_empty() || self.epilogue.has_moments() {
                        stats.push(self.epilogue.new_accumulator());
                    }
                    let end = y.len().min((from + sums.len() / self.n) * self.ldy);
                    if let Some(row) = stats.last_mut() {
                        self.finish_rows(sums, y.range(from * self.ldy..end), row);
                    }
                }
            }
        }
        stats
    }

    /// Computes rows `first..` of the product and overwrites `sums`. `packed` has the length [`Packed::packed_a_len`].
    fn multiply_rows(&self, first: usize, packed: &mut [f32], sums: &mut [f32]) {
        match self.b {
            PackedB::F32(b) => self.cpu.multiply_block(self.a, first, b, packed, sums),
            #[cfg(target_arch = "x86_64")]
            PackedB::Bf16Pairs(unit, panels, f32_b) => {
                if !amx::F16Matrix::from_matrix(self.a)
                    .is_some_and(|a| self.cpu.multiply_block_amx(*unit, a, first, panels, sums))
                {
                    let [k, n] = panels.size();
                    let b = f32_b.get_or_init(|| Packed::new_on_this_thread(self.cpu, &[self.stored_b], k, n));
                    let mut packed = self.cpu.workspace(b.packed_a_len(self.cpu.isa(), self.a, sums.len() / n));
                    self.cpu.multiply_block(self.a, first, b, &mut packed, sums);
                }
            }
        }
    }

    /// Adds the bias to rows of sums and stores them through the epilogue.
    fn finish_rows(&self, sums: &mut [f32], mut y: OutputSlice<'_>, row: &mut StatsAccumulator) {
        if let Some(bias) = self.bias {
            for sums in sums.chunks_exact_mut(self.n) {
                sums.iter_mut().zip(bias).for_each(|(sum, bias)| *sum += bias);
            }
        }
        // Contiguous rows are stored as one.
        let len = if self.ldy == self.n { sums.len() } else { self.n };
        for (i, sums) in sums.chunks_mut(len).enumerate() {
            self.epilogue.finish_block(sums, y.range(i * self.ldy..i * self.ldy + sums.len()), row);
        }
    }
}
