//! Table and buffers with guard elements, in which every case runs.

use crate::{case::Fail, wait::block_on};
use gradscale_core::{
    backend::{Backend, Buffer, Control, DType, Data, DataMut, Slot, Store},
    cast::{Round, f16_from_f32},
    stats::{Convention, Detail, Stats},
};
use half::f16;

/// Slots of a rig's table: [`Slot::ONE`], [`Slot::PROBE`], and others for cases to use.
pub const SLOTS: u16 = 8;
/// Hyperparameters of a rig's table.
pub const HYPERPARAMETERS: u16 = 8;
/// Number of guard elements after every output, which must not change.
const MARGIN: usize = 67;

/// Device with a table of exponents and statistics rows for one case.
pub struct Rig<'b, B: Backend> {
    pub backend: &'b B,
    pub table: B::Table,
    pub exponents: Vec<i32>,
    pub hyperparameters: Vec<f32>,
    pub seed: u64,
    pub detail: Detail,
}

/// Output buffer with its guards: a margin after it, a buffer allocated before it and one allocated after it.
pub struct Output<B: Backend> {
    pub buffer: B::Buffer,
    len: usize,
    guards: [B::Buffer; 2],
}

impl<'b, B: Backend> Rig<'b, B> {
    /// Creates a rig: all exponents and hyperparameters are 0, rows have full detail and are empty.
    pub fn new(backend: &'b B) -> Result<Self, Fail> {
        let mut rig = Self {
            backend,
            table: backend.table(SLOTS, HYPERPARAMETERS)?,
            exponents: vec![0; usize::from(SLOTS)],
            hyperparameters: vec![0.0; usize::from(HYPERPARAMETERS)],
            seed: 1,
            detail: Detail::Moments,
        };
        rig.upload()?;
        Ok(rig)
    }

    /// Begins the next step: uploads the fields of this rig, and clears all rows.
    pub fn upload(&mut self) -> Result<(), Fail> {
        self.upload_clearing(0..SLOTS)
    }

    /// Uploads as [`Rig::upload`] does, but clears only some rows.
    pub fn upload_clearing(&mut self, clear: core::ops::Range<u16>) -> Result<(), Fail> {
        let control = Control {
            exponents: &self.exponents,
            hyperparameters: &self.hyperparameters,
            seed: self.seed,
            detail: self.detail,
        };
        Ok(self.backend.upload(&control, clear, &mut self.table)?)
    }

    /// The next step, with these exponents from [`Slot::FIRST_SITE`] on.
    pub fn set(&mut self, exponents: &[i32]) -> Result<(), Fail> {
        self.exponents[2..2 + exponents.len()].copy_from_slice(exponents);
        self.upload()
    }

    /// Returns the convention by which core's statistics describe the device's stores of small halves.
    pub fn convention(&self) -> Convention {
        Convention::new(gradscale_core::format::Format::FP16, self.backend.caps().flush).unwrap_or(Convention::FP16)
    }

    /// A buffer with exactly these values, rounded to its type.
    pub fn input(&self, dtype: DType, values: &[f32]) -> Result<B::Buffer, Fail> {
        let mut buffer = self.backend.alloc(dtype, values.len())?;
        self.fill(&mut buffer, values)?;
        Ok(buffer)
    }

    /// Creates an input as [`Rig::input`] does, followed by NaN that no operator may read.
    pub fn padded(&self, dtype: DType, values: &[f32]) -> Result<B::Buffer, Fail> {
        let tail = if matches!(dtype, DType::F32 | DType::F16) { f32::NAN } else { 255.0 };
        let padded: Vec<f32> = values.iter().copied().chain([tail; MARGIN]).collect();
        self.input(dtype, &padded)
    }

    /// Words, not rounded.
    pub fn words(&self, values: &[u32]) -> Result<B::Buffer, Fail> {
        let mut buffer = self.backend.alloc(DType::U32, values.len())?;
        self.backend.write(Data::U32(values), &mut buffer)?;
        Ok(buffer)
    }

    /// Writes values, rounded to the buffer's type, to its start.
    pub fn fill(&self, buffer: &mut B::Buffer, values: &[f32]) -> Result<(), Fail> {
        match buffer.dtype() {
            DType::F32 => self.backend.write(Data::F32(values), buffer)?,
            DType::F16 => {
                let half: Vec<f16> = values.iter().map(|&v| f16_from_f32(v, Round::NearestEven)).collect();
                self.backend.write(Data::F16(&half), buffer)?;
            }
            DType::U8 => self.backend.write(Data::U8(&values.iter().map(|&v| v as u8).collect::<Vec<_>>()), buffer)?,
            DType::U32 => {
                self.backend.write(Data::U32(&values.iter().map(|&v| v as u32).collect::<Vec<_>>()), buffer)?
            }
        }
        Ok(())
    }

    /// An output full of canaries.
    pub fn output(&self, dtype: DType, len: usize) -> Result<Output<B>, Fail> {
        let mut buffers = Vec::new();
        for len in guarded(len) {
            buffers.push(self.backend.alloc(dtype, len)?);
        }
        self.output_of(&mut buffers.into_iter(), len)
    }

