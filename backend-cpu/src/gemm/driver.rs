//! One product: tasks of some blocks of its rows each, which are formed and finished.

#[cfg(target_arch = "x86_64")]
use super::amx;
#[cfg(target_arch = "x86_64")]
use super::blocking::BLOCKS;
use super::pack::{Matrix, Packed};
use crate::{
    Cpu,
    epilogue::{Epilogue, Part},
    stats_accumulator::Seen,
    threading::Cost,
};
#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;

/// b, packed for the kernels that take it.
pub enum B<'a> {
    Plain(Packed<'a>),
    /// For the matrix unit, and for the others where they are wanted first.
    #[cfg(target_arch = "x86_64")]
    Halves(crate::arch::amx::Amx, amx::Panels<'a>, OnceLock<Packed<'a>>),
}

impl<'a> B<'a> {
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "only the matrix unit minds"))]
    pub fn new(cpu: &'a Cpu, b: Matrix<'_>, [m, k, n]: [usize; 3]) -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(unit) = cpu.isa().amx()
            && amx::worthwhile([m, k, n])
            && let Some(halves) = amx::Halves::of(b)
            && let Some(panels) = amx::Panels::new(cpu, unit, halves, k, n)
        {
            return Self::Halves(unit, panels, OnceLock::new());
        }
        Self::Plain(Packed::new(cpu, &[b], k, n))
    }
}

/// A product of `m` rows and `n` columns, and what becomes of its results.
pub struct Product<'a, 'cpu> {
    pub cpu: &'cpu Cpu,
    pub a: Matrix<'a>,
    pub b: &'a B<'cpu>,
    /// b as it lies in memory.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only the matrix unit comes back to it"))]
    pub stored_b: Matrix<'a>,
    pub m: usize,
    pub n: usize,
    pub bias: Option<&'a [f32]>,
    /// Results from one row to the next.
    pub ldy: usize,
    pub epilogue: &'a Epilogue,
}

impl Product<'_, '_> {
    /// Makes all results; their rows of statistics, which come to the same for every number of threads.
    pub fn run(&self, y: Part<'_>, cost: Cost) -> Vec<Seen> {
        let (block, threads) =
            (self.block(), if self.cpu.is_serial(cost) { 1 } else { self.cpu.thread_pool().count() });
        let [first, rows] = self.together(block, threads).map(|blocks| block * blocks);
        let task = |i: usize, part: Part<'_>| {
            let start = if i == 0 { 0 } else { first + (i - 1) * rows };
            self.task(start, if i == 0 { first.min(self.m) } else { rows.min(self.m - start) }, block, part)
        };
        y.each_after(self.cpu, cost, [first * self.ldy, rows * self.ldy], task).into_iter().flatten().collect()
    }

    /// Rows of a block.
    fn block(&self) -> usize {
        match self.b {
            B::Plain(b) => b.rows_of_block(self.cpu.isa(), self.m),
            #[cfg(target_arch = "x86_64")]
            B::Halves(..) => self.m.div_ceil(BLOCKS).next_multiple_of(amx::HEIGHT).min(amx::ROWS),
        }
    }

    /// How many blocks of so many rows the first task takes and how many every other, shared evenly by so many threads. The
    /// first takes fewer where they do not come out even, as the last block of all is short.
    fn together(&self, block: usize, threads: usize) -> [usize; 2] {
        let most = match self.b {
            B::Plain(b) => (b.rows_of_task() / block).max(1),
            #[cfg(target_arch = "x86_64")]
            B::Halves(..) => 1,
        };
        let blocks = self.m.div_ceil(block);
        let together = blocks.div_ceil(blocks.div_ceil(most).next_multiple_of(threads));
        [(blocks - 1) % together + 1, together]
    }

    /// Makes so many rows from one on, by blocks of so many.
    fn task(&self, start: usize, rows: usize, block: usize, mut y: Part<'_>) -> Vec<Seen> {
        let isa = self.cpu.isa();
        let at_once = match self.b {
            B::Plain(b) => b.rows_at_once(isa, self.a, block),
            #[cfg(target_arch = "x86_64")]
            B::Halves(..) => None,
        };
        let [span, at_once] = at_once.map_or([rows; 2], |height| [block, height.min(rows)]);
        let room = match self.b {
            B::Plain(b) => b.room(isa, self.a, at_once),
            #[cfg(target_arch = "x86_64")]
            B::Halves(..) => 0,
        };
        let (mut sums, mut packed) = (self.cpu.workspace(at_once * self.n), self.cpu.workspace(room));
        let mut seen = Vec::new();
        for first in (0..rows).step_by(span) {
            let end = rows.min(first + span);
            for from in (first..end).step_by(at_once) {
                let sums = &mut sums[..at_once.min(end - from) * self.n];
                self.multiply(start + from, &mut packed, sums);
                for (from, sums) in (from..).step_by(block).zip(sums.chunks_mut(block * self.n)) {
                    // Sums of values depend on how rows are grouped, counts do not.
                    if seen.is_empty() || self.epilogue.sums() {
                        seen.push(self.epilogue.row());
                    }
                    let end = y.len().min((from + sums.len() / self.n) * self.ldy);
                    if let Some(row) = seen.last_mut() {
                        self.finish(sums, y.range(from * self.ldy..end), row);
                    }
                }
            }
        }
        seen
    }

    /// Rows `first..` of the product, whatever was in their sums; `packed` has [`Packed::room`] for as many.
    fn multiply(&self, first: usize, packed: &mut [f32], sums: &mut [f32]) {
        match self.b {
            B::Plain(b) => self.cpu.block(self.a, first, b, packed, sums),
            #[cfg(target_arch = "x86_64")]
            B::Halves(unit, panels, plain) => {
                if !amx::Halves::of(self.a).is_some_and(|a| self.cpu.sums_by_tiles(*unit, a, first, panels, sums)) {
                    let [k, n] = panels.size();
                    let b = plain.get_or_init(|| Packed::alone(self.cpu, &[self.stored_b], k, n));
                    let mut packed = self.cpu.workspace(b.room(self.cpu.isa(), self.a, sums.len() / n));
                    self.cpu.block(self.a, first, b, &mut packed, sums);
                }
            }
        }
    }

    /// Stores rows of sums.
    fn finish(&self, sums: &mut [f32], mut y: Part<'_>, row: &mut Seen) {
        if let Some(bias) = self.bias {
            for sums in sums.chunks_exact_mut(self.n) {
                sums.iter_mut().zip(bias).for_each(|(sum, bias)| *sum += bias);
            }
        }
        // Rows that lie side by side are finished as one.
        let len = if self.ldy == self.n { sums.len() } else { self.n };
        for (i, sums) in sums.chunks_mut(len).enumerate() {
            self.epilogue.finish(sums, y.range(i * self.ldy..i * self.ldy + sums.len()), row);
        }
    }
}
