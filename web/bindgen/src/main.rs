//! Generates the JavaScript bindings of a WebAssembly module with WebGPU, in the folder of the module.
//!
//! `wasm-bindgen` reads only modules of exactly its own version. As a library in this workspace it has that version, so
//! nothing needs to be installed.

use std::{env, process::ExitCode};
use wasm_bindgen_cli_support::Bindgen;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [module, folder] = &arguments[..] else {
        eprintln!("usage: gradscale-web-bindgen MODULE.wasm FOLDER");
        return ExitCode::from(2);
    };
    let written = Bindgen::new()
        .input_path(module)
        .typescript(false)
        .omit_default_module_path(false)
        .web(true)
        .and_then(|all| all.generate(folder));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{module}: {error:#}");
            ExitCode::from(2)
        }
    }
}
