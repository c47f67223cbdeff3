//! What a kernel for products works on.

use half::f16;

/// Lanes in which memory for vectors is laid out: one cache line, and a whole number of every instruction set's vectors.
pub const LANES: usize = 16;

/// The tiles that fit the registers of an instruction set.
#[derive(Clone, Copy, Debug)]
pub struct TileShape {
    /// Lanes of a vector.
    pub lanes: usize,
    /// Most vectors of a row.
    pub vectors: usize,
    /// Most accumulators.
    pub accumulators: usize,
}

impl TileShape {
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

/// Operands of a tile, or of tiles one below the other, `acc[r][c] += Σ a[run.a + r·a_row_stride + k·a_k_stride] · b[(run.b + k)·b_k_stride + c]` over all runs, in
/// order, and all k below their depths.
#[derive(Clone, Copy, Debug)]
pub struct MicroKernelArgs<'a> {
    /// Scalars.
    pub a: &'a [f32],
    /// Elements between rows of the tile.
    pub a_row_stride: usize,
    /// Elements between steps.
    pub a_k_stride: usize,
    /// Vectors.
    pub b: &'a [f32],
    /// Elements between steps.
    pub b_k_stride: usize,
    /// Steps.
    pub k_segments: &'a [KSegment],
    /// Rows; what is more than [`TileShape::rows`] of the columns is a tile of its own.
    pub rows: usize,
    /// Columns, at most [`TileShape::columns`]; b has so many at each step.
    pub columns: usize,
    /// Whether sums begin with zero, whatever was in their place.
    pub overwrite: bool,
    /// What will be read next. Where caches can be asked for memory they are asked for it meanwhile, at every step for one
    /// element of each row: evenly, as requests in a row would keep a tile from its operands.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "caches are asked on x86-64 alone"))]
    pub prefetch: &'a [f16],
}

/// Short rows of halves, side by side, which kernels convert themselves, and all columns of b at each step: sums of as many
/// rows, side by side.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "there are no such kernels"))]
#[derive(Clone, Copy, Debug)]
pub struct F16Rows<'a> {
    pub a: &'a [f16],
    /// Vectors; whole ones can be read at every step.
    pub b: &'a [f32],
    /// Elements between steps.
    pub b_k_stride: usize,
    /// One run of steps, as many as a row has elements, from the first on.
    pub run: [KSegment; 1],
    /// Columns, at most [`TileShape::columns`].
    pub columns: usize,
}

impl F16Rows<'_> {
    /// Most steps.
    pub const MAX_K: usize = 64;

    /// As a tile, with halves in [`MicroKernelArgs::prefetch`]. Sees to it that a kernel of this shape meets nothing outside of the operands and of
    /// `acc`, which is not empty, and that `converted` has room for the converted rows of a tile.
    ///
    /// # Panics
    /// If it would.
    #[cfg(target_arch = "x86_64")]
    pub fn tile_args(&self, shape: &TileShape, acc: &[f32], converted: &[f32]) -> MicroKernelArgs<'_> {
        let ([KSegment { a: start, depth, .. }], rows) = (self.run, acc.len() / self.columns);
        let tile = MicroKernelArgs {
            a: &[],
            a_row_stride: depth,
            a_k_stride: 1,
            b: self.b,
            b_k_stride: self.b_k_stride,
            k_segments: &self.run,
            rows,
            columns: self.columns,
            overwrite: true,
            prefetch: self.a,
        };
        assert!(self.columns <= shape.columns() && acc.len() == rows * self.columns && rows * depth == self.a.len());
        assert!(
            start == 0 && tile.has_full_vectors(shape.lanes) && shape.rows(self.columns) * depth <= converted.len()
        );
        tile
    }
}

/// How a kernel reads its operands.
#[cfg(target_arch = "x86_64")]
pub struct LoadMode;

