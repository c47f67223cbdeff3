//! `gradscale plan`: which operator runs in which precision, before anything is trained.

use crate::{
    Failure, output,
    setup::Amp,
    tasks::{Net, Task},
};
use clap::Args;
use gradscale::{
    Method,
    core::{amp::List, ops::Op},
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
    let plan = task.kind().layers(*net, usize::from(*width), method)?;
    output::print(&plan.iter().map(|row| format!("{row}\n")).collect::<String>())
}
