//! Strided copies.

use crate::{Cuda, Error, kernels, memory::Memory, store::StoreParams};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{
    backend::{Buffer, DType, Store},
    ops::{Dim, MAX_DIMS, Strided},
};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct CopyParams {
    y: StoreParams,
    x: u64,
    x_strides: [u32; MAX_DIMS],
    y_strides: [u32; MAX_DIMS],
    starts: [u32; 2],
    lens: [u32; MAX_DIMS],
    kind: u32,
    count: u32,
    vectorized: u32,
    unused: u32,
}

/// Normalizes a strided copy: orders dimensions as in y, outermost first with ascending strides, and merges those that
/// are contiguous in x and y.
fn sort_and_merge(p: &Strided) -> (Vec<Dim>, [i64; 2]) {
    let mut starts = p.start().map(i64::from);
    let mut given: Vec<Dim> = p.dims().iter().copied().filter(|dim| dim.len != 1).collect();
    given.sort_by_key(|dim| core::cmp::Reverse(dim.y.unsigned_abs()));
    let mut dims: Vec<Dim> = Vec::new();
    for mut dim in given {
        if dim.y < 0 {
            // From the other end.
            let last = i64::from(dim.len) - 1;
            starts = [starts[0] + last * dim.x, starts[1] + last * dim.y];
            dim = Dim { x: -dim.x, y: -dim.y, ..dim };
        }
        let len = i64::from(dim.len);
        match dims.last_mut() {
            Some(outer) if outer.x == dim.x * len && outer.y == dim.y * len => {
                *outer = Dim { len: outer.len * dim.len, ..dim };
            }
            _ => dims.push(dim),
        }
    }
    (dims, starts)
}

/// Converts a stride to the kernel's arithmetic modulo 2^32, because all offsets are below 2^32.
fn wrap_to_u32(step: i64) -> u32 {
    u32::try_from(step & 0xFFFF_FFFF).expect("32 bits")
}

/// Returns true if groups of eight of the innermost dimension are contiguous and aligned in x and y.
fn is_vectorizable(dims: &[Dim], starts: [i64; 2]) -> bool {
    let eights = |step: i64| step % 8 == 0;
    dims.split_last().is_some_and(|(run, outer)| {
        let aligned = starts.into_iter().chain(outer.iter().flat_map(|dim| [dim.x, dim.y])).all(eights);
        [run.x, run.y] == [1, 1] && run.len.is_multiple_of(8) && aligned
    })
}

impl Cuda {
    pub(crate) fn run_copy(&self, p: &Strided, x: &Memory, y: &Store<'_, Self>) -> Result<(), Error> {
        let [x_len, y_len] = p.reach().map(|len| len as usize);
        let words = x.dtype() == DType::U32 && y.y.dtype() == DType::U32;
        let kernel = if words { &kernels::COPY_WORDS } else { &kernels::COPY };
        let (count, blocks) = self.elementwise_grid(kernel, p.count() as usize)?;
        let (dims, starts) = sort_and_merge(p);
        let mut params = CopyParams {
            y: self.store(y, y_len, blocks)?,
            x: x.expect_len(x_len).at(),
            x_strides: [0; MAX_DIMS],
            y_strides: [0; MAX_DIMS],
            starts: starts.map(wrap_to_u32),
            lens: [1; MAX_DIMS],
            kind: x.kind(),
            count,
            vectorized: u32::from(is_vectorizable(&dims, starts)),
            unused: 0,
        };
        // The innermost dimension is last.
        for (dim, d) in dims.iter().rev().zip((0..MAX_DIMS).rev()) {
            (params.lens[d], params.x_strides[d], params.y_strides[d]) =
                (dim.len, wrap_to_u32(dim.x), wrap_to_u32(dim.y));
        }
        // SAFETY: x and y hold all places that the descriptor reaches.
        unsafe { self.launch(kernel, blocks, &params) }
    }
}
