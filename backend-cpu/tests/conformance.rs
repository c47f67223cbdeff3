//! The conformance suite on the best instruction set of this machine.

fn main() {
    gradscale_conformance::main("cpu", gradscale_conformance::OPERATORS, || {
        gradscale_cpu::Cpu::new(0).map_err(|error| error.to_string())
    })
}
