//! Ablations of the forward convolution of 64 channels, by im2col and from halo tiles: what its time goes to. A variant leaves out
//! a part of a kernel, so its results are wrong by intent.

use crate::{
    measure::{Bench, Work},
    products::shape,
};
use gradscale_core::{
    backend::{Backend, DType, Launch, Slot, Store},
    ops::{Conv2d, Pass},
    stats::Detail,
};
use gradscale_cuda::{
    Cuda, Error, HaloTiles, Memory,
    kernels::{CONV_HALO, File, Kernel, Module, WGMMA_TMA_CONV},
};
use std::cell::RefCell;

/// Kernel whose parts are left out.
pub struct Whole {
    name: &'static str,
    kernel: &'static Kernel,
    /// Its file that variants change.
    file: &'static str,
    halo_tiles: HaloTiles,
    variants: &'static [Variant],
}

/// Kernel that leaves out a part of its work, as replacements in the text of a file.
struct Variant {
    name: &'static str,
    replacements: &'static [(&'static str, &'static str)],
}

const EXPECT_BYTES: &str = "mbarrier_arrive_expect_tx(full + 8 * stage, STAGE_ELEMENTS * 2);";
const LOAD_A: &str = "load_a_tile(a + part * A_TILE_ELEMENTS, p, part, position, full + 8 * stage);";
const LOAD_B: &str =
    "load_b_tile(a + A_STAGE_ELEMENTS + part * B_TILE_ELEMENTS, p, part, position, rank, full + 8 * stage);";
const IM2COL_VARIANTS: [Variant; 3] = [
    Variant {
        name: "multiply only",
        replacements: &[(EXPECT_BYTES, "mbarrier_arrive(full + 8 * stage);"), (LOAD_A, ""), (LOAD_B, "")],
    },
    Variant { name: "load only", replacements: &[("multiply_stage(sums, descriptors, stage);", "(void)descriptors;")] },
    Variant {
        name: "weights loaded once",
        replacements: &[
            (
                EXPECT_BYTES,
                "const bool has_weights = tile == first && k_tile < STAGES; mbarrier_arrive_expect_tx(full + 8 * \
                 stage, (has_weights ? STAGE_ELEMENTS : A_STAGE_ELEMENTS) * 2);",
            ),
            (
                LOAD_B,
                "if (has_weights) load_b_tile(a + A_STAGE_ELEMENTS + part * B_TILE_ELEMENTS, p, part, position, rank, full \
                 + 8 * stage);",
            ),
        ],
    },
];
const HALO_VARIANTS: [Variant; 2] = [
    Variant {
        name: "multiply only",
        replacements: &[
            ("mbarrier_arrive_expect_tx(full + 8 * stage, STAGE_BYTES);", "mbarrier_arrive(full + 8 * stage);"),
            ("load_weights(stages + stage * A_STAGE_ELEMENTS, p, n, step, tap, channel, full + 8 * stage);", ""),
            (
                "mbarrier_arrive_expect_tx(halo_full + 8 * buffer, p.load_bytes);",
                "mbarrier_arrive(halo_full + 8 * buffer); continue;",
            ),
        ],
    },
    Variant {
        name: "load only",
        replacements: &[("multiply_steps<STAGE_STEPS>(sums, begin_stage(), halo, p, step);", "begin_stage();")],
    },
];
/// Kernels by im2col, of 128 pixels × 64 outputs, and from halo tiles.
pub const WHOLE: [Whole; 2] = [
    Whole {
        name: "im2col",
        kernel: &WGMMA_TMA_CONV[0][1],
        file: "wgmma_tma.cu",
        halo_tiles: HaloTiles::Never,
        variants: &IM2COL_VARIANTS,
    },
    Whole {
        name: "halo tiles",
        kernel: &CONV_HALO[0],
        file: "conv_halo.cu",
        halo_tiles: HaloTiles::Always,
        variants: &HALO_VARIANTS,
    },
];

