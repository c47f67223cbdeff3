//! Strided copies.

use crate::{
    Cpu, Memory,
    epilogue::{BLOCK, Epilogue, Part, merge},
};
use gradscale_core::{backend::Store, descriptor::Strided};
use half::f16;

impl Cpu {
    pub(crate) fn run_copy(&self, p: &Strided, x: &Memory, y: Store<'_, Self>) {
        let epilogue = Epilogue::of(&y, self.isa());
        let Store { y, table, to, .. } = y;
        match (x, y) {
            (Memory::U8(x), Memory::U8(y)) => places(p, |from, to| y[to] = x[from]),
            (Memory::U32(x), Memory::U32(y)) => places(p, |from, to| y[to] = x[from]),
            (x, Memory::U8(_) | Memory::U32(_)) => {
                panic!("a copy of {:?} into integers", gradscale_core::backend::Buffer::dtype(x))
            }
            (x, Memory::F32(y)) => {
                let row = scattered(p, x, y, &epilogue, |y: &mut [f32]| Part::F32(y));
                merge(&epilogue, &[row], |row| table.merge(to, row));
            }
            (x, Memory::F16(y)) => {
                let row = scattered(p, x, y, &epilogue, |y: &mut [f16]| Part::F16(y));
                merge(&epilogue, &[row], |row| table.merge(to, row));
            }
        }
    }
}

/// Copies through the epilogue: values and places are gathered into a block, finished there, and written back.
fn scattered<T: Copy + Default>(
    p: &Strided, x: &Memory, y: &mut [T], epilogue: &Epilogue, part: impl Fn(&mut [T]) -> Part<'_>,
) -> crate::seen::Seen {
    let mut row = epilogue.row();
    let (mut values, mut at, mut block) = ([0f32; BLOCK], [0usize; BLOCK], [T::default(); BLOCK]);
    let mut count = 0;
    let mut flush = |values: &mut [f32], at: &[usize]| {
        let block = &mut block[..at.len()];
        // What is there counts where the store adds to it.
        block.iter_mut().zip(at).for_each(|(block, &at)| *block = y[at]);
        epilogue.finish(values, part(block), &mut row);
        block.iter().zip(at).for_each(|(&block, &at)| y[at] = block);
    };
    places(p, |from, to| {
        (values[count], at[count]) = (x.get(from), to);
        count += 1;
        if count == BLOCK {
            flush(&mut values, &at);
            count = 0;
        }
    });
    flush(&mut values[..count], &at[..count]);
    row
}

/// Calls with the places in x and y of every element, the last dimension running fastest.
fn places(p: &Strided, mut each: impl FnMut(usize, usize)) {
    let dims = p.dims();
    let [x0, y0] = p.start().map(i64::from);
    let (outer, last) = dims.split_at(dims.len().saturating_sub(1));
    let rows: u64 = outer.iter().map(|dim| u64::from(dim.len)).product();
    for row in 0..rows {
        let (mut rest, mut x, mut y) = (row, x0, y0);
        for dim in outer.iter().rev() {
            let step = (rest % u64::from(dim.len)).cast_signed();
            rest /= u64::from(dim.len);
            x += step * dim.x;
            y += step * dim.y;
        }
        let (len, step) = last.first().map_or((1, [0, 0]), |dim| (dim.len, [dim.x, dim.y]));
        for _ in 0..len {
            // The descriptor keeps both inside their buffers.
            each(usize::try_from(x).unwrap_or(usize::MAX), usize::try_from(y).unwrap_or(usize::MAX));
            x += step[0];
            y += step[1];
        }
    }
}
