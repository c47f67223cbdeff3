//! The conformance suite on every instruction set that this machine has, not only on the best.

use gradscale_cpu::{Cpu, Isa};

fn main() {
    let open = |isa: Isa| (isa.to_string(), Cpu::with_isa(0, isa).map_err(|error| error.to_string()));
    let required = [gradscale_conformance::OPERATORS, gradscale_conformance::ATTENTION].concat();
    gradscale_conformance::main_for_each(&required, Isa::available().into_iter().map(open).collect())
}
