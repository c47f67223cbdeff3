//! A network of each task on the emulated driver, compared with the CPU.

mod emulated;
#[path = "../../tests/engine/tests/beside/tasks.rs"]
mod tasks;

#[test]
fn tasks_on_the_emulation() {
    match emulated::open(80, 2) {
        Ok(_) => tasks::tasks_beside_the_cpu(|| emulated::open(80, 2).expect("as before")),
        Err(reason) => println!("SKIPPED: {reason}"),
    }
}
