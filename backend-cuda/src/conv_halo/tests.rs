//! Which convolutions have halo tiles, and their geometry.

use super::HaloConv;
use crate::{
    gemm_problem::{DataPhase, GemmProblem},
    kernels::HALO_BYTES,
};
use gradscale_core::ops::{Conv2d, Pass};

fn convolution(c: u32, o: u32, kernel: [u32; 2], padding: [u32; 2]) -> Conv2d {
    Conv2d::padded([2, 20, 30, c], o, kernel, padding).expect("a shape")
}

fn halo(p: &Conv2d, pass: Pass) -> Option<HaloConv> {
    HaloConv::new(&GemmProblem::conv(p, pass))
}

#[test]
fn few_channels_of_stride_1_have_halo_tiles() {
    let padding = [1, 2];
    for (p, pass, is_supported) in [
        (convolution(64, 64, [3, 5], padding), Pass::Forward, true),
        (convolution(64, 64, [3, 5], padding), Pass::Data, true),
        // The gradient of weights sums pixels.
        (convolution(64, 64, [3, 5], padding), Pass::Weight, false),
        (convolution(8, 72, [7, 7], padding), Pass::Forward, true),
        // Of the data pass the outputs are summed.
        (convolution(8, 72, [7, 7], padding), Pass::Data, false),
        (convolution(72, 8, [7, 7], padding), Pass::Data, true),
        // Planes come in pairs, or a tap has one.
        (convolution(24, 64, [3, 3], padding), Pass::Forward, false),
        (convolution(80, 64, [3, 3], padding), Pass::Forward, false),
        // Half of a tile would not be stored, or not in vectors.
        (convolution(64, 24, [3, 3], padding), Pass::Forward, false),
        (convolution(64, 36, [3, 3], padding), Pass::Forward, false),
        (convolution(64, 64, [1, 1], [0, 0]), Pass::Forward, false),
        // Two halos of 24 × 24 pixels and 64 channels have no room, and those of 48 channels have.
        (convolution(64, 64, [9, 9], [4, 4]), Pass::Forward, false),
        (convolution(48, 64, [9, 9], [4, 4]), Pass::Forward, true),
        // More K steps than the kernel has parameters for.
        (convolution(48, 64, [10, 9], [4, 4]), Pass::Forward, false),
    ] {
        assert_eq!(halo(&p, pass).is_some(), is_supported, "{p:?} {pass:?}");
    }
    let p = convolution(32, 64, [3, 3], padding);
    for p in [p.stride([1, 2]), p.dilation([2, 1]), p.groups(2)] {
        assert!(Pass::ALL.into_iter().all(|pass| halo(&p.expect("a shape"), pass).is_none()));
    }
}

#[test]
fn phases_of_a_stride_have_halo_tiles() {
    let p = convolution(64, 32, [5, 5], [2, 2]).stride([2, 2]).expect("a shape");
    let phases = DataPhase::of_conv(&p).expect("small numbers");
    // Kernels of 3 × 3, 3 × 2, 2 × 3 and 2 × 2.
    assert!(phases.iter().all(|phase| HaloConv::new(&GemmProblem::data_phase(&p, phase)).is_some()));
}

#[test]
fn a_k_step_is_two_slices() {
    // Planes of 18 × 20 pixels.
    let conv = halo(&convolution(32, 64, [3, 5], [1, 2]), Pass::Forward).expect("halo tiles");
    let offsets = conv.step_offsets();
    assert_eq!((conv.steps(), conv.zero_vec8s()), (30, 0));
    // Planes 0 and 1, 2 and 3 of the first tap; of the second one; and of the first tap of the second row.
    for (step, first) in [(0, 0), (1, 720), (2, 1), (10, 20)] {
        assert_eq!(offsets[step], first | 360 << 16, "{step}");
    }
    assert!(offsets[30..].iter().all(|&offset| offset == 0));
    // Of eight channels: two taps of a row, the last of a row and the first of the next, and the last one beside zeros.
    let conv = halo(&convolution(8, 64, [3, 3], [1, 1]), Pass::Forward).expect("halo tiles");
    let offsets = conv.step_offsets();
    assert_eq!((conv.steps(), conv.zero_vec8s()), (5, 15 * 18 + 16));
    assert_eq!(offsets[..5], [1 << 16, 2 | 16 << 16, 19 | 1 << 16, 36 | 1 << 16, 38 | (324 - 38) << 16]);
}

/// Every matrix that a K step reads is inside of its buffer, for each warpgroup.
#[test]
fn slices_are_inside_of_a_buffer() {
    for (channels, kernel) in [(8, [7, 7]), (8, [3, 5]), (16, [3, 3]), (48, [9, 9]), (64, [7, 7]), (64, [1, 2])] {
        let conv = halo(&convolution(channels, 64, kernel, [1, 1]), Pass::Forward).expect("halo tiles");
        let [_, pitch] = conv.halo_size();
        let reach = 15 * pitch + 2 * 8;
        for &offset in &conv.step_offsets()[..conv.steps() as usize] {
            let (first, second) = (offset & 0xFFFF, (offset & 0xFFFF) + (offset >> 16));
            assert!(first + reach <= conv.load_vec8s(), "{channels} {kernel:?}");
            assert!(second + reach <= conv.load_vec8s() + conv.zero_vec8s(), "{channels} {kernel:?}");
        }
        assert!(2 * conv.buffer_bytes() <= HALO_BYTES && conv.buffer_bytes().is_multiple_of(128));
    }
}