    /// Creates outputs as [`Rig::output_over`] does, for several tensors that are allocated together.
    pub fn outputs_together(&self, dtype: DType, all: &[&[f32]]) -> Result<Vec<Output<B>>, Fail> {
        let lens: Vec<usize> = all.iter().flat_map(|values| guarded(values.len())).collect();
        let mut buffers = Vec::new();
        self.backend.alloc_group(dtype, &lens, &mut buffers)?;
        let mut buffers = buffers.into_iter();
        let one = |values: &&[f32]| {
            let mut output = self.output_of(&mut buffers, values.len())?;
            self.fill(&mut output.buffer, values)?;
            Ok(output)
        };
        all.iter().map(one).collect()
    }

    /// Creates an output from three buffers, whose lengths are those of [`guarded`].
    fn output_of(&self, buffers: &mut impl Iterator<Item = B::Buffer>, len: usize) -> Result<Output<B>, Fail> {
        let mut full = || {
            let mut buffer = buffers.next().ok_or_else(|| Fail::new("fewer buffers than were to be allocated"))?;
            let canaries = vec![canary(buffer.dtype()); buffer.len()];
            self.fill(&mut buffer, &canaries)?;
            Ok::<_, Fail>(buffer)
        };
        let (before, buffer) = (full()?, full()?);
        Ok(Output { buffer, len, guards: [before, full()?] })
    }

    /// Creates an output as [`Rig::output`] does, with initial values.
    pub fn output_over(&self, dtype: DType, values: &[f32]) -> Result<Output<B>, Fail> {
        let mut output = self.output(dtype, values.len())?;
        self.fill(&mut output.buffer, values)?;
        Ok(output)
    }

    /// Reads all elements of a buffer as f32. Words beyond 2^24 lose digits; for those see [`Rig::read_words`].
    pub fn read(&self, buffer: &B::Buffer) -> Result<Vec<f32>, Fail> {
        let len = buffer.len();
        Ok(match buffer.dtype() {
            DType::F32 => {
                let mut values = vec![0f32; len];
                block_on(self.backend.read(buffer, DataMut::F32(&mut values)))?;
                values
            }
            DType::F16 => {
                let mut values = vec![f16::ZERO; len];
                block_on(self.backend.read(buffer, DataMut::F16(&mut values)))?;
                values.iter().map(|v| v.to_f32()).collect()
            }
            DType::U8 => {
                let mut values = vec![0u8; len];
                block_on(self.backend.read(buffer, DataMut::U8(&mut values)))?;
                values.iter().map(|&v| f32::from(v)).collect()
            }
            DType::U32 => self.read_words(buffer)?.iter().map(|&v| v as f32).collect(),
        })
    }

    /// Reads all words of a u32 buffer.
    pub fn read_words(&self, buffer: &B::Buffer) -> Result<Vec<u32>, Fail> {
        let mut values = vec![0u32; buffer.len()];
        block_on(self.backend.read(buffer, DataMut::U32(&mut values)))?;
        Ok(values)
    }

    /// An output's values, once its canaries are seen to live.
    pub fn take(&self, output: &Output<B>) -> Result<Vec<f32>, Fail> {
        let mut values = self.read(&output.buffer)?;
        let margin = values.split_off(output.len);
        let [before, after] = [self.read(&output.guards[0])?, self.read(&output.guards[1])?];
        for (place, elements) in [("behind", margin), ("before", before), ("far behind", after)] {
            if let Some(i) = elements.iter().position(|&v| v != canary(output.buffer.dtype())) {
                return Err(Fail::new(format!(
                    "wrote outside: element {i} {place} an output of {} is {:?}",
                    output.len, elements[i]
                )));
            }
        }
        Ok(values)
    }

    /// The row of a slot.
    pub fn row(&self, slot: Slot) -> Result<Stats, Fail> {
        let mut out = [Stats::new(self.convention(), 0, Detail::None)];
        block_on(self.backend.collect(&self.table, slot.0..slot.0 + 1, &mut out, &[], &mut []))?;
        Ok(out[0])
    }

    /// Runs an operator into a new f32 output at exponent 0, and returns its values.
    pub fn plain(&self, len: usize, run: impl FnOnce(Store<'_, B>) -> Result<(), B::Error>) -> Result<Vec<f32>, Fail> {
        let mut y = self.output(DType::F32, len)?;
        run(Store::keep(Slot::ONE, &self.table, &mut y.buffer))?;
        self.take(&y)
    }
}

/// Lengths of an output's buffers: before, its own with a margin, after.
const fn guarded(len: usize) -> [usize; 3] {
    [MARGIN, len + MARGIN, MARGIN]
}

/// Returns the value of guard elements.
fn canary(dtype: DType) -> f32 {
    match dtype {
        DType::F16 => 203.25,
        DType::U8 => 165.0,
        // Exact in f32.
        DType::U32 => 11_141_120.0,
        DType::F32 => -1.536_25e20,
    }
}
