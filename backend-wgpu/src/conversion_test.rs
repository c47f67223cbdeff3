//! Test of a device's conversions between halves and f32, when it opens.
//!
//! WGSL specifies neither rounding nor subnormals, so `unpack2x16float` may flush and `pack2x16float` may truncate. But a
//! device does the same each time, so one dispatch finds out: all 65536 halves are decoded, and around each half eight f32
//! are encoded, among them both neighbours of every tie and all exponents. Integers take 14 instructions for a half where
//! the hardware takes one, and were 57 % of the instructions of a product (RDNA 3).

use crate::{
    Error, Wgpu,
    conversions::{Conversions, Decoding, Encoding},
    kernel,
    launch::{KernelLaunch, WORKGROUP_SIZE},
};
use gradscale_core::backend::{DType, Data, DataMut};

/// Wrong conversion of one number that tests plant to see that the test at opening finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConversionFaults {
    /// Number of the half that is decoded wrongly.
    pub decoded: u32,
    /// Number of the f32 that is encoded wrongly: 8 · a half + one of its eight.
    pub encoded: u32,
}

impl ConversionFaults {
    pub const NONE: Self = Self { decoded: u32::MAX, encoded: u32::MAX };
}

/// Number of halves, each of which an invocation tests.
const HALVES: u32 = 1 << 16;

impl Wgpu {
    /// Finds the conversions that have the bits of core on this device.
    pub(crate) async fn choose_conversions(&mut self, faults: ConversionFaults) -> Result<(), Error> {
        let mut chosen = Conversions::default();
        let rounds = [(Decoding::Hardware, Encoding::Pack), (Decoding::Quieted, Encoding::Round)];
        for (decoding, encoding) in rounds {
            let encoding = if encoding == Encoding::Round && !self.has_f16() { Encoding::Integers } else { encoding };
            let [decoded, encoded] = self.wrong_conversions(Conversions { decoding, encoding }, faults).await?;
            if chosen.decoding == Decoding::Integers && decoded == 0 {
                chosen.decoding = decoding;
            }
            if chosen.encoding == Encoding::Integers && encoded == 0 {
                chosen.encoding = encoding;
            }
            if chosen.decoding != Decoding::Integers && chosen.encoding != Encoding::Integers {
                break;
            }
        }
        self.set_conversions(chosen);
        Ok(())
    }

    /// Returns how many halves are decoded wrongly, and how many f32 encoded.
    async fn wrong_conversions(&mut self, by: Conversions, faults: ConversionFaults) -> Result<[u32; 2], Error> {
        self.set_conversions(by);
        let counts = self.new_memory(DType::U32, 2)?;
        self.write_memory(Data::U32(&[0; 2]), &counts)?;
        let call = KernelLaunch::new(&kernel::CONVERSIONS).params([faults.decoded, faults.encoded]).memory(3, &counts);
        self.launch_grid(call, [HALVES / WORKGROUP_SIZE, 1, 1])?;
        let mut wrong = [0; 2];
        self.read_memory(&counts, DataMut::U32(&mut wrong)).await?;
        Ok(wrong)
    }
}

#[cfg(test)]
mod tests;
