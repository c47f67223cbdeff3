//! Tensor maps of TMA for halves, with zeros outside the tensor: lines of 128 bytes with swizzled 16-byte pieces, or planes
//! of such pieces.

use bytemuck::{Pod, Zeroable};
use core::ffi::c_void;
use cudarc::driver::{
    DriverError,
    sys::{
        self,
        CUtensorMapDataType_enum::CU_TENSOR_MAP_DATA_TYPE_FLOAT16 as HALVES,
        CUtensorMapFloatOOBfill_enum::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE as FILL_ZEROS,
        CUtensorMapInterleave_enum::CU_TENSOR_MAP_INTERLEAVE_NONE as NO_INTERLEAVE,
        CUtensorMapL2promotion_enum::CU_TENSOR_MAP_L2_PROMOTION_L2_256B as PROMOTE_L2_256B,
        CUtensorMapSwizzle_enum::{
            CU_TENSOR_MAP_SWIZZLE_128B as SWIZZLE_128B, CU_TENSOR_MAP_SWIZZLE_NONE as SWIZZLE_NONE,
        },
    },
};

/// Contiguous matrices of halves as a TMA tensor map describes them, with sizes and box sides innermost first.
#[derive(Clone, Copy, Debug)]
pub struct Tiled {
    /// Address of the first element, a multiple of 16.
    pub at: u64,
    /// Number of elements of a row, of rows, and of matrices.
    pub sizes: [u32; 3],
    /// Bytes from row to row and from matrix to matrix, multiples of 16.
    pub strides: [u64; 2],
    /// Elements of a row (64), rows and matrices (at most 256) of a box.
    pub tile: [u32; 3],
}

/// Images of halves, as TMA is to see them in its im2col mode: [c, w, h, n], 64 channels and
/// `pixels` of the result at a time. Pairs are of columns and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Im2col {
    /// Address of the first element, a multiple of 16.
    pub at: u64,
    /// Number of channels (a multiple of 8; boxes have zeros beyond them), columns, rows and images.
    pub sizes: [u32; 4],
    /// Offset of the first window before a tap is added: -128 … 127.
    pub first: [i32; 2],
    /// Number of windows in a row of the image, and in a column.
    pub counts: [u32; 2],
    /// Stride between windows in pixels, at most 8.
    pub step: [u32; 2],
    /// Number of windows in a tile, at most 1024.
    pub pixels: u32,
}

impl Im2col {
    /// Returns the offset of the last window relative to the last pixel.
    #[must_use]
    pub fn last(&self) -> [i64; 2] {
        [0, 1].map(|d| {
            let way = i64::from(self.counts[d].saturating_sub(1)) * i64::from(self.step[d]);
            i64::from(self.first[d]) + way + 1 - i64::from(self.sizes[d + 1])
        })
    }

    /// Returns true if the offsets fit TMA's ranges with taps of this reach.
    #[must_use]
    pub fn fits(&self, reach: [u32; 2]) -> bool {
        let byte = |place: i64| i8::try_from(place).is_ok();
        self.sizes[0].is_multiple_of(8)
            && self.first.iter().all(|&place| byte(i64::from(place)))
            && self.last().into_iter().all(byte)
            && self.step.iter().all(|&step| step <= 8)
            && reach.iter().all(|&reach| reach < 256)
    }
}

/// Images of halves as TMA sees them in planes of eight channels: [8 channels, column, row, plane, image].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planes {
    /// Address of the first element, a multiple of 16.
    pub at: u64,
    /// Number of channels (a multiple of 8), columns, rows and images.
    pub sizes: [u32; 4],
    /// Columns and rows of a box, at most 256. It has all planes.
    pub tile: [u32; 2],
}

/// Tensor map as the TMA hardware reads it (PTX ISA, "Tensors").
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct TensorMap(pub [u64; 16]);

/// Creates the tensor map by which TMA loads tiles of matrices.
///
/// # Errors
/// The driver's.
pub fn tiled(tensor: &Tiled) -> Result<TensorMap, DriverError> {
    boxes(tensor.at, tensor.sizes.map(u64::from), &tensor.strides, tensor.tile, SWIZZLE_128B)
}

/// Creates the tensor map by which TMA loads parts of images as planes of eight channels.
///
/// A plane is a dimension whose distance, 16 bytes, is less than that of pixels.
///
/// # Errors
/// The driver's.
pub fn planes(images: &Planes) -> Result<TensorMap, DriverError> {
    let [channels, columns, rows, count] = images.sizes.map(u64::from);
    let (plane_count, pixel) = (channels / 8, 2 * channels);
    let strides = [pixel, pixel * columns, 16, pixel * columns * rows];
    let tile = [8, images.tile[0], images.tile[1], images.sizes[0] / 8, 1];
    boxes(images.at, [8, columns, rows, plane_count, count], &strides, tile, SWIZZLE_NONE)
}

/// Creates the tensor map of a tensor and of the box that a load brings. `strides` are those of all dimensions but the first.
fn boxes<const RANK: usize>(
    at: u64, sizes: [u64; RANK], strides: &[u64], tile: [u32; RANK], swizzle: sys::CUtensorMapSwizzle,
) -> Result<TensorMap, DriverError> {
    debug_assert_eq!(strides.len() + 1, RANK, "strides of the outer dimensions");
    #[expect(clippy::cast_possible_truncation, reason = "at most 5")]
    let rank = RANK as u32;
    let mut map = sys::CUtensorMap { opaque: [0; 16] };
    // SAFETY: all arrays are as long as the rank asks for; the address is only noted.
    let result = unsafe {
        sys::cuTensorMapEncodeTiled(
            &raw mut map,
            HALVES,
            rank,
            at as *mut c_void,
            sizes.as_ptr(),
            strides.as_ptr(),
            tile.as_ptr(),
            [1; RANK].as_ptr(),
            NO_INTERLEAVE,
            swizzle,
            PROMOTE_L2_256B,
            FILL_ZEROS,
        )
    };
    result.result().map(|()| TensorMap(map.opaque))
}

/// Creates the tensor map by which TMA loads windows of images in im2col mode.
///
/// # Errors
/// The driver's.
pub fn im2col(pixels: &Im2col) -> Result<TensorMap, DriverError> {
    let mut map = sys::CUtensorMap { opaque: [0; 16] };
    let (at, sizes) = (pixels.at as *mut c_void, pixels.sizes.map(u64::from));
    let pixel = 2 * sizes[0];
    let strides = [pixel, pixel * sizes[1], pixel * sizes[1] * sizes[2]];
    let last = pixels.last().map(|place| i32::try_from(place).unwrap_or(i32::MAX));
    let steps = [1, pixels.step[0], pixels.step[1], 1];
    // SAFETY: as above.
    let result = unsafe {
        sys::cuTensorMapEncodeIm2col(
            &raw mut map,
            HALVES,
            4,
            at,
            sizes.as_ptr(),
            strides.as_ptr(),
            pixels.first.as_ptr(),
            last.as_ptr(),
            64,
            pixels.pixels,
            steps.as_ptr(),
            NO_INTERLEAVE,
            SWIZZLE_128B,
            PROMOTE_L2_256B,
            FILL_ZEROS,
        )
    };
    result.result().map(|()| TensorMap(map.opaque))
}
