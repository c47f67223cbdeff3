"""Lightning: the scaler is a setting of the precision plugin."""

import lightning
import torch
from lightning.pytorch.plugins import MixedPrecision
from torch import nn

from gradscale.torch import GradScaler  # 1


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 4))

    def training_step(self, batch, _):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-2)


def main(epochs=3):
    lightning.seed_everything(0, verbose=False)
    x = torch.randn(512, 20)
    y = (x[:, :2] > 0).long() @ torch.tensor([1, 2])
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 32, shuffle=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    precision = MixedPrecision("16-mixed", device, GradScaler(device))  # 2
    trainer = lightning.Trainer(
        plugins=[precision],  # 3
        max_epochs=epochs, accelerator=device if device == "cuda" else "cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(Classifier(), data)
    scaling = precision.scaler.scaling
    print(f"loss {trainer.callback_metrics['loss']:.4f} after {scaling.steps} steps")
    print(scaling.report())
    return trainer.callback_metrics["loss"].item(), scaling


if __name__ == "__main__":
    main()
