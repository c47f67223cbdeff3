//! Products, convolutions and the other operators of a training step.
//!
//! `cargo bench -p gradscale-cpu [-- word…]`: on the best instruction set of the machine, or on those that are named
//! (`portable`, `AVX2`, `AVX-512`, `NEON`); only lines with one of the other words, if there are any. Each figure is
//! the best of many short runs; what it is compared with (the peak of the machine with this instruction set, a copy, and
//! on one thread the `gemm` crate, the `half` crate, or a plain loop) is measured in the same process, in turns.
//! Statistics are those of every step of a training: `Detail::Counts`.

#![allow(clippy::cast_possible_truncation, reason = "a benchmark: small sizes")]

mod measure;
mod operators;
mod peak;
mod plain;
mod products;

use gradscale_core::backend::Backend;
use gradscale_cpu::{Cpu, Isa};

fn main() {
    let words = std::env::args().skip(1).filter(|word| !word.starts_with('-'));
    let (sets, words): (Vec<String>, Vec<String>) =
        words.partition(|word| Isa::available().iter().any(|isa| isa.to_string() == *word));
    let named = Isa::available().into_iter().filter(|isa| sets.contains(&isa.to_string()));
    let chosen: Vec<Isa> = if sets.is_empty() { vec![Isa::best()] } else { named.collect() };
    for (isa, threads) in chosen.into_iter().flat_map(|isa| [(isa, 1), (isa, 0)]) {
        let cpu = Cpu::with_isa(threads, isa).expect("threads");
        let bench = measure::Bench::new(&cpu, isa, &words);
        println!("\n{}: peak {:.1} GMAC/s, copy {:.1} GB/s", cpu.caps().name, bench.peak, bench.copy);
        products::all(&bench);
        operators::all(&bench);
    }
}
