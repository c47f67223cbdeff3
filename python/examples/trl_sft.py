"""TRL's SFTTrainer with a LoRA adapter of peft, on a tiny GPT-2 with random weights, which learns to count."""

import tempfile

import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from gradscale.torch import attach  # 1
from gradscale.torch.huggingface import GradientScalingCallback


def main(steps=30):
    torch.manual_seed(0)
    words = {"<end>": 32, **{str(i): i for i in range(32)}}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="<end>")), eos_token="<end>", pad_token="<end>")
    data = Dataset.from_dict({"input_ids": [[(k * (1 + i % 3) + i) % 32 for k in range(16)] for i in range(512)]})
    model = GPT2LMHeadModel(GPT2Config(vocab_size=33, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=32, eos_token_id=32))
    model = get_peft_model(model, LoraConfig(r=8, target_modules=["c_attn", "c_fc"], modules_to_save=["wte", "lm_head"], fan_in_fan_out=True))
    scaling = attach(model)  # 2
    with tempfile.TemporaryDirectory() as folder:
        arguments = SFTConfig(
            folder, max_steps=steps, per_device_train_batch_size=16, learning_rate=1e-2, logging_steps=10, save_strategy="no",
            report_to=[], use_cpu=not torch.cuda.is_available(), disable_tqdm=True, max_length=16, bf16=False,
        )
        trainer = SFTTrainer(
            model, args=arguments, train_dataset=data, processing_class=tokenizer, callbacks=[GradientScalingCallback(scaling)]  # 3
        )
        trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print(f"losses {losses} after {scaling.steps} steps")
    return losses, scaling


if __name__ == "__main__":
    main()
