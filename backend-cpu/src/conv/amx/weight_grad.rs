//! Weight pass with AMX: transposed rows of dy times padded rows of x.
//!
//! Several rows at a time, so that tiles of sums stay in the unit for as long as loading and storing them takes.

use super::{fills_tiles, padded_rows::PairedRows};
use crate::{
    Cpu, Memory,
    arch::amx::{self, Amx, K_BLOCK, KSegment, TILE_DIM, TileGemm, as_bf16, as_bf16_mut},
    conv::{ConvParams, padded_rows::RowCache, work_item::WorkItem},
    threading::Cost,
    workspace::Workspace,
};
use core::ops::Range;
use half::f16;

/// Minimum number of multiply-accumulates of an element of x and dy that are worth its conversion.
const MIN_MACS_PER_ELEMENT: usize = 96;
/// Approximate number of pixels of the rows of dy that are processed together.
const BATCH_PIXELS: usize = 160;

/// Operands x and dy of a weight pass for which AMX is worthwhile.
pub struct Operands<'a> {
    unit: Amx,
    x: &'a Memory,
    dy: &'a [f16],
    /// For each row of x, and of dy, true if it is finite.
    finite_rows: [Vec<bool>; 2],
    /// Number of rows of dy that are processed together.
    rows_per_batch: usize,
    /// Number of pixels of a row of dy, rounded up to whole blocks.
    part_len: usize,
}

/// State of a worker of the AMX weight pass: its converted rows of x and dy.
struct ConvertedRows<'a> {
    inputs: PairedRows<'a>,
    lines: RowCache<'a>,
    /// Converted rows of dy: all pixels of each output channel, upper and lower parts.
    gradients: Workspace<'a>,
    k_segments: Vec<KSegment>,
}

impl<'a> Operands<'a> {
    /// Returns the operands of the weight pass; `None` if AMX is not worthwhile for them.
    pub fn new(cpu: &Cpu, params: &ConvParams, x: &'a Memory, dy: &'a Memory) -> Option<Self> {
        let unit = cpu.isa().amx()?;
        let (Memory::F16(halves), Memory::F16(dy)) = (x, dy) else { return None };
        let worthwhile = params.weights_per_output() * params.out_channels
            >= MIN_MACS_PER_ELEMENT * (params.in_channels + params.out_channels);
        if !worthwhile || !fills_tiles(params.out_channels, core::iter::once(params.y[2])) {
            return None;
        }
        let finite_rows = [(halves, params.x), (dy, params.y)].map(|(data, extents)| {
            let row = extents[2] * extents[3];
            let count = extents[0] * extents[1];
            cpu.par_map(Cost::elements(count * row), count, |i| unit.all_finite(&data[i * row..(i + 1) * row]))
        });
        let part_len = params.y[2].next_multiple_of(K_BLOCK);
        // With dilation, rows are not reused for the next row, so batches of rows do not pay.
        let rows_per_batch = if params.dilation[0] == 1 { (BATCH_PIXELS / part_len).clamp(1, params.y[1]) } else { 1 };
        Some(Self { unit, x, dy, finite_rows, rows_per_batch, part_len })
    }

    /// Accumulates the gradient of a work item. `f32_kernel` does so for rows that are not finite or read rows that are
    /// not.
    pub fn add(
        &self, cpu: &Cpu, params: &ConvParams, item: &WorkItem, sums: &mut [f32],
        f32_kernel: impl Fn(&WorkItem, &mut [f32]),
    ) {
        let mut rows = self.new_rows(cpu, params, item);
        let mut first = item.rows.start;
        while first < item.rows.end {
            // A batch does not cross images, wherever the item begins.
            let end = (first / params.y[1] + 1) * params.y[1];
            let part = first..item.rows.end.min(end).min(first + self.rows_per_batch);
            first = part.end;
            if self.is_finite(params, &part) {
                self.transpose_rows(params, &part, &item.out_channels, as_bf16_mut(&mut rows.gradients));
                self.add_rows(cpu, params, &part, item, &mut rows, sums);
            } else {
                f32_kernel(&WorkItem { rows: part, ..item.clone() }, sums);
            }
        }
    }

