//! Forward and data pass with AMX: rows of the result from padded rows of bf16.

use super::{fills_tiles, padded_rows::SplitRows};
use crate::{
    Cpu, Memory,
    arch::amx::{Amx, K_BLOCK, KSegment, SourceLines, TILE_DIM, TileGemm, as_bf16, as_bf16_mut},
    conv::{
        ConvParams,
        direct::{self, ConvPlan, Phase},
        padded_rows::RowCache,
    },
    gemm::Packed,
    threading::Cost,
    workspace::Workspace,
};
use core::ops::Range;
use gradscale_core::ops::Pass;
use half::f16;
use std::sync::OnceLock;

/// Maximum number of columns of a panel of weights.
const NR: usize = 2 * TILE_DIM;
/// Number of blocks of weights that all pixels of a row use before the next: 64 KiB of L2.
const WEIGHT_BLOCKS_L2: usize = 16;
/// Minimum number of multiply-accumulates of an element of the operand that are worth its conversion.
const MIN_MACS_PER_ELEMENT: usize = 32;
/// Number of blocks of weights that one task packs.
const PACK_BLOCKS_PER_TASK: usize = 4;

/// Packed weights of a group: upper and lower parts for every panel of columns, phase, kernel row, and 32 steps of k.
struct WeightPanels<'a> {
    data: Workspace<'a>,
    columns: usize,
    nr: usize,
    /// Number of blocks of 32 steps in a panel of weights.
    blocks: usize,
}

/// Packed weights of all groups for AMX. The f32 panels are packed on first use, for rows that are not finite.
pub struct PackedWeights<'a> {
    unit: Amx,
    groups: Vec<WeightPanels<'a>>,
    f32_weights: OnceLock<Vec<Packed<'a>>>,
}

/// State of a worker of the AMX convolution: its converted rows and the segments of the current row.
pub struct RowWorker<'a, 'c, P> {
    cpu: &'c Cpu,
    plan: &'a ConvPlan,
    weights: &'a PackedWeights<'c>,
    operand: &'a Memory,
    lines: RowCache<'a>,
    /// Kernel rows of the current row of the result, each with the offset of its converted row.
    tap_rows: Vec<(usize, usize)>,
    k_segments: Vec<KSegment>,
    /// Function that packs the weights as f32, for rows that are not finite.
    pack: P,
    f32_worker: Option<direct::RowWorker<'a>>,
}

/// Returns the steps of the blocks of a kernel row, phase by phase: its segments, cut into 32 steps.
fn phase_blocks(phase: &Phase) -> impl Iterator<Item = Range<usize>> {
    phase
        .k_segments
        .iter()
        .flat_map(|run| (run.b..run.b + run.depth).step_by(K_BLOCK).map(|k| k..(run.b + run.depth).min(k + K_BLOCK)))
}

impl<'a> WeightPanels<'a> {
    /// Packs the weights of a group; `None` if a value is not finite.
    fn new(cpu: &'a Cpu, unit: Amx, params: &ConvParams, pass: Pass, plan: &ConvPlan, data: &[f16]) -> Option<Self> {
        let columns = if pass == Pass::Forward { params.out_channels } else { params.in_channels };
        let nr = if columns <= TILE_DIM { TILE_DIM } else { NR };
        // Kernel row and steps of every block of a panel.
        let kernel = params.kernel[0];
        let list: Vec<(usize, Range<usize>)> = plan
            .phases
            .iter()
            .flat_map(|phase| (0..kernel).flat_map(move |i| phase_blocks(phase).map(move |steps| (i, steps))))
            .collect();
        let block = nr * K_BLOCK;
        let mut packed = cpu.workspace(columns.div_ceil(nr) * list.len() * block);
        let cost = Cost::elements(packed.len());
        let finite = cpu.par_chunks_mut(cost, &mut packed, PACK_BLOCKS_PER_TASK * block, |piece, out| {
            (piece * PACK_BLOCKS_PER_TASK..).zip(out.chunks_exact_mut(block)).all(|(i, out)| {
                let (from, (row, steps)) = (i / list.len() * nr, &list[i % list.len()]);
                let out = as_bf16_mut(out);
                (from..columns.min(from + nr)).step_by(TILE_DIM).all(|column| {
                    let count = TILE_DIM.min(columns - column);
                    let at = 2 * (column - from);
                    let mut rows = [f16::ZERO; K_BLOCK * TILE_DIM];
                    let lines = if pass == Pass::Forward {
                        let first = column * params.weights_per_output()
                            + row * params.kernel[1] * params.in_channels
                            + steps.start;
                        SourceLines {
                            data: &data[first..],
                            step: params.weights_per_output(),
                            count,
                            len: steps.len(),
                            is_k_major: false,
                        }
                    } else {
                        // The taps of a kernel row in reverse, because the data pass reads dy backwards.
                        for (k, out) in steps.clone().zip(rows.chunks_exact_mut(TILE_DIM)) {
                            let (tap, o) = (params.kernel[1] - 1 - k / params.out_channels, k % params.out_channels);
                            let first = o * params.weights_per_output()
                                + (row * params.kernel[1] + tap) * params.in_channels
                                + column;
                            out[..count].copy_from_slice(&data[first..first + count]);
                        }
                        SourceLines { data: &rows, step: TILE_DIM, count: steps.len(), len: count, is_k_major: true }
                    };
                    unit.pack_b_tile(&lines, 2 * nr, block, &mut out[at..])
                })
            })
        });
        let blocks = list.len();
        finite.into_iter().all(|finite| finite).then_some(Self { data: packed, columns, nr, blocks })
    }
}

