//! `kernels.csv`: the assembler's figures of the last compilation of each kernel, with a checksum of the text.

use gradscale_cuda::{
    kernels::{Module, PTX},
    nvrtc,
};
use std::{fmt, fs, io, path::PathBuf};

const HEADER: &str = "module,kernel,arch,text,registers,shared,stack,spill_stores,spill_loads";

/// A kernel on an architecture.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub module: String,
    pub kernel: String,
    /// Compute capability.
    pub arch: u32,
    /// [`checksum`] of the compiled text.
    pub text: u32,
    /// Number of registers of a thread.
    pub registers: u32,
    /// Bytes that the kernel itself declares.
    pub shared: u32,
    pub stack: u32,
    pub spill_stores: u32,
    pub spill_loads: u32,
}

/// Returns source text without parts that the compiler ignores: comments, file names, blank lines and indentation.
///
/// A comment or the name of a file can therefore change without another compile of the kernel, because the machine code
/// stays the same.
fn code_of(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    for line in source.lines().filter(|line| !line.starts_with("#line ")) {
        let line = line.split_once("//").map_or(line, |(code, _comment)| code).trim();
        if !line.is_empty() {
            code.push_str(line);
            code.push('\n');
        }
    }
    code
}

/// Checksum of everything that decides the machine code: code of the module, compiler options, compiler version.
pub fn checksum(module: &Module, arch: u32) -> u32 {
    let mut sum = crc32c::crc32c(code_of(&module.source(PTX)).as_bytes());
    for option in nvrtc::options(arch) {
        sum = crc32c::crc32c_append(sum, option.as_bytes());
    }
    crc32c::crc32c_append(sum, b"NVRTC 13.0.88")
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { module, kernel, arch, text, registers, shared, stack, spill_stores, spill_loads } = self;
        write!(f, "{module},{kernel},{arch},{text:08x},{registers},{shared},{stack},{spill_stores},{spill_loads}")
    }
}

impl Entry {
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split(',').collect();
        let [module, kernel, arch, text, numbers @ ..] = fields.as_slice() else { return None };
        let numbers: Vec<u32> = numbers.iter().map(|number| number.parse().ok()).collect::<Option<_>>()?;
        let &[registers, shared, stack, spill_stores, spill_loads] = numbers.as_slice() else { return None };
        Some(Self {
            module: (*module).into(),
            kernel: (*kernel).into(),
            arch: arch.parse().ok()?,
            text: u32::from_str_radix(text, 16).ok()?,
            registers,
            shared,
            stack,
            spill_stores,
            spill_loads,
        })
    }
}

/// All entries of the record.
pub struct Record(Vec<Entry>);

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("kernels.csv")
}

impl Record {
    pub fn read() -> io::Result<Self> {
        let text = match fs::read_to_string(path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        let bad = |line: &str| io::Error::other(format!("no entry: {line}"));
        text.lines().skip(1).map(|line| Entry::parse(line).ok_or_else(|| bad(line))).collect::<Result<_, _>>().map(Self)
    }

    pub fn write(&mut self) -> io::Result<()> {
        self.0.sort();
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        fs::write(path(), format!("{HEADER}\n{}\n", lines.join("\n")))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn contains(&self, entry: &Entry) -> bool {
        self.0.contains(entry)
    }

    /// Removes entries of kernels that no longer exist.
    pub fn keep(&mut self, stays: impl Fn(&Entry) -> bool) {
        self.0.retain(stays);
    }

    /// Returns the recorded entries of a module on an architecture.
    pub fn of(&self, module: &Module, arch: u32) -> impl Iterator<Item = &Entry> {
        self.0.iter().filter(move |entry| entry.module == module.name && entry.arch == arch)
    }

    /// Returns true if the record has this text of a module.
    pub fn has(&self, module: &Module, arch: u32) -> bool {
        let text = checksum(module, arch);
        self.of(module, arch).next().is_some() && self.of(module, arch).all(|entry| entry.text == text)
    }

    /// Takes new entries in place of those of the same modules and architectures.
    pub fn replace(&mut self, entries: Vec<Entry>) {
        self.0.retain(|old| !entries.iter().any(|new| (&new.module, new.arch) == (&old.module, old.arch)));
        self.0.extend(entries);
    }
}

#[test]
fn a_checksum_depends_on_code_alone() {
    let commented = "#line 1 \"a.cu\"\n// Sum of two.\nint sum(int a, int b) { return a + b; } // In order.\n";
    let moved = "#line 1 \"b.cu\"\n\n// Adds.\n  int sum(int a, int b) { return a + b; }\n";
    assert_eq!(code_of(commented), code_of(moved));
    assert_ne!(code_of(moved), code_of(&moved.replace('+', "-")));
    // A comment marker inside a string would hide the code after it.
    for kernel in gradscale_cuda::kernels::all_kernels() {
        let source = kernel.module.source(PTX);
        let hidden =
            source.lines().find(|line| line.split("//").next().is_some_and(|code| code.matches('"').count() % 2 == 1));
        assert_eq!(hidden, None, "{}", kernel.module.name);
    }
}
