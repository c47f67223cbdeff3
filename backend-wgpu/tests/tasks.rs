//! A network of each task on a GPU, compared with the CPU.
//!
//! Without an adapter the test prints that and passes; with `GRADSCALE_REQUIRE_DEVICE=1` it fails.

mod placed;
#[path = "../../tests/engine/tests/beside/tasks.rs"]
mod tasks;

use gradscale_wgpu::Wgpu;
use placed::Placed;
use std::sync::Arc;

#[test]
fn tasks_beside_the_cpu() {
    match Wgpu::new(0) {
        Ok(device) => {
            // One device, so that kernels are compiled once for all networks.
            let device = Arc::new(device);
            tasks::tasks_beside_the_cpu(|| Placed::usual(Arc::clone(&device)));
        }
        Err(error) => {
            let required = std::env::var("GRADSCALE_REQUIRE_DEVICE").is_ok_and(|value| value == "1");
            assert!(!required, "no device, and one is required: {error}");
            println!("SKIPPED: {error}");
        }
    }
}
