//! Convolutions of the self-test, and their exact sums.

use gradscale_core::ops::{Conv2d, Pass, ShapeError};

/// Returns the convolutions, each with its passes: all pipelines of coop.wgsl for convolutions. The first has padding on
/// all sides; the second has strides, which only change the pipeline of the data gradient, dilation and groups. Rows,
/// columns and places leave remainders.
pub(super) fn test_convolutions() -> Result<[(Conv2d, &'static [Pass]); 2], ShapeError> {
    let padded = Conv2d::new([2, 7, 6, 48], 48, [3, 2])?.pad([1, 1])?;
    let strided = Conv2d::new([1, 11, 10, 64], 96, [3, 2])?.stride([2, 1])?.dilation([1, 2])?.groups(2)?;
    Ok([(padded, &[Pass::Forward, Pass::Data, Pass::Weight]), (strided, &[Pass::Data, Pass::Weight])])
}

/// Returns the lengths of both operands of a pass, as its launch takes them.
pub(super) fn operand_lens(p: &Conv2d, pass: Pass) -> [u32; 2] {
    let [x, w, y] = [p.x(), p.w(), p.y()].map(|shape| shape.iter().product());
    match pass {
        Pass::Forward => [x, w],
        Pass::Data => [y, w],
        Pass::Weight => [x, y],
    }
}

/// Returns the results of a pass, by the definition of a convolution: every product of x, w and y that belong together is
/// one term of each gradient.
pub(super) fn convolution_sums(p: &Conv2d, pass: Pass, a: &[i32], b: &[i32]) -> Vec<i32> {
    let ([images, height, width, channels], [_, out_height, out_width, outputs]) = (p.x(), p.y());
    let [_, kernel_height, kernel_width, inputs_share] = p.w();
    let outputs_share = outputs / p.group_count();
    let len: u32 = match pass {
        Pass::Forward => p.y().iter().product(),
        Pass::Data => p.x().iter().product(),
        Pass::Weight => p.w().iter().product(),
    };
    let mut sums = vec![0; len as usize];
    let mut add_window = |image: u32, [top, left]: [u32; 2], [i, j]: [u32; 2]| {
        let (Some(row), Some(column)) = (p.place(0, top, i), p.place(1, left, j)) else { return };
        for output in 0..outputs {
            let y = ((image * out_height + top) * out_width + left) * outputs + output;
            for input in 0..inputs_share {
                let channel = output / outputs_share * inputs_share + input;
                let x = ((image * height + row) * width + column) * channels + channel;
                let w = ((output * kernel_height + i) * kernel_width + j) * inputs_share + input;
                let [x, w, y] = [x, w, y].map(|index| index as usize);
                match pass {
                    Pass::Forward => sums[y] += a[x] * b[w],
                    Pass::Data => sums[x] += a[y] * b[w],
                    Pass::Weight => sums[w] += a[x] * b[y],
                }
            }
        }
    };
    for image in 0..images {
        for place in 0..out_height * out_width {
            for tap in 0..kernel_height * kernel_width {
                let [place, tap] = [[place / out_width, place % out_width], [tap / kernel_width, tap % kernel_width]];
                add_window(image, place, tap);
            }
        }
    }
    sums
}
