//! Device memory, and references to host memory.

use half::f16;

/// Element type of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// f32: master weights, parameter gradients, saved statistics.
    F32,
    /// binary16: activations and their gradients.
    F16,
    /// Bytes: images, labels, pooling offsets.
    U8,
    /// 32-bit words: tokens and indices.
    U32,
}

impl DType {
    /// Returns the size of one element in bytes.
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

/// Device memory of one element type. It is freed on drop, after the work already enqueued. Operator descriptors define
/// the layout.
#[expect(clippy::len_without_is_empty, reason = "an empty buffer is nothing special")]
pub trait Buffer {
    /// Returns the element type.
    fn dtype(&self) -> DType;
    /// Returns the number of elements. Every method accepts buffers of length 0.
    fn len(&self) -> usize;
}

/// Host data to be copied to a device.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// f32 elements.
    F32(&'a [f32]),
    /// binary16 elements.
    F16(&'a [f16]),
    /// Byte elements.
    U8(&'a [u8]),
    /// 32-bit word elements.
    U32(&'a [u32]),
}

/// Host memory into which device data is copied.
#[derive(Debug)]
pub enum DataMut<'a> {
    /// f32 elements.
    F32(&'a mut [f32]),
    /// binary16 elements.
    F16(&'a mut [f16]),
    /// Byte elements.
    U8(&'a mut [u8]),
    /// 32-bit word elements.
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

            /// Returns true if there are no elements.
            #[must_use]
            pub const fn is_empty(&self) -> bool {
                self.len() == 0
            }
        }
    )*};
}
shape_of_data!(Data, DataMut);
