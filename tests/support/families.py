"""Tiny configurations, by family: windows and chunks of 32 tokens wherever a family has some."""

from typing import Any

from tests.support.tiny import VOCAB_SIZE

WINDOW = 32
"""Tokens of a window, of a chunk, and up to LongRoPE's border."""
CONTEXT = 256

IDS = {"vocab_size": VOCAB_SIZE, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
TIED = {"tie_word_embeddings": False}  # tied and random, a model just repeats its last token
MHA: dict[str, Any] = {
    **IDS,
    **TIED,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": CONTEXT,
}
GQA = {**MHA, "num_key_value_heads": 1, "head_dim": 16}
MOE = {
    **GQA,
    "num_experts": 2,
    "num_local_experts": 2,
    "n_routed_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
ALTERNATING = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
GPT2 = {**IDS, **TIED, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": CONTEXT}
GEMMA = {**GQA, **ALTERNATING, "query_pre_attn_scalar": 16}
PER_LAYER = {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": VOCAB_SIZE}
DELTA_NET = {
    **MOE,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "num_hidden_layers": 3,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
}
LFM2 = {
    **MOE,
    "num_hidden_layers": 3,
    "layer_types": ["conv", "full_attention", "conv"],
    "block_ff_dim": 48,
    "block_auto_adjust_ff_dim": False,
}
MLA = {
    **MOE,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
MAMBA = {**IDS, **TIED, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}
LONGROPE = {
    "original_max_position_embeddings": WINDOW,
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0] * 8,
        "long_factor": [1.0 + 1.5 * i for i in range(8)],
    },
}

SETTINGS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(
        (
            *("arcee", "bitnet", "cohere", "gemma", "glm", "glm4", "granite"),
            *("hunyuan_v1_dense", "llama", "nemotron", "olmo", "olmo2", "qwen2", "qwen3"),
            *("seed_oss", "smollm3", "stablelm"),
        ),
        GQA,
    ),
    **dict.fromkeys(("biogpt", "gpt_neox", "persimmon", "phi"), MHA),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3"), MLA),
    **dict.fromkeys(("falcon_mamba", "mamba"), MAMBA),
    **dict.fromkeys(("gpt2", "gpt_bigcode"), GPT2),
    **dict.fromkeys(("granitemoe", "qwen2_moe", "qwen3_moe"), MOE),
    "lfm2": LFM2,
    **dict.fromkeys(("qwen3_5_moe_text", "qwen3_5_text", "qwen3_next"), DELTA_NET),
    "afmoe": {**MOE, **ALTERNATING, "num_dense_layers": 1, "num_shared_experts": 1},
    "bloom": {**IDS, **TIED, "hidden_size": 32, "n_layer": 2, "n_head": 2},
    "codegen": {**GPT2, "rotary_dim": 8, "n_head": 4},
    "cohere2": {**GQA, **ALTERNATING},
    "dbrx": {
        **IDS,
        **TIED,
        "d_model": 32,
        "n_heads": 2,
        "n_layers": 2,
        "max_seq_len": CONTEXT,
        "attn_config": {"kv_n_heads": 1, "clip_qkv": 8, "rope_theta": 10000.0},
        "ffn_config": {"ffn_hidden_size": 48, "moe_num_experts": 2, "moe_top_k": 1},
    },
    "exaone4": {**GQA, **ALTERNATING},
    "falcon": {**MHA, "alibi": False},
    "gemma2": GEMMA,
    "gemma3_text": GEMMA,
    "gemma3n_text": {
        **GEMMA,
        **PER_LAYER,
        "intermediate_size": [48, 48],
        "activation_sparsity_pattern": [0.0, 0.0],
        "num_kv_shared_layers": 0,
        "laurel_rank": 4,
    },
    "gemma4_text": {**GEMMA, **PER_LAYER, "global_head_dim": 32, "num_kv_shared_layers": 0},
    "gpt_neo": {
        **MHA,
        "num_layers": 2,
        "num_heads": 2,
        "attention_types": [[["global", "local"], 1]],
        "window_size": WINDOW,
    },
    "gpt_neox_japanese": {**MHA, "intermediate_multiple_size": 2},
    "gpt_oss": {**MOE, **ALTERNATING},
    "gptj": {**GPT2, "rotary_dim": 8},
    "granitemoehybrid": {
        **MOE,
        "layer_types": ["mamba", "attention"],
        "mamba_n_heads": 4,
        "mamba_d_head": 16,
        "mamba_d_state": 8,
        "mamba_n_groups": 1,
        "mamba_expand": 2,
        "shared_intermediate_size": 48,
    },
    "lfm2_moe": {**LFM2, "num_dense_layers": 1},
    "llama4_text": {
        **MOE,
        "intermediate_size_mlp": 48,
        "attention_chunk_size": WINDOW,
        "no_rope_layers": [1, 0],
        "moe_layers": [1],
    },
    "mistral": {**GQA, "sliding_window": WINDOW},
    "mixtral": {**MOE, "sliding_window": WINDOW},
    "mpt": {**IDS, **TIED, "d_model": 32, "n_layers": 2, "n_heads": 2, "max_seq_len": CONTEXT},
    "olmo3": {**GQA, **ALTERNATING},
    "opt": {**MHA, "ffn_dim": 48, "word_embed_proj_dim": 32},
    "phi3": {**GQA, "sliding_window": WINDOW},
    "phi3 with LongRoPE": {**GQA, **LONGROPE, "sliding_window": None},
    "phimoe": {**MOE, "sliding_window": WINDOW},
    "starcoder2": {**GQA, "sliding_window": WINDOW},
    "xglm": {**MHA, "d_model": 32, "ffn_dim": 48, "num_layers": 2, "attention_heads": 2},
    "zamba2": {
        **MHA,
        "layers_block_type": ["mamba", "hybrid"],
        "mamba_d_state": 8,
        "n_mamba_heads": 4,
        "mamba_headdim": 16,
        "mamba_ngroups": 1,
        "use_shared_mlp_adapter": False,
        "num_mem_blocks": 1,
        "hybrid_layer_ids": [1],
    },
}
