//! A network of each task on this backend, beside the CPU: on the emulation, and on a GPU where there is one.

#![allow(dead_code, reason = "networks that others train")]

#[path = "../../tests/tests/shift/detection.rs"]
mod detection;
#[path = "../../tests/tests/shift/gan.rs"]
mod gan;
mod host;
#[path = "../../tests/tests/shift/language.rs"]
mod language;
#[path = "../../tests/tests/shift/nets.rs"]
mod nets;
#[path = "../../tests/tests/shift/speech.rs"]
mod speech;
#[path = "../../tests/tests/beside/tasks.rs"]
mod tasks;
#[path = "../../tests/tests/shift/translation.rs"]
mod translation;
#[path = "../../tests/tests/shift/vision.rs"]
mod vision;

use gradscale_cuda::Cuda;

#[test]
fn tasks_on_the_emulation() {
    match host::Host::open(80, 2) {
        Ok(_) => tasks::tasks_beside_the_cpu(|| host::Host::open(80, 2).expect("as before")),
        Err(reason) => println!("SKIPPED: {reason}"),
    }
}

#[test]
fn tasks_on_a_gpu() {
    match Cuda::open(0) {
        Ok(_) => tasks::tasks_beside_the_cpu(|| Cuda::open(0).expect("as before")),
        Err(reason) => {
            let required = std::env::var("GRADSCALE_REQUIRE_DEVICE").is_ok_and(|value| value == "1");
            assert!(!required, "a device is required: {reason}");
            println!("SKIPPED: {reason}");
        }
    }
}
