//! Steps in parts, of one rank; several are tested by `scripts/mpi.sh`.

use std::{fs, path::Path, process::Command};

/// Returns the exit code of the program and its standard error.
fn gradscale(at: &Path, arguments: &str, environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradscale"));
    command.args(arguments.split(' ')).envs(environment.iter().copied()).current_dir(at);
    let output = command.output().expect("the program starts");
    (output.status.code(), String::from_utf8(output.stderr).expect("text"))
}

const TRAIN: &str = "train --width 4 --batch 4 --threads 1 --checkpoint-every 2";

#[test]
fn a_step_in_parts_is_resumed_in_parts() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let run = |arguments: &str| {
        let (code, said) = gradscale(at, arguments, &[]);
        assert_eq!(code, Some(0), "{said}");
    };
    run(&format!("{TRAIN} --micro-batches 4 --iters 4 --out whole"));
    run(&format!("{TRAIN} --micro-batches 4 --iters 2 --out begun"));
    run("train --resume begun --iters 4");
    run(&format!("{TRAIN} --micro-batches 2 --iters 4 --out other"));
    let last = |name: &str| fs::read(at.join(name).join("checkpoint-000004.safetensors")).expect("a checkpoint");
    assert!(last("whole") == last("begun"), "resumed");
    assert!(last("whole") != last("other"), "other parts are another training");
}

#[test]
fn parts_that_cannot_be_are_refused_in_a_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let refused = |arguments: &str, environment: &[(&str, &str)], line: &str| {
        let (code, said) = gradscale(directory.path(), arguments, environment);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.lines().count() == 1 && said.contains(line), "{said}");
    };
    refused(&format!("{TRAIN} --micro-batches 3"), &[], "--micro-batches 3: a batch of 4 is not divisible by that");
    refused(&format!("{TRAIN} --micro-batches 0"), &[], "--micro-batches");
    refused("train --task generate --batch 4 --micro-batches 2", &[], "a step of this network cannot be split");
    let world = "--batch-norm world: needs one micro-batch for each of 1 ranks, not 2";
    refused(&format!("{TRAIN} --micro-batches 2 --batch-norm world"), &[], world);
    refused(&format!("{TRAIN} --batch-norm all"), &[], "all is not a scope of batch norm; choose rank or world");
    let overlap = "0 is not an overlap; choose on, off or the number of weights in a bucket";
    refused(&format!("{TRAIN} --overlap 0"), &[], overlap);
    if cfg!(not(feature = "mpi")) {
        let launched = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")];
        refused(TRAIN, &launched, "MPI: 4 ranks were started, but this program was built without MPI");
    }
    assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 0, "nothing was written");
}
