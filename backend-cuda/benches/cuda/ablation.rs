//! Ablations of the forward convolution of 64 channels by im2col, with the kernel of halo tiles beside them: what its time goes
//! to. A variant leaves out a part of the kernel, so its results are wrong by intent.

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
    kernels::{File, Kernel, Module, WGMMA_TMA_CONV},
};
use std::cell::RefCell;

/// Kernel of 128 pixels × 64 outputs.
static IM2COL: &Kernel = &WGMMA_TMA_CONV[0][1];
/// Its file that variants change.
const CHANGED_FILE: &str = "wgmma_tma.cu";

/// Kernel that leaves out a part of its work, as replacements in the text of [`CHANGED_FILE`].
pub struct Variant {
    name: &'static str,
    replacements: &'static [(&'static str, &'static str)],
}

const EXPECT_BYTES: &str = "mbarrier_arrive_expect_tx(full + 8 * stage, STAGE_ELEMENTS * 2);";
const LOAD_A: &str = "load_a_tile(a, p, position, full + 8 * stage);";
const LOAD_B: &str = "load_b_tile(a + A_STAGE_ELEMENTS, p, position, rank, full + 8 * stage);";

/// Variants of the kernel.
pub const VARIANTS: [Variant; 3] = [
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
            (LOAD_B, "if (has_weights) load_b_tile(a + A_STAGE_ELEMENTS, p, position, rank, full + 8 * stage);"),
        ],
    },
];

impl Variant {
    /// Returns the kernel's variant, which lives as long as the program.
    ///
    /// # Panics
    /// If the kernel's text has a replaced part not exactly once, which a test sees.
    pub fn kernel(&self) -> &'static Kernel {
        let change = |file: &File| {
            let mut text = file.text.to_owned();
            if file.name == CHANGED_FILE {
                for (from, to) in self.replacements {
                    assert_eq!(text.matches(from).count(), 1, "{}: {from}", self.name);
                    text = text.replace(from, to);
                }
            }
            File { name: file.name, text: text.leak() }
        };
        let module = Module {
            name: format!("{}_{}", IM2COL.module.name, self.name.replace(' ', "_")).leak(),
            files: IM2COL.module.files.iter().map(change).collect::<Vec<_>>().leak(),
            ..*IM2COL.module
        };
        Box::leak(Box::new(Kernel { module: Box::leak(Box::new(module)), entry: IM2COL.entry }))
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

/// Measures the kernel as it is, its variants and halo tiles, if `ablation` is requested or everything is. Each has a
/// device of its own: the first convolution runs the self-test, after which a variant may take the kernel's place.
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
    for (name, h, w, kernel) in [("7×7 180 × 240", 180, 240, 7), ("3×3 180 × 240", 180, 240, 3)] {
        let (images, h, w) = bench.size((12, h, w), (1, 16, 16));
        let p = Conv2d::padded([images, h, w, 64], 64, [kernel; 2], [kernel / 2; 2]).map_err(shape)?;
        let flops = 2.0 * f64::from(images * h * w) * 64.0 * 64.0 * f64::from(kernel * kernel);
        let speed = |seconds: f64| format!("{:.1} TFLOP/s", flops / seconds / 1e12);
        let im2col = || open().map(|device| device.with_halo_tiles(HaloTiles::Never));
        let whole = forward_seconds(&im2col()?, p, small)?;
        let mut add = |what: &str, seconds: f64| {
            bench.line(
                &format!("ablation {name}: {what} / im2col"),
                speed(seconds),
                speed(whole),
                Some(whole / seconds),
            );
        };
        for variant in &VARIANTS {
            let device = im2col()?;
            forward_seconds(&device, p, true)?;
            let device = device.with_variant(IM2COL, variant.kernel());
            add(variant.name, forward_seconds(&device, p, small)?);
        }
        add("halo tiles", forward_seconds(&open()?.with_halo_tiles(HaloTiles::Always), p, small)?);
    }
    Ok(())
}
