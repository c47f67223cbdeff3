"""TRL's GRPOTrainer on a tiny GPT-2 with random weights, which is rewarded for even numbers."""

import tempfile

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from gradscale.torch import attach  # 1
from gradscale.torch.huggingface import GradientScalingCallback


def reward_even(completions, **_):
    """The share of even numbers in each completion."""
    words = [completion.split() for completion in completions]
    return [sum(word.isdigit() and int(word) % 2 == 0 for word in each) / max(len(each), 1) for each in words]


def main(steps=30):
    torch.manual_seed(0)
    words = {"<end>": 32, **{str(i): i for i in range(32)}}
    core = Tokenizer(models.WordLevel(words, unk_token="<end>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>", pad_token="<end>", padding_side="left")
    data = Dataset.from_dict({"prompt": [f"{i % 32} {(i + 1) % 32}" for i in range(64)]})
    model = GPT2LMHeadModel(GPT2Config(vocab_size=33, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=32, eos_token_id=32))
    with tempfile.TemporaryDirectory() as folder:
        arguments = GRPOConfig(
            folder, max_steps=steps, per_device_train_batch_size=32, num_generations=8, max_completion_length=8, learning_rate=1e-2,
            logging_steps=5, save_strategy="no", report_to=[], use_cpu=not torch.cuda.is_available(), disable_tqdm=True, bf16=False,
        )
        trainer = GRPOTrainer(model, reward_even, args=arguments, train_dataset=data, processing_class=tokenizer)
        scaling = attach(trainer.model)  # 2, after the trainer has replaced the model's forward
        trainer.add_callback(GradientScalingCallback(scaling))  # 3
        trainer.train()
    rewards = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    print(f"rewards {rewards} after {scaling.steps} steps")
    return rewards, scaling


if __name__ == "__main__":
    main()
