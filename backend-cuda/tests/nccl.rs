//! Ranks on emulated GPUs, by emulated NCCL.

mod emulated;
mod grad_reduce;

use emulated::Emulated;
use gradscale::{
    Method, Parameters, Trainer,
    distributed::{GradTransport, Group, Threads},
    gradscale_core::backend::Backend,
    nn::Linear,
    optim::Sgd,
};
use gradscale_cuda::Cuda;
use std::thread;

/// How four devices are opened, of unlike numbers of multiprocessors; none without a C++ compiler.
fn devices() -> Option<Vec<impl Fn() -> Cuda + Sync>> {
    let added: Result<Vec<_>, _> =
        [2, 3, 1, 2].map(|multiprocessors| Emulated::new(80, multiprocessors)).into_iter().collect();
    match added {
        Ok(all) => {
            emulated::load_nccl();
            Some(all.into_iter().map(|device| move || device.open().expect("a device")).collect())
        }
        Err(reason) => {
            println!("SKIPPED: {reason}");
            None
        }
    }
}

#[test]
fn sums_of_ranks_are_exact() {
    let Some(devices) = devices() else { return };
    for ranks in [1, 2, 3, 4] {
        grad_reduce::sums_are_exact(&devices[..ranks]);
    }
}

#[test]
fn trainings_by_nccl_are_those_of_one_rank() {
    // Devices of other names are refused.
    let Ok(all) =
        [2; 4].map(|multiprocessors| Emulated::new(80, multiprocessors)).into_iter().collect::<Result<Vec<_>, _>>()
    else {
        return;
    };
    emulated::load_nccl();
    let devices: Vec<_> = all.into_iter().map(|device| move || device.open().expect("a device")).collect();
    grad_reduce::trainings_are_the_same(&devices, &[1, 2, 4]);
}

/// NCCL refuses that two ranks share a GPU; their gradients go through the host's memory then, and both know why.
#[test]
fn two_ranks_of_one_gpu_go_through_the_host() {
    let Some(devices) = devices() else { return };
    let rank = |threads: Threads| {
        let mut parameters = Parameters::seeded(0);
        Linear::new(&mut parameters.at("net"), 2, 2);
        let trainer = Trainer::new(devices[0](), parameters, Sgd::new(0.5), Method::mixed()).expect("a trainer");
        trainer.join_group(Group::new(threads)).expect("ranks").grad_transport().clone()
    };
    let routes: Vec<GradTransport> = thread::scope(|scope| {
        let all: Vec<_> = Threads::world(2).into_iter().map(|threads| scope.spawn(|| rank(threads))).collect();
        all.into_iter().map(|one| one.join().expect("a rank")).collect()
    });
    for route in routes {
        let GradTransport::Host(Some(why)) = route else { panic!("{route:?}") };
        assert_eq!(why, "rank 0: NCCL failed to join other GPUs: invalid usage: Duplicate GPU detected");
    }
    assert_eq!(devices[0]().without_nccl().collective_backend(), None);
}
