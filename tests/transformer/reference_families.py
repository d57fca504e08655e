"""Random small models of the library `transformers`, saved as checkpoints, and what they compute: the reference."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

import minigrad as mg  # noqa: E402
from minigrad.io import load_file  # noqa: E402
from transformer.checkpoints import load, stored_arrays  # noqa: E402

SEQ2SEQ = ("t5", "t5-gated", "mt5", "bart", "marian")
ROTARY = ("llama", "mixtral", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "gpt_neox", "deepseek_v2", "gemma", "phi")
DECODERS = ("gpt2", *ROTARY, "opt")
ENCODERS = {"bert": "Bert", "roberta": "Roberta", "distilbert": "DistilBert", "modernbert": "ModernBert"}
HEADS = {"-lm": "ForMaskedLM", "-classify": "ForSequenceClassification", "-tag": "ForTokenClassification",
         "-answer": "ForQuestionAnswering", "": "Model"}  # fmt: skip
BERTS = tuple(kind + head for kind in ENCODERS for head in HEADS)
MODERN = tuple("modernbert" + head for head in HEADS)
FAMILIES = (*DECODERS, *BERTS, *SEQ2SEQ)
EXACT = (
    "gpt2",
    *(family for family in BERTS if family not in MODERN),
    "bart",
)  # computed in float64 throughout by the library, where the weights are


def hf_class(family):
    if family in BERTS:
        kind, dash, head = family.partition("-")
        return getattr(transformers, ENCODERS[kind] + HEADS[dash + head])
    return getattr(
        transformers,
        {
            "gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM", "mixtral": "MixtralForCausalLM",
            "t5": "T5ForConditionalGeneration",
            "t5-gated": "T5ForConditionalGeneration", "bart": "BartForConditionalGeneration",
            "marian": "MarianMTModel", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
            "qwen3": "Qwen3ForCausalLM", "phi3": "Phi3ForCausalLM", "gemma2": "Gemma2ForCausalLM",
            "gpt_neox": "GPTNeoXForCausalLM", "deepseek_v2": "DeepseekV2ForCausalLM",
            "mt5": "MT5ForConditionalGeneration", "gemma": "GemmaForCausalLM", "phi": "PhiForCausalLM",
            "opt": "OPTForCausalLM",
        }[family],
    )  # fmt: skip


def random_config(family, rng, coin):
    """A configuration in which sizes and head counts are drawn; `coin` chooses between options."""
    heads, layers = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    d_head = 2 * int(rng.integers(2, 5))
    d, vocab, d_ff = heads * d_head, int(rng.integers(17, 40)), int(rng.integers(5, 30))
    if family == "gpt2":
        return transformers.GPT2Config(
            vocab_size=vocab, n_positions=23, n_embd=d, n_layer=layers, n_head=heads, n_inner=d_ff if coin else None,
            activation_function=str(rng.choice(["gelu_new", "gelu", "relu"])), tie_word_embeddings=coin,
            layer_norm_epsilon=1e-3, bos_token_id=1, eos_token_id=2,
        )  # fmt: skip
    if family == "opt":
        return transformers.OPTConfig(
            vocab_size=vocab, hidden_size=d, num_hidden_layers=layers, ffn_dim=d_ff, max_position_embeddings=23,
            do_layer_norm_before=coin, word_embed_proj_dim=d + 2 if coin else None, num_attention_heads=heads,
            activation_function=str(rng.choice(["gelu", "relu"])), pad_token_id=0, enable_bias=not coin,
        )  # fmt: skip
    if family in ROTARY:
        groups = int(rng.integers(1, 4))
        shared = {
            "vocab_size": vocab, "hidden_size": d, "intermediate_size": d_ff, "num_hidden_layers": layers,
            "num_attention_heads": heads * groups, "num_key_value_heads": heads, "head_dim": d_head,
            "max_position_embeddings": 64, "rms_norm_eps": 1e-3, "tie_word_embeddings": coin,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
        }  # fmt: skip
        shared["hidden_size"] = heads * groups * int(rng.integers(1, 4))
        if family == "llama":
            if coin:
                shared["rope_parameters"] = {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.5}
            else:
                shared["rope_parameters"] = {
                    "rope_type": "llama3", "rope_theta": 500.0, "factor": 3.0, "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0, "original_max_position_embeddings": 30,
                }  # fmt: skip
            return transformers.LlamaConfig(**shared, attention_bias=not coin, mlp_bias=coin)
        if family != "mixtral":
            return _descendant(family, shared, coin)
        experts = int(rng.integers(2, 6))
        return transformers.MixtralConfig(
            **shared, num_local_experts=experts, num_experts_per_tok=int(rng.integers(1, experts + 1)),
            sliding_window=3 if coin else None, experts_implementation="eager",
        )  # fmt: skip
    labels = {"num_labels": 4} if family.endswith(("-classify", "-tag")) else {}
    if family.startswith("distilbert"):
        return transformers.DistilBertConfig(
            vocab_size=vocab, dim=d, n_layers=layers, n_heads=heads, hidden_dim=d_ff, max_position_embeddings=23,
            activation=str(rng.choice(["gelu", "relu"])), **labels,
        )  # fmt: skip
    if family in MODERN:
        theta = {"full_attention": {"rope_theta": 500.0}, "sliding_attention": {"rope_theta": 30.0}}
        return transformers.ModernBertConfig(
            vocab_size=vocab, hidden_size=d, num_hidden_layers=layers + 1, num_attention_heads=heads,
            intermediate_size=d_ff, max_position_embeddings=23, norm_eps=1e-3, norm_bias=coin, attention_bias=coin,
            mlp_bias=not coin, decoder_bias=coin, classifier_bias=coin, classifier_pooling="mean" if coin else "cls",
            local_attention=4 if coin else 7, hidden_activation=str(rng.choice(["gelu", "silu"])), pad_token_id=0,
            rope_parameters={kind: {"rope_type": "default", **table} for kind, table in theta.items()},
            layer_types=(["sliding_attention", "full_attention"] * 2)[: layers + 1] if coin else None, **labels,
        )  # fmt: skip
    if family in BERTS:
        return (transformers.RobertaConfig if family[0] == "r" else transformers.BertConfig)(
            vocab_size=vocab, hidden_size=d, num_hidden_layers=layers, num_attention_heads=heads,
            intermediate_size=d_ff, max_position_embeddings=23, type_vocab_size=3, layer_norm_eps=1e-3,
            hidden_act=str(rng.choice(["gelu", "relu", "silu"])),
            **labels,
        )  # fmt: skip
    if family in ("t5", "t5-gated", "mt5"):
        return (transformers.MT5Config if family == "mt5" else transformers.T5Config)(
            vocab_size=vocab, d_model=d + 1, d_kv=d_head, d_ff=d_ff, num_layers=layers,
            num_decoder_layers=int(rng.integers(1, 4)), num_heads=heads, relative_attention_num_buckets=8,
            relative_attention_max_distance=9, layer_norm_epsilon=1e-3, decoder_start_token_id=0,
            **({"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False} if family == "t5-gated" else {}),
        )  # fmt: skip
    shared = {
        "vocab_size": vocab, "d_model": d * 6, "encoder_layers": layers, "decoder_layers": int(rng.integers(1, 4)),
        "encoder_attention_heads": heads, "decoder_attention_heads": 6,
        "encoder_ffn_dim": d_ff, "decoder_ffn_dim": d_ff + 3,
        "max_position_embeddings": 23, "scale_embedding": coin, "activation_function": "gelu" if coin else "swish",
        "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2,
        "forced_eos_token_id": None,
    }  # fmt: skip
    if family == "marian":
        return transformers.MarianConfig(**shared, decoder_vocab_size=vocab)
    return transformers.BartConfig(**shared)


def _descendant(family, shared, coin):
    """A configuration of one of LLaMA's descendants; `coin` chooses windows and how positions reach further."""
    theta, d_head = {"rope_theta": 500.0}, shared["head_dim"]
    yarn = {"rope_type": "yarn", "factor": 3.0, "original_max_position_embeddings": 20, **theta}
    kinds = (["full_attention", "sliding_attention"] * 3)[: shared["num_hidden_layers"]]
    if family == "deepseek_v2":
        shared["hidden_size"] = shared["num_attention_heads"] * 3
        far = {**yarn, "mscale": 0.9, "mscale_all_dim": 0.7} if coin else {"rope_type": "default", **theta}
        drop = ("num_key_value_heads", "head_dim", "rope_parameters")
        sizes = {name: value for name, value in shared.items() if name not in drop}
        groups = {"topk_method": "group_limited_greedy", "n_group": 3, "topk_group": 2} if coin else {}
        return transformers.DeepseekV2Config(
            **sizes, rope_parameters=far, q_lora_rank=None if coin else 5, kv_lora_rank=8, qk_nope_head_dim=6,
            qk_rope_head_dim=4, v_head_dim=3, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2,
            moe_intermediate_size=9, first_k_dense_replace=1, routed_scaling_factor=1.5, attention_bias=coin, **groups,
            experts_implementation="eager",
        )  # fmt: skip
    if family == "gpt_neox":
        drop = ("num_key_value_heads", "head_dim", "rms_norm_eps")
        sizes = {name: value for name, value in shared.items() if name not in drop}
        sizes["hidden_size"] = shared["num_attention_heads"] * 8
        far = {"rope_type": "linear", "factor": 2.0} if coin else {"rope_type": "default"}
        sizes["rope_parameters"] = {**far, "partial_rotary_factor": 0.5 if coin else 0.25, **theta}
        return transformers.GPTNeoXConfig(**sizes, layer_norm_eps=1e-3, use_parallel_residual=not coin)
    if family == "phi":
        drop = ("head_dim", "rms_norm_eps")
        sizes = {name: value for name, value in shared.items() if name not in drop}
        sizes["hidden_size"] = shared["num_attention_heads"] * 8
        far = {"rope_type": "linear", "factor": 2.0} if coin else {"rope_type": "default"}
        sizes["rope_parameters"] = {**far, "partial_rotary_factor": 0.5 if coin else 0.25, **theta}
        return transformers.PhiConfig(**sizes, layer_norm_eps=1e-3, qk_layernorm=coin)
    if family == "gemma":
        return transformers.GemmaConfig(**shared, attention_bias=coin, pad_token_id=0)
    if family == "gemma2":
        shared["hidden_size"] = shared["num_attention_heads"] * 3
        caps = {} if coin else {"final_logit_softcapping": 2.0, "attn_logit_softcapping": 1.5}
        return transformers.Gemma2Config(**shared, sliding_window=3, query_pre_attn_scalar=d_head + 1, **caps,
                                         pad_token_id=0)  # fmt: skip
    if family in ("qwen2", "phi3"):
        shared["hidden_size"] = shared["num_attention_heads"] * shared.pop("head_dim")
    if family == "phi3":
        far = {"rope_type": "longrope", "short_factor": [1.0 + 0.2 * i for i in range(d_head // 2)],
               "long_factor": [2.0 + i for i in range(d_head // 2)], **theta}  # fmt: skip
        shared["rope_parameters"] = far if coin else {"rope_type": "default", **theta}
        return transformers.Phi3Config(**shared, sliding_window=None if coin else 3, pad_token_id=0,
                                       original_max_position_embeddings=6)  # fmt: skip
    if family == "mistral":
        shared["rope_parameters"] = yarn if coin else {"rope_type": "dynamic", "factor": 2.0, **theta}
        shared["max_position_embeddings"] = 64 if coin else 6
        return transformers.MistralConfig(**shared, sliding_window=3 if coin else None)
    more = {"attention_bias": coin} if family == "qwen3" else {}
    kind = transformers.Qwen2Config if family == "qwen2" else transformers.Qwen3Config
    return kind(**shared, use_sliding_window=coin, sliding_window=3, layer_types=kinds if coin else None, **more)


def reference_model(family, seed):
    """A model in float64 whose weights, norms and biases included, are all random."""
    rng = np.random.default_rng([seed, FAMILIES.index(family)])
    torch.manual_seed(seed)
    config = random_config(family, rng, coin=seed % 2 == 1)
    config.dtype = "float32"
    model = hf_class(family)(config).double().eval()
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), ("bias", getattr(model, "final_logits_bias", torch.zeros(1)))]:
            if "embed_positions" in name and family == "marian":
                continue  # a formula
            centre = 1.0 if tensor.ndim == 1 and "norm" in name.lower().replace("ln_", "norm") else 0.0
            spread = 0.3 if tensor.ndim < 2 else tensor.shape[-1] ** -0.5
            # numbers that float32 has, so that both precisions mean the same model
            values = (centre + spread * rng.standard_normal(tuple(tensor.shape))).astype(np.float32)
            tensor.copy_(torch.from_numpy(values))
    return model


def saved(model, folder):
    model.save_pretrained(folder, safe_serialization=True)
    return folder


def pair(family, seed, folder, dtype):
    """(theirs, ours): the same weights through the same files, in `dtype` ("float32" or "float64")."""
    theirs = reference_model(family, seed)
    saved(theirs if dtype == "float64" else theirs.float(), folder)
    return theirs, load(folder, getattr(mg, dtype))


def inputs(family, model, seed=0, batch=3, length=8):
    """ids, which of them are real, and for encoder-decoders the decoder's ids; decoders are padded on the left."""
    rng = np.random.default_rng(seed)
    vocab = model.config.vocab_size
    ids = rng.integers(3, vocab, (batch, length))
    real = np.ones((batch, length), bool)
    # its softmax is in float32, where the lowest float64, which hides keys, is -inf: NaN where a query sees no key
    unpadded = family == "gemma2" and next(model.parameters()).dtype == torch.float64
    for row, n in enumerate((0, 0, 0) if unpadded else (0, 3, 1)):
        if n and family in DECODERS:
            real[row, :n] = False
        elif n:
            real[row, -n:] = False
    pad = model.config.pad_token_id if family not in DECODERS else 0
    ids = np.where(real, ids, pad)
    targets = rng.integers(3, vocab, (batch, length - 2)) if family in SEQ2SEQ else None
    return ids, real, targets


def result(out):
    """What a model of the library gives: logits, those of the two ends of an answer, or hidden states."""
    if "start_logits" in out:
        return torch.stack([out.start_logits, out.end_logits], -1)
    return out.logits if "logits" in out else out.last_hidden_state


def run_theirs(family, model, ids, real, targets):
    """(logits, hidden states by stack) of the library."""
    extra = {}
    if targets is not None:
        extra["decoder_input_ids"] = torch.tensor(targets)
    if family in DECODERS:
        extra["position_ids"] = torch.tensor(np.maximum(real.cumsum(1) - 1, 0))
    out = model(torch.tensor(ids), attention_mask=torch.tensor(real).long(), output_hidden_states=True, **extra)
    logits = result(out)
    if targets is None:
        return logits, {"layers": out.hidden_states}
    return logits, {"encoder": out.encoder_hidden_states, "decoder": out.decoder_hidden_states}


def run_ours(family, model, ids, real, targets):
    """(logits, hidden states by stack) of ours: what goes into the first layer, and what comes out of each.

    As in the library, the last state is the one after the stack's norm where there is one.
    """
    states = {}
    if family in SEQ2SEQ:
        stacks = {"encoder": ("encoder_layers", "encoder_norm"), "decoder": ("decoder_layers", "decoder_norm")}
    else:
        stacks = {"layers": ("layers", "norm")}
    handles = []
    for stack, (layers, norm) in stacks.items():
        seen = states[stack] = []
        modules = list(getattr(model, layers))
        handles.append(
            modules[0].register_forward_pre_hook(lambda module, args, seen=seen: seen.append(args[0]) and None)
        )
        handles += [
            m.register_forward_hook(lambda module, args, out, seen=seen: seen.append(out) and None) for m in modules
        ]
        if family in (*DECODERS, *MODERN, "t5", "t5-gated", "mt5"):
            handles.append(
                getattr(model, norm).register_forward_hook(
                    lambda module, args, out, seen=seen: seen.__setitem__(-1, out)
                )
            )
    if targets is not None:
        logits = model(mg.tensor(ids), mg.tensor(targets))
    else:
        logits = model(mg.tensor(ids), real=mg.tensor(real))
    for handle in handles:
        handle.remove()
    return logits, states


def stored_gradients(model, folder):
    """The gradients of the library's model under the keys of its weights file."""
    state = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    model.save_pretrained(folder, state_dict=state, safe_serialization=True)
    return {key: tensor.numpy() for key, tensor in load_file(folder / "model.safetensors").items()}


def assert_close(ours, theirs, tolerance, what=""):
    """Within `tolerance` of the largest number there is."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape, what
    error, scale = np.abs(ours - theirs).max(), np.abs(theirs).max()
    assert error <= tolerance * scale, f"{what}: off by {error:.3g}, the largest number is {scale:.3g}"


def assert_gradients_equal(ours, theirs, folder, bound):
    """The gradients of both, by the names of the library's files; bound: of the largest of them."""
    gradients = stored_arrays(ours, {name: p.grad.numpy() for name, p in ours.named_parameters()})
    state = {name: p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    theirs.save_pretrained(folder / "gradients", state_dict=state)
    found = {ours.canonical(key): value for key, value in load_file(folder / "gradients/model.safetensors").items()}
    assert set(found) == set(gradients)
    largest = max(np.abs(gradient).max() for gradient in gradients.values())
    for key, gradient in gradients.items():
        np.testing.assert_allclose(gradient, found[key], rtol=0, atol=bound * float(largest), err_msg=key)
