//! Normalisations.
//!
//! Over the batch there are two launches: blocks sum parts of the pixels by channel, the last ones add the parts' sums, and
//! then every element is computed. The gradients of scale and shift are stored by the first of these launches. Groups of
//! one image take one launch: a block or a part of one keeps a group. The gradient of a layer norm with scale and shift
//! takes two: a block computes a part of the rows and its sums by channel while the rows are in a cache, and then the sums
//! of all parts are added and stored.

use crate::{
    Cuda, Error,
    kernels::{self, Kernel},
    memory::Memory,
    store::StoreParams,
    workspace::WorkspaceKind,
};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{
    backend::{Buffer, DType, NormSaved, Store},
    ops::{Norm, NormOver},
};

/// Shape of a normalisation as kernels read it: `Layout` of `norm.cuh`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct NormLayout {
    pixels: u32,
    channels: u32,
    image: u32,
    groups: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ColumnsParams {
    x: u64,
    dy: u64,
    saved: u64,
    inv_stds: u64,
    sums: u64,
    done: u64,
    kinds: [u32; 2],
    shape: NormLayout,
    parts: u32,
    part: u32,
    lanes: u32,
    eps: f32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct MomentsParams {
    columns: ColumnsParams,
    saved: u64,
    inv_stds: u64,
    size: f32,
    unused: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct InvStdParams {
    variances: u64,
    inv_stds: u64,
    len: u32,
    eps: f32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct NormParams {
    y: StoreParams,
    x: u64,
    saved: u64,
    inv_stds: u64,
    scale: u64,
    shift: u64,
    kind: u32,
    len: u32,
    shape: NormLayout,
    group_count: u32,
    lanes: u32,
    centered: u32,
    eps: f32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct TotalsParams {
    /// Stores of the gradients of scale and shift.
    affine: [StoreParams; 2],
    columns: ColumnsParams,
    scale: u64,
    means: [u64; 2],
    size: f32,
    stores_affine: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct NormVjpParams {
    dx: StoreParams,
    x: u64,
    dy: u64,
    saved: u64,
    inv_stds: u64,
    scale: u64,
    /// Means of the gradient, and of it times the normalised values.
    means: [u64; 2],
    kinds: [u32; 2],
    len: u32,
    shape: NormLayout,
    group_count: u32,
    lanes: u32,
    centered: u32,
    eps: f32,
    unused: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct NormRowsVjpParams {
    norm: NormVjpParams,
    columns: ColumnsParams,
    tiles: u32,
    unused: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct NormAffineVjpParams {
    scale: StoreParams,
    shift: StoreParams,
    sums: u64,
    parts: u32,
    channels: u32,
}

/// Channels of a block that stores the gradients of scale and shift.
const AFFINE_CHANNELS: u32 = 32;

/// Threads of a block of the normalisation kernels.
const THREADS: u32 = 256;
/// Blocks that fill any device, and pixels that a thread takes at least.
const MAX_PARTIAL_BLOCKS: u32 = 512;
const MIN_PIXELS_PER_THREAD: u32 = 4;
/// Parts of the pixels whose sums one block adds: `PARTS_PER_GROUP` of `norm.cuh`.
const PARTS_PER_GROUP: u32 = 16;
/// Counters of blocks that come before those of sums by channel: each of two stores has one.
const STORE_COUNTERS: u32 = 2;

impl NormLayout {
    fn new(p: &Norm) -> Self {
        let [n, h, w, channels] = p.x();
        let groups = if let NormOver::Group(groups) = p.over() { groups } else { 0 };
        Self { pixels: n * h * w, channels, image: h * w, groups }
    }

    const fn len(&self) -> usize {
        (self.pixels * self.channels) as usize
    }
}

/// Launch of a kernel that normalises by given statistics.
struct ApplyLaunch {
    kernel: &'static Kernel,
    /// True if each thread handles fixed channels and computes their 1 / σ itself.
    by_channel: bool,
    len: u32,
    blocks: [u32; 3],
}

/// Partition of sums by channel into blocks: tiles of channels, and parts of pixels.
struct ColumnSplit {
    lanes: u32,
    part: u32,
    parts: u32,
    blocks: [u32; 3],
}

impl ColumnSplit {
    /// Creates the partition for `vec_width` channels per thread.
    fn new(shape: &NormLayout, vec_width: u32) -> Self {
        let columns = shape.channels / vec_width;
        let columns_per_block = columns.clamp(1, THREADS).next_power_of_two();
        let (lanes, tiles) = (THREADS / columns_per_block, columns.div_ceil(columns_per_block));
        let parts =
            (shape.pixels / (lanes * MIN_PIXELS_PER_THREAD)).clamp(1, (MAX_PARTIAL_BLOCKS / tiles.max(1)).max(1));
        let part = shape.pixels.div_ceil(parts).max(1);
        let parts = shape.pixels.div_ceil(part).max(1);
        Self { lanes, part, parts, blocks: [tiles, parts, 1] }
    }

    /// Creates the partition of rows into parts that are multiples of `rows`, with all tiles in one block.
    fn of_rows(shape: &NormLayout, rows: u32) -> Self {
        let Self { lanes, blocks: [tiles, ..], .. } =
            Self::new(shape, if shape.channels.is_multiple_of(8) { 8 } else { 1 });
        let part = shape.pixels.div_ceil(MAX_PARTIAL_BLOCKS).max(1).next_multiple_of(rows);
        Self { lanes, part, parts: shape.pixels.div_ceil(part).max(1), blocks: [tiles, 1, 1] }
    }

    /// Returns the parameters of partial sums at `sums`; `done` is the address of counters of blocks.
    fn params(
        &self, p: &Norm, [x, dy]: [&Memory; 2], [saved, inv_stds]: [u64; 2], [sums, done]: [u64; 2],
    ) -> ColumnsParams {
        ColumnsParams {
            x: x.at(),
            dy: dy.at(),
            saved,
            inv_stds,
            sums,
            done,
            kinds: [x.kind(), dy.kind()],
            shape: NormLayout::new(p),
            parts: self.parts,
            part: self.part,
            lanes: self.lanes,
            eps: p.eps(),
        }
    }

    /// Returns the number of counters of blocks: for each tile, one for each group of parts, and one for the groups.
    const fn counters(&self) -> u32 {
        self.blocks[0] * (self.parts.div_ceil(PARTS_PER_GROUP) + 1)
    }

    /// Returns the bytes of workspace for the partial sums of all parts.
    const fn bytes(&self, channels: u32) -> u64 {
        self.parts as u64 * channels as u64 * 16
    }
}

/// Returns the number of threads for one group of `size` elements: each has a few elements, and there are no more
/// threads than values.
fn lanes(shape: &NormLayout, size: u32) -> u32 {
    let vec_width = if (shape.channels / shape.groups).is_multiple_of(8) { 8 } else { 1 };
    let values = size / vec_width;
    if values > THREADS { THREADS } else { values.div_ceil(4).clamp(1, 32).next_power_of_two() }
}

/// Returns the bytes of `len` f32 values, padded so that the next array is aligned.
const fn row(len: u32) -> u64 {
    (len as u64 * 4).next_multiple_of(256)
}

#[expect(clippy::cast_precision_loss, reason = "as means of f32 are defined")]
fn size(p: &Norm) -> f32 {
    p.size() as f32
}

impl Cuda {
    fn intermediates_address(&self, bytes: u64) -> Result<u64, Error> {
        self.workspace_address(
            WorkspaceKind::Intermediates,
            usize::try_from(bytes).map_err(|_| Error::OutOfMemory { bytes })?,
        )
    }

    /// Enqueues the computation of 1 / σ of each group from the saved variances.
    fn compute_inv_stds(&self, p: &Norm, saved: u64, inv_stds: u64) -> Result<(), Error> {
        let len = p.groups();
        let params = InvStdParams { variances: saved + 4 * u64::from(len), inv_stds, len, eps: p.eps() };
        // SAFETY: both hold as many numbers as there are groups.
        unsafe {
            self.launch(&kernels::NORM_INV_STD, self.elementwise_grid(&kernels::NORM_INV_STD, len as usize)?.1, &params)
        }
    }

    pub(crate) fn run_norm(
        &self, p: &Norm, x: &Memory, affine: Option<[&Memory; 2]>, saved: &Memory, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let (shape, group_count) = (NormLayout::new(p), p.groups());
        let ways = [&kernels::NORM_APPLY_BY_CHANNEL, &kernels::NORM_APPLY];
        let apply = self.apply(ways, &shape, &[x])?;
        let x_at = x.expect_len(shape.len()).at();
        let saved = saved.expect_len(2 * group_count as usize).typed_address(DType::F32);
        let numbers = |which: usize| {
            affine.map_or(0, |affine| affine[which].expect_len(shape.channels as usize).typed_address(DType::F32))
        };
        let params = |y, inv_stds, lanes| NormParams {
            y,
            x: x_at,
            saved,
            inv_stds,
            scale: numbers(0),
            shift: numbers(1),
            kind: x.kind(),
            len: apply.len,
            shape,
            group_count,
            lanes,
            centered: u32::from(p.is_centered()),
            eps: p.eps(),
        };
        if shape.groups != 0 && !p.is_given() {
            let lanes = lanes(&shape, p.size());
            let blocks = [self.fill_device(&kernels::NORM_GROUPS, group_count.div_ceil(THREADS / lanes))?, 1, 1];
            let params = params(self.store(y, shape.len(), blocks)?, 0, lanes);
            // SAFETY: all operands have the descriptor's sizes.
            return unsafe { self.launch(&kernels::NORM_GROUPS, blocks, &params) };
        }
        let inv_stds = if p.is_given() {
            let inv_stds = self.intermediates_address(row(group_count))?;
            if !apply.by_channel {
                self.compute_inv_stds(p, saved, inv_stds)?;
            }
            inv_stds
        } else {
            let columns = ColumnSplit::new(&shape, if shape.channels.is_multiple_of(8) { 8 } else { 1 });
            let inv_stds = self.intermediates_address(row(group_count) + columns.bytes(shape.channels))?;
            let addresses = [inv_stds + row(group_count), self.column_counters(&columns)?];
            let params = MomentsParams {
                columns: columns.params(p, [x, x], [0, 0], addresses),
                saved,
                inv_stds,
                size: size(p),
                unused: 0,
            };
            // SAFETY: x has the shape, and there is room for all sums and for each channel's numbers.
            unsafe { self.launch(&kernels::NORM_MOMENTS, columns.blocks, &params)? };
            inv_stds
        };
        let params = params(self.store(y, shape.len(), apply.blocks)?, inv_stds, 1);
        // SAFETY: all operands have the descriptor's sizes.
        unsafe { self.launch(apply.kernel, apply.blocks, &params) }
    }

    /// Returns the launch of the kernel that normalises by given statistics.
    fn apply(
        &self, [by_channel, general]: [&'static Kernel; 2], shape: &NormLayout, operands: &[&Memory],
    ) -> Result<ApplyLaunch, Error> {
        let in_eights = shape.groups == 0 && shape.channels.is_multiple_of(8);
        if in_eights && operands.iter().all(|memory| memory.dtype() == DType::F16) {
            let (len, [blocks, ..]) = self.elementwise_grid(by_channel, shape.len())?;
            // The number of blocks is chosen so that all together take a multiple of the channels; one block takes a
            // power of two of elements.
            let unit = shape.channels >> shape.channels.trailing_zeros().min((8 * THREADS).trailing_zeros());
            if unit != 0 && blocks >= unit {
                let blocks = [blocks / unit * unit, 1, 1];
                return Ok(ApplyLaunch { kernel: by_channel, by_channel: true, len, blocks });
            }
        }
        let (len, blocks) = self.elementwise_grid(general, shape.len())?;
        Ok(ApplyLaunch { kernel: general, by_channel: false, len, blocks })
    }

    /// Returns the address of counters for a launch that adds the sums of all parts.
    fn column_counters(&self, columns: &ColumnSplit) -> Result<u64, Error> {
        let count = STORE_COUNTERS + columns.counters();
        let counters = self.workspace_address(WorkspaceKind::BlockCounters, 4 * count as usize)?;
        Ok(counters + 4 * u64::from(STORE_COUNTERS))
    }

    /// Returns the parameters of the stores of the gradients of scale and shift, by some blocks.
    fn affine_stores(
        &self, [scale, shift]: &[Store<'_, Self>; 2], channels: u32, blocks: [u32; 3],
    ) -> Result<[StoreParams; 2], Error> {
        let store = |y| self.store(y, channels as usize, blocks);
        self.separate_sums([store(scale)?, store(shift)?], blocks)
    }

    /// Launches the kernel that adds partial sums by channel, and stores the gradients of scale and shift.
    fn store_affine(&self, affine: &[Store<'_, Self>; 2], sums: u64, parts: u32, channels: u32) -> Result<(), Error> {
        let blocks = [channels.div_ceil(AFFINE_CHANNELS), 1, 1];
        let [scale, shift] = self.affine_stores(affine, channels, blocks)?;
        let params = NormAffineVjpParams { scale, shift, sums, parts, channels };
        // SAFETY: both gradients have as many numbers as there are channels, and the sums of all parts are there.
        unsafe { self.launch(&kernels::NORM_VJP_AFFINE, blocks, &params) }
    }

    pub(crate) fn run_norm_vjp(
        &self, p: &Norm, x: NormSaved<&Memory>, dy: &Memory, dx: &Store<'_, Self>,
        affine: Option<&[Store<'_, Self>; 2]>,
    ) -> Result<(), Error> {
        let (shape, group_count) = (NormLayout::new(p), p.groups());
        let ways = [&kernels::NORM_VJP_APPLY_BY_CHANNEL, &kernels::NORM_VJP_APPLY];
        let apply = self.apply(ways, &shape, &[x.x, dy])?;
        let channels = shape.channels;
        let saved = x.saved.expect_len(2 * group_count as usize).typed_address(DType::F32);
        let scale = x.weight.map_or(0, |scale| scale.expect_len(channels as usize).typed_address(DType::F32));
        let (x, fused) = (x.x.expect_len(shape.len()), shape.groups != 0 && !p.is_given());
        let dy = dy.expect_len(shape.len());
        let params = |dx, inv_stds, means, lanes| NormVjpParams {
            dx,
            x: x.at(),
            dy: dy.at(),
            saved,
            inv_stds,
            scale,
            means,
            kinds: [x.kind(), dy.kind()],
            len: apply.len,
            shape,
            group_count,
            lanes,
            centered: u32::from(p.is_centered()),
            eps: p.eps(),
            unused: 0,
        };
        if let (Some(affine), true, 1, 1) = (affine, fused, shape.groups, shape.image) {
            let lanes = lanes(&shape, p.size());
            let columns = ColumnSplit::of_rows(&shape, THREADS / lanes);
            let (blocks, sums) = ([columns.parts, 1, 1], self.intermediates_address(columns.bytes(channels))?);
            let params = NormRowsVjpParams {
                norm: params(self.store(dx, shape.len(), blocks)?, 0, [0, 0], lanes),
                columns: columns.params(p, [x, dy], [saved, 0], [sums, 0]),
                tiles: columns.blocks[0],
                unused: 0,
            };
            // SAFETY: all operands have the descriptor's sizes, and there is room for the sums of all parts.
            unsafe { self.launch(&kernels::NORM_VJP_ROWS, blocks, &params)? };
            return self.store_affine(affine, sums, columns.parts, channels);
        }
        // Inverses, then two means of each channel, then sums.
        let columns = ColumnSplit::new(&shape, if shape.groups == 0 && channels.is_multiple_of(8) { 8 } else { 1 });
        let inv_stds = self.intermediates_address(row(group_count) + 2 * row(channels) + columns.bytes(channels))?;
        let [plain, weighted, sums] = [0, 1, 2].map(|i| inv_stds + row(group_count) + i * row(channels));
        if !apply.by_channel && (!fused || affine.is_some()) {
            self.compute_inv_stds(p, saved, inv_stds)?;
        }
        if affine.is_some() || !(fused || p.is_given()) {
            let addresses = [sums, self.column_counters(&columns)?];
            let stores = match affine {
                Some(affine) => self.affine_stores(affine, channels, [columns.blocks[0], 1, 1])?,
                None => Zeroable::zeroed(),
            };
            let params = TotalsParams {
                affine: stores,
                columns: columns.params(p, [x, dy], [saved, inv_stds], addresses),
                scale,
                means: [plain, weighted],
                size: size(p),
                stores_affine: u32::from(affine.is_some()),
            };
            // SAFETY: all operands have the descriptor's sizes, and there is room for all sums.
            unsafe { self.launch(&kernels::NORM_VJP_TOTALS, columns.blocks, &params)? };
        }
        if fused {
            let lanes = lanes(&shape, p.size());
            let blocks = [self.fill_device(&kernels::NORM_VJP_GROUPS, group_count.div_ceil(THREADS / lanes))?, 1, 1];
            let params = params(self.store(dx, shape.len(), blocks)?, 0, [0, 0], lanes);
            // SAFETY: all operands have the descriptor's sizes.
            unsafe { self.launch(&kernels::NORM_VJP_GROUPS, blocks, &params)? };
        } else {
            let means = if p.is_given() { [0, 0] } else { [plain, weighted] };
            let params = params(self.store(dx, shape.len(), apply.blocks)?, inv_stds, means, 1);
            // SAFETY: as above.
            unsafe { self.launch(apply.kernel, apply.blocks, &params)? };
        }
        Ok(())
    }
}
