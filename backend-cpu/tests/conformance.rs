//! The conformance suite on every instruction set of this machine.

fn main() {
    gradscale_conformance::main("cpu", gradscale_conformance::OPERATORS, || {
        gradscale_cpu::Cpu::new(0).map_err(|e| e.to_string())
    })
}
