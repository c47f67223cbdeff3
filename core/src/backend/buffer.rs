//! Memory of a device, and of the host.

use half::f16;

/// What a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// Masters, parameter gradients, saved statistics.
    F32,
    /// Activations and their gradients.
    F16,
    /// Images, labels, pooling offsets.
    U8,
    /// Tokens.
    U32,
}

impl DType {
    /// Bytes of one element.
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

/// Device memory of one type; freed on drop, after the work already enqueued. Layout is the descriptors' business.
#[expect(clippy::len_without_is_empty, reason = "an empty buffer is nothing special")]
pub trait Buffer {
    /// Type of the elements.
    fn dtype(&self) -> DType;
    /// Number of elements. Every method accepts 0.
    fn len(&self) -> usize;
}

/// Host data going to a device.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// f32.
    F32(&'a [f32]),
    /// binary16.
    F16(&'a [f16]),
    /// Bytes.
    U8(&'a [u8]),
    /// Words.
    U32(&'a [u32]),
}

/// Host memory to be filled.
#[derive(Debug)]
pub enum DataMut<'a> {
    /// f32.
    F32(&'a mut [f32]),
    /// binary16.
    F16(&'a mut [f16]),
    /// Bytes.
    U8(&'a mut [u8]),
    /// Words.
    U32(&'a mut [u32]),
}

macro_rules! shape_of_data {
    ($($type:ident),*) => {$(
        impl $type<'_> {
            /// Type of the elements.
            #[must_use]
            pub const fn dtype(&self) -> DType {
                match self {
                    Self::F32(_) => DType::F32,
                    Self::F16(_) => DType::F16,
                    Self::U8(_) => DType::U8,
                    Self::U32(_) => DType::U32,
                }
            }

            /// Number of elements.
            #[must_use]
            pub const fn len(&self) -> usize {
                match self {
                    Self::F32(data) => data.len(),
                    Self::F16(data) => data.len(),
                    Self::U8(data) => data.len(),
                    Self::U32(data) => data.len(),
                }
            }

            /// Whether there are none.
            #[must_use]
            pub const fn is_empty(&self) -> bool {
                self.len() == 0
            }
        }
    )*};
}
shape_of_data!(Data, DataMut);
