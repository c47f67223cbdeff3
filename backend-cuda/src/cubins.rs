//! Machine code of kernels that was compiled earlier: ahead of time, by [`build_all`], or by an earlier process.
//!
//! A file is named after its module, its architecture, and a hash of text and options. It contains a hash of its
//! content, so that a partial file is detected.

use crate::{Error, gpu::nvrtc, kernels};
use std::{
    collections::BTreeMap,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// First bytes of every file, before the hash of the rest.
const HEAD: &[u8] = b"gradscale cubin 1\n";

/// Folders that are searched for machine code, and the folder that caches new code.
#[derive(Debug, Default)]
pub struct Cubins {
    folders: Vec<PathBuf>,
    keep: Option<PathBuf>,
    report: Mutex<CubinReport>,
}

/// Result of the search for machine code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CubinReport {
    /// Number of modules whose machine code was found, by folder.
    pub found: BTreeMap<PathBuf, usize>,
    /// Number of modules for which no machine code was found, so that NVRTC compiled them.
    pub compiled: usize,
    /// Files that were there and of no use, or could not be written, and why.
    pub ignored: Vec<String>,
}

impl Cubins {
    /// Creates settings by which every kernel is compiled and nothing is cached.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Creates settings by which code is searched in a folder, and cached there.
    #[must_use]
    pub fn at(folder: &Path) -> Self {
        Self { folders: vec![folder.into()], keep: Some(folder.into()), report: Mutex::default() }
    }

    /// Returns the default folders: `cubins` next to the program, if it exists; then the one that `GRADSCALE_CUBINS`
    /// names, or `gradscale/cubins` in the user's cache, which also caches new code. An empty `GRADSCALE_CUBINS`
    /// disables the cache.
    #[must_use]
    pub fn of_user() -> Self {
        let given = std::env::var_os("GRADSCALE_CUBINS").map(PathBuf::from);
        let cache = given.or_else(|| Some(dirs::cache_dir()?.join("gradscale/cubins")));
        let keep = cache.filter(|folder| !folder.as_os_str().is_empty());
        let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.join("cubins")));
        let beside = beside.filter(|folder| folder.is_dir());
        Self { folders: beside.into_iter().chain(keep.clone()).collect(), keep, report: Mutex::default() }
    }

    fn report_mut(&self) -> MutexGuard<'_, CubinReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the result of the search so far.
    pub(crate) fn report(&self) -> CubinReport {
        self.report_mut().clone()
    }

    /// Returns true if there is code for an architecture, which may then need no compiler.
    pub(crate) fn has_any(&self, arch: u32) -> bool {
        let of_it = format!("-sm_{arch}-");
        let is = |entry: io::Result<fs::DirEntry>| {
            entry.is_ok_and(|entry| entry.file_name().to_str().is_some_and(|name| name.contains(&of_it)))
        };
        self.folders.iter().any(|folder| fs::read_dir(folder).is_ok_and(|mut entries| entries.any(is)))
    }

    /// Loads a module for an architecture by `load`: finds its machine code, or compiles and stores it. If the stored
    /// code does not load, the module is compiled too.
    ///
    /// # Errors
    /// The compiler's, and of `load`.
    pub(crate) fn load<T>(
        &self, module: &kernels::Module, arch: u32, load: impl Fn(&[u8]) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let name = file_name(module, arch);
        for folder in &self.folders {
            let path = folder.join(&name);
            let loaded = match read(&path) {
                Ok(None) => continue,
                Ok(Some(code)) => load(&code).map_err(|error| error.to_string()),
                Err(why) => Err(why),
            };
            match loaded {
                Ok(loaded) => {
                    *self.report_mut().found.entry(folder.clone()).or_default() += 1;
                    return Ok(loaded);
                }
                Err(why) => self.report_mut().ignored.push(format!("{}: {why}", path.display())),
            }
        }
        let code = nvrtc::compile(module, arch)?.cubin;
        let loaded = load(&code)?;
        self.report_mut().compiled += 1;
        if let Some(folder) = &self.keep
            && let Err(error) = write(folder, &name, &code)
        {
            // Then it is compiled again next time.
            self.report_mut().ignored.push(format!("{}: {error}", folder.join(&name).display()));
        }
        Ok(loaded)
    }
}

/// Returns a hash of a value. It is the same in every process of one build of this crate. Another build may have
/// another hash, and then compiles the module again.
fn hash(what: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

fn file_name(module: &kernels::Module, arch: u32) -> String {
    let key = hash(&(module.source(kernels::PTX), nvrtc::options(arch)));
    format!("{}-sm_{arch}-{key:016x}.cubin", module.name)
}

/// Returns the machine code in a file, or `None` if there is no such file.
fn read(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let code = bytes.strip_prefix(HEAD).and_then(|rest| rest.split_first_chunk());
    match code {
        Some((sum, code)) if u64::from_le_bytes(*sum) == hash(code) => Ok(Some(code.to_vec())),
        _ => Err("damaged".into()),
    }
}

/// Writes a file as a whole or not at all, even if other processes write it at the same time.
fn write(folder: &Path, name: &str, code: &[u8]) -> io::Result<()> {
    static WRITTEN: AtomicUsize = AtomicUsize::new(0);
    fs::create_dir_all(folder)?;
    let part = folder.join(format!(".{name}.{}.{}", std::process::id(), WRITTEN.fetch_add(1, Relaxed)));
    let all = [HEAD, &hash(code).to_le_bytes(), code].concat();
    fs::write(&part, all).and_then(|()| fs::rename(&part, folder.join(name))).inspect_err(|_| {
        fs::remove_file(&part).ok();
    })
}

/// Compiles every kernel into a folder for the given architectures, for example `sm_80`, or for all that the compiler
/// and this crate support, on all processors. Returns how many of these files exist now. A file that exists and is
/// intact is not written again.
///
/// # Errors
/// The compiler's, or a sentence about the file that cannot be written.
pub fn build_all(folder: &Path, archs: &[u32]) -> Result<usize, String> {
    let known = nvrtc::architectures().map_err(|error| error.to_string())?;
    let archs: Vec<u32> = match archs {
        [] => known.into_iter().filter(|&arch| arch >= 75).collect(),
        given => given.to_vec(),
    };
    let mut modules: Vec<&kernels::Module> = kernels::all_kernels().map(|kernel| kernel.module).collect();
    modules.dedup_by_key(|module| module.name);
    let fits = |module: &&&kernels::Module, arch: u32| (module.arch[0]..=module.arch[1]).contains(&arch);
    let jobs: Vec<(&kernels::Module, u32)> = archs
        .iter()
        .flat_map(|&arch| modules.iter().filter(move |module| fits(module, arch)).map(move |&module| (module, arch)))
        .collect();
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    let one = |&(module, arch): &(&kernels::Module, u32)| {
        let name = file_name(module, arch);
        if let Ok(Some(_)) = read(&folder.join(&name)) {
            return Ok(());
        }
        let code = nvrtc::compile(module, arch).map_err(|error| error.to_string())?.cubin;
        write(folder, &name, &code).map_err(|error| format!("{}: {error}", folder.join(&name).display()))
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Relaxed)) {
                    if let Err(error) = one(job) {
                        *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                        next.store(jobs.len(), Relaxed);
                    }
                }
            });
        }
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(jobs.len()),
    }
}
