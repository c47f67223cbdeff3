//! Model of the time that a kernel should take on a GPU, from its demand on each part of the device and the
//! manufacturer's figures. A measurement can refute it. The part that would be busy all the time is the bottleneck.

/// Peak figures of a GPU according to its manufacturer.
#[derive(Debug, PartialEq)]
pub struct Figures {
    /// Part of the GPU's name as the driver reports it.
    pub name: &'static str,
    pub multiprocessors: f64,
    /// Clock in Hz at which tensor cores reach the advertised rate.
    pub clock: f64,
    /// Bandwidth of device memory in bytes a second.
    pub memory: f64,
    /// Floating-point operations that a multiprocessor's tensor cores do in a clock: halves, sums in f32, dense.
    pub tensor: f64,
    /// Bytes that the shared memory of a multiprocessor delivers in a clock cycle.
    pub shared: f64,
}

/// Instructions of warps that a multiprocessor starts in a clock: four schedulers, on all of these.
const SLOTS: f64 = 4.0;

/// Sources: NVIDIA, "H100 Tensor Core GPU Architecture" (2022: 132 multiprocessors, 989.4 TFLOP/s at 1.83 GHz, 3352 GB/s)
/// and the data sheet of the H200, which is the same chip with 4.8 TB/s; "A100 Tensor Core GPU Architecture" (2020: 108,
/// 312 TFLOP/s at 1.41 GHz, 1555 GB/s with 40 GB) and the data sheet of that with 80 GB (2039 GB/s); the data sheet of
/// the T4 (40, 65 TFLOP/s at 1.59 GHz, 320 GB/s). Shared memory: 32 banks of 4 bytes in a clock (CUDA C++ programming
/// guide), of which Turing's is taken to give half.
const GPUS: [Figures; 5] = [
    gpu("H100 80GB HBM3", 132.0, 1.83e9, 3.352e12, 4096.0, 128.0),
    gpu("H200", 132.0, 1.83e9, 4.8e12, 4096.0, 128.0),
    gpu("A100-SXM4-80GB", 108.0, 1.41e9, 2.039e12, 2048.0, 128.0),
    gpu("A100-SXM4-40GB", 108.0, 1.41e9, 1.555e12, 2048.0, 128.0),
    gpu("Tesla T4", 40.0, 1.59e9, 3.2e11, 1024.0, 64.0),
];

const fn gpu(name: &'static str, multiprocessors: f64, clock: f64, memory: f64, tensor: f64, shared: f64) -> Figures {
    Figures { name, multiprocessors, clock, memory, tensor, shared }
}

/// Returns the figures of the device with this name, if they are known.
pub fn figures(device: &str) -> Option<&'static Figures> {
    GPUS.iter().find(|gpu| device.contains(gpu.name))
}

/// Returns the instructions of a thread for each element, by `sass.csv`, which `sass.py` writes from machine code; none
/// where that has not been counted for the architecture.
pub fn instructions(what: &str, arch: u32) -> Option<f64> {
    include_str!("../../sass.csv").lines().skip(1).find_map(|row| {
        let mut fields = row.split(',');
        let here = fields.next() == Some(what) && fields.next()?.parse() == Ok(arch);
        here.then(|| fields.next()?.parse().ok()).flatten()
    })
}

/// Work of a kernel on the whole device, by the unit that does it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Number of warp instructions that overlap with all other work.
    pub instructions: f64,
    /// Instructions of warps while nothing else goes on: the end of a tile, which its tensor cores wait for.
    pub alone: f64,
    /// Bytes read from shared memory, by instructions or by tensor cores.
    pub shared: f64,
    /// Bytes read from and written to device memory, each once.
    pub memory: f64,
    /// Floating-point operations of tensor cores, those of multiprocessors included that have no tile in the last round.
    pub tensor: f64,
}

/// Time of a kernel that the model expects, and the shares of its causes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    pub seconds: f64,
    /// Shares of that time in which instructions start, shared memory gives, memory moves, tensor cores multiply.
    pub issue: f64,
    pub shared: f64,
    pub memory: f64,
    pub tensor: f64,
}

impl Work {
    /// Returns the work of an elementwise kernel from the instructions and bytes of each element.
    pub fn elements(count: f64, instructions: f64, bytes: f64) -> Self {
        Self { instructions: count * instructions / 32.0, memory: count * bytes, ..Self::default() }
    }
}

/// Product of an m × k by a k × n matrix, or of a convolution as one, with the tile of its kernel.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    pub size: [f64; 3],
    /// Rows and columns of a block's tile, and of the part of it for which operands are read from shared memory.
    pub tile: [f64; 2],
    pub part: [f64; 2],
    /// Instructions of the inner loop, a warp and 64 of k, which has 16 rows of a tile.
    pub inner: f64,
    /// Instructions for each result in the epilogue: those for which the tensor cores wait, and those of epilogue
    /// warps, which overlap with the products of the next tile.
    pub epilogue: [f64; 2],
    /// True if long sums are split, so that every multiprocessor has some of them; otherwise one without a tile waits
    /// for the others.
    pub cut: bool,
    /// Minimum number of bytes that the product moves to and from memory.
    pub memory: f64,
}

impl Product {
    /// Returns the work of the product on this GPU, as the model counts it.
    pub fn work(&self, gpu: &Figures) -> Work {
        let ([m, n, k], [rows, columns], [part_rows, part_columns]) = (self.size, self.tile, self.part);
        let tiles = (m / rows).ceil() * (n / columns).ceil();
        let rounds = (tiles / gpu.multiprocessors).ceil() * gpu.multiprocessors;
        let padded = if self.cut { tiles } else { rounds } * rows * columns;
        let [waited, beside] = self.epilogue;
        // No products overlap with the epilogue of a multiprocessor's last tile.
        let last = padded.min(gpu.multiprocessors * rows * columns);
        Work {
            instructions: padded / (16.0 * columns) * (k / 64.0) * self.inner + (padded - last) * beside / 32.0,
            alone: (padded * waited + last * beside) / 32.0,
            // Each warp's part reads its rows and its columns for each of k.
            shared: padded * k * 2.0 * (part_rows + part_columns) / (part_rows * part_columns),
            memory: self.memory,
            tensor: 2.0 * padded * k,
        }
    }
}

impl Figures {
    /// Returns the minimum time for some work, and how busy each unit is in it.
    pub fn expect(&self, work: &Work) -> Expected {
        let clocks = self.clock * self.multiprocessors;
        let alone = work.alone / (SLOTS * clocks);
        let beside = work.instructions / (SLOTS * clocks);
        let shared = work.shared / (self.shared * clocks);
        let tensor = work.tensor / (self.tensor * clocks);
        let memory = work.memory / self.memory;
        let seconds = (beside.max(shared).max(tensor) + alone).max(memory);
        let share = |busy: f64| if seconds > 0.0 { busy / seconds } else { 0.0 };
        Expected {
            seconds,
            issue: share(beside + alone),
            shared: share(shared),
            memory: share(memory),
            tensor: share(tensor),
        }
    }
}

impl Expected {
    /// Formats the expected time and its causes, compared with the measured time.
    pub fn words(&self, measured: f64) -> String {
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        format!(
            "{:.3} ms: issue {}, shared {}, memory {}, tensor {}; took {:.2} of it",
            1e3 * self.seconds,
            percent(self.issue),
            percent(self.shared),
            percent(self.memory),
            percent(self.tensor),
            measured / self.seconds
        )
    }
}
