//! Proves the kernels that one architecture alone has on the first GPU, each in a process of its own: one that hangs or
//! kills the device says nothing about the next.
//!
//! ```sh
//! gradscale-cuda-prove        all of them, a line each; exit status 1 if one is not right
//! gradscale-cuda-prove NAME   one
//! ```
//!
//! `GRADSCALE_PROVE_SECONDS` is how long one may take (60).

use gradscale_cuda::Cuda;
use std::{
    io::Read,
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

fn main() -> ExitCode {
    let device = match Cuda::open(0) {
        Ok(device) => device,
        Err(error) => {
            println!("no device: {error}");
            return ExitCode::FAILURE;
        }
    };
    match std::env::args().nth(1) {
        Some(name) => match device.prove_module(&name) {
            Ok(()) => ExitCode::SUCCESS,
            Err(reason) => {
                println!("{reason}");
                ExitCode::FAILURE
            }
        },
        None => {
            let modules = device.own_modules();
            // The children have it to themselves.
            drop(device);
            all(&modules)
        }
    }
}

fn all(modules: &[&str]) -> ExitCode {
    let given = std::env::var("GRADSCALE_PROVE_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let limit = Duration::from_secs(given.unwrap_or(60));
    let mut wrong = 0;
    for module in modules {
        let verdict = one(module, limit);
        wrong += usize::from(verdict.is_err());
        println!("{module}: {}", verdict.err().unwrap_or_else(|| "right".into()));
    }
    println!("{} modules for this architecture alone, {wrong} not right", modules.len());
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Proves a module in another process, which may take so long.
fn one(module: &str, limit: Duration) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    let mut child = command.arg(module).stdout(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
    let until = Instant::now() + limit;
    loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("{} ({status})", said(&mut child))),
            None if Instant::now() > until => {
                child.kill().and_then(|()| child.wait()).map_err(|error| error.to_string())?;
                return Err(format!("hangs: nothing after {} s", limit.as_secs()));
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn said(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(output) = &mut child.stdout {
        // What cannot be read was not said.
        output.read_to_string(&mut text).ok();
    }
    text.trim().into()
}
