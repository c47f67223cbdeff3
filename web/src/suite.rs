//! The conformance suite on the browser's device, run case by case.
//!
//! Cases are written for a device that answers at once. Here the whole stack of a case is suspended until the device
//! has answered, by JavaScript Promise Integration, which Chromium has. Only tests use it.

use gradscale::{Adapter, Wgpu, WgpuError, adapters_async, gradscale_core::backend::Backend};
use gradscale_conformance::{Outcome, TOLERANCES, drive_by, suite};
use serde_json::json;
use std::{
    cell::RefCell,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};
use wasm_bindgen::prelude::wasm_bindgen;

/// Feature that a browser's device must support besides all operators, so that the suite does not skip it: recordings.
const REQUIRED: &str = "record";

#[link(wasm_import_module = "./waiting.js")]
unsafe extern "C" {
    /// Suspends the caller until [`gs_woken`] is called. Returns at once if that has happened since the last wait.
    safe fn gs_wait();
    safe fn gs_woken();
}

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = console)]
    fn error(text: &str);
}

thread_local! {
    static DEVICE: RefCell<Option<Arc<Wgpu>>> = const { RefCell::new(None) };
    static OUTCOME: RefCell<String> = const { RefCell::new(String::new()) };
}

struct Awake;

impl Wake for Awake {
    fn wake(self: Arc<Self>) {
        gs_woken();
    }
}

fn drive(mut future: Pin<&mut dyn Future<Output = ()>>) {
    let waker = Waker::from(Arc::new(Awake));
    while future.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Pending {
        gs_wait();
    }
}

/// Opens the device, and returns its name, the names of the cases and the tolerance table, as JSON.
#[wasm_bindgen]
pub async fn conformance_open() -> Result<String, String> {
    std::panic::set_hook(Box::new(|panic| error(&format!("panicked: {panic}"))));
    drive_by(drive);
    let opened = async {
        let adapters = adapters_async().await;
        let adapter: &Adapter = adapters.first().ok_or(WgpuError::NoAdapter { index: 0, found: Vec::new() })?;
        Wgpu::open_async(adapter, true).await
    };
    let device = opened.await.map_err(|error| error.to_string())?;
    let name = device.caps().name.to_owned();
    DEVICE.set(Some(Arc::new(device)));
    let cases: Vec<String> = suite::<Wgpu>().into_iter().map(|case| case.name).collect();
    let required: Vec<&str> = gradscale_conformance::OPERATORS.iter().copied().chain([REQUIRED]).collect();
    let rows: Vec<_> = TOLERANCES.iter().map(|row| json!([row.entry, row.measured, row.bound])).collect();
    Ok(json!({ "device": name, "cases": cases, "required": required, "tolerances": rows }).to_string())
}

/// Runs a case, with fewer inputs if `brief` is set. It may only be called through `WebAssembly.promising`.
#[unsafe(no_mangle)]
pub extern "C" fn gs_conformance_run(case: usize, brief: bool) {
    let Some(device) = DEVICE.with_borrow(Clone::clone) else { return };
    let outcome = suite::<Wgpu>()
        .into_iter()
        .nth(case)
        .map(|case| if brief { case.run_briefly(&device) } else { case.run(&device) });
    OUTCOME.set(
        match outcome {
            Some(Outcome::Passed(seen)) => {
                let seen: Vec<_> = seen.iter().map(|one| json!([one.entry, one.worst])).collect();
                json!({ "said": "passed", "measured": seen })
            }
            Some(Outcome::Unsupported(why)) => json!({ "said": "unsupported", "why": why }),
            Some(Outcome::Failed(why)) => json!({ "said": "failed", "why": why }),
            None => json!({ "said": "failed", "why": "there is no case of that number" }),
        }
        .to_string(),
    );
}

/// Returns the outcome of the last case as JSON.
#[wasm_bindgen]
pub fn conformance_outcome() -> String {
    OUTCOME.with_borrow(Clone::clone)
}
