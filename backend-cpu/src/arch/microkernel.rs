//! What a kernel for products works on.

use half::f16;

/// Lanes in which memory for vectors is laid out: one cache line, and a whole number of every instruction set's vectors.
pub const LANES: usize = 16;

/// The tiles that fit the registers of an instruction set.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Lanes of a vector.
    pub lanes: usize,
    /// Most vectors of a row.
    pub vectors: usize,
    /// Most accumulators.
    pub accumulators: usize,
}

impl Shape {
    /// Columns of the widest tile.
    pub const fn columns(&self) -> usize {
        self.lanes * self.vectors
    }

    /// Rows of the largest tile with so many columns.
    pub const fn rows(&self, columns: usize) -> usize {
        let vectors = columns.div_ceil(self.lanes);
        self.accumulators / if vectors == 0 { 1 } else { vectors }
    }
}

/// Operands of a tile, or of tiles one below the other, `acc[r][c] += Σ a[run.a + r·a_row + k·a_step] · b[(run.b + k)·b_step + c]` over all runs, in
/// order, and all k below their depths.
#[derive(Clone, Copy, Debug)]
pub struct Tile<'a> {
    /// Scalars.
    pub a: &'a [f32],
    /// Elements between rows of the tile.
    pub a_row: usize,
    /// Elements between steps.
    pub a_step: usize,
    /// Vectors.
    pub b: &'a [f32],
    /// Elements between steps.
    pub b_step: usize,
    /// Steps.
    pub runs: &'a [Run],
    /// Rows; what is more than [`Shape::rows`] of the columns is a tile of its own.
    pub rows: usize,
    /// Columns, at most [`Shape::columns`]; b has so many at each step.
    pub columns: usize,
    /// Whether sums begin with zero, whatever was in their place.
    pub fresh: bool,
    /// What will be read next. Where caches can be asked for memory they are asked for it meanwhile, at every step for one
    /// element of each row: evenly, as requests in a row would keep a tile from its operands.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "caches are asked on x86-64 alone"))]
    pub ahead: &'a [f16],
}

/// Short rows of halves, side by side, which kernels convert themselves, and all columns of b at each step: sums of as many
/// rows, side by side.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "there are no such kernels"))]
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    pub a: &'a [f16],
    /// Vectors; whole ones can be read at every step.
    pub b: &'a [f32],
    /// Elements between steps.
    pub b_step: usize,
    /// One run of steps, as many as a row has elements, from the first on.
    pub run: [Run; 1],
    /// Columns, at most [`Shape::columns`].
    pub columns: usize,
}

impl Rows<'_> {
    /// Most steps.
    pub const DEPTH: usize = 64;

    /// As a tile, with halves in [`Tile::ahead`]. Sees to it that a kernel of this shape meets nothing outside of the operands and of
    /// `acc`, which is not empty, and that `near` has room for the converted rows of a tile.
    ///
    /// # Panics
    /// If it would.
    #[cfg(target_arch = "x86_64")]
    pub fn tile(&self, shape: &Shape, acc: &[f32], near: &[f32]) -> Tile<'_> {
        let ([Run { a: start, depth, .. }], rows) = (self.run, acc.len() / self.columns);
        let tile = Tile {
            a: &[],
            a_row: depth,
            a_step: 1,
            b: self.b,
            b_step: self.b_step,
            runs: &self.run,
            rows,
            columns: self.columns,
            fresh: true,
            ahead: self.a,
        };
        assert!(self.columns <= shape.columns() && acc.len() == rows * self.columns && rows * depth == self.a.len());
        assert!(start == 0 && tile.whole(shape.lanes) && shape.rows(self.columns) * depth <= near.len());
        tile
    }
}

/// How a kernel reads its operands.
#[cfg(target_arch = "x86_64")]
pub struct Reading;

#[cfg(target_arch = "x86_64")]
impl Reading {
    /// Vectors of b whole.
    pub const WHOLE: usize = 0;
    /// But the last of each step, behind which there may be nothing.
    pub const CUT: usize = 1;
    /// Whole, with something to ask for ahead.
    pub const AHEAD: usize = 2;
    /// Whole, with short rows of halves instead of a's, as [`Rows::tile`] has them: those of the next tile are asked for.
    pub const HALVES: usize = 3;
}

/// Steps that are evenly spaced in both operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First element of a.
    pub a: usize,
    /// First step of b.
    pub b: usize,
    /// Steps.
    pub depth: usize,
}

impl Tile<'_> {
    /// Sees to it that a kernel of this shape meets nothing outside of the operands and of `acc`; a tile that is not empty.
    ///
    /// # Panics
    /// If it would.
    #[cfg_attr(
        not(any(target_arch = "x86_64", target_arch = "aarch64", target_feature = "simd128")),
        expect(dead_code, reason = "slices do")
    )]
    pub fn check(&self, shape: &Shape, acc: &[f32], acc_row: usize) {
        assert!(self.columns <= shape.columns());
        // The place of the last of some steps; one that is too large for its type is outside as well.
        let last = |first: usize, steps: usize, step: usize| first.saturating_add((steps - 1).saturating_mul(step));
        assert!(last(self.columns, self.rows, acc_row) <= acc.len());
        for run in self.runs.iter().filter(|run| run.depth != 0) {
            assert!(last(last(run.a, self.rows, self.a_row), run.depth, self.a_step) < self.a.len());
            assert!(last(self.columns, run.b.saturating_add(run.depth), self.b_step) <= self.b.len());
        }
    }

    /// Tiles that fit registers, evenly high: how many there are of as many rows as the first has, and the rest. Each with the
    /// row where it begins.
    #[cfg(target_arch = "x86_64")]
    pub fn stacks(&self, shape: &Shape) -> impl Iterator<Item = (usize, Self, usize)> {
        let height = even(self.rows, shape.rows(self.columns));
        let (count, rest) = (self.rows / height, self.rows % height);
        let stacks = [(0, height, count), (count * height, rest, 1)];
        let (ahead, rows) = (self.ahead, self.rows);
        let tile = move |(row, height, count): (usize, usize, usize)| {
            let ahead = &ahead[row * ahead.len() / rows..];
            (row, Self { a: self.a.get(row * self.a_row..).unwrap_or(&[]), rows: height, ahead, ..*self }, count)
        };
        stacks.into_iter().take(if rest == 0 { 1 } else { 2 }).map(tile)
    }

    /// How a kernel with vectors of so many lanes reads it.
    #[cfg(target_arch = "x86_64")]
    pub fn reading(&self, lanes: usize) -> usize {
        match (self.whole(lanes), self.ahead) {
            (true, []) => Reading::WHOLE,
            (false, _) => Reading::CUT,
            (true, [..]) => Reading::AHEAD,
        }
    }

    /// Whether vectors of so many lanes can be read of all columns of b at every step, what lies behind the last one included.
    #[cfg(target_arch = "x86_64")]
    pub fn whole(&self, lanes: usize) -> bool {
        let width = self.columns.next_multiple_of(lanes);
        self.runs.iter().all(|run| run.depth == 0 || (run.b + run.depth - 1) * self.b_step + width <= self.b.len())
    }
}

/// The height of tiles, at most `most`, that cover so many rows evenly.
pub const fn even(rows: usize, most: usize) -> usize {
    if rows == 0 { most } else { rows.div_ceil(rows.div_ceil(most)) }
}
