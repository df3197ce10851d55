"""Subtasks that say all that their worker reads, with earlier responses in place of references.

`{0}` in a subtask is the response to step 0, `{0 first}` and `{0 last}` the ends of a list with commas. A worker is
then asked a question as it knows it, and not the task in the user's words. Ours; published is that workers read the
task.
"""

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\{(\d{1,2})(?: (first|last))?\}")


def referred(subtask: str, responses: Mapping[int, str]) -> str:
    """The subtask with the responses that it refers to; a reference to one that is not read stays as it is.

    Examples:
        >>> referred("What is {0 first} to {0 last}? Add {1}.", {0: "Ann, Bo, Cy"})
        'What is Ann to Cy? Add {1}.'
    """

    def said(reference: re.Match[str]) -> str:
        step, end = int(reference[1]), reference[2]
        if step not in responses:
            return reference[0]
        response = " ".join(responses[step].split())
        return response if end is None else response.split(",")[0 if end == "first" else -1].strip(" .")

    return _REFERENCE.sub(said, subtask)
