//! Convolutions and their gradients, as implicit GEMMs.

use crate::{
    Memory,
    operators::{loader::Loader, product::Product},
};
use gradscale_core::ops::{Conv2d, GemmShape, Pass};

impl<'a> Product<'a> {
    /// Returns a pass of a convolution as a product: a and b are the operands of [`gradscale_core::backend::Launch::Conv`].
    pub(crate) fn from_convolution(p: &Conv2d, pass: Pass, [a, b]: [&'a Memory; 2], bias: Option<&'a Memory>) -> Self {
        let ([images, height, width, channels], [_, out_height, out_width, outputs]) = (p.x(), p.y());
        let [_, kernel_height, kernel_width, inputs_share] = p.w();
        let groups = p.group_count();
        let outputs_share = outputs / groups;
        let taps = kernel_height * kernel_width;
        let [x_places, y_places] = [images * height * width, images * out_height * out_width];
        // (rows, columns, k), the element of a group's first result, of a row's, of the bias; where memory runs along k.
        let (shape, stride, ldy, k_contiguous) = match pass {
            Pass::Forward => (
                GemmShape { m: y_places, n: outputs_share, k: taps * inputs_share },
                outputs_share,
                outputs,
                [true, true],
            ),
            Pass::Data => (
                GemmShape { m: x_places, n: inputs_share, k: taps * outputs_share },
                inputs_share,
                channels,
                [true, false],
            ),
            Pass::Weight => {
                let row = taps * inputs_share;
                (GemmShape { m: outputs_share, n: row, k: y_places }, outputs_share * row, row, [false, false])
            }
        };
        let pairs = [
            [height, width],
            [out_height, out_width],
            [kernel_height, kernel_width],
            p.strides(),
            p.padding(),
            p.dilations(),
            [channels, outputs],
            [inputs_share, outputs_share],
        ];
        // (x, w) → y, (dy, w) → dx; the weight gradient's rows are those of dy.
        let operands = if pass == Pass::Weight { [b, a] } else { [a, b] };
        let [x_len, w_len, y_len] =
            [p.x(), p.w(), p.y()].map(|shape| shape.iter().copied().map(u64::from).product::<u64>());
        let lens = match pass {
            Pass::Forward => [x_len, w_len],
            Pass::Data => [y_len, w_len],
            Pass::Weight => [y_len, x_len],
        };
        // With one tap and whole steps the gathered operand is a matrix of places and channels.
        let is_matrix = [kernel_height, kernel_width] == [1, 1] && p.strides() == [1, 1] && p.padding() == [0, 0];
        let matrices = match pass {
            Pass::Forward => [channels, inputs_share, inputs_share, outputs_share * inputs_share],
            Pass::Data => [outputs, inputs_share, outputs_share, outputs_share * inputs_share],
            Pass::Weight => [outputs, channels, outputs_share, inputs_share],
        };
        let convolution = Loader::Convolution {
            pass,
            group_channels: [inputs_share, outputs_share],
            is_strided: p.strides() != [1, 1],
        };
        Self {
            loader: if is_matrix { Loader::Matrices } else { convolution },
            operands,
            bias,
            k_contiguous,
            shape,
            batch: groups,
            aligned: inputs_share.is_multiple_of(4) && outputs_share.is_multiple_of(4),
            lens,
            stride,
            ldy,
            bias_stride: stride,
            params: if is_matrix { matrices.to_vec() } else { pairs.as_flattened().to_vec() },
        }
    }
}
