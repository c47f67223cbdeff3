//! The weight pass by tiles: rows of dy, turned, times lines of x.

use super::{filled, lines::Paired};
use crate::{
    Cpu, Memory,
    arch::amx::{self, Amx, DEPTH, Product, Run, SIDE, words, words_mut},
    conv::{
        Shape,
        lines::{Held, Lines},
    },
    scratch::Scratch,
};
use core::ops::Range;
use half::f16;

/// Fewest products of a pixel for each of its elements that are worth their conversion.
const PRODUCTS: usize = 96;

/// What one thread has converted for the weight pass.
pub struct Rows<'a> {
    cpu: &'a Cpu,
    unit: Amx,
    dy: &'a [f16],
    inputs: Paired<'a>,
    lines: Held<'a>,
    /// A row of dy: all pixels of each output channel, which are `2 * part + DEPTH` apart.
    gradient: Scratch<'a>,
    part: usize,
}

impl<'a> Rows<'a> {
    /// Whether the unit is to be used for a weight pass.
    pub fn unit(cpu: &Cpu, shape: &Shape, [x, dy]: [&Memory; 2]) -> Option<Amx> {
        let halves = matches!((x, dy), (Memory::F16(_), Memory::F16(_)));
        let worthwhile = shape.weights() * shape.outs >= PRODUCTS * (shape.depth + shape.outs);
        let filled = filled(shape.outs, core::iter::once(shape.y[2]));
        cpu.isa().amx().filter(|_| halves && worthwhile && filled)
    }

    /// Room for rows of so many output channels.
    pub fn new(cpu: &'a Cpu, unit: Amx, shape: &Shape, lines: Lines<'a>, dy: &'a Memory, outs: usize) -> Option<Self> {
        let Memory::F16(dy) = dy else { return None };
        let part = shape.y[2].next_multiple_of(DEPTH);
        let inputs = Paired {
            lines,
            unit,
            apart: shape.stride[1] * shape.depth,
            pixels: (part - 1) * shape.stride[1] + (shape.kernel[1] - 1) * shape.dilation[1] + 1,
        };
        let lines = Held::new(cpu, inputs.part(), 1, shape.kernel[0], shape.dilation[0]);
        // Two bf16 in the place of an f32.
        let gradient = cpu.scratch(outs.next_multiple_of(SIDE) * (2 * part + DEPTH) / 2);
        Some(Self { cpu, unit, dy, inputs, lines, gradient, part })
    }

    /// Takes some channels of a row of dy: false if something is not finite.
    pub fn turn(&mut self, shape: &Shape, row: usize, outs: &Range<usize>) -> bool {
        let (pixels, channels) = (shape.y[2], shape.y[3]);
        let (step, gradient) = (2 * self.part + DEPTH, words_mut(&mut self.gradient));
        let first = row * pixels * channels;
        outs.clone().step_by(SIDE).zip(gradient.chunks_exact_mut(SIDE * step)).all(|(o, out)| {
            (0..pixels).step_by(DEPTH).all(|q| {
                let lines = amx::Lines {
                    data: &self.dy[first + q * channels + o..],
                    step: channels,
                    count: DEPTH.min(pixels - q),
                    len: SIDE.min(outs.end - o),
                    steps: true,
                };
                self.unit.rows(&lines, step, self.part, &mut out[q..])
            })
        })
    }

    /// Adds the products with kernel row `i`, which reads `row` of x, to the sums of so many channels: false if the row is
    /// not finite.
    pub fn add(&mut self, shape: &Shape, row: usize, i: usize, outs: usize, sums: &mut [f32]) -> bool {
        let (inputs, cpu) = (self.inputs, self.cpu);
        let (line, finite) = self.lines.find(row, i, |_, line| inputs.convert(cpu, row, line));
        if !finite {
            return false;
        }
        let run = shape.kernel[1] * shape.depth;
        // Taps whose values lie side by side are one run of columns.
        let together = if shape.dilation[1] == 1 { shape.kernel[1] } else { 1 };
        for j in (0..shape.kernel[1]).step_by(together) {
            let product = Product {
                a: words(&self.gradient),
                a_low: self.part,
                a_row: 2 * self.part + DEPTH,
                a_step: DEPTH,
                b: &words(&self.lines.of_group(0)[line..])[2 * j * shape.dilation[1] * shape.depth..],
                b_low: inputs.part(),
                b_row: 4 * inputs.apart,
                b_step: 2 * DEPTH * inputs.apart,
                runs: &[Run { a: 0, b: 0, blocks: self.part / DEPTH }],
                rows: outs,
                columns: together * shape.depth,
            };
            self.unit.multiply(&product, true, &mut sums[j * shape.depth..], run);
        }
        true
    }
}