impl<'c> PackedWeights<'c> {
    /// Packs the weights of all groups for AMX; `None` if AMX is not worthwhile for this convolution.
    pub fn new(cpu: &'c Cpu, params: &ConvParams, pass: Pass, plan: &ConvPlan, [x, w]: [&Memory; 2]) -> Option<Self> {
        let unit = cpu.isa().amx()?;
        let (Memory::F16(_), Memory::F16(w)) = (x, w) else { return None };
        let fills_tiles = |phase: &Phase| fills_tiles(phase.count, phase.k_segments.iter().map(|run| run.depth));
        // Multiply-accumulates that use one converted element.
        if plan.out_channels * params.taps() < MIN_MACS_PER_ELEMENT
            || plan.phases.is_empty()
            || !plan.phases.iter().all(fills_tiles)
        {
            return None;
        }
        let group = |i: usize| {
            WeightPanels::new(
                cpu,
                unit,
                params,
                pass,
                plan,
                &w[i * params.out_channels * params.weights_per_output()..],
            )
        };
        let groups = (0..params.groups).map(group).collect::<Option<_>>()?;
        Some(Self { unit, groups, f32_weights: OnceLock::new() })
    }

    /// Creates the state of one worker. `pack` packs f32 weights on its own thread.
    pub fn new_worker<'a, P: Fn() -> Vec<Packed<'c>>>(
        &'a self, cpu: &'c Cpu, plan: &'a ConvPlan, operand: &'a Memory, pack: P,
    ) -> RowWorker<'a, 'c, P> {
        let split = SplitRows { lines: plan.input_rows(operand), unit: self.unit };
        RowWorker {
            cpu,
            plan,
            weights: self,
            operand,
            lines: RowCache::new(cpu, split.part_len(), self.groups.len(), plan.kernel, plan.dilation),
            tap_rows: Vec::with_capacity(plan.kernel),
            k_segments: vec![],
            pack,
            f32_worker: None,
        }
    }
}

impl<'c, P: Fn() -> Vec<Packed<'c>>> RowWorker<'_, 'c, P> {
    /// Computes a row of the convolution's result with AMX and overwrites `sums`. `from` has the row of the operand
    /// that each kernel row reads.
    pub fn compute_row(&mut self, from: impl Iterator<Item = Option<usize>> + Clone, sums: &mut [f32]) {
        let (plan, weights) = (self.plan, self.weights);
        let split = SplitRows { lines: plan.input_rows(self.operand), unit: weights.unit };
        self.tap_rows.clear();
        let mut finite = true;
        for (i, row) in from.clone().enumerate().filter_map(|(i, row)| Some((i, row?))) {
            let convert = |group: usize, line: &mut [f32]| {
                SplitRows { lines: split.lines.for_group(group), ..split }.convert_row(row, line)
            };
            let (line, converted) = self.lines.find_or_convert(row, i, convert);
            self.tap_rows.push((i, line));
            finite &= converted;
        }
        if !finite {
            let f32_worker = || plan.new_worker(self.cpu, self.operand, weights.f32_weights.get_or_init(&self.pack));
            return self.f32_worker.get_or_insert_with(f32_worker).compute_row(from, sums);
        }
        sums.fill(0.0);
        for (group, panels) in weights.groups.iter().enumerate() {
            let (lines, mut first) = (as_bf16(self.lines.group_rows(group)), 0);
            for phase in &plan.phases {
                let row = phase_blocks(phase).count();
                // As many kernel rows at a time as have their weights in L2.
                for rows in self.tap_rows.chunks((WEIGHT_BLOCKS_L2 / row.max(1)).max(1)) {
                    self.k_segments.clear();
                    for &(i, line) in rows {
                        let mut block = first + i * row;
                        for run in &phase.k_segments {
                            let blocks = run.depth.div_ceil(K_BLOCK);
                            self.k_segments.push(KSegment { a: 2 * line + run.a, b: block, blocks });
                            block += blocks;
                        }
                    }
                    let sums = &mut sums[phase.first * plan.out_pixel_stride + group * plan.out_channels..];
                    plan.accumulate_phase_amx(
                        weights.unit,
                        phase,
                        &mut self.k_segments,
                        [lines, as_bf16(&panels.data)],
                        split.part_len(),
                        panels,
                        sums,
                    );
                }
                first += plan.kernel * row;
            }
        }
    }
}

impl ConvPlan {
    /// Accumulates the products along `k_segments`, whose `b` are blocks of a panel, to the sums of a phase.
    #[expect(clippy::too_many_arguments, reason = "what a product depends on")]
    fn accumulate_phase_amx(
        &self, unit: Amx, phase: &Phase, k_segments: &mut [KSegment], [a, b]: [&[u16]; 2], a_low: usize,
        panels: &WeightPanels<'_>, sums: &mut [f32],
    ) {
        let block = panels.nr * K_BLOCK;
        k_segments.iter_mut().for_each(|run| run.b *= 2 * block);
        for from in (0..panels.columns).step_by(panels.nr) {
            let product = TileGemm {
                a,
                a_low,
                a_row: phase.input_stride * self.in_channels,
                a_step: K_BLOCK,
                b: &b[from / panels.nr * panels.blocks * 2 * block..],
                b_low: block,
                b_row: 2 * panels.nr,
                b_step: 2 * block,
                k_segments,
                rows: phase.count,
                columns: panels.nr.min(panels.columns - from),
            };
            unit.multiply(&product, true, &mut sums[from..], phase.output_stride * self.out_pixel_stride);
        }
    }
}
