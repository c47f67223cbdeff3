//! Launches on a device.

use super::memory::Memory;
use crate::compile::{Launch, Operation, Target};
use gradscale_core::{
    backend::{Backend, CrossEntropyArgs, Done, Launch as DeviceLaunch, NormSaved, Store},
    scaled::Scaled,
};
use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

/// Waits for what [`Backend::read`] and [`Backend::collect`] return. Native devices are ready at the first poll.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
        std::thread::yield_now();
    }
}

/// Enqueues one launch.
pub(super) fn run<B: Backend>(device: &B, table: &B::Table, memory: &mut Memory<B>, launch: &Launch) -> Done<B> {
    let mut ys: Vec<B::Buffer> = launch.targets.iter().map(|target| memory.take(target.y)).collect();
    let mut written = launch.writes.map(|buf| memory.take(buf));
    let result = dispatch(device, table, memory, launch, &mut ys, written.as_mut());
    for (target, y) in launch.targets.iter().zip(ys) {
        memory.put(target.y, y);
    }
    if let (Some(buf), Some(buffer)) = (launch.writes, written) {
        memory.put(buf, buffer);
    }
    result
}

fn dispatch<B: Backend>(
    device: &B, table: &B::Table, memory: &Memory<B>, launch: &Launch, ys: &mut [B::Buffer],
    written: Option<&mut B::Buffer>,
) -> Done<B> {
    let read = |i: usize| launch.reads.get(i).copied().flatten().map(|buf| memory.get(buf));
    let need = |i: usize| read(i).expect("operators are compiled with all of their operands");
    let mut stores = ys.iter_mut().zip(&launch.targets).map(|(y, target)| store(y, table, target));
    let mut next = || stores.next().expect("operators are compiled with all of their destinations");
    let device_launch = match &launch.operation {
        Operation::Unary(op) => DeviceLaunch::Unary { op: *op, x: need(0), y: next() },
        Operation::Binary(p) => DeviceLaunch::Binary { p: *p, a: need(0), b: need(1), y: next() },
        Operation::Sum(slots) => {
            let terms: Vec<_> = slots.iter().enumerate().map(|(i, &slot)| Scaled::new(need(i), slot)).collect();
            return device.launch(DeviceLaunch::Sum { terms: &terms, y: next() });
        }
        Operation::Reduce(p) => DeviceLaunch::Reduce { p: *p, x: need(0), y: next() },
        Operation::Copy(p) => DeviceLaunch::Copy { p: p.clone(), x: need(0), y: next() },
        Operation::Gemm(p) => DeviceLaunch::Gemm { p: *p, a: need(0), b: need(1), bias: read(2), y: next() },
        Operation::Conv(p, pass) => {
            DeviceLaunch::Conv { p: *p, pass: *pass, a: need(0), b: need(1), bias: read(2), y: next() }
        }
        Operation::Pool(p) => DeviceLaunch::Pool { p: *p, x: need(0), indices: written, y: next() },
        Operation::Unpool(p, way) => DeviceLaunch::Unpool { p: *p, way: *way, x: need(0), indices: read(1), y: next() },
        Operation::Rows(p, way) => DeviceLaunch::Rows { p: *p, way: *way, x: need(0), indices: need(1), y: next() },
        Operation::Norm(p) => {
            let saved = written.expect("a normalisation has statistics");
            let affine = read(1).zip(read(2)).map(|(weight, bias)| [weight, bias]);
            DeviceLaunch::Norm { p: *p, x: need(0), affine, saved, y: next() }
        }
        Operation::NormVjp(p) => {
            let x = NormSaved { x: need(0), saved: need(1), weight: read(2) };
            let (dx, weight, bias) = (next(), next(), next());
            DeviceLaunch::NormVjp { p: *p, x, dy: need(3), dx, affine: Some([weight, bias]) }
        }
        Operation::Xent(p) => {
            let x = CrossEntropyArgs { logits: need(0), labels: need(1), weights: read(2) };
            DeviceLaunch::CrossEntropy { p: *p, x, out: written.expect("a loss is written") }
        }
        Operation::XentVjp(p) => {
            let x = CrossEntropyArgs { logits: need(0), labels: need(1), weights: read(2) };
            DeviceLaunch::CrossEntropyVjp { p: *p, x, out: need(3), g: need(4), dx: next() }
        }
    };
    device.launch(device_launch)
}

fn store<'a, B: Backend>(y: &'a mut B::Buffer, table: &'a B::Table, target: &Target) -> Store<'a, B> {
    let Target { from, to, detail, add, .. } = *target;
    Store { y, table, from, to, detail, add }
}
