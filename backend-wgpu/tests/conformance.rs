//! The conformance suite on the first adapter: everything supported. Kernels have run-time checks;
//! `GRADSCALE_UNCHECKED=1` runs them as release builds do.

use gradscale_wgpu::{Adapter, Wgpu};

fn main() {
    let mut required = gradscale_conformance::OPERATORS.to_vec();
    required.push("record");
    gradscale_conformance::main("wgpu", &required, || {
        let checked = std::env::var("GRADSCALE_UNCHECKED").is_err();
        Adapter::get(0).and_then(|adapter| Wgpu::open(&adapter, checked)).map_err(|error| error.to_string())
    })
}
