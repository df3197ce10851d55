"""Everything that talks to a language model: engines, ensembles, prompts, the encoder, weights."""

from nsed_torch.agents.adapters import adapter_parameters, add_adapter, copy_adapter, save_adapter
from nsed_torch.agents.encoder import Encoder, HashedEncoder, SentenceEncoder
from nsed_torch.agents.endpoint import EndpointEngine
from nsed_torch.agents.ensemble import Agent, Ensemble, Progress
from nsed_torch.agents.loading import load_backbone, load_encoder
from nsed_torch.agents.prompts import Prompts, parse_score, unfence
from nsed_torch.agents.replay import Recording, ReplayEngine
from nsed_torch.agents.requests import (
    ContextWindowError,
    Decoding,
    Engine,
    GenerateRequest,
    Generation,
    Likelihood,
    LikelihoodRequest,
    Message,
    RateRequest,
    Rating,
    RatingScale,
    call_seed,
)
from nsed_torch.agents.scripted import ScriptedEngine
from nsed_torch.agents.transformers_engine import TransformersEngine
from nsed_torch.agents.weights import PackagedWeights, ResolvedWeights, Weights, Wheel, resolve

__all__ = [
    "Agent",
    "ContextWindowError",
    "Decoding",
    "Encoder",
    "EndpointEngine",
    "Engine",
    "Ensemble",
    "GenerateRequest",
    "Generation",
    "HashedEncoder",
    "Likelihood",
    "LikelihoodRequest",
    "Message",
    "PackagedWeights",
    "Progress",
    "Prompts",
    "RateRequest",
    "Rating",
    "RatingScale",
    "Recording",
    "ReplayEngine",
    "ResolvedWeights",
    "ScriptedEngine",
    "SentenceEncoder",
    "TransformersEngine",
    "Weights",
    "Wheel",
    "adapter_parameters",
    "add_adapter",
    "call_seed",
    "copy_adapter",
    "load_backbone",
    "load_encoder",
    "parse_score",
    "resolve",
    "save_adapter",
    "unfence",
]
