//! Strided copies.
//!
//! Dimensions are sorted by their stride in y, so that they nest: a step of the outermost dimension writes a stretch of
//! its own. These stretches are the chunks of the work. Along the innermost dimension one run of elements is copied at
//! a time.

use crate::{
    Cpu, Memory,
    elementwise::load_f32,
    epilogue::{BLOCK_ELEMENTS, Epilogue, OutputSlice, report_stats},
    stats_accumulator::StatsAccumulator,
    threading::Cost,
};
use core::ops::Range;
use gradscale_core::{backend::Store, ops::Strided};
use half::f16;

/// Minimum number of elements of a chunk that one task copies.
const MIN_CHUNK_ELEMENTS: usize = 1 << 15;

/// Dimension of a strided copy: its length, and its strides in x and y.
#[derive(Clone, Copy, Debug)]
struct Dim {
    len: usize,
    x: i64,
    y: usize,
}

/// Strided copy with its dimensions in the order of y, outermost first.
#[derive(Debug)]
struct Walk {
    dims: Vec<Dim>,
    x: i64,
    y: usize,
}

impl Walk {
    fn new(p: &Strided) -> Self {
        let [mut x, mut y] = p.start().map(i64::from);
        let mut dims: Vec<Dim> = Vec::new();
        let mut given: Vec<_> = p.dims().to_vec();
        given.sort_by_key(|dim| core::cmp::Reverse(dim.y.unsigned_abs()));
        for dim in given.into_iter().filter(|dim| dim.len != 1) {
            let (mut step_x, step_y) = (dim.x, usize::try_from(dim.y.unsigned_abs()).unwrap_or(usize::MAX));
            if dim.y < 0 {
                // A negative stride is walked from the other end.
                let last = i64::from(dim.len) - 1;
                (x, y) = (x + last * dim.x, y + last * dim.y);
                step_x = -dim.x;
            }
            let inner = Dim { len: dim.len as usize, x: step_x, y: step_y };
            match dims.last_mut() {
                // Two dimensions that are contiguous in both tensors become one.
                Some(outer) if outer.x == inner.x * i64::from(dim.len) && outer.y == inner.y * inner.len => {
                    *outer = Dim { len: outer.len * inner.len, ..inner };
                }
                _ => dims.push(inner),
            }
        }
        // A single long run is divided if possible, so that several threads can work.
        if let [Dim { len, x, y }] = dims[..]
            && len > MIN_CHUNK_ELEMENTS
            && let Some(run) = (BLOCK_ELEMENTS / 16..=BLOCK_ELEMENTS).rev().find(|&run| len.is_multiple_of(run))
        {
            dims = vec![Dim { len: len / run, x: x * run as i64, y: y * run }, Dim { len: run, x, y }];
        }
        // At least a run and one outer dimension.
        while dims.len() < 2 {
            dims.insert(0, Dim { len: 1, x: 0, y: 1 });
        }
        // The descriptor keeps both inside their buffers.
        Self { dims, x, y: usize::try_from(y).unwrap_or(usize::MAX) }
    }

    /// Returns the innermost dimension of the copy.
    fn innermost(&self) -> Dim {
        self.dims[self.dims.len() - 1]
    }

    /// Returns the number of elements that one step of the outermost dimension copies.
    fn step(&self) -> usize {
        self.dims[1..].iter().map(|dim| dim.len).product()
    }

    /// Calls `visit` with the first indices in x and y of all runs in some steps of the outermost dimension. y is
    /// counted from the first of these steps.
    fn for_each_run(&self, steps: Range<usize>, mut visit: impl FnMut(usize, usize)) {
        let (outer, middle) = (self.dims[0], &self.dims[1..self.dims.len() - 1]);
        let count: usize = middle.iter().map(|dim| dim.len).product();
        for (i, step) in steps.enumerate() {
            for run in 0..count {
                let (mut rest, mut x, mut y) = (run, self.x + step as i64 * outer.x, i * outer.y);
                for dim in middle.iter().rev() {
                    let at = rest % dim.len;
                    rest /= dim.len;
                    x += at as i64 * dim.x;
                    y += at * dim.y;
                }
                visit(usize::try_from(x).unwrap_or(usize::MAX), y);
            }
        }
    }

    /// Processes all stretches of y in parallel; results in order. `work` receives steps of the outermost dimension and
    /// their stretch.
    fn par_stretches<T: Send, R: Send>(
        &self, cpu: &Cpu, y: &mut [T], work: impl Fn(Range<usize>, &mut [T]) -> R + Sync,
    ) -> Vec<R> {
        let (outer, step) = (self.dims[0], self.step());
        if step == 0 || outer.len == 0 {
            return vec![];
        }
        let steps = MIN_CHUNK_ELEMENTS.div_ceil(step).clamp(1, outer.len);
        // A stretch ends with the last run of its last step.
        let span = self.dims[1..].iter().map(|dim| (dim.len - 1) * dim.y).sum::<usize>() + 1;
        let y = &mut y[self.y..][..(outer.len - 1) * outer.y + span];
        let size = (steps * outer.y).max(span);
        cpu.par_chunks_mut(Cost::elements(outer.len * step), y, size, |i, y| {
            work(i * steps..outer.len.min((i + 1) * steps), y)
        })
    }
}

