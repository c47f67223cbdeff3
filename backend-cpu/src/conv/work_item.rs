//! Work item of a convolution's weight pass, which the f32 kernel and AMX compute alike.

use super::{ConvParams, padded_rows::PaddedRows};
use crate::Memory;
use core::ops::Range;

/// Work item of a convolution's weight pass: rows of dy, output channels of one group, and kernel rows. Sums of
/// neighbouring kernel rows are `block` channels apart; those of one kernel row are `[block, run]`, or transposed.
#[derive(Clone)]
pub struct WorkItem {
    pub rows: Range<usize>,
    pub out_channels: Range<usize>,
    pub kernel: Range<usize>,
    pub block: usize,
    pub transposed: bool,
}

impl WorkItem {
    /// Returns the padded rows of x that the work item reads.
    pub const fn input_rows<'a>(&self, params: &ConvParams, x: &'a Memory) -> PaddedRows<'a> {
        PaddedRows {
            data: x,
            pixels: params.x[2],
            channels: params.x[3],
            first_channel: self.out_channels.start / params.out_channels * params.in_channels,
            channel_count: params.in_channels,
            pixel_stride: params.in_channels,
            pad_left: params.pad[1],
            padded_width: params.padded_width(),
        }
    }
}
