//! Operations that CUDA forbids and the emulation detects: the process ends with a message. Each test starts itself
//! again in a process of its own.

mod emulated;
mod planted_kernel;

use gradscale_core::{
    backend::{Backend, Control, DType, Data, Launch, Slot, Store},
    ops::Unary,
    stats::Detail,
};
use planted_kernel::launch_dependent;
use std::process::Command;

/// Returns true in the child process of a test. In the parent, starts the child and checks that it ends with the
/// message.
fn ends_with(test: &str, message: &str) -> bool {
    const OWN: &str = "GRADSCALE_TEST_OF_ITS_OWN";
    if std::env::var_os(OWN).is_some() {
        return true;
    }
    let program = std::env::current_exe().expect("a program");
    let output = Command::new(program).args([test, "--exact", "--nocapture"]).env(OWN, "1").output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(message), "{:?}: {said}", output.status);
    false
}

/// A prefetch copy that a device might execute too early.
#[test]
fn a_copy_that_comes_too_early() {
    if !ends_with("a_copy_that_comes_too_early", "beside other work that uses the same memory") {
        return;
    }
    let device = emulated::open(80, 2).expect("a C++ compiler");
    let mut table = device.table(2, 1).expect("a table");
    let control = Control { exponents: &[0; 2], hyperparameters: &[0.0], seed: 0, detail: Detail::None };
    let (mut x, mut y) = (device.alloc(DType::F32, 9).expect("memory"), device.alloc(DType::F32, 9).expect("memory"));
    device.prefetch(Data::F32(&[1.0; 9]), &mut x).expect("nothing uses it");
    device
        .launch(Launch::Unary { op: Unary::Id, len: 9, x: &x, y: Store::keep(Slot::ONE, &table, &mut y) })
        .expect("a launch");
    device.upload(&control, 0..0, &mut table).expect("an upload");
    device.prefetch(Data::F32(&[2.0; 9]), &mut x).expect("used before the upload only");
    device
        .launch(Launch::Unary { op: Unary::Id, len: 9, x: &x, y: Store::keep(Slot::ONE, &table, &mut y) })
        .expect("a launch");
    device.prefetch(Data::F32(&[3.0; 9]), &mut x).ok();
}

/// A recording that was made on a device goes after it.
#[test]
fn a_recording_that_outlives_its_device() {
    let device = emulated::open(80, 2).expect("a C++ compiler");
    let table = device.table(2, 0).expect("a table");
    let (x, mut y) = (device.alloc(DType::F32, 9).expect("memory"), device.alloc(DType::F32, 9).expect("memory"));
    let mut work = || {
        let y = Store::keep(Slot::ONE, &table, &mut y);
        device.launch(Launch::Unary { op: Unary::Id, len: 9, x: &x, y })
    };
    work().expect("what is recorded has run once");
    let recording = device.record(work).expect("a recording");
    drop((x, y, table, device));
    drop(recording);
}

/// An operation that a recording may not contain is refused, and the recording ends with an error.
#[test]
fn a_recording_that_allocates() {
    let device = emulated::open(80, 2).expect("a C++ compiler");
    let refused = device.record(|| device.alloc(DType::F32, 9).map(drop)).expect_err("nothing is allocated there");
    assert!(refused.to_string().contains("CAPTURE"), "{refused}");
    device.alloc(DType::F32, 9).expect("and the device goes on");
}

/// Work on memory that was freed, by a recording that is repeated too late.
#[test]
fn a_recording_whose_memory_was_freed() {
    if !ends_with("a_recording_whose_memory_was_freed", "runs on memory that was freed") {
        return;
    }
    let device = emulated::open(80, 2).expect("a C++ compiler");
    let mut table = device.table(2, 0).expect("a table");
    let (x, mut y) = (device.alloc(DType::F32, 9).expect("memory"), device.alloc(DType::F32, 9).expect("memory"));
    let mut work = || {
        let y = Store::keep(Slot::ONE, &table, &mut y);
        device.launch(Launch::Unary { op: Unary::Id, len: 9, x: &x, y })
    };
    work().expect("what is recorded has run once");
    let recording = device.record(work).expect("a recording").expect("this device records");
    drop(x);
    device.replay(&recording).expect("it is enqueued");
    let control = Control { exponents: &[0; 2], hyperparameters: &[], seed: 0, detail: Detail::None };
    device.upload(&control, 0..0, &mut table).expect("an upload");
    drop(y);
}

/// A dependent launch whose kernel waits first, as all kernels of the backend do.
#[test]
fn a_dependent_kernel_that_waits() {
    launch_dependent("KERNEL(planted, PlantedParams) { p.x[thread_index()] += 1.0f; }");
}

/// A dependent launch may begin before the kernel before it has ended, so a kernel that never waits is refused.
#[test]
fn a_dependent_kernel_that_never_waits() {
    if ends_with("a_dependent_kernel_that_never_waits", "ends without having waited for the kernels before") {
        launch_dependent("KERNEL_WITH_PREAMBLE(planted, PlantedParams) { (void)p.x; }");
    }
}

/// Each thread waits for itself, because it may be ahead of those that have waited.
#[test]
fn a_dependent_kernel_of_which_some_threads_wait() {
    if ends_with("a_dependent_kernel_of_which_some_threads_wait", "ends without having waited for the kernels before") {
        launch_dependent(
            "KERNEL_WITH_PREAMBLE(planted, PlantedParams) {
                (void)p.x;
                if (thread_index() != 7) synchronize_grid_dependency();
            }",
        );
    }
}

/// Instructions of the machine check that their thread has waited.
#[test]
fn a_dependent_kernel_that_copies_before_it_waits() {
    if ends_with("a_dependent_kernel_that_copies_before_it_waits", "copies before it has waited for the kernels before")
    {
        launch_dependent(
            "KERNEL_WITH_PREAMBLE(planted, PlantedParams) {
                SHARED_BYTES(bytes);
                cp_async(shared_address(bytes), p.x, true);
                synchronize_grid_dependency();
            }",
        );
    }
}

/// Plain loads cannot be checked, but no address in the parameters is valid before the first thread has waited.
#[test]
fn a_dependent_kernel_that_reads_before_it_waits() {
    if ends_with("a_dependent_kernel_that_reads_before_it_waits", "") {
        launch_dependent(
            "KERNEL_WITH_PREAMBLE(planted, PlantedParams) {
                const float early = p.x[thread_index()];
                synchronize_grid_dependency();
                p.x[thread_index()] = early;
            }",
        );
    }
}
