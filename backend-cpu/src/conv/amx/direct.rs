//! Rows of a result from rows of an operand, by tiles.

use super::{filled, padded_rows::Split};
use crate::{
    Cpu, Memory,
    arch::amx::{Amx, K_BLOCK, KSegment, SourceLines, TILE_DIM, TileGemm, as_bf16, as_bf16_mut},
    conv::{
        Shape,
        direct::{self, Correlation, Phase},
        padded_rows::Held,
    },
    gemm::Packed,
    threading::Cost,
    workspace::Workspace,
};
use core::ops::Range;
use gradscale_core::ops::Pass;
use half::f16;
use std::sync::OnceLock;

/// Columns of a panel of weights.
const WIDTH: usize = 2 * TILE_DIM;
/// Blocks of weights that all pixels meet before the next do: 64 KiB.
const BLOCKS: usize = 16;
/// Fewest products of an element that are worth its conversion.
const PRODUCTS: usize = 32;
/// Blocks that one thread packs at a time.
const PACKED: usize = 4;

/// The weights of a group: for every panel of columns, phase, kernel row, and 32 steps upper and lower parts.
struct Panels<'a> {
    data: Workspace<'a>,
    columns: usize,
    width: usize,
    /// Blocks of a panel.
    blocks: usize,
}

/// The weights of all groups, and those for other kernels where they are wanted first.
pub struct Weights<'a> {
    unit: Amx,
    groups: Vec<Panels<'a>>,
    plain: OnceLock<Vec<Packed<'a>>>,
}

/// What one thread adds to rows of the result.
pub struct Window<'a, 'c, P> {
    cpu: &'c Cpu,
    correlation: &'a Correlation,
    weights: &'a Weights<'c>,
    operand: &'a Memory,
    lines: Held<'a>,
    /// Kernel rows and lines of this row of the result.
    from: Vec<(usize, usize)>,
    k_segments: Vec<KSegment>,
    /// For rows that are not finite.
    pack: P,
    plain: Option<direct::Window<'a>>,
}

/// Steps of one kernel row that a block has, by phase: as long as the phase's runs, cut into 32.
fn blocks(phase: &Phase) -> impl Iterator<Item = Range<usize>> {
    phase
        .k_segments
        .iter()
        .flat_map(|run| (run.b..run.b + run.depth).step_by(K_BLOCK).map(|k| k..(run.b + run.depth).min(k + K_BLOCK)))
}

impl<'a> Panels<'a> {
    /// The weights of a group that begin at `first`: none if something is not finite.
    fn new(cpu: &'a Cpu, unit: Amx, shape: &Shape, pass: Pass, all: &Correlation, data: &[f16]) -> Option<Self> {
        let columns = if pass == Pass::Forward { shape.outs } else { shape.depth };
        let width = if columns <= TILE_DIM { TILE_DIM } else { WIDTH };
        // Kernel row and steps of every block of a panel.
        let kernel = shape.kernel[0];
        let list: Vec<(usize, Range<usize>)> = all
            .phases
            .iter()
            .flat_map(|phase| (0..kernel).flat_map(move |i| blocks(phase).map(move |steps| (i, steps))))
            .collect();
        let block = width * K_BLOCK;
        let mut packed = cpu.workspace(columns.div_ceil(width) * list.len() * block);
        let cost = Cost::elements(packed.len());
        let finite = cpu.par_chunks_mut(cost, &mut packed, PACKED * block, |piece, out| {
            (piece * PACKED..).zip(out.chunks_exact_mut(block)).all(|(i, out)| {
                let (from, (row, steps)) = (i / list.len() * width, &list[i % list.len()]);
                let out = as_bf16_mut(out);
                (from..columns.min(from + width)).step_by(TILE_DIM).all(|column| {
                    let count = TILE_DIM.min(columns - column);
                    let at = 2 * (column - from);
                    let mut rows = [f16::ZERO; K_BLOCK * TILE_DIM];
                    let lines = if pass == Pass::Forward {
                        let first = column * shape.weights() + row * shape.kernel[1] * shape.depth + steps.start;
                        SourceLines {
                            data: &data[first..],
                            step: shape.weights(),
                            count,
                            len: steps.len(),
                            is_k_major: false,
                        }
                    } else {
                        // Taps in reverse, as dy is read.
                        for (k, out) in steps.clone().zip(rows.chunks_exact_mut(TILE_DIM)) {
                            let (tap, o) = (shape.kernel[1] - 1 - k / shape.outs, k % shape.outs);
                            let first = o * shape.weights() + (row * shape.kernel[1] + tap) * shape.depth + column;
                            out[..count].copy_from_slice(&data[first..first + count]);
                        }
                        SourceLines { data: &rows, step: TILE_DIM, count: steps.len(), len: count, is_k_major: true }
                    };
                    unit.pack_b_tile(&lines, 2 * width, block, &mut out[at..])
                })
            })
        });
        let blocks = list.len();
        finite.into_iter().all(|finite| finite).then_some(Self { data: packed, columns, width, blocks })
    }
}

