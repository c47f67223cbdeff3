//! Tensor maps, in the words of the emulated machine: address, sizes (elements), distances (bytes), sides of the box, and
//! of pixels the first place, the last from the end, and the step of columns and rows.

use crate::{
    state::{forbidden, state},
    status::{self, Status, done},
};
use bytemuck::{Pod, Zeroable};
use core::ffi::{c_int, c_uint};

/// Tensor map in the layout of `TensorMap` in `machine.hpp`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Map {
    at: u64,
    sizes: [u64; 4],
    strides: [u64; 3],
    tile: [u64; 3],
    first: [i32; 2],
    last: [i32; 2],
    step: [u32; 2],
    unused: [u64; 2],
}

/// Reads an array of numbers that the caller passed by address.
///
/// # Safety
/// There are that many.
unsafe fn array<T: Copy, const N: usize>(at: *const T) -> [T; N] {
    // SAFETY: the caller's promise.
    unsafe { *at.cast::<[T; N]>() }
}

fn check(right: bool, map: &Map) {
    if !right {
        forbidden(&format!("{map:?} is nothing for the TMA engine"));
    }
}

/// Returns an error if a fault prevents the creation of tensor maps.
fn available() -> Result<(), Status> {
    let mut state = state();
    state.entered()?;
    if state.device().faults.maps { Err(status::INVALID_VALUE) } else { Ok(()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuTensorMapEncodeTiled(
    map: *mut Map, _data_type: c_uint, rank: u32, at: u64, sizes: *const u64, strides: *const u64, tile: *const u32,
    steps: *const u32, _interleave: c_uint, _swizzle: c_uint, _promotion: c_uint, _fill: c_uint,
) -> Status {
    if rank != 3 {
        return status::INVALID_VALUE;
    }
    // SAFETY: the caller's arrays are as long as the rank asks for.
    let (sizes, strides, tile, steps) =
        unsafe { (array::<_, 3>(sizes), array::<_, 2>(strides), array::<_, 3>(tile), array::<_, 3>(steps)) };
    let made = Map {
        at,
        sizes: [sizes[0], sizes[1], sizes[2], 1],
        strides: [strides[0], strides[1], 0],
        tile: tile.map(u64::from),
        ..Map::zeroed()
    };
    let aligned = at.is_multiple_of(16) && strides.iter().all(|stride| stride.is_multiple_of(16));
    let sides = tile[0] == 64 && tile[1..].iter().all(|side| (1..=256).contains(side));
    check(!sizes.contains(&0) && aligned && strides[1] >= strides[0] && sides && steps == [1; 3], &made);
    // SAFETY: the caller's memory.
    done(available().map(|()| unsafe { map.write(made) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuTensorMapEncodeIm2col(
    map: *mut Map, _data_type: c_uint, rank: u32, at: u64, sizes: *const u64, strides: *const u64, first: *const c_int,
    last: *const c_int, channels: u32, pixels: u32, steps: *const u32, _interleave: c_uint, _swizzle: c_uint,
    _promotion: c_uint, _fill: c_uint,
) -> Status {
    if rank != 4 {
        return status::INVALID_VALUE;
    }
    // SAFETY: the caller's arrays are as long as the rank asks for.
    let (sizes, strides, first, last, steps) = unsafe {
        (array::<_, 4>(sizes), array::<_, 3>(strides), array::<_, 2>(first), array::<_, 2>(last), array::<_, 4>(steps))
    };
    let step = [steps[1], steps[2]];
    let tile = [u64::from(channels), u64::from(pixels), 1];
    let made = Map { at, sizes, strides, tile, first, last, step, unused: [0; 2] };
    let byte = |place: &c_int| i8::try_from(*place).is_ok();
    let places = first.iter().chain(&last).all(byte) && step.iter().all(|step| (1..=8).contains(step));
    let aligned = at.is_multiple_of(16) && strides.iter().all(|stride| stride.is_multiple_of(16));
    check(!sizes.contains(&0) && aligned && places && channels == 64 && (1..=1024).contains(&pixels), &made);
    // SAFETY: the caller's memory.
    done(available().map(|()| unsafe { map.write(made) }))
}
