//! What the copy engine is told of tensors of halves: lines of 128 bytes with exchanged pieces, zeros outside.

use crate::driver::{TensorMap, Tiled, Windows};
use core::ffi::c_void;
use cudarc::driver::{
    DriverError,
    sys::{
        self, CUtensorMapDataType_enum::CU_TENSOR_MAP_DATA_TYPE_FLOAT16 as HALVES,
        CUtensorMapFloatOOBfill_enum::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE as ZEROS,
        CUtensorMapInterleave_enum::CU_TENSOR_MAP_INTERLEAVE_NONE as PLAIN,
        CUtensorMapL2promotion_enum::CU_TENSOR_MAP_L2_PROMOTION_L2_256B as PROMOTED,
        CUtensorMapSwizzle_enum::CU_TENSOR_MAP_SWIZZLE_128B as EXCHANGED,
    },
};

/// Matrices.
///
/// # Errors
/// The driver's.
pub fn tiled(tensor: &Tiled) -> Result<TensorMap, DriverError> {
    let mut map = sys::CUtensorMap { opaque: [0; 16] };
    let (at, sizes) = (tensor.at as *mut c_void, tensor.sizes.map(u64::from));
    // SAFETY: all arrays are as long as the rank asks for; the address is only noted.
    let result = unsafe {
        sys::cuTensorMapEncodeTiled(
            &raw mut map,
            HALVES,
            3,
            at,
            sizes.as_ptr(),
            tensor.strides.as_ptr(),
            tensor.tile.as_ptr(),
            [1; 3].as_ptr(),
            PLAIN,
            EXCHANGED,
            PROMOTED,
            ZEROS,
        )
    };
    result.result().map(|()| TensorMap(map.opaque))
}

/// Images with windows moving over them.
///
/// # Errors
/// The driver's.
pub fn windows(windows: &Windows) -> Result<TensorMap, DriverError> {
    let mut map = sys::CUtensorMap { opaque: [0; 16] };
    let (at, sizes) = (windows.at as *mut c_void, windows.sizes.map(u64::from));
    let pixel = 2 * sizes[0];
    let strides = [pixel, pixel * sizes[1], pixel * sizes[1] * sizes[2]];
    let last = windows.last().map(|place| i32::try_from(place).unwrap_or(i32::MAX));
    let steps = [1, windows.step[0], windows.step[1], 1];
    // SAFETY: as above.
    let result = unsafe {
        sys::cuTensorMapEncodeIm2col(
            &raw mut map,
            HALVES,
            4,
            at,
            sizes.as_ptr(),
            strides.as_ptr(),
            windows.first.as_ptr(),
            last.as_ptr(),
            64,
            windows.pixels,
            steps.as_ptr(),
            PLAIN,
            EXCHANGED,
            PROMOTED,
            ZEROS,
        )
    };
    result.result().map(|()| TensorMap(map.opaque))
}
