//! Origin of a result: program version and machine.

use crate::parallel;
use serde::Serialize;
use std::fs;

/// Origin of results: version and commit of the program, and the machine.
#[derive(Clone, Debug, Serialize)]
pub struct Origin {
    /// Version of the gradscale program.
    pub version: &'static str,
    /// Git commit that the program was built from.
    pub commit: &'static str,
    /// Description of the machine: processor, cores, system.
    pub machine: String,
}

impl Origin {
    /// Describes the running program and this machine.
    pub fn here() -> Self {
        let model = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            line.split_once(':').map(|(_, name)| name.trim().to_owned())
        });
        let cores = parallel::cores();
        let model = model.unwrap_or_else(|| std::env::consts::ARCH.to_owned());
        let machine = format!("{model}, {cores} cores, {}", std::env::consts::OS);
        Self { version: env!("CARGO_PKG_VERSION"), commit: env!("GRADSCALE_COMMIT"), machine }
    }
}
