//! Tensor maps, in the words of the emulated machine: address, distances (bytes), sizes (elements), sides of the box, of
//! pixels the first place, the last from the end, and the step of columns and rows, and the swizzle.

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
    strides: [u64; 4],
    sizes: [u32; 5],
    tile: [u32; 5],
    first: [i32; 2],
    last: [i32; 2],
    step: [u32; 2],
    swizzle: u32,
    unused: [u32; 5],
}

/// Value of `CUtensorMapSwizzle` for no swizzle.
const SWIZZLE_NONE: c_uint = 0;
/// Value of `CUtensorMapSwizzle` for swizzled lines of 128 bytes.
const SWIZZLE_128B: c_uint = 3;

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

/// Returns numbers of each dimension, and those of dimensions that a tensor does not have.
fn pad_dimensions<T: Copy, const N: usize>(numbers: &[T], missing: T) -> [T; N] {
    let mut padded = [missing; N];
    padded[..numbers.len()].copy_from_slice(numbers);
    padded
}

/// Returns sizes as the map stores them, 0 where one is too large for TMA.
fn small_sizes(sizes: &[u64]) -> Vec<u32> {
    sizes.iter().map(|&size| u32::try_from(size).unwrap_or(0)).collect()
}

/// Returns the code of a swizzle in matrix descriptors and maps of the emulated machine.
fn swizzle_code(swizzle: c_uint) -> Option<u32> {
    match swizzle {
        SWIZZLE_NONE => Some(0),
        SWIZZLE_128B => Some(1),
        _ => None,
    }
}

/// Encodes a map of boxes, whose requirements are those of the driver's documentation (`cuTensorMapEncodeTiled`).
#[unsafe(no_mangle)]
unsafe extern "C" fn cuTensorMapEncodeTiled(
    map: *mut Map, _data_type: c_uint, rank: u32, at: u64, sizes: *const u64, strides: *const u64, tile: *const u32,
    steps: *const u32, _interleave: c_uint, swizzle: c_uint, _promotion: c_uint, _fill: c_uint,
) -> Status {
    let (Some(swizzle), 3..=5) = (swizzle_code(swizzle), rank) else { return status::INVALID_VALUE };
    let rank = rank as usize;
    // SAFETY: the caller's arrays are as long as the rank asks for.
    let (sizes, strides, tile, steps) = unsafe {
        (
            core::slice::from_raw_parts(sizes, rank),
            core::slice::from_raw_parts(strides, rank - 1),
            core::slice::from_raw_parts(tile, rank),
            core::slice::from_raw_parts(steps, rank),
        )
    };
    let made = Map {
        at,
        strides: pad_dimensions(strides, 0),
        sizes: pad_dimensions(&small_sizes(sizes), 1),
        tile: pad_dimensions(tile, 1),
        swizzle,
        ..Map::zeroed()
    };
    let aligned = at.is_multiple_of(16) && strides.iter().all(|stride| stride.is_multiple_of(16) && *stride < 1 << 40);
    // A swizzled line has 128 bytes here, and any line whole pieces of 16.
    let line = if swizzle == 1 { tile[0] == 64 } else { tile[0].is_multiple_of(8) };
    // Matrices of a batch follow each other. The planes of an image are nearer than its pixels.
    let ordered = rank != 3 || strides[1] >= strides[0];
    let sides = line && tile.iter().all(|side| (1..=256).contains(side));
    check(!made.sizes.contains(&0) && aligned && ordered && sides && steps.iter().all(|&step| step == 1), &made);
    // SAFETY: the caller's memory.
    done(available().map(|()| unsafe { map.write(made) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuTensorMapEncodeIm2col(
    map: *mut Map, _data_type: c_uint, rank: u32, at: u64, sizes: *const u64, strides: *const u64, first: *const c_int,
    last: *const c_int, channels: u32, pixels: u32, steps: *const u32, _interleave: c_uint, swizzle: c_uint,
    _promotion: c_uint, _fill: c_uint,
) -> Status {
    let (Some(swizzle), 4) = (swizzle_code(swizzle), rank) else { return status::INVALID_VALUE };
    // SAFETY: the caller's arrays are as long as the rank asks for.
    let (sizes, strides, first, last, steps) = unsafe {
        (array::<_, 4>(sizes), array::<_, 3>(strides), array::<_, 2>(first), array::<_, 2>(last), array::<_, 4>(steps))
    };
    let step = [steps[1], steps[2]];
    let made = Map {
        at,
        strides: pad_dimensions(&strides, 0),
        sizes: pad_dimensions(&small_sizes(&sizes), 1),
        tile: pad_dimensions(&[channels, pixels], 1),
        first,
        last,
        step,
        swizzle,
        unused: [0; 5],
    };
    let byte = |place: &c_int| i8::try_from(*place).is_ok();
    let places = first.iter().chain(&last).all(byte) && step.iter().all(|step| (1..=8).contains(step));
    let aligned = at.is_multiple_of(16) && strides.iter().all(|stride| stride.is_multiple_of(16));
    check(!made.sizes.contains(&0) && aligned && places && channels == 64 && (1..=1024).contains(&pixels), &made);
    // SAFETY: the caller's memory.
    done(available().map(|()| unsafe { map.write(made) }))
}
