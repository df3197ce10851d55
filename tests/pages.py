"""README and docs as their readers use them: blocks of code, and the commands in them."""

import functools
import re
import shlex
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page, language):
    """The page's blocks of code in a language."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text("utf-8"), re.DOTALL)


@functools.cache
def files(page):
    """Files that the page shows: blocks that begin with their own name, `# mine.py`."""
    shown = [block for language in ("python", "yaml") for block in blocks(page, language)]
    return {named[1]: block for block in shown if (named := re.match(r"# ([\w./]+\.(?:py|yaml))\n", block))}


def commands(page):
    """The page's shell commands, each as its words, comments and variables before it left out."""
    found = []
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words.pop(0)
            if words:
                found.append(tuple(words))
    return found


def sentences(page):
    """The sentences of a page's prose: no code, tables, headings or pictures; a formula is a word."""
    text = re.sub(r"```.*?```", "\n\n", page.read_text("utf-8"), flags=re.DOTALL)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"\$[^$]+\$|`[^`]+`", "X", text))
    kept = ["" if line.startswith(("|", "#", "![", ":::")) else line for line in text.splitlines()]
    items = re.sub(r"^ *(?:[-*]|\d+[a-z]?\.) +", "\n", "\n".join(kept), flags=re.MULTILINE)
    paragraphs = (" ".join(part.replace("*", "").split()) for part in re.split(r"\n\s*\n", items))
    return [s for part in paragraphs for s in re.split(r"(?<=[.!?]) +(?=[A-Z0-9])", part) if len(s.split()) > 1]
