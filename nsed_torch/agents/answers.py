"""Where a written answer ends, and what it comes to."""

from collections.abc import Sequence

from nsed_torch.agents.chat import Chat
from nsed_torch.agents.decode_loop import Job
from nsed_torch.agents.requests import GenerateRequest, Generation


def has_ended(job: Job, chat: Chat, stop_ids: Sequence[int]) -> bool:
    """Whether an answer ends here: at a stop token, at the allowance, or where a plain-template model opens a turn."""
    written = job.row.written
    if written[-1] in stop_ids or len(written) >= job.allowance:
        return True
    return chat.stop is not None and chat.stop in chat.tokenizer.decode(written[-8:])


def answer(request: GenerateRequest, job: Job, chat: Chat, stop_ids: Sequence[int]) -> Generation:
    """An answer that has ended, without what ended it."""
    written = job.row.written
    stopped = written[-1] in stop_ids
    text = chat.tokenizer.decode(written[:-1] if stopped else written, skip_special_tokens=True)
    cut = chat.stop is not None and chat.stop in text
    if cut:
        text = text.split(chat.stop)[0]
    asked = request.decoding.max_new_tokens
    shrunk = f"answer allowance shrunk from {asked} to {job.allowance} tokens to fit the window"
    return Generation(
        text=text.strip(),
        prompt_tokens=len(job.prompt),
        completion_tokens=len(written),
        finish_reason="stop" if cut or stopped else "length",
        notes=(shrunk,) if job.allowance < asked else (),
        seconds=job.seconds,
    )
