//! `gradscale plan`: which operator runs in which precision, before anything is trained.

use crate::{
    Failure,
    amp::Amp,
    output,
    task::{Input, Net, Task, classify, segnet},
};
use clap::Args;
use gradscale::{
    Batch, Cpu, CrossEntropy, Method, PlanRow, Trainer,
    core::{amp::List, ops::Op},
    nn::Module,
    optim::Sgd,
};

/// `gradscale plan`.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// Level and layers.
    #[command(flatten)]
    pub amp: Amp,
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

/// Prints the plan of a network.
///
/// # Errors
/// Unknown operators and lists.
pub fn run(arguments: &Plan) -> Result<(), Failure> {
    let Plan { amp, set, task, net, width } = arguments;
    amp.check(*task, *net)?;
    let Method { amp: mut policy, layers, .. } = amp.of(Method::mixed());
    for change in set {
        let place = format!("--set {change}");
        let (op, list) =
            change.split_once('=').ok_or_else(|| Failure::at(&place, "is not OP=LIST, as in relu=deny"))?;
        let op: Op = op.trim().parse().map_err(|error| Failure::at(&place, error))?;
        let lists = [List::Allow, List::Deny, List::Inside, List::Infer];
        let list = lists.into_iter().find(|known| known.to_string() == list.trim());
        let list = list.ok_or_else(|| Failure::at(&place, "there are the lists allow, deny, inside, infer"))?;
        policy.set(op, list).map_err(|error| Failure::at(&place, error))?;
    }
    let method = Method::mixed().with_amp(policy).with_layers(layers);
    let plan = rows(*task, *net, usize::from(*width), method)?;
    output::print(&plan.iter().map(|row| format!("{row}\n")).collect::<String>())
}

/// What a method makes of a network that is trained.
///
/// # Errors
/// No CPU.
pub fn rows(task: Task, net: Net, width: usize, method: Method) -> Result<Vec<PlanRow>, Failure> {
    match task {
        Task::Segnet => {
            let (parameters, net, _) = segnet::network(0, width, &[1.0; 11]);
            let trainer = Trainer::new(cpu()?, parameters, Sgd::default(), method)?;
            let (image, labels) = (image(), [0; 32 * 32]);
            Ok(trainer.plan(batch(&image, &labels), |[x, labels]| net.forward(x).cross_entropy(labels))?)
        }
        Task::Classify => {
            let input = Input { size: SIZE, mean: 0.0, deviation: 1.0 };
            let (parameters, classifier) = classify::network(0, net, input, width, 10);
            let trainer = Trainer::new(cpu()?, parameters, Sgd::default(), method)?;
            let options = CrossEntropy::default();
            Ok(trainer.plan(batch(&image(), &[0]), |[x, labels]| classifier.loss(x, labels, &options))?)
        }
    }
}

/// Rows, columns and channels of the image that a plan is made for.
const SIZE: [usize; 3] = [32, 32, 3];

fn cpu() -> Result<Cpu, Failure> {
    Cpu::new(1).map_err(|error| Failure::at("cpu", error))
}

fn image() -> Vec<u8> {
    vec![0; SIZE.iter().product()]
}

/// Of one image with so many labels.
fn batch<'a>(image: &'a [u8], labels: &'a [u8]) -> [Batch<'a>; 2] {
    [Batch::u8([1, SIZE[0], SIZE[1], SIZE[2]], image), Batch::u8([labels.len()], labels)]
}
