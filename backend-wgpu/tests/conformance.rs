//! The conformance suite on the first adapter: everything is supported, whether tensors have their own buffers or share
//! one. Kernels have run-time checks; `GRADSCALE_UNCHECKED=1` runs them as release builds do.
//! `GRADSCALE_BINDING=262144` limits the size of a binding, so that larger tensors need several, and disables
//! subgroups.

mod placed;

use gradscale_wgpu::{Adapter, Wgpu};
use placed::Placed;

fn main() {
    let mut required = gradscale_conformance::OPERATORS.to_vec();
    required.push("record");
    gradscale_conformance::main("wgpu", &required, || {
        let checked = std::env::var("GRADSCALE_UNCHECKED").is_err();
        let device = Adapter::get(0).and_then(|adapter| Wgpu::open(&adapter, checked));
        let device = device.map_err(|error| error.to_string())?;
        match std::env::var("GRADSCALE_BINDING").map(|bytes| bytes.parse()) {
            Err(_) => Ok(Placed::between(device)),
            Ok(Ok(bytes)) => Ok(Placed::between(device.with_largest_binding(bytes).without_subgroups())),
            Ok(Err(error)) => Err(format!("GRADSCALE_BINDING: {error}")),
        }
    })
}
