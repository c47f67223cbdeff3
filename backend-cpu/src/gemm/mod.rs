//! Matrix products.
//!
//! b is converted and packed once, into panels as wide as a tile; every block of rows of the result packs its rows of a,
//! forms its sums in an f32 scratch, some steps of k at a time, and finishes them from there. A sum takes its terms in
//! the order of k, whatever the blocks. Products with few rows are made otherwise, see `few`, and so are those of halves
//! where there is a matrix unit, see `amx`.

#[cfg(target_arch = "x86_64")]
mod amx;
mod few;

use crate::{
    Cpu, Memory,
    arch::{Isa, LANES, Run, Tile, even},
    epilogue::{Epilogue, Part, destination, merge},
    parallel::Cost,
    scratch::Scratch,
    seen::Seen,
};
use core::ops::Range;
use gradscale_core::{backend::Store, ops::Gemm};
#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;

/// Steps of k: a panel of 64 columns takes 64 KiB, one of 16 half the first cache.
const DEPTH: usize = 256;
/// Steps of k that are few.
const SHORT: usize = 64;
/// Converted elements of a and sums that both stay in the first cache, beside b and what is written.
const NEAR: usize = 4096;
/// Most rows that a task takes of them.
const SHORT_ROWS: usize = 768;
/// Most rows of a block.
const ROWS: usize = 96;
/// Most rows that are worked on together, so that what each panel of b takes from the third cache is little, and the steps of k
/// between two visits to the accumulators: 192 KiB of a.
const BLOCKING: [usize; 2] = [192, DEPTH];
/// The same where the accumulators of all columns do not fit the second cache either: less of both from the third. 768 KiB of
/// a, as processors whose tiles are wide have second caches of a MiB and more.
const LARGE_BLOCKING: [usize; 2] = [384, 2 * DEPTH];
/// Columns of a wide tile, and of a product whose accumulators are that many.
const WIDE_TILE: usize = 64;
const MANY_COLUMNS: usize = 1024;
/// Blocks of a product that is not large.
const BLOCKS: usize = 16;

/// A matrix inside a buffer.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    pub data: &'a Memory,
    pub start: usize,
    /// Elements between rows and between columns.
    pub steps: [usize; 2],
}

impl Matrix<'_> {
    /// The transposed one.
    const fn turned(self) -> Self {
        Self { steps: [self.steps[1], self.steps[0]], ..self }
    }

    /// Whether it is stored column by column.
    const fn by_columns(self) -> bool {
        self.steps[0] == 1 && self.steps[1] != 1
    }

    /// Copies columns `from..from + out.len()` of a row, as f32.
    fn row(&self, isa: Isa, row: usize, from: usize, out: &mut [f32]) {
        let first = self.start + row * self.steps[0] + from * self.steps[1];
        if self.steps[1] == 1 {
            crate::elementwise::load(isa, self.data, first, out);
        } else {
            for (i, out) in out.iter_mut().enumerate() {
                *out = self.data.get(first + i * self.steps[1]);
            }
        }
    }
}

/// b in panels: for as many columns as a tile has (or all, if they are fewer), k rows of them.
pub struct Packed<'a> {
    data: Scratch<'a>,
    depth: usize,
    columns: usize,
    /// Columns of a panel.
    width: usize,
}

/// Rows that one thread packs at a time.
const PACKED_ROWS: usize = 64;

impl<'a> Packed<'a> {
    /// Matrices of `rows` rows each, one below the other.
    pub fn new(cpu: &'a Cpu, matrices: &[Matrix<'_>], rows: usize, columns: usize) -> Self {
        Self::of(cpu, matrices, rows, columns, Cost::elements(matrices.len() * rows * columns))
    }

    /// The same on the caller's thread, which others may wait for.
    #[cfg(target_arch = "x86_64")]
    pub fn alone(cpu: &'a Cpu, matrices: &[Matrix<'_>], rows: usize, columns: usize) -> Self {
        Self::of(cpu, matrices, rows, columns, Cost::elements(0))
    }

    fn of(cpu: &'a Cpu, matrices: &[Matrix<'_>], rows: usize, columns: usize, cost: Cost) -> Self {
        let width = columns.next_multiple_of(LANES).min(cpu.isa().tile_columns());
        let depth = matrices.len() * rows;
        let mut data = cpu.scratch(columns.next_multiple_of(width.max(1)) * depth);
        cpu.pieces_of(cost, &mut data, PACKED_ROWS * width, |i, mut out| {
            let mut row = i * PACKED_ROWS;
            // Cut where a panel or a matrix ends.
            while !out.is_empty() {
                let (panel, k) = (row / depth, row % depth);
                let count = (out.len() / width).min(rows - k % rows);
                let (here, rest) = out.split_at_mut(count * width);
                let live = panel * width..columns.min((panel + 1) * width);
                pack(cpu, matrices[k / rows], k % rows, live, width, here);
                (row, out) = (row + count, rest);
            }
        });
        Self { data, depth, columns, width }
    }
}

