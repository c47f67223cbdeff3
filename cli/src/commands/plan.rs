//! `gradscale plan`: which operator runs in which precision, before anything is trained.

use crate::{Failure, output};
use clap::{Args, ValueEnum};
use gradscale::{
    Batch, Cpu, Method, Parameters, Trainer,
    core::{
        amp::{AmpPolicy, Level, List},
        op::Op,
    },
    models::SegNet,
    nn::Module,
    optim::Optimizer,
};

/// `gradscale plan`.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// Level of mixed precision.
    #[arg(long, value_enum, ignore_case = true, default_value = "o1")]
    pub level: LevelName,
    /// Changes to the lists: relu=deny, batch_norm=allow …
    #[arg(long, value_name = "OP=LIST", value_delimiter = ',')]
    pub set: Vec<String>,
    /// Channels of each layer.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub width: u16,
}

/// Levels by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LevelName {
    /// All f32.
    O0,
    /// Lists, casts where types meet, f32 parameters.
    O1,
    /// Half model and data, f32 masters.
    O2,
    /// All half.
    O3,
}

/// Prints the plan of SegNetBasic.
///
/// # Errors
/// Unknown operators and lists.
pub fn run(arguments: &Plan) -> Result<(), Failure> {
    let level = match arguments.level {
        LevelName::O0 => Level::O0,
        LevelName::O1 => Level::O1,
        LevelName::O2 => Level::O2,
        LevelName::O3 => Level::O3,
    };
    let mut policy = AmpPolicy::new(level);
    for change in &arguments.set {
        let (op, list) = change.split_once('=').ok_or_else(|| Failure::at(change, "is not OP=LIST"))?;
        let op: Op = op.trim().parse().map_err(|error| Failure::at(change, error))?;
        let lists = [List::Allow, List::Deny, List::Inside, List::Infer];
        let list = lists.into_iter().find(|known| known.to_string() == list.trim());
        let list = list.ok_or_else(|| Failure::at(change, "there are the lists allow, deny, inside, infer"))?;
        policy.set(op, list).map_err(|error| Failure::at(change, error))?;
    }
    let mut parameters = Parameters::seeded(0);
    let net = SegNet::new(&mut parameters.at("segnet"), 3, usize::from(arguments.width), 11);
    let device = Cpu::new(1).map_err(|error| Failure::at("cpu", error))?;
    let trainer = Trainer::new(device, parameters, Optimizer::sgd(0.1), Method::mixed().with_amp(policy))?;
    let (images, labels) = (vec![0; 32 * 32 * 3], vec![0; 32 * 32]);
    let batch = [Batch::u8([1, 32, 32, 3], &images), Batch::u8([1, 32, 32, 1], &labels)];
    let plan = trainer.plan(batch, |[x, labels]| net.forward(x)?.cross_entropy(labels))?;
    output::print(&plan.iter().map(|row| format!("{row}\n")).collect::<String>())
}