impl Cpu {
    pub(crate) fn run_copy(&self, p: &Strided, x: &Memory, y: Store<'_, Self>) {
        let epilogue = Epilogue::from_store(&y, self.isa());
        let Store { y, table, to, .. } = y;
        let walk = Walk::new(p);
        let rows = match (x, y) {
            (Memory::U8(x), Memory::U8(y)) => return self.copy_integers(&walk, x, y),
            (Memory::U32(x), Memory::U32(y)) => return self.copy_integers(&walk, x, y),
            (x, Memory::U8(_) | Memory::U32(_)) => {
                panic!("a copy of {:?} into integers", gradscale_core::backend::Buffer::dtype(x))
            }
            (x, Memory::F32(y)) => self.copy_floats(&walk, x, y, &epilogue, |y: &mut [f32]| OutputSlice::F32(y)),
            (x, Memory::F16(y)) => self.copy_floats(&walk, x, y, &epilogue, |y: &mut [f16]| OutputSlice::F16(y)),
        };
        report_stats(&epilogue, &rows, |row| table.merge(to, row));
    }

    /// Copies integers by a strided copy, without an epilogue.
    fn copy_integers<T: Copy + Send + Sync>(&self, walk: &Walk, x: &[T], y: &mut [T]) {
        let run = walk.innermost();
        let work = |steps: Range<usize>, y: &mut [T]| {
            walk.for_each_run(steps, |from, to| {
                for (i, y) in y[to..].iter_mut().step_by(run.y).take(run.len).enumerate() {
                    *y = x[run_element(from, i, run.x)];
                }
            });
        };
        walk.par_stretches(self, y, work);
    }

    /// Copies through the epilogue: runs are gathered into a block, stored there, and written back.
    fn copy_floats<T: Copy + Default + Send>(
        &self, walk: &Walk, x: &Memory, y: &mut [T], epilogue: &Epilogue,
        part: impl Fn(&mut [T]) -> OutputSlice<'_> + Sync,
    ) -> Vec<StatsAccumulator> {
        let run = walk.innermost();
        let work = |steps: Range<usize>, y: &mut [T]| {
            let mut row = epilogue.new_accumulator();
            let (mut values, mut block) = ([0f32; BLOCK_ELEMENTS], [T::default(); BLOCK_ELEMENTS]);
            // Lengths and destinations of the runs in the block.
            let (mut run_parts, mut count) = (Vec::new(), 0);
            let mut flush = |values: &mut [f32], run_parts: &mut Vec<(usize, usize)>| {
                let block = &mut block[..values.len()];
                // An accumulating store needs the values of y.
                if epilogue.accumulates() {
                    for_each_pair(run_parts, block, y, run.y, |block, y| *block = *y);
                }
                epilogue.finish_block(values, part(block), &mut row);
                for_each_pair(run_parts, block, y, run.y, |block, y| *y = *block);
                run_parts.clear();
            };
            walk.for_each_run(steps, |from, to| {
                let mut done = 0;
                while done < run.len {
                    let len = (run.len - done).min(BLOCK_ELEMENTS - count);
                    let chunk = &mut values[count..count + len];
                    if run.x == 1 {
                        load_f32(self.isa(), x, from + done, chunk);
                    } else if run.x == 0 {
                        chunk.fill(x.get(from));
                    } else {
                        (done..).zip(chunk).for_each(|(i, v)| *v = x.get(run_element(from, i, run.x)));
                    }
                    run_parts.push((len, to + done * run.y));
                    (done, count) = (done + len, count + len);
                    if count == BLOCK_ELEMENTS {
                        flush(&mut values, &mut run_parts);
                        count = 0;
                    }
                }
            });
            flush(&mut values[..count], &mut run_parts);
            row
        };
        walk.par_stretches(self, y, work)
    }
}

/// Returns the index of element `i` of an innermost run that starts at index `from`.
fn run_element(from: usize, i: usize, step: i64) -> usize {
    // The descriptor keeps it inside the buffer.
    usize::try_from(from as i64 + i as i64 * step).unwrap_or(usize::MAX)
}

/// Calls `work` for each element of a block and its element of y.
fn for_each_pair<T>(
    run_parts: &[(usize, usize)], block: &mut [T], y: &mut [T], step: usize, work: impl Fn(&mut T, &mut T) + Copy,
) {
    let mut rest = block;
    for &(len, to) in run_parts {
        let (chunk, left) = rest.split_at_mut(len);
        rest = left;
        if step == 1 {
            chunk.iter_mut().zip(&mut y[to..to + len]).for_each(|(block, y)| work(block, y));
        } else {
            chunk.iter_mut().zip(y[to..].iter_mut().step_by(step)).for_each(|(block, y)| work(block, y));
        }
    }
}
