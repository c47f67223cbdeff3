//! Errors have their kinds, and the driver's words.

use crate::{Adapter, Error, Wgpu, kernel, kernel::Kernel};
use gradscale_core::backend::{Backend, DType, Data, DataMut, Error as _, ErrorKind};

fn device() -> Option<Wgpu> {
    match Wgpu::new(0) {
        Ok(device) => Some(device),
        Err(error) => {
            let required = std::env::var("GRADSCALE_REQUIRE_DEVICE").is_ok_and(|value| value == "1");
            assert!(!required, "no device, and one is required: {error}");
            println!("SKIPPED: {error}");
            None
        }
    }
}

#[test]
fn an_adapter_that_is_not_there_is_named_with_those_that_are() {
    let error = Wgpu::new(9999).expect_err("so many adapters");
    assert!(matches!(error, Error::NoAdapter { index: 9999, .. }), "{error}");
    for adapter in crate::adapters() {
        assert!(error.to_string().contains(&adapter.name()), "{error}");
    }
    assert!(Adapter::get(9999).is_err());
}

#[test]
fn a_kernel_that_does_not_compile_says_why() {
    static BROKEN: Kernel = Kernel {
        name: "broken",
        source: "@compute @workgroup_size(1) fn main() { let a: u32 = missing; }",
        includes: &[],
        operands: &[],
        others: &[],
    };
    let Some(device) = device() else { return };
    let error = device.pipeline(&BROKEN, 1, None, vec![]).expect_err("it is broken");
    assert_eq!(error.kind(), ErrorKind::KernelCompile);
    assert!(error.to_string().contains("broken") && error.to_string().contains("missing"), "{error}");
    // The device lives on.
    device.pipeline(&kernel::PARTIAL_WORD_WRITE, 1, None, vec![]).expect("this one compiles");
}

#[test]
fn a_lost_device_says_so_each_time() {
    let Some(device) = device() else { return };
    let mut memory = device.alloc(DType::F32, 4).expect("memory");
    device.write(Data::F32(&[1.0; 4]), &mut memory).expect("a write");
    device.device().destroy();
    for _ in 0..3 {
        let mut values = [0.0; 4];
        let error =
            pollster::block_on(device.read_memory(&memory, DataMut::F32(&mut values))).expect_err("the device is gone");
        assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    }
}

#[test]
fn memory_beyond_the_largest_buffer_is_refused_with_its_size() {
    let Some(device) = device() else { return };
    let len = usize::try_from(device.caps().max_buffer).expect("64 bits");
    let error = device.alloc(DType::F32, len).expect_err("four times too large");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains(&(4 * len).to_string()), "{error}");
}

#[test]
fn multiply_adds_are_computed_and_counted() {
    let Some(device) = device() else { return };
    let mut y = device.alloc(DType::F32, 512).expect("memory");
    let operations = device.multiply_adds_by_kernel(3, &mut y).expect("a launch");
    assert_eq!(operations, 2 * 32 * 3 * 512);
    let mut values = [0.0; 512];
    pollster::block_on(device.read_memory(&y, DataMut::F32(&mut values))).expect("a read");
    // Chains start at 0 to 7, four at each, and x becomes x/8 + 7/8.
    assert_eq!(values, [4.0 * (28.0 + 8.0 * 7.0) / 8.0; 512]);
}

/// A batch that is sent ahead is copied while the step before it computes: the call returns before that work has ended,
/// and the results of that work are those of the old content.
#[test]
fn a_batch_sent_ahead_waits_for_no_work() {
    let Some(device) = device() else { return };
    let mut y = device.alloc(DType::F32, 4096).expect("memory");
    let mut batch = device.alloc(DType::F32, 4096).expect("memory");
    // Some tenths of a second of work on a driver of the CPU.
    device.multiply_adds_by_kernel(20_000, &mut y).expect("a launch");
    device.prefetch(Data::F32(&[2.0; 4096]), &mut batch).expect("a copy");
    let status = device.device().poll(wgpu::PollType::Poll).expect("a device");
    assert!(!status.is_queue_empty(), "the copy has waited for the work before it");
    let mut values = [0.0; 4096];
    pollster::block_on(device.read_memory(&batch, DataMut::F32(&mut values))).expect("a read");
    assert_eq!(values, [2.0; 4096]);
}
