//! Tool for a new GPU: it tests the kernels, and compiles machine code ahead of time.
//!
//! ```sh
//! gradscale-cuda prove                  each kernel that one architecture alone has, on the first GPU, a line each, in
//!                                       a process of its own: one that hangs or kills the device says nothing about
//!                                       the next; exit status 1 if one is not right
//! gradscale-cuda prove NAME             one of them
//! gradscale-cuda cubins FOLDER [ARCH…]  machine code of all kernels, for architectures such as 90 or for all that the
//!                                       compiler knows, into a folder: `cubins` beside a program is found by it
//! gradscale-cuda sources FOLDER ARCH    the text of each module as it is compiled, with the options in its first line
//! ```
//!
//! `GRADSCALE_PROVE_SECONDS` is the time limit of one test (60).

use gradscale_cuda::{Cuda, build_all, kernels, nvrtc};
use std::{
    fs,
    io::Read,
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

const USAGE: &str = "usage: gradscale-cuda prove [NAME] | gradscale-cuda cubins FOLDER [ARCH ...] | gradscale-cuda \
                     sources FOLDER ARCH";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["prove"] => prove_all(),
        ["prove", name] => {
            Cuda::open(0).map_err(|error| error.to_string()).and_then(|device| device.self_test_module(name))
        }
        ["cubins", folder, ref archs @ ..] => cubins(Path::new(folder), archs),
        ["sources", folder, arch] => sources(Path::new(folder), arch),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            println!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn cubins(folder: &Path, archs: &[&str]) -> Result<(), String> {
    let archs: Result<Vec<u32>, _> =
        archs.iter().map(|arch| arch.parse().map_err(|_| format!("{arch}: such as 90"))).collect();
    let count = build_all(folder, &archs?)?;
    println!("{count} modules in {}", folder.display());
    Ok(())
}

fn sources(folder: &Path, arch: &str) -> Result<(), String> {
    let arch: u32 = arch.parse().map_err(|_| format!("{arch}: such as 90"))?;
    let options = nvrtc::options(arch).join(" ");
    for module in kernels::all_kernels()
        .map(|kernel| kernel.module)
        .filter(|module| (module.arch[0]..=module.arch[1]).contains(&arch))
    {
        let path = folder.join(format!("{}.cu", module.name));
        let text = format!("// {options}\n{}", module.source(kernels::PTX));
        let written = fs::create_dir_all(folder).and_then(|()| fs::write(&path, text));
        written.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn prove_all() -> Result<(), String> {
    let modules = Cuda::open(0).map_err(|error| error.to_string())?.self_test_names();
    let given = std::env::var("GRADSCALE_PROVE_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let limit = Duration::from_secs(given.unwrap_or(60));
    let mut wrong = 0;
    for module in &modules {
        let verdict = prove_in_process(module, limit);
        wrong += usize::from(verdict.is_err());
        println!("{module}: {}", verdict.err().unwrap_or_else(|| "right".into()));
    }
    let summary = format!("{} self-tests of modules for this architecture alone, {wrong} not right", modules.len());
    if wrong == 0 {
        println!("{summary}");
        Ok(())
    } else {
        Err(summary)
    }
}

/// Runs a module's self-test in another process with a time limit.
fn prove_in_process(module: &str, limit: Duration) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    let mut child =
        command.args(["prove", module]).stdout(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
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
        // Output that cannot be read is ignored.
        output.read_to_string(&mut text).ok();
    }
    text.trim().into()
}
