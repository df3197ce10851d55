"""A server that speaks the protocol of chat completions, and what its clients ask."""

import json
import math
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from local_server import serving

from nsed_torch.core.engine import Decoding, GenerateRequest, Message
from nsed_torch.engines.endpoint import EndpointEngine

KEY = "sk-secret-0123456789"


class Server(BaseHTTPRequestHandler):
    """Answers as `script` says of a request's body: (status, reply, headers), a reply alone, or what writes one."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            server.bodies.append(body)
            server.heads.append({name.lower(): value for name, value in self.headers.items()})
            server.flying += 1
            server.most = max(server.most, server.flying)
        said = server.script(body)
        if callable(said):
            said(self)
            return
        with server.lock:
            server.flying -= 1
        status, said, *headers = said if isinstance(said, tuple) else (200, said)
        text = said if isinstance(said, str) else json.dumps(said)
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if text.startswith("<") else "application/json")
        self.send_header("Content-Length", str(len(text.encode())))
        for name, value in headers[0].items() if headers else ():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args):
        pass


@contextmanager
def endpoint():
    """An endpoint that echoes until told otherwise."""
    with serving(Server) as served:
        served.script, served.bodies, served.heads, served.lock = echo, [], [], threading.Lock()
        served.flying = served.most = 0
        served.url = f"http://127.0.0.1:{served.server_port}/v1"
        yield served


def completion(text, *, usage=(7, 3), finish="stop", top=None):
    """A chat completion as servers write it."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    if top is not None:
        listed = [{"token": token, "logprob": math.log(p), "bytes": None} for token, p in top.items()]
        choice["logprobs"] = {"content": [{"token": text, "logprob": -0.1, "bytes": None, "top_logprobs": listed}]}
    whole = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    if usage is not None:
        whole["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return whole


def echo(body):
    """Says what it was told."""
    return completion("said: " + body["messages"][-1]["content"])


def engine(server, **settings):
    """An engine behind the server."""
    return EndpointEngine(**{"url": server.url, "model": "m", "retries": 2, "pause": lambda seconds: None, **settings})


def ask(text="Hello?", *, decoding=Decoding(), adapter=None, seed=5):
    """A request to write."""
    return GenerateRequest("a", (Message("system", "Be kind."), Message("user", text)), decoding, seed, adapter)
