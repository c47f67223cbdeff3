//! Helpers for the cases of sums and products.

use crate::{case::Fail, compare::same_bits, data::Random, rig::Rig};
use core::fmt::Display;
use gradscale_core::backend::{Backend, DType, DeviceResult, Slot, Store};

/// The types that operands and results have.
pub const HALF_AND_F32: [DType; 2] = [DType::F16, DType::F32];

/// Kind of numbers that operands have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Numbers {
    /// Small integers: results are exact, for any order of their terms.
    Integers,
    /// Numbers of all sizes and signs.
    Any,
    /// Numbers from 0 to 1, so that nothing cancels and sums grow.
    Positive,
}

impl Numbers {
    /// The next number, which a type holds exactly.
    pub fn next(self, random: &mut Random, dtype: DType) -> f32 {
        let is_half = dtype == DType::F16;
        match self {
            Self::Integers => random.integer(4),
            Self::Positive if is_half => random.half().abs(),
            Self::Positive => random.unit(),
            Self::Any => {
                // An f32 gets the digits that half has not.
                let v = random.normal() + if is_half { 0.0 } else { random.unit() - 0.5 };
                // Some devices do not read subnormal halves.
                if v.abs() < 2f32.powi(-13) { 0.0 } else { v * 2f32.powi(random.below(5) as i32 - 1) }
            }
        }
    }
}

/// Returns a function that adds the location to a failure's message.
pub fn of(what: impl Display) -> impl Fn(Fail) -> Fail {
    move |fail| match fail {
        Fail::Failed(why) => Fail::new(format!("{what}: {why}")),
        unsupported => unsupported,
    }
}

/// Checks that repeated calls return the same bits, in y and in the row.
///
/// # Errors
/// The first difference.
pub fn same_each_time<B: Backend>(
    rig: &mut Rig<'_, B>, len: usize, run: impl Fn(&B, Store<'_, B>) -> DeviceResult<B>,
) -> Result<(), Fail> {
    let mut first = None;
    for round in 0..4 {
        rig.upload()?;
        let mut y = rig.output(DType::F32, len)?;
        run(rig.backend, Store::site(Slot::ONE, Slot(3), &rig.table, &mut y.buffer))?;
        let new = (rig.take(&y)?, rig.row(Slot(3))?);
        let (values, row) = first.get_or_insert_with(|| new.clone());
        same_bits(&format!("run {round}"), &new.0, values)?;
        if new.1 != *row {
            return Err(Fail::new(format!("run {round}: the row is {:?}, not {row:?}", new.1)));
        }
    }
    Ok(())
}
