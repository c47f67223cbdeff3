//! Device memory, and references to host memory.

use half::f16;

/// Element type of a buffer in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// 32-bit floats: master weights, parameter gradients, saved statistics.
    F32,
    /// 16-bit floats (binary16): activations and their gradients.
    F16,
    /// 8-bit unsigned integers: images, labels, pooling offsets.
    U8,
    /// 32-bit unsigned integers: tokens and indices.
    U32,
}

impl DType {
    /// Returns the size of one element of this type in bytes.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::F32 | Self::U32 => 4,
            Self::F16 => 2,
            Self::U8 => 1,
        }
    }
}

crate::codes!(DType {
    Self::F32 => 0 "TYPE_F32",
    Self::F16 => 1 "TYPE_F16",
    Self::U8 => 2 "TYPE_U8",
    Self::U32 => 3 "TYPE_U32",
});

/// Interface of a buffer: device memory of one element type. It is freed on drop, after the work already enqueued.
/// Operator descriptors define the layout.
#[expect(clippy::len_without_is_empty, reason = "an empty buffer is nothing special")]
pub trait Buffer {
    /// Returns the element type of the buffer.
    fn dtype(&self) -> DType;
    /// Returns the number of elements of the buffer. Every method accepts buffers of length 0.
    fn len(&self) -> usize;
}

/// Slice of host memory, of any element type, to be copied to a device.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Host slice of f32 values to be copied to a device.
    F32(&'a [f32]),
    /// Host slice of binary16 values to be copied to a device.
    F16(&'a [f16]),
    /// Host slice of bytes to be copied to a device.
    U8(&'a [u8]),
    /// Host slice of 32-bit words to be copied to a device.
    U32(&'a [u32]),
}

/// Slice of host memory, of any element type, that receives data of a device.
#[derive(Debug)]
pub enum DataMut<'a> {
    /// Host slice that receives f32 values of a device.
    F32(&'a mut [f32]),
    /// Host slice that receives binary16 values of a device.
    F16(&'a mut [f16]),
    /// Host slice that receives bytes of a device.
    U8(&'a mut [u8]),
    /// Host slice that receives 32-bit words of a device.
    U32(&'a mut [u32]),
}

macro_rules! shape_of_data {
    ($($type:ident),*) => {$(
        impl $type<'_> {
            /// Returns the element type of the host data.
            #[must_use]
            pub const fn dtype(&self) -> DType {
                match self {
                    Self::F32(_) => DType::F32,
                    Self::F16(_) => DType::F16,
                    Self::U8(_) => DType::U8,
                    Self::U32(_) => DType::U32,
                }
            }

            /// Returns the number of elements of the host data.
            #[must_use]
            pub const fn len(&self) -> usize {
                match self {
                    Self::F32(data) => data.len(),
                    Self::F16(data) => data.len(),
                    Self::U8(data) => data.len(),
                    Self::U32(data) => data.len(),
                }
            }

            /// Returns true if the host data has no elements.
            #[must_use]
            pub const fn is_empty(&self) -> bool {
                self.len() == 0
            }
        }
    )*};
}
shape_of_data!(Data, DataMut);
