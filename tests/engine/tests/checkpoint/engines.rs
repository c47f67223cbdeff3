//! A device with several engines of products: a checkpoint records the engine, and a resumed training keeps it.

use gradscale::{
    CheckpointError, Cpu, CpuError, Error, Input, Method, Parameters, Trainer,
    distributed::{Group, Threads},
    gradscale_core::{
        backend::{
            Backend, Caps, Control, DType, Data, DataMut, DeviceResult, EngineAvailability, Error as _, Launch,
            OnDevice,
        },
        stats::Stats,
    },
    nn::{Linear, Module},
    optim::Sgd,
};
use std::{collections::BTreeMap, ops::Range, thread};

/// The CPU, as if it had the engines of these names, of which it uses one.
struct Engines {
    inner: Cpu,
    names: &'static [&'static str],
    used: usize,
    pinned: bool,
}

impl Engines {
    fn new(names: &'static [&'static str]) -> Self {
        Self { inner: Cpu::new(1).expect("a thread"), names, used: 0, pinned: false }
    }
}

impl Backend for Engines {
    type Buffer = <Cpu as Backend>::Buffer;
    type Table = <Cpu as Backend>::Table;
    type Recording = <Cpu as Backend>::Recording;
    type Error = CpuError;

    fn caps(&self) -> Caps<'_> {
        self.inner.caps()
    }
    fn alloc(&self, dtype: DType, len: usize) -> Result<Self::Buffer, CpuError> {
        self.inner.alloc(dtype, len)
    }
    fn write(&self, src: Data<'_>, dst: &mut Self::Buffer) -> DeviceResult<Self> {
        self.inner.write(src, dst)
    }
    fn read(&self, src: &Self::Buffer, dst: DataMut<'_>) -> impl Future<Output = DeviceResult<Self>> {
        self.inner.read(src, dst)
    }
    fn table(&self, slots: u16, hyperparameters: u16) -> Result<Self::Table, CpuError> {
        self.inner.table(slots, hyperparameters)
    }
    fn upload(&self, control: &Control<'_>, clear: Range<u16>, table: &mut Self::Table) -> DeviceResult<Self> {
        self.inner.upload(control, clear, table)
    }
    fn collect(
        &self, table: &Self::Table, rows: Range<u16>, out: &mut [Stats], scalars: &[&Self::Buffer], values: &mut [f32],
    ) -> impl Future<Output = DeviceResult<Self>> {
        self.inner.collect(table, rows, out, scalars, values)
    }
    fn product_engine(&self) -> Option<&str> {
        Some(self.names[self.used])
    }
    fn product_engine_availability(&self, name: &str) -> EngineAvailability {
        match self.names.iter().position(|known| *known == name) {
            Some(_) if !self.pinned => EngineAvailability::Available,
            Some(at) if at == self.used => EngineAvailability::Available,
            _ if self.pinned => EngineAvailability::Pinned,
            _ => EngineAvailability::Missing,
        }
    }
    fn select_product_engine(&mut self, name: &str) -> DeviceResult<Self> {
        let known = self.names.iter().position(|known| *known == name);
        self.used = known.ok_or(CpuError::unsupported("select_product_engine"))?;
        Ok(())
    }
    fn launch(&self, launch: Launch<OnDevice<'_, Self>>) -> DeviceResult<Self> {
        self.inner.launch(launch.inside())
    }
}

fn trainer<B: Backend>(device: B) -> Trainer<B> {
    let mut parameters = Parameters::seeded(1);
    let net = Linear::new(&mut parameters.at("net"), 4, 2);
    let mut trainer = Trainer::new(device, parameters, Sgd::new(0.1), Method::mixed()).expect("a trainer");
    let batch = [Input::f32([2, 4], &[0.5; 8]), Input::u8([2], &[0, 1])];
    let gradients = trainer.backward(batch, |[x, labels]| net.forward(x).cross_entropy(labels)).expect("gradients");
    trainer.step(gradients).expect("a step");
    trainer
}

fn bytes<B: Backend>(trainer: &Trainer<B>) -> Vec<u8> {
    trainer.save(&BTreeMap::new()).expect("a checkpoint")
}

#[test]
fn the_engine_of_products_is_recorded_and_kept() {
    let tiles = trainer(Engines::new(&["tiles", "units"]));
    let units = trainer(Engines { used: 1, ..Engines::new(&["tiles", "units"]) });
    for saved in [&tiles, &units] {
        for mut resumed in [trainer(Engines::new(&["tiles", "units"])), trainer(Engines::new(&["units", "tiles"]))] {
            resumed.load(&bytes(saved)).expect("both are there");
            assert_eq!(resumed.device().product_engine(), saved.device().product_engine());
            assert!(resumed.replaced_engine().is_none());
            assert!(bytes(&resumed) == bytes(saved));
        }
    }
}

