//! Operators of networks. Each family is one file, with the methods of [`Var`](crate::Var), their shapes, and the
//! implementation of [`Operator`](crate::graph::Operator) with the launches forward and backward.

mod binary;
mod cell;
mod clip;
mod conv;
mod cross_entropy;
mod ctc;
mod cumsum;
mod custom;
mod embedding;
mod expand;
mod extremum;
mod gather;
mod gru;
mod linear;
mod loss;
mod lstm;
mod matmul;
mod multibox;
mod norm;
mod norm_frames;
mod one_hot;
mod permute;
mod pool;
mod positions;
mod reduce;
mod region;
mod resample;
mod reshape;
mod roi_align;
mod roi_pool;
mod sequence;
mod slice;
mod smooth;
mod softmax;
mod step_product;
mod sync_batch_norm;
mod top_k;
mod unary;
mod where_cond;

pub(crate) use cell::StepProducts;
pub use cross_entropy::CrossEntropy;
pub use custom::{CustomGradient, CustomOperator};
pub use matmul::AttentionMask;
pub use multibox::MultiBox;
pub use region::{AnchorTruth, RegionTruth};
pub(crate) use sequence::Places;

/// Returns the strides of the axes of a dense tensor with these sizes.
fn strides(sizes: [u32; 4]) -> [i64; 4] {
    let [_, h, w, c] = sizes.map(i64::from);
    [h * w * c, w * c, c, 1]
}
