//! Launches on a device.

use super::memory::Memory;
use crate::compile::{Launch, Operation, Target};
use gradscale_core::{
    backend::{Backend, Done, Normed, Scored, Store},
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
    match &launch.operation {
        Operation::Unary(op) => device.unary(*op, need(0), next()),
        Operation::Binary(p) => device.binary(p, need(0), need(1), next()),
        Operation::Sum(slots) => {
            let terms: Vec<_> = slots.iter().enumerate().map(|(i, &slot)| Scaled::new(need(i), slot)).collect();
            device.sum(&terms, next())
        }
        Operation::Reduce(p) => device.reduce(p, need(0), next()),
        Operation::Copy(p) => device.copy(p, need(0), next()),
        Operation::Gemm(p) => device.gemm(p, need(0), need(1), read(2), next()),
        Operation::Conv(p, pass) => device.conv(p, *pass, need(0), need(1), read(2), next()),
        Operation::Pool(p) => device.pool(p, need(0), written, next()),
        Operation::Unpool(p, way) => device.unpool(p, *way, need(0), read(1), next()),
        Operation::Rows(p, way) => device.rows(p, *way, need(0), need(1), next()),
        Operation::Norm(p) => {
            let saved = written.expect("a normalisation has statistics");
            let affine = read(1).zip(read(2)).map(|(scale, shift)| [scale, shift]);
            device.norm(p, need(0), affine, saved, next())
        }
        Operation::NormVjp(p) => {
            let x = Normed { x: need(0), saved: need(1), scale: read(2) };
            let (dx, scale, shift) = (next(), next(), next());
            device.norm_vjp(p, x, need(3), dx, Some([scale, shift]))
        }
        Operation::Xent(p) => {
            let x = Scored { logits: need(0), labels: need(1), weights: read(2) };
            device.xent(p, x, written.expect("a loss is written"))
        }
        Operation::XentVjp(p) => {
            let x = Scored { logits: need(0), labels: need(1), weights: read(2) };
            device.xent_vjp(p, x, need(3), need(4), next())
        }
    }
}

fn store<'a, B: Backend>(y: &'a mut B::Buffer, table: &'a B::Table, target: &Target) -> Store<'a, B> {
    let Target { from, to, detail, add, .. } = *target;
    Store { y, table, from, to, detail, add }
}
