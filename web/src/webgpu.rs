//! Functions that a web worker calls for a training on WebGPU: they take a question and return a promise of an answer.

use crate::{
    message::{Answer, Request},
    training::Training,
};
use gradscale::{Wgpu, WgpuError, adapters_async};
use std::cell::RefCell;
use wasm_bindgen::prelude::wasm_bindgen;

thread_local! {
    /// Training of this worker. It is taken out while a request is processed; the worker sends one request at a time.
    static TRAINING: RefCell<Option<Training<Wgpu>>> = const { RefCell::new(None) };
}

/// Answers a request of the page by a training on WebGPU; request and answer are JSON.
#[wasm_bindgen]
pub async fn ask(question: String) -> String {
    let answer = answered(&question).await;
    crate::message::text(&answer.unwrap_or_else(|error| Answer::Error { why: error.to_string() }))
}

async fn answered(question: &str) -> Result<Answer, Box<dyn std::error::Error>> {
    let request: Request = serde_json::from_str(question)?;
    if let Request::Open { method, seed, magnitude, broken } = &request {
        let adapters = adapters_async().await;
        let adapter = adapters.first().ok_or(WgpuError::NoAdapter { index: 0, found: Vec::new() })?;
        let device = Wgpu::open_async(adapter, false).await?;
        let opened = Training::open(device, method, *seed, *magnitude)?.with_broken_image(*broken);
        let device = opened.device();
        TRAINING.set(Some(opened));
        return Ok(Answer::Ready { device });
    }
    let mut training = TRAINING.take().ok_or("no training is open")?;
    let answer = training.answer(request).await;
    TRAINING.set(Some(training));
    answer
}
