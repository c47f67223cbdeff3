//! The instruction sets that a test runs on.

use gradscale_cpu::Isa;
use std::env;

/// Returns all instruction sets of this processor, or its best alone if `GRADSCALE_SETS` is `best`: for emulated processors,
/// whose portable kernels a real one has tested.
pub fn instruction_sets() -> Vec<Isa> {
    if env::var("GRADSCALE_SETS").is_ok_and(|sets| sets == "best") { vec![Isa::best()] } else { Isa::available() }
}
