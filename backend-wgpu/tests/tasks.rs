//! A network of each task on a GPU, beside the CPU.
//!
//! Without an adapter the test says so and passes; with `GRADSCALE_REQUIRE_DEVICE=1` it fails.

#![allow(dead_code, reason = "networks that others train")]

#[path = "../../tests/tests/shift/detection.rs"]
mod detection;
#[path = "../../tests/tests/shift/gan.rs"]
mod gan;
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

use gradscale_wgpu::Wgpu;

#[test]
fn tasks_beside_the_cpu() {
    match Wgpu::new(0) {
        Ok(_) => tasks::tasks_beside_the_cpu(|| Wgpu::new(0).expect("as before")),
        Err(error) => {
            let required = std::env::var("GRADSCALE_REQUIRE_DEVICE").is_ok_and(|value| value == "1");
            assert!(!required, "no device, and one is required: {error}");
            println!("SKIPPED: {error}");
        }
    }
}
