"""Tiny random models of every family, with each family's real shape of attention."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

_USUAL: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 4096,
    "initializer_range": 0.4,
    "bos_token_id": None,
    "eos_token_id": 0,
    "pad_token_id": None,
}
_GQA = {"num_key_value_heads": 2}
_MQA = {"num_key_value_heads": 1}
_MHA = {"num_key_value_heads": 4}
_HEAD = {"head_dim": 8}
_OLD = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 4096}
_SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 9}
_MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
_SSM = {"mamba_d_conv": 4, "mamba_d_state": 8, "mamba_expand": 2}
_SSM2 = {**_SSM, "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_chunk_size": 8}


@dataclass(frozen=True)
class Family:
    """One row of the matrix. mode: "in-sequence" or "fork"; heads: the shape of its attention."""

    name: str
    model_type: str
    mode: str
    heads: str
    positions: str
    settings: dict[str, Any] = field(default_factory=dict)

    def config(self, vocab_size: int, **changes: Any) -> Any:
        settings = {**_USUAL, "vocab_size": vocab_size, **self.settings, **changes}
        return AutoConfig.for_model(self.model_type, **settings)

    def model(self, vocab_size: int, **changes: Any) -> Any:
        """In float32, the same weights every time; the backend is transformers' choice."""
        torch.manual_seed(7)
        config = self.config(vocab_size, **changes)
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


def _row(name: str, heads: str, positions: str, *settings: dict[str, Any], **more: Any) -> Family:
    model_type = more.pop("model_type", name)
    mode = more.pop("mode", "in-sequence")
    merged = {key: value for part in (*settings, more) for key, value in part.items()}
    return Family(name, model_type, mode, heads, positions, merged)


IN_SEQUENCE = [
    _row("qwen2", "GQA", "rotary", _GQA),
    _row("qwen3", "GQA", "rotary", _GQA, _HEAD),
    _row("qwen3_moe", "GQA", "rotary", _GQA, _HEAD, _MOE, num_experts=4, decoder_sparse_step=1),
    _row("llama", "GQA", "rotary", _GQA),
    _row("mistral", "GQA", "rotary", _GQA, sliding_window=None),
    _row("mistral (window)", "GQA", "rotary", _GQA, model_type="mistral", sliding_window=9),
    _row("mixtral", "GQA", "rotary", _GQA, num_local_experts=4, num_experts_per_tok=2),
    _row("phi", "MHA", "rotary, partial", partial_rotary_factor=0.5),
    _row("phi3", "GQA", "rotary", _GQA),
    _row(
        "phi3 (longrope)",
        "GQA",
        "rotary, longrope",
        _GQA,
        model_type="phi3",
        original_max_position_embeddings=1024,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "short_factor": [1.0, 1.1, 1.2, 1.3],
            "long_factor": [1.0, 2.0, 4.0, 8.0],
            "original_max_position_embeddings": 1024,
        },
    ),
    _row("gemma", "MQA", "rotary", _MQA, _HEAD),
    _row("gemma2", "GQA, softcap", "rotary", _GQA, _HEAD, _SLIDING),
    _row("gemma3", "GQA", "rotary", _GQA, _HEAD, _SLIDING, model_type="gemma3_text"),
    _row("olmo2", "MHA", "rotary", _MHA),
    _row("olmo3", "GQA", "rotary", _GQA, _SLIDING),
    _row("granite", "GQA", "rotary", _GQA),
    _row("cohere", "GQA", "rotary", _GQA),
    _row("cohere2", "GQA", "rotary, none", _GQA, _SLIDING),
    _row("stablelm", "GQA", "rotary, partial", _GQA),
    _row("starcoder2", "GQA", "rotary", _GQA, sliding_window=9),
    _row("gpt_neox", "MHA", "rotary, partial"),
    _row("gpt2", "MHA", "learned", _OLD),
    _row("opt", "MHA", "learned", ffn_dim=48, word_embed_proj_dim=32),
    _row("glm4", "GQA", "rotary, partial", _GQA, _HEAD),
    _row("smollm3", "GQA", "rotary, none", _GQA, no_rope_layers=[1, 0]),
    _row("exaone4", "GQA", "rotary, none", _GQA, _SLIDING),
    _row("nemotron", "GQA", "rotary, partial", _GQA),
    _row("gpt_oss", "GQA, sinks", "rotary", _GQA, _HEAD, _SLIDING, num_local_experts=4),
    _row(
        "deepseek_v3",
        "MLA",
        "rotary, partial",
        _MHA,
        kv_lora_rank=8,
        q_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
        n_routed_experts=4,
        n_group=2,
        topk_group=1,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        first_k_dense_replace=1,
    ),
]

