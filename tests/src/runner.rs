//! Runs the suite as a test binary: `cargo test`, filters, `--list` and nextest work as usual.

use crate::{Measured, Outcome, TOLERANCES, suite};
use gradscale_core::backend::Backend;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// Runs every case on the device that `open` opens, and ends the process. `required` are the operators (first parts
/// of case names) that may not be unsupported: for them *unsupported* is a failure. An empty list allows all.
///
/// Without a device the cases are listed as ignored, with the reason; with `GRADSCALE_REQUIRE_DEVICE=1` they fail.
pub fn main<B: Backend + Send + Sync + 'static>(
    name: &str, required: &[&str], open: impl FnOnce() -> Result<B, String>,
) -> ! {
    let arguments = Arguments::from_args();
    let measured = Arc::new(Mutex::new(BTreeMap::<&str, f64>::new()));
    let unsupported = Arc::new(Mutex::new(Vec::<String>::new()));
    let device = open().map(Arc::new);
    let must_have = std::env::var("GRADSCALE_REQUIRE_DEVICE").is_ok_and(|value| value == "1");
    let trials = suite::<B>().into_iter().map(|case| {
        let title = format!("{name}::{}", case.name);
        let is_required = required.iter().any(|operator| case.name.split("::").next() == Some(operator));
        match &device {
            Ok(device) => {
                let (device, measured, unsupported) = (device.clone(), measured.clone(), unsupported.clone());
                Trial::ignorable_test(title, move || match case.run(&device) {
                    Outcome::Passed(seen) => {
                        note(&measured, &seen);
                        Ok(Completion::Completed)
                    }
                    Outcome::Unsupported(why) if !is_required => {
                        lock(&unsupported).push(format!("{}: {why}", case.name));
                        Ok(Completion::ignored_with("unsupported"))
                    }
                    Outcome::Unsupported(why) => Err(Failed::from(format!("must be supported: {why}"))),
                    Outcome::Failed(why) => Err(Failed::from(why)),
                })
            }
            Err(reason) if must_have => {
                let reason = format!("no device, and one is required: {reason}");
                Trial::test(title, move || Err(Failed::from(reason)))
            }
            Err(reason) => Trial::test(format!("{title} ({reason})"), || Ok(())).with_ignored_flag(true),
        }
    });
    let conclusion = libtest_mimic::run(&Arguments { test_threads: Some(1), ..arguments }, trials.collect());
    if let Ok(device) = &device {
        println!("device: {}", device.caps().name);
        if let Some(bytes) = device.scratch_peak() {
            println!("scratch memory at its peak: {bytes} bytes");
        }
    }
    let unsupported = lock(&unsupported);
    if !unsupported.is_empty() {
        println!("unsupported ({} cases):", unsupported.len());
        unsupported.iter().for_each(|line| println!("  {line}"));
    }
    println!("largest errors, in units of the tolerance table (seen, on record, allowed):");
    for row in TOLERANCES {
        if let Some(seen) = lock(&measured).get(row.entry) {
            println!("  {:24} {seen:8.3} {:8.3} {:8.3}", row.entry, row.measured, row.bound);
        }
    }
    conclusion.exit()
}

fn note(all: &Mutex<BTreeMap<&'static str, f64>>, seen: &[Measured]) {
    for measured in seen {
        let mut all = lock(all);
        let worst = all.entry(measured.entry).or_default();
        *worst = worst.max(measured.worst);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
