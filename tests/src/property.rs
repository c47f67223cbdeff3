//! Properties over random inputs: 256 cases each by default, with shrinking; the seed is printed.

use crate::case::{Check, Fail, Measured};
use core::cell::{Cell, RefCell};
use proptest::{
    strategy::Strategy,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner},
};

/// Cases of each property.
pub const CASES: u32 = 256;

std::thread_local! {
    /// True if this thread tests only for gross faults, see [`crate::Case::run_briefly`].
    static BRIEF: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if cases should use few inputs.
pub fn is_brief() -> bool {
    BRIEF.get()
}

/// Returns true if casts are tested only where their results change, and not on all 2^32 inputs: in brief cases, in
/// builds without optimisation, and with `GRADSCALE_CASTS=sparse`.
pub fn is_sparse() -> bool {
    is_brief() || cfg!(debug_assertions) || std::env::var("GRADSCALE_CASTS").is_ok_and(|value| value == "sparse")
}

/// Cases of each property: few in brief cases, else `GRADSCALE_INPUTS`, or [`CASES`].
///
/// # Panics
/// If that is no number, or 0: a run that tried nothing must not look green.
fn cases() -> u32 {
    let wanted = |text: String| text.parse().ok().filter(|&cases: &u32| cases > 0);
    if is_brief() {
        return 16;
    }
    match std::env::var("GRADSCALE_INPUTS") {
        Ok(text) => wanted(text).expect("GRADSCALE_INPUTS is a number of inputs, at least 1"),
        Err(_) => CASES,
    }
}

/// Runs `work` with few inputs.
pub fn briefly<T>(work: impl FnOnce() -> T) -> T {
    BRIEF.set(true);
    let result = work();
    BRIEF.set(false);
    result
}

/// The seed of this run: `GRADSCALE_SEED`, or the time.
#[must_use]
pub fn seed() -> u64 {
    use std::{env, sync::OnceLock, time::SystemTime};
    // One for all properties of a process, so that one number repeats the run.
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| {
        let given = env::var("GRADSCALE_SEED").ok().and_then(|text| text.parse().ok());
        // In a browser the standard library has no clock.
        let has_clock = !cfg!(all(target_family = "wasm", target_os = "unknown"));
        let time = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok().map(|time| time.as_secs());
        given.or_else(|| has_clock.then(time).flatten()).unwrap_or(1)
    })
}

/// Checks a property for [`CASES`] random values (or `GRADSCALE_INPUTS` of them), and for the smallest that fails, if one does.
///
/// # Errors
/// That value, with the seed; or the device does not support it.
pub fn property<S: Strategy>(strategy: &S, test: impl Fn(S::Value) -> Check) -> Check {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed().to_le_bytes());
    let (cases, max_shrink_iters) = (cases(), if is_brief() { 0 } else { 500 });
    let config = Config { cases, failure_persistence: None, max_shrink_iters, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let (measured, unsupported) = (RefCell::new(Vec::<Measured>::new()), RefCell::new(None));
    let outcome = runner.run(strategy, |value| match test(value) {
        Ok(seen) => {
            merge(&mut measured.borrow_mut(), &seen);
            Ok(())
        }
        Err(Fail::Unsupported(why)) => {
            *unsupported.borrow_mut() = Some(why.clone());
            Err(TestCaseError::fail(why))
        }
        Err(Fail::Failed(why)) => Err(TestCaseError::fail(why)),
    });
    if let Some(why) = unsupported.into_inner() {
        return Err(Fail::Unsupported(why));
    }
    match outcome {
        Ok(()) => Ok(measured.into_inner()),
        Err(TestError::Fail(why, value)) => {
            Err(Fail::new(format!("{why}\n  smallest input: {value:?}\n  again with GRADSCALE_SEED={}", seed())))
        }
        Err(TestError::Abort(why)) => Err(Fail::new(format!("gave up: {why}"))),
    }
}

/// Keeps the worst of each entry.
pub fn merge(all: &mut Vec<Measured>, seen: &[Measured]) {
    for new in seen {
        match all.iter_mut().find(|old| old.entry == new.entry) {
            Some(old) => old.worst = old.worst.max(new.worst),
            None => all.push(*new),
        }
    }
}
