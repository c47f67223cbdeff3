//! The weight pass by tiles: rows of dy, turned, times lines of x.
//!
//! Several rows at a time, so that tiles of sums stay in the unit for as long as it takes to fetch them.

use super::{filled, padded_rows::Paired};
use crate::{
    Cpu, Memory,
    arch::amx::{self, Amx, K_BLOCK, KSegment, TILE_DIM, TileGemm, as_bf16, as_bf16_mut},
    conv::{Shape, padded_rows::Held, weight_grad::Piece},
    threading::Cost,
    workspace::Workspace,
};
use core::ops::Range;
use half::f16;

/// Fewest products of a pixel for each of its elements that are worth their conversion.
const PRODUCTS: usize = 96;
/// Pixels of rows that are worked on together, more or less.
const PIXELS: usize = 160;

/// The operands of a weight pass that the unit takes.
pub struct Operands<'a> {
    unit: Amx,
    x: &'a Memory,
    dy: &'a [f16],
    /// Which rows of x and of dy are finite.
    finite: [Vec<bool>; 2],
    /// Rows of dy that are worked on together.
    together: usize,
    /// Pixels of a row of dy, as many as fill its last block.
    part: usize,
}

/// What one thread has converted for the weight pass.
struct Rows<'a> {
    inputs: Paired<'a>,
    lines: Held<'a>,
    /// Rows of dy: all pixels of each output channel, upper and lower parts.
    gradients: Workspace<'a>,
    k_segments: Vec<KSegment>,
}

impl<'a> Operands<'a> {
    /// The operands, if the unit is to be used for them.
    pub fn new(cpu: &Cpu, shape: &Shape, x: &'a Memory, dy: &'a Memory) -> Option<Self> {
        let unit = cpu.isa().amx()?;
        let (Memory::F16(halves), Memory::F16(dy)) = (x, dy) else { return None };
        let worthwhile = shape.weights() * shape.outs >= PRODUCTS * (shape.depth + shape.outs);
        if !worthwhile || !filled(shape.outs, core::iter::once(shape.y[2])) {
            return None;
        }
        let finite = [(halves, shape.x), (dy, shape.y)].map(|(data, shape)| {
            let row = shape[2] * shape[3];
            let count = shape[0] * shape[1];
            cpu.par_map(Cost::elements(count * row), count, |i| unit.all_finite(&data[i * row..(i + 1) * row]))
        });
        let part = shape.y[2].next_multiple_of(K_BLOCK);
        // Lines of rows between which others lie are not kept for the next ones.
        let together = if shape.dilation[0] == 1 { (PIXELS / part).clamp(1, shape.y[1]) } else { 1 };
        Some(Self { unit, x, dy, finite, together, part })
    }

    /// Adds the gradient of a piece; `plain` adds that of rows that are not finite, or have such neighbours.
    pub fn add(&self, cpu: &Cpu, shape: &Shape, piece: &Piece, sums: &mut [f32], plain: impl Fn(&Piece, &mut [f32])) {
        let mut rows = self.rows(cpu, shape, piece);
        let mut first = piece.rows.start;
        while first < piece.rows.end {
            // Within an image, wherever a piece begins.
            let end = (first / shape.y[1] + 1) * shape.y[1];
            let part = first..piece.rows.end.min(end).min(first + self.together);
            first = part.end;
            if self.is_finite(shape, &part) {
                self.turn(shape, &part, &piece.outs, as_bf16_mut(&mut rows.gradients));
                self.add_rows(cpu, shape, &part, piece, &mut rows, sums);
            } else {
                plain(&Piece { rows: part, ..piece.clone() }, sums);
            }
        }
    }

    fn rows<'b>(&'b self, cpu: &'b Cpu, shape: &Shape, piece: &Piece) -> Rows<'b> {
        let inputs = Paired {
            lines: piece.inputs(shape, self.x),
            unit: self.unit,
            pair_distance: shape.stride[1] * shape.depth,
            pixels: (self.part - 1) * shape.stride[1] + (shape.kernel[1] - 1) * shape.dilation[1] + 1,
        };
        let held = shape.kernel[0] + (self.together - 1) * shape.stride[0];
        Rows {
            inputs,
            lines: Held::new(cpu, inputs.part(), 1, held, shape.dilation[0]),
            // Two bf16 in the place of an f32.
            gradients: cpu.workspace(self.together * self.row(&piece.outs) / 2),
            k_segments: vec![],
        }
    }