FORK = [
    _row(
        "llama4",
        "GQA",
        "rotary, none",
        _GQA,
        _HEAD,
        mode="fork",
        model_type="llama4_text",
        intermediate_size_mlp=48,
        num_local_experts=4,
        attention_chunk_size=16,
        floor_scale=20,
        no_rope_layers=[1, 0],
        layer_types=["chunked_attention", "full_attention"],
        moe_layers=[1],
    ),
    _row("bloom", "MHA", "ALiBi", _OLD, mode="fork"),
    _row("mpt", "MHA", "ALiBi", mode="fork", d_model=32, n_layers=2, n_heads=4, max_seq_len=4096),
    _row("gptj", "MHA", "rotary, partial", _OLD, mode="fork", rotary_dim=4),
    _row(
        "falcon",
        "MQA",
        "rotary",
        mode="fork",
        alibi=False,
        multi_query=True,
        new_decoder_architecture=False,
    ),
    _row(
        "falcon (ALiBi)",
        "MHA",
        "ALiBi",
        model_type="falcon",
        mode="fork",
        alibi=True,
        multi_query=False,
        new_decoder_architecture=False,
    ),
    _row(
        "gpt_neo",
        "MHA, local",
        "learned",
        mode="fork",
        num_layers=2,
        num_heads=4,
        window_size=9,
        attention_types=[[["global", "local"], 1]],
    ),
    _row("mamba", "none", "order", mode="fork", state_size=8, num_hidden_layers=2),
    _row(
        "mamba2",
        "none",
        "order",
        mode="fork",
        state_size=8,
        num_heads=8,
        head_dim=8,
        n_groups=1,
        chunk_size=8,
    ),
    _row("falcon_mamba", "none", "order", mode="fork", state_size=8),
    _row(
        "jamba",
        "GQA, mamba",
        "order",
        _GQA,
        _SSM,
        mode="fork",
        attn_layer_period=2,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        num_experts=4,
        use_mamba_kernels=False,
    ),
    _row("bamba", "GQA, mamba2", "rotary, order", _GQA, _SSM2, mode="fork", attn_layer_indices=[1]),
    _row(
        "qwen3_next",
        "GQA, delta net",
        "rotary, order",
        _GQA,
        _HEAD,
        _MOE,
        mode="fork",
        num_experts=4,
        shared_expert_intermediate_size=16,
        decoder_sparse_step=1,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        layer_types=["linear_attention", "full_attention"],
    ),
    _row(
        "minimax",
        "GQA, lightning attention",
        "rotary, order",
        _GQA,
        _HEAD,
        mode="fork",
        num_local_experts=4,
        num_experts_per_tok=2,
        block_size=8,
        layer_types=["linear_attention", "full_attention"],
    ),
    _row(
        "granitemoehybrid",
        "GQA, mamba2",
        "order",
        _GQA,
        _SSM2,
        mode="fork",
        layer_types=["mamba", "attention"],
        num_local_experts=0,
        shared_intermediate_size=48,
        position_embedding_type=None,
    ),
    _row(
        "nemotron_h",
        "GQA, mamba2",
        "order",
        _GQA,
        _HEAD,
        mode="fork",
        layers_block_type=["mamba", "attention", "moe", "mlp"],
        mamba_num_heads=8,
        mamba_head_dim=8,
        moe_intermediate_size=16,
        moe_shared_expert_intermediate_size=16,
        n_routed_experts=4,
        num_experts_per_tok=2,
        ssm_state_size=8,
        n_groups=1,
        chunk_size=8,
    ),
    _row(
        "lfm2",
        "GQA, convolution",
        "rotary, order",
        _GQA,
        mode="fork",
        layer_types=["conv", "full_attention"],
        block_multiple_of=8,
    ),
    _row("rwkv", "none", "order", mode="fork", attention_hidden_size=32, context_length=4096),
    _row(
        "falcon_h1", "GQA, mamba2", "rotary, order", _GQA, _HEAD, _SSM2, mode="fork", mamba_d_ssm=64
    ),
]

# Its own logits depend on how a text is cut into passes.
NEARLY = [
    _row(
        "zamba2",
        "MHA, mamba2",
        "order",
        mode="fork",
        mamba_d_state=8,
        mamba_ngroups=1,
        n_mamba_heads=8,
        chunk_size=8,
        layers_block_type=["mamba", "hybrid"],
        num_mem_blocks=1,
    ),
]

# Its modules keep to themselves what they have read.
REFUSED = [
    _row(
        "recurrent_gemma",
        "MQA, recurrent",
        "rotary, order",
        _MQA,
        mode="fork",
        lru_width=32,
        block_types=["recurrent", "attention"],
        attention_window_size=9,
    ),
]

FAMILIES = {family.name: family for family in (*IN_SEQUENCE, *FORK, *NEARLY, *REFUSED)}
