//! Products, convolutions and the other operators of a training step.
//!
//! `cargo bench -p gradscale-cpu [-- word…]`: only lines with one of the words, if there are any. Each figure is the
//! best of many short runs; what it is compared with (the peak of the machine, the `gemm` crate, a copy) is measured
//! in the same process, on the same threads. Statistics are those of every step of a training: `Detail::Counts`.

mod measure;
mod operators;
mod products;

use gradscale_core::backend::Backend;
use gradscale_cpu::Cpu;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    for threads in [1, 0] {
        let cpu = Cpu::new(threads).expect("threads");
        let bench = measure::Bench::new(&cpu, &words);
        println!("\n{}: peak {:.1} GMAC/s, copy {:.1} GB/s", cpu.caps().name, bench.peak, bench.copy);
        products::all(&bench);
        operators::all(&bench);
    }
}
