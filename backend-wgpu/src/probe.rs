//! Detection of the device's actual behaviour with small numbers, when it is opened.

use crate::{Error, Memory, Wgpu, kernel, launch::KernelLaunch, memory::word_of};
use gradscale_core::{
    backend::{DType, Data, DataMut, Slot, Store},
    ops::Unary,
    stats::FlushRule,
};

/// Pairs whose sum or product is an f32 subnormal, or that have one among them.
const PAIRS: [[f32; 2]; 4] = [
    [f32::from_bits(1), 1.0],
    [f32::from_bits(0x0040_0001), f32::from_bits(0x0000_0010)],
    [f32::MIN_POSITIVE, 0.5],
    [1.5 * f32::MIN_POSITIVE, -f32::MIN_POSITIVE],
];

impl Wgpu {
    /// Finds the flush rule of stores and loads of half, and whether f32 arithmetic keeps subnormals.
    pub(crate) async fn probe(&mut self) -> Result<(), Error> {
        self.f32_subnormals = self.keeps_subnormals().await?;
        self.flush = self.flush_rule().await?;
        Ok(())
    }

    async fn keeps_subnormals(&self) -> Result<bool, Error> {
        let words: Vec<u32> = PAIRS.iter().flat_map(|[a, b]| [a.to_bits(), b.to_bits(), 0, 0]).collect();
        let memory = self.new_memory(DType::U32, words.len())?;
        self.write_memory(Data::U32(&words), &memory)?;
        self.launch(KernelLaunch::new(&kernel::PROBE).params([word_of(PAIRS.len())]).memory(3, &memory), 1)?;
        let mut back = vec![0; words.len()];
        self.read_memory(&memory, DataMut::U32(&mut back)).await?;
        let want = PAIRS.iter().flat_map(|&[a, b]| [a, b, a + b, a * b]).map(f32::to_bits);
        Ok(back.into_iter().eq(want))
    }

    /// Determines the device's flush rule by storing as half, and reading again, the five numbers that tell flush rules
    /// apart (docs/specification.md, section 4).
    async fn flush_rule(&self) -> Result<FlushRule, Error> {
        let two = |k: i32| 2f32.powi(k);
        let values = [two(-24), two(-25), two(-14), two(-14) - two(-25), two(-14) - two(-26)];
        let table = self.new_table(Slot::FIRST_SITE.0, 0)?;
        let x = self.new_memory(DType::F32, values.len())?;
        self.write_memory(Data::F32(&values), &x)?;
        let store = |x: &Memory, y: &mut Memory| {
            self.run_unary(Unary::Id, word_of(values.len()), x, &Store::keep(Slot::ONE, &table, y))
        };
        let mut half = self.new_memory(DType::F16, values.len())?;
        store(&x, &mut half)?;
        let mut read = self.new_memory(DType::F32, values.len())?;
        store(&half, &mut read)?;
        let mut got = [0f32; 5];
        self.read_memory(&read, DataMut::F32(&mut got)).await?;
        // Casts have the bits of integers, so there is one answer; a driver that breaks integers is no device.
        let want = [two(-24), 0.0, two(-14), two(-14), two(-14)];
        if got == want {
            Ok(FlushRule::Nearest)
        } else {
            Err(Error::Failed(format!("the driver computes wrongly: {values:?} as half are {got:?}")))
        }
    }
}
