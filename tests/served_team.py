"""A team without models behind the server; as a program, one that says where it listens and answers when told to."""

import http.client
import json
import re
import socket
import sys
import threading
import time
from contextlib import closing, contextmanager
from types import SimpleNamespace

from nsed_torch.app.build import consensus_cell
from nsed_torch.app.serve.app import Limits
from nsed_torch.app.serve.batches import Batches
from nsed_torch.app.verbs.serve import bound, listen, server_of
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import Decoding
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.engines.scripted import ScriptedEngine

CHAT = "/v1/chat/completions"
NAMES = ("ant", "bee", "cat")
PATIENCE = 120  # seconds on a machine that has other work


class GatedEngine(ScriptedEngine):
    """Answers with the number that a question asks for, once the gate is open; keeps what it was asked."""

    def __init__(self):
        super().__init__(self.say, lambda request, candidate: {"ant": 0.9, "bee": -0.2, "cat": 0.4}[request.agent])
        self.gate, self.begun, self.asked = threading.Event(), threading.Event(), []
        self.gate.set()

    def say(self, request):
        number = re.findall(r"number (\d+)", request.messages[-1].content)[-1]
        if number == "666":
            raise RuntimeError("a devil of a question")
        return f"{number} says {request.agent} by #{request.seed}"

    def generate(self, requests):
        self.asked += [request.messages[-1].content for request in requests]
        self.begun.set()
        assert self.gate.wait(PATIENCE)
        return super().generate(requests)


def team(engine, rounds=2):
    """Three agents that draw."""
    decoding = Decoding(max_new_tokens=32, temperature=0.7)
    ensemble = Ensemble({"scripted": engine}, [Agent(name, "scripted", decoding=decoding) for name in NAMES])
    encoder = HashedEncoder(16)
    cell = MacroRNNCell(ensemble, encoder, consensus_cell(dim=16, agents=3))
    return MacroRNN(cell, halting=FixedHalting(rounds))


def about(number, **fields):
    """A request's body."""
    return {"model": "nsed/team", "messages": [{"role": "user", "content": f"What is number {number}?"}], **fields}


class Client:
    """Speaks HTTP to the server, a connection a request."""

    def __init__(self, port):
        self.port = port

    def send(self, method, path, body=None, headers=None):
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        headers = {"Content-Type": "application/json"} | (headers or {})
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as connection:
            connection.request(
                method, path, data, {name: value for name, value in headers.items() if value is not None}
            )
            reply = connection.getresponse()
            return SimpleNamespace(status=reply.status, headers=reply.headers, text=reply.read().decode())

    def get(self, path, **headers):
        reply = self.send("GET", path, headers=headers)
        return reply.status, reply.text

    def chat(self, body, **headers):
        reply = self.send("POST", CHAT, body, headers)
        return reply.status, json.loads(reply.text)

    def fault(self, body, **headers):
        """The status and the one line of a refusal."""
        status, told = self.chat(body, **headers)
        assert set(told) == {"error"}, told
        assert "\n" not in told["error"]["message"]
        return status, told["error"]["message"]

    def stream(self, body):
        """The data of all events, the closing mark with them."""
        reply = self.send("POST", CHAT, body | {"stream": True})
        assert reply.status == 200
        assert reply.headers["Content-Type"].startswith("text/event-stream")
        events = reply.text.split("\n\n")
        assert events.pop() == ""
        return [json.loads(e[6:]) if e[6:] != "[DONE]" else "[DONE]" for e in events if not e.startswith(":")]

    def raw(self, text):
        """An open connection with something written to it."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        connection.sendall(text)
        return connection


def until(condition):
    """Wait for what another thread does."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextmanager
def serving_team(*, limits=None, key="", rounds=2, **queue):
    """A server in a thread, its engine, its queue and a client."""
    engine = GatedEngine()
    batches = Batches({"nsed/team": team(engine, rounds)}, **queue)
    server = server_of(batches, limits or Limits(), key)
    with bound("127.0.0.1", 0) as place:
        thread = threading.Thread(target=server.run, args=([place],))
        thread.start()
        until(lambda: server.started)
        try:
            client = Client(place.getsockname()[1])
            yield SimpleNamespace(engine=engine, batches=batches, server=server, client=client)
        finally:
            engine.gate.set()
            server.should_exit = True
            thread.join()


if __name__ == "__main__":
    with bound("127.0.0.1", 0) as where:
        slow = GatedEngine()
        slow.gate.clear()
        threading.Thread(target=lambda: sys.stdin.readline() and slow.gate.set(), daemon=True).start()
        print(where.getsockname()[1], flush=True)
        listen(where, Batches({"nsed/team": team(slow)}), Limits(), "")
        print("finished", len(slow.asked), flush=True)
