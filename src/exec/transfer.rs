//! Copies between host and device.

use super::Executor;
use crate::graph::BufferId;
use gradscale_core::{
    amp::Precision,
    backend::{Backend, DType, Data, DataMut, GradReduce},
    stats::Stats,
};
use half::f16;
use std::ops::Range;

impl<B: Backend> Executor<B> {
    /// Writes host data to a whole buffer.
    pub fn write(&mut self, buf: BufferId, data: Data<'_>) -> Result<(), B::Error> {
        let mut buffer = self.memory.take(buf);
        let written = self.device.write(data, &mut buffer);
        self.memory.put(buf, buffer);
        written
    }

    /// Fills a buffer with f32 zeros, and allocates it if needed.
    pub fn clear(&mut self, buf: BufferId, len: usize) -> Result<(), B::Error> {
        self.allocate(buf, DType::F32, len)?;
        self.write(buf, Data::F32(&vec![0.0; len]))
    }

    /// Uploads an input of a coming step while the device computes.
    pub fn prefetch(&mut self, input: usize, data: Data<'_>, len: usize) -> Result<(), B::Error> {
        let buffer = self.memory.ahead(&self.device, input, (data.dtype(), len))?;
        self.device.prefetch(data, buffer)
    }

    /// Reads the first values of a floating-point buffer, as f32.
    pub async fn read(&self, buf: BufferId, precision: Precision, len: usize) -> Result<Vec<f32>, B::Error> {
        let buffer = self.memory.get(buf);
        match precision {
            Precision::Half => {
                let mut data = vec![f16::ZERO; len];
                self.device.read(buffer, DataMut::F16(&mut data)).await?;
                Ok(data.into_iter().map(f16::to_f32).collect())
            }
            Precision::Single => {
                let mut data = vec![0f32; len];
                self.device.read(buffer, DataMut::F32(&mut data)).await?;
                Ok(data)
            }
        }
    }

    /// Reads the first values of a buffer of bytes.
    pub async fn read_bytes(&self, buf: BufferId, len: usize) -> Result<Vec<u8>, B::Error> {
        let mut data = vec![0; len];
        self.device.read(self.memory.get(buf), DataMut::U8(&mut data)).await?;
        Ok(data)
    }

    /// Reads the first values of a buffer of 32-bit words.
    pub async fn read_words(&self, buf: BufferId, len: usize) -> Result<Vec<u32>, B::Error> {
        let mut data = vec![0; len];
        self.device.read(self.memory.get(buf), DataMut::U32(&mut data)).await?;
        Ok(data)
    }

    /// Initialises the device-side reduction of gradients: `len` values, summed over `micro_batches` micro-batches.
    pub fn init_grad_reduce(&mut self, len: usize, micro_batches: u32, exact: bool) -> Result<(), B::Error> {
        self.device.grad_reduce(GradReduce::Init { len, parts: micro_batches, exact })
    }

    /// Adds the gradient of a parameter to the device-side reduction, from index `at` on.
    pub fn accumulate_grad_reduce(
        &mut self, (at, len): (usize, usize), buf: BufferId, exponent: Option<i32>,
    ) -> Result<(), B::Error> {
        self.device.grad_reduce(GradReduce::Accumulate { at, len, values: self.memory.get(buf), exponent })
    }

    /// Computes the mean over all micro-batches of all ranks, and waits for it.
    pub fn reduce_grad_mean(&mut self) -> Result<(), B::Error> {
        self.device.grad_reduce(GradReduce::AllReduceMean)
    }

    /// Writes the mean gradient of a parameter from the device-side reduction to its buffer.
    pub fn read_grad_reduce(
        &mut self, (at, len): (usize, usize), buf: BufferId, exponent: i32,
    ) -> Result<(), B::Error> {
        let mut values = self.memory.take(buf);
        let taken = self.device.grad_reduce(GradReduce::Read { at, len, values: &mut values, exponent });
        self.memory.put(buf, values);
        taken
    }

    /// Reads rows of the table, and the first value of some buffers. It is the only read-back of a step.
    pub async fn collect(
        &self, rows: Range<u16>, into: &mut [Stats], scalars: &[BufferId], values: &mut [f32],
    ) -> Result<(), B::Error> {
        let scalars: Vec<&B::Buffer> = scalars.iter().map(|&buf| self.memory.get(buf)).collect();
        self.device.collect(&self.table, rows, into, &scalars, values).await
    }
}
