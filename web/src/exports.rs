//! Functions that a web worker calls: they take the bytes of a question and return the bytes of an answer.
//!
//! They need no binding generator, because a module without WebGPU exchanges only numbers and pointers.

use crate::{
    message::{Answer, Request},
    training::Training,
};
use gradscale::Cpu;
use pollster::block_on;
use std::cell::RefCell;

/// State of a web worker: its training, and the bytes of the current question and answer.
#[derive(Default)]
struct Worker {
    question: Vec<u8>,
    answer: Vec<u8>,
    training: Option<Training<Cpu>>,
}

thread_local! {
    static WORKER: RefCell<Worker> = RefCell::default();
}

/// Allocates memory for the bytes of a question, and returns its address.
#[unsafe(no_mangle)]
pub extern "C" fn gs_web_room(bytes: usize) -> *mut u8 {
    WORKER.with_borrow_mut(|worker| {
        worker.question = vec![0; bytes];
        worker.question.as_mut_ptr()
    })
}

/// Answers the question in the memory of [`gs_web_room`], and returns the length of the answer in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn gs_web_ask() -> usize {
    WORKER.with_borrow_mut(|worker| {
        let answer = answered(&worker.question, &mut worker.training);
        worker.answer = crate::message::text(&answer).into_bytes();
        worker.answer.len()
    })
}

/// Returns the address of the last answer, valid until the next question.
#[unsafe(no_mangle)]
pub extern "C" fn gs_web_answer() -> *const u8 {
    WORKER.with_borrow(|worker| worker.answer.as_ptr())
}

fn answered(question: &[u8], training: &mut Option<Training<Cpu>>) -> Answer {
    let answer = || -> Result<Answer, Box<dyn std::error::Error>> {
        let request: Request = serde_json::from_slice(question)?;
        if let Request::Open { method, seed, magnitude, broken } = &request {
            let opened = Training::open(Cpu::new(1)?, method, *seed, *magnitude)?.with_broken_image(*broken);
            let device = opened.device();
            *training = Some(opened);
            return Ok(Answer::Ready { device });
        }
        block_on(training.as_mut().ok_or("no training is open")?.answer(request))
    };
    let mut answer = answer;
    answer().unwrap_or_else(|error| Answer::Error { why: error.to_string() })
}
