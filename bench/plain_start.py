"""A process that answers one question with plain transformers and says when it has imported, loaded and answered.

python -m bench.plain_start FOLDER DEVICE DTYPE QUESTION NEW_TOKENS
"""

import sys


def main(folder: str, device: str, dtype: str, question: str, new_tokens: int) -> None:
    """Import, load, answer; nothing of nsed_torch is imported."""
    import torch  # noqa: PLC0415 - timed
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 - timed

    print("imported", flush=True)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), device_map=device)
    print("loaded", flush=True)
    chat = [{"role": "user", "content": question}]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True, return_tensors="pt")
    model.generate(**prompt.to(model.device), max_new_tokens=new_tokens, do_sample=False)
    print("answered", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:5], new_tokens=int(sys.argv[5]))
