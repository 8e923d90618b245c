"""What a family's model code computes without any field of the config saying so. Imports only the standard library.

The source is the modeling_*.py of each family under
https://github.com/huggingface/transformers/tree/main/src/transformers/models; `kvviz.models.family_facts` has the facts
about caches. A family that is in none of these tables computes what its widths say.
"""

from collections.abc import Mapping

_NO_CACHE = "its model code keeps no cache, so that there is no cached step"
_OTHER_BLOCKS = (
    *("axk2", "canary_decoder", "cohere_asr", "cpmant", "dia", "dia_decoder", "diffllama", "electra", "hrm_text"),
    *("hy_v4", "inkling_text", "inkling2_text", "jetmoe", "longcat_flash", "minimax_m3_vl_text", "mllama_text_model"),
    *("moshi", "musicgen_decoder", "musicgen_melody_decoder", "nllb-moe", "prophetnet", "rembert", "roc_bert"),
    *("switch_transformers", "xlstm", "xmod", "zamba", "zaya"),
)
# Reasons why a family's work can't be counted.
UNCOUNTED: Mapping[str, str] = {
    "openai-gpt": _NO_CACHE,
    "xlm": _NO_CACHE,
    "dbrx": "its experts stand in an ffn_config that is not read here",
    "doge": "it scores every value of the context on top of the keys",
    **dict.fromkeys(_OTHER_BLOCKS, "it computes more than the usual blocks, and that is not written down here"),
}

# Families whose MLP has two matrices and no gate.
UNGATED_MLP = frozenset(
    (
        *("apertus", "arcee", "bart", "bert", "bert-generation", "big_bird", "bigbird_pegasus", "biogpt"),
        *("blenderbot", "blenderbot-small", "bloom", "camembert", "canary", "codegen", "cohere_asr", "ctrl"),
        *("data2vec-text", "electra", "ernie", "falcon", "fsmt", "git", "gpt-sw3", "gpt2", "gpt_bigcode"),
        *("gpt_neo", "gpt_neox", "gpt_neox_japanese", "gptj", "jais2", "led", "m2m_100", "marian", "mbart"),
        *("megatron-bert", "mpt", "mvp", "nanochat", "nemotron", "nemotron_h", "opt", "pegasus", "pegasus_x"),
        *("persimmon", "phi", "plbart", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer"),
        *("seamless_m4t", "seamless_m4t_v2", "speech_to_text", "speecht5", "starcoder2", "trocr", "whisper"),
        *("xglm", "xlm-roberta", "xlm-roberta-xl", "xmod"),
    )
)
# Inner width of the MLP as a multiple of the hidden size: a number, or the field that states it.
MLP_FACTOR: Mapping[str, int | str] = {"bloom": 4, "mpt": "expansion_ratio"}

# The code sends every token through all experts and weights their outputs.
COMPUTES_ALL_EXPERTS = frozenset(("llama4_text",))
# The field with the width of the MLP that every token uses beside the experts; other families state a number of
# experts.
SHARED_EXPERT_WIDTH: Mapping[str, str] = {
    **dict.fromkeys(
        ("qwen2_moe", "qwen3_next", "qwen3_5_moe_text", "flint", "kolibri1", "laguna"),
        "shared_expert_intermediate_size",
    ),
    **dict.fromkeys(("granitemoeshared", "granitemoehybrid", "granitemoe_swa"), "shared_intermediate_size"),
    **dict.fromkeys(("llama4_text", "hunyuan_v1_moe"), "intermediate_size"),
}
SHARED_EXPERT_GATED = frozenset(("qwen2_moe", "qwen3_next", "qwen3_5_moe_text"))

# Queries come with a gate of the same width; or one number per head gates attention's output.
GATED_QUERIES = frozenset(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "afmoe", "beam"))
GATED_HEADS = frozenset(("laguna", "lfm3", "bailing_hybrid", "dots3_note_text"))
# The two gates of Kimi delta attention are full matrices here, not products of two narrow ones.
FULL_DELTA_GATES = frozenset(("bailing_hybrid",))

# Number of square matrices at the start of the head.
HEAD_MATRICES: Mapping[str, int] = {
    **dict.fromkeys(
        (
            *("bert", "camembert", "data2vec-text", "ernie", "megatron-bert", "modernbert-decoder", "roberta"),
            *("roberta-prelayernorm", "roformer", "xlm-roberta", "xlm-roberta-xl"),
        ),
        1,
    ),
    "big_bird": 2,
}
