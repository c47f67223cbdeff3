//! Division of work among thread blocks: as many as a device holds, and no sum longer than one accumulator may be.

mod emulated;

use emulated::Emulated;
use gradscale_core::{
    backend::{Backend, DType, DataMut, Error as _, ErrorKind, Launch, Slot, Store},
    ops::{Conv2d, Pass, Unary},
};
use gradscale_cuda::{Cuda, Error};

/// Creates a device with three multiprocessors that hold `resident` blocks each. `None` without a C++ compiler.
fn emulated(resident: u32) -> Option<Emulated> {
    match Emulated::new(80, 3) {
        Ok(emulated) => {
            emulated.fail(&format!("resident={resident}"));
            Some(emulated)
        }
        Err(reason) => {
            println!("SKIPPED: {reason}");
            None
        }
    }
}

/// The most blocks that modules of such names were launched with.
fn blocks(emulated: &Emulated, prefix: &str) -> u64 {
    let used = emulated.used();
    let of = used.iter().filter(|(name, _)| name.starts_with(prefix));
    of.map(|(_, &most)| most).max().unwrap_or_else(|| panic!("no {prefix} among {used:?}"))
}

fn unary(device: &Cuda, len: usize) -> Result<(), Error> {
    let table = device.table(2, 0)?;
    let (x, mut y) = (device.alloc(DType::F16, len)?, device.alloc(DType::F16, len)?);
    let y = Store::keep(Slot::ONE, &table, &mut y);
    device.launch(Launch::Unary { op: Unary::Id, len: u32::try_from(len).expect("few"), x: &x, y })?;
    device.alloc(DType::F16, 1).map(drop)
}

/// Forward, or the gradient of the weights.
fn convolve(device: &Cuda, p: Conv2d, pass: Pass) -> Result<(), Error> {
    let [x, w, y] = [p.x(), p.w(), p.y()].map(|shape| shape.into_iter().product::<u32>() as usize);
    let [of_b, of_result] = if pass == Pass::Weight { [y, w] } else { [w, y] };
    let (a, b, table) = (device.alloc(DType::F16, x)?, device.alloc(DType::F16, of_b)?, device.table(2, 0)?);
    let mut result = device.alloc(DType::F32, of_result)?;
    let y = Store::keep(Slot::ONE, &table, &mut result);
    device.launch(Launch::Conv { p, pass, a: &a, b: &b, bias: None, y })?;
    pollster::block_on(device.read(&result, DataMut::F32(&mut vec![0.0; of_result])))
}

/// Blocks with grid-stride loops: as many as fit on the device, so that there is no partial wave.
#[test]
fn dense_kernels_fill_the_device_once() {
    for resident in [1, 3, 8] {
        let Some(emulated) = emulated(resident) else { return };
        unary(&emulated.open().expect("a device"), 1 << 20).expect("it runs");
        assert_eq!(blocks(&emulated, "unary"), 3 * u64::from(resident));
    }
}

/// A weight gradient adds over all pixels: at most 4096 in one accumulator, however few blocks the device would want.
#[test]
fn long_sums_are_cut() {
    let Some(emulated) = emulated(1) else { return };
    let device = emulated.open().expect("a device");
    let p = Conv2d::padded([2, 128, 128, 8], 8, [1, 1], [0, 0]).expect("a shape");
    convolve(&device, p, Pass::Weight).expect("it runs");
    let parts = blocks(&emulated, "mma_sync_weight");
    assert!(parts >= 2 * 128 * 128 / 4096, "{parts} parts");
}

/// A picture of three channels is padded to eight: its products are of those that copy eight halves at a time.
#[test]
fn pictures_are_padded() {
    let Some(emulated) = emulated(1) else { return };
    let device = emulated.open().expect("a device");
    let p = Conv2d::padded([2, 24, 24, 3], 64, [7, 7], [3, 3]).expect("a shape");
    for pass in [Pass::Forward, Pass::Weight] {
        convolve(&device, p, pass).expect("it runs");
    }
    let used = emulated.used();
    let ways: Vec<&String> = used.keys().filter(|name| name.starts_with("mma_sync_")).collect();
    assert!(
        used.contains_key("pad") && !ways.is_empty() && ways.iter().all(|name| !name.ends_with("_any")),
        "{used:?}"
    );
}

/// Errors of the driver after which the device is lost, so that a training must restart.
#[test]
fn errors_after_which_nothing_works() {
    // As in cuda.h: ECC, illegal address, timeout, assert, hardware stack, illegal instruction, misaligned address, invalid
    // address space, invalid PC, launch failed, unknown.
    for code in [214, 700, 702, 710, 714, 715, 716, 717, 718, 719, 999] {
        let Some(emulated) = emulated(1) else { return };
        emulated.fail(&format!("lost=unary,code={code}"));
        let device = emulated.open().expect("a device");
        let lost =
            (0..4).find_map(|_| unary(&device, 9).err()).unwrap_or_else(|| panic!("{code}: nothing was noticed"));
        assert_eq!(lost.kind(), ErrorKind::DeviceLost, "{code}: {lost}");
    }
}
