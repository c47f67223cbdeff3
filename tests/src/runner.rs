//! Runs the suite as a test binary: `cargo test`, filters, `--list` and nextest work as usual.

use crate::{Case, Measured, Outcome, TOLERANCES, suite};
use gradscale_core::backend::Backend;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

/// Runs every case on the device that `open` opens, and ends the process. `required` are the operators (first parts
/// of case names) that may not be unsupported: for them *unsupported* is a failure. An empty list allows all.
///
/// Without a device the cases are listed as ignored, with the reason; with `GRADSCALE_REQUIRE_DEVICE=1` they fail.
/// `GRADSCALE_BRIEF=1` runs each case with few inputs, see [`Case::run_briefly`]: for machines as slow as emulated ones.
/// `GRADSCALE_BRIEF=others` does so on all devices but the last, where there are several. `GRADSCALE_INPUTS=N` tries each
/// property on N random inputs, not 256. `GRADSCALE_CASTS=sparse` casts the f32 values at which results change and a few
/// between, not all 2^32.
pub fn main<B: Backend + Send + Sync + 'static>(
    name: &str, required: &[&str], open: impl FnOnce() -> Result<B, String>,
) -> ! {
    main_for_each(required, vec![(name.to_owned(), open())])
}

/// Runs the suite as [`main`] does, for several devices of one type or one device in several configurations, each with
/// its name. Without a filter every case must have run on every device.
pub fn main_for_each<B: Backend + Send + Sync + 'static>(
    required: &[&str], devices: Vec<(String, Result<B, String>)>,
) -> ! {
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let noted = Arc::new(Mutex::new(Noted::default()));
    let devices: Vec<_> = devices.into_iter().map(|(name, device)| (name, device.map(Arc::new))).collect();
    let brief = std::env::var("GRADSCALE_BRIEF").unwrap_or_default();
    let is_brief = |i: usize| brief == "1" || brief == "others" && i + 1 < devices.len();
    let trials: Vec<Trial> = (devices.iter().enumerate())
        .flat_map(|(i, (name, device))| trials(name, required, device.as_ref(), is_brief(i), &noted))
        .collect();
    let expected = if devices.iter().all(|(_, device)| device.is_ok()) { trials.len() } else { 0 };
    let conclusion = libtest_mimic::run(&arguments, trials);
    let noted = lock(&noted);
    for device in devices.iter().filter_map(|(_, device)| device.as_ref().ok()) {
        println!("device: {}", device.caps().name);
        if let Some(bytes) = device.scratch_peak() {
            println!("scratch memory at its peak: {bytes} bytes");
        }
    }
    if !noted.unsupported.is_empty() {
        println!("unsupported ({} cases):", noted.unsupported.len());
        noted.unsupported.iter().for_each(|line| println!("  {line}"));
    }
    println!("largest errors, in units of the tolerance table (seen, on record, allowed):");
    for row in TOLERANCES {
        if let Some(seen) = noted.measured.get(row.entry) {
            println!("  {:24} {seen:8.3} {:8.3} {:8.3}", row.entry, row.measured, row.bound);
        }
    }
    println!("pairs of a device and a case that ran: {}", noted.pairs.len());
    if !arguments.list && conclusion.num_filtered_out == 0 && noted.pairs.len() < expected {
        println!("FAILED: {expected} were to run");
        std::process::exit(101);
    }
    conclusion.exit()
}

/// Results that are printed after the last case.
#[derive(Default)]
struct Noted {
    /// Largest error of each entry of the tolerance table.
    measured: BTreeMap<&'static str, f64>,
    unsupported: Vec<String>,
    /// The device's own name, and the case.
    pairs: BTreeSet<(String, String)>,
}

/// Returns the trials of all cases on one device.
fn trials<B: Backend + Send + Sync + 'static>(
    name: &str, required: &[&str], device: Result<&Arc<B>, &String>, brief: bool, noted: &Arc<Mutex<Noted>>,
) -> Vec<Trial> {
    let must_have = std::env::var("GRADSCALE_REQUIRE_DEVICE").is_ok_and(|value| value == "1");
    let trial = |case: Case<B>| {
        let title = format!("{name}::{}", case.name);
        let is_required = required.iter().any(|operator| case.name.split("::").next() == Some(operator));
        match device {
            Ok(device) => {
                let (device, noted) = (device.clone(), noted.clone());
                Trial::ignorable_test(title, move || {
                    let outcome = if brief { case.run_briefly(&device) } else { case.run(&device) };
                    let mut noted = lock(&noted);
                    noted.pairs.insert((device.caps().name.to_owned(), case.name.clone()));
                    match outcome {
                        Outcome::Passed(seen) => {
                            noted.add(&seen);
                            Ok(Completion::Completed)
                        }
                        Outcome::Unsupported(why) if !is_required => {
                            noted.unsupported.push(format!("{}: {why}", case.name));
                            Ok(Completion::ignored_with("unsupported"))
                        }
                        Outcome::Unsupported(why) => Err(Failed::from(format!("must be supported: {why}"))),
                        Outcome::Failed(why) => Err(Failed::from(why)),
                    }
                })
            }
            Err(reason) if must_have => {
                let reason = format!("no device, and one is required: {reason}");
                Trial::test(title, move || Err(Failed::from(reason)))
            }
            Err(reason) => Trial::test(format!("{title} ({reason})"), || Ok(())).with_ignored_flag(true),
        }
    };
    suite::<B>().into_iter().map(trial).collect()
}

impl Noted {
    fn add(&mut self, seen: &[Measured]) {
        for measured in seen {
            let worst = self.measured.entry(measured.entry).or_default();
            *worst = worst.max(measured.worst);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
