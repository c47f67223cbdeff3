//! The conformance suite on the original kernel text and the whole backend, with emulated libraries instead of
//! NVIDIA's.
//!
//! `GRADSCALE_EMULATED_ARCH=75` selects the kernels of older devices.

mod emulated;

fn main() {
    let arch = std::env::var("GRADSCALE_EMULATED_ARCH").ok().and_then(|arch| arch.parse().ok()).unwrap_or(80);
    // Two multiprocessors: the suite's tensors are small, and each of its blocks is to have work for several rounds.
    let required = [gradscale_conformance::OPERATORS, gradscale_conformance::ATTENTION].concat();
    gradscale_conformance::main("emulated cuda", &required, || emulated::open(arch, 2))
}
