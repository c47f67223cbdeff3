//! Buffers: vectors of f32, f16, u8 or u32.

use crate::Error;
use gradscale_core::backend::{Buffer, DType, Data, DataMut};
use half::f16;

/// Buffer of the CPU backend: host memory of one element type.
#[derive(Debug)]
pub enum Memory {
    /// Buffer of f32 elements, for master weights and everything else that stays in single precision.
    F32(Vec<f32>),
    /// Buffer of f16 elements, for activations and scaled gradients.
    F16(Vec<f16>),
    /// Buffer of bytes, for example of images, labels or pooling offsets.
    U8(Vec<u8>),
    /// Buffer of 32-bit unsigned integers, for example of tokens or gather indices.
    U32(Vec<u32>),
}

impl Buffer for Memory {
    fn dtype(&self) -> DType {
        match self {
            Self::F32(_) => DType::F32,
            Self::F16(_) => DType::F16,
            Self::U8(_) => DType::U8,
            Self::U32(_) => DType::U32,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::F32(data) => data.len(),
            Self::F16(data) => data.len(),
            Self::U8(data) => data.len(),
            Self::U32(data) => data.len(),
        }
    }
}

impl Memory {
    /// Creates a buffer of zeros; returns an error instead of an abort where the system has no more memory.
    pub(crate) fn new(dtype: DType, len: usize) -> Result<Self, Error> {
        match dtype {
            DType::F32 => zeroed_vec(0.0, len).map(Self::F32),
            DType::F16 => zeroed_vec(f16::ZERO, len).map(Self::F16),
            DType::U8 => zeroed_vec(0, len).map(Self::U8),
            DType::U32 => zeroed_vec(0, len).map(Self::U32),
        }
    }

    pub(crate) fn write(&mut self, src: Data<'_>) {
        match (src, self) {
            (Data::F32(src), Self::F32(dst)) => dst[..src.len()].copy_from_slice(src),
            (Data::F16(src), Self::F16(dst)) => dst[..src.len()].copy_from_slice(src),
            (Data::U8(src), Self::U8(dst)) => dst[..src.len()].copy_from_slice(src),
            (Data::U32(src), Self::U32(dst)) => dst[..src.len()].copy_from_slice(src),
            (src, dst) => panic!("data of type {:?} for a buffer of type {:?}", src.dtype(), dst.dtype()),
        }
    }

    pub(crate) fn read(&self, dst: DataMut<'_>) {
        match (self, dst) {
            (Self::F32(src), DataMut::F32(dst)) => dst.copy_from_slice(&src[..dst.len()]),
            (Self::F16(src), DataMut::F16(dst)) => dst.copy_from_slice(&src[..dst.len()]),
            (Self::U8(src), DataMut::U8(dst)) => dst.copy_from_slice(&src[..dst.len()]),
            (Self::U32(src), DataMut::U32(dst)) => dst.copy_from_slice(&src[..dst.len()]),
            (src, dst) => panic!("a buffer of type {:?} for data of type {:?}", src.dtype(), dst.dtype()),
        }
    }

    /// Returns element `i` of the buffer as f32.
    #[inline]
    pub(crate) fn get(&self, i: usize) -> f32 {
        match self {
            Self::F32(data) => data[i],
            Self::F16(data) => data[i].to_f32(),
            Self::U8(data) => f32::from(data[i]),
            // Words beyond 2^24 are indices, and not computed with.
            Self::U32(data) => data[i] as f32,
        }
    }

    /// Returns element `i` of a buffer of indices or labels.
    pub(crate) fn integer(&self, i: usize) -> u32 {
        match self {
            Self::U8(data) => u32::from(data[i]),
            Self::U32(data) => data[i],
            other => panic!("{:?} where indices are expected", other.dtype()),
        }
    }

    /// Returns the values of an f32 buffer.
    pub(crate) fn f32(&self) -> &[f32] {
        match self {
            Self::F32(data) => data,
            other => panic!("{:?} where F32 is expected", other.dtype()),
        }
    }

    /// Returns the values of an f32 buffer, mutably.
    pub(crate) fn f32_mut(&mut self) -> &mut [f32] {
        match self {
            Self::F32(data) => data,
            other => panic!("{:?} where F32 is expected", other.dtype()),
        }
    }

    /// Writes an integer as element `i` of a buffer of indices.
    #[expect(clippy::cast_possible_truncation, reason = "what the destination's type can hold is the caller's promise")]
    pub(crate) fn set_integer(&mut self, i: usize, value: usize) {
        match self {
            Self::U8(data) => data[i] = value as u8,
            Self::U32(data) => data[i] = value as u32,
            other => panic!("{:?} as a destination of indices", other.dtype()),
        }
    }
}

fn zeroed_vec<T: Clone>(zero: T, len: usize) -> Result<Vec<T>, Error> {
    let mut data = Vec::new();
    let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
    data.try_reserve_exact(len).map_err(|_| Error::OutOfMemory { bytes })?;
    data.resize(len, zero);
    Ok(data)
}
