//! Results of a network, read by the host as f32 values or integers.

use crate::{Error, Shape, Tensor, TraceError, error::TraceErrorKind, graph::Value, train::Trainer};
use gradscale_core::{
    amp::Precision,
    backend::{Backend, DType},
};

/// Named result of a program, which is still on the device.
#[derive(Clone, Debug)]
pub(in crate::train) struct DeviceOutput {
    /// Name of its operator, or the name that the network gave to it.
    pub name: String,
    pub value: Value,
    pub shape: Shape,
}

impl<B: Backend> Trainer<B> {
    /// Reads a result of type f32 or f16 as f32 values.
    pub(in crate::train) async fn numbers(&self, of: &DeviceOutput) -> Result<Tensor, Error<B::Error>> {
        let precision = match of.value.dtype {
            DType::F32 => Precision::Single,
            DType::F16 => Precision::Half,
            DType::U8 | DType::U32 => return Err(of.other("what is read as f32", [DType::F32, DType::F16]).into()),
        };
        let data = self.exec.read(of.value.buf, precision, of.shape.len()).await.map_err(Error::Device)?;
        Ok(Tensor { shape: of.shape, data })
    }

    /// Reads a result of an integer type as u32 values.
    pub(in crate::train) async fn integers(&self, of: &DeviceOutput) -> Result<Tensor<u32>, Error<B::Error>> {
        let (buf, len) = (of.value.buf, of.shape.len());
        let data = match of.value.dtype {
            DType::U8 => self.exec.read_bytes(buf, len).await.map(|bytes| bytes.into_iter().map(u32::from).collect()),
            DType::U32 => self.exec.read_words(buf, len).await,
            DType::F32 | DType::F16 => {
                return Err(of.other("what is read as integers", [DType::U8, DType::U32]).into());
            }
        };
        Ok(Tensor { shape: of.shape, data: data.map_err(Error::Device)? })
    }
}

impl DeviceOutput {
    fn other(&self, what: &'static str, takes: [DType; 2]) -> TraceError {
        TraceError::new(&self.name, TraceErrorKind::Type { what, takes: takes.to_vec(), got: self.value.dtype })
    }
}
