//! Prefetched batches on the CPU.

#[path = "../../ahead/mod.rs"]
mod ahead;

#[test]
fn batches_sent_ahead() {
    for threads in [1, 2] {
        ahead::batches_sent_ahead(|| gradscale::Cpu::new(threads).expect("a CPU"));
    }
}
