//! The ranks that a training was started with: one alone, or those of `mpirun`.

use crate::{Failure, output};
use gradscale::parallel::Group;
use std::{env, fs, path::Path, process::ExitCode};

/// What launchers of MPI tell a process of the number of ranks: Open MPI, MPICH and its kin, Slurm.
const SIZES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"];
/// What only a process has that a launcher has started: Slurm's number of tasks stands in a batch script, too.
const RANKS: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"];

/// How many ranks a launcher has started, if it has.
fn launched() -> Option<usize> {
    RANKS.iter().find_map(env::var_os)?;
    let sizes = SIZES.iter().filter_map(|name| env::var(name).ok()?.parse().ok());
    sizes.max()
}

/// Those that this process is one of.
///
/// # Errors
/// MPI cannot be begun, or this program was built without it.
pub(crate) fn join() -> Result<Group, Failure> {
    let Some(size) = launched() else { return Ok(Group::alone()) };
    #[cfg(feature = "mpi")]
    if size > 1 {
        let world = gradscale::parallel::Mpi::world().map_err(|error| Failure::at("MPI", error))?;
        let found = gradscale::parallel::Communicator::size(&world);
        if found != size {
            let cause = format!("{size} ranks were started, and MPI finds {found}; is it that of the launcher?");
            return Err(Failure::at("MPI", cause));
        }
        return Ok(Group::new(world));
    }
    #[cfg(not(feature = "mpi"))]
    if size > 1 {
        let cause = format!("{size} ranks, and this program was built without it: cargo build --features mpi");
        return Err(Failure::at("MPI", cause));
    }
    Ok(Group::alone())
}

/// The end of all ranks: a failure is one line, of the first rank if that is within reach.
///
/// # Errors
/// What this rank is to say.
pub(crate) fn end(group: &Group, done: Result<ExitCode, Failure>) -> Result<ExitCode, Failure> {
    let done = match done {
        Ok(code) => group.finish().map(|()| code).map_err(Failure::from),
        Err(error) => Err(error),
    };
    let Err(error) = done else { return done };
    if !group.fail(&error.to_string()) {
        return Err(error);
    }
    if group.rank() == 0 {
        output::warn(&error);
    }
    // A launcher ends all others as soon as one has ended with an error: not before it is said.
    group.finish().ok();
    Ok(ExitCode::from(2))
}

/// What files in a directory, or a file, look like from here: a number of names, sizes and first bytes, the same on
/// machines with the same data.
///
/// # Errors
/// Files that cannot be read.
pub(crate) fn digest(path: &Path) -> Result<u32, Failure> {
    let failed = |error| Failure::file(path, error);
    let about = fs::metadata(path).map_err(failed)?;
    if about.is_file() {
        let mut first = Vec::new();
        std::io::Read::read_to_end(&mut std::io::Read::take(fs::File::open(path).map_err(failed)?, 4096), &mut first)
            .map_err(failed)?;
        return Ok(crc32c::crc32c_append(crc32c::crc32c(&about.len().to_le_bytes()), &first));
    }
    let entries: Result<Vec<_>, _> = fs::read_dir(path).map_err(failed)?.map(|entry| Ok(entry?.path())).collect();
    let mut entries = entries.map_err(failed)?;
    entries.sort();
    entries.iter().try_fold(0, |sum, entry| {
        let sum = crc32c::crc32c_append(sum, entry.file_name().unwrap_or_default().as_encoded_bytes());
        Ok(crc32c::crc32c_append(sum, &digest(entry)?.to_le_bytes()))
    })
}