/// Packs rows of b from `k` on, some columns of them, `width` with zeros.
fn pack(cpu: &Cpu, b: Matrix<'_>, k: usize, columns: Range<usize>, width: usize, out: &mut [f32]) {
    if b.steps[1] == 1 {
        if let Memory::F16(data) = b.data
            && cpu.isa().widens_lanes()
        {
            let first = b.start + k * b.steps[0] + columns.start;
            return cpu.isa().pack(&data[first..], b.steps[0], columns.len(), width, out);
        }
        for (k, out) in (k..).zip(out.chunks_exact_mut(width)) {
            let (live, dead) = out.split_at_mut(columns.len());
            b.row(cpu.isa(), k, columns.start, live);
            dead.fill(0.0);
        }
        return;
    }
    // Stored by columns: read those in order.
    let mut column = [0f32; PACKED_ROWS];
    let column = &mut column[..out.len() / width];
    out.fill(0.0);
    for (c, from) in columns.enumerate() {
        b.turned().row(cpu.isa(), from, k, column);
        for (out, &v) in out.chunks_exact_mut(width).zip(column.iter()) {
            out[c] = v;
        }
    }
}

impl Packed<'_> {
    /// Rows `k..` of the panel of columns `from..`, a multiple of a panel's.
    pub fn panel(&self, k: usize, from: usize) -> &[f32] {
        &self.data[(from / self.width * self.depth + k) * self.width..]
    }

    /// Rows of a and steps of k that are worked on together.
    const fn blocking(&self) -> [usize; 2] {
        if self.width >= WIDE_TILE && self.columns >= MANY_COLUMNS { LARGE_BLOCKING } else { BLOCKING }
    }

    /// Whether rows of a are converted as one: short ones that lie side by side.
    fn side_by_side(&self, a: Matrix<'_>) -> bool {
        a.steps == [self.depth, 1] && self.depth <= SHORT
    }

    /// Elements from one converted row of a to the next; others than those shall not lie a power of two apart.
    fn lead(&self, a: Matrix<'_>) -> usize {
        if self.side_by_side(a) { self.depth } else { self.blocking()[1].min(self.depth) + LANES }
    }

    /// Elements from one row of a panel to the next.
    pub const fn step(&self) -> usize {
        self.width
    }
}

/// b, packed for the kernels that take it.
enum B<'a> {
    Plain(Packed<'a>),
    /// For the matrix unit, and for the others where they are wanted first.
    #[cfg(target_arch = "x86_64")]
    Halves(crate::arch::amx::Amx, amx::Panels<'a>, OnceLock<Packed<'a>>),
}

