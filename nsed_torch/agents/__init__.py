"""Everything that talks to a language model: engines, ensembles, prompts, the encoder, weights."""

from nsed_torch.agents.adapters import add_adapter, save_adapter
from nsed_torch.agents.encoder import Encoder, HashedEncoder
from nsed_torch.agents.endpoint import EndpointEngine
from nsed_torch.agents.ensemble import Agent, Ensemble
from nsed_torch.agents.loading import in_memory, load_backbone, load_encoder
from nsed_torch.agents.prompts import Prompts
from nsed_torch.agents.replicas import EngineReplicas
from nsed_torch.agents.requests import Decoding, Engine, GenerateRequest, Message, RateRequest, RatingScale
from nsed_torch.agents.scripted import ScriptedEngine
from nsed_torch.agents.transformers_engine import TransformersEngine
from nsed_torch.agents.weights import Weights, resolve

__all__ = [
    "Agent",
    "Decoding",
    "Encoder",
    "EndpointEngine",
    "Engine",
    "EngineReplicas",
    "Ensemble",
    "GenerateRequest",
    "HashedEncoder",
    "Message",
    "Prompts",
    "RateRequest",
    "RatingScale",
    "ScriptedEngine",
    "TransformersEngine",
    "Weights",
    "add_adapter",
    "in_memory",
    "load_backbone",
    "load_encoder",
    "resolve",
    "save_adapter",
]
