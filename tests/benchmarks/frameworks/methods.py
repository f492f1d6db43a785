"""The benchmark's methods with those of other frameworks among them."""

from ov_specdec.bench.methods import OWN, Catalogue, Family, own_family
from tests.benchmarks.frameworks import genai, genai_batch, torch_peer

PEERS = (
    *("eager-trim-4", "genai-plain", "genai-draft-4", "genai-prompt-lookup-4"),
    *("torch-plain", "torch-assisted"),
)
OWN_NAMES = OWN.groups["own"]

ALL = Catalogue(
    single={
        **OWN.single,
        "genai-plain": Family("openvino.genai", "LLMPipeline", genai.plain, genai_batch.plain),
        "torch-plain": Family("transformers", "generate on torch, bf16", torch_peer.plain),
        "torch-assisted": Family(
            "transformers", "assisted generation on torch, bf16", torch_peer.assisted
        ),
    },
    with_length={
        **OWN.with_length,
        "eager-trim": own_family(
            "the loop of the OpenVINO notebook: constant length, states trimmed at each rollback",
            "model",
            kv="stateful",
            trim=True,
        ),
        "genai-draft": Family(
            "openvino.genai",
            "LLMPipeline with the draft model",
            genai.with_draft,
            genai_batch.with_draft,
        ),
        "genai-prompt-lookup": Family(
            "openvino.genai",
            "LLMPipeline with prompt lookup",
            genai.prompt_lookup,
            genai_batch.prompt_lookup,
        ),
    },
    groups={"own": OWN_NAMES, "peers": PEERS, "all": (*OWN_NAMES, *PEERS)},
    full=("all",),
    quick=(*OWN.quick, "genai-plain", "genai-draft-4"),
    loads=(*OWN.loads, "genai-plain", "genai-draft-2", "genai-draft-4"),
    quick_loads=(*OWN.quick_loads, "genai-plain"),
)
"""All methods."""