impl<'a> B<'a> {
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "only the matrix unit minds"))]
    fn new(cpu: &'a Cpu, b: Matrix<'_>, [m, k, n]: [usize; 3]) -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(unit) = cpu.isa().amx()
            && amx::worthwhile([m, k])
            && let Some(halves) = amx::Halves::of(b)
            && let Some(panels) = amx::Panels::new(cpu, unit, halves, k, n)
        {
            return Self::Halves(unit, panels, OnceLock::new());
        }
        Self::Plain(Packed::new(cpu, &[b], k, n))
    }

    /// How many blocks the first task takes and how many every other, of blocks of so many rows, `m` in all, shared evenly by
    /// so many threads. The first takes fewer where they do not come out even, as the last block of all is short.
    fn together(&self, block: usize, m: usize, threads: usize) -> [usize; 2] {
        let most = match self {
            // Those of short sums need no memory for all of them.
            Self::Plain(b) if b.depth <= SHORT => (SHORT_ROWS / block).max(1),
            Self::Plain(b) => (b.blocking()[0] / block).max(1),
            #[cfg(target_arch = "x86_64")]
            Self::Halves(..) => 1,
        };
        let blocks = m.div_ceil(block);
        let together = blocks.div_ceil(blocks.div_ceil(most).next_multiple_of(threads));
        [(blocks - 1) % together + 1, together]
    }

    /// Room for so many converted rows of a.
    fn room(&self, a: Matrix<'_>, rows: usize) -> usize {
        match self {
            Self::Plain(b) => rows * b.lead(a),
            #[cfg(target_arch = "x86_64")]
            Self::Halves(..) => 0,
        }
    }

    /// How many rows of a block are finished at a time, if the sums are short.
    fn short(&self, cpu: &Cpu, a: Matrix<'_>, block: usize) -> Option<usize> {
        match self {
            Self::Plain(b) if b.depth <= SHORT => {
                let height = cpu.isa().tile_rows(b.width);
                let most = (NEAR / (b.lead(a) + b.columns)).max(height);
                Some(even(block, most).next_multiple_of(height))
            }
            Self::Plain(_) => None,
            #[cfg(target_arch = "x86_64")]
            Self::Halves(..) => None,
        }
    }

    /// Rows of a block, of so many in all.
    fn rows(&self, cpu: &Cpu, m: usize) -> usize {
        match self {
            Self::Plain(_) => {
                m.div_ceil(BLOCKS).next_multiple_of(cpu.isa().tile_rows(cpu.isa().tile_columns())).min(ROWS)
            }
            #[cfg(target_arch = "x86_64")]
            Self::Halves(..) => m.div_ceil(BLOCKS).next_multiple_of(amx::HEIGHT).min(amx::ROWS),
        }
    }
}