#[cfg(target_arch = "x86_64")]
impl LoadMode {
    /// Vectors of b whole.
    pub const FULL: usize = 0;
    /// But the last of each step, behind which there may be nothing.
    pub const MASKED_TAIL: usize = 1;
    /// Whole, with something to ask for ahead.
    pub const PREFETCHING: usize = 2;
    /// Whole, with short rows of halves instead of a's, as [`F16Rows::tile`] has them: those of the next tile are asked for.
    pub const F16_ROWS: usize = 3;
}

/// Steps that are evenly spaced in both operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KSegment {
    /// First element of a.
    pub a: usize,
    /// First step of b.
    pub b: usize,
    /// Steps.
    pub depth: usize,
}

impl MicroKernelArgs<'_> {
    /// Sees to it that a kernel of this shape meets nothing outside of the operands and of `acc`; a tile that is not empty.
    ///
    /// # Panics
    /// If it would.
    #[cfg_attr(
        not(any(target_arch = "x86_64", target_arch = "aarch64", target_feature = "simd128")),
        expect(dead_code, reason = "slices do")
    )]
    pub fn check_bounds(&self, shape: &TileShape, acc: &[f32], acc_row: usize) {
        assert!(self.columns <= shape.columns());
        // The place of the last of some steps; one that is too large for its type is outside as well.
        let last = |first: usize, steps: usize, step: usize| first.saturating_add((steps - 1).saturating_mul(step));
        assert!(last(self.columns, self.rows, acc_row) <= acc.len());
        for run in self.k_segments.iter().filter(|run| run.depth != 0) {
            assert!(last(last(run.a, self.rows, self.a_row_stride), run.depth, self.a_k_stride) < self.a.len());
            assert!(last(self.columns, run.b.saturating_add(run.depth), self.b_k_stride) <= self.b.len());
        }
    }

    /// Tiles that fit registers, evenly high: how many there are of as many rows as the first has, and the rest. Each with the
    /// row where it begins.
    #[cfg(target_arch = "x86_64")]
    pub fn row_tiles(&self, shape: &TileShape) -> impl Iterator<Item = (usize, Self, usize)> {
        let height = balanced_tile_height(self.rows, shape.rows(self.columns));
        let (count, rest) = (self.rows / height, self.rows % height);
        let row_tiles = [(0, height, count), (count * height, rest, 1)];
        let (prefetch, rows) = (self.prefetch, self.rows);
        let tile = move |(row, height, count): (usize, usize, usize)| {
            let prefetch = &prefetch[row * prefetch.len() / rows..];
            (
                row,
                Self { a: self.a.get(row * self.a_row_stride..).unwrap_or(&[]), rows: height, prefetch, ..*self },
                count,
            )
        };
        row_tiles.into_iter().take(if rest == 0 { 1 } else { 2 }).map(tile)
    }

    /// How a kernel with vectors of so many lanes reads it.
    #[cfg(target_arch = "x86_64")]
    pub fn load_mode(&self, lanes: usize) -> usize {
        match (self.has_full_vectors(lanes), self.prefetch) {
            (true, []) => LoadMode::FULL,
            (false, _) => LoadMode::MASKED_TAIL,
            (true, [..]) => LoadMode::PREFETCHING,
        }
    }

    /// Whether vectors of so many lanes can be read of all columns of b at every step, what lies behind the last one included.
    #[cfg(target_arch = "x86_64")]
    pub fn has_full_vectors(&self, lanes: usize) -> bool {
        let width = self.columns.next_multiple_of(lanes);
        self.k_segments
            .iter()
            .all(|run| run.depth == 0 || (run.b + run.depth - 1) * self.b_k_stride + width <= self.b.len())
    }
}

/// The height of tiles, at most `max_bits`, that cover so many rows evenly.
pub const fn balanced_tile_height(rows: usize, max_bits: usize) -> usize {
    if rows == 0 { max_bits } else { rows.div_ceil(rows.div_ceil(max_bits)) }
}