impl Whole {
    /// Returns the kernel and its variants, which live as long as the program.
    ///
    /// # Panics
    /// If the kernel's text has a replaced part not exactly once, which a test sees.
    pub fn kernels(&self) -> Vec<&'static Kernel> {
        let variants = self.variants.iter().map(|variant| self.without_part(variant));
        core::iter::once(self.kernel).chain(variants).collect()
    }

    fn without_part(&self, variant: &Variant) -> &'static Kernel {
        let change = |file: &File| {
            let mut text = file.text.to_owned();
            if file.name == self.file {
                for (from, to) in variant.replacements {
                    assert_eq!(text.matches(from).count(), 1, "{}, {}: {from}", self.name, variant.name);
                    text = text.replace(from, to);
                }
            }
            File { name: file.name, text: text.leak() }
        };
        let module = Module {
            name: format!("{}_{}", self.kernel.module.name, variant.name.replace(' ', "_")).leak(),
            files: self.kernel.module.files.iter().map(change).collect::<Vec<_>>().leak(),
            ..*self.kernel.module
        };
        Box::leak(Box::new(Kernel { module: Box::leak(Box::new(module)), entry: self.kernel.entry }))
    }
}

/// Returns the median seconds of a forward convolution.
fn forward_seconds(device: &Cuda, p: Conv2d, small: bool) -> Result<f64, Error> {
    let bench = Bench::new(device, vec![], small);
    let len = |shape: [u32; 4]| shape.into_iter().map(|size| size as usize).product::<usize>();
    let (x, w) = (bench.normal(DType::F16, len(p.x()))?, bench.normal(DType::F16, len(p.w()))?);
    let y = RefCell::new(device.alloc(DType::F16, len(p.y()))?);
    let table = bench.sites(Detail::Counts)?;
    let run = |_: usize| {
        let (a, b, mut y): (&Memory, &Memory, _) = (&x, &w, y.borrow_mut());
        let y = Store::site(Slot(2), Slot(3), &table, &mut *y);
        device.launch(Launch::Conv { p, pass: Pass::Forward, a, b, bias: None, y })
    };
    let works: Vec<Work<'_>> = vec![Box::new(run)];
    Ok(bench.medians(works)?[0])
}

/// Measures both kernels and their variants, if `ablation` is requested or everything is. Each has a device of its own: the
/// first convolution runs the self-test, after which a variant may take the kernel's place.
///
/// # Errors
/// The device's.
pub fn measure(bench: &mut Bench<'_>, open: &dyn Fn() -> Result<Cuda, Error>) -> Result<(), Error> {
    if !bench.wants_group("ablation") {
        return Ok(());
    }
    if bench.device.gpu().arch() != 90 {
        println!("not here: ablations of kernels for sm_90");
        return Ok(());
    }
    let small = bench.size(false, true);
    for kernel_side in [7, 3] {
        let (images, h, w) = bench.size((12, 180, 240), (1, 16, 16));
        let p = Conv2d::padded([images, h, w, 64], 64, [kernel_side; 2], [kernel_side / 2; 2]).map_err(shape)?;
        let flops = 2.0 * f64::from(images * h * w) * 64.0 * 64.0 * f64::from(kernel_side * kernel_side);
        let speed = |seconds: f64| format!("{:.1} TFLOP/s", flops / seconds / 1e12);
        for whole in &WHOLE {
            let mut beside = None;
            for kernel in whole.kernels() {
                let device = open()?.with_halo_tiles(whole.halo_tiles);
                forward_seconds(&device, p, true)?;
                let device = device.with_variant(whole.kernel, kernel);
                let seconds = forward_seconds(&device, p, small)?;
                // The kernel as it is comes first.
                let as_it_is = *beside.get_or_insert(seconds);
                let name = format!("ablation {kernel_side}×{kernel_side}: {} / {}", kernel.module.name, whole.name);
                bench.line(&name, speed(seconds), speed(as_it_is), Some(as_it_is / seconds));
            }
        }
    }
    Ok(())
}