    /// Elements from one turned row of dy to the next, and from one of its channels to the next.
    fn row(&self, outs: &Range<usize>) -> usize {
        outs.len().next_multiple_of(TILE_DIM) * self.channel()
    }

    fn channel(&self) -> usize {
        2 * self.part + K_BLOCK
    }

    /// Whether rows of dy, and all that they meet, are finite.
    fn is_finite(&self, shape: &Shape, rows: &Range<usize>) -> bool {
        let [x, dy] = &self.finite;
        rows.clone().all(|row| {
            let (image, p) = (row / shape.y[1], row % shape.y[1]);
            let mut met = (0..shape.kernel[0]).filter_map(|i| shape.place(0, p, i));
            dy[row] && met.all(|u| x[image * shape.x[1] + u])
        })
    }

    /// Turns some channels of rows of dy.
    fn turn(&self, shape: &Shape, rows: &Range<usize>, outs: &Range<usize>, out: &mut [u16]) {
        let (pixels, channels) = (shape.y[2], shape.y[3]);
        for (row, out) in rows.clone().zip(out.chunks_exact_mut(self.row(outs))) {
            for (o, out) in outs.clone().step_by(TILE_DIM).zip(out.chunks_exact_mut(TILE_DIM * self.channel())) {
                for q in (0..pixels).step_by(K_BLOCK) {
                    let lines = amx::SourceLines {
                        data: &self.dy[(row * pixels + q) * channels + o..],
                        step: channels,
                        count: K_BLOCK.min(pixels - q),
                        len: TILE_DIM.min(outs.end - o),
                        is_k_major: true,
                    };
                    self.unit.pack_a_tile(&lines, self.channel(), self.part, &mut out[q..]);
                }
            }
        }
    }

    /// Adds the products of turned rows of dy with the lines that each kernel row reads.
    fn add_rows(
        &self, cpu: &Cpu, shape: &Shape, part: &Range<usize>, piece: &Piece, rows: &mut Rows<'_>, sums: &mut [f32],
    ) {
        let Rows { inputs, lines, gradients, k_segments } = rows;
        let run = shape.kernel[1] * shape.depth;
        // Taps whose values lie side by side are one run of columns.
        let together = if shape.dilation[1] == 1 { shape.kernel[1] } else { 1 };
        for (i, sums) in piece.kernel.clone().zip(sums.chunks_mut((piece.block * run).max(1))) {
            k_segments.clear();
            for (at, row) in part.clone().enumerate() {
                let (image, p) = (row / shape.y[1], row % shape.y[1]);
                let Some(u) = shape.place(0, p, i) else { continue };
                let convert = |_: usize, line: &mut [f32]| {
                    inputs.convert(cpu, image * shape.x[1] + u, line);
                    true
                };
                let (line, _) = lines.find(image * shape.x[1] + u, i, convert);
                k_segments.push(KSegment { a: at * self.row(&piece.outs), b: 2 * line, blocks: self.part / K_BLOCK });
            }
            for j in (0..shape.kernel[1]).step_by(together) {
                let product = TileGemm {
                    a: as_bf16(gradients),
                    a_low: self.part,
                    a_row: self.channel(),
                    a_step: K_BLOCK,
                    b: &as_bf16(lines.of_group(0))[2 * j * shape.dilation[1] * shape.depth..],
                    b_low: inputs.part(),
                    b_row: 4 * inputs.pair_distance,
                    b_step: 2 * K_BLOCK * inputs.pair_distance,
                    k_segments,
                    rows: piece.outs.len(),
                    columns: together * shape.depth,
                };
                self.unit.multiply(&product, true, &mut sums[j * shape.depth..], run);
            }
        }
    }
}
