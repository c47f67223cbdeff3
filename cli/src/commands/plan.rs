//! `gradscale plan`: which operator runs in which precision, before anything is trained.

use crate::{
    Failure, output,
    task::{Input, Net, Task, classify, segnet},
};
use clap::{Args, ValueEnum};
use gradscale::{
    Batch, Cpu, Method, PlanRow, Trainer,
    core::{
        amp::{AmpPolicy, Level, List},
        op::Op,
    },
    nn::Module,
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
    /// Network.
    #[arg(long, value_enum, default_value = "segnet")]
    pub task: Task,
    /// Network for --task classify.
    #[arg(long, value_enum, default_value = "resnet")]
    pub net: Net,
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

/// Prints the plan of a network.
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
        let place = format!("--set {change}");
        let (op, list) =
            change.split_once('=').ok_or_else(|| Failure::at(&place, "is not OP=LIST, as in relu=deny"))?;
        let op: Op = op.trim().parse().map_err(|error| Failure::at(&place, error))?;
        let lists = [List::Allow, List::Deny, List::Inside, List::Infer];
        let list = lists.into_iter().find(|known| known.to_string() == list.trim());
        let list = list.ok_or_else(|| Failure::at(&place, "there are the lists allow, deny, inside, infer"))?;
        policy.set(op, list).map_err(|error| Failure::at(&place, error))?;
    }
    let method = Method::mixed().with_amp(policy);
    let plan = match arguments.task {
        Task::Segnet => {
            let (parameters, net, _) = segnet::network(0, usize::from(arguments.width), &[1.0; 11]);
            plan(Trainer::new(cpu()?, parameters, segnet::optimizer(1.0), method)?, &net, 32 * 32)?
        }
        Task::Classify => {
            let input = Input { size: SIZE, mean: 0.0, deviation: 1.0 };
            let (parameters, net) = classify::network(0, arguments.net, input, usize::from(arguments.width), 10);
            plan(Trainer::new(cpu()?, parameters, classify::optimizer(arguments.net, 1.0), method)?, &net, 1)?
        }
    };
    output::print(&plan.iter().map(|row| format!("{row}\n")).collect::<String>())
}

/// Rows, columns and channels of the image that a plan is made for.
const SIZE: [usize; 3] = [32, 32, 3];

fn cpu() -> Result<Cpu, Failure> {
    Cpu::new(1).map_err(|error| Failure::at("cpu", error))
}

/// Of one image with so many labels.
fn plan(trainer: Trainer<Cpu>, net: &impl Module, labels: usize) -> Result<Vec<PlanRow>, Failure> {
    let (image, labels) = (vec![0; SIZE.iter().product()], vec![0; labels]);
    let batch = [Batch::u8([1, SIZE[0], SIZE[1], SIZE[2]], &image), Batch::u8([labels.len()], &labels)];
    Ok(trainer.plan(batch, |[x, labels]| net.forward(x)?.cross_entropy(labels))?)
}
