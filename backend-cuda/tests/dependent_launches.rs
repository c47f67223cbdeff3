//! Programmatic dependent launch: which devices use it, in recordings too.

mod emulated;

use emulated::Emulated;
use gradscale_core::{
    backend::{Backend, Control, DType, Launch, Slot, Store},
    ops::Unary,
    stats::Detail,
};
use gradscale_cuda::Cuda;

/// Launches a kernel once by itself and twice in a recording, and waits. Returns how many of the three launches were
/// dependent; none without a C++ compiler.
fn count_dependent(arch: u32, faults: &str, configure: impl FnOnce(Cuda) -> Cuda) -> Option<u64> {
    let emulated = Emulated::new(arch, 2).inspect_err(|reason| println!("SKIPPED: {reason}")).ok()?;
    emulated.fail(faults);
    let device = configure(emulated.open().expect("a device"));
    let mut table = device.table(2, 0).expect("a table");
    let (x, mut y) = (device.alloc(DType::F32, 9).expect("memory"), device.alloc(DType::F32, 9).expect("memory"));
    let mut work = || {
        let y = Store::keep(Slot::ONE, &table, &mut y);
        device.launch(Launch::Unary { op: Unary::Id, len: 9, x: &x, y })
    };
    work().expect("a launch");
    let recording = device.record(&mut work).expect("a recording").expect("this device records");
    device.replay(&recording).expect("it is enqueued");
    device.replay(&recording).expect("it is enqueued");
    let control = Control { exponents: &[0; 2], hyperparameters: &[], seed: 0, detail: Detail::None };
    device.upload(&control, 0..0, &mut table).expect("an upload");
    drop((x, y));
    Some(emulated.counts().dependent)
}

#[test]
fn launches_are_dependent_from_sm_90_on() {
    assert!(count_dependent(90, "", |device| device).is_none_or(|count| count == 3));
    assert!(count_dependent(80, "", |device| device).is_none_or(|count| count == 0));
}

/// CUDA 12.2 has dependent launches, but its captures refuse them.
#[test]
fn an_old_driver_has_serial_launches() {
    assert!(count_dependent(90, "driver=12020", |device| device).is_none_or(|count| count == 0));
    assert!(count_dependent(90, "driver=12030", |device| device).is_none_or(|count| count == 3));
}

#[test]
fn dependent_launches_can_be_disabled() {
    assert!(count_dependent(90, "", Cuda::without_dependent_launches).is_none_or(|count| count == 0));
}
