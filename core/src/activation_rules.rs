//! Rules for ⟨α, X⟩ at each operator of the forward pass, whose table is [`crate::ops::Op::activation_flow`].
//!
//! A forward store multiplies by 2^(α_to − α_from), like a gradient's. The rules here give α_from, the exponent of an
//! operator's f32 results, from the exponents of its inputs. They are saturating, like every difference of exponents.
//! Gradients belong to true activations. So the gradient of a weight, dyᵀ·x, has the sum of both exponents too.

use crate::ops::ActivationFlow;

/// Returns the exponent of a product's f32 results: the sum of the exponents of its operands.
#[must_use]
pub const fn product(a: i32, b: i32) -> i32 {
    a.saturating_add(b)
}

/// Returns the exponent to which both parts of a sum or concatenation are brought. It is the smaller one, so that no part
/// overflows that did not overflow before.
#[must_use]
pub const fn common(a: i32, b: i32) -> i32 {
    if a < b { a } else { b }
}

/// Returns the exponent of an operator's f32 results before they are stored, from the exponents of its inputs. Operators
/// that read true values have none.
///
/// ```
/// use gradscale_core::{activation_rules::exponent_of_result, ops::Op};
/// assert_eq!(exponent_of_result(Op::Matmul.activation_flow(), &[-4, -3]), -7);
/// assert_eq!(exponent_of_result(Op::Add.activation_flow(), &[-4, 0]), -4);
/// assert_eq!(exponent_of_result(Op::Relu.activation_flow(), &[-4]), -4);
/// assert_eq!(exponent_of_result(Op::Gelu.activation_flow(), &[-4]), 0);
/// ```
#[must_use]
pub fn exponent_of_result(flow: ActivationFlow, inputs: &[i32]) -> i32 {
    match flow {
        ActivationFlow::Product => inputs.iter().fold(0, |sum, &alpha| product(sum, alpha)),
        ActivationFlow::Common => inputs.iter().copied().reduce(common).unwrap_or(0),
        ActivationFlow::Homogeneous => inputs.first().copied().unwrap_or(0),
        ActivationFlow::TrueValues => 0,
    }
}
