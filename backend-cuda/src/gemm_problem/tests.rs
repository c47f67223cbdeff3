//! Phases of strided convolutions, and boxes of TMA.

use super::{DataPhase, GemmProblem};
use gradscale_core::ops::{Conv2d, Pass};

/// Strides, dilations and paddings that do and do not share factors, and taps fewer than the stride.
fn strided() -> impl Iterator<Item = Conv2d> {
    let windows = [
        ([9, 8], [3, 3], [1, 1], [2, 2], [1, 1]),
        ([9, 8], [1, 1], [0, 0], [2, 2], [1, 1]),
        ([11, 13], [3, 4], [3, 2], [2, 3], [2, 2]),
        ([11, 10], [2, 3], [0, 0], [4, 3], [1, 1]),
        ([25, 7], [5, 2], [4, 1], [6, 1], [4, 3]),
        ([1, 70], [1, 7], [0, 3], [1, 5], [1, 10]),
    ];
    windows.into_iter().map(|([h, w], kernel, pad, stride, dilation)| {
        let p = Conv2d::padded([2, h, w, 8], 16, kernel, pad).and_then(|p| p.dilation(dilation)?.stride(stride));
        p.expect("a shape")
    })
}

/// Each pair of a pixel and a tap that reads dy is in one phase, where it reads the same pixel of dy by a convolution of
/// stride 1.
#[test]
fn phases_have_every_tap_once() {
    for p in strided() {
        let ([_, h, w, _], [_, kh, kw, _]) = (p.x(), p.w());
        let (sides, taps) = ([h, w], [kh, kw]);
        let phases = DataPhase::of_conv(&p).expect("small numbers");
        let mut pixels = 0;
        for phase in &phases {
            pixels += phase.size[0] * phase.size[1];
            for axis in [0, 1] {
                let ([stride, pad], dilation) = ([p.strides()[axis], p.padding()[axis]], p.dilations()[axis]);
                let read = |pixel: u32, tap: u32| i64::from(pixel + pad) - i64::from(tap * dilation);
                for index in 0..phase.size[axis] {
                    let pixel = phase.first[axis] + index * stride;
                    assert!(pixel < sides[axis], "{p:?}: {phase:?}");
                    let wanted: Vec<_> = (0..taps[axis])
                        .filter(|&tap| read(pixel, tap) % i64::from(stride) == 0)
                        .map(|tap| (tap, read(pixel, tap) / i64::from(stride)))
                        .collect();
                    let found: Vec<_> = (0..phase.kernel[axis])
                        .map(|i| {
                            let place =
                                i64::from(index) + i64::from(phase.pad[axis]) - i64::from(i * phase.dilation[axis]);
                            (phase.first_tap[axis] + i * phase.tap_step[axis], place)
                        })
                        .collect();
                    assert_eq!(found, wanted, "{p:?}: axis {axis} of {phase:?}, pixel {pixel}");
                }
            }
        }
        assert_eq!(pixels, h * w, "{p:?}");
    }
}

/// 3 × 3 taps of stride 2 are 4 + 2 + 2 + 1, and one tap is that of one phase: four times fewer products than taps for
/// each pixel.
#[test]
fn phases_divide_the_taps_of_a_stride() {
    for (kernel, pad, wanted) in [([3, 3], [1, 1], [1, 2, 2, 4]), ([1, 1], [0, 0], [1, 0, 0, 0])] {
        let p = Conv2d::padded([128, 56, 56, 128], 128, kernel, pad).and_then(|p| p.stride([2, 2])).expect("a shape");
        let phases = DataPhase::of_conv(&p).expect("small numbers");
        let taps: Vec<_> = phases.iter().map(|phase| phase.kernel[0] * phase.kernel[1]).collect();
        assert_eq!(taps, wanted);
        let products: u64 = phases
            .iter()
            .map(|phase| GemmProblem::data_phase(&p, phase).shape)
            .map(|shape| u64::from(shape.m) * u64::from(shape.k))
            .sum();
        let strided = GemmProblem::conv(&p, Pass::Data).shape;
        assert_eq!(4 * products, u64::from(strided.m) * u64::from(strided.k));
        // TMA loads what has taps.
        let loaded = phases.iter().filter(|phase| GemmProblem::data_phase(&p, phase).im2col.is_some()).count();
        assert_eq!(loaded, taps.iter().filter(|&&count| count > 0).count());
    }
}

/// Boxes of 64 channels reach beyond tensors of fewer, but not into the next group, and a weight gradient then needs two
/// splits, whose reduction drops columns.
#[test]
fn boxes_are_filled_with_zeros() {
    let conv = |c, o, groups| {
        let p = Conv2d::padded([2, 12, 12, c], o, [3, 3], [1, 1]).and_then(|p| p.groups(groups)).expect("a shape");
        move |pass| GemmProblem::conv(&p, pass)
    };
    let odd = conv(48, 80, 1);
    assert!(Pass::ALL.into_iter().all(|pass| odd(pass).im2col.is_some() && odd(pass).has_partial_boxes()));
    let [forward, data, weight] = Pass::ALL.map(|pass| odd(pass).in_whole_boxes());
    assert_eq!((forward.shape.k, data.shape.k), (9 * 64, 9 * 128));
    assert_eq!((weight.shape.n, weight.stored_columns, weight.conv.inputs), (9 * 64, 9 * 48, 64));
    let whole = conv(64, 128, 1);
    assert!(Pass::ALL.into_iter().all(|pass| whole(pass).im2col.is_some() && !whole(pass).has_partial_boxes()));
    let grouped = conv(96, 160, 2);
    assert!(Pass::ALL.into_iter().all(|pass| grouped(pass).im2col.is_none()));
    // 128 pixels are one split of at least 64, or two.
    let few = Conv2d::padded([2, 8, 8, 48], 80, [3, 3], [1, 1]).expect("a shape");
    assert!(GemmProblem::conv(&few, Pass::Weight).im2col.is_none());
}
