//! Host time of a step outside kernels: trainings on a device that computes nothing, so that all that is left is the
//! engine's. `cargo bench -p gradscale-engine-tests --bench host`.

use gradscale::{
    Input, Method, Parameters, ProgramKind, Scope, Trainer, Var,
    gradscale_core::{
        backend::{Backend, Buffer, Caps, Control, DType, Data, DataMut, DeviceResult, ErrorKind, Launch, OnDevice},
        stats::{Convention, Detail, FlushRule, Stats},
    },
    models::SegNet,
    nn::{Embedding, LayerNorm, Linear, Module, SelfAttention},
    optim::{AdamW, Sgd},
};
use std::{
    ops::Range,
    time::{Duration, Instant},
};

/// Device that does nothing, and reports the same statistics for every site.
struct Idle {
    row: Stats,
    records: bool,
}

struct Memory(DType, usize);

impl Buffer for Memory {
    fn dtype(&self) -> DType {
        self.0
    }
    fn len(&self) -> usize {
        self.1
    }
}

impl Idle {
    fn new(records: bool) -> Self {
        let mut row = Stats::new(Convention::FP16, 0, Detail::Full);
        let values: Vec<f32> = (1..1000).map(|i| (i as f32 * 0.37).sin() / 100.0).collect();
        row.observe(&values);
        Self { row, records }
    }
}

impl Backend for Idle {
    type Buffer = Memory;
    type Table = ();
    type Recording = ();
    type Error = ErrorKind;

    fn caps(&self) -> Caps<'_> {
        Caps { name: "idle", flush: FlushRule::Nearest, f32_subnormals: true, max_buffer: u64::MAX }
    }
    fn alloc(&self, dtype: DType, len: usize) -> Result<Memory, ErrorKind> {
        Ok(Memory(dtype, len))
    }
    fn write(&self, _: Data<'_>, _: &mut Memory) -> DeviceResult<Self> {
        Ok(())
    }
    async fn read(&self, _: &Memory, _: DataMut<'_>) -> DeviceResult<Self> {
        Ok(())
    }
    fn table(&self, _: u16, _: u16) -> Result<(), ErrorKind> {
        Ok(())
    }
    fn upload(&self, _: &Control<'_>, _: Range<u16>, (): &mut ()) -> DeviceResult<Self> {
        Ok(())
    }
    async fn collect(
        &self, (): &(), _: Range<u16>, out: &mut [Stats], _: &[&Memory], values: &mut [f32],
    ) -> DeviceResult<Self> {
        out.fill(self.row);
        values.fill(0.5);
        Ok(())
    }
    fn launch(&self, _: Launch<OnDevice<'_, Self>>) -> DeviceResult<Self> {
        Ok(())
    }
    fn record(&self, work: impl FnOnce() -> DeviceResult<Self>) -> Result<Option<()>, ErrorKind> {
        work()?;
        Ok(self.records.then_some(()))
    }
    fn replay(&self, (): &()) -> DeviceResult<Self> {
        Ok(())
    }
}

const WARM: usize = 30;
const STEPS: usize = 200;

/// Returns the median of many steps in µs, and that of the forward and backward pass only.
fn measure(mut step: impl FnMut(usize) -> Duration) -> [f64; 2] {
    (0..WARM).for_each(|i| {
        step(i);
    });
    let mut times: Vec<[f64; 2]> = (0..STEPS)
        .map(|i| {
            let start = Instant::now();
            let passes = step(i);
            [start.elapsed(), passes].map(|time| 1e6 * time.as_secs_f64())
        })
        .collect();
    [0, 1].map(|of| {
        times.sort_by(|a, b| a[of].total_cmp(&b[of]));
        times[STEPS / 2][of]
    })
}

fn report(name: &str, [step, passes]: [f64; 2]) {
    println!("{name}: {step:.0} µs a step, {passes:.0} µs of it before the update");
}

/// Form of a step (closure or program) and its execution.
#[derive(Clone, Copy)]
struct How {
    records: bool,
    compiled: bool,
}

impl How {
    fn words(self) -> &'static str {
        match (self.records, self.compiled) {
            (false, false) => "traced, launched one by one",
            (false, true) => "compiled, launched one by one",
            (true, false) => "traced, recorded",
            (true, true) => "compiled, recorded",
        }
    }
}