#[test]
fn a_device_without_the_engine_is_an_error_that_changes_nothing() {
    let units = trainer(Engines::new(&["units"]));
    let mut tiles = trainer(Engines::new(&["tiles"]));
    let before = bytes(&tiles);
    let error = tiles.load(&bytes(&units)).expect_err("it has no units");
    assert_eq!(
        error.to_string(),
        "checkpoint: made with another device: GEMM engine units in the checkpoint, tiles here"
    );
    let Error::Checkpoint(CheckpointError::Settings { of, .. }) = error else { panic!("{error}") };
    assert_eq!(of, CheckpointError::DEVICE);
    assert!(bytes(&tiles) == before);
}

#[test]
fn a_pinned_engine_stays_and_is_named() {
    let units = trainer(Engines::new(&["units"]));
    let mut pinned = trainer(Engines { pinned: true, ..Engines::new(&["tiles", "units"]) });
    pinned.load(&bytes(&units)).expect("the user has chosen");
    assert_eq!(pinned.device().product_engine(), Some("tiles"));
    assert_eq!(
        pinned.replaced_engine().expect("another").to_string(),
        "GEMM engine units in the checkpoint, tiles here"
    );
    // A checkpoint with the pinned engine causes no warning.
    let tiles = trainer(Engines::new(&["tiles"]));
    pinned.load(&bytes(&tiles)).expect("the same");
    assert!(pinned.replaced_engine().is_none());
}

/// Devices with one engine, and checkpoints of versions that did not record it.
#[test]
fn a_checkpoint_that_records_no_engine_leaves_the_device_its_own() {
    let cpu = trainer(Cpu::new(1).expect("a thread"));
    let plain = bytes(&cpu);
    assert!(!String::from_utf8_lossy(&plain).contains("product_engine"));
    let mut units = trainer(Engines { used: 1, ..Engines::new(&["tiles", "units"]) });
    units.load(&plain).expect("a checkpoint");
    assert_eq!(units.device().product_engine(), Some("units"));
    // The other way, the user has chosen another kind of device.
    let mut cpu = cpu;
    cpu.load(&bytes(&units)).expect("a checkpoint");
    assert!(cpu.replaced_engine().is_none());
}

/// Results of ranks that join with these devices, by rank: the engine that each then uses, or its error.
fn join<const N: usize>(devices: [fn() -> Engines; N]) -> Vec<Result<String, String>> {
    let ranks: Vec<_> = Threads::world(N)
        .into_iter()
        .zip(devices)
        .map(|(communicator, device)| {
            thread::spawn(move || {
                let joined =
                    trainer(device()).join_group(Group::new(communicator)).map_err(|error| error.to_string())?;
                Ok(joined.device().product_engine().unwrap_or_default().to_owned())
            })
        })
        .collect();
    ranks.into_iter().map(|rank| rank.join().expect("a rank")).collect()
}

fn tiles() -> Engines {
    Engines::new(&["tiles", "units"])
}

fn units() -> Engines {
    Engines { used: 1, ..tiles() }
}

/// Each rank times its own device, so they may have chosen differently.
#[test]
fn ranks_use_the_engine_of_rank_0() {
    assert_eq!(join([tiles, units, tiles]), ["tiles"; 3].map(|name| Ok(name.to_owned())));
    assert_eq!(join([units, tiles, units]), ["units"; 3].map(|name| Ok(name.to_owned())));
}

#[test]
fn ranks_that_cannot_use_the_engine_of_rank_0_are_refused_on_all() {
    let lacking: fn() -> Engines = || Engines::new(&["tiles"]);
    let pinned: fn() -> Engines = || Engines { pinned: true, ..tiles() };
    for (devices, words) in [
        ([units, units, lacking], "rank 2 has another GEMM engine than rank 0: tiles, not units"),
        ([units, pinned, units], "rank 1 has another GEMM engine than rank 0: tiles, not units"),
        ([lacking, tiles, units], ""),
        ([pinned, tiles, units], ""),
    ] {
        for joined in join(devices) {
            match joined {
                Ok(engine) => assert_eq!((engine.as_str(), words), ("tiles", "")),
                Err(error) => assert_eq!(error, words),
            }
        }
    }
}
