"""`-m nsed_lab.studies.team_reward FOLDER QUESTIONS [setting=value ...]`: an adapter learns what a team supports.

GRPO by TRL, 20 steps of 4 questions with 4 completions each, on a LoRA adapter of a model that is none of the team's.
QUESTIONS is a file of texts, one a line. Settings are those of `nsed deliberate`, as `ensemble=experts`, and four more:
`model` (a folder, or a name on the Hub), `steps`, `questions` and `completions`. FOLDER gets the adapter and
`rewards.json`, the mean reward of every step. It shows how the parts fit; what such a reward is good for is not said.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from nsed_torch.app.integrations.trl import consensus_reward

OWN = {"model": "HuggingFaceTB/SmolLM2-135M-Instruct", "steps": "20", "questions": "4", "completions": "4"}


def train(folder: Path, questions: Sequence[str], settings: Mapping[str, str]) -> list[float]:
    """The mean reward of each step; writes the adapter and the rewards."""
    own = {name: settings.get(name, default) for name, default in OWN.items()}
    team = {name: value for name, value in settings.items() if name not in OWN}
    size, group = int(own["questions"]), int(own["completions"])
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(own["model"]),
        processing_class=AutoTokenizer.from_pretrained(own["model"]),
        reward_funcs=consensus_reward(**team),
        train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": text}]} for text in questions]),
        peft_config=LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"),
        args=GRPOConfig(
            output_dir=str(folder),
            max_steps=int(own["steps"]),
            per_device_train_batch_size=size * group,
            num_generations=group,
            max_completion_length=32,
            learning_rate=1e-4,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            bf16=False,
            gradient_checkpointing=False,
            disable_tqdm=True,
        ),
    )
    trainer.train()
    trainer.save_model(str(folder))
    rewards = [line["reward"] for line in trainer.state.log_history if "reward" in line]
    (folder / "rewards.json").write_text(json.dumps(rewards) + "\n")
    return rewards


if __name__ == "__main__":
    where, file, *words = sys.argv[1:]
    lines = [line for line in Path(file).read_text("utf-8").splitlines() if line.strip()]
    for number, reward in enumerate(train(Path(where), lines, dict(word.split("=", 1) for word in words)), start=1):
        print(f"step {number}: mean reward {reward:.3f}")