fn segnet(how: How) {
    let mut parameters = Parameters::seeded(0);
    let net = SegNet::new(&mut parameters.at("net"), 3, 16, 11);
    let sgd = Sgd { momentum: 0.9, ..Sgd::new(0.1) };
    let mut trainer = Trainer::new(Idle::new(how.records), parameters, sgd, Method::mixed()).expect("a trainer");
    let pixels = 2 * 45 * 60;
    let (images, labels) = (vec![7u8; pixels * 3], vec![3u8; pixels]);
    let batch = || [Input::u8([2, 45, 60, 3], &images), Input::u8([2, 45, 60, 1], &labels)];
    let program = trainer
        .compile(ProgramKind::Training, batch(), |[x, labels]| net.forward(x).cross_entropy(labels))
        .expect("it fits");
    let times = measure(|_| {
        let start = Instant::now();
        let gradients = match how.compiled {
            true => trainer.backward_compiled(&program, batch()),
            false => trainer.backward(batch(), |[x, labels]| net.forward(x).cross_entropy(labels)),
        };
        let passes = start.elapsed();
        trainer.step(gradients.expect("gradients")).expect("a step");
        passes
    });
    report(&format!("SegNet, {}", how.words()), times);
}

struct Block {
    norms: [LayerNorm; 2],
    attention: SelfAttention,
    wide: Linear,
    narrow: Linear,
}

impl Block {
    fn new(scope: &mut Scope<'_>, width: usize) -> Self {
        Self {
            norms: ["norm1", "norm2"].map(|name| LayerNorm::new(&mut scope.at(name), width)),
            attention: SelfAttention::new(&mut scope.at("attention"), width, 4),
            wide: Linear::new(&mut scope.at("wide"), width, 4 * width),
            narrow: Linear::new(&mut scope.at("narrow"), 4 * width, width),
        }
    }
}

impl Module for Block {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let x = x + self.attention.forward(self.norms[0].forward(x));
        x + self.narrow.forward(self.wide.forward(self.norms[1].forward(x)).gelu())
    }
}

/// Measures 24 transformer layers on batches of `lengths` lengths in turn, each with its own program.
fn transformer(how: How, lengths: usize) {
    const WIDTH: usize = 64;
    let mut parameters = Parameters::seeded(0);
    let embedding = Embedding::new(&mut parameters.at("tokens"), 100, WIDTH);
    let blocks: Vec<Block> = (0..24).map(|i| Block::new(&mut parameters.at(&format!("block{i}")), WIDTH)).collect();
    let head = Linear::new(&mut parameters.at("head"), WIDTH, 100);
    let mut trainer =
        Trainer::new(Idle::new(how.records), parameters, AdamW::new(1e-3), Method::mixed()).expect("a trainer");
    let tokens: Vec<u32> = (0..4 * 256).map(|i| i % 97).collect();
    let batch = |i: usize| {
        let len = 32 + i % lengths;
        [Input::u32([2, len], &tokens[..2 * len]), Input::u32([2, 1, len], &tokens[..2 * len])]
    };
    fn loss<'t>(net: (&Embedding, &[Block], &Linear), [x, labels]: [Var<'t>; 2]) -> Var<'t> {
        let x = net.1.iter().fold(net.0.forward(x), |x, block| block.forward(x));
        net.2.forward(x).cross_entropy(labels)
    }
    let net = (&embedding, blocks.as_slice(), &head);
    let programs: Vec<_> = (0..lengths)
        .map(|i| trainer.compile(ProgramKind::Training, batch(i), |all| loss(net, all)).expect("it fits"))
        .collect();
    let times = measure(|i| {
        let start = Instant::now();
        let gradients = match how.compiled {
            true => trainer.backward_compiled(&programs[i % lengths], batch(i)),
            false => trainer.backward(batch(i), |all| loss(net, all)),
        };
        let passes = start.elapsed();
        trainer.step(gradients.expect("gradients")).expect("a step");
        passes
    });
    report(&format!("transformer of 24 layers, {lengths} lengths, {}", how.words()), times);
}

fn main() {
    for (records, compiled) in [(false, false), (false, true), (true, false), (true, true)] {
        let how = How { records, compiled };
        segnet(how);
        transformer(how, 1);
        transformer(how, 20);
    }
}
