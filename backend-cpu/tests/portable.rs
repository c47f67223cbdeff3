//! The conformance suite on the portable kernels, which define the others.

fn main() {
    gradscale_conformance::main("portable", gradscale_conformance::OPERATORS, || {
        gradscale_cpu::Cpu::with_isa(0, gradscale_cpu::Isa::Portable).map_err(|error| error.to_string())
    })
}