    fn new_rows<'b>(&'b self, cpu: &'b Cpu, params: &ConvParams, item: &WorkItem) -> ConvertedRows<'b> {
        let inputs = PairedRows {
            lines: item.input_rows(params, self.x),
            unit: self.unit,
            pair_distance: params.stride[1] * params.in_channels,
            pixels: (self.part_len - 1) * params.stride[1] + (params.kernel[1] - 1) * params.dilation[1] + 1,
        };
        let held = params.kernel[0] + (self.rows_per_batch - 1) * params.stride[0];
        ConvertedRows {
            inputs,
            lines: RowCache::new(cpu, inputs.part_len(), 1, held, params.dilation[0]),
            // Two bf16 take the place of one f32.
            gradients: cpu.workspace(self.rows_per_batch * self.row_stride(&item.out_channels) / 2),
            k_segments: vec![],
        }
    }

    /// Returns the elements from one transposed row of dy to the next, and from one of its channels to the next.
    fn row_stride(&self, out_channels: &Range<usize>) -> usize {
        out_channels.len().next_multiple_of(TILE_DIM) * self.channel_stride()
    }

    fn channel_stride(&self) -> usize {
        2 * self.part_len + K_BLOCK
    }

    /// Returns whether rows of dy, and all rows of x that they read, are finite.
    fn is_finite(&self, params: &ConvParams, rows: &Range<usize>) -> bool {
        let [x, dy] = &self.finite_rows;
        rows.clone().all(|row| {
            let (image, p) = (row / params.y[1], row % params.y[1]);
            let mut used_rows = (0..params.kernel[0]).filter_map(|i| params.input_coord(0, p, i));
            dy[row] && used_rows.all(|u| x[image * params.x[1] + u])
        })
    }

    /// Transposes rows of dy for the weight pass, for a range of output channels.
    fn transpose_rows(&self, params: &ConvParams, rows: &Range<usize>, out_channels: &Range<usize>, out: &mut [u16]) {
        let (pixels, channels) = (params.y[2], params.y[3]);
        for (row, out) in rows.clone().zip(out.chunks_exact_mut(self.row_stride(out_channels))) {
            for (o, out) in
                out_channels.clone().step_by(TILE_DIM).zip(out.chunks_exact_mut(TILE_DIM * self.channel_stride()))
            {
                for q in (0..pixels).step_by(K_BLOCK) {
                    let lines = amx::SourceLines {
                        data: &self.dy[(row * pixels + q) * channels + o..],
                        step: channels,
                        count: K_BLOCK.min(pixels - q),
                        len: TILE_DIM.min(out_channels.end - o),
                        is_k_major: true,
                    };
                    self.unit.pack_a_tile(&lines, self.channel_stride(), self.part_len, &mut out[q..]);
                }
            }
        }
    }

    /// Accumulates the products of transposed rows of dy with the rows of x that each kernel row reads.
    fn add_rows(
        &self, cpu: &Cpu, params: &ConvParams, part: &Range<usize>, item: &WorkItem, rows: &mut ConvertedRows<'_>,
        sums: &mut [f32],
    ) {
        let ConvertedRows { inputs, lines, gradients, k_segments } = rows;
        let run = params.kernel[1] * params.in_channels;
        // Taps whose values are contiguous are one run of columns.
        let taps = if params.dilation[1] == 1 { params.kernel[1] } else { 1 };
        for (i, sums) in item.kernel.clone().zip(sums.chunks_mut((item.block * run).max(1))) {
            k_segments.clear();
            for (at, row) in part.clone().enumerate() {
                let (image, p) = (row / params.y[1], row % params.y[1]);
                let Some(u) = params.input_coord(0, p, i) else { continue };
                let convert = |_: usize, line: &mut [f32]| {
                    inputs.convert_row(cpu, image * params.x[1] + u, line);
                    true
                };
                let (line, _) = lines.find_or_convert(image * params.x[1] + u, i, convert);
                k_segments.push(KSegment {
                    a: at * self.row_stride(&item.out_channels),
                    b: 2 * line,
                    blocks: self.part_len / K_BLOCK,
                });
            }
            for j in (0..params.kernel[1]).step_by(taps) {
                let product = TileGemm {
                    a: as_bf16(gradients),
                    a_low: self.part_len,
                    a_row: self.channel_stride(),
                    a_step: K_BLOCK,
                    b: &as_bf16(lines.group_rows(0))[2 * j * params.dilation[1] * params.in_channels..],
                    b_low: inputs.part_len(),
                    b_row: 4 * inputs.pair_distance,
                    b_step: 2 * K_BLOCK * inputs.pair_distance,
                    k_segments,
                    rows: item.out_channels.len(),
                    columns: taps * params.in_channels,
                };
                self.unit.multiply(&product, true, &mut sums[j * params.in_channels..], run);
            }
        }
    }
}
