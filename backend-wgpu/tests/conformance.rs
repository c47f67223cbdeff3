//! The conformance suite on the first adapter: everything supported, whether tensors have buffers of their own or lie
//! between others. Kernels have run-time checks; `GRADSCALE_UNCHECKED=1` runs them as release builds do.
//! `GRADSCALE_BINDING=262144` runs them as if a binding held no more bytes, so that larger tensors are seen through
//! several, and as if there were no subgroups.

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
