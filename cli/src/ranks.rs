//! Ranks of a training: a single one, or those that `mpirun` started.

use crate::{Failure, output};
use gradscale::distributed::Group;
use std::{env, fs, io::Read, path::Path, process::ExitCode, thread::sleep, time::Duration};

/// Number of bytes that are read at a time.
const BLOCK: usize = 1 << 20;
/// Time that the other ranks wait for the rank that prints a message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(1);

/// Environment variables with the number of ranks: Open MPI, MPICH and derivatives, Slurm.
const SIZES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"];
/// Environment variables that only a launched process has. Slurm sets the number of tasks in batch scripts, too.
const RANKS: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"];

/// Returns the number of ranks that a launcher has started, if one has.
fn launched() -> Option<usize> {
    RANKS.iter().find_map(env::var_os)?;
    let sizes = SIZES.iter().filter_map(|name| env::var(name).ok()?.parse().ok());
    sizes.max()
}

/// Environment variables with the number of a process on its machine: Open MPI, MPICH and its kin, Slurm.
#[cfg(feature = "cuda")]
const LOCAL: [&str; 4] = ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "SLURM_LOCALID"];

/// Returns the GPU of this rank: the ranks of a machine take its GPUs in turn, the first the one that was named.
#[cfg(feature = "cuda")]
pub(crate) fn gpu(named: usize, count: usize) -> usize {
    let local = LOCAL.iter().find_map(|name| env::var(name).ok()?.parse().ok());
    let local = local.filter(|_| launched().is_some_and(|size| size > 1)).unwrap_or(0);
    in_turn(named, local, count)
}

#[cfg(feature = "cuda")]
const fn in_turn(named: usize, local: usize, count: usize) -> usize {
    // An index without a device is kept, so that the error names it.
    if named < count { (named + local) % count } else { named }
}

/// Joins the group of ranks of this process; each waits up to `limit` seconds for the others.
///
/// # Errors
/// MPI cannot be begun, or this program was built without it.
pub(crate) fn join(limit: u64) -> Result<Group, Failure> {
    let Some(size) = launched() else { return Ok(Group::single_rank()) };
    #[cfg(feature = "mpi")]
    if size > 1 {
        let world = gradscale::distributed::Mpi::world().map_err(|error| Failure::at("MPI", error))?;
        let found = gradscale::distributed::Communicator::size(&world);
        if found != size {
            let cause = format!(
                "{size} ranks were started, but MPI finds {found}; use the launcher of the MPI that \
                this program is linked with"
            );
            return Err(Failure::at("MPI", cause));
        }
        let world = world.with_timeout(Duration::from_secs(limit));
        return Ok(Group::new(world));
    }
    #[cfg(not(feature = "mpi"))]
    if size > 1 {
        let _ = limit;
        let cause = format!(
            "{size} ranks were started, but this program was built without MPI; build it with \
            --features mpi"
        );
        return Err(Failure::at("MPI", cause));
    }
    Ok(Group::single_rank())
}

/// Ends all ranks. A failure is printed as one line, by the first rank if that can be reached.
///
/// # Errors
/// The failure that this rank has to print.
pub(crate) fn end(group: &Group, done: Result<ExitCode, Failure>) -> Result<ExitCode, Failure> {
    let done = match done {
        Ok(code) => group.finish().map(|()| code).map_err(Failure::from),
        Err(error) => Err(error),
    };
    let Err(error) = done else { return done };
    if group.error_reporter_rank().is_some_and(|speaker| speaker != group.rank()) {
        // All waiting ranks time out at once, so only one reports it.
        sleep(MESSAGE_TIMEOUT);
        return Ok(ExitCode::from(2));
    }
    if !group.abort(&error.to_string()) {
        return Err(error);
    }
    if group.rank() == 0 {
        output::warn(&error);
    }
    // A launcher ends all other ranks as soon as one has ended with an error, so this waits until the error is printed.
    group.finish().ok();
    Ok(ExitCode::from(2))
}

/// Returns a checksum of a file, or of names, sizes and contents of all files in a directory. It is equal on machines
/// with equal data. Each byte is read once.
///
/// # Errors
/// Files that cannot be read.
pub(crate) fn digest(path: &Path) -> Result<u32, Failure> {
    let failed = |error| Failure::file(path, error);
    let about = fs::metadata(path).map_err(failed)?;
    if about.is_file() {
        let mut file = fs::File::open(path).map_err(failed)?;
        let (mut sum, mut block) = (crc32c::crc32c(&about.len().to_le_bytes()), vec![0; BLOCK]);
        loop {
            match file.read(&mut block).map_err(failed)? {
                0 => return Ok(sum),
                count => sum = crc32c::crc32c_append(sum, &block[..count]),
            }
        }
    }
    let entries: Result<Vec<_>, _> = fs::read_dir(path).map_err(failed)?.map(|entry| Ok(entry?.path())).collect();
    let mut entries = entries.map_err(failed)?;
    entries.sort();
    entries.iter().try_fold(0, |sum, entry| {
        let sum = crc32c::crc32c_append(sum, entry.file_name().unwrap_or_default().as_encoded_bytes());
        Ok(crc32c::crc32c_append(sum, &digest(entry)?.to_le_bytes()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "cuda")]
    #[test]
    fn ranks_of_a_machine_take_its_gpus_in_turn() {
        let of = |named, count| [0, 1, 2, 3].map(|local| in_turn(named, local, count));
        assert_eq!(of(0, 4), [0, 1, 2, 3]);
        assert_eq!(of(2, 4), [2, 3, 0, 1]);
        assert_eq!(of(0, 1), [0; 4]);
        assert_eq!(of(7, 4), [7; 4]);
    }

    #[test]
    fn every_byte_and_name_counts() {
        let directory = tempfile::tempdir().expect("a directory");
        let (at, write) = (directory.path(), |name: &str, bytes: &[u8]| {
            fs::write(directory.path().join(name), bytes).expect("a file");
        });
        let mut content = vec![7; 3 * BLOCK];
        write("one", &content);
        let mut seen = vec![digest(at).expect("a digest")];
        content[BLOCK + 12_345] ^= 1;
        write("one", &content);
        seen.push(digest(at).expect("a digest"));
        write("two", b"");
        seen.push(digest(at).expect("a digest"));
        fs::rename(at.join("two"), at.join("three")).expect("a file");
        seen.push(digest(at).expect("a digest"));
        fs::create_dir(at.join("four")).expect("a directory");
        seen.push(digest(at).expect("a digest"));
        assert_eq!(digest(at).ok(), seen.last().copied());
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 5);
        let missing = digest(&at.join("five")).expect_err("no file").to_string();
        assert!(missing.contains("five: "), "{missing}");
    }
}
