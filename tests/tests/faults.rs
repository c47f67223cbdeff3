//! Test of the suite: every fault of a broken reference backend fails some case and passes at least four fifths of the
//! others, so that a failure locates the fault.

use gradscale_conformance::{Fault, Outcome, Reference, TOLERANCES, suite};
use libtest_mimic::{Arguments, Failed, Trial};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Cases that each fault failed.
type Matrix = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

fn main() {
    // A panic in a case is an outcome here, not news.
    std::panic::set_hook(Box::new(|_| ()));
    let matrix = Matrix::default();
    let mut trials: Vec<Trial> = Fault::ALL
        .into_iter()
        .map(|fault| {
            let matrix = matrix.clone();
            Trial::test(format!("{fault:?}"), move || caught(fault, &matrix))
        })
        .collect();
    trials.push(Trial::test("tolerances_are_tight", tolerances));
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    print(&matrix.lock().unwrap_or_else(PoisonError::into_inner));
    conclusion.exit()
}

fn caught(fault: Fault, matrix: &Matrix) -> Result<(), Failed> {
    let backend = Reference::broken(fault);
    let cases = suite::<Reference>();
    let fails =
        |case: &&gradscale_conformance::Case<Reference>| matches!(case.run_briefly(&backend), Outcome::Failed(_));
    let failed: Vec<String> = cases.iter().filter(fails).map(|case| case.name.clone()).collect();
    let (count, total) = (failed.len(), cases.len());
    matrix.lock().unwrap_or_else(PoisonError::into_inner).insert(format!("{fault:?}"), failed);
    match count {
        0 => Err(Failed::from("no case fails")),
        count if 5 * (total - count) < 4 * (total - 1) => Err(Failed::from(format!("{count} of {total} cases fail"))),
        _ => Ok(()),
    }
}

/// Each bound is at most four times the largest error on record.
fn tolerances() -> Result<(), Failed> {
    match TOLERANCES.iter().find(|row| row.bound > 4.0 * row.measured || row.bound < row.measured) {
        None => Ok(()),
        Some(row) => Err(Failed::from(format!("{row:?}"))),
    }
}

/// Fault × case.
fn print(matrix: &BTreeMap<String, Vec<String>>) {
    let faults: Vec<&String> = matrix.keys().collect();
    for (i, fault) in faults.iter().enumerate() {
        println!("{:2} {fault}: fails {} cases", i + 1, matrix[*fault].len());
    }
    let header: String = (1..=faults.len()).map(|i| format!("{i:3}")).collect();
    println!("{:44}{header}", "case \\ fault");
    for case in suite::<Reference>() {
        let marks: Vec<bool> = faults.iter().map(|fault| matrix[*fault].contains(&case.name)).collect();
        if marks.contains(&true) {
            let row: String = marks.iter().map(|&mark| if mark { "  #" } else { "  ." }).collect();
            println!("{:44}{row}", case.name);
        }
    }
}
