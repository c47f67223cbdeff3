//! Scalar definitions of element-wise operators and their derivatives.

use crate::{hash::Hash, inputs};
use core::fmt::{self, Write};
use gradscale_core::ops::{At, Unary};

/// Prints the section about element-wise operators: one line of checksums for each.
pub fn print(out: &mut impl Write) -> fmt::Result {
    for &op in Unary::ALL {
        let (mut value, mut derivative) = (Hash::new(), Hash::new());
        // Every seventh edge case: all kinds of tails at all exponents, in varying order.
        for (index, bits) in (0..).zip(inputs::edges().step_by(7).chain(inputs::randoms(1024))) {
            let (x, at) = (f32::from_bits(bits), At { seed: 0x0123_4567_89ab_cdef, index });
            value.add(class(op.eval(x, at)));
            derivative.add(class(op.vjp(x, 1.25, at)));
        }
        writeln!(out, "{op:?}: {:016x}, derivative {:016x}", value.get(), derivative.get())?;
    }
    Ok(())
}

/// Returns the bits of a number, or one value for all NaNs, because sign and payload of a NaN result depend on the
/// processor.
fn class(x: f32) -> u64 {
    u64::from(if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() })
}