impl<'c> Weights<'c> {
    /// Packs the weights, if the unit is to be used for this convolution.
    pub fn new(cpu: &'c Cpu, shape: &Shape, pass: Pass, all: &Correlation, [x, w]: [&Memory; 2]) -> Option<Self> {
        let unit = cpu.isa().amx()?;
        let (Memory::F16(_), Memory::F16(w)) = (x, w) else { return None };
        let filled = |phase: &Phase| filled(phase.count, phase.k_segments.iter().map(|run| run.depth));
        // Products that an element of the lines enters, for which it is converted.
        if all.columns * shape.taps() < PRODUCTS || all.phases.is_empty() || !all.phases.iter().all(filled) {
            return None;
        }
        let group = |i: usize| Panels::new(cpu, unit, shape, pass, all, &w[i * shape.outs * shape.weights()..]);
        let groups = (0..shape.groups).map(group).collect::<Option<_>>()?;
        Some(Self { unit, groups, plain: OnceLock::new() })
    }

    /// One thread's part of the work. `pack` packs the weights for other kernels, on its own thread.
    pub fn window<'a, P: Fn() -> Vec<Packed<'c>>>(
        &'a self, cpu: &'c Cpu, correlation: &'a Correlation, operand: &'a Memory, pack: P,
    ) -> Window<'a, 'c, P> {
        let split = Split { lines: correlation.source(operand), unit: self.unit };
        Window {
            cpu,
            correlation,
            weights: self,
            operand,
            lines: Held::new(cpu, split.part(), self.groups.len(), correlation.kernel, correlation.dilation),
            from: Vec::with_capacity(correlation.kernel),
            k_segments: vec![],
            pack,
            plain: None,
        }
    }
}

impl<'c, P: Fn() -> Vec<Packed<'c>>> Window<'_, 'c, P> {
    /// Makes a row of results, whatever was in `sums`; `from` are the rows of the operand that each kernel row reads.
    pub fn make(&mut self, from: impl Iterator<Item = Option<usize>> + Clone, sums: &mut [f32]) {
        let (all, weights) = (self.correlation, self.weights);
        let split = Split { lines: all.source(self.operand), unit: weights.unit };
        self.from.clear();
        let mut finite = true;
        for (i, row) in from.clone().enumerate().filter_map(|(i, row)| Some((i, row?))) {
            let convert = |group: usize, line: &mut [f32]| {
                Split { lines: split.lines.of_group(group), ..split }.convert(row, line)
            };
            let (line, converted) = self.lines.find(row, i, convert);
            self.from.push((i, line));
            finite &= converted;
        }
        if !finite {
            let plain = || all.window(self.cpu, self.operand, weights.plain.get_or_init(&self.pack));
            return self.plain.get_or_insert_with(plain).make(from, sums);
        }
        sums.fill(0.0);
        for (group, panels) in weights.groups.iter().enumerate() {
            let (lines, mut first) = (as_bf16(self.lines.of_group(group)), 0);
            for phase in &all.phases {
                let row = blocks(phase).count();
                // As many kernel rows at a time as stay in the cache.
                for rows in self.from.chunks((BLOCKS / row.max(1)).max(1)) {
                    self.k_segments.clear();
                    for &(i, line) in rows {
                        let mut block = first + i * row;
                        for run in &phase.k_segments {
                            let blocks = run.depth.div_ceil(K_BLOCK);
                            self.k_segments.push(KSegment { a: 2 * line + run.a, b: block, blocks });
                            block += blocks;
                        }
                    }
                    let sums = &mut sums[phase.first * all.results + group * all.columns..];
                    all.multiply_by_tiles(
                        weights.unit,
                        phase,
                        &mut self.k_segments,
                        [lines, as_bf16(&panels.data)],
                        split.part(),
                        panels,
                        sums,
                    );
                }
                first += all.kernel * row;
            }
        }
    }
}

impl Correlation {
    /// Adds the products along `k_segments`, whose b are blocks of a panel, to the sums of a phase.
    #[expect(clippy::too_many_arguments, reason = "what a product depends on")]
    fn multiply_by_tiles(
        &self, unit: Amx, phase: &Phase, k_segments: &mut [KSegment], [a, b]: [&[u16]; 2], a_low: usize,
        panels: &Panels<'_>, sums: &mut [f32],
    ) {
        let block = panels.width * K_BLOCK;
        k_segments.iter_mut().for_each(|run| run.b *= 2 * block);
        for from in (0..panels.columns).step_by(panels.width) {
            let product = TileGemm {
                a,
                a_low,
                a_row: phase.spacing * self.depth,
                a_step: K_BLOCK,
                b: &b[from / panels.width * panels.blocks * 2 * block..],
                b_low: block,
                b_row: 2 * panels.width,
                b_step: 2 * block,
                k_segments,
                rows: phase.count,
                columns: panels.width.min(panels.columns - from),
            };
            unit.multiply(&product, true, &mut sums[from..], phase.step * self.results);
        }
    }
}
