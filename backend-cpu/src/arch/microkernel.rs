//! Arguments and tile shapes of the GEMM microkernel.

use half::f16;

/// Number of f32 to which memory for vectors is aligned: one cache line, and a whole number of vectors of every
/// instruction set.
pub const LANES: usize = 16;

/// Sizes of the GEMM tiles that fit the registers of an instruction set.
#[derive(Clone, Copy, Debug)]
pub struct TileShape {
    /// Number of f32 lanes of a vector.
    pub lanes: usize,
    /// Maximum number of vectors in a row of the tile.
    pub vectors: usize,
    /// Maximum number of accumulators (vector registers with sums) of the tile.
    pub accumulators: usize,
}

impl TileShape {
    /// Returns the number of columns of the widest tile.
    pub const fn columns(&self) -> usize {
        self.lanes * self.vectors
    }

    /// Returns the number of rows of the highest tile with this many columns.
    pub const fn rows(&self, columns: usize) -> usize {
        let vectors = columns.div_ceil(self.lanes);
        self.accumulators / if vectors == 0 { 1 } else { vectors }
    }
}

/// Arguments of the microkernel: `acc[r][c] += Σ a[segment.a + r·a_row_stride + k·a_k_stride] · b[(segment.b +
/// k)·b_k_stride + c]` over all segments, in order, and all k below their depths.
#[derive(Clone, Copy, Debug)]
pub struct MicroKernelArgs<'a> {
    /// Elements of A, which the kernel broadcasts one by one.
    pub a: &'a [f32],
    /// Number of elements from one row of A to the next.
    pub a_row_stride: usize,
    /// Number of elements from one step of k to the next in A.
    pub a_k_stride: usize,
    /// Elements of B, which the kernel loads as vectors.
    pub b: &'a [f32],
    /// Number of elements from one step of k to the next in B.
    pub b_k_stride: usize,
    /// Segments of k over which the product is summed, in order.
    pub k_segments: &'a [KSegment],
    /// Row count. Rows beyond [`TileShape::rows`] of the columns are processed as further tiles.
    pub rows: usize,
    /// Number of columns of B at each step, at most [`TileShape::columns`].
    pub columns: usize,
    /// True if the sums are overwritten instead of accumulated (BLAS: beta = 0).
    pub overwrite: bool,
    /// Halves that will be read next. Where caches can be prefetched, each step prefetches one element for each row,
    /// because a burst of requests would delay the operands of the tile.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "caches are asked on x86-64 alone"))]
    pub prefetch: &'a [f16],
}

/// Product of short contiguous rows of halves, which the microkernel converts itself, and all columns of B at each
/// step. The sums of all rows are contiguous.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "there are no such kernels"))]
#[derive(Clone, Copy, Debug)]
pub struct F16Rows<'a> {
    pub a: &'a [f16],
    /// Elements of B, loaded as vectors; whole ones can be read at every step.
    pub b: &'a [f32],
    /// Number of elements from one step of k to the next in B.
    pub b_k_stride: usize,
    /// One segment from the first step on, with as many steps as a row has elements.
    pub run: [KSegment; 1],
    /// Number of columns of the tile that are computed, at most [`TileShape::columns`].
    pub columns: usize,
}

impl F16Rows<'_> {
    /// Maximum number of steps of k: the converted rows of the highest tile, 24 × 64 elements, take 6 KiB of L1.
    pub const MAX_K: usize = 64;

    /// Returns the arguments of the microkernel, with the halves as [`MicroKernelArgs::prefetch`]. Checks that a kernel
    /// of this shape stays inside the operands and `acc`, which is not empty, and that `converted` has room for the
    /// rows of a tile.
    ///
    /// # Panics
    /// If it does not.
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

/// Load modes of a microkernel, passed as a constant parameter.
#[cfg(target_arch = "x86_64")]
pub struct LoadMode;

#[cfg(target_arch = "x86_64")]
impl LoadMode {
    /// Load mode in which all vectors of B are whole.
    pub const FULL: usize = 0;
    /// Load mode in which the last vector of each step is masked, because nothing may follow it.
    pub const MASKED_TAIL: usize = 1;
    /// Load mode with whole vectors of B and prefetching.
    pub const PREFETCHING: usize = 2;
    /// Load mode with whole vectors, and rows of halves as [`F16Rows::tile_args`] provides them; those of the next tile
    /// are prefetched.
    pub const F16_ROWS: usize = 3;
}

/// Segment of k in a product: steps that are evenly spaced in both operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KSegment {
    /// Index of the segment's first element of A.
    pub a: usize,
    /// Index of the segment's first step of B.
    pub b: usize,
    /// Number of steps of k in the segment.
    pub depth: usize,
}

impl MicroKernelArgs<'_> {
    /// Checks that a kernel of this shape stays inside the operands and `acc`; the tile is not empty.
    ///
    /// # Panics
    /// If it does not.
    #[cfg_attr(
        not(any(target_arch = "x86_64", target_arch = "aarch64", target_feature = "simd128")),
        expect(dead_code, reason = "slices do")
    )]
    pub fn check_bounds(&self, shape: &TileShape, acc: &[f32], acc_row: usize) {
        assert!(self.columns <= shape.columns());
        // Offset of the last step, saturating: an offset beyond usize is out of bounds as well.
        let last = |first: usize, steps: usize, step: usize| first.saturating_add((steps - 1).saturating_mul(step));
        assert!(last(self.columns, self.rows, acc_row) <= acc.len());
        for run in self.k_segments.iter().filter(|run| run.depth != 0) {
            assert!(last(last(run.a, self.rows, self.a_row_stride), run.depth, self.a_k_stride) < self.a.len());
            assert!(last(self.columns, run.b.saturating_add(run.depth), self.b_k_stride) <= self.b.len());
        }
    }

    /// Splits the rows into tiles of equal height that fit the registers. Returns the number of tiles as high as the
    /// first, and the rest, each with its first row.
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

    /// Returns the load mode of the microkernel for vectors of `lanes` lanes.
    #[cfg(target_arch = "x86_64")]
    pub fn load_mode(&self, lanes: usize) -> usize {
        match (self.has_full_vectors(lanes), self.prefetch) {
            (true, []) => LoadMode::FULL,
            (false, _) => LoadMode::MASKED_TAIL,
            (true, [..]) => LoadMode::PREFETCHING,
        }
    }

    /// Returns whether whole vectors can be read for all columns of B at every step, including elements after the last
    /// column.
    #[cfg(target_arch = "x86_64")]
    pub fn has_full_vectors(&self, lanes: usize) -> bool {
        let width = self.columns.next_multiple_of(lanes);
        self.k_segments
            .iter()
            .all(|run| run.depth == 0 || (run.b + run.depth - 1) * self.b_k_stride + width <= self.b.len())
    }
}

/// Returns the height, at most `max_height`, of equally high tiles that cover `rows` rows.
pub const fn balanced_tile_height(rows: usize, max_bits: usize) -> usize {
    if rows == 0 { max_bits } else { rows.div_ceil(rows.div_ceil(max_bits)) }
}
