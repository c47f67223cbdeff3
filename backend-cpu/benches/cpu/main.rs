//! Products, convolutions and the other operators of a training step.
//!
//! `cargo bench -p gradscale-cpu-benches [-- word…]` runs on the best instruction set of the machine, or on the named ones
//! (`portable`, `AVX2`, `AVX-512`, `AMX`, `NEON`). Other words select lines by name. Each figure is the best of many
//! short runs. Its baseline is measured in the same process, in alternation: the machine's peak with this instruction
//! set (that of vectors if it has a matrix unit), a copy, and on one thread the `gemm` crate, the `half` crate or a
//! plain loop. Statistics are those of every step of a training: `Detail::Counts`.
//!
//! `--threads=N` measures only that number of threads. `--turns` serves another process, which runs its own programs
//! between ours (`scripts/performance.py`): see `measure::Bench::take_turns`.

#![allow(clippy::cast_possible_truncation, reason = "a benchmark: small sizes")]

mod baselines;
mod gemm_conv;
mod measure;
mod operators;
mod peak;

use gradscale_core::backend::Backend;
use gradscale_cpu::{Cpu, Isa};

fn main() {
    let (flags, words): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|word| word.starts_with('-'));
    let turns = flags.iter().any(|flag| flag == "--turns");
    let threads = flags.iter().find_map(|flag| flag.strip_prefix("--threads=")?.parse().ok());
    let threads: Vec<usize> = threads.map_or(vec![1, 0], |threads| vec![threads]);
    let (sets, words): (Vec<String>, Vec<String>) =
        words.into_iter().partition(|word| Isa::available().iter().any(|isa| isa.to_string() == *word));
    let named = Isa::available().into_iter().filter(|isa| sets.contains(&isa.to_string()));
    let chosen: Vec<Isa> = if sets.is_empty() { vec![Isa::best()] } else { named.collect() };
    for (isa, &threads) in chosen.into_iter().flat_map(|isa| threads.iter().map(move |threads| (isa, threads))) {
        let cpu = Cpu::with_isa(threads, isa).expect("threads");
        let bench = measure::Bench::new(&cpu, isa, &words, turns);
        if !turns {
            println!("\n{}: peak {:.1} GMAC/s, copy {:.1} GB/s", cpu.caps().name, bench.peak, bench.copy);
        }
        gemm_conv::bench_gemm_conv(&bench);
        operators::bench_operators(&bench);
    }
}