impl Cpu {
    pub(crate) fn run_gemm(&self, p: &Gemm, a: &Memory, b: &Memory, bias: Option<&Memory>, y: Store<'_, Self>) {
        let [m, n, k] = p.mnk().map(|size| size as usize);
        let [lda, ldb, ldy] = p.lead().map(|lead| lead as usize);
        let [stride_a, stride_b, stride_y] = p.strides().map(|stride| stride as usize);
        let [ta, tb] = p.transposed();
        let steps = |transposed: bool, lead: usize| if transposed { [1, lead] } else { [lead, 1] };
        let epilogue = Epilogue::of(&y, self.isa());
        let Store { y, table, to, .. } = y;
        if m == 0 || n == 0 || p.batch() == 0 {
            return merge(&epilogue, [], |row| table.merge(to, row));
        }
        let (batch, end) = (p.batch() as usize, (m - 1) * ldy + n);
        let bias = bias.map(|bias| (0..n).map(|j| bias.get(j)).collect::<Vec<f32>>());
        let matrix = |z: usize| Matrix { data: b, start: z * stride_b, steps: steps(tb, ldb) };
        let packed = |z: usize| B::new(self, matrix(z), [m, k, n]);
        let few = few::few(m, n);
        // With a stride of 0 all products use one b.
        let shared = (stride_b == 0 && !few).then(|| packed(0));
        let one = Cost::products(m * n * k);
        let product = |z: usize, y: Part<'_>| {
            let a = Matrix { data: a, start: z * stride_a, steps: steps(ta, lda) };
            if few {
                return self.few_rows([a, matrix(z)], [m, n, k], bias.as_deref(), ldy, &epilogue, y);
            }
            let own = shared.is_none().then(|| packed(z));
            let Some(b) = own.as_ref().or(shared.as_ref()) else { return vec![] };
            // Statistics are those of blocks, which the shape alone decides.
            let block = b.rows(self, m);
            let together = b.together(block, m, if self.alone(one) { 1 } else { self.threads().count() });
            let [first, rows] = together.map(|blocks| block * blocks);
            let short = b.short(self, a, block);
            let work = |i: usize, mut part: Part<'_>| {
                let start = if i == 0 { 0 } else { first + (i - 1) * rows };
                let rows = if i == 0 { first.min(m) } else { rows.min(m - start) };
                // Where little is done for each result, it is finished before it leaves the first cache.
                let [span, at_once] = short.map_or([rows; 2], |height| [block, height.min(rows)]);
                let (mut sums, mut packed) = (self.scratch(at_once * n), self.scratch(b.room(a, at_once)));
                let mut seen = Vec::new();
                for from in (0..rows).step_by(span).flat_map(|from| (from..rows.min(from + span)).step_by(at_once)) {
                    let end = rows.min((from / span + 1) * span).min(from + at_once);
                    let sums = &mut sums[..(end - from) * n];
                    self.multiply(a, start + from, b, matrix(z), &mut packed, sums);
                    for (from, sums) in (from..).step_by(block).zip(sums.chunks_mut(block * n)) {
                        if seen.is_empty() || from.is_multiple_of(block) && epilogue.sums() {
                            seen.push(epilogue.row());
                        }
                        let end = part.len().min((from + sums.len() / n) * ldy);
                        if let Some(row) = seen.last_mut() {
                            self.finish(sums, n, bias.as_deref(), ldy, &epilogue, part.range(from * ldy..end), row);
                        }
                    }
                }
                seen
            };
            y.each_after(self, one, [first * ldy, rows * ldy], work).into_iter().flatten().collect()
        };
        let mut all = destination(y, (batch - 1) * stride_y + end);
        // Many small products are shared out as they are, where their results do not lie in each other.
        let rows: Vec<Vec<Seen>> = if self.alone(one) && stride_y >= end {
            all.each(self, Cost::products(batch * m * n * k), stride_y, |z, mut y| product(z, y.range(0..end)))
        } else {
            (0..batch).map(|z| product(z, all.range(z * stride_y..z * stride_y + end))).collect()
        };
        merge(&epilogue, rows.iter().flatten(), |row| table.merge(to, row));
    }

    /// Rows `first..` of a product, whatever was in their sums.
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "only the matrix unit minds"))]
    fn multiply<'a>(
        &'a self, a: Matrix<'_>, first: usize, b: &B<'a>, matrix: Matrix<'_>, packed: &mut [f32], sums: &mut [f32],
    ) {
        match b {
            B::Plain(b) => self.block(a, first, b, packed, sums),
            #[cfg(target_arch = "x86_64")]
            B::Halves(unit, panels, plain) => {
                if !amx::Halves::of(a).is_some_and(|a| self.sums_by_tiles(*unit, a, first, panels, sums)) {
                    let [k, n] = panels.size();
                    let b = plain.get_or_init(|| Packed::alone(self, &[matrix], k, n));
                    self.block(a, first, b, &mut self.scratch(sums.len() / n * b.lead(a)), sums);
                }
            }
        }
    }

    /// Rows `first..` of a product, whatever was in their sums and in `packed`, which has room for these rows of a.
    fn block(&self, a: Matrix<'_>, first: usize, b: &Packed<'_>, packed: &mut [f32], sums: &mut [f32]) {
        let rows = sums.len() / b.columns;
        if b.depth == 0 {
            return sums.fill(0.0);
        }
        let ([_, most], a_lead) = (b.blocking(), b.lead(a));
        // Read in the order in which it is stored.
        let by_columns = a.by_columns();
        for start in (0..b.depth).step_by(most) {
            let depth = most.min(b.depth - start);
            if by_columns {
                for (k, out) in packed.chunks_exact_mut(rows).take(depth).enumerate() {
                    a.turned().row(self.isa(), start + k, first, out);
                }
            } else if b.side_by_side(a) {
                a.row(self.isa(), first, 0, &mut packed[..rows * a_lead]);
            } else {
                for (r, out) in packed.chunks_exact_mut(a_lead).take(rows).enumerate() {
                    a.row(self.isa(), first + r, start, &mut out[..depth]);
                }
            }
            let (a_row, a_step) = if by_columns { (1, rows) } else { (a_lead, 1) };
            for from in (0..b.columns).step_by(b.width) {
                let tiles = Tile {
                    a: packed,
                    a_row,
                    a_step,
                    b: b.panel(start, from),
                    b_step: b.step(),
                    runs: &[Run { a: 0, b: 0, depth }],
                    rows,
                    columns: b.width.min(b.columns - from),
                    fresh: start == 0,
                };
                self.isa().tile(&tiles, &mut sums[from..], b.columns);
            }
        }
    }

    /// Stores rows of sums.
    fn finish(
        &self, sums: &mut [f32], columns: usize, bias: Option<&[f32]>, ldy: usize, epilogue: &Epilogue, mut y: Part<'_>,
        row: &mut Seen,
    ) {
        if let Some(bias) = bias {
            for sums in sums.chunks_exact_mut(columns) {
                sums.iter_mut().zip(bias).for_each(|(sum, bias)| *sum += bias);
            }
        }
        // Rows that lie side by side are finished as one.
        let len = if ldy == columns { sums.len() } else { columns };
        for (i, sums) in sums.chunks_mut(len).enumerate() {
            epilogue.finish(sums, y.range(i * ldy..i * ldy + sums.len()), row);
        }
    }
}
