//! The conformance suite on the kernels' own text and the whole of the backend, with emulated libraries in place of
//! NVIDIA's.
//!
//! `GRADSCALE_EMULATED_ARCH=75` runs what older devices run.

mod emulated;

fn main() {
    let arch = std::env::var("GRADSCALE_EMULATED_ARCH").ok().and_then(|arch| arch.parse().ok()).unwrap_or(80);
    // Two multiprocessors: the suite's tensors are small, and each of its blocks is to have work for several rounds.
    gradscale_conformance::main("emulated cuda", gradscale_conformance::OPERATORS, || emulated::open(arch, 2))
}
